"""The site as built: every link leads somewhere, nothing comes from elsewhere, every public name is there."""

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx")

import nbformat
from sphinx.util.inventory import InventoryFile

import diamond_attention.torch
from diamond_attention import deploy, public
from diamond_attention.web.live_page import LIVE_POLICIES, live_files

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PAGES = [path.relative_to(ROOT) for path in sorted((ROOT / "docs").rglob("*.md"))]
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
    assert {f"diamond_attention.torch.{name}" for name in diamond_attention.torch.__all__} - described == {
        "diamond_attention.torch.Action",  # told where they are defined
        "diamond_attention.torch.View",
    }
    assert "diamond_attention.World.reset" in described
    # What pages of the reference ask for, also of packages that are not here.
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for module, names in re.findall(r"^<!-- module: ([\w.]+)(?:: (.*))? -->$", page.read_text(), re.MULTILINE):
            assert {f"{module}.{name}" for name in names.split()} <= described, page
            assert any(name.startswith(f"{module}.") for name in described), page
    assert "diamond_attention.torch.DiamondPolicy.load" in described
    assert "diamond_attention.adapters.jaxmarl_env.WorldMultiAgentEnv.step_env" in described


def test_the_reference_reads_as_it_was_meant():
    for page in (SITE / "docs" / "api").glob("*.html"):
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r".*`.*", text), page  # a name in backticks that goes on after them is not a name
        assert "Alias for field number" not in text, page
        assert "*args: Any, **kwargs: Any" not in text, page  # of a class whose base is not here
        assert "Should be overridden by all subclasses" not in text, page  # what another package says of its own


# --- Tutorials ------------------------------------------------------------------------------------


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block that is run."""
    return re.findall(r"^```(python|sh)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def shows_something(language: str, block: str) -> bool:
    """Whether it prints or draws: every command here does, of Python what is called outside of functions."""
    if language == "sh":
        return True
    lines = [line for line in ast.parse(block).body if not isinstance(line, ast.FunctionDef | ast.ClassDef)]
    calls = {ast.unparse(node.func) for line in lines for node in ast.walk(line) if isinstance(node, ast.Call)}
    return bool(calls & {"print", "plt.subplots"})


def test_which_blocks_show_something():
    assert shows_something("sh", "diamond list\n")
    assert shows_something("python", "for n in (1, 2):\n    print(n)\n")
    assert shows_something("python", "figure, axes = plt.subplots(1, 2)\n")
    assert not shows_something("python", "def told(x):\n    print(x)\n\nn = 1\n")


@pytest.mark.parametrize("page", TUTORIALS, ids=str)
def test_a_tutorial_shows_what_each_of_its_blocks_printed(page):
    html = (SITE / page.with_suffix(".html")).read_text()
    cells = re.split(r'<div class="cell [^"]*docutils', html)[1:]
    blocks = blocks_of(page)
    assert blocks
    assert ['<div class="cell_output' in cell for cell in cells] == [shows_something(*block) for block in blocks]


def test_no_line_of_what_a_command_printed_is_broken():
    """A kernel hands output on in pieces, which are cut anywhere."""
    page = (SITE / "docs" / "tutorials" / "cluster.html").read_text()
    for rate in ("1e-4", "2e-4"):
        assert (
            page.count(f"--out sweeps/sweep/mask=rank_learning-rate={rate} --resume &amp;&amp; diamond evaluate") == 1
        )
    assert "\x1b" not in page


@pytest.mark.parametrize("page", TUTORIALS, ids=str)
def test_a_tutorial_is_a_notebook_with_its_outputs(page):
    assert f"{page.stem}.ipynb" in Page(SITE / page.with_suffix(".html")).links
    text = (SITE / page.with_suffix(".ipynb")).read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    blocks = blocks_of(page)
    assert [cell.source.removeprefix("%%sh -e\n").strip() for cell in cells] == [block.strip() for _, block in blocks]
    assert [bool(cell.outputs) for cell in cells] == [shows_something(*block) for block in blocks]
    assert all(cell.execution_count for cell in cells)
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}  # "error" is another
    streams = [[output.name for output in cell.outputs if output.output_type == "stream"] for cell in cells]
    assert all(len(names) == len(set(names)) for names in streams)  # joined, as on the page
    words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert words.startswith("# ")
    assert not re.search(r"```sh|\]\((?!https?:)|<a ", words)  # commands once, and no link that leads nowhere
    assert str(ROOT) not in text


# --- The live page --------------------------------------------------------------------------------


def test_the_live_page_is_whole():
    """What the page, its modules and its policies name lies beside them, and each file is reached."""
    live = SITE / "live"
    names = dict(live_files())
    assert {path.relative_to(live).as_posix() for path in live.rglob("*") if path.is_file()} == set(names)
    for name, file in names.items():
        assert (live / name).read_bytes() == file.read_bytes(), name
    reached, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        if name.endswith(".html"):
            waiting += sorted(Page(live / name).loaded)
        elif name.endswith(".js"):
            waiting += imported_by((live / name).read_text())
    assert reached == {name for name in names if not name.startswith("policies/")}
    # main.js fetches `policies/${name}/policy.${ending}` for the names in worlds.js.
    worlds = (live / "worlds.js").read_text()
    offered = {name for line in re.findall(r"policies: \[(.*?)\]", worlds) for name in re.findall(r'"(.*?)"', line)}
    assert "policies/${name}/policy.${ending}" in (live / "main.js").read_text()
    assert offered == set(LIVE_POLICIES)


def imported_by(module: str) -> list[str]:
    """Modules beside it, named in any form of `import`."""
    return re.findall(r"""(?:\bfrom|\bimport|\bimport\()\s*["']\./([^"']+)["']""", module)


def test_every_form_of_import_is_seen():
    forms = 'import { a } from "./a.js";\nimport "./b.js";\nexport * from \'./c.js\';\nawait import("./d.js");\n'
    assert imported_by(forms) == ["a.js", "b.js", "c.js", "d.js"]


def test_the_page_about_it_shows_it():
    page = Page(SITE / "docs" / "web.html")
    assert "../live/index.html" in page.loaded & page.links
    assert not list((SITE / "_downloads").rglob("*.html"))  # a page handed out alone, without its modules


# --- Sources --------------------------------------------------------------------------------------


def test_a_link_to_a_source_file_shows_the_file():
    shown = (SITE / "source" / "diamond_attention" / "ranks.py.html").read_text()
    assert "draw_ranks" in shown
    assert "../source/diamond_attention/ranks.py.html" in Page(SITE / "docs" / "how_it_works.html").links
