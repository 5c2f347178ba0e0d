"""Teams that follow a rule instead of learning: to measure the engine with, and to compare learners to.

Every rule looks at the whole battle. Made a little random (`sometimes_random`), such a team plays a different
battle every time, and its win rate tells two engines apart; a rule on its own plays practically one battle.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.actions import choose_uniformly
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.scenario import EAST, FIRST_TARGET, NOOP, NORTH, SOUTH, STOP, WEST, Scenario
from diamond_attention.worlds.smaclite.units import UNIT_TYPES
from diamond_attention.worlds.smaclite.vectors import Vector, length, vector

Rule = Callable[[Scenario, BattleState, Bool[Array, "agent action"]], Int[Array, " agent"]]
"""Scenario, state, legal actions → one action for each agent. For maps without healers on the agents' side."""

MELEE = 1.0
"""A weapon with less range is a melee weapon."""


choose_at_random = choose_uniformly
"""(key, legal actions) → any legal action for each agent, all equally likely."""


def sometimes_random(
    key: PRNGKeyArray, share: float, actions: Int[Array, " agent"], legal: Bool[Array, "agent action"]
) -> Int[Array, " agent"]:
    """Each agent, with probability `share`, does anything legal instead."""
    whether_key, what_key = jax.random.split(key)
    strays = jax.random.bernoulli(whether_key, share, actions.shape)
    return jnp.where(strays, choose_at_random(what_key, legal), actions)


def attack_nearest(
    scenario: Scenario, state: BattleState, legal: Bool[Array, "agent action"]
) -> Int[Array, " agent"]:
    """Attack the closest enemy, or walk towards it."""
    way, distance = _ways_to_enemies(scenario, state)
    closest = jnp.argmin(distance, axis=1)
    rows = np.arange(scenario.number_of_agents)
    attack = FIRST_TARGET + closest
    action = jnp.where(legal[rows, attack], attack, _walk(way[rows, closest], legal))
    return jnp.where(state.alive[scenario.ally_ids], action, NOOP).astype(jnp.int32)


def attack_weakest_in_range(
    scenario: Scenario, state: BattleState, legal: Bool[Array, "agent action"]
) -> Int[Array, " agent"]:
    """Attack the weakest enemy in weapon range, the closer of equals; with nobody in range, as `attack_nearest`."""
    _, distance = _ways_to_enemies(scenario, state)
    enemies = scenario.enemy_ids
    reach = scenario.reach[np.ix_(scenario.ally_ids, enemies)]
    targetable = legal[:, FIRST_TARGET : FIRST_TARGET + len(enemies)]
    in_range = targetable & (distance <= reach)
    strength = jnp.where(in_range, (state.hp + state.shield)[enemies], jnp.inf)
    weakest = strength == jnp.min(strength, axis=1, keepdims=True)
    victim = jnp.argmin(jnp.where(in_range & weakest, distance, jnp.inf), axis=1)
    action = jnp.where(in_range.any(axis=1), FIRST_TARGET + victim, attack_nearest(scenario, state, legal))
    return jnp.where(state.alive[scenario.ally_ids], action, NOOP).astype(jnp.int32)


def step_back_and_attack(
    scenario: Scenario, state: BattleState, legal: Bool[Array, "agent action"]
) -> Int[Array, " agent"]:
    """As `attack_weakest_in_range`, but shooters that cannot fire walk away from melee enemies closer than 3."""
    way, distance = _ways_to_enemies(scenario, state)
    allies, enemies = scenario.ally_ids, scenario.enemy_ids
    melee = np.array([UNIT_TYPES[name].range < MELEE for name in scenario.unit_types])
    threat = jnp.where(melee[enemies], distance, jnp.inf)
    closest = jnp.argmin(threat, axis=1)
    away = _walk(-way[np.arange(len(allies)), closest], legal)
    flees = ~melee[allies] & (state.cooldown[allies] > 0.3) & (jnp.min(threat, axis=1) < 3.0) & (away != STOP)
    action = jnp.where(flees, away, attack_weakest_in_range(scenario, state, legal))
    return jnp.where(state.alive[allies], action, NOOP).astype(jnp.int32)


RULES: dict[str, Rule] = {
    "nearest": attack_nearest,
    "in range": attack_weakest_in_range,
    "step back": step_back_and_attack,
}


def play_episode(
    scenario: Scenario, rule: Rule | None, share_random: float, key: PRNGKeyArray, dtype: Any = jnp.float32
) -> tuple[Bool[Array, ""], Float[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """One battle up to the map's time limit: won, return, steps, avoidance lines dropped.

    Without a rule everything is random.
    """

    def play(carry: tuple[BattleState, Array, Array, Array, Array], key: PRNGKeyArray) -> tuple[tuple, None]:
        state, done, won, collected, steps = carry
        action_key, order_key = jax.random.split(key)
        legal = battle.legal_actions(scenario, state)
        if rule is None:
            actions = choose_at_random(action_key, legal)
        else:
            actions = sometimes_random(action_key, share_random, rule(scenario, state, legal), legal)
        outcome = battle.step(scenario, state, actions, battle.draw_turn_orders(scenario, order_key))
        state = jax.tree.map(lambda old, new: jnp.where(done, old, new), state, outcome.state)
        won |= ~done & outcome.won
        collected += jnp.where(done, 0.0, outcome.reward)
        steps += jnp.where(done, 0, 1)
        return (state, done | outcome.done, won, collected, steps), None

    no = jnp.zeros((), bool)
    first = (battle.start(scenario, dtype=dtype), no, no, jnp.zeros((), dtype), jnp.zeros((), jnp.int32))
    (state, _, won, collected, steps), _ = jax.lax.scan(play, first, jax.random.split(key, scenario.map.time_limit))
    return won, collected, steps, state.lines_dropped


def _ways_to_enemies(scenario: Scenario, state: BattleState) -> tuple[Vector, Float[Array, "agent enemy"]]:
    """The way from every agent to every enemy, and its length; dead enemies are infinitely far."""
    position = vector(state.position)
    enemies = scenario.enemy_ids
    way = position[enemies][None, :] - position[scenario.ally_ids][:, None]
    return way, jnp.where(state.alive[enemies], length(way), jnp.inf)


def _walk(way: Vector, legal: Bool[Array, "agent action"]) -> Int[Array, " agent"]:
    """The move along the longer component of the way, else along the other one, else standing still."""
    rows = np.arange(legal.shape[0])
    sideways = jnp.where(way.x > 0, EAST, WEST)
    upwards = jnp.where(way.y > 0, NORTH, SOUTH)
    mostly_sideways = jnp.abs(way.x) >= jnp.abs(way.y)
    first = jnp.where(mostly_sideways, sideways, upwards)
    second = jnp.where(mostly_sideways, upwards, sideways)
    return jnp.where(legal[rows, first], first, jnp.where(legal[rows, second], second, STOP))
