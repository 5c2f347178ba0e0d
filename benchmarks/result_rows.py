"""What every results file needs: rows that replace older ones of the same seed, and README tables made from them."""

import argparse
import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from diamond_attention.errors import UserError

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def read(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))


def add(file: Path, columns: Sequence[str], what: Sequence[str], new: Iterable[dict[str, str]]) -> None:
    """New rows replace old ones of the same seed and conditions (`what`)."""
    rows = {tuple(row[name] for name in (*what, "seed")): row for row in [*read(file), *new]}
    with open(file, "w", newline="") as opened:
        writer = csv.DictWriter(opened, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))


def preset_of(row: Mapping[str, str]) -> str:
    """The preset with whatever was changed of it: rows that differ in that are different lines of a table."""
    return " ".join(filter(None, [row["preset"], row["overrides"]]))


def with_blocks(readme: str, blocks: Mapping[str, str]) -> str:
    """The README with everything between those markers made anew; a marker it does not have is left out."""
    for marker, text in blocks.items():
        begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
        if begin in readme:
            before, rest = readme.split(begin)
            readme = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return readme


def run_command(
    description: str | None,
    file: Path,
    columns: Sequence[str],
    what: Sequence[str],
    rows_of: Callable[[Path, str | None], list[dict[str, str]]],
    with_tables: Callable[[str], str],
) -> None:
    """`add TABLE.json…` puts their rows into the file, `readme` makes the README's tables from it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["add", "readme"])
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--commit", help="where the tables name another than the code that made them")
    arguments = parser.parse_args()
    if arguments.what == "readme":
        README.write_text(with_tables(README.read_text()))
        return
    try:
        new = [row for table in arguments.tables for row in rows_of(table, arguments.commit)]
    except UserError as error:
        parser.error(str(error))
    add(file, columns, what, new)
