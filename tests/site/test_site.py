"""The site as built: every link leads somewhere, nothing comes from elsewhere, every public name is there."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx")

from sphinx.util.inventory import InventoryFile

from diamond_attention import deploy, public

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
TUTORIALS = [page for page in PAGES if page.parent.name == "tutorials"]


class Page(HTMLParser):
    """What a page has for others to link to, where its links lead, and what a browser loads with it."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.add(given["href"])
        elif "src" in given:
            self.loaded.add(given["src"])


def leads_nowhere(site: Path) -> Iterator[str]:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link}: no such file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)}: {link}: no such place there"


def test_what_leads_nowhere_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#here"></a><a href="#top"></a>')
    (tmp_path / "b.html").write_text(
        '<p id="here"><a href="a.html#gone"></a><img src="c.png"><a href="https://x.y"></a>'
    )
    assert sorted(leads_nowhere(tmp_path)) == [
        "b.html: a.html#gone: no such place there",
        "b.html: c.png: no such file",
    ]


def test_every_link_leads_somewhere():
    assert sorted(leads_nowhere(SITE)) == []


def test_nothing_is_loaded_from_elsewhere():
    for path in SITE.rglob("*.html"):
        assert not [link for link in Page(path).loaded if urlsplit(link).netloc], path
    for path in SITE.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]*", path.read_text()), path


def test_every_page_is_there_and_stands_in_the_sidebar():
    front_page = Page(SITE / "docs" / "index.html")
    for page in PAGES:
        link = page.with_suffix(".html").relative_to("docs").as_posix()
        assert (SITE / "docs" / link).is_file()
        assert link in front_page.links or link == "index.html", page


def test_every_public_name_is_in_the_reference():
    inventory = InventoryFile.loads((SITE / "objects.inv").read_bytes(), uri="").data
    described = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert {f"diamond_attention.{name}" for name in public.__all__ if name != "PolicySettings"} <= described
    assert {f"diamond_attention.deploy.{name}" for name in deploy.__all__ if name != "UserError"} <= described
    assert "diamond_attention.World.reset" in described


@pytest.mark.parametrize("page", TUTORIALS, ids=str)
def test_a_tutorial_shows_what_its_blocks_printed(page):
    blocks = re.findall(r"^```(?:python|sh)$", (ROOT / page).read_text(), re.MULTILINE)
    html = (SITE / page.with_suffix(".html")).read_text()
    assert len(re.findall(r'<div class="cell [^"]*docutils', html)) == len(blocks)
    assert "cell_output" in html


def test_a_link_to_a_source_file_shows_the_file():
    shown = (SITE / "source" / "diamond_attention" / "ranks.py.html").read_text()
    assert "draw_ranks" in shown
    assert "../source/diamond_attention/ranks.py.html" in Page(SITE / "docs" / "how_it_works.html").links
