"""How a long piece of work tells a person how far it is: a bar, plain lines, or nothing."""

import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0
COMPILED = ("steps", "episodes")
"""Units of work that a device does, so that the first of it waits for the compiler."""


class Progress(Protocol):
    def begin(self, what: str, total: int, done: int, unit: str = "steps") -> None: ...

    def advance(self, done: int, shown: dict[str, float]) -> None: ...

    def say(self, sentence: str) -> None: ...

    def end(self, sentence: str) -> None: ...


class Quiet:
    """Says only what must not be missed: skipped checkpoints and failed seeds, on standard error."""

    def begin(self, what: str, total: int, done: int, unit: str = "steps") -> None:
        pass

    def advance(self, done: int, shown: dict[str, float]) -> None:
        pass

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    def end(self, sentence: str) -> None:
        pass


class _Rate:
    """Steps a second since the first advance, so that compiling does not count."""

    def __init__(self, done: int):
        self.first: tuple[float, int] | None = None
        self.done = done

    def update(self, done: int) -> float | None:
        self.done = done
        if self.first is None:
            self.first = (time.perf_counter(), done)
            return None
        seconds, steps = time.perf_counter() - self.first[0], done - self.first[1]
        return steps / seconds if steps else None


class Lines:
    """One line every few seconds, for logs and pipes."""

    def begin(self, what: str, total: int, done: int, unit: str = "steps") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.rate, self.last = _Rate(done), time.perf_counter()
        print(f"{what}: {total:,} {unit}{'; compiling first' if unit in COMPILED else ''}", flush=True)

    def advance(self, done: int, shown: dict[str, float]) -> None:
        rate = self.rate.update(done)
        if time.perf_counter() - self.last < SECONDS_BETWEEN_LINES or rate is None:
            return
        self.last = time.perf_counter()
        left = (self.total - done) / rate
        how_far = f"{done:,} of {self.total:,} {self.unit}, {_described(shown)}{rate:,.0f} {self.unit}/s"
        print(f"{self.what}: {how_far}, {left:.0f} s left", flush=True)

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    def end(self, sentence: str) -> None:
        print(sentence, flush=True)


class Terminal:
    """A live bar with the success rate, the speed and the time left."""

    def __init__(self) -> None:
        self.bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )

    def begin(self, what: str, total: int, done: int, unit: str = "steps") -> None:
        self.rate, self.unit = _Rate(done), unit
        self.bar.start()
        self.task: TaskID = self.bar.add_task(
            what, total=total, completed=done, shown="compiling" if unit in COMPILED else ""
        )

    def advance(self, done: int, shown: dict[str, float]) -> None:
        rate = self.rate.update(done)
        speed = f"{rate:,.0f} {self.unit}/s" if rate else ""
        self.bar.update(self.task, completed=done, shown=_described(shown) + speed)

    def say(self, sentence: str) -> None:
        self.bar.console.print(sentence, markup=False, highlight=False)

    def end(self, sentence: str) -> None:
        self.bar.stop()
        self.bar.remove_task(self.task)
        print(sentence, flush=True)


def _described(shown: dict[str, float]) -> str:
    return "".join(f"{name} {value:.3f}, " for name, value in shown.items())


def choose_progress(quiet: bool) -> Progress:
    """A bar on a terminal, lines otherwise, nothing if asked."""
    if quiet:
        return Quiet()
    return Terminal() if sys.stderr.isatty() else Lines()
