"""`diamond bench`: how long compiling takes, how fast updates are, and how soon the game is solved."""

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

from diamond_attention.runs.assemble import begin_learning, build_learner
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.record import describe_environment
from diamond_attention.runs.settings import to_json
from diamond_attention.runs.train import MOST_UPDATES_PER_CALL, advance_seeds, stack_seeds

SOLVED = 0.99
SMOOTHED_OVER = 10
"""Updates over which success is averaged before it is compared with SOLVED."""


def bench(preset: str, seed_counts: Sequence[int], to: Path | None) -> list[dict[str, Any]]:
    """Trains the preset to its end for each number of seeds at once; prints a table, and JSON if asked."""
    settings = PRESETS[preset][1]
    results = [measure(preset, seeds) for seeds in seed_counts]
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "seeds at once",
        "compile s",
        "updates/s",
        "steps/s, all seeds",
        "s to success ≥ 0.99",
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
    console.print(f"{preset}: {settings.total_updates} updates of {settings.ppo.steps_per_update} steps a seed")
    console.print(table)
    console.print(f"Seconds to success do not include compiling; success is averaged over {SMOOTHED_OVER} updates.")
    if to is not None:
        described = {"preset": preset, "settings": to_json(settings), "environment": describe_environment()}
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps({**described, "results": results}, indent=2) + "\n")
    return results


def measure(preset: str, seeds: int) -> dict[str, Any]:
    """One full training of `seeds` seeds at once, without writing anything."""
    settings = PRESETS[preset][1]
    # A program found in the on-disk cache would be timed as compiled in no time.
    with _without_compilation_cache():
        started = time.perf_counter()
        stacked = stack_seeds([begin_learning(settings, seed) for seed in range(seeds)])
        advance = advance_seeds(build_learner(settings)).lower(stacked, jnp.asarray(1)).compile()  # type: ignore[attr-defined]
        compile_seconds = time.perf_counter() - started

    stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))  # the first call also allocates
    success = []
    done, total = 1, settings.total_updates
    started = time.perf_counter()
    while done < total:
        count = min(MOST_UPDATES_PER_CALL, total - done)
        stacked, log = advance(stacked, jnp.asarray(count))
        success.append(np.asarray(log["success" if "success" in log else "battle_won"][:count]))
        done += count
    seconds = time.perf_counter() - started
    per_update = seconds / (done - 1)
    solved = [_first_solved(curve) for curve in np.concatenate(success).T]
    times = [None if update is None else update * per_update for update in solved]
    known = sorted(t for t in times if t is not None)
    return {
        "seeds": seeds,
        "compile_seconds": compile_seconds,
        "updates_per_second": 1.0 / per_update,
        "steps_per_second": seeds * settings.ppo.steps_per_update / per_update,
        "seeds_solved": len(known),
        "median_seconds_to_solve": known[len(times) // 2] if len(known) > len(times) // 2 else None,
        "slowest_seconds_to_solve": known[-1] if len(known) == seeds else None,
    }


def _first_solved(success: np.ndarray) -> int | None:
    """The update at which the running mean first reaches SOLVED."""
    mean = np.convolve(success, np.ones(SMOOTHED_OVER) / SMOOTHED_OVER, mode="valid")
    reached = np.flatnonzero(mean >= SOLVED)
    return int(reached[0]) + SMOOTHED_OVER if len(reached) else None


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f}"


class _without_compilation_cache:  # noqa: N801 - reads as a phrase where it is used
    def __enter__(self) -> None:
        self.before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", None)

    def __exit__(self, *_: object) -> None:
        jax.config.update("jax_compilation_cache_dir", self.before)
