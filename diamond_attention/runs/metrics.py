"""metrics.csv and TensorBoard's event file: one row an update."""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.runs.files import Growing, is_there, write_file
from diamond_attention.runs.folder import Run
from diamond_attention.runs.rows import Columns, read_rows

TIMING_COLUMNS = ("seconds", "steps_per_second")
"""The only columns of metrics.csv that two equal runs do not share."""

COLUMNS = Columns(needed=("update", "step"), whole=("update", "step"), gaps=True)


class Metrics:
    """Appends one row an update to metrics.csv and to TensorBoard's event file."""

    def __init__(self, run: Run, columns: Sequence[str], resumed_at_update: int):
        """Drops rows after `resumed_at_update`: updates whose results were lost and will be made again."""
        self.columns = ["update", "step", *columns, *TIMING_COLUMNS]
        self._kept = self._rows_until(run, resumed_at_update)
        write_file(run.metrics, b"".join([_line(self.columns), *(_line(row.values()) for row in self._kept)]))
        self._file = Growing(run.metrics)
        self._events = _Events(run, resumed_at_update)

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
        self._events.append(row)

    def flush(self) -> None:
        """For whoever looks on; what is lost with the process is made again."""
        self._file.flush()
        self._events.flush()

    def sync(self) -> None:
        """Before a checkpoint is renamed its rows must be on the disk, or resume could not find them."""
        self._file.sync()
        self._events.flush()

    def close(self) -> None:
        self._file.close()
        self._events.close()


def _line(cells: Any) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


class _Events:
    """One file for every life of a run. TensorBoard puts them together."""

    def __init__(self, run: Run, resumed_at_update: int):
        # tensorboard takes a second to import, and only training needs it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._protocol = (event_pb2, summary_pb2)
        life = 0
        while is_there(run.path / (name := f"events.out.tfevents.{int(time.time())}.{life}")):
            life += 1
        self._file = Growing(run.path / name, new=True)
        self._writer = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if resumed_at_update:
            # Tells TensorBoard to forget points from here on that an earlier life of the run wrote.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(session_log=start, step=resumed_at_update * run.settings.method.steps_per_update + 1)

    def append(self, row: Mapping[str, Any]) -> None:
        _, summary_pb2 = self._protocol
        values = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in ("update", "step") and float(value) == float(value)
        ]
        self._add(summary=summary_pb2.Summary(value=values), step=int(row["step"]))

    def _add(self, **event: Any) -> None:
        event_pb2, _ = self._protocol
        self._writer.write(event_pb2.Event(wall_time=time.time(), **event).SerializeToString())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
