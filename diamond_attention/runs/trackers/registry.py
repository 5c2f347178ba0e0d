"""The trackers by the names that `--track` takes. A new one is a file of its own and one line here."""

from collections.abc import Sequence

from diamond_attention.errors import UserError, shown
from diamond_attention.runs.trackers.contract import Tracker
from diamond_attention.runs.trackers.tensorboard import TensorBoard
from diamond_attention.runs.trackers.weights_and_biases import WeightsAndBiases

TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
ALWAYS = ("tensorboard",)
"""Those that follow every run."""


def check_trackers(names: Sequence[str]) -> None:
    """Raises UserError unless all of them can follow a run here."""
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--track is {shown(name)}; it must be one of {', '.join(TRACKERS)}.")
        TRACKERS[name].check()


def trackers(names: Sequence[str]) -> list[type[Tracker]]:
    return [TRACKERS[name] for name in dict.fromkeys((*ALWAYS, *names))]
