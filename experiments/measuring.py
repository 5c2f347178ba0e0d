"""What scripts that measure on a lent machine share: rows on disk at once, one user of the GPU at a time, an end."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diamond_attention.runs.environment import describe_environment

BEGAN = time.perf_counter()


class Lines:
    """Rows of JSON, printed and appended to a file, each on disk before the next: a time limit loses none."""

    def __init__(self, file: str | None, **of_every_row: Any):
        self.file = None if file is None else Path(file)
        self.of_every_row = of_every_row

    def environment(self) -> None:
        """The first row of a process: device, commit, versions, command. Every row names its process."""
        # Files elsewhere by their names: where this machine keeps them is nobody's business.
        words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
        command = ["python", f"experiments/{Path(sys.argv[0]).name}", *words]
        self.say("environment", **describe_environment() | {"command": command})

    def say(self, what: str, **found: Any) -> None:
        row = {"what": what, **self.of_every_row, **found}
        line = json.dumps(row | {"process": os.getpid(), "at_s": round(time.perf_counter() - BEGAN, 1)})
        print(line, flush=True)
        if self.file is not None:
            # Appended in one write: several processes share the file.
            with self.file.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For what is timed: no other process of those that write the same file times or compiles meanwhile."""
        with self._holding(fcntl.LOCK_EX):
            yield

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """For what is compiled: as many at once as like, while nothing is timed, which busy cores would disturb."""
        with self._holding(fcntl.LOCK_SH):
            yield

    @contextmanager
    def _holding(self, kind: int) -> Iterator[None]:
        if self.file is None:
            yield
            return
        with self.file.open("a") as file:
            fcntl.flock(file, kind)
            yield


def side_by_side(
    lines: Lines, commands: Mapping[str, list[str]], workers: int, until: float, **variables: str
) -> dict[str, int | None]:
    """Runs Python scripts, so many at once, in this order; at `until` (of time.monotonic) the rest is ended.

    A process for each: one that fails or never ends costs the others nothing. Their statuses; None was never begun.
    """
    # They share a GPU, so none may take all its memory at once.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **variables}
    waiting, running = dict(commands), dict[str, subprocess.Popen]()
    statuses: dict[str, int | None] = dict.fromkeys(commands)
    while waiting or running:
        late = time.monotonic() >= until
        for name, process in list(running.items()):
            if late and process.poll() is None:
                process.kill()
                process.wait()
                lines.say("cut off", of=name)
            if process.poll() is not None:
                statuses[name] = running.pop(name).returncode
        if late:
            break
        while waiting and len(running) < workers:
            name = next(iter(waiting))
            running[name] = subprocess.Popen([sys.executable, *waiting.pop(name)], env=environment)
        time.sleep(0.1)
    lines.say("ended", statuses=statuses)
    return statuses
