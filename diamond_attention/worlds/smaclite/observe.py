"""What agents may do and see: legal actions, observations, and the state vector.

Slot k of the target actions and of the enemy block is the k-th enemy of the map.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int

from diamond_attention.worlds.smaclite.scenario import (
    EAST,
    FIRST_TARGET,
    NOBODY,
    NOOP,
    NORTH,
    SOUTH,
    STOP,
    WEST,
    Scenario,
)
from diamond_attention.worlds.smaclite.terrain import MAP_SIZE
from diamond_attention.worlds.smaclite.vectors import Vector, length

SIGHT_RANGE = 9.0
TARGET_RANGE = 6.0
"""From centre to centre, whatever the weapon."""
LOOK_AHEAD = 1.0
"""How far ahead the ground must be free for a move to be legal."""


def legal_actions(scenario: Scenario, position: Vector, alive: Bool[Array, " unit"]) -> Bool[Array, "agent action"]:
    """Dead agents can only do nothing. Neither range, nor weapon, nor cooldown decide whether a target is legal."""
    allies, enemies = scenario.ally_ids, scenario.enemy_ids
    agent = position[allies]
    agent_alive = alive[allies]
    legal = jnp.zeros((len(allies), scenario.number_of_actions), bool)
    legal = legal.at[:, NOOP].set(~agent_alive).at[:, STOP].set(agent_alive)
    for action, (x, y) in {NORTH: (0, 1), SOUTH: (0, -1), EAST: (1, 0), WEST: (-1, 0)}.items():
        free = is_free(scenario, Vector(agent.x + x * LOOK_AHEAD, agent.y + y * LOOK_AHEAD))
        legal = legal.at[:, action].set(free & agent_alive)
    near = length(agent[:, None] - position[enemies][None, :]) <= TARGET_RANGE
    legal = legal.at[:, FIRST_TARGET : FIRST_TARGET + len(enemies)].set(near & alive[enemies] & agent_alive[:, None])
    for healer in np.flatnonzero(scenario.is_healer[allies]):
        patients = np.flatnonzero(~scenario.is_healer[allies])
        near_patient = length(agent[patients] - agent[healer]) <= TARGET_RANGE
        row = jnp.zeros(scenario.number_of_actions - FIRST_TARGET, bool)
        row = row.at[patients].set(near_patient & agent_alive[patients] & agent_alive[healer])
        legal = legal.at[healer, FIRST_TARGET:].set(row)
    return legal


def is_free(scenario: Scenario, place: Vector) -> Bool[Array, "..."]:
    on_map = (place.x >= 0) & (place.x < MAP_SIZE) & (place.y >= 0) & (place.y < MAP_SIZE)
    cell_x = jnp.clip(jnp.floor(place.x).astype(jnp.int32), 0, MAP_SIZE - 1)
    cell_y = jnp.clip(jnp.floor(place.y).astype(jnp.int32), 0, MAP_SIZE - 1)
    return on_map & ~jnp.asarray(scenario.blocked.reshape(-1))[cell_x * MAP_SIZE + cell_y]


def observations(
    scenario: Scenario,
    position: Vector,
    hp: Float[Array, " unit"],
    shield: Float[Array, " unit"],
    alive: Bool[Array, " unit"],
    legal: Bool[Array, "agent action"],
) -> Float32[Array, "agent feature"]:
    """Every agent's observation as the original lays it out: moves, enemies, other allies, itself.

    The first feature of an enemy is its target action's legality. For a healer that action means an ally, but
    the original reads the same slot all the same.
    """
    allies, enemies = scenario.ally_ids, scenario.enemy_ids
    count = len(allies)
    agent = position[allies]
    itself = _own_features(scenario, allies, hp, shield, scenario.allies_have_shields)

    def block(others: np.ndarray, first: Array, has_shields: bool) -> Float[Array, "agent other feature"]:
        way = position[others][None, :] - agent[:, None]
        distance = length(way)
        seen = alive[others] & (distance < SIGHT_RANGE)
        features = [jnp.stack([first, distance / SIGHT_RANGE, way.x / SIGHT_RANGE, way.y / SIGHT_RANGE], axis=-1)]
        own = _own_features(scenario, others, hp, shield, has_shields)
        features.append(jnp.broadcast_to(own, (count, *own.shape)))
        return jnp.where(seen[:, :, None], jnp.concatenate(features, axis=-1), 0.0)

    targetable = legal[:, FIRST_TARGET : FIRST_TARGET + len(enemies)].astype(hp.dtype)
    enemy_block = block(enemies, targetable, scenario.enemies_have_shields)
    ally_block = block(allies, jnp.ones((count, count), hp.dtype), scenario.allies_have_shields)
    others = np.array([[other for other in range(count) if other != viewer] for viewer in range(count)], np.int32)
    others = others.reshape(count, count - 1)
    ally_block = ally_block[np.arange(count)[:, None], others]
    everything = jnp.concatenate(
        [
            legal[:, NORTH:FIRST_TARGET].astype(hp.dtype),
            enemy_block.reshape(count, -1),
            ally_block.reshape(count, -1),
            itself,
        ],
        axis=-1,
    )
    return jnp.where(alive[allies][:, None], everything, 0.0).astype(jnp.float32)


def _own_features(
    scenario: Scenario, units: np.ndarray, hp: Array, shield: Array, has_shields: bool
) -> Float[Array, "unit feature"]:
    """Hit points, shield and type, as everybody who sees the unit sees them."""
    features = [(hp[units] / scenario.max_hp[units])[:, None]]
    if has_shields:
        features.append(_shield_share(scenario, units, shield)[:, None])
    return jnp.concatenate([*features, jnp.asarray(scenario.type_one_hot[units], hp.dtype)], axis=-1)


def _shield_share(scenario: Scenario, units: np.ndarray, shield: Array) -> Float[Array, " unit"]:
    return shield[units] / np.where(scenario.max_shield[units] > 0, scenario.max_shield[units], 1.0)


def state_vector(
    scenario: Scenario,
    position: Vector,
    hp: Float[Array, " unit"],
    shield: Float[Array, " unit"],
    cooldown: Float[Array, " unit"],
    energy: Float[Array, " unit"],
    alive: Bool[Array, " unit"],
    last_actions: Int[Array, " agent"],
) -> Float32[Array, " feature"]:
    """The whole battle in one vector, as the original lays it out: allies, enemies, the last actions."""
    x = (position.x - MAP_SIZE / 2) / MAP_SIZE
    y = (position.y - MAP_SIZE / 2) / MAP_SIZE
    wait = cooldown / np.where(scenario.cooldown > 0, scenario.cooldown, 1.0)
    charge = energy / np.where(scenario.max_energy > 0, scenario.max_energy, 1.0)
    readiness = jnp.where(scenario.is_healer, charge, wait)

    def block(units: np.ndarray, columns: list[Array], has_shields: bool) -> Array:
        if has_shields:
            columns = [*columns, _shield_share(scenario, units, shield)]
        types = jnp.asarray(scenario.type_one_hot[units], hp.dtype)
        features = jnp.concatenate([jnp.stack(columns, axis=-1), types], axis=-1)
        return jnp.where(alive[units][:, None], features, 0.0).reshape(-1)

    allies, enemies = scenario.ally_ids, scenario.enemy_ids
    ally_hp, enemy_hp = hp[allies] / scenario.max_hp[allies], hp[enemies] / scenario.max_hp[enemies]
    chosen = (last_actions[:, None] == np.arange(scenario.number_of_actions)) & (last_actions != NOBODY)[:, None]
    return jnp.concatenate(
        [
            block(allies, [ally_hp, readiness[allies], x[allies], y[allies]], scenario.allies_have_shields),
            block(enemies, [enemy_hp, x[enemies], y[enemies]], scenario.enemies_have_shields),
            chosen.astype(hp.dtype).reshape(-1),
        ]
    ).astype(jnp.float32)
