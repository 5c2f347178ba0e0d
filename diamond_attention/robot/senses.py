"""What a robot must know of itself and its peers, by the world that its policy was trained in.

One line for each world whose agents are bodies with a place. SMAClite is not here: its units see health, shields and
who may be shot by whose rules, which no message of a peer tells, and there is no robot for it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from diamond_attention.deploy import Agent, View, dispatch_view, spread_view
from diamond_attention.errors import UserError

Rows = Sequence[Sequence[float]]


class Senses(NamedTuple):
    """Of one robot at one step. What its numbers mean is the world's affair: `WORLDS`."""

    own: Sequence[float]
    """What its peers are told of it."""
    tasks: Rows
    """What there is to do: a row for each task."""


class SensedWorld(NamedTuple):
    own: tuple[str, ...]
    """What the numbers in `Senses.own` are."""
    task: tuple[str, ...]
    """And those in a row of `Senses.tasks`."""
    view: Callable[[Agent, Senses, float, np.ndarray, np.ndarray, float], View]
    """The agent's view, given what it senses, its number, the peers' own values and numbers, and the unit."""


def _particles(agent: Agent, senses: Senses, rank: float, peers: np.ndarray, ranks: np.ndarray, unit: float) -> View:
    own = np.asarray(senses.own, np.float64)
    marked = len(agent.agent_features) == 5
    tasks = senses.tasks
    return spread_view(
        own[:2], own[2:], tasks, rank, peers[:, :2], peers[:, 2:], ranks, unit=unit, mark_viewer=marked
    )


def _dispatch(agent: Agent, senses: Senses, rank: float, peers: np.ndarray, ranks: np.ndarray, unit: float) -> View:
    jobs = np.asarray(senses.tasks, np.float64)
    weight = float(agent.world.get("travel_weight", 0.3))
    return dispatch_view(senses.own, jobs[:, :2], jobs[:, 2], rank, peers, ranks, unit=unit, travel_weight=weight)


_MOVING = SensedWorld(("x", "y", "velocity along x", "velocity along y"), ("x", "y"), _particles)
WORLDS = {
    "spread": _MOVING,
    "food": _MOVING,
    "dispatch": SensedWorld(("x of its depot", "y of its depot"), ("x", "y", "value"), _dispatch),
}


def sensed_world(agent: Agent) -> SensedWorld:
    name = agent.world.get("name")
    if name not in WORLDS:
        raise UserError(
            f"{agent.name} was trained in the world {name!r}, which has no fleet; there are {', '.join(WORLDS)}."
        )
    return WORLDS[name]
