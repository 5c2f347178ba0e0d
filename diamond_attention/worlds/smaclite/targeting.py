"""Who wants to shoot at whom, and where everybody wants to go.

Allies do as they are told. Enemies walk to the attack point and take whom they meet: these functions are
their whole intelligence. The original visits units by ascending id, and some of what it reads has been
changed by units visited before; here that is the order of whole passes over all units.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int

from diamond_attention.worlds.smaclite.scenario import EAST, FIRST_TARGET, NOBODY, NORTH, SOUTH, WEST, Scenario
from diamond_attention.worlds.smaclite.vectors import Vector, choose, length, squared

MOVE_LENGTH = 2.0
OUT_OF_SCAN = 2e9
"""The distance of everybody an enemy cannot see: attackers from afar are all the same to it."""

DIRECTIONS = np.zeros((FIRST_TARGET, 2))
DIRECTIONS[[NORTH, SOUTH, EAST, WEST]] = [[0, 1], [0, -1], [1, 0], [-1, 0]]
"""[action, 2]: where a move action leads."""


class Orders(NamedTuple):
    """What every unit is to do for one whole step. Enemies: walk to the attack point, fight on the way."""

    walk: Bool[Array, " unit"]
    """Whether there is a point to go to."""
    destination: Vector
    victim: Int[Array, " unit"]
    """Allies: the unit to attack (healers: to heal), NOBODY without such an order. Never changes in a step."""


def orders_from_actions(scenario: Scenario, position: Vector, actions: Int[Array, " agent"]) -> Orders:
    """Legal actions of the agents, as orders. A dead agent's order is never read."""
    units = scenario.number_of_units
    of_agent = position[scenario.ally_ids]
    targets_something = actions >= FIRST_TARGET
    slot = jnp.where(targets_something, actions - FIRST_TARGET, 0)
    # An action that targets slot k means the k-th enemy to a damage dealer and the k-th ally to a healer.
    enemy = jnp.asarray(scenario.enemy_ids)[jnp.minimum(slot, scenario.number_of_enemies - 1)]
    ally = jnp.asarray(scenario.ally_ids)[jnp.minimum(slot, scenario.number_of_agents - 1)]
    victim = jnp.where(scenario.is_healer[scenario.ally_ids], ally, enemy)
    way = jnp.asarray(DIRECTIONS, position.x.dtype)[jnp.where(targets_something, 0, actions)] * MOVE_LENGTH
    walk = jnp.asarray(~scenario.is_ally)
    goal_x = jnp.full(units, scenario.attack_point[0])
    goal_y = jnp.full(units, scenario.attack_point[1])
    agents = scenario.ally_ids
    return Orders(
        walk=walk.at[agents].set((actions >= NORTH) & (actions <= WEST)),
        destination=Vector(
            goal_x.at[agents].set(of_agent.x + way[:, 0]), goal_y.at[agents].set(of_agent.y + way[:, 1])
        ),
        victim=jnp.full(units, NOBODY, jnp.int32).at[agents].set(jnp.where(targets_something, victim, NOBODY)),
    )


def can_reach(
    scenario: Scenario, position: Vector, target: Int[Array, " unit"], need_plane: bool
) -> Bool[Array, " unit"]:
    """Whether each unit's target is within its weapon's range. Only some rules ask whether it can be hit at all."""
    somebody = jnp.maximum(target, 0)
    units = scenario.ids
    # In float32, as the original does: the limit itself is met exactly by units that stopped there.
    distance = length(position[somebody] - position).astype(jnp.float32)
    reaches = distance <= jnp.asarray(scenario.reach, jnp.float32)[units, somebody]
    if need_plane and not scenario.can_attack.all():
        reaches &= jnp.asarray(scenario.can_attack)[units, somebody]
    return reaches & (target != NOBODY)


def drop_targets(
    scenario: Scenario,
    position: Vector,
    hp: Float[Array, " unit"],
    alive: Bool[Array, " unit"],
    target: Int[Array, " unit"],
    orders: Orders,
) -> Int[Array, " unit"]:
    """Targets at the start of a tick: allies take theirs from their orders, enemies drop what is lost.

    An enemy keeps a target that is in range or that has this very enemy as its own target. Where enemies
    have the lower ids they look at the allies' targets before those are renewed.
    """
    ordered = jnp.where((orders.victim != NOBODY) & (hp[jnp.maximum(orders.victim, 0)] > 0), orders.victim, NOBODY)
    renewed = jnp.where(scenario.is_ally & alive, ordered, target)
    seen = target if scenario.map.enemies_first else renewed
    somebody = jnp.maximum(target, 0)
    attacks_me = seen[somebody] == scenario.ids
    keeps = (
        (target != NOBODY)
        & (hp[somebody] > 0)
        & (attacks_me | can_reach(scenario, position, target, need_plane=False))
    )
    return jnp.where(~scenario.is_ally & alive & ~keeps, NOBODY, renewed)


def acquire_targets(
    scenario: Scenario,
    position: Vector,
    hp: Float[Array, " unit"],
    alive: Bool[Array, " unit"],
    target: Int[Array, " unit"],
) -> tuple[Int[Array, " unit"], Float[Array, " unit"]]:
    """Enemies look for new targets. Returns all targets, and how fast everybody walks in this tick."""
    allies, enemies = scenario.ally_ids, scenario.enemy_ids
    scan = scenario.scan[enemies][:, None]
    distance = length(position[enemies][:, None] - position[allies][None, :])
    in_sight = distance <= scan + scenario.largest_radius
    attacks_me = target[allies][None, :] == enemies[:, None]
    legal = scenario.can_attack[np.ix_(enemies, allies)]
    candidate = alive[allies] & legal & ((distance < scan + scenario.radius[allies]) | attacks_me)
    wanting = target[enemies] == NOBODY
    allied_healer = scenario.is_healer[allies]
    if allied_healer.any():
        # As long as an allied healer lives, enemies that are not after it choose anew in every tick,
        # but then only among those they see.
        undecided = (
            ~wanting
            & jnp.any(alive[allies] & allied_healer)
            & ~jnp.asarray(scenario.is_healer)[jnp.maximum(target[enemies], 0)]
        )
        candidate &= wanting[:, None] | in_sight
        wanting |= undecided
        candidate_healer = candidate & allied_healer
        candidate = jnp.where(candidate_healer.any(axis=1, keepdims=True), candidate_healer, candidate)
    # The first of equals wins, that is the lowest id.
    key = jnp.where(candidate, jnp.where(in_sight, distance, OUT_OF_SCAN), jnp.inf)
    closest = jnp.asarray(allies)[jnp.argmin(key, axis=1)]
    takes = wanting & candidate.any(axis=1) & alive[enemies] & ~scenario.is_healer[enemies]
    speed = jnp.asarray(scenario.speed)
    found = jnp.where(takes, closest, target[enemies])
    for healer in enemies[scenario.is_healer[enemies]]:
        patient, healer_speed = _choose_patient(scenario, int(healer), position, hp, alive, target)
        found = jnp.where((enemies == healer) & alive[healer], patient, found)
        speed = speed.at[healer].set(healer_speed)
    return target.at[enemies].set(found), speed


def _choose_patient(
    scenario: Scenario,
    healer: int,
    position: Vector,
    hp: Float[Array, " unit"],
    alive: Bool[Array, " unit"],
    target: Int[Array, " unit"],
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """An enemy healer takes the weakest comrade that is hurt or fighting, and keeps pace with those around it.

    It looks at its comrades' targets before they choose new ones: healers have the lowest ids of their side.
    """
    enemies = scenario.enemy_ids
    distance = length(position[enemies] - position[healer])
    scan = scenario.scan[healer]
    near = alive[enemies] & scenario.can_attack[healer, enemies] & (distance <= scan + scenario.largest_radius)
    needs_me = (hp[enemies] < scenario.max_hp[enemies]) | (target[enemies] != NOBODY)
    candidate = near & needs_me & (distance < scan + scenario.radius[enemies])
    weakest = jnp.asarray(enemies)[jnp.argmin(jnp.where(candidate, hp[enemies], jnp.inf))]
    searching = target[healer] == NOBODY
    own_speed = scenario.speed[healer]
    pace = jnp.min(jnp.where(near, scenario.speed[enemies], jnp.inf))
    return (
        jnp.where(searching & candidate.any(), weakest, target[healer]),
        jnp.where(searching & near.any(), pace, own_speed),
    )


class Intention(NamedTuple):
    velocity: Vector
    """What each unit would do if it were alone."""
    capped: Vector
    """The same, shortened where rounding made it faster than the unit can be."""
    attacking: Bool[Array, " unit"]
    """Stands in range and fires as soon as its weapon is ready."""
    victim: Int[Array, " unit"]
    """At whom; also a unit that died meanwhile."""


def intend(
    scenario: Scenario,
    position: Vector,
    alive: Bool[Array, " unit"],
    attacking: Bool[Array, " unit"],
    target: Int[Array, " unit"],
    speed: Float[Array, " unit"],
    orders: Orders,
) -> Intention:
    """Approach the victim at full speed, stand still once it is in range; without one, walk or stand as ordered."""
    victim = jnp.where(scenario.is_ally, orders.victim, target)
    has_victim = victim != NOBODY
    in_range = can_reach(scenario, position, victim, need_plane=True) & alive
    goal = choose(has_victim, position[jnp.maximum(victim, 0)], orders.destination)
    walks = alive & (has_victim | orders.walk) & ~in_range & (scenario.speed > 0)
    way, pace = goal - position, jnp.where(walks, speed, 0.0)
    velocity, capped = _head_for(way, pace, scenario.speed)
    if position.x.dtype == jnp.float64:
        # The original goes to a point in float64 and to a unit in float32. Left out, one rounding of a velocity
        # moves units by one rounding of a position, and contacts enlarge that sixteenfold in every tick.
        rounded = _head_for(
            jax.tree.map(lambda component: component.astype(jnp.float32), way),
            pace.astype(jnp.float32),
            scenario.speed,
            _squared_without_fusing,
        )
        velocity, capped = (
            choose(has_victim, jax.tree.map(lambda component: component.astype(jnp.float64), low), high)
            for low, high in zip(rounded, (velocity, capped), strict=True)
        )
    return Intention(velocity, capped, attacking | in_range, victim)


def _head_for(
    way: Vector,
    pace: Float[Array, " unit"],
    max_speed: np.ndarray,
    squared_length: Callable[[Vector], Array] = squared,
) -> tuple[Vector, Vector]:
    """Full speed all the way, zero for a unit that has arrived; and the same within the speed limit."""
    distance = jnp.sqrt(squared_length(way))
    velocity = way * pace / jnp.where(distance > 0, distance, 1.0)
    speed_squared = squared_length(velocity)
    real = way.x.dtype
    slower = velocity / jnp.where(speed_squared > 0, jnp.sqrt(speed_squared), 1.0) * max_speed.astype(real)
    return velocity, choose(speed_squared > (max_speed * max_speed).astype(real), slower, velocity)


def _squared_without_fusing(way: Vector) -> Float32[Array, "..."]:
    """In float32 with every product rounded, as numpy does it, also where a compiler would fuse product and sum."""
    x_squared = (way.x.astype(jnp.float64) ** 2).astype(jnp.float32)
    y_squared = (way.y.astype(jnp.float64) ** 2).astype(jnp.float32)
    return (x_squared.astype(jnp.float64) + y_squared.astype(jnp.float64)).astype(jnp.float32)
