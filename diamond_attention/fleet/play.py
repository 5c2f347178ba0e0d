"""One fleet at work: who joins and who is killed when, and what came of it."""

from collections.abc import Sequence
from typing import Any

from diamond_attention.fleet.crew import Crew
from diamond_attention.fleet.field import Field
from diamond_attention.runs.progress import Progress

SETTLED = 100
"""Steps after which a process has all the memory that it needs."""


def play(field: Field, crew: Crew, join: Sequence[int], kill: Sequence[int], progress: Progress) -> dict[str, Any]:
    """Runs the field's steps; the summary. At a step in `join` the next agent comes, at one in `kill` the first of
    those who are there is killed.
    """
    numbers = field.present.nonzero()[0].tolist()
    waiting = [number for number in range(len(field.present)) if number not in numbers]
    for number in numbers:
        crew.join(number)
    progress.begin("fleet", field.steps, 0, "steps of the fleet")
    memory, killed = [0.0, 0.0], []
    for step in range(field.steps):
        for _ in range(join.count(step)):
            number = waiting.pop(0)
            crew.join(number)
            field.present[number] = True
            progress.say(f"step {step}: agent {number} joins")
        for _ in range(kill.count(step)):
            there = field.present.nonzero()[0].tolist()
            if there:
                crew.kill(there[0])
                killed.append(there[0])
                field.present[there[0]] = False
                progress.say(f"step {step}: agent {there[0]} is killed")
        if not field.present.any():
            progress.say(f"step {step}: nobody is left")
            break
        senses = field.senses()
        actions = crew.actions(senses)
        field.move({number: action for number, action in actions.items() if number in senses})
        lost = [number for number in senses if number not in actions]
        field.present[lost] = False  # they have ended by themselves, and that was said
        if step == min(SETTLED, field.steps - 1):
            memory[0] = crew.memory()
        progress.advance(step + 1, {"score": field.score})
    memory[1] = crew.memory()
    counts = crew.counts()
    return {
        **field.found(),
        "steps": field.step,
        "agents at the end": int(field.present.sum()),
        "killed": killed,
        "messages": dict(counts),
        "deadlines missed by the world": getattr(crew, "late", 0),
        "MB of the largest robot, settled": round(memory[0], 1),
        "MB of the largest robot, at the end": round(memory[1], 1),
    }
