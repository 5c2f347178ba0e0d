"""Team sizes as people write them, and the padding that follows from them."""

import dataclasses
from collections.abc import Sequence

from diamond_attention.errors import UserError
from diamond_attention.worlds.contract import TeamSize, World

SAME, MAP = "same", "map"
"""As many tasks as agents; as many agents and tasks as the world's map has."""


def parse_sizes(text: str, setting: str) -> tuple[int, ...]:
    """4 -> (4,); 2:5 -> (2, 3, 4, 5); 2,4,8 -> (2, 4, 8).

    >>> parse_sizes("2:4,8", "agents")
    (2, 3, 4, 8)
    """
    numbers: list[int] = []
    for part in str(text).split(","):
        low, colon, high = part.partition(":")
        try:
            first, last = int(low), int(high if colon else low)
        except ValueError:
            raise UserError(
                f"{setting} is {text!r}; write a number, a range such as 2:8, or a list such as 2,4,8."
            ) from None
        if first < 1 or last < first:
            raise UserError(f"{setting} is {text!r}; sizes must be at least 1 and ranges must not run backwards.")
        if last > 4096:
            raise UserError(f"{setting} is {text!r}; sizes above 4096 are not supported.")
        numbers.extend(range(first, last + 1))
    return tuple(dict.fromkeys(numbers))


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
                f"agents is {agents!r} and tasks is {tasks!r}, but in {world.name} the map decides (agents x tasks: "
                f"{played}); leave them out, or write {MAP}."
            )
        return own_sizes
    agent_sizes = parse_sizes(agents, "agents")
    pairs = (
        [TeamSize(n, n) for n in agent_sizes]
        if tasks == SAME
        else [TeamSize(n, k) for n in agent_sizes for k in parse_sizes(tasks, "tasks")]
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
