"""What every file of results needs: rows that replace older ones of the same seed, and pages with tables of them.

A page marks where a table goes with <!-- NAME:begin --> and <!-- NAME:end -->. `experiments/tables.py` makes all.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from diamond_attention.errors import UserError
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.policies.kind import Described
from diamond_attention.worlds.contract import World
from diamond_attention.worlds.xor import Xor

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("results", "speed", "smaclite", "baselines", "broadcast")),
    *(ROOT / "docs" / f"{name}.md" for name in ("commitments", "when_randomness_matters", "deploy", "fleet")),
    ROOT / "docs" / "other_frameworks.md",
]

Table = Callable[[], str]
"""Makes the text between two markers."""


def read(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))


def add(file: Path, columns: Sequence[str], what: Sequence[str], new: Iterable[dict[str, str]]) -> None:
    """New rows replace old ones of the same seed and conditions (`what`)."""
    rows = {tuple(row[name] for name in (*what, "seed")): row for row in [*read(file), *new]}
    write(file, columns, [rows[key] for key in sorted(rows)])


def write(file: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    with open(file, "w", newline="") as opened:
        writer = csv.DictWriter(opened, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def preset_of(row: Mapping[str, str]) -> str:
    """The preset with whatever was changed of it: rows that differ in that are different lines of a table."""
    return " ".join(filter(None, [row["preset"], row["overrides"]]))


def described(mask: str, world: World | None = None) -> Described:
    """What readers call the policies of a row: by their mask or, of another method than ours, by the method."""
    known = [each.described(each.policy, world or Xor()) for each in METHODS.values() if each.described is not None]
    return {**MASKS, **{each.key: each for each in known}}[mask]


def policy_name(mask: str, dropout: str = "", world: World | None = None) -> str:
    """What a line of a table is called; `dropout` is on or off in play."""
    return described(mask, world).in_play(dropout)


def place_of(mask: str) -> int:
    """For sorting: the paper's policy first, then its ablations, then others."""
    return described(mask).place


def markers_of(page: str) -> list[str]:
    return re.findall(r"<!-- ([\w-]+):begin -->", page)


def with_tables(page: str, tables: Mapping[str, Table]) -> str:
    """The page with everything between its markers made anew."""
    for marker in markers_of(page):
        if marker not in tables:
            raise UserError(f"a page has the marker {marker!r}; there are tables for {', '.join(tables)}.")
        begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{tables[marker]()}\n{end}{rest.split(end)[1]}"
    return page
