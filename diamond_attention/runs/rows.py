"""Rows in CSV files: read strictly, so that nothing is lost or doubled in silence, and added whole."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diamond_attention.errors import UserError, notice, printable
from diamond_attention.runs.files import is_there, read_file, write_file
from diamond_attention.runs.locks import locked

LARGEST = 1 << 30


class Columns(NamedTuple):
    """What a file's columns must hold; a column that is not named here holds numbers."""

    needed: tuple[str, ...]
    """Those that must be there."""
    whole: tuple[str, ...] = ()
    """Those that hold whole numbers."""
    words: tuple[str, ...] = ()
    """Those that hold anything."""
    gaps: bool = False
    """Whether a number may be missing."""

    def fault(self, name: str, cell: str) -> str | None:
        """What is wrong with a cell, if something is."""
        if name in self.words:
            return None
        if name in self.whole:
            fits = cell.isascii() and cell.isdigit() and len(cell) < 19
        else:
            fits = _is_number(cell) or (self.gaps and cell == "")
        kind = "whole numbers" if name in self.whole else "numbers"
        return None if fits else f"{cell[:40]!r} in column {name}, which holds {kind}"


def read_rows(path: Path, columns: Columns | None = None) -> list[dict[str, str]]:
    """The rows of a CSV file, checked where `columns` says what they hold. An error names the line.

    What a crash cut short is left out: at the end of the file and, in files of earlier versions, within it. A header
    that two processes wrote counts once.
    """
    if not is_there(path):
        return []
    rows: list[dict[str, str]] = []
    header: list[str] = []
    for line, cells in _lines(path, read_file(path, LARGEST)):
        if not header:
            header = cells
            lacking = [name for name in (columns.needed if columns else ()) if name not in header]
            if lacking or len(set(header)) < len(header):
                what = f"lacks the column {lacking[0]!r}" if lacking else "names a column twice"
                raise UserError(f"{path}, line {line}: the header {what}; put it back, or move the file away.")
        elif len(cells) < len(header):
            notice(f"{path}, line {line} is cut short and was left out.")
        elif len(cells) > len(header):
            raise _wrong(path, line, f"{len(cells)} cells where the header has {len(header)}")
        elif cells != header:
            row = dict(zip(header, cells, strict=True))
            faults = (columns.fault(name, cell) for name, cell in row.items()) if columns else ()
            fault = next((found for found in faults if found), None)
            if fault:
                raise _wrong(path, line, fault)
            rows.append(row)
    return rows


def _lines(path: Path, data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Every whole line's number and cells; none of ours goes over two lines."""
    whole = data[: data.rfind(b"\n") + 1]
    try:
        lines = whole.decode().split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise _wrong(path, 1 + whole.count(b"\n", 0, error.start), "bytes that are not UTF-8") from None
    reader = csv.reader(lines, strict=True)
    number = 0
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _wrong(path, number + 1, f"what CSV cannot hold ({error})") from None
        number += 1
        if reader.line_num != number:
            raise _wrong(path, number, "a quotation mark that is never closed")
        if cells:
            yield number, [printable(cell) for cell in cells]


def _wrong(path: Path, line: int, what: str) -> UserError:
    return UserError(f"{path}, line {line} has {what}; mend that line or remove it.")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Adds rows, with a header if the file is new: all of them or, if the process dies, none.

    Earlier lines stay as they are, to the byte; only one that a crash cut short at the end goes. A row that is there
    already is not added again, so that a command that was cut off can be typed again.
    """
    if not rows:
        return

    def busy() -> None:
        notice(f"another process is adding rows to {path}; waiting for it.")

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    header, *added = text.getvalue().encode().splitlines(keepends=True)
    with locked(path.with_name(f".{path.name}.lock"), busy):
        before = read_file(path, LARGEST) if is_there(path) else b""
        before = before[: before.rfind(b"\n") + 1]
        if before:
            check_columns(path, list(rows[0]))
        known = set(before.splitlines(keepends=True))
        write_file(path, b"".join([before or header, *(line for line in added if line not in known)]))


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Raises UserError unless rows with these columns can be added; asked before the work that makes them."""
    if not is_there(path):
        return
    header = next((cells for _, cells in _lines(path, read_file(path, LARGEST))), list(columns))
    if header != list(columns):
        raise UserError(f"{path} has other columns than this version writes; move it away and evaluate again.")
