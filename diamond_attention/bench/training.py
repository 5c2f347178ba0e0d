"""How fast a preset trains, and where an update's time goes."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from diamond_attention.bench.simulation import random_step
from diamond_attention.bench.timing import best_of_turns, program_bytes, without_compilation_cache
from diamond_attention.learning.contract import LearnerState
from diamond_attention.learning.seeds import advance_seeds, stack_seeds
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import TeamSize

SECONDS_OF_UPDATES = 5.0


def compiled_training(settings: Settings, seeds: int) -> tuple[Any, LearnerState, float]:
    """The program that advances that many seeds, their state after one update, and the seconds it took to compile."""
    with without_compilation_cache():
        started = time.perf_counter()
        stacked = stack_seeds([begin_learning(settings, seed) for seed in range(seeds)])
        advance = advance_seeds(method_of(settings), build_learner(settings)).lower(stacked, jnp.asarray(1)).compile()  # type: ignore[attr-defined]
        compile_seconds = time.perf_counter() - started
    stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))  # the first call also allocates
    return advance, stacked, compile_seconds


def measure_training(settings: Settings, seeds: int) -> dict[str, Any]:
    """Seconds to compile, and updates a second over a handful of them."""
    advance, stacked, compile_seconds = compiled_training(settings, seeds)
    updates, started = 0, time.perf_counter()
    while updates < 3 or time.perf_counter() - started < SECONDS_OF_UPDATES:
        stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))
        updates += 1
    per_update = (time.perf_counter() - started) / updates
    return {
        "seeds": seeds,
        "compile_seconds": compile_seconds,
        "updates_timed": updates,
        "steps_per_update": settings.method.steps_per_update,
        "updates_per_second": 1.0 / per_update,
        "steps_per_second": seeds * settings.method.steps_per_update / per_update,
        "program_bytes": program_bytes(advance),
    }


def measure_parts(settings: Settings) -> dict[str, float]:
    """Seconds of one update of one seed, of its rollout where that can be timed, and of the world's steps alone.

    Each is a program of its own; the rest of an update is what it takes beyond its rollout.
    """
    learner, method, world = build_learner(settings), method_of(settings), settings.world
    state = begin_learning(settings, 0)
    stacked = stack_seeds([state])
    advance = advance_seeds(method, learner)
    envs = settings.method.envs
    steps = max(1, settings.method.steps_per_update // envs)
    size = TeamSize(*learner.sizes[0])
    starts = jax.jit(jax.vmap(lambda key: world.reset(key, size)))(jax.random.split(jax.random.key(1), envs))

    @jax.jit
    def simulation(starts: Any, key: PRNGKeyArray) -> Any:
        keys = jax.random.split(key, (envs, steps))
        return jax.vmap(lambda start, keys: jax.lax.scan(partial(random_step, world), start, keys))(starts, keys)

    def one_update() -> None:
        nonlocal stacked
        stacked, _ = jax.block_until_ready(advance(stacked, jnp.asarray(1)))

    timed: dict[str, Callable[[], Any]] = {
        "update": one_update,
        "simulation": lambda: jax.block_until_ready(simulation(starts, jax.random.key(0))),
    }
    if method.collect is not None:
        rollout = jax.jit(partial(method.collect, learner))
        timed["rollout"] = lambda: jax.block_until_ready(rollout(state, jax.random.key(0)))
    for run in timed.values():
        run()  # compiles
    found = {f"{name}_seconds": seconds for name, seconds in best_of_turns(timed).items()}
    if method.collect is not None:
        found["epochs_seconds"] = max(0.0, found["update_seconds"] - found["rollout_seconds"])
    return found
