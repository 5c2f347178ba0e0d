"""How long one agent takes to decide, on one CPU core: what a robot would have to wait for.

`python -m diamond_attention.bench.decisions [FILE.py…]` is a process of its own because JAX sizes its thread pool
once, and here the pool must be one core: settings as JSON on stdin, measurements on stdout. The files register
what the settings name and the package does not have.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from diamond_attention.bench.simulation import with_agents
from diamond_attention.build import build_policy
from diamond_attention.extensions import LOADED, load_extension
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.settings import Settings, from_json, to_json

TEAM_SIZES = (4, 16, 64)
DECISIONS = 200


def measure_decisions(settings: Settings) -> list[dict[str, Any]]:
    """`decisions_on_this_core` in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "diamond_attention.bench.decisions", *map(str, LOADED)],
        input=json.dumps(to_json(settings)),
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"timing decisions failed:\n{answer.stderr}")
    return json.loads(answer.stdout.splitlines()[-1])


def decisions_on_this_core(settings: Settings, team_sizes: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Milliseconds from one agent's view to its greedy action, for teams of several sizes.

    Of a policy that decides for a team together, from all views to all actions. One that plays one size only is built
    anew for each.
    """
    results = []
    for agents in team_sizes or TEAM_SIZES:
        world, size = with_agents(settings, agents)
        policy = jax.jit(lambda key, world=world: build_policy(world, settings.policy, key))(jax.random.key(0))
        state = world.reset(jax.random.key(1), size)
        views = world.views(state, draw_ranks(jax.random.key(2), world.max_agents))
        own = jax.tree.map(lambda x: x[:1], views) if policy.decides_alone else views
        memory = policy.first_memory(own.ranks.shape[0])
        decide = jax.jit(
            lambda policy, views, memory=memory: policy.act(views, memory, jax.random.key(0), True).actions
        )
        jax.block_until_ready(decide(policy, own))
        times, used = [], []
        for _ in range(DECISIONS):
            started, processor = time.perf_counter(), time.process_time()
            jax.block_until_ready(decide(policy, own))
            times.append(1e3 * (time.perf_counter() - started))
            used.append(1e3 * (time.process_time() - processor))
        times.sort()
        results.append(
            {
                "agents": int(size.agents),
                "tasks": int(size.tasks),
                "median_milliseconds": times[len(times) // 2],
                # The same on an idle machine; on a busy one the clock also counts what others do.
                "median_cpu_milliseconds": sorted(used)[len(used) // 2],
                "percentile_95_milliseconds": times[int(0.95 * len(times))],
            }
        )
        if (size.agents, size.tasks) != (agents, agents):
            break  # this world has only its own sizes
    return results


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for file in sys.argv[1:]:
        load_extension(Path(file))
    print(json.dumps(decisions_on_this_core(from_json(json.load(sys.stdin)))))
