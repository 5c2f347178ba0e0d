"""metrics.csv, one row an update, and the trackers that are told the same."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.runs.files import Growing, read_file, write_file
from diamond_attention.runs.folder import Run, seeds_in
from diamond_attention.runs.rows import LARGEST, Columns, read_rows
from diamond_attention.runs.trackers.registry import trackers

TIMING_COLUMNS = ("seconds", "steps_per_second")
"""The only columns of metrics.csv that two equal runs do not share."""

COLUMNS = Columns(needed=("update", "step"), whole=("update", "step"), gaps=True)


class Metrics:
    """Appends one row an update to metrics.csv, and tells it to every tracker."""

    def __init__(self, run: Run, columns: Sequence[str], resumed_at_update: int, track: Sequence[str] = ()):
        """Drops rows after `resumed_at_update`: updates whose results were lost and will be made again."""
        self.columns = ["update", "step", *columns, *TIMING_COLUMNS]
        self._kept = self._rows_until(run, resumed_at_update)
        write_file(run.metrics, b"".join([_line(self.columns), *(_line(row.values()) for row in self._kept)]))
        self._file = Growing(run.metrics)
        self._trackers = [follow(run, resumed_at_update) for follow in trackers(track)]

    def _rows_until(self, run: Run, last: int) -> list[dict[str, str]]:
        kept: list[dict[str, str]] = []
        for row in read_rows(run.metrics, COLUMNS):
            if list(row) != self.columns:
                raise UserError(f"{run.metrics} is not a metrics file of this version; move it away and resume.")
            update, before = int(row["update"]), int(kept[-1]["update"]) if kept else None
            if before is not None and update != before + 1:
                raise UserError(
                    f"{run.metrics} has update {update} after update {before}; put its rows back as they were, or "
                    "move the file away and resume."
                )
            if update > last:
                break
            kept.append(row)
        return kept

    def returns_after(self, update: int) -> list[float]:
        """Of the updates that were there before, those in which an episode ended."""
        return [float(row["return"]) for row in self._kept if int(row["update"]) > update and row["return"]]

    def append(self, row: Mapping[str, Any]) -> None:
        # NaN means "nothing to average", as in an update in which no episode ended: an empty cell.
        cells = [row[name] for name in self.columns]
        self._file.write(_line("" if isinstance(cell, float) and cell != cell else cell for cell in cells))
        for tracker in self._trackers:
            tracker.append(row)

    def flush(self) -> None:
        """For whoever looks on; what is lost with the process is made again."""
        self._file.flush()
        for tracker in self._trackers:
            tracker.flush()

    def sync(self) -> None:
        """Before a checkpoint is renamed its rows must be on the disk, or resume could not find them."""
        self._file.sync()
        for tracker in self._trackers:
            tracker.flush()

    def close(self) -> None:
        self._file.close()
        for tracker in self._trackers:
            tracker.close()


def _line(cells: Any) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def steps_so_far(group: Path) -> int:
    """How far a group's training is, by the last whole row of its first seed; for whoever looks on."""
    for member in seeds_in(group)[:1]:
        try:
            return int(read_file(member / "metrics.csv", LARGEST).split(b"\n")[-2].split(b",")[1])
        except (OSError, UserError, IndexError, ValueError):  # not begun, or nothing but a header yet
            return 0
    return 0
