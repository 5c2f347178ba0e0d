"""What a decision without JAX costs: memory, seconds to load, milliseconds for each decision.

    python experiments/deploy_cost.py spread                         one policy, in this process, as a line of JSON
    python experiments/deploy_cost.py spread --peers 63 --sampled
    python experiments/deploy_cost.py --all > results/deploy_cost.csv    every shipped policy, each in its own process

Views are random, with as many tasks as agents. Loading is the import of numpy and of the package, too; in seconds of
the processor, Python's own start as well. Run it on one core (taskset), on a machine that is otherwise idle.
"""

import json
import subprocess
import sys
import time

BEGAN = time.perf_counter()
FIRST_DECISIONS = 20  # not counted
NUMBERS = {"--peers": 8, "--decisions": 2000}
MEASURED_AT = ((8, False), (8, True), (63, False))
"""Peers, and whether play is sampled."""


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
    for _ in range(FIRST_DECISIONS + decisions):
        agents, tasks = (generator.normal(size=(rows, each)) for each in columns)
        view = View(agents, tasks, ranks=generator.random(rows))
        before = time.perf_counter()
        agent.decide(view, sampled=sampled)
        seconds.append(time.perf_counter() - before)
    lasted = 1000 * np.array(seconds[FIRST_DECISIONS:])
    return {
        "policy": name,
        "peers": peers,
        "play": "sampled" if sampled else "greedy",
        "decisions": decisions,
        "resident_mb": round(resident_mb(), 1),
        "load_s": round(load_s, 3),
        "load_cpu_s": round(load_cpu_s, 3),
        "median_ms": round(float(np.median(lasted)), 3),
        "slowest_of_100_ms": round(float(np.quantile(lasted, 0.99)), 3),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }


def measure_all() -> None:
    from diamond_attention.runs.bundle_format import shipped_policies

    for name in shipped_policies():
        for peers, sampled in MEASURED_AT:
            words = [name, "--peers", str(peers), *["--sampled"] * sampled]
            done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
            row = json.loads(done.stdout)
            if (name, peers, sampled) == (shipped_policies()[0], *MEASURED_AT[0]):
                print(*row, sep=",")
            print(*row.values(), sep=",", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--all" in words:
        measure_all()
    else:
        chosen = {
            name: int(words[words.index(name) + 1]) if name in words else usual for name, usual in NUMBERS.items()
        }
        print(json.dumps(measure(words[0], chosen["--peers"], chosen["--decisions"], "--sampled" in words)))
