"""Thirty-two robots' processes on two cores for ten minutes: deadlines missed, memory, seconds of the processor.

    python experiments/fleet_32.py results/fleet_32.json
    python experiments/fleet_32.py FILE --steps 100          to try it

On a machine that has nothing else to do.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

CORES, RATE, MINUTES = 2, 10, 10
"""A step with 31 peers costs about 2 ms of a core, the robot's share of the world included, so 32 robots need two
thirds of a core. Ten steps a second is what the policy was trained for."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=MINUTES * 60 * RATE)
    arguments = parser.parse_args()
    words = [
        "fleet",
        "spread-floor",
        "--agents",
        "32",
        "--rate",
        str(RATE),
        "--steps",
        str(arguments.steps),
        "--json",
    ]
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)  # and of all that begins here
    load, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run([sys.executable, "-m", "diamond_attention", *words], check=True, stdout=subprocess.PIPE)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "command": " ".join(["diamond", *words]),
        "cores": len(cores),
        "load average before": round(load, 1),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "seconds of the processor": round(used.ru_utime + used.ru_stime),
        **json.loads(done.stdout),
    }
    arguments.file.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
