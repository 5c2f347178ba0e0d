"""Weights & Biases (extra `wandb`). Its own variables say where to: WANDB_PROJECT, WANDB_MODE=offline, WANDB_DIR."""

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from diamond_attention.errors import UserError, notice
from diamond_attention.runs.files import read_file
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import to_json

LARGEST = 1 << 24


class WeightsAndBiases:
    """One W&B run for each seed, in a group of the runs that trained together."""

    @staticmethod
    def check() -> None:
        try:
            import wandb
        except ImportError:
            raise UserError(
                "--track is wandb, which is not installed; install the extra with "
                "`pip install 'diamond-attention[wandb]'`."
            ) from None
        if wandb.setup().settings.mode not in ("online", "shared"):
            return
        # Otherwise W&B would say so, or ask for a key, once the training has been set up.
        try:
            known = wandb.login() if sys.stdin.isatty() else wandb.login(prompt=False)
        except wandb.Error as error:
            raise UserError(f"--track is wandb, and {_words(error)}; or set WANDB_MODE=offline.") from None
        if not known:
            raise UserError(
                "--track is wandb, and W&B has no API key here; run `wandb login` once, or set WANDB_MODE=offline."
            )

    def __init__(self, run: Run, resumed_at_update: int):
        import wandb

        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "diamond-attention"),
                group=run.path.parent.name,
                name=f"{run.path.parent.name}/{run.path.name}",
                id=identity(run),
                resume="allow",  # by that id, a resumed run goes on in the same curves
                reinit="create_new",  # other seeds have runs of their own
                config={"preset": run.preset, "seed": run.seed, **to_json(run.settings)},
                settings=wandb.Settings(console="off", quiet=True),
            )
        except wandb.Error as error:
            raise UserError(f"W&B could not begin a run ({_words(error)}).") from None
        self._path = run.path
        self._failure = lambda: run.failure
        self._run.define_metric("*", step_metric="step")

    def append(self, row: Mapping[str, Any]) -> None:
        # Updates that a crash lost and that are made again have been told already; W&B keeps the first, which are
        # the same numbers.
        self._tell("log", {name: value for name, value in row.items() if value == value}, step=int(row["update"]))

    def flush(self) -> None:
        pass  # W&B sends when it likes

    def close(self) -> None:
        self._tell("finish", exit_code=0 if self._failure() is None else 1)

    def _tell(self, what: str, *values: Any, **named: Any) -> None:
        import wandb

        if self._run is None:
            return
        try:
            getattr(self._run, what)(*values, **named)
        except (wandb.Error, OSError) as error:
            # Hours of training are not thrown away for a curve that is in metrics.csv too.
            self._run = None
            notice(f"W&B no longer follows {self._path} ({_words(error)}); the training goes on.")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def identity(run: Run) -> str:
    """The same for every life of a run, and another for whatever replaces it: of what it is and when it began."""
    files = [run.path / "settings.json", run.path / "environment.json"]
    data = b"".join(read_file(file, LARGEST) for file in files)
    return hashlib.sha256(data).hexdigest()[:16]
