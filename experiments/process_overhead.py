"""How long processes of one run wait for each other, here: `python experiments/process_overhead.py`.

Processes on this machine, as `--coordinator` starts them, bring each other three numbers again and again, which is
what a training does between two calls of the device (runs/processes.py, `tell` and `hear`). Nothing is computed
meanwhile.
Writes results/process_overhead.csv.
"""

import csv
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
NUMBERS = (2, 4)
MEETINGS = 400
FIRST = 20
"""Left out: connections are made in them."""


def meet(port: int, processes: int, process: int) -> None:
    """One of the processes; the first prints what each meeting took, in seconds."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    from diamond_attention.runs.processes import hear, leads, tell

    took = []
    for number in range(FIRST + MEETINGS):
        begun = time.perf_counter()
        _ = tell(1, number) if leads() else hear(0)
        took.append(time.perf_counter() - begun)
    if leads():
        print(json.dumps(took[FIRST:]))


def measured(processes: int) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = [
        subprocess.Popen(
            [sys.executable, __file__, str(port), str(processes), str(process)],
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


def main() -> None:
    from diamond_attention.runs.environment import describe_environment

    ran_on, rows = describe_environment(), []
    for processes in NUMBERS:
        print(f"{processes} processes, {MEETINGS} meetings: some seconds", flush=True)
        busy = os.getloadavg()[0]
        took = sorted(1000 * seconds for seconds in measured(processes))
        rows.append(
            {
                "processes": processes,
                "meetings": MEETINGS,
                "median_ms": round(statistics.median(took), 3),
                "quickest_ms": round(took[0], 3),
                "slowest_tenth_from_ms": round(took[9 * MEETINGS // 10], 3),
                "cores": ran_on["cpu_cores"],
                "load_before": round(busy, 2),
                "jax": ran_on["versions"]["jax"],
                "commit": ran_on["commit"],
            }
        )
        print(rows[-1], flush=True)
    with (RESULTS / "process_overhead.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        meet(*map(int, sys.argv[1:]))
    else:
        main()
