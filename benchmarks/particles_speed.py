"""How fast the particle worlds step on this machine's CPU, beside VMAS where it is installed.

    python benchmarks/particles_speed.py [--agents 4] [--envs 64 1024 8192] [--out speed.json]

Simulation alone: random actions are drawn every step, rewards are computed and kept, nothing is learned.
The two simulators take turns and each is given its best turn, so that other work on the machine, which
comes and goes, weighs on both alike. Everything runs on the threads the libraries choose; `--cores 1` pins the
process to one core.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 1024, 8192])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a turn lasts")
    parser.add_argument("--cores", type=int, default=0, help="pin the process to this many cores; 0: all")
    parser.add_argument("--out", default="", help="also write the table as JSON to this file")
    options = parser.parse_args()
    if options.cores:
        # Before JAX and torch are imported: they size their thread pools once.
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.cores]))

    rows = [measure(options.agents, envs, options.turns, options.seconds) for envs in options.envs]
    columns = ["envs", "agents", "spread", "food", "vmas", "spread_over_vmas"]
    print(" | ".join(f"{column:>16}" for column in columns))
    for row in rows:
        print(" | ".join(f"{row[column]:>16.4g}" if row[column] is not None else f"{'–':>16}" for column in columns))
    if options.out:
        with open(options.out, "w") as file:
            json.dump(
                {"unit": "env-steps/s", **versions(), "cores": len(os.sched_getaffinity(0)), "rows": rows}, file
            )


def measure(agents: int, envs: int, turns: int, seconds: float) -> dict[str, float | None]:
    from diamond_attention.worlds.food import Food
    from diamond_attention.worlds.spread import Spread

    runners: dict[str, Callable[[int], None]] = {
        "spread": ours(Spread(max_agents=agents, max_tasks=agents), envs),
        "food": ours(Food(max_agents=agents, max_tasks=agents), envs),
    }
    theirs = vmas_runner(agents, envs)
    if theirs is not None:
        runners["vmas"] = theirs
    steps = {name: enough_steps(run, seconds) for name, run in runners.items()}
    best = dict.fromkeys(runners, float("inf"))
    for _ in range(turns):
        for name, run in runners.items():
            begin = time.perf_counter()
            run(steps[name])
            best[name] = min(best[name], (time.perf_counter() - begin) / steps[name])
    speeds: dict[str, float | None] = {name: envs / best[name] for name in runners}
    vmas_speed = speeds.setdefault("vmas", None)
    ratio = speeds["spread"] / vmas_speed if vmas_speed and speeds["spread"] else None
    return {"envs": envs, "agents": agents, **speeds, "spread_over_vmas": ratio}


CALL = 100
"""Steps in one compiled call: the learner's rollouts are of this order."""


def enough_steps(run: Callable[[int], None], seconds: float) -> int:
    run(CALL)  # compiles
    begin = time.perf_counter()
    run(CALL)
    return CALL * max(1, round(seconds / (time.perf_counter() - begin)))


def ours(world, envs: int) -> Callable[[int], None]:
    import jax

    from diamond_attention.worlds.contract import TeamSize

    def one_team(state, key):
        action_key, step_key = jax.random.split(key)
        actions = jax.random.uniform(action_key, (world.max_agents, 2), minval=-1.0, maxval=1.0)
        transition = world.step(state, actions, step_key)
        return transition.state, transition.reward

    def one_step(state, key):
        return jax.vmap(one_team)(state, jax.random.split(key, envs))

    @jax.jit
    def many_steps(state, key):
        return jax.lax.scan(one_step, state, jax.random.split(key, CALL))

    @jax.jit
    def start(key):
        size = TeamSize(world.max_agents, world.max_tasks)
        return jax.vmap(lambda key: world.reset(key, size))(jax.random.split(key, envs))

    first = start(jax.random.key(0))

    def run(steps: int) -> None:
        state = first
        for call in range(steps // CALL):
            state, rewards = many_steps(state, jax.random.key(call))
        jax.block_until_ready((state, rewards))

    return run


def vmas_runner(agents: int, envs: int) -> Callable[[int], None] | None:
    try:
        import torch
        import vmas.simulator.environment
    except ImportError:
        return None
    # On tensors this small more threads are slower.
    torch.set_num_threads(1)
    environment = vmas.make_env("simple_spread", num_envs=envs, device="cpu", n_agents=agents, seed=0)

    def run(steps: int) -> None:
        environment.reset()
        for _ in range(steps):
            environment.step(environment.get_random_actions())

    return run


def versions() -> dict[str, str]:
    import importlib.metadata

    found = {"python": platform.python_version(), "processor": processor()}
    for package in ("jax", "torch", "vmas"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
