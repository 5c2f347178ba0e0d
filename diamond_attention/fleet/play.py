"""One fleet at work: who joins and who is killed when, and what came of it."""

from collections.abc import Sequence
from typing import Any

from diamond_attention.fleet.crew import Crew
from diamond_attention.fleet.field import Field
from diamond_attention.runs.progress import Progress

SETTLED = 2000
"""Steps after which a robot's process has all the memory that it needs."""


def play(field: Field, crew: Crew, join: Sequence[int], kill: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Runs the field's steps, fewer after Ctrl-C or where nobody is left; the summary.

    At a step in `join` the next agent comes, at one in `kill` the first of those who are there is killed.
    """
    killed: list[int] = []
    memory: float | None = None
    stopped = False
    progress.begin("fleet", field.steps, 0, "steps of the fleet")
    try:
        for number in field.present.nonzero()[0].tolist():
            crew.join(number)
        while field.step < field.steps:
            for _ in range(join.count(field.step)):
                _join(field, crew, progress)
            for _ in range(kill.count(field.step)):
                killed += _kill(field, crew, progress)
            if not field.present.any():
                progress.say(f"step {field.step}: nobody is left")
                break
            _one_step(field, crew)
            if field.step == min(SETTLED, field.steps):
                memory = round(crew.memory(), 1)
            progress.advance(field.step, {"score": field.score})
    except KeyboardInterrupt:
        stopped = True
    return {
        **field.found(),
        "steps": field.step,
        "stopped": stopped,
        "agents at the end": int(field.present.sum()),
        "killed": killed,
        "messages": dict(crew.counts()),
        "deadlines missed by the world": crew.late,
        "MB of the largest robot, settled": memory,
        "MB of the largest robot, at the end": round(crew.memory(), 1),
    }


def _one_step(field: Field, crew: Crew) -> None:
    senses = field.senses()
    actions = crew.actions(senses)
    field.move({number: action for number, action in actions.items() if number in senses})
    # Who gives no action has ended by itself, and that was said.
    field.present[[number for number in senses if number not in actions]] = False


def _join(field: Field, crew: Crew, progress: Progress) -> None:
    number = crew.joined
    crew.join(number)
    field.present[number] = True
    progress.say(f"step {field.step}: agent {number} joins")


def _kill(field: Field, crew: Crew, progress: Progress) -> list[int]:
    there = field.present.nonzero()[0].tolist()[:1]
    for number in there:
        crew.kill(number)
        field.present[number] = False
        progress.say(f"step {field.step}: agent {number} is killed")
    return there
