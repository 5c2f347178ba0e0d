"""A film of one episode: who ranks where, what each agent attends to, and what it is worth."""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.text import Text
from PIL import Image

from diamond_attention.errors import UserError
from diamond_attention.evaluation.conditions import variant_to_play
from diamond_attention.evaluation.recording import Recording, record
from diamond_attention.reports.gif import write_gif
from diamond_attention.reports.scenes import scene_of
from diamond_attention.reports.sight import SightPanel, ranks_matter
from diamond_attention.runs.files import appearing
from diamond_attention.runs.folder import Run
from diamond_attention.runs.progress import Progress, Quiet
from diamond_attention.runs.seeds import check_seed
from diamond_attention.worlds.contract import TeamSize, World, tasks_named

INCHES, BESIDE, DOTS = (5.4, 6.4), 2.4, 100
"""A frame, and how much wider it is where ranks hide agents from each other: who sees whom stands beside the world.
Even numbers of pixels in both directions, which mp4 needs."""

SAMPLES = 12
"""Frames whose colours make the palette of a GIF."""
ENDINGS = (".gif", ".mp4", ".png")
FRAMES_PER_SECOND = 10
"""Slow enough to read whom new ranks hide from whom."""
MOST_FRAMES = 100
"""After the first. A longer episode is shown every so many steps: a film of 200 steps stays below a megabyte."""
STEPS = 200
"""Filmed of an episode, unless said. What a world draws in pictures of its own, such as a battle, is filmed whole."""
FASTEST = 50
"""Frames a second that a GIF can name; players slow down what is faster."""


def draw_film(
    run: Run,
    size: TeamSize,
    to: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    frames_per_second: int | None = None,
    greedy: bool = True,
    world: World | None = None,
    progress: Progress | None = None,
) -> Path:
    """Plays and films it. The ending says how: gif, mp4, or png for the last frame (of a battle, four moments)."""
    check_file(to)
    if steps is not None and steps < 1:
        raise UserError(f"--steps is {steps}; it must be at least 1.")
    if frames_per_second is not None and not 1 <= frames_per_second <= FASTEST:
        raise UserError(f"--frames-per-second is {frames_per_second}; it must be from 1 to {FASTEST}.")
    check_seed(seed)
    progress = progress or Quiet()
    world = variant_to_play(run) if world is None else world
    if steps is None and type(world).pictures is World.pictures:
        steps = STEPS
    progress.begin(f"playing {run.name}", steps or world.time_limit, 0)
    recording = record(run, size, steps=steps, seed=seed, greedy=greedy, world=world)
    progress.end(f"played {recording.frames - 1} steps")
    own = world.pictures(recording)
    pictures, usual = (_Stage(recording), FRAMES_PER_SECOND) if own is None else own
    speed = frames_per_second or usual
    progress.begin(f"drawing {to}", len(pictures), 0, "frames")
    try:
        with appearing(to) as aside:
            if to.suffix.lower() == ".png":
                _write_still(pictures, aside)
            elif to.suffix.lower() == ".gif":
                # Trails grow and shrink: the colours of a few moments would not be those of all.
                moments = np.linspace(0, len(pictures) - 1, num=SAMPLES, dtype=int)
                samples = [pictures[int(moment)] for moment in moments]
                write_gif(_shown(pictures, progress), samples, aside, speed)
            else:
                _write_mp4(_shown(pictures, progress), aside, speed)
    finally:
        plt.close("all")
    progress.end(f"drew {len(pictures)} frames")
    return to


def check_file(to: Path) -> None:
    """Before minutes of work: is this a file we can write?"""
    if to.suffix.lower() not in ENDINGS:
        raise UserError(f"--to is {str(to)!r}; the file must end in one of {', '.join(ENDINGS)}.")
    if to.suffix.lower() == ".mp4" and _ffmpeg() is None:
        raise UserError(
            f"--to is {str(to)!r}, and mp4 needs ffmpeg, which is not on the PATH; install it, or "
            "`pip install 'diamond-attention[film]'`, or write a .gif instead."
        )


def _ffmpeg() -> str | None:
    """The system's, or the one inside the extra `film`."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg

        found = imageio_ffmpeg.get_ffmpeg_exe()
    return found


def frames_to_show(frames: int) -> list[int]:
    """The first, the last, and every so many between them.

    >>> frames_to_show(21) == [*range(21)]
    True
    >>> frames_to_show(200)[-3:]
    [196, 198, 199]
    """
    stride = -(-(frames - 1) // MOST_FRAMES) or 1
    return [*range(0, frames - 1, stride), frames - 1]


class _Stage:
    """One figure for the whole film: the world, a headline, and what there is to see. Its items are pictures."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.shown = frames_to_show(recording.frames)
        beside = ranks_matter(recording.policy)
        width, height = INCHES[0] + BESIDE * beside, INCHES[1]
        self.figure = plt.figure(figsize=(width, height), dpi=DOTS)
        margin, bottom = 0.16, 0.62
        side = INCHES[0] - 2 * margin
        axes = self.figure.add_axes((margin / width, bottom / height, side / width, side / height))
        self._scene = scene_of(recording.world)(axes, recording, names=False, text_size=12)
        run, size = recording.run, recording.size
        trained = sorted({int(trained.agents) for trained in run.settings.sizes})
        on = str(trained[0]) if len(trained) == 1 else f"{trained[0]} to {trained[-1]}"
        team = f"{size.agents} agents" + (
            "" if size.agents == size.tasks else f", {size.tasks} {tasks_named(recording.world)}"
        )

        def write(x: float, y: float, text: str, **style) -> Text:
            return self.figure.text(x / width, y / height, text, **style)

        write(margin, 6.1, f"{team}: {recording.policy.label}, trained on {on}", fontsize=11, fontweight="bold")
        self._score = write(margin, 5.82, "", fontsize=10.5, family="monospace")
        legend = self._scene.legend if beside else f"{self._scene.legend} {recording.policy.ranks_do}"
        small = {"fontsize": 8, "va": "top", "color": "#404040"}
        write(margin, bottom - 0.06, fill(legend, round(15.5 * (width - 2 * margin))), **small)
        self._sight = None
        if beside:
            left, square = INCHES[0] + 0.02, BESIDE - margin - 0.02
            top = bottom + side - 0.3
            square_axes = self.figure.add_axes(
                (left / width, (top - square) / height, square / width, square / height)
            )
            self._sight = SightPanel(square_axes, recording, points=72 * square)
            write(left, top + 0.12, self._sight.title, fontsize=11, fontweight="bold")
            write(left, top - square - 0.12, fill(self._sight.legend, round(16.5 * square)), **small)

    def __len__(self) -> int:
        return len(self.shown)

    def __getitem__(self, number: int) -> Image.Image:
        self.show(self.shown[number])
        self.figure.canvas.draw()
        return Image.fromarray(np.asarray(self.figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]

    def show(self, frame: int) -> None:
        recording = self.recording
        scoring = recording.world.scoring
        score = recording.returns[frame] / (int(recording.size.agents) if scoring.per_agent else 1)
        name = "R" if scoring.per_agent else "return"
        self._score.set_text(f"step {frame:3d}   {name} so far {score:8.1f}".replace("-", "−"))
        self._scene.show(frame)
        if self._sight is not None:
            self._sight.show(frame)


def _shown(pictures: "Sequence[Image.Image] | _Stage", progress: Progress) -> Iterator[Image.Image]:
    for number in range(len(pictures)):
        yield pictures[number]
        progress.advance(number + 1, {})


def _write_mp4(pictures: Iterator[Image.Image], to: Path, frames_per_second: int) -> None:
    first = next(pictures)
    width, height = (side - side % 2 for side in first.size)
    command = [str(_ffmpeg()), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(frames_per_second), "-i", "-", "-pix_fmt", "yuv420p", str(to)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        try:
            for picture in (first, *pictures):
                encoder.stdin.write(picture.crop((0, 0, width, height)).tobytes())
            encoder.stdin.close()
            failed = encoder.wait() != 0
        except BrokenPipeError:
            failed = True
    if failed:
        raise UserError(f"ffmpeg could not write a film of {width}x{height} pictures; write a .gif instead.")


def _write_still(pictures: "Sequence[Image.Image] | _Stage", to: Path) -> None:
    if isinstance(pictures, _Stage):
        pictures.show(pictures.shown[-1])
        pictures.figure.savefig(to, dpi=1.6 * DOTS)  # one picture need not be small
        return
    last = len(pictures) - 1
    moments = [pictures[last // 4], pictures[last // 2], pictures[3 * last // 4], pictures[last]]
    width, height = moments[0].size
    sheet = Image.new("RGB", (2 * width + 10, 2 * height + 10), "white")
    for index, moment in enumerate(moments):
        sheet.paste(moment, ((index % 2) * (width + 10), (index // 2) * (height + 10)))
    sheet.save(to)
