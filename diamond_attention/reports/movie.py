"""A movie of one episode: who ranks where, what each agent attends to, and what it is worth."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FFMpegWriter
from PIL import Image

from diamond_attention.errors import UserError
from diamond_attention.reports.gif import write_gif
from diamond_attention.reports.names import naming
from diamond_attention.reports.recording import Recording, record
from diamond_attention.reports.scenes import scene_of
from diamond_attention.runs.record import Run
from diamond_attention.runs.settings import check_seed
from diamond_attention.worlds.contract import TeamSize

INCHES, DOTS = (5.4, 6.4), 80
"""Even numbers of pixels in both directions, which mp4 needs."""

FASTEST = 50
"""Frames a second that a GIF can name; players slow down what is faster."""


def draw_movie(
    run: Run, size: TeamSize, to: Path, *, seed: int = 0, steps: int = 200, frames_per_second: int = 20
) -> Path:
    """Plays greedily and films it. The ending says how: gif, mp4, or png for the last frame alone."""
    if to.suffix.lower() not in WRITERS:
        raise UserError(f"--to is {str(to)!r}; the file must end in one of {', '.join(WRITERS)}.")
    if to.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise UserError(f"--to is {str(to)!r}, and mp4 needs ffmpeg, which is not on the PATH; write a .gif instead.")
    if steps < 1:
        raise UserError(f"--steps is {steps}; it must be at least 1.")
    if not 1 <= frames_per_second <= FASTEST:
        raise UserError(f"--frames-per-second is {frames_per_second}; it must be from 1 to {FASTEST}.")
    check_seed(seed)
    scene_of(run.settings.world.name)
    recording = record(run, size, steps=steps, seed=seed)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        stage = _Stage(recording)
        WRITERS[to.suffix.lower()](stage, to, frames_per_second)
    except OSError as error:
        raise UserError(f"--to is {str(to)!r}, which cannot be written ({error.strerror}).") from None
    plt.close(stage.figure)
    return to


class _Stage:
    """One figure for the whole movie: the world, a headline, and what there is to see."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.figure = plt.figure(figsize=INCHES, dpi=DOTS)
        axes = self.figure.add_axes((0.03, 0.09, 0.94, 0.94 * INCHES[0] / INCHES[1]))
        self._scene = scene_of(recording.world.name)(axes, recording, names=False, text_size=12)
        run, size = recording.run, recording.size
        trained = sorted({int(trained.agents) for trained in run.settings.sizes})
        on = str(trained[0]) if len(trained) == 1 else f"{trained[0]} to {trained[-1]}"
        team = f"{size.agents} agents" + ("" if size.agents == size.tasks else f", {size.tasks} tasks")
        self.figure.text(
            0.03,
            0.95,
            f"{team}: {naming(run.settings.policy.mask).label}, trained on {on}",
            fontsize=11,
            fontweight="bold",
        )
        self._score = self.figure.text(0.03, 0.905, "", fontsize=10.5, family="monospace")
        self.figure.text(0.03, 0.08, self._scene.legend, fontsize=8, va="top", color="#404040", wrap=True)

    def show(self, frame: int) -> None:
        score = self.recording.returns[frame] / int(self.recording.size.agents)
        self._score.set_text(f"step {frame:3d}   R so far {score:8.1f}".replace("-", "−"))
        self._scene.show(frame)

    def picture(self, frame: int) -> Image.Image:
        self.show(frame)
        self.figure.canvas.draw()
        return Image.fromarray(np.asarray(self.figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]


def _write_gif(stage: _Stage, to: Path, frames_per_second: int) -> None:
    last = stage.recording.frames - 1
    pictures = (stage.picture(frame) for frame in range(stage.recording.frames))
    write_gif(pictures, [stage.picture(frame) for frame in (0, last // 2, last)], to, frames_per_second)


def _write_mp4(stage: _Stage, to: Path, frames_per_second: int) -> None:
    writer = FFMpegWriter(fps=frames_per_second)
    try:
        with writer.saving(stage.figure, str(to), DOTS):
            for frame in range(stage.recording.frames):
                stage.show(frame)
                writer.grab_frame()
    except (subprocess.CalledProcessError, BrokenPipeError):
        raise UserError(f"ffmpeg could not write {to}; write a .gif instead.") from None


def _write_png(stage: _Stage, to: Path, frames_per_second: int) -> None:
    stage.show(stage.recording.frames - 1)
    stage.figure.savefig(to, dpi=2 * DOTS)  # one picture need not be small


WRITERS: dict[str, Callable[[_Stage, Path, int], None]] = {".gif": _write_gif, ".mp4": _write_mp4, ".png": _write_png}
