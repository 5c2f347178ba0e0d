"""`diamond bench`: for a world that can be solved how soon it is, for others how fast it steps, trains and decides.

simulation   random actions, rewards computed, nothing learned (`SIMULATIONS` says how, world by world)
training     updates of the preset as `diamond train` makes them
parts        an update's rollout, the rest of it, and the world's steps alone
decisions    one agent's policy on one view, on one CPU core
"""

import importlib.metadata
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from diamond_attention.actions import Continuous
from diamond_attention.bench.battles import BATTLES, measure_battles
from diamond_attention.bench.decisions import measure_decisions
from diamond_attention.bench.peers import recorded_beside
from diamond_attention.bench.simulation import ENVS, measure_simulation, vmas_used
from diamond_attention.bench.training import compiled_training, measure_parts, measure_training
from diamond_attention.learning.seeds import MOST_UPDATES_PER_CALL
from diamond_attention.ranges import Between, check_number
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import check_writable, write_file
from diamond_attention.runs.memory import check_training_fits
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.seeds import MOST_SEEDS
from diamond_attention.runs.settings import Settings, to_json

SMOOTHED_OVER = 10
"""Updates over which the score is averaged before it is compared with what counts as solved."""


def bench(preset: str, seed_counts: Sequence[int], to: Path | None) -> None:
    """Measures what there is to measure for this preset's world; prints it, and writes JSON if asked."""
    settings = PRESETS[preset][1]
    can_be_solved = settings.world.scoring.solved is not None
    seed_counts = tuple(seed_counts) or ((1, 10) if can_be_solved else (1,))
    for seeds in seed_counts:
        check_number("--seeds", seeds, Between(1, MOST_SEEDS))
    check_training_fits(settings, range(max(seed_counts)))
    if to is not None:
        check_writable(to)
    environment = describe_environment()  # first, because the source may be changed meanwhile
    measured: dict[str, Any]
    if can_be_solved:
        measured = {"results": [measure(preset, seeds) for seeds in seed_counts]}
        _print_solving(preset, settings, measured["results"])
    else:
        measured = measure_speed(settings, seed_counts)
        _print_speed(preset, settings, measured)
    if to is not None:
        environment["versions"] |= versions_of_vmas() if "vmas" in measured else {}
        described = {"preset": preset, "settings": to_json(settings), "environment": environment}
        write_file(to, (json.dumps({**described, **measured}, indent=2) + "\n").encode())


# --- Worlds that take many steps ------------------------------------------------------------------


def measure_speed(settings: Settings, seed_counts: Sequence[int]) -> dict[str, Any]:
    """Everything, as JSON values."""
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    measure_world, _ = SIMULATIONS.get(settings.world.name, (_measure_worlds, _worlds_table))
    return {
        **measure_world(settings, device),
        "training": [measure_training(settings, seeds) for seeds in seed_counts],
        "parts": measure_parts(settings),
        "decisions": measure_decisions(settings),
        "device_memory_peak_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "recorded_elsewhere": recorded_beside(settings.world.name, device),
    }


def _measure_worlds(settings: Settings, device: str) -> dict[str, Any]:
    simulation = [measure_simulation(settings, envs) for envs in ENVS[device]]
    return {"simulation": simulation, "vmas": vmas_used(settings.world)}


def _measure_battles(settings: Settings, device: str) -> dict[str, Any]:
    return {
        "simulation": [measure_battles(name, envs) for name, counts in BATTLES[device].items() for envs in counts]
    }


def versions_of_vmas() -> dict[str, str]:
    found = {}
    for name in ("vmas", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _print_speed(preset: str, settings: Settings, measured: dict[str, Any]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=118)
    recorded = [
        (row["what"], [f"{row['system']}, recorded elsewhere", row["setting"], rounded(row["steps_per_second"])])
        for row in measured["recorded_elsewhere"]
    ]

    _, table_of = SIMULATIONS.get(settings.world.name, (_measure_worlds, _worlds_table))
    console.print(table_of(measured, recorded))
    if measured.get("vmas", "measured") != "measured":
        console.print(f"VMAS {measured['vmas']}")

    training = _table(f"Training {preset}", "system", "setting", "env-steps/s", "updates/s", "memory", "compile s")
    for row in measured["training"]:
        setting = (
            f"{row['seeds']} seed(s), {settings.method.envs:,} envs, {row['steps_per_update']:,} steps an update"
        )
        updates, seconds = f"{row['updates_per_second']:.2f}", f"{row['compile_seconds']:.1f}"
        memory = mebibytes(row["program_bytes"])
        training.add_row("this package", setting, rounded(row["steps_per_second"]), updates, memory, seconds)
    for what, cells in recorded:
        if what == "training":
            training.add_row(*cells, "", "", "")
    console.print(training)
    if measured["device_memory_peak_bytes"] is not None:
        console.print(f"Most device memory in use at any time: {mebibytes(measured['device_memory_peak_bytes'])}")

    parts = measured["parts"]
    where = _table("Where an update's time goes, one seed", "part", "seconds", "share of the update")
    for name, meaning in (
        ("update", "update"),
        ("rollout", "rollout: views, policy, critic, world"),
        ("epochs", "the rest: update less rollout"),
        # Legal actions, where there are any, are found through the agents' views.
        ("simulation", "world alone" if isinstance(settings.world.action_kind, Continuous) else "world and views"),
    ):
        seconds = parts.get(f"{name}_seconds")
        if seconds is None:
            continue
        where.add_row(meaning, f"{seconds:.4f}", f"{100 * seconds / parts['update_seconds']:.0f} %")
    console.print(where)

    decisions = _table("One agent's decision on one CPU core", "agents", "tasks", "median ms", "95th percentile, ms")
    for row in measured["decisions"]:
        both = [f"{row[name]:.2f}" for name in ("median_milliseconds", "percentile_95_milliseconds")]
        decisions.add_row(str(row["agents"]), str(row["tasks"]), *both)
    console.print(decisions)


def _worlds_table(measured: dict[str, Any], recorded: Sequence[tuple[str, list[str]]]) -> Table:
    table = _table("Simulation, random actions", "simulator", "setting", "env-steps/s", "times VMAS")
    for row in measured["simulation"]:
        setting = f"{row['envs']:,} envs, {row['agents']} agents"
        times = "" if row["times_vmas"] is None else f"{row['times_vmas']:.1f}"
        table.add_row("this package, world alone", setting, rounded(row["steps_per_second"]), "")
        table.add_row("this package, with views", setting, rounded(row["steps_per_second_with_views"]), times)
        if row["vmas_steps_per_second"] is not None:
            table.add_row("VMAS, same run", setting, rounded(row["vmas_steps_per_second"]), "")
    for what, cells in recorded:
        if what == "simulation":
            table.add_row(*cells, "")
    return table


def _battles_table(measured: dict[str, Any], recorded: Sequence[tuple[str, list[str]]]) -> Table:
    title = "Battles alone, random legal actions, observations included"
    table = _table(title, "simulator", "setting", "env-steps/s", "lines dropped", "memory", "compile s")
    for row in measured["simulation"]:
        setting = f"{row['map']}, {row['envs']:,} battles"
        dropped, seconds = f"{row['lines_dropped']:,}", f"{row['compile_seconds']:.1f}"
        memory = mebibytes(row["program_bytes"])
        table.add_row("this package", setting, rounded(row["steps_per_second"]), dropped, memory, seconds)
    for what, cells in recorded:
        if what == "simulation":
            table.add_row(*cells, "", "", "")
    return table


SIMULATIONS = {"smaclite": (_measure_battles, _battles_table)}
"""Worlds whose simulation is measured in a way of its own, and the table that shows it."""


def mebibytes(number: int | None) -> str:
    return "" if number is None else f"{number / 2**20:,.0f} MiB"


def _table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in headings:
        words = heading in ("simulator", "system", "setting", "part")
        table.add_column(heading, justify="left" if words else "right")
    return table


def rounded(number: float) -> str:
    """Three figures: more would be noise.

    >>> rounded(1234567.0)
    '1,230,000'
    """
    return f"{float(f'{number:.3g}'):,.0f}"


# --- Worlds that can be solved --------------------------------------------------------------------


def _print_solving(preset: str, settings: Settings, results: Sequence[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "seeds at once",
        "compile s",
        "updates/s",
        "steps/s, all seeds",
        f"s to {settings.world.scoring.score} ≥ {settings.world.scoring.solved}",
        "slowest seed",
    ):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            str(result["seeds"]),
            f"{result['compile_seconds']:.1f}",
            f"{result['updates_per_second']:.1f}",
            f"{result['steps_per_second']:,.0f}",
            *(_seconds(result[name]) for name in ("median_seconds_to_solve", "slowest_seconds_to_solve")),
        )
    console = Console()
    console.print(f"{preset}: {settings.total_updates} updates of {settings.method.steps_per_update} steps a seed")
    console.print(table)
    console.print(f"Seconds do not include compiling; the score is averaged over {SMOOTHED_OVER} updates.")


def measure(preset: str, seeds: int) -> dict[str, Any]:
    """One full training of `seeds` seeds at once, without writing anything."""
    settings = PRESETS[preset][1]
    scoring = settings.world.scoring
    assert scoring.solved is not None
    advance, stacked, compile_seconds = compiled_training(settings, seeds)
    success = []
    done, total = 1, settings.total_updates
    started = time.perf_counter()
    while done < total:
        count = min(MOST_UPDATES_PER_CALL, total - done)
        stacked, log = advance(stacked, jnp.asarray(count))
        success.append(np.asarray(log[scoring.score][:count]))
        done += count
    seconds = time.perf_counter() - started
    per_update = seconds / (done - 1)
    solved = [_first_solved(curve, scoring.solved) for curve in np.concatenate(success).T]
    times = [None if update is None else update * per_update for update in solved]
    known = sorted(t for t in times if t is not None)
    return {
        "seeds": seeds,
        "compile_seconds": compile_seconds,
        "updates_per_second": 1.0 / per_update,
        "steps_per_second": seeds * settings.method.steps_per_update / per_update,
        "seeds_solved": len(known),
        "median_seconds_to_solve": known[len(times) // 2] if len(known) > len(times) // 2 else None,
        "slowest_seconds_to_solve": known[-1] if len(known) == seeds else None,
    }


def _first_solved(scores: np.ndarray, solved: float) -> int | None:
    """The update at which the running mean first gets there."""
    mean = np.convolve(scores, np.ones(SMOOTHED_OVER) / SMOOTHED_OVER, mode="valid")
    reached = np.flatnonzero(mean >= solved)
    return int(reached[0]) + SMOOTHED_OVER if len(reached) else None


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f}"
