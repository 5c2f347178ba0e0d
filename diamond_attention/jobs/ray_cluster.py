"""Commands on a Ray cluster (extra `ray`), which itself runs on SLURM, Kubernetes, clouds or one machine.

Ray finds a machine with room for each command, and its GPU. All machines must see the same folder, and have this
package installed. Which cluster is Ray's own affair: the one in RAY_ADDRESS, or the one that runs on this machine.
"""

import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.extensions import loaded_words
from diamond_attention.jobs.contract import Ending
from diamond_attention.jobs.here import MEMORY, SHARE_OF_MEMORY, Process
from diamond_attention.runs.files import is_there, make_folders, read_file, remove, remove_if_empty, write_file

SECONDS_TO_ANSWER = 20
LOOK_EVERY = 0.1
"""Seconds between two looks at a command, on the machine where it runs."""
AT_ONCE = 10_000
"""As many as there are: Ray lets them wait for room."""
PASSED_ON = ("JAX_", "XLA_", "WANDB_")
"""Variables that count on the machine where the command was typed; Ray's machines know only their own."""
SECRET = ("KEY", "TOKEN")

PROBE = "import ray; ray.init(address='auto', logging_level='CRITICAL', log_to_driver=False)"


def check_ray() -> None:
    """Raises UserError unless a cluster answers. Asked in another process: Ray ends the one that asks in vain."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UserError(
            "--on is ray, which is not installed; install the extra with `pip install 'diamond-attention[ray]'`."
        ) from None
    address = os.environ.get("RAY_ADDRESS")
    where = f"at {address} (RAY_ADDRESS)" if address else "on this machine, and RAY_ADDRESS names no other"
    refusal = UserError(f"--on is ray, but no Ray cluster answers {where}; start one with `ray start --head`.")
    try:
        subprocess.run([sys.executable, "-c", PROBE], timeout=SECONDS_TO_ANSWER, check=True, capture_output=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise refusal from None


class RayCluster:
    """Whatever Ray calls its cluster."""

    at_once = AT_ONCE

    def __init__(self, out: Path, cpus: float, gpus: float | None, jobs: int | None):
        """A command takes so many CPUs and GPUs; gpus None: one GPU, if the cluster has any."""
        import ray

        ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
        self.at_once = jobs or AT_ONCE
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        # Ray would do a lost task again by itself; there is one who decides that, and it is not Ray.
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_there)
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(PASSED_ON) and not name.endswith(SECRET)
        }
        if 0 < gpus < 1:
            self._environment.setdefault(MEMORY, f"{SHARE_OF_MEMORY * gpus:.3f}")
        # Whoever sees this file sees the folder that runs are written to, and not one of the same name.
        self._made = make_folders(out)
        self._mark, self._token = out.resolve() / ".seen_by_the_cluster", secrets.token_hex(8)
        write_file(self._mark, self._token.encode())

    def start(self, words: Sequence[str]) -> "Task":
        mark = (str(self._mark), self._token)
        return Task(self._task.remote([*words, *loaded_words()], self._environment, str(Path.cwd()), *mark))

    def close(self) -> None:
        import ray

        ray.shutdown()
        remove(self._mark)
        for folder in self._made:
            remove_if_empty(folder)


class Task:
    """A command somewhere in the cluster."""

    def __init__(self, reference: Any):
        self._reference = reference

    def ending(self) -> Ending | None:
        import ray
        from ray import exceptions

        try:
            ready, _ = ray.wait([self._reference], timeout=0)
            return Ending(*ray.get(self._reference)) if ready else None
        except exceptions.TaskCancelledError:
            return Ending(None, "")
        except (exceptions.RayTaskError, exceptions.RaySystemError) as error:
            return Ending(2, f"a machine of the cluster could not run it: {str(error).strip().splitlines()[-1]}")
        except exceptions.RayError:  # the process, its machine, or its memory
            return Ending(None, "")

    def stop(self) -> None:
        import ray

        ray.cancel(self._reference, force=False)


def run_there(words: list[str], environment: Mapping[str, str], folder: str, mark: str, token: str) -> tuple:
    """On a machine of the cluster: the status of a command, and what it said."""
    if not is_there(Path(mark)) or read_file(Path(mark), len(token)) != token.encode():
        there = f"{platform.node()} does not see {Path(mark).parent}"
        return 2, f"{there}; name an --out on a file system that all machines of the cluster share."
    process = Process(words, environment, Path(folder))
    ending = None
    while ending is None:
        try:
            time.sleep(LOOK_EVERY)  # and does not wait for the process: what `stop` becomes would not be heard
            ending = process.ending()
        except KeyboardInterrupt:
            process.stop()
    return tuple(ending)
