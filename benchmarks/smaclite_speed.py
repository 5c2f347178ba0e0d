"""How fast SMAClite's battles run: random legal actions, observations and legal actions computed every step.

    python benchmarks/smaclite_speed.py [--maps 2s3z 3s5z MMM2 27m_vs_30m] [--envs 256] [--out speed.json]

Battles begin anew as they end or reach the map's time limit, so the mixture of early and late situations is that of
training. A few turns are played first to get there. The best of the turns counts: other work on the machine comes
and goes. Constraints of collision avoidance that found no room in a map's budget are counted beside it.
"""

import argparse
import json
import os
import platform
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", nargs="+", default=["2s3z", "3s5z", "MMM2", "27m_vs_30m"])
    parser.add_argument("--envs", type=int, nargs="+", default=[256])
    parser.add_argument("--steps", type=int, default=16, help="steps in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=4, help="turns before measuring")
    parser.add_argument("--out", default="", help="also write the table as JSON to this file")
    options = parser.parse_args()
    rows = []
    print(
        f"{'map':>12} {'envs':>7} {'env-steps/s':>12} {'per CPU second':>14} {'compile s':>10} {'lines dropped':>14}"
    )
    for name in options.maps:
        for envs in options.envs:
            row = measure(name, envs, options.steps, options.turns, options.warm_up)
            rows.append(row)
            print(
                f"{name:>12} {envs:>7} {row['steps_per_second']:>12.0f} {row['steps_per_cpu_second']:>14.0f} "
                f"{row['compile_seconds']:>10.1f} {row['lines_dropped']:>14}",
                flush=True,
            )
    if options.out:
        with open(options.out, "w") as file:
            json.dump({**circumstances(), "rows": rows}, file, indent=1)
            file.write("\n")


def measure(name: str, envs: int, steps: int, turns: int, warm_up: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from diamond_attention.worlds.smaclite import battle, scripted
    from diamond_attention.worlds.smaclite.scenario import scenario_of

    scenario = scenario_of(name)
    first = battle.start(scenario)

    def step(carry, key):
        state, time_in_battle = carry
        action_key, order_key = jax.random.split(key)
        actions = scripted.choose_at_random(action_key, battle.legal_actions(scenario, state))
        outcome = battle.step(scenario, state, actions, battle.draw_turn_orders(scenario, order_key))
        legal = battle.legal_actions(scenario, outcome.state)
        seen = jnp.sum(battle.observations(scenario, outcome.state, legal))
        time_in_battle += 1
        over = outcome.done | (time_in_battle >= scenario.map.time_limit)
        fresh = first._replace(lines_dropped=outcome.state.lines_dropped)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, outcome.state)
        return (state, jnp.where(over, 0, time_in_battle)), (outcome.reward, seen)

    @jax.jit
    def turn(carry, key):
        keys = jax.vmap(lambda k: jax.random.split(k, steps))(jax.random.split(key, envs))
        return jax.vmap(lambda one, ks: jax.lax.scan(step, one, ks))(carry, keys)

    carry = jax.vmap(lambda _: (first, jnp.zeros((), jnp.int32)))(jnp.arange(envs))
    started = time.perf_counter()
    play = turn.lower(carry, jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - started
    for index in range(warm_up):
        carry, _ = jax.block_until_ready(play(carry, jax.random.key(index)))
    best, best_cpu = float("inf"), float("inf")
    for index in range(turns):
        started, started_cpu = time.perf_counter(), time.process_time()
        carry, _ = jax.block_until_ready(play(carry, jax.random.key(warm_up + index)))
        best = min(best, time.perf_counter() - started)
        best_cpu = min(best_cpu, time.process_time() - started_cpu)
    return {
        "map": name,
        "envs": envs,
        "steps_per_second": envs * steps / best,
        "steps_per_cpu_second": envs * steps / best_cpu,
        "compile_seconds": compile_seconds,
        "steps_played": envs * steps * (warm_up + turns),
        "lines_dropped": int(carry[0].lines_dropped.sum()),
    }


def circumstances() -> dict[str, Any]:
    import jax

    from diamond_attention.runs.record import source_commit

    device = jax.devices()[0]
    return {
        "unit": "env-steps/s (one env-step is 8 ticks), random legal actions, observations included",
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "commit": source_commit(),
    }


if __name__ == "__main__":
    main()
