"""What a decision by commitments takes on one core, by how many there are: in JAX, and without it.

    taskset -c 0 python experiments/commitments_cost.py > results/commitments_cost.csv

The shipped policy in Dispatch with as many depots as vehicles, greedy; the vehicle has the lowest number, so that it
replays everybody's turn. Beside it, in JAX, the paper's policy of the preset `dispatch` with fresh weights.
Milliseconds are those of the clock, and with `cpu` those of the processor, to which other programs on the machine add
little; `load` is how many programs wanted a core of the machine when a row began.
"""

import csv
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.build import build_policy
from diamond_attention.deploy import Agent, View
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.presets import PRESETS
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import Dispatch

SHIPPED = "dispatch-commitments"
SIZES = ((4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (64, 96), (128, 128))
FIRST_DECISIONS, DECISIONS = 5, 100
STATES = 10
"""Played in turn, so that no one arrangement of jobs decides."""


def lowest_views(agents: int, tasks: int) -> list[Any]:
    """What the vehicle sees that has the lowest number, in several states."""
    world = Dispatch(max_agents=agents, max_tasks=tasks, depots=agents)

    @jax.jit
    def seen(key: jax.Array) -> Any:
        ranks = jnp.linspace(0.0, 0.99, agents, dtype=jnp.float32)  # the first has the lowest
        return jax.tree.map(lambda x: x[0], world.views(world.reset(key, TeamSize(agents, tasks)), ranks))

    return [jax.device_get(seen(key)) for key in jax.random.split(jax.random.key(0), STATES)]


def in_jax(policy: Any) -> Callable[[Any], Any]:
    """One agent's greedy action; views and weights are arguments."""

    @jax.jit
    def act(policy: Any, view: Any) -> Any:
        views = jax.tree.map(lambda x: x[None], view)
        return policy.act(views, policy.first_memory(1), jax.random.key(0), True).actions

    return lambda view: jax.block_until_ready(act(policy, view))


def timed(decide: Callable[[Any], Any], views: list[Any]) -> dict[str, float]:
    clock, processor = [], []
    for number in range(FIRST_DECISIONS + DECISIONS):
        view = views[number % len(views)]
        began, used = time.perf_counter(), time.process_time()
        decide(view)
        clock.append(1e3 * (time.perf_counter() - began))
        processor.append(1e3 * (time.process_time() - used))
    clock, processor = clock[FIRST_DECISIONS:], processor[FIRST_DECISIONS:]
    return {
        "fastest_milliseconds": round(min(clock), 3),
        "median_milliseconds": round(float(np.median(clock)), 3),
        "median_cpu_milliseconds": round(float(np.median(processor)), 3),
    }


def rows() -> Iterator[dict[str, Any]]:
    environment = describe_environment()
    about = {"commit": environment["commit"], "python": environment["python"], "numpy": np.__version__}
    about["jax"] = jax.__version__
    shipped, agent = load_policy(SHIPPED)[0], Agent.load(SHIPPED)
    for agents, tasks in SIZES:
        world = Dispatch(max_agents=agents, max_tasks=tasks, depots=agents)
        paper = build_policy(world, PRESETS["dispatch"][1].policy, jax.random.key(0))
        views = lowest_views(agents, tasks)
        plain = [View(*view[:5], legal_actions=view.legal_actions) for view in views]
        on_device = [jax.device_put(view) for view in views]
        for name, runtime, decide, seen in (
            (SHIPPED, "jax", in_jax(shipped), on_device),
            (SHIPPED, "numpy", agent.decide, plain),
            ("dispatch", "jax", in_jax(paper), on_device),
        ):
            load = round(os.getloadavg()[0], 1)
            yield {
                **{"policy": name, "runtime": runtime, "agents": agents, "tasks": tasks, "decisions": DECISIONS},
                **timed(decide, seen),
                **{"load": load, "cores": os.cpu_count()},
                **about,
            }


if __name__ == "__main__":
    writer = None
    for row in rows():
        if writer is None:
            writer = csv.DictWriter(sys.stdout, row)
            writer.writeheader()
        writer.writerow(row)
        sys.stdout.flush()
