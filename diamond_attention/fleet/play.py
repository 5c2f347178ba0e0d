"""One fleet at work: who joins and who is killed when, and what came of it."""

from collections.abc import Sequence
from typing import Any

from diamond_attention.fleet.crew import Crew
from diamond_attention.fleet.field import Field
from diamond_attention.runs.progress import Progress

PARTS = 10
"""Of the steps: after each is looked how much memory robots hold, which says whether it still grows."""


def play(field: Field, crew: Crew, join: Sequence[int], kill: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Runs the field's steps, fewer after Ctrl-C or where nobody is left; the summary.

    At a step in `join` the next agent comes, at one in `kill` the first of those who are there is killed. Who comes
    is on the field as soon as its process can act.
    """
    killed: list[int] = []
    coming: list[int] = []
    memory: list[float | None] = []
    stopped = False
    progress.begin("fleet", field.steps, 0, "steps of the fleet")
    try:
        for number in field.present.nonzero()[0].tolist():
            crew.join(number)
        while field.step < field.steps:
            for _ in range(join.count(field.step)):
                coming.append(crew.joined)
                crew.join(crew.joined)
            for number in filter(crew.has_begun, tuple(coming)):
                coming.remove(number)
                field.present[number] = True
                progress.say(f"step {field.step}: agent {number} joins")
            for _ in range(kill.count(field.step)):
                killed += _kill(field, crew, progress)
            if not field.present.any():
                progress.say(f"step {field.step}: nobody is left")
                break
            _one_step(field, crew, coming)
            if PARTS * field.step // field.steps > PARTS * (field.step - 1) // field.steps:
                memory.append(crew.memory())
            progress.advance(field.step, {"score": field.found()["score"]})
    except KeyboardInterrupt:
        stopped = True
    return {
        **field.found(),
        "episodes": field.episodes,
        "steps of the unfinished episode": field.episode.steps,
        "steps": field.step,
        "stopped": stopped,
        "agents at the end": int(field.present.sum()),
        "killed": killed,
        "messages": dict(crew.counts()),
        "deadlines missed by the world": crew.late,
        "MB of the largest robot, after each tenth": [round(each, 1) for each in memory if each is not None],
    }


def _one_step(field: Field, crew: Crew, coming: list[int]) -> None:
    senses = field.senses(coming)
    actions = crew.actions(senses)
    field.move({number: action for number, action in actions.items() if field.present[number]})
    # Who gives no action has ended by itself, and that was said.
    for number in senses.keys() - actions.keys():
        field.present[number] = False
        if number in coming:
            coming.remove(number)


def _kill(field: Field, crew: Crew, progress: Progress) -> list[int]:
    there = field.present.nonzero()[0].tolist()[:1]
    for number in there:
        crew.kill(number)
        field.present[number] = False
        progress.say(f"step {field.step}: agent {number} is killed")
    return there
