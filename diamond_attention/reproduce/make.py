"""Does what a plan says, and gathers what came of it, here and on other machines."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from diamond_attention.errors import UserError
from diamond_attention.reproduce.entries import Group, Wanted
from diamond_attention.reproduce.plan import Scale, Step, note_played, runs_in
from diamond_attention.runs.folder import Run
from diamond_attention.runs.rows import append_rows
from diamond_attention.runs.train import Interrupted

Say = Callable[[str], None]
LOOK_EVERY = 0.05
"""Seconds between two looks at the commands that are running."""


def matching(wanted: Sequence[Wanted], only: Sequence[str]) -> list[Wanted]:
    """Those whose group's name matches one of the patterns; all where there is none."""
    return [each for each in wanted if not only or any(fnmatch(each.group.name, one) for one in only)]


def check_patterns(wanted: Sequence[Wanted], only: Sequence[str]) -> None:
    for pattern in only:
        if not matching(wanted, [pattern]):
            names = ", ".join(each.group.name for each in wanted[:3])
            raise UserError(f"--only is {pattern!r}, which matches no group; there are {names} …")


# --- Doing ----------------------------------------------------------------------------------------


@dataclass
class Lane:
    """The steps of one group, one after the other."""

    steps: list[Step]
    running: subprocess.Popen | None = None
    began: float = 0.0
    told: bool = False
    """Whether its command was told to end."""

    def fits_beside(self, others: Sequence["Lane"], jobs: int) -> bool:
        alone = any(step.alone for lane in (self, *others) for step in lane.steps)
        return not others or (len(others) < jobs and not alone)


@dataclass
class Done:
    """What was done so far, for the sentence that says how much is left."""

    steps: int = 0
    began: float = field(default_factory=time.monotonic)

    def left(self, of: int) -> str:
        spent = time.monotonic() - self.began
        return f", about {spent / self.steps * (of - self.steps) / 60:.0f} min left" if self.steps else ""


def carry_out(steps: Sequence[Step], out: Path, scale: Scale, jobs: int, say: Say) -> None:
    """Every command that is not done, in a process of its own: a device is given back, and a crash is one step's.

    `jobs` groups go on side by side. Ctrl-C and SIGTERM reach every command, and each is left the time to save.
    """
    waiting = [step for step in steps if not step.done]
    lanes = [
        Lane([step for step in waiting if step.group == name]) for name in dict.fromkeys(s.group for s in waiting)
    ]
    done, started = Done(), 0
    going: list[Lane] = []
    broken: list[UserError] = []
    interrupted: list[int] = []

    before = signal.signal(signal.SIGTERM, lambda number, frame: interrupted.append(number))
    while (lanes and not (broken or interrupted)) or going:
        try:
            while lanes and lanes[0].fits_beside(going, jobs) and not (broken or interrupted):
                going.append(lanes.pop(0))
            for lane in list(going):
                if lane.running is None and lane.steps and not (broken or interrupted):
                    started += 1
                    step = lane.steps[0]
                    say(f"[{started} of {len(waiting)}{done.left(len(waiting))}] diamond {' '.join(step.words)}")
                    lane.running, lane.began = start(step), time.monotonic()
                elif lane.running is None:
                    going.remove(lane)
                elif signal.SIGTERM in interrupted and not lane.told:
                    # Unlike Ctrl-C it reaches this process alone. Told twice, a command would not save.
                    lane.running.terminate()
                    lane.told = True
                elif lane.running.poll() is not None:
                    fault = finish(lane, out, scale)
                    broken += [fault] if fault and not interrupted else []
                    done.steps += 1
            time.sleep(LOOK_EVERY)
        except KeyboardInterrupt:
            interrupted.append(signal.SIGINT)
    signal.signal(signal.SIGTERM, before)
    if interrupted:
        raise Interrupted(interrupted[0])
    if broken:
        raise broken[0]


def start(step: Step) -> subprocess.Popen:
    quiet = ("--quiet",) if step.words[0] in ("train", "resume", "evaluate") else ()
    return subprocess.Popen(
        [sys.executable, "-m", "diamond_attention", *step.words, *quiet], stdout=subprocess.DEVNULL
    )


def finish(lane: Lane, out: Path, scale: Scale) -> UserError | None:
    """Notes that a lane's step has ended; what was wrong with it, if something was."""
    step, running = lane.steps.pop(0), lane.running
    assert running is not None
    status, lane.running = running.returncode, None
    # A seed that failed, with status 1, is a result: it stands in the table as failed.
    if status not in (0, 1):
        lane.steps.clear()
        return UserError(
            f"`diamond {' '.join(step.words)}` ended with status {status}; what is done is kept, and the same "
            "command goes on from there."
        )
    if step.words[0] == "evaluate":
        note_played(out / step.group, step.words)
    row = {"scale": scale, "what": step.what, "seconds": round(time.monotonic() - lane.began, 1)}
    append_rows(out / "times.csv", [row])
    return None


# --- Gathering ------------------------------------------------------------------------------------


def gather(group: Group, roots: Sequence[Path], scale: Scale) -> list[Run]:
    """The runs of a group in all folders, each seed once."""
    found: dict[int, Run] = {}
    for root in roots:
        for run in runs_in(root / group.name, group, scale):
            if run.seed in found:
                raise UserError(
                    f"seed {run.seed} of {group.name} is in {found[run.seed].path.parent} and in "
                    f"{run.path.parent}; leave one of the folders out."
                )
            found[run.seed] = run
    return [found[seed] for seed in sorted(found)]


def missing_seeds(group: Group, runs: Sequence[Run]) -> Iterator[int]:
    """Of a full table."""
    there = {run.seed for run in runs}
    return (seed for seed in range(group.seeds) if seed not in there)
