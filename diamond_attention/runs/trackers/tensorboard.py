"""TensorBoard's event files, beside metrics.csv."""

import time
from collections.abc import Mapping
from typing import Any

from diamond_attention.runs.files import Growing, is_there
from diamond_attention.runs.folder import Run


class TensorBoard:
    """One file for every life of a run. TensorBoard puts them together."""

    @staticmethod
    def check() -> None:
        pass  # it comes with this package

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
