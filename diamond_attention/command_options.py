"""The options of every command: dataclasses that tyro reads, one docstring an option."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from diamond_attention.broadcast import Broadcast
from diamond_attention.evaluation.evaluate import EPISODES, Play
from diamond_attention.evaluation.recording import RECORDED_STEPS, SHOWN
from diamond_attention.ranges import Between
from diamond_attention.runs.seeds import MOST_SEEDS, SEED
from diamond_attention.runs.settings import Settings

Device = Literal["cpu", "gpu"]
RunPaths = tyro.conf.Positional[tuple[Path, ...]]
Agents = Annotated[str | None, tyro.conf.arg(aliases=["--players"])]
Tasks = Annotated[str | None, tyro.conf.arg(aliases=["--actions"])]
FRAMES_A_SECOND = Between(1, 50)  # `FASTEST` of reports/films.py, which would import matplotlib for every command
Shown = Annotated[int | None, tyro.conf.arg(aliases=["--players"]), SHOWN]
MOST_RUNS = 2000
"""Combinations of a sweep; each is parsed and checked before the first is run."""
Track = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to train: docs/scale.md."""

    devices: str | None = None
    """Devices of this machine to train on: a number, or all; by default one. Of several processes, of each, and by
    default all."""
    coordinator: str | None = None
    """Train with processes on several machines: HOST:PORT of the first, the same for all; or auto, where SLURM, Open
    MPI or Kubernetes started them."""
    processes: Annotated[int | None, Between(1, 10_000)] = None
    """How many processes there are."""
    process: Annotated[int | None, Between(0, 9_999)] = None
    """Which of them this is; 0 is the first, which reads and writes the runs."""
    wait: Annotated[int, Between(1, 86_400)] = 300
    """Seconds to wait until all processes are there."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DeviceOptions):
    """Train one or several seeds at once."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    seeds: str = "0"
    """Seeds to train together: 3, or 0:10 (ten seeds, 0 to 9), or 0,5,7."""
    device: Device | None = None
    """Where to compute; by default a GPU if JAX finds one. Asking for one that is not there is an error."""
    out: Path | None = None
    """Folder for the runs, one subfolder a seed; by default runs/PRESET."""
    from_run: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Start from another run's weights: one run for all seeds, or a group's seed for seed."""
    overwrite: bool = False
    """Replace runs that are already in that folder."""
    resume: bool = False
    """Go on with the runs in that folder, if this training was begun there; the same command can then be repeated."""
    track: Track = ()
    """What follows the training besides TensorBoard: wandb (extra `wandb`); may be given several times."""
    quiet: bool = False
    """Say nothing but what must not be missed."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Where the commands of a plan run, and how many at a time."""

    jobs: Annotated[int | None, Between(1, 10_000)] = None
    """Commands side by side; by default 1 here, and as many as there is room for on a cluster."""
    on: Literal["here", "ray"] = "here"
    """here: this machine. ray: a Ray cluster, the one of RAY_ADDRESS or of this machine (extra `ray`)."""
    cpus: Annotated[float, Between(0, 4096)] = 1
    """On a cluster, CPU cores that a command takes."""
    gpus: Annotated[float | None, Between(0, 64)] = None
    """On a cluster, GPUs that a command takes, such as 0.5; by default 1 if it has any."""
    retries: Annotated[int, Between(0, 100)] = 2
    """How often a command is started again whose process or machine was lost."""


@dataclass(frozen=True)
class SweepOptions(JobOptions):
    """Train and play many settings: options of `diamond train` take several values, and every combination is run.

    diamond sweep PRESET… --ppo.learning-rate 1e-3 3e-3 --policy.mask rank none --seeds 0:3. Values are written as for
    `diamond train`, with spaces between them; a flag is yes or no. With --sample N, N combinations are drawn, also
    from ranges: log:1e-4:1e-2, uniform:0.1:0.9 or whole:1:8.
    """

    presets: tyro.conf.Positional[tuple[str, ...]] = ()
    """One or several; `diamond list` shows them."""
    seeds: str = "0"
    """Training seeds of each combination, which train in one program: 3, or 0:10, or 0,5,7."""
    out: Path = Path("sweeps/sweep")
    """Folder for the runs, a folder for each combination, and the table."""
    sample: Annotated[int | None, Between(1, MOST_RUNS)] = None
    """Draw so many combinations instead of all; the first of more are the same."""
    sample_seed: Annotated[int, SEED] = 0
    """Of that draw."""
    episodes: Annotated[int, EPISODES] = 100
    """Episodes for each run, size and way of playing, once it is trained."""
    print: bool = False
    """Run nothing: print one plain command a line for each combination that is not done, for SLURM, GNU parallel or
    anything else."""


@dataclass(frozen=True)
class ReproduceOptions(JobOptions):
    """Make a result of the paper: train what is missing, go on with what was stopped, play, and write it."""

    entry: tyro.conf.Positional[str]
    """Which, or all: `diamond reproduce --help` lists them."""
    scale: Literal["smoke", "quick", "full"] = "full"
    """smoke: two updates each, to see that all runs. quick: one seed, shortened for two cores; not comparable."""
    seeds: str | None = None
    """Training seeds: 3, or 0:10, or 0,5,7; by default all of a full table, and 0 of a shorter one."""
    out: Path = Path("reproduced")
    """Folder for the runs, tables, figures and report.html."""
    only: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Only groups with a name like this, such as 'xor_rank_*'; may be given several times."""
    merge: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """Another machine's folder, or a file of packed runs (.runs.tar.xz), to show too; may be given several times."""
    redraw: bool = False
    """Train and play nothing: write tables and figures from what is there and from --merge."""
    dry_run: bool = False
    """Show the commands it would run and how long they take, and run none."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(DeviceOptions):
    """Continue a run, and the seeds that trained with it, from the last good checkpoint."""

    run: tyro.conf.Positional[Path]
    device: Device | None = None
    """Where to compute; exact on the CPU that began it."""
    track: Track = ()
    """What follows the training besides TensorBoard: wandb (extra `wandb`); may be given several times."""
    quiet: bool = False
    """Say nothing but what must not be missed."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Play a trained policy and append one row an episode to its episodes.csv."""

    runs: RunPaths
    agents: Agents = None
    """Team sizes: 4, or 2:8, or 2,4,8; by default those it was trained on."""
    tasks: Tasks = None
    """Numbers of tasks, likewise, or "same"."""
    episodes: Annotated[int, EPISODES] = 1000
    """Episodes for each run, size and way of playing."""
    simulator: str = "own"
    """own: the world as it was trained on; vmas: the original Simple Spread (extra `vmas`)."""
    greedy: bool = False
    """Only greedy play; by default both."""
    sampled: bool = False
    """Only sampled play; by default both."""
    dropout: Literal["on", "off"] | None = None
    """For policies trained with mask=dropout: on or off while playing; by default as their settings say."""
    broadcast: Broadcast = field(default_factory=Broadcast)
    """What is wrong with the broadcast of ranks."""
    seed: Annotated[int, SEED] = 0
    """Of the evaluation's own randomness."""
    checkpoint: str = "last"
    """best, last, or a step the run has a checkpoint of."""
    device: Device | None = None
    """Where to compute; by default a GPU if JAX finds one."""
    json: bool = False
    """Print JSON instead of a table."""
    quiet: bool = False
    """Say nothing but the table."""

    @property
    def plays(self) -> tuple[Play, ...]:
        both = self.greedy == self.sampled
        return ("greedy", "sampled") if both else ("greedy",) if self.greedy else ("sampled",)


@dataclass(frozen=True)
class TableOptions:
    """Tabulate what was evaluated, beside the paper's numbers."""

    runs: RunPaths
    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print Markdown."""


@dataclass(frozen=True)
class FigureOptions:
    """Draw a team's attention, the learning curves and, for what was evaluated, R by team size."""

    runs: RunPaths
    to: Path = Path("figures")
    """Folder for the pictures."""
    agents: Shown = None
    """Team whose attention is shown; by default the largest it was trained on."""
    seed: Annotated[int, SEED] = 0
    """Which episode, and which draw of ranks, to show."""


@dataclass(frozen=True)
class WatchOptions:
    """Film one greedy episode: ranks, attention, trails and the score so far."""

    run: tyro.conf.Positional[Path]
    agents: Shown = None
    """Size of the team; by default the largest it was trained on."""
    tasks: Annotated[int | None, SHOWN] = None
    """Number of landmarks or foods; by default as many as agents, if it was trained so."""
    sampled: bool = False
    """Sampled play; by default greedy."""
    to: Path | None = None
    """File to write: .gif, .png (the last frame; of a battle four) or .mp4 (ffmpeg, or the extra `film`); by default
    WORLD.gif."""
    seed: Annotated[int, SEED] = 0
    """Which episode to film."""
    steps: Annotated[int | None, RECORDED_STEPS] = None
    """Steps to film, fewer if the episode ends before; by default 200, or all of a battle. Of more than a hundred,
    every second is shown, and so on."""
    frames_per_second: Annotated[int | None, FRAMES_A_SECOND] = None
    """Pictures shown in a second; by default 10; of a battle each is three ticks."""
    quiet: bool = False
    """Say nothing but where the film is."""


@dataclass(frozen=True)
class WebOptions:
    """Serve a page for a browser: teams to play with or, where a folder is named, its runs. Ctrl-C ends it."""

    runs: tyro.conf.Positional[Path | None] = None
    """A folder of runs: learning curves, tables and films, also while training goes on; nothing is written."""
    port: Annotated[int, Between(0, 65_535)] = 8717
    """Where it listens, to this machine alone; 0 takes any port that is free."""
    to: Path | None = None
    """Serve nothing; write the page to play with into this new folder, for a web server of your own."""


@dataclass(frozen=True)
class ExportOptions:
    """Copy the policy alone into a new folder: a tenth of the bytes, and every command that plays one takes it."""

    run: tyro.conf.Positional[Path]
    to: Path
    """New folder; of several seeds, each gets one in it. Or a new file.onnx, of one seed (extra `onnx`)."""
    checkpoint: str = "last"
    """best, last, or a step the run has a checkpoint of."""


@dataclass(frozen=True)
class BenchOptions:
    """Measure speed: of training and, for XOR, seconds until success; else of simulation and decisions too."""

    preset: tyro.conf.Positional[str] = "xor-paper"
    seeds: tuple[int, ...] = ()
    """How many seeds to train at once, one measurement each; by default 1 and 10 for XOR, else 1."""
    device: Device | None = None
    """Where to compute; by default a GPU if JAX finds one."""
    to: Path | None = None
    """Also write the measurements to this JSON file."""
    check: bool = False
    """Time nothing: hold the numbers of the GPU against the CPU's, of the world and of every kind of policy."""


@dataclass(frozen=True)
class SmacliteReplayOptions:
    """Replay recorded episodes of the original SMAClite in this engine, step by step, and say what differs."""

    traces: tyro.conf.Positional[tuple[Path, ...]]
    to: Path | None = None
    """Also write what was found to this JSON file."""


@dataclass(frozen=True)
class TheoryOptions:
    """Check the paper's theorem by playing it; what is impossible without randomness, and how many bits it takes."""

    to: Path | None = None
    """Also draw success against bits into this picture (.png)."""


@dataclass(frozen=True)
class DemoOptions:
    """Train, evaluate, tabulate and draw the XOR game in a few minutes."""

    out: Path = Path("runs/demo")
    """Folder for the runs and figures; what an earlier demo left there is replaced."""
    seeds: Annotated[int, Between(1, MOST_SEEDS)] = 3
    """Training seeds for each policy."""
    quiet: bool = False
    """Say nothing but the results."""
