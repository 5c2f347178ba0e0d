"""Carries out the commands of a plan, side by side, in some place: here, or on a cluster."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from diamond_attention.errors import UserError, printable
from diamond_attention.jobs.contract import Ending, Place, Running, Step
from diamond_attention.runs.folder import has_ended, runs_there
from diamond_attention.runs.metrics import steps_so_far
from diamond_attention.runs.progress import Progress
from diamond_attention.runs.signals import Interrupted

LOOK_EVERY = 0.05
"""Seconds between two looks at the commands that are running."""
MEASURE_EVERY = 2.0
"""Seconds between two looks at how far they are."""
REFUSED = 2
"""The status of a command that would be refused again."""

Note = Callable[[Step, float], None]
"""Told of a step that did what it was for, and its seconds."""


class Broken(NamedTuple):
    """A step that was given up."""

    step: Step
    sentence: str


@dataclass
class Lane:
    """The steps of one group, one after the other."""

    steps: list[Step]
    running: Running | None = None
    began: float = 0.0
    tries: int = 1
    told: int = 0
    """How often its command was told to end."""

    def fits_beside(self, others: Sequence["Lane"], at_once: int) -> bool:
        alone = any(step.alone for lane in (self, *others) for step in lane.steps)
        return not others or (len(others) < at_once and not alone)


def carry_out(steps: Sequence[Step], place: Place, note: Note, progress: Progress, retries: int = 0) -> list[Broken]:
    """Runs every command that is not done, and gives back those that were given up; the others do not mind.

    A command whose process or machine was lost is started again, `retries` times. Ctrl-C and SIGTERM are told to
    every command, each is left the time to save, and Interrupted is raised then.
    """
    waiting = [step for step in steps if not step.done]
    lanes = [
        Lane([step for step in waiting if step.group == name]) for name in dict.fromkeys(s.group for s in waiting)
    ]
    if not lanes:
        return []
    going: list[Lane] = []
    broken: list[Broken] = []
    tally = Tally(waiting, progress)
    with _signals_noted() as noted:
        while going or (lanes and not noted):
            while lanes and not noted and lanes[0].fits_beside(going, place.at_once):
                going.append(lanes.pop(0))
            for lane in list(going):
                if lane.running is None and lane.steps and not noted:
                    tally.starts(lane.steps[0], lane.tries)
                    lane.running, lane.began = place.start(lane.steps[0].words), time.monotonic()
                elif lane.running is None:
                    going.remove(lane)
                elif (ending := lane.running.ending()) is not None:
                    lane.running = None
                    fault = _fault(lane, ending, note, tally)
                    if fault is None:
                        lane.steps.pop(0)
                        lane.tries = 1
                    elif noted:
                        lane.steps.clear()
                    elif lane.tries <= retries and ending.status != REFUSED:
                        tally.say(f"`diamond {' '.join(lane.steps[0].words)}` {fault}; it is started again.")
                        lane.tries += 1
                    else:
                        broken.append(Broken(lane.steps[0], fault))
                        tally.gives_up(lane.steps, fault)
                        lane.steps.clear()
                elif len(noted) > lane.told:
                    lane.running.stop()
                    lane.told = len(noted)
            tally.look(going)
            time.sleep(LOOK_EVERY)
    tally.ends()
    if noted:
        raise Interrupted(noted[0])
    return broken


def _fault(lane: Lane, ending: Ending, note: Note, tally: "Tally") -> str | None:
    """What was wrong with a lane's command that has ended, if something was."""
    step, seconds = lane.steps[0], time.monotonic() - lane.began
    lines = [printable(line).removeprefix("diamond: ") for line in ending.said.splitlines() if line.strip()]
    if ending.status == REFUSED:
        return f"was refused: {lines[-1] if lines else 'it did not say why'}"
    for line in lines:
        tally.say(f"{step.group}: {line}")
    if came_to_its_end(step, ending.status):
        note(step, seconds)
        tally.finishes(step, seconds)
        return None
    if ending.status is None:
        return "was lost with the machine or the process that ran it"
    return f"was killed by signal {-ending.status}" if ending.status < 0 else f"ended with status {ending.status}"


def came_to_its_end(step: Step, status: int | None) -> bool:
    """Whether a command that ended with this status did what it was for.

    A seed that failed, with status 1, is a result: it stands in the table as failed. A crash leaves none.
    """
    if status not in (0, 1):
        return False
    if step.folder is None:
        return status == 0
    try:
        runs = runs_there(step.folder)
    except UserError:  # what is there cannot be read, as after a disk was full
        return False
    if step.work:
        return bool(runs) and all(map(has_ended, runs))
    return status == 0 or any(run.failure is not None for run in runs)


def complain(broken: Sequence[Broken]) -> None:
    """Raises UserError if something was given up."""
    if broken:
        others = f" ({len(broken) - 1} more likewise)" if len(broken) > 1 else ""
        raise UserError(
            f"`diamond {' '.join(broken[0].step.words)}` {broken[0].sentence.rstrip('.')}{others}; what is done is "
            "kept, and the same command goes on from there."
        )


class Tally:
    """Says how far all of it is, in steps of training where there is any."""

    def __init__(self, waiting: Sequence[Step], progress: Progress):
        self._number, self._progress = len(waiting), progress
        self._work = {step: step.work for step in waiting}
        self._worked = {step: _worked(step) for step in waiting}
        self._started = self._done = 0
        self._began = self._looked = time.monotonic()
        total = sum(self._work.values())
        self._in_steps = total > 0
        what = f"{self._number} command{'s' if self._number > 1 else ''}"
        if self._in_steps:
            progress.begin(what, total, sum(self._worked.values()), "training steps")
        else:
            progress.begin(what, self._number, 0, "commands")

    def say(self, sentence: str) -> None:
        self._progress.say(sentence)

    def starts(self, step: Step, tries: int) -> None:
        self._started += tries == 1
        self.say(f"[{self._started} of {self._number}] diamond {' '.join(step.words)}")

    def finishes(self, step: Step, seconds: float) -> None:
        self._done += 1
        self._worked[step] = step.work
        spent = time.monotonic() - self._began
        left = spent / self._done * (self._number - self._done)
        about = f", about {left / 60:.0f} min left" if self._done < self._number else ""
        self.say(f"[{self._done} of {self._number} done{about}] {step.what}: {seconds:.0f} s")
        self._advance()

    def gives_up(self, steps: Sequence[Step], fault: str) -> None:
        self.say(f"gave up: `diamond {' '.join(steps[0].words)}` {fault}")

    def look(self, going: Sequence[Lane]) -> None:
        if time.monotonic() - self._looked >= MEASURE_EVERY:
            self._looked = time.monotonic()
            for step in (lane.steps[0] for lane in going if lane.steps):
                self._worked[step] = _worked(step)
            self._advance()

    def _advance(self) -> None:
        self._progress.advance(sum(self._worked.values()) if self._in_steps else self._done, {})

    def ends(self) -> None:
        minutes = (time.monotonic() - self._began) / 60
        self._progress.end(f"{self._done} of {self._number} commands done in {minutes:.1f} min")


def _worked(step: Step) -> int:
    return min(step.work, steps_so_far(step.folder)) if step.work and step.folder is not None else 0


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    noted: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, frame: noted.append(number)) for number in both}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
