"""Which files the live page is made of. There is one copy of each; docs/live holds links to them."""

from collections.abc import Iterator
from pathlib import Path

from diamond_attention.errors import UserError
from diamond_attention.plain_file import read_plain_file
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.files import is_there, write_folder
from diamond_attention.web.server import Answer, RefusedError, type_of

LIVE = Path(__file__).with_name("live")
COMPARED = Path(__file__).with_name("policies")
"""Small policies that the page plays beside those that ship: other masks, and the XOR game."""
MOST_BYTES = 1 << 24

LIVE_POLICIES = {
    **{name: SHIPPED / name for name in ("spread", "spread-floor", "dispatch-commitments")},
    **{folder.name: folder for folder in sorted(COMPARED.iterdir())},
}
"""Every bundle that the page plays, by the name under which it looks for it."""


def live_files() -> Iterator[tuple[str, Path]]:
    """Address, relative to the page's own, and file."""
    yield from ((file.name, file) for file in sorted(LIVE.iterdir()))
    for name, folder in LIVE_POLICIES.items():
        for part in ("policy.json", "policy.safetensors"):
            yield f"policies/{name}/{part}", folder / part


def write_live_page(folder: Path) -> None:
    """The page as a new folder of plain files, which any web server can hand out."""
    if is_there(folder):
        raise UserError(f"--to is {folder}, which already exists; name a new folder.")
    files = {name: read_plain_file(file, MOST_BYTES, follow_links=True) for name, file in live_files()}
    write_folder(folder, files)


def live_answers(address: str) -> Answer:
    """The page, of this list and nothing else."""
    wanted = address or "index.html"
    for name, file in live_files():
        if name == wanted:
            return Answer(read_plain_file(file, MOST_BYTES, follow_links=True), type_of(name))
    raise RefusedError
