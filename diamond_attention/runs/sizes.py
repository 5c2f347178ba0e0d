"""Team sizes as people write them, and the padding that follows from them."""

import dataclasses
from collections.abc import Sequence

from diamond_attention.errors import UserError, shown
from diamond_attention.worlds.contract import LARGEST_TEAM, TeamSize, World

SAME, MAP = "same", "map"
"""As many tasks as agents; as many agents and tasks as the world's map has."""

MOST_PAIRS = 4096
"""Of agents and tasks: sizes that training draws from, or that an evaluation plays one after the other."""


def parse_sizes(text: str, setting: str) -> tuple[int, ...]:
    """4 -> (4,); 2:5 -> (2, 3, 4, 5); 2,4,8 -> (2, 4, 8).

    >>> parse_sizes("2:4,8", "agents")
    (2, 3, 4, 8)
    """
    numbers: dict[int, None] = {}  # in the order in which they were written, each once
    for part in str(text).split(","):
        low, colon, high = part.partition(":")
        try:
            first, last = int(low), int(high if colon else low)
        except ValueError:
            raise UserError(
                f"{setting} is {shown(text)}; write a number, a range such as 2:8, or a list such as 2,4,8."
            ) from None
        if first < 1 or last < first:
            raise UserError(
                f"{setting} is {shown(text)}; sizes must be at least 1 and ranges must not run backwards."
            )
        if last > LARGEST_TEAM:
            raise UserError(f"{setting} is {shown(text)}; sizes above {LARGEST_TEAM} are not supported.")
        numbers.update(dict.fromkeys(range(first, last + 1)))
    return tuple(numbers)


def team_sizes(world: World, agents: str, tasks: str) -> tuple[TeamSize, ...]:
    """Every pair the two settings allow and the world can play; refused if they allow none.

    A single pair that the world refuses is an error, so a typo is not silently dropped; of a range, the
    pairs that cannot be played (three players, two actions) are left out. Where a map decides, both settings say so.
    """
    own_sizes = world.sizes
    if own_sizes is not None:
        if agents != MAP or tasks not in (MAP, SAME):
            played = ", ".join(f"{size.agents}x{size.tasks}" for size in own_sizes)
            raise UserError(
                f"agents is {shown(agents)} and tasks is {shown(tasks)}, but in {world.name} the map decides "
                f"(agents x tasks: {played}); leave them out, or write {MAP}."
            )
        return own_sizes
    agent_sizes = parse_sizes(agents, "agents")
    task_sizes = () if tasks == SAME else parse_sizes(tasks, "tasks")
    number = len(agent_sizes) * len(task_sizes)
    if number > MOST_PAIRS:
        raise UserError(
            f"agents is {shown(agents)} and tasks is {shown(tasks)}, which makes {number} pairs, and at most "
            f"{MOST_PAIRS} are supported; name fewer sizes."
        )
    pairs = (
        [TeamSize(n, n) for n in agent_sizes]
        if tasks == SAME
        else [TeamSize(n, k) for n in agent_sizes for k in task_sizes]
    )
    playable, refusal = [], None
    for pair in pairs:
        try:
            world.check_size(pair)
            playable.append(pair)
        except UserError as error:
            refusal = error
    if not playable and refusal is not None:
        raise refusal
    return tuple(playable)


PADDING = ("max_agents", "max_tasks")
"""Fields of every world that follow from the sizes it is played at, so no file keeps them."""


def padded(world: World, sizes: Sequence[TeamSize]) -> World:
    """The same world with room for the largest of these sizes."""
    room = {
        "max_agents": max(int(size.agents) for size in sizes),
        "max_tasks": max(int(size.tasks) for size in sizes),
    }
    return dataclasses.replace(world, **room)  # type: ignore[type-var]
