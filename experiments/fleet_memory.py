"""Memory and seconds of the processor of one robot's process with 31 peers, over UDP and in step.

    python experiments/fleet_memory.py > results/fleet_memory.csv

The first row is of its first step, which has loaded everything.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from diamond_attention.robot.command import KEY
from diamond_attention.robot.message import Said, Seal

POLICY, PEERS, STEPS = "spread-floor", range(1, 32), 6000
TOLD_AT = (1, 100, 300, 600, 1000, 2000, 3000, 4000, 5000, 6000)
SECRET = bytes(16)


def used_by(process: int) -> tuple[int, float]:
    """Kilobytes that it holds, and seconds of the processor since it began."""
    status = Path(f"/proc/{process}/status").read_text()
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(status.split("VmRSS:")[1].split()[0]), sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    network = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    network.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        own = other.getsockname()
    words = [POLICY, "--number", "0", "--in-step", "--listen", f"127.0.0.1:{own[1]}"]
    words += ["--peers", f"127.0.0.1:{network.getsockname()[1]}"]
    robot = subprocess.Popen(
        [sys.executable, "-m", "diamond_attention", "agent", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, KEY: SECRET.hex(), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert robot.stdin is not None
    assert robot.stdout is not None
    seal, sensed = Seal(SECRET, "fleet"), {"own": [0.0] * 4, "tasks": [[0.1 * i, -0.1 * i] for i in range(32)]}
    robot.stdout.readline()
    print("step,resident_kb,cpu_s")
    for step in range(STEPS):
        print(json.dumps(sensed), file=robot.stdin, flush=True)
        robot.stdout.readline()
        network.recv(1000)
        for peer in PEERS:
            said = Said(peer, 1, step, (peer + step) % 32 / 32, (0.1 * peer, 0.01 * step, 0.0, 0.0))
            network.sendto(seal.write(said), own)
        print(json.dumps({"heard": [[peer, step] for peer in PEERS]}), file=robot.stdin, flush=True)
        robot.stdout.readline()
        if step + 1 in TOLD_AT:
            print(step + 1, *used_by(robot.pid), sep=",", flush=True)
    robot.stdin.close()
    robot.wait()


if __name__ == "__main__":
    main()
