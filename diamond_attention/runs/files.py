"""Files that are whole or not there: JSON replaced at once, rows appended whole, everything synced to the disk."""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError

LARGEST_JSON = 1 << 20


def write_json(path: Path, values: Any) -> None:
    """Replaces a JSON file whole: a reader sees the old one or the new one, never half."""
    partial = path.with_name(path.name + ".partial")
    write_synced(partial, json_bytes(values))
    os.replace(partial, path)
    sync_folder(path.parent)


def json_bytes(values: Any) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()


def write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise UserError(f"{path} is over {LARGEST_JSON} bytes; it is not ours.")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path} cannot be read as JSON.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold what it should.")
    return values


def read_rows(path: Path) -> list[dict[str, str]]:
    """The complete rows of a CSV file; a last row cut short by a crash is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    rows = list(csv.DictReader(io.StringIO(complete, newline="")))
    return [row for row in rows if None not in row and None not in row.values()]


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Appends whole rows to a CSV file, with a header if it is new; earlier rows are never rewritten.

    A row that a crash cut short is closed with a line end first, so that it cannot swallow a new one.
    """
    if not rows:
        return
    columns = list(rows[0])
    new = not path.exists() or path.stat().st_size == 0
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    if new:
        writer.writeheader()
    else:
        with open(path, newline="") as file:
            header = next(csv.reader(file), [])
        if header != columns:
            raise UserError(f"{path} has other columns than this version writes; move it away and evaluate again.")
    writer.writerows(rows)
    with open(path, "a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\r\n")
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())


def check_writable(to: Path) -> None:
    """Before minutes of work whose outcome is to be written there."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.open("a").close()
    except OSError as error:
        raise UserError(f"--to is {to}, which cannot be written ({error.strerror}).") from None
