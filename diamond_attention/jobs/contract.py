"""Commands to be run, and places to run them: what the scheduler of carry_out.py knows of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

Words = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One command of a plan."""

    group: str
    """Steps of one group follow each other; those of different groups do not depend on each other."""
    words: Words
    """What follows `diamond`. It may be repeated: what was cut off goes on, and what is done is not done again."""
    done: bool
    work: int = 0
    """Of a training, the steps it is long; to say how much is left. Of anything else 0."""
    folder: Path | None = None
    """Where its runs are, if it is about runs."""

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it: a speed is of an idle machine."""
        return self.words[0] == "bench"

    @property
    def what(self) -> str:
        """The command without its numbers, to look up how long it took."""
        return f"{self.words[0]} {self.group}"


class Ending(NamedTuple):
    """How a command ended."""

    status: int | None
    """Negative: the signal that killed it. None: nobody knows, since the machine it ran on is gone."""
    said: str
    """What it wrote to standard error, or the end of it."""


class Running(Protocol):
    def ending(self) -> Ending | None:
        """None while it runs, or waits for its turn."""

    def stop(self) -> None:
        """Tells it to save and end; told again, it ends at once."""


class Place(Protocol):
    at_once: int
    """Commands that may be started before the first of them has ended."""

    def start(self, words: Sequence[str]) -> Running: ...

    def close(self) -> None:
        """Nothing will be started any more."""
