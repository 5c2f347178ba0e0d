"""What every results file needs: rows that replace older ones of the same seed, and README tables made from them."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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


def with_blocks(readme: str, blocks: Mapping[str, str]) -> str:
    """The README with everything between those markers made anew; a marker it does not have is left out."""
    for marker, text in blocks.items():
        begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
        if begin in readme:
            before, rest = readme.split(begin)
            readme = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return readme
