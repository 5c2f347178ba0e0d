"""metrics.csv and TensorBoard's event file: one row an update."""

import csv
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from diamond_attention.errors import UserError
from diamond_attention.runs.files import read_rows
from diamond_attention.runs.folder import Run

TIMING_COLUMNS = ("seconds", "steps_per_second")
"""The only columns of metrics.csv that two equal runs do not share."""


class Metrics:
    """Appends one row an update to metrics.csv and to TensorBoard's event file."""

    def __init__(self, run: Run, columns: Sequence[str], resumed_at_update: int):
        """Drops rows after `resumed_at_update`: updates whose results were lost and will be made again."""
        self.columns = ["update", "step", *columns, *TIMING_COLUMNS]
        kept = []
        for row in read_rows(run.metrics):
            if list(row) != self.columns or not row["update"].isdigit():
                raise UserError(f"{run.metrics} is not a metrics file of this version; move it away and resume.")
            if int(row["update"]) <= resumed_at_update:
                kept.append(row)
        partial = run.metrics.with_name("metrics.csv.partial")
        with open(partial, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, run.metrics)
        self._file: TextIO = open(run.metrics, "a", newline="")  # noqa: SIM115 - open as long as the run
        self._writer = csv.DictWriter(self._file, self.columns)
        self._events = _Events(run.path, resumed_at_update * run.settings.method.steps_per_update)

    def append(self, row: dict[str, Any]) -> None:
        # NaN means "nothing to average", as in an update in which no episode ended: an empty cell.
        self._writer.writerow({k: "" if isinstance(v, float) and v != v else v for k, v in row.items()})
        self._events.append(row)

    def sync(self) -> None:
        """Before a checkpoint is renamed its rows must be on the disk, or resume could not find them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._events.flush()

    def close(self) -> None:
        self._file.close()
        self._events.close()


class _Events:
    def __init__(self, folder: Path, resumed_at_step: int):
        # tensorboard takes a second to import, and only training needs it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._protocol = (event_pb2, summary_pb2)
        self._writer = EventFileWriter(str(folder))
        if resumed_at_step:
            # Tells TensorBoard to forget points from here on that an earlier life of the run wrote.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(
                event_pb2.Event(session_log=start, step=resumed_at_step + 1, wall_time=time.time())
            )

    def append(self, row: dict[str, Any]) -> None:
        event_pb2, summary_pb2 = self._protocol
        values = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in ("update", "step") and float(value) == float(value)
        ]
        self._writer.add_event(
            event_pb2.Event(summary=summary_pb2.Summary(value=values), step=int(row["step"]), wall_time=time.time())
        )

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
