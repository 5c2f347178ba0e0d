"""What a decision without JAX costs: memory, seconds to load, milliseconds for each decision.

    python experiments/deploy_cost.py spread                         one policy, in this process, as a line of JSON
    python experiments/deploy_cost.py spread --peers 63 --sampled
    python experiments/deploy_cost.py --all > results/deploy_cost.csv

--all: every shipped policy and one of every other kind, with the weights that learning begins with; each in three
processes, of which the least of every time counts, so that other work on the machine counts less.

Views are random, with as many tasks as agents; a kind that decides for all at once does so for the whole team.
Loading is the import of numpy and of the package, too. Times are those of the clock; those of the processor (cpu)
have Python's own start besides. Run it on one core (taskset), on a machine that is otherwise idle.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

BEGAN = time.perf_counter()
FIRST_DECISIONS = 20  # not counted
NUMBERS = {"--peers": 8, "--decisions": 500}
MEASURED_AT = ((8, False), (8, True), (63, False))
"""Peers, and whether play is sampled."""
PROCESSES = 3


def resident_mb() -> float:
    """The most that this process ever held."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def measure(name: str, peers: int, decisions: int, sampled: bool) -> dict:
    from diamond_attention.deploy import Agent, View

    agent = Agent.load(name, seed=0)
    load_s, load_cpu_s = time.perf_counter() - BEGAN, time.process_time()
    import numpy as np

    generator, rows, seconds = np.random.default_rng(0), peers + 1, []
    columns = len(agent.agent_features), len(agent.task_features)

    def view() -> View:
        agents, tasks = (generator.normal(size=(rows, each)) for each in columns)
        return View(agents, tasks, ranks=generator.random(rows))

    number = {"number": 0} if agent.asks_number else {}
    for _ in range(FIRST_DECISIONS + decisions):
        seen = [view() for _ in range(rows if agent.together else 1)]
        before = time.perf_counter(), time.process_time()
        if agent.together:
            agent.decide_team(seen, sampled=sampled)
        else:
            agent.decide(seen[0], sampled=sampled, **number)
        seconds.append((time.perf_counter() - before[0], time.process_time() - before[1]))
    lasted = 1000 * np.array(seconds[FIRST_DECISIONS:])
    median, of_processor = np.median(lasted, axis=0)
    return {
        "policy": Path(name).name,
        "kind": agent.kind,
        "peers": peers,
        "play": "sampled" if sampled else "greedy",
        "decisions": decisions,
        "resident_mb": round(resident_mb(), 1),
        "load_s": round(load_s, 3),
        "load_cpu_s": round(load_cpu_s, 3),
        "median_ms": round(float(median), 3),
        "median_cpu_ms": round(float(of_processor), 3),
        "slowest_of_100_ms": round(float(np.quantile(lasted[:, 0], 0.99)), 3),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }


TIMES = ("load_s", "load_cpu_s", "median_ms", "median_cpu_ms", "slowest_of_100_ms")


def least_of(words: list[str]) -> dict:
    """Of several processes the least time, and the most memory."""
    told = []
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
        told.append(json.loads(done.stdout))
    least = {name: min(row[name] for row in told) for name in TIMES}
    return {**told[0], **least, "resident_mb": max(row["resident_mb"] for row in told)}


def write_bundles(folder: Path, agents: int) -> Iterator[Path]:
    """A policy of every kind that none of the shipped ones is of, for Simple Spread, as it is before it learns."""
    import jax

    from diamond_attention.build import build_policy
    from diamond_attention.deploy import Agent
    from diamond_attention.policies.registry import POLICIES
    from diamond_attention.runs.bundle import PolicyAt, bundle_files
    from diamond_attention.runs.bundle_format import shipped_policies
    from diamond_attention.runs.folder import Run
    from diamond_attention.runs.settings import Settings
    from diamond_attention.worlds.spread import Spread

    shipped = {Agent.load(name).kind for name in shipped_policies()}
    world = Spread(max_agents=agents, max_tasks=agents)
    for name, kind in POLICIES.items():
        if name not in shipped:
            settings = kind.settings()
            size = {"agents": str(agents), "tasks": str(agents)}
            run = Run(folder, "", 0, (0,), Settings(world=world, policy=settings, **size))
            policy = build_policy(world, settings, jax.random.key(0))
            (folder / name).mkdir()
            for file, data in bundle_files(run, PolicyAt(policy, 0, 0), {}).items():
                (folder / name / file).write_bytes(data)
            yield folder / name


def measure_all() -> None:
    from diamond_attention.runs.bundle_format import shipped_policies

    first = True
    with tempfile.TemporaryDirectory() as folder:
        shipped = [(name, *how) for name in shipped_policies() for how in MEASURED_AT]
        others = [(str(path), *MEASURED_AT[0]) for path in write_bundles(Path(folder), MEASURED_AT[0][0] + 1)]
        for name, peers, sampled in [*shipped, *others]:
            row = least_of([name, "--peers", str(peers), *["--sampled"] * sampled])
            if first:
                print(*row, sep=",")
            print(*row.values(), sep=",", flush=True)
            first = False


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--all" in words:
        measure_all()
    else:
        chosen = {
            name: int(words[words.index(name) + 1]) if name in words else usual for name, usual in NUMBERS.items()
        }
        print(json.dumps(measure(words[0], chosen["--peers"], chosen["--decisions"], "--sampled" in words)))
