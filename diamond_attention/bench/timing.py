"""Timing that other work on the machine disturbs little: those compared take turns, and the best turn counts."""

import time
from collections.abc import Callable
from typing import Any

import jax

TURNS = 3
SECONDS_A_TURN = 0.5


def steps_for(play: Callable[[int], None], steps_a_call: int) -> int:
    """How many steps fill a turn, in whole calls."""
    play(steps_a_call)  # compiles
    started = time.perf_counter()
    play(steps_a_call)
    return steps_a_call * max(1, round(SECONDS_A_TURN / (time.perf_counter() - started)))


def best_of_turns(players: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each one's best turn."""
    best = dict.fromkeys(players, float("inf"))
    for _ in range(TURNS):
        for name, play in players.items():
            started = time.perf_counter()
            play()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def program_bytes(program: Any) -> int | None:
    """Memory a compiled program needs at once: what it is given, returns and works with. None where nobody tells."""
    told = program.memory_analysis()
    if told is None:
        return None
    shared = told.alias_size_in_bytes  # given and returned in the same place
    return told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - shared


class without_compilation_cache:  # noqa: N801 - reads as a phrase where it is used
    """A program found in the on-disk cache would be timed as compiled in no time."""

    def __enter__(self) -> None:
        self.before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", None)

    def __exit__(self, *_: object) -> None:
        jax.config.update("jax_compilation_cache_dir", self.before)
