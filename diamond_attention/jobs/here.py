"""Commands in processes of this machine."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from diamond_attention.extensions import loaded_words
from diamond_attention.jobs.contract import Ending

QUIET = ("train", "resume", "evaluate")
"""Commands that would say how far they are; side by side nobody could read it."""
LONGEST_SAID = 4000
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
SHARE_OF_MEMORY = 0.9
"""Of a GPU's memory that JAX takes for itself in advance, all commands that share it together."""


class Process:
    """A command in a process of its own: a device is given back, and a crash is one command's."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None):
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            words_of(words),
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            cwd=folder,
            start_new_session=True,  # Ctrl-C is told to it by whoever started it, once
        )

    def ending(self) -> Ending | None:
        if self._process.poll() is None:
            return None
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - LONGEST_SAID))
        return Ending(self._process.returncode, self._said.read().decode(errors="replace"))

    def stop(self) -> None:
        self._process.terminate()


def words_of(words: Sequence[str]) -> list[str]:
    """The command line of a `diamond` command that ends with this process."""
    quiet = ["--quiet"] if words[0] in QUIET and "--quiet" not in words else []
    child = [sys.executable, "-m", "diamond_attention.jobs.child", str(os.getpid())]
    return [*child, *words, *quiet]


class Here:
    """This machine."""

    def __init__(self, jobs: int = 1):
        self.at_once = jobs
        # JAX takes three quarters of a GPU at once, so a second command would find no room.
        self._environment = {} if jobs == 1 or MEMORY in os.environ else {MEMORY: f"{SHARE_OF_MEMORY / jobs:.3f}"}

    def start(self, words: Sequence[str]) -> Process:
        return Process([*words, *loaded_words()], self._environment)

    def close(self) -> None:
        pass
