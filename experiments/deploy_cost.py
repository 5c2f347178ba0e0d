"""What a decision without JAX costs: memory, seconds to load, milliseconds for each decision; one JSON line a policy.

    python experiments/deploy_cost.py spread                        one policy, in this process
    python experiments/deploy_cost.py --all                         every shipped policy, each in a process of its own
    python experiments/deploy_cost.py spread --peers 63 --sampled

Views are random, with as many tasks as agents. Seconds to load are those of importing numpy and the package too.
"""

import json
import subprocess
import sys
import time

BEGAN = time.perf_counter()
DECISIONS_BEFORE = 20


def resident_mb() -> float:
    """The most that this process ever held."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def measure(name: str, peers: int, decisions: int, sampled: bool) -> dict:
    from diamond_attention.deploy import Agent, View

    agent = Agent.load(name, seed=0)
    load_s = time.perf_counter() - BEGAN
    import numpy as np

    generator, rows, seconds = np.random.default_rng(0), peers + 1, []
    columns = len(agent.agent_features), len(agent.task_features)
    for _ in range(DECISIONS_BEFORE + decisions):
        agents, tasks = (generator.normal(size=(rows, each)) for each in columns)
        view = View(agents, tasks, ranks=generator.random(rows))
        before = time.perf_counter()
        agent.decide(view, sampled=sampled)
        seconds.append(time.perf_counter() - before)
    lasted = 1000 * np.array(seconds[DECISIONS_BEFORE:])
    return {
        **{"policy": name, "peers": peers, "sampled": sampled, "decisions": decisions},
        **{"resident_mb": round(resident_mb(), 1), "load_s": round(load_s, 3)},
        **{
            "median_ms": round(float(np.median(lasted)), 3),
            "slowest_1_in_100_ms": round(float(np.quantile(lasted, 0.99)), 3),
        },
    }


def main() -> None:
    words = sys.argv[1:]
    if "--all" in words:
        from diamond_attention.runs.bundle_format import shipped_policies

        rest = [word for word in words if word != "--all"]
        for name in shipped_policies():
            subprocess.run([sys.executable, __file__, name, *rest], check=True)
        return
    number = {name: int(words[words.index(name) + 1]) if name in words else usual for name, usual in NUMBERS.items()}
    print(json.dumps(measure(words[0], number["--peers"], number["--decisions"], "--sampled" in words)))


NUMBERS = {"--peers": 8, "--decisions": 2000}

if __name__ == "__main__":
    main()
