"""Views from plain positions: what a robot knows of itself, its peers and the tasks, as its policy learned to see it.

One function for each world. Positions are in any unit and in one frame that all share; `unit` is the length of one
unit of the world that the policy was trained in. In Simple Spread and Food Collection an agent has a radius of 0.15
world units, and everything begins in a square two units wide: robots with a radius of 0.3 m and positions in metres
have `unit=2.0`. Velocities are in the same unit, per second.

`rank` is the number that this robot has drawn (`Agent.draw_rank`), `peer_ranks` those it has heard, in the order of
the peers. A peer that is gone or out of sight is left out, or marked in `peer_present`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError

STEP_SECONDS = 0.1
"""Of Simple Spread and Food Collection: how long one decision stands."""
KEPT_VELOCITY = 0.75
"""Of which an agent there keeps this share every step; the rest is drag."""


def spread_view(
    position: Any,
    velocity: Any,
    landmarks: Any,
    rank: float,
    peer_positions: Any = (),
    peer_velocities: Any = (),
    peer_ranks: Any = (),
    *,
    unit: float = 1.0,
    peer_present: Any = None,
    landmark_present: Any = None,
    mark_viewer: bool = True,
) -> View:
    """What an agent of Simple Spread sees: two numbers for a place, two for a velocity, rows for several.

    `mark_viewer` is False for policies whose views have four agent features instead of five.
    """
    own = np.concatenate([_vector(position, "position"), _vector(velocity, "velocity")]) / _length(unit)
    places, velocities = _vectors(peer_positions, "peer_positions"), _vectors(peer_velocities, "peer_velocities")
    if len(places) != len(velocities):
        raise UserError(f"there are {len(places)} peer_positions and {len(velocities)} peer_velocities.")
    peers = np.concatenate([places, velocities], axis=1) / unit - own
    agents = np.concatenate([own[None], peers])
    if mark_viewer:
        agents = np.concatenate([agents, _first_of(len(agents))], axis=1)
    tasks = _vectors(landmarks, "landmarks") / unit - own[:2]
    return _view(agents, tasks, rank, peer_ranks, peer_present, landmark_present)


food_view = spread_view
"""Food Collection is seen likewise, with foods as landmarks."""


def next_velocity(velocity: Any, action: Any, *, unit: float = 1.0) -> np.ndarray:
    """The velocity to drive with for the next 0.1 s: what an action does to an agent of the two worlds above.

    An action is a force on a mass of one, in [−1, 1] along each axis. Contact forces are left to the real world.
    """
    force = np.clip(_vector(action, "action"), -1.0, 1.0)
    return KEPT_VELOCITY * _vector(velocity, "velocity") + STEP_SECONDS * force * _length(unit)


def xor_view(actions: int, rank: float, peer_ranks: Any = ()) -> View:
    """What a player of the XOR game sees: so many actions, and nothing of its peers but their numbers."""
    number = np.arange(actions, dtype=np.float32)[:, None]
    angles = np.float32(np.pi) * number * np.float32(2.0) ** -np.arange(6, dtype=np.float32)
    tasks = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return _view(np.ones((1 + np.size(peer_ranks), 1)), tasks, rank, peer_ranks, None, None)


def dispatch_view(
    depot: Any,
    jobs: Any,
    values: Any,
    rank: float,
    peer_depots: Any = (),
    peer_ranks: Any = (),
    *,
    unit: float = 1.0,
    travel_weight: float = 0.3,
    peer_present: Any = None,
    job_present: Any = None,
) -> View:
    """What a vehicle of Dispatch sees. Depots and jobs lie in a square two world units wide.

    Jobs are worth 0.5 to 1.5, and a unit of distance costs `travel_weight`. Action 0 stays, action j + 1 takes job j.
    """
    own, places = _vector(depot, "depot") / _length(unit), _vectors(jobs, "jobs") / unit
    peers = _vectors(peer_depots, "peer_depots") / unit - own
    agents = np.concatenate([np.zeros((1, 2)), peers])
    worth = np.asarray(values, np.float64).reshape(-1, 1)
    if len(worth) != len(places):
        raise UserError(f"there are {len(places)} jobs and {len(worth)} values.")
    way = places - own
    far = np.sqrt(np.sum(way**2, axis=1, keepdims=True))
    tasks = np.concatenate([way, far, worth, worth - travel_weight * far], axis=1)
    view = _view(
        np.concatenate([agents, _first_of(len(agents))], axis=1), tasks, rank, peer_ranks, peer_present, job_present
    )
    return view._replace(legal_actions=np.concatenate([np.ones(1, bool), view.task_present]))


# --- SMAClite -------------------------------------------------------------------------------------

UNIT_TYPES = (
    "marine",
    "marauder",
    "medivac",
    "stalker",
    "zealot",
    "zergling",
    "baneling",
    "colossus",
    "spine_crawler",
)
SIGHT_RANGE = 9.0
"""In the unit of the map; who is as far away or further is not seen."""


class Unit(NamedTuple):
    """A unit as anybody who sees it knows it."""

    position: Any
    health: float
    """Share of its most, 0 to 1."""
    shield: float
    """Likewise; 0 of a unit without one."""
    type: str
    """One of UNIT_TYPES."""


def smaclite_view(
    viewer: Unit,
    targets: Sequence[Unit | None],
    can_act_upon: Any,
    can_go: Any,
    rank: float,
    peers: Sequence[Unit | None] = (),
    peer_ranks: Any = (),
) -> View:
    """What a unit of SMAClite sees, of a game that keeps SMAClite's rules: there is no robot for it.

    `targets` are the enemies, or a healer's comrades, in a fixed order; None is dead. `can_act_upon` says which of
    them could be a target now, `can_go` whether the ground north, south, east and west is free. Actions are: nothing
    (for the dead), stop, north, south, east, west, then one for each target.
    """
    moves, act_upon = np.asarray(can_go, bool), np.asarray(can_act_upon, bool)
    if moves.shape != (4,) or act_upon.shape != (len(targets),):
        raise UserError("can_go has four entries, and can_act_upon one for each target.")
    own = _vector(viewer.position, "position")
    agents, agents_seen = _units([viewer, *peers], own)
    tasks, tasks_seen = _units(targets, own)
    agents = np.concatenate([agents, np.zeros((len(agents), 4))], axis=1)
    agents[0, -4:] = moves
    tasks = np.concatenate([tasks, act_upon[:, None]], axis=1)
    view = _view(agents, tasks, rank, peer_ranks, agents_seen[1:], tasks_seen)
    return view._replace(legal_actions=np.concatenate([[False, True], moves, act_upon]))


def _units(units: Sequence[Unit | None], own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance, way, condition and type of each, and who is seen."""
    rows, seen = np.zeros((len(units), 5 + len(UNIT_TYPES))), np.zeros(len(units), bool)
    for row, unit in enumerate(units):
        if unit is None:
            continue
        if unit.type not in UNIT_TYPES:
            raise UserError(f"a unit's type is {unit.type!r}; it must be one of {', '.join(UNIT_TYPES)}.")
        way = _vector(unit.position, "position") - own
        far = float(np.sqrt(np.sum(way**2)))
        rows[row, :5] = far / SIGHT_RANGE, *(way / SIGHT_RANGE), unit.health, unit.shield
        rows[row, 5 + UNIT_TYPES.index(unit.type)] = 1.0
        seen[row] = far < SIGHT_RANGE
    return rows, seen


# --- Parts ----------------------------------------------------------------------------------------


def _view(agents: np.ndarray, tasks: np.ndarray, rank: float, peer_ranks: Any, peers: Any, tasks_there: Any) -> View:
    ranks = np.concatenate([[rank], np.asarray(peer_ranks, np.float64).reshape(-1)]).astype(np.float32)
    if len(ranks) != len(agents):
        raise UserError(f"there are {len(agents) - 1} peers and {len(ranks) - 1} peer_ranks.")
    there = np.ones(len(agents), bool)
    if peers is not None:
        there[1:] = peers
    open_ = np.ones(len(tasks), bool) if tasks_there is None else np.asarray(tasks_there, bool)
    return View(agents.astype(np.float32), tasks.astype(np.float32), there, open_, ranks)


def _first_of(number: int) -> np.ndarray:
    """1 in the viewer's row, 0 in the others."""
    column = np.zeros((number, 1))
    column[0] = 1.0
    return column


def _vector(value: Any, name: str) -> np.ndarray:
    array = np.asarray(value, np.float64)
    if array.shape != (2,):
        raise UserError(f"{name} has the shape {array.shape}; it must be two numbers, x and y.")
    return array


def _vectors(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise UserError(f"{name} has the shape {array.shape}; it must be rows of two numbers, x and y.")
    return array


def _length(unit: float) -> float:
    if not unit > 0:
        raise UserError(f"unit is {unit}; it must be the length of one world unit, above zero.")
    return unit
