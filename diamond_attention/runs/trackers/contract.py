"""What follows a training from outside, such as TensorBoard: it is told every row of metrics.csv."""

from collections.abc import Mapping
from typing import Any, Protocol

from diamond_attention.runs.folder import Run


class Tracker(Protocol):
    """Of one run. metrics.csv does not depend on it, and neither does the training."""

    @staticmethod
    def check() -> None:
        """Raises UserError if it cannot be used here, such as without its package; asked before anything runs."""

    def __init__(self, run: Run, resumed_at_update: int):
        """`resumed_at_update` is 0 for a run that begins; rows after it will be told again."""

    def append(self, row: Mapping[str, Any]) -> None:
        """One update's numbers, "update" and "step" among them; NaN means that there was nothing to average."""

    def flush(self) -> None:
        """For whoever looks on."""

    def close(self) -> None:
        """The run ended: finished, failed, or stopped and to be resumed."""
