"""The `diamond` command.

    diamond train PRESET      diamond evaluate RUN…      diamond show PRESET
    diamond resume RUN        diamond table RUN…         diamond list
    diamond demo              diamond figure RUN…        diamond bench
    diamond export RUN        diamond watch RUN          diamond smaclite-replay TRACE.npz…

A RUN is a folder, or the name of a policy that ships with the package: `diamond watch spread`.

Exit status: 0 done, 1 a seed failed or a replay differs, 2 something you typed can be put right, 130 or 143
stopped by Ctrl-C or SIGTERM with everything saved.
"""

import dataclasses
import difflib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from diamond_attention.errors import UserError
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.progress import choose_progress
from diamond_attention.runs.record import (
    SHIPPED,
    Run,
    check_writable,
    describe_environment,
    find_runs,
    open_run,
    shipped_policies,
)
from diamond_attention.runs.settings import Settings, flat, parse_sizes, team_sizes, to_json
from diamond_attention.worlds import WORLDS
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.smaclite.world import Smaclite

MOST_SEEDS = 1000
"""Trained together; more than any device holds, and a slip of the finger should not allocate a billion."""

Device = Literal["cpu", "gpu"]
RunPaths = tyro.conf.Positional[tuple[Path, ...]]
Agents = Annotated[str | None, tyro.conf.arg(aliases=["--players"])]
Tasks = Annotated[str | None, tyro.conf.arg(aliases=["--actions"])]


@dataclass(frozen=True)
class TrainOptions:
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
    quiet: bool = False
    """Say nothing but what must not be missed."""


@dataclass(frozen=True)
class ResumeOptions:
    """Continue a run, and the seeds that trained with it, from the last good checkpoint."""

    run: tyro.conf.Positional[Path]
    device: Device | None = None
    """Where to compute; exact on the CPU that began it."""
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
    map: str | None = None
    """SMAClite: the map to play, or several as in 2s3z,3s5z; by default those it was trained on."""
    jitter: float | None = None
    """SMAClite: how far each unit may start from its place, each way; by default 0, as the map says."""
    episodes: int = 1000
    """Episodes for each run, size and way of playing."""
    simulator: str = "own"
    """own: the world as it was trained on; vmas: the original Simple Spread (extra `vmas`)."""
    greedy: bool = False
    """Only greedy play; by default both."""
    sampled: bool = False
    """Only sampled play; by default both."""
    dropout: Literal["on", "off"] | None = None
    """For policies trained with mask=dropout: on or off while playing; by default as their settings say."""
    seed: int = 0
    """Of the evaluation's own randomness."""
    checkpoint: str = "last"
    """best, last, or a step the run has a checkpoint of."""
    device: Device | None = None
    """Where to compute; by default a GPU if JAX finds one."""
    json: bool = False
    """Print JSON instead of a table."""


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
    agents: Annotated[int | None, tyro.conf.arg(aliases=["--players"])] = None
    """Team whose attention is shown; by default the largest it was trained on."""
    seed: int = 0
    """Which episode, and which draw of ranks, to show."""


@dataclass(frozen=True)
class WatchOptions:
    """Film one greedy episode: ranks, attention, trails and the score so far."""

    run: tyro.conf.Positional[Path]
    agents: Annotated[int | None, tyro.conf.arg(aliases=["--players"])] = None
    """Size of the team; by default the largest it was trained on."""
    tasks: int | None = None
    """Number of landmarks or foods; by default as many as agents, if it was trained so."""
    map: str | None = None
    """SMAClite: the map to play; by default the first it was trained on."""
    sampled: bool = False
    """SMAClite: sampled play; by default greedy."""
    to: Path | None = None
    """File to write: .gif, .png (the last frame; of a battle four) or .mp4 (needs ffmpeg); by default WORLD.gif."""
    seed: int = 0
    """Which episode to film."""
    steps: int = 200
    """Steps to film; fewer if the episode ends before."""
    frames_per_second: int = 20
    """Steps shown in a second."""


@dataclass(frozen=True)
class ExportOptions:
    """Copy the policy alone into a new folder: a tenth of the bytes, and every command that plays one takes it."""

    run: tyro.conf.Positional[Path]
    to: Path
    """New folder; of several seeds, each gets one in it."""
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


@dataclass(frozen=True)
class SmacliteReplayOptions:
    """Replay recorded episodes of the original SMAClite in this engine, step by step, and say what differs."""

    traces: tyro.conf.Positional[tuple[Path, ...]]
    to: Path | None = None
    """Also write what was found to this JSON file."""


@dataclass(frozen=True)
class DemoOptions:
    """Train, evaluate, tabulate and draw the XOR game in a few minutes."""

    out: Path = Path("runs/demo")
    """Folder for the runs and figures; what an earlier demo left there is replaced."""
    seeds: int = 3
    """Training seeds for each policy."""
    quiet: bool = False
    """Say nothing but the results."""


# --- The commands ---------------------------------------------------------------------------------


def train_command(arguments: Sequence[str]) -> int:
    preset, rest = _preset_name("train", arguments)
    options = _parse_train(preset, rest)
    seeds = parse_seeds(options.seeds)
    _choose_device(options.device, options.quiet)
    from diamond_attention.runs.train import train

    out = options.out or Path("runs") / preset
    runs = train(
        options.settings,
        seeds,
        out,
        preset=preset,
        from_run=options.from_run,
        overwrite=options.overwrite,
        progress=choose_progress(options.quiet),
    )
    if not options.quiet:
        print(f"next: diamond evaluate {out}")
    return _status(runs)


def resume_command(arguments: Sequence[str]) -> int:
    options = _parse(ResumeOptions, arguments, "resume")
    find_runs([options.run])  # says what is wrong before a device is started
    _choose_device(options.device, options.quiet)
    from diamond_attention.runs.train import resume

    return _status(resume(options.run, progress=choose_progress(options.quiet)))


def evaluate_command(arguments: Sequence[str]) -> int:
    options = _parse(EvaluateOptions, arguments, "evaluate")
    runs = _runs(options.runs)
    sizes = [_sizes(run, options.agents, options.tasks) for run in runs]
    variants = [_variant_to_play(run, options.map, options.jitter) for run in runs]
    from diamond_attention.evaluation.evaluate import Play, check_simulator, evaluate

    for run, run_sizes in zip(runs, sizes, strict=True):  # before anything is played
        check_simulator(run.settings, run_sizes, options.simulator)
    _choose_device(options.device, quiet=options.json)
    both = options.greedy == options.sampled
    play: tuple[Play, ...] = ("greedy", "sampled") if both else ("greedy",) if options.greedy else ("sampled",)
    episodes = {}
    for run, run_sizes, world in zip(runs, sizes, variants, strict=True):
        if run.failure is not None:
            print(f"skipped {run.path}: {run.failure.get('sentence', 'it failed')}", file=sys.stderr)
            continue
        episodes[run.path] = evaluate(
            run,
            sizes=run_sizes if world is None else None,
            episodes=options.episodes,
            play=play,
            dropout=None if options.dropout is None else options.dropout == "on",
            seed=options.seed,
            checkpoint=options.checkpoint,
            simulator=options.simulator,
            world=world,
        )
    _print_table(runs, episodes, as_json=options.json)
    return _status(runs)


def table_command(arguments: Sequence[str]) -> int:
    options = _parse(TableOptions, arguments, "table")
    _print_table(_runs(options.runs), as_json=options.json, as_markdown=options.markdown)
    return 0


def figure_command(arguments: Sequence[str]) -> int:
    options = _parse(FigureOptions, arguments, "figure")
    runs = _runs(options.runs)
    _choose_device("cpu", quiet=True)
    from diamond_attention.reports.figures import draw_figures

    for drawn in draw_figures(runs, options.to, options.seed, options.agents):
        print(drawn, file=sys.stderr if isinstance(drawn, str) else sys.stdout)
    return 0


def watch_command(arguments: Sequence[str]) -> int:
    options = _parse(WatchOptions, arguments, "watch")
    runs = _runs([options.run])
    _choose_device("cpu", quiet=True)
    from diamond_attention.reports.figures import one_to_show
    from diamond_attention.reports.movie import draw_movie
    from diamond_attention.reports.recording import size_to_show

    run = one_to_show(runs)
    world = run.settings.world.name
    to = options.to or Path(f"{world}.gif")
    if world == "smaclite":
        from diamond_attention.reports.battle_movie import watch_battle

        if options.agents is not None or options.tasks is not None:
            raise UserError("--agents and --tasks do not fit SMAClite, where the map says who fights; use --map.")
        if options.steps != WatchOptions.steps or options.frames_per_second != WatchOptions.frames_per_second:
            raise UserError("--steps and --frames-per-second do not fit SMAClite: a battle is filmed whole.")
        print(watch_battle(run, options.map, to, seed=options.seed, greedy=not options.sampled))
        return 0
    if options.map is not None or options.sampled:
        raise UserError(f"--map and --sampled are for battles of SMAClite, and {run.path} plays {world}.")
    print(
        draw_movie(
            run,
            size_to_show(run, options.agents, options.tasks),
            to,
            seed=options.seed,
            steps=options.steps,
            frames_per_second=options.frames_per_second,
        )
    )
    return 0


def export_command(arguments: Sequence[str]) -> int:
    options = _parse(ExportOptions, arguments, "export")
    runs = _runs([options.run])
    _choose_device("cpu", quiet=True)
    from diamond_attention.runs.train import export_policy

    for run in runs:
        if run.failure is not None:
            print(f"skipped {run.path}: {run.failure.get('sentence', 'it failed')}", file=sys.stderr)
            continue
        to = options.to if len(runs) == 1 else options.to / f"seed_{run.seed}"
        print(export_policy(run, to, options.checkpoint).path)
    return _status(runs)


def show_command(arguments: Sequence[str]) -> int:
    preset, rest = _preset_name("show", arguments)
    options = _parse_train(preset, rest, "show")
    parse_seeds(options.seeds)
    settings = options.settings
    print(f"# {preset}: {PRESETS[preset][0]}")
    for name, value in flat(to_json(settings)):
        print(f"{name} = {json.dumps(value)}")
    sizes = " ".join(f"{size.agents}x{size.tasks}" for size in settings.sizes)
    print(f"# {settings.total_updates} updates of {settings.ppo.steps_per_update} steps; agents x tasks: {sizes}")
    return 0


def list_command(arguments: Sequence[str]) -> int:
    if arguments:
        raise UserError(f"`diamond list` takes no arguments, and got {arguments[0]!r}.")
    from diamond_attention.ranks import MaskKind

    print("presets")
    for name, (description, _) in PRESETS.items():
        print(f"  {name:12s} {description}")
    print("worlds")
    for name, world in WORLDS.items():
        print(f"  {name:12s} {(world.__doc__ or '').splitlines()[0]}")
    print("policies")
    print(f"  {'diamond':12s} Diamond Attention; policy.mask is one of {', '.join(MaskKind.__args__)}")  # type: ignore[attr-defined]
    print("trained policies that ship with the package")
    for name in shipped_policies():
        settings = open_run(SHIPPED / name).settings
        on = getattr(settings.world, "map", None)
        trained = f"with {settings.agents} agents" if on is None else f"on {on}"
        print(f"  {name:12s} {settings.world.name}, trained {trained}, mask {settings.policy.mask}")
    print("runs (in ./runs)")
    found = sorted({path.parent for path in Path("runs").glob("**/settings.json")})
    for folder in found:
        print(f"  {folder}  {_described_run(folder)}")
    if not found:
        print("  none yet; start with: diamond train xor")
    return 0


def bench_command(arguments: Sequence[str]) -> int:
    options = _parse(BenchOptions, arguments, "bench")
    _known_preset("bench", options.preset)
    if options.seeds and (min(options.seeds) < 1 or max(options.seeds) > MOST_SEEDS):
        raise UserError(f"--seeds is {options.seeds}; each measurement trains 1 to {MOST_SEEDS} seeds at once.")
    _choose_device(options.device, quiet=False)
    from diamond_attention.bench import bench

    bench(options.preset, options.seeds, options.to)
    return 0


def demo_command(arguments: Sequence[str]) -> int:
    options = _parse(DemoOptions, arguments, "demo")
    _choose_device(None, options.quiet)
    from diamond_attention.demo import demo

    return demo(options.out, options.seeds, choose_progress(options.quiet))


def smaclite_replay_command(arguments: Sequence[str]) -> int:
    options = _parse(SmacliteReplayOptions, arguments, "smaclite-replay")
    _choose_device("cpu", quiet=True)  # in double precision, as the original computes
    from diamond_attention.worlds.smaclite import replay

    if options.to is not None:
        check_writable(options.to)
    environment = describe_environment()  # first, because the source may be changed meanwhile
    comparisons = replay.compare_all(options.traces)
    print(replay.report(comparisons))
    if options.to is not None:
        found = {"environment": environment, **replay.as_json(comparisons)}
        options.to.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if replay.enough_match(comparisons) else 1


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": train_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "table": table_command,
    "figure": figure_command,
    "watch": watch_command,
    "export": export_command,
    "show": show_command,
    "list": list_command,
    "bench": bench_command,
    "demo": demo_command,
    "smaclite-replay": smaclite_replay_command,
}


def main() -> None:
    """What the installed script calls."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit status; what a user can put right is one sentence on stderr."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print((__doc__ or "").strip())
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(version("diamond-attention"))
        return 0
    # Compiled programs are kept between commands; the first start of a kind of run pays, the next does not.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diamond-attention"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    try:
        name = arguments[0]
        if name not in COMMANDS:
            raise UserError(f"there is no command {name!r}{_suggestion(name, COMMANDS)}")
        return COMMANDS[name](arguments[1:])
    except UserError as error:
        print(f"diamond: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from diamond_attention.runs.train import Interrupted

        if isinstance(error, Interrupted):
            return 128 + error.signal_number
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error):
            print("diamond: the device ran out of memory; use smaller teams or fewer seeds at once.", file=sys.stderr)
            return 2
        raise


# --- Reading what was typed -----------------------------------------------------------------------


def _parse(kind: type, arguments: Sequence[str], command: str) -> Any:
    return tyro.cli(kind, args=list(arguments), prog=f"diamond {command}", config=(tyro.conf.FlagCreatePairsOff,))


def _parse_train(preset: str, arguments: Sequence[str], command: str = "train") -> TrainOptions:
    """TrainOptions for a preset. The world's own settings are options because its concrete type is known here."""
    settings = PRESETS[preset][1]
    typed = dataclasses.make_dataclass(
        "Settings", [("world", type(settings.world))], bases=(Settings,), frozen=True, kw_only=True
    )
    options = dataclasses.make_dataclass(
        "TrainOptions",
        [("settings", Annotated[typed, tyro.conf.arg(name="")])],
        bases=(TrainOptions,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": TrainOptions.__doc__},
    )
    parsed = tyro.cli(
        options,
        args=list(arguments),
        prog=f"diamond {command} {preset}",
        default=options(settings=typed(**_fields(settings))),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return TrainOptions(**{**_fields(parsed), "settings": Settings(**_fields(parsed.settings))})


def _fields(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _preset_name(command: str, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    if not arguments or arguments[0].startswith("-"):
        raise UserError(f"`diamond {command}` needs a preset first: {', '.join(PRESETS)}.")
    return _known_preset(command, arguments[0]), arguments[1:]


def _known_preset(command: str, name: str) -> str:
    if name not in PRESETS:
        raise UserError(f"`diamond {command}`: there is no preset {name!r}{_suggestion(name, PRESETS)}")
    return name


def _suggestion(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}."


def parse_seeds(text: str) -> list[int]:
    """3 -> [3]; 0:10 -> ten seeds, 0 to 9; 0,5,7 -> those three.

    >>> parse_seeds("0:3")
    [0, 1, 2]
    """
    seeds: list[int] = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        try:
            first, last = int(low), int(high) if colon else int(low) + 1
            seeds.extend(range(max(first, -1), min(last, first + MOST_SEEDS + 1)))
        except ValueError:
            raise UserError(
                f"--seeds is {text!r}; write a seed, a range such as 0:10, or a list such as 0,5,7."
            ) from None
    if not 0 < len(seeds) <= MOST_SEEDS or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise UserError(f"--seeds is {text!r}; give 1 to {MOST_SEEDS} seeds, each once, from 0 to 4294967295.")
    return seeds


def _runs(paths: Sequence[Path]) -> list[Run]:
    if not paths:
        raise UserError("name at least one run; `diamond list` shows them.")
    return find_runs(paths)


def _sizes(run: Run, agents: str | None, tasks: str | None) -> tuple[TeamSize, ...]:
    if agents is not None:
        parse_sizes(agents, "--agents")
    return team_sizes(
        run.settings.world,
        run.settings.agents if agents is None else agents,
        run.settings.tasks if tasks is None else tasks,
    )


def _variant_to_play(run: Run, maps: str | None, jitter: float | None) -> Smaclite | None:
    """SMAClite: the run's world with the maps and starts asked for; none for other worlds."""
    world = run.settings.world
    if not isinstance(world, Smaclite):
        for option, value in (("--map", maps), ("--jitter", jitter)):
            if value is not None:
                raise UserError(f"{option} is {value}, but {run.path} was trained on {world.name}, which has none.")
        return None
    return dataclasses.replace(world, map=maps or world.map, jitter=jitter or 0.0)


def _choose_device(device: Device | None, quiet: bool) -> None:
    """Settles where JAX computes, and says so. Never falls back silently."""
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif device == "gpu":
        try:
            jax.config.update("jax_default_device", jax.devices("gpu")[0])
        except RuntimeError:
            raise UserError(
                "--device is gpu, but JAX finds no GPU here; install the extra with "
                "`pip install 'diamond-attention[gpu]'` on a machine that has one, or use --device cpu."
            ) from None
    if not quiet:
        used = jax.devices(device)[0]
        print(f"device: {used.platform} ({used.device_kind}, {len(os.sched_getaffinity(0))} CPU cores)", flush=True)


# --- Saying it ------------------------------------------------------------------------------------


def _status(runs: Sequence[Run]) -> int:
    return 1 if any(run.failure is not None for run in runs) else 0


def _print_table(
    runs: Sequence[Run],
    episodes: Mapping[Path, Sequence[Mapping]] | None = None,
    as_json: bool = False,
    as_markdown: bool = False,
) -> None:
    """All that was ever evaluated, or only the episodes given."""
    from diamond_attention.reports import tables

    lines = tables.table_lines(runs, episodes)
    if as_json:
        print(json.dumps(tables.as_json(lines), indent=2))
    elif as_markdown:
        print(tables.as_markdown(lines))
    else:
        tables.print_table(lines)
    for run in runs:
        if run.failure is not None:
            print(f"failed, and not counted: {run.failure.get('sentence', run.path)}", file=sys.stderr)
        elif lines and episodes is None and not run.episodes.exists():
            print(f"not evaluated, and not in the table: {run.path}", file=sys.stderr)


def _described_run(folder: Path) -> str:
    try:
        run = find_runs([folder])[0]
    except UserError as error:
        return f"cannot be opened: {error}"
    if run.failure is not None:
        return f"failed at update {run.failure.get('update')}"
    from diamond_attention.runs.checkpoint import list_checkpoints

    updates = max((c.update for c in list_checkpoints(run.checkpoints)), default=0)
    if run.policy_alone:
        return f"a policy alone, after {updates} updates, mask {run.settings.policy.mask}"
    state = "finished" if run.finished is not None else "not finished"
    return f"{state}, {updates} of {run.settings.total_updates} updates, mask {run.settings.policy.mask}"
