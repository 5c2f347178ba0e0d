"""The `diamond` command.

    diamond train PRESET      diamond evaluate RUN…      diamond show PRESET
    diamond resume RUN        diamond table RUN…         diamond list
    diamond demo              diamond figure RUN…        diamond bench
    diamond export RUN        diamond watch RUN          diamond smaclite-replay TRACE.npz…
    diamond theory            diamond reproduce NAME     diamond sweep PRESET…
    diamond agent POLICY      diamond fleet POLICY
    diamond web [RUNS]

A RUN is a folder, or the name of a policy that ships with the package: `diamond watch spread`. `--help` after a
command lists its options. `--with FILE.py`, anywhere, first runs a file that registers worlds, policies, methods or
presets of your own.

Exit status: 0 done, 1 a seed failed, a replay differs or another process of the run is gone, 2 something you typed
can be put right, 130 or 143 stopped by Ctrl-C or SIGTERM with everything saved.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax

from diamond_attention.command_options import (
    BenchOptions,
    DemoOptions,
    Device,
    EvaluateOptions,
    ExportOptions,
    FigureOptions,
    ReproduceOptions,
    ResumeOptions,
    SmacliteReplayOptions,
    TableOptions,
    TheoryOptions,
    WatchOptions,
    WebOptions,
)
from diamond_attention.command_words import (
    known,
    known_preset,
    parse_options,
    parse_train,
    parse_with_variations,
    preset_name,
    suggestion,
    without_extensions,
)
from diamond_attention.errors import Notice, UserError, shown
from diamond_attention.fleet.command import FleetOptions, fleet
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.registry import POLICIES
from diamond_attention.process_group import (
    ProcessGroup,
    devices_asked,
    group_asked,
    is_watched,
    join,
    watch,
    watched,
)
from diamond_attention.robot.command import agent_command
from diamond_attention.runs.bundle_format import SHIPPED, shipped_policies
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import check_writable, write_file
from diamond_attention.runs.folder import Run, find_runs, group_folder, open_run
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.progress import choose_progress
from diamond_attention.runs.seeds import MOST_SEEDS, parse_seeds
from diamond_attention.runs.settings import described_as, flat, to_json
from diamond_attention.runs.sizes import parse_sizes, team_sizes
from diamond_attention.runs.trackers.registry import check_trackers
from diamond_attention.terminal import interrupts_heard, show_warning, tell, unheard
from diamond_attention.worlds.contract import TeamSize, World
from diamond_attention.worlds.registry import WORLDS

# --- The commands ---------------------------------------------------------------------------------


def train_command(arguments: Sequence[str]) -> int:
    preset, rest = preset_name("train", arguments)
    options = parse_train(preset, rest)
    seeds = parse_seeds(options.seeds)
    devices = devices_asked(options.devices)
    group = group_asked(options)
    if not options.process:  # of several processes only the first is followed
        check_trackers(options.track)
    if group is not None and not is_watched():
        return watch(group)
    _choose_device(options.device, options.quiet, group)
    from diamond_attention.runs.train import train

    out = options.out or Path("runs") / preset
    runs = train(
        options.settings,
        seeds,
        out,
        preset=preset,
        from_run=options.from_run,
        overwrite=options.overwrite,
        devices=devices,
        go_on=options.resume,
        track=options.track,
        progress=choose_progress(options.quiet),
    )
    if runs and not options.quiet:
        print(f"next: diamond evaluate {out}")
    return _status(runs)


def resume_command(arguments: Sequence[str]) -> int:
    options = parse_options(ResumeOptions, arguments, "resume")
    devices = devices_asked(options.devices)
    group = group_asked(options)
    if not options.process:
        check_trackers(options.track)
    if group is not None and not is_watched():
        return watch(group)
    if group is None:  # of several processes only the first needs the folder
        group_folder(options.run)  # says what is wrong before a device is started
    _choose_device(options.device, options.quiet, group)
    from diamond_attention.runs.train import resume

    progress = choose_progress(options.quiet)
    return _status(resume(options.run, devices=devices, track=options.track, progress=progress))


def evaluate_command(arguments: Sequence[str]) -> int:
    options, asked = parse_with_variations(EvaluateOptions, arguments, "evaluate")
    runs = _runs(options.runs)
    from diamond_attention.evaluation.conditions import variant_to_play
    from diamond_attention.evaluation.evaluate import check_rows, check_simulator, evaluate

    # Whatever is wrong is said before anything is played.
    worlds = [variant_to_play(run, **asked) for run in runs]
    sizes = [_sizes(run, world, options.agents, options.tasks) for run, world in zip(runs, worlds, strict=True)]
    for run, run_sizes in zip(runs, sizes, strict=True):
        check_simulator(run.settings, run_sizes, options.simulator)
    check_rows(options.episodes, sum(map(len, sizes)), len(options.plays))
    _choose_device(options.device, quiet=options.json or options.quiet)
    episodes = {}
    for run, run_sizes, world in zip(runs, sizes, worlds, strict=True):
        if run.failure is not None:
            print(f"skipped {run.path}: {run.failure.get('sentence', 'it failed')}", file=sys.stderr)
            continue
        episodes[run.path] = evaluate(
            run,
            sizes=run_sizes,
            episodes=options.episodes,
            play=options.plays,
            dropout=None if options.dropout is None else options.dropout == "on",
            broadcast=options.broadcast,
            seed=options.seed,
            checkpoint=options.checkpoint,
            simulator=options.simulator,
            world=world,
            progress=choose_progress(options.json or options.quiet),
        )
    _print_table(runs, episodes, as_json=options.json)
    return _status(runs)


def table_command(arguments: Sequence[str]) -> int:
    options = parse_options(TableOptions, arguments, "table")
    _print_table(_runs(options.runs), as_json=options.json, as_markdown=options.markdown)
    return 0


def figure_command(arguments: Sequence[str]) -> int:
    options = parse_options(FigureOptions, arguments, "figure")
    runs = _runs(options.runs)
    _choose_device("cpu", quiet=True)
    from diamond_attention.reports.figures import draw_figures

    for drawn in draw_figures(runs, options.to, options.seed, options.agents):
        print(drawn, file=sys.stderr if isinstance(drawn, str) else sys.stdout)
    return 0


def watch_command(arguments: Sequence[str]) -> int:
    options, asked = parse_with_variations(WatchOptions, arguments, "watch")
    runs = _runs([options.run])
    _choose_device("cpu", quiet=True)
    from diamond_attention.evaluation.conditions import variant_to_play
    from diamond_attention.evaluation.recording import size_to_show
    from diamond_attention.reports.figures import one_to_show
    from diamond_attention.reports.films import draw_film

    run = one_to_show(runs)
    world = variant_to_play(run, **asked).apart()[0]
    if len(variant_to_play(run, **asked).apart()) > 1 and any(value is not None for value in asked.values()):
        given = ", ".join(f"--{name} {value}" for name, value in asked.items() if value is not None)
        raise UserError(f"{given} means several games; name one to watch.")
    film = draw_film(
        run,
        size_to_show(run, world, options.agents, options.tasks),
        options.to or Path(f"{world.name}.gif"),
        seed=options.seed,
        steps=options.steps,
        frames_per_second=options.frames_per_second,
        greedy=not options.sampled,
        world=world,
        progress=choose_progress(options.quiet),
    )
    print(film)
    return 0


def export_command(arguments: Sequence[str]) -> int:
    options = parse_options(ExportOptions, arguments, "export")
    runs = _runs([options.run])
    _choose_device("cpu", quiet=True)
    if options.to.suffix.lower() == ".onnx":
        from diamond_attention.deploy.onnx_export import export_onnx

        print(export_onnx(runs, options.to, options.checkpoint))
        return 0
    from diamond_attention.runs.bundle import export_policies

    for run in runs:
        if run.failure is not None:
            print(f"skipped {run.path}: {run.failure.get('sentence', 'it failed')}", file=sys.stderr)
    whole = {f"seed_{run.seed}" if len(runs) > 1 else "": run for run in runs if run.failure is None}
    for exported in export_policies(whole, options.to, options.checkpoint) if whole else ():
        print(exported.path)
    return _status(runs)


def show_command(arguments: Sequence[str]) -> int:
    preset, rest = preset_name("show", arguments)
    options = parse_train(preset, rest, "show")
    parse_seeds(options.seeds)
    settings = options.settings
    print(f"# {preset}: {PRESETS[preset][0]}")
    for name, value in flat(to_json(settings)):
        print(f"{name} = {json.dumps(value)}")
    sizes = " ".join(f"{size.agents}x{size.tasks}" for size in settings.sizes)
    updates, steps = settings.total_updates, settings.method.steps_per_update
    print(f"# {updates} updates of {steps} steps; agents x tasks: {sizes}")
    return 0


def list_command(arguments: Sequence[str]) -> int:
    if arguments:
        raise UserError(f"`diamond list` takes no arguments, and got {arguments[0]!r}.")
    print("presets")
    for name, (description, _) in PRESETS.items():
        print(f"  {name:20s} {description}")
    described_types = {
        "worlds": WORLDS,
        "kinds of policy (--policy.kind)": {name: kind.settings for name, kind in POLICIES.items()},
        "methods (--method)": {name: method.settings for name, method in METHODS.items()},
    }
    for heading, types in described_types.items():
        print(heading)
        for name, kind in types.items():
            print(f"  {name:20s} {_first_line(kind)}")
    print("trained policies that ship with the package")
    for name in shipped_policies():
        settings = open_run(SHIPPED / name).settings
        world = settings.world.as_scored()
        trained = " ".join(dict.fromkeys(world.played_at(size) for size in settings.sizes))
        print(f"  {name:20s} {world.name}, trained on {trained}, {described_as(settings).label}")
    print("runs (in ./runs)")
    found = sorted(
        {path.parent for name in ("settings.json", "policy.json") for path in Path("runs").glob(f"**/{name}")}
    )
    found = [folder for folder in found if folder.parent.name != "checkpoints"]
    for folder in found:
        print(f"  {folder}  {_described_run(folder)}")
    if not found:
        print("  none yet; start with: diamond train xor")
    return 0


def _first_line(kind: type) -> str:
    """Of what a class says it is; a dataclass that says nothing is given its own signature by Python."""
    said = (kind.__doc__ or "").strip()
    return "" if said.startswith(f"{kind.__name__}(") else said.partition("\n")[0]


def bench_command(arguments: Sequence[str]) -> int:
    options = parse_options(BenchOptions, arguments, "bench")
    known_preset("bench", options.preset)
    if "--seeds" in arguments and not options.seeds:
        raise UserError("--seeds needs a value after it.")
    if options.seeds and (min(options.seeds) < 1 or max(options.seeds) > MOST_SEEDS):
        raise UserError(
            f"--seeds is {shown(options.seeds)}; each measurement trains 1 to {MOST_SEEDS} seeds at once."
        )
    if options.check and (options.seeds or options.to):
        raise UserError("--check times nothing, so --seeds and --to mean nothing beside it; leave them out.")
    _choose_device(options.device, quiet=False)
    if options.check:
        from diamond_attention.bench.check import check_device

        return 0 if check_device(PRESETS[options.preset][1]) else 1
    from diamond_attention.bench.report import bench

    bench(options.preset, options.seeds, options.to)
    return 0


def demo_command(arguments: Sequence[str]) -> int:
    options = parse_options(DemoOptions, arguments, "demo")
    _choose_device(None, options.quiet)
    from diamond_attention.demo import demo

    return demo(options.out, options.seeds, choose_progress(options.quiet))


def smaclite_replay_command(arguments: Sequence[str]) -> int:
    options = parse_options(SmacliteReplayOptions, arguments, "smaclite-replay")
    _choose_device("cpu", quiet=True)  # in double precision, as the original computes
    from diamond_attention.worlds.smaclite import replay

    if options.to is not None:
        check_writable(options.to)
    environment = describe_environment()  # first, because the source may be changed meanwhile
    comparisons = replay.compare_all(options.traces)
    print(replay.report(comparisons))
    if options.to is not None:
        found = {"environment": environment, **replay.as_json(comparisons)}
        write_file(options.to, (json.dumps(found, indent=2) + "\n").encode())
    return 0 if replay.enough_match(comparisons) else 1


def theory_command(arguments: Sequence[str]) -> int:
    options = parse_options(TheoryOptions, arguments, "theory")
    if options.to is not None:
        if options.to.suffix.lower() != ".png":
            raise UserError(f"--to is {shown(str(options.to))}, and the picture is a .png; name such a file.")
        check_writable(options.to)
    _choose_device("cpu", quiet=True)
    from diamond_attention.theory.figure import draw_theory
    from diamond_attention.theory.report import report

    holds = report(print)
    if options.to is not None:
        print(f"drew {draw_theory(options.to)}")
    return 0 if holds else 1


def reproduce_command(arguments: Sequence[str]) -> int:
    from diamond_attention.reproduce.entries import ENTRIES
    from diamond_attention.reproduce.reproduce import reproduce

    if arguments and arguments[0] in ("-h", "--help"):
        print("what can be made, each with its groups of seeds:\n")
        for name, entry in ENTRIES.items():
            print(f"  {name:20s} {entry.title}; {len(entry.wanted)} groups")
        print(f"  {'all':20s} all of it\n")
    options = parse_options(ReproduceOptions, arguments, "reproduce")
    names = (*ENTRIES, "all")
    known(f"there is nothing called {shown(options.entry)} to reproduce", options.entry, names)
    return reproduce(options)


def sweep_command(arguments: Sequence[str]) -> int:
    from diamond_attention.sweep.combinations import parse_sweep
    from diamond_attention.sweep.sweep import sweep

    return sweep(*parse_sweep(arguments))


def fleet_command(arguments: Sequence[str]) -> int:
    options = parse_options(FleetOptions, arguments, "fleet")
    _choose_device("cpu", quiet=True)
    return fleet(options)


def web_command(arguments: Sequence[str]) -> int:
    from diamond_attention.web.live_page import live_answers, write_live_page
    from diamond_attention.web.server import Answers, serve

    options = parse_options(WebOptions, arguments, "web")
    if options.to is not None:
        if options.runs is not None:
            raise UserError("--to writes the page to play with, which holds no runs; leave RUNS out, or --to.")
        write_live_page(options.to)
        print(options.to)
        return 0
    answers: Answers = live_answers
    if options.runs is not None:
        from diamond_attention.web.runs_page import runs_answers

        answers = runs_answers(options.runs)
    serve(answers, options.port, lambda address: print(f"{address} (Ctrl-C ends it)", flush=True))
    return 0


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
    "sweep": sweep_command,
    "reproduce": reproduce_command,
    "theory": theory_command,
    "agent": agent_command,
    "fleet": fleet_command,
    "demo": demo_command,
    "smaclite-replay": smaclite_replay_command,
    "web": web_command,
}


def main() -> None:
    """What the installed script calls."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no "π" shows its number
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with watched() as report:
        status = run_command(sys.argv[1:])
        try:
            sys.stdout.flush()
        except OSError as error:
            status = status or unheard(error)
        report(status)
    sys.exit(status)


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
        with warnings.catch_warnings(), interrupts_heard():
            warnings.simplefilter("always", Notice)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            arguments = without_extensions(arguments)
            name = arguments[0] if arguments else ""
            if name not in COMMANDS:
                raise UserError(f"there is no command {name!r}{suggestion(name, COMMANDS)}")
            return COMMANDS[name](arguments[1:])
    except UserError as error:
        tell(error)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        if error.filename is None:
            return unheard(error)
        tell(f"{error.filename}: {error.strerror}.")  # a name that is too long, a folder nobody may look into
        return 2
    except Exception as error:
        from diamond_attention.runs.processes import LostError, OutOfStepError
        from diamond_attention.runs.signals import Interrupted

        if isinstance(error, Interrupted):
            return 128 + error.signal_number
        if isinstance(error, LostError | OutOfStepError):
            tell(error)
            return 1
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error):
            tell("the device ran out of memory; use smaller teams or fewer seeds at once.")
            return 2
        raise


# --- What was named -------------------------------------------------------------------------------


def _runs(paths: Sequence[Path]) -> list[Run]:
    if not paths:
        raise UserError("name at least one run; `diamond list` shows them.")
    return find_runs(paths)


def _sizes(run: Run, world: World, agents: str | None, tasks: str | None) -> tuple[TeamSize, ...]:
    if agents is not None:
        parse_sizes(agents, "--agents")
    settings = run.settings
    return team_sizes(
        world, settings.agents if agents is None else agents, settings.tasks if tasks is None else tasks
    )


def _choose_device(device: Device | None, quiet: bool, group: ProcessGroup | None = None) -> None:
    """Settles where JAX computes, and with whom, and says so. Never falls back silently."""
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if group is not None:
        join(group)
    if device == "gpu":
        try:
            jax.config.update("jax_default_device", jax.local_devices(backend="gpu")[0])
        except RuntimeError:
            raise UserError(
                "--device is gpu, but JAX finds no GPU here; install the extra with "
                "`pip install 'diamond-attention[gpu]'` on a machine that has one, or use --device cpu."
            ) from None
    if not quiet:
        used = jax.local_devices(backend=device)[0]
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

    if run.policy_alone:
        from diamond_attention.runs.bundle import read_policy

        return f"a policy alone, after {read_policy(run).update} updates, {described_as(run.settings).label}"
    updates = max((c.update for c in list_checkpoints(run.checkpoints)), default=0)
    state = "finished" if run.finished is not None else "not finished"
    return f"{state}, {updates} of {run.settings.total_updates} updates, {described_as(run.settings).label}"
