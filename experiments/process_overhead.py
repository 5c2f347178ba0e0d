"""What several processes of one run cost, here: `python experiments/process_overhead.py`.

Processes on this machine, as `--coordinator` starts them. First they only meet: they bring each other three numbers
again and again, which is what a training does between two calls of the device (runs/processes.py, `tell` and `hear`).
Then they train four small seeds on XOR, spread over 1, 2 and 4 processes, and fetch checkpoints as often. All share
the machine's cores, so the work is the same and what is longer is overhead.
Writes results/process_overhead.csv and results/process_training.csv.
"""

import csv
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
MEETINGS = 400
FIRST = 20
"""Left out: connections are made in them."""
SEEDS = 4
UPDATES_A_CALL = 20
CALLS = 40
"""Of the device; a checkpoint is fetched after each."""
TRAINED = "--policy.width 16 --ppo.envs 64 --ppo.steps 2 --ppo.batch 128 --total-steps 1280000"


def join(port: int, processes: int, process: int) -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def meet() -> dict[str, list[float]]:
    from diamond_attention.runs.processes import Order, hear, leads, tell

    def once() -> object:
        return tell(Order.ADVANCE) if leads() else hear(0)

    return {"meeting": [timed(once) for _ in range(FIRST + MEETINGS)][FIRST:]}


def learn() -> dict[str, list[float]]:
    from diamond_attention.command_words import parse_train
    from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
    from diamond_attention.runs.learners import Learners
    from diamond_attention.runs.processes import choose_devices

    settings = parse_train("xor-demo", TRAINED.split()).settings
    states = [begin_learning(settings, seed) for seed in range(SEEDS)]
    learners = Learners(method_of(settings), build_learner(settings), states, choose_devices(None))
    learners.advance_here(1)  # and compile
    took: dict[str, list[float]] = {"call": [], "fetch": []}
    for _ in range(CALLS):
        took["call"].append(timed(lambda: learners.advance_here(UPDATES_A_CALL)))
        took["fetch"].append(timed(learners.fetch_here))
    return took


def measured(what: str, processes: int) -> dict[str, list[float]]:
    """Milliseconds, as the first process had them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = [
        subprocess.Popen(
            [sys.executable, __file__, what, str(port), str(processes), str(process)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for process in range(processes)
    ]
    (first, *_), statuses = [process.communicate()[0] for process in group], [process.returncode for process in group]
    if any(statuses):
        sys.exit(f"a process of {processes} ended with status {max(statuses, key=abs)}")
    # Gloo says on standard output who is connected, above the numbers.
    return json.loads(first.splitlines()[-1])


def described(took: list[float]) -> dict[str, object]:
    ordered = sorted(took)
    return {
        "median_ms": round(statistics.median(ordered), 3),
        "quickest_ms": round(ordered[0], 3),
        "slowest_tenth_from_ms": round(ordered[9 * len(ordered) // 10], 3),
    }


def main() -> None:
    from diamond_attention.runs.environment import describe_environment

    ran_on = describe_environment()

    def row(begins: dict[str, object], took: list[float], busy: float) -> dict[str, object]:
        ends = {"cores": ran_on["cpu_cores"], "load_before": round(busy, 2), "jax": ran_on["versions"]["jax"]}
        made = {**begins, **described(took), **ends, "commit": ran_on["commit"]}
        print(made, flush=True)
        return made

    meetings, trainings = [], []
    for processes in (2, 4):
        busy = os.getloadavg()[0]
        took = measured("meet", processes)["meeting"]
        meetings.append(row({"processes": processes, "meetings": MEETINGS}, took, busy))
    for processes in (1, 2, 4):
        busy = os.getloadavg()[0]
        for what, took in measured("learn", processes).items():
            begins = {"processes": processes, "seeds": SEEDS, "what": what, "number": CALLS}
            trainings.append(row(begins, took, busy))
    for name, rows in (("process_overhead", meetings), ("process_training", trainings)):
        with (RESULTS / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        what, port, processes, process = sys.argv[1], *map(int, sys.argv[2:])
        join(port, processes, process)
        print(json.dumps({"meet": meet, "learn": learn}[what]()))
    else:
        main()
