"""Moving, shooting, healing and dying within one tick: one unit after the other, in a random order.

The order matters: a unit that is dead before its turn neither moves nor fires, shields grow before or after
a hit, and a healer can bring back who fell earlier in the same tick. So the units' turns are a loop. Only
what one unit can change about another is carried through it; a unit's own way, weapon and energy are
computed for all units at once, before or after.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Int

from diamond_attention.worlds.smaclite.scenario import KILL_REWARD, NOBODY, TICK, Scenario
from diamond_attention.worlds.smaclite.targeting import Intention
from diamond_attention.worlds.smaclite.units import (
    BEAM_ACROSS,
    BEAM_ALONG,
    BLAST_RADIUS,
    ENERGY_PER_SECOND,
    ENERGY_TO_START_HEALING,
    HEALING_PER_ENERGY,
    HEALING_PER_SECOND,
    SHIELD_DELAY,
    SHIELD_PER_SECOND,
)
from diamond_attention.worlds.smaclite.vectors import Vector, choose, det, dot, length, squared, unit, vector


class Condition(NamedTuple):
    """What turns change: a unit's own and, for the first three, everybody's."""

    hp: Float[Array, " unit"]
    """A unit that has been removed keeps a value: healers may go on with a corpse, which costs them energy."""
    shield: Float[Array, " unit"]
    shield_timer: Float[Array, " unit"]
    """Seconds until the shield grows again."""
    energy: Float[Array, " unit"]
    heal_pool: Float[Array, " unit"]
    """Healing already paid for with energy."""
    target: Int[Array, " unit"]


class Turns(NamedTuple):
    condition: Condition
    acted: Bool[Array, " unit"]
    fired: Bool[Array, " unit"]
    reward: Float[Array, ""]


class _Shot(NamedTuple):
    """One turn's shot: whether there is one, who fires (one-hot), at whom (one-hot, all False for nobody)."""

    fires: Bool[Array, ""]
    shooter: Bool[Array, " unit"]
    victim: Bool[Array, " unit"]


def take_turns(
    scenario: Scenario,
    condition: Condition,
    alive: Bool[Array, " unit"],
    cooldown: Float[Array, " unit"],
    position: Float32[Array, "unit 2"],
    next_position: Float32[Array, "unit 2"],
    intention: Intention,
    previous_target: Int[Array, " unit"],
    order: Int[Array, " unit"],
) -> Turns:
    """Everybody's turn, in `order` (global ids; NOBODY and dead units are passed over).

    `cooldown` is what is left of it after this tick. Queries of area weapons see where units were at the start
    of the tick, their effect where they are now; hence both positions.
    """
    ids = scenario.ids
    ready = intention.attacking & (intention.victim != NOBODY) & (cooldown <= 0)
    real = condition.hp.dtype
    before, after = vector(position.astype(real)), vector(next_position.astype(real))

    def turn(rank: Array, turns: Turns) -> Turns:
        condition, acted, fired, reward = turns
        mine = (ids == order[rank]) & alive & (condition.hp > 0)
        condition = _recover(scenario, condition, mine)
        acted |= mine
        shooter = mine & ready
        shot = _Shot(shooter.any(), shooter, ids == jnp.sum(jnp.where(shooter, intention.victim + 1, 0)) - 1)
        now = choose(acted, after, before)
        hurt, hits = _struck(scenario, shot, alive, before, now)
        condition, gained = _strike(scenario, condition, shot, hurt, hits)
        if scenario.is_healer.any():
            condition = _heal(scenario, condition, shot, previous_target)
        return Turns(condition, acted, fired | shooter, reward + gained)

    nobody_yet = jnp.zeros_like(alive)
    return lax.fori_loop(
        0, scenario.number_of_units, turn, Turns(condition, nobody_yet, nobody_yet, jnp.zeros((), real))
    )


def _recover(scenario: Scenario, condition: Condition, mine: Bool[Array, " unit"]) -> Condition:
    """Shields, hit points and energy grow at the beginning of the own turn."""
    hp, shield, timer, energy = condition.hp, condition.shield, condition.shield_timer, condition.energy
    if scenario.max_shield.any():
        timer = jnp.where(mine, jnp.maximum(timer - TICK, 0.0), timer)
        grows = mine & (timer == 0)
        shield = jnp.where(grows, jnp.minimum(shield + SHIELD_PER_SECOND * TICK, scenario.max_shield), shield)
    if scenario.hp_regeneration.any():
        hp = jnp.where(mine, jnp.minimum(hp + scenario.hp_regeneration * TICK, scenario.max_hp), hp)
    if scenario.max_energy.any():
        energy = jnp.where(mine, jnp.minimum(energy + ENERGY_PER_SECOND * TICK, scenario.max_energy), energy)
    return condition._replace(hp=hp, shield=shield, shield_timer=timer, energy=energy)


def _struck(
    scenario: Scenario, shot: _Shot, alive: Bool[Array, " unit"], before: Vector, now: Vector
) -> tuple[Float[Array, " unit"], Int[Array, ""]]:
    """The damage of one hit to every unit that is hit, zero for the others, and how many hits there are."""
    shooter_id = jnp.argmax(shot.shooter)
    hits = jnp.asarray(scenario.hits)[shooter_id]
    damage = jnp.asarray(scenario.damage)[shooter_id]
    struck = shot.victim
    if scenario.is_healer.any():
        struck &= ~jnp.asarray(scenario.is_healer)[shooter_id]
    if scenario.blasts.any() or scenario.beams.any():
        side = jnp.asarray(scenario.is_ally)[shooter_id]
        opponents = alive & (scenario.is_ally != side) & shot.fires
        if scenario.blasts.any():
            blast = opponents & _in_blast(scenario, now[shooter_id], before, now)
            struck = jnp.where(jnp.asarray(scenario.blasts)[shooter_id], blast, struck)
        if scenario.beams.any():
            victim_id = jnp.argmax(shot.victim)
            beam = opponents & _in_beam(scenario, now[shooter_id], now[victim_id], before, now)
            struck = jnp.where(jnp.asarray(scenario.beams)[shooter_id], beam, struck)
    return jnp.where(struck & shot.fires, damage, 0.0), hits


def _in_blast(scenario: Scenario, center: Vector, before: Vector, now: Vector) -> Bool[Array, " unit"]:
    found = length(before - center) <= BLAST_RADIUS + scenario.largest_radius
    return found & (length(now - center) <= BLAST_RADIUS + scenario.radius)


def _in_beam(
    scenario: Scenario, shooter: Vector, center: Vector, before: Vector, now: Vector
) -> Bool[Array, " unit"]:
    """A rectangle across the line of fire, around the target. Nobody is hit from the target's own spot.

    When nobody at all is near the target, a corpse included, the original stops with an error; here, as it
    must be meant, nobody is hurt.
    """
    found = length(before - center) <= (BEAM_ACROSS**2 + BEAM_ALONG**2) ** 0.5 / 2
    line_of_fire = unit(center - shooter)
    offset = now - center
    outside = Vector(
        jnp.maximum(jnp.abs(dot(offset, line_of_fire)) - BEAM_ALONG / 2, 0.0),
        jnp.maximum(jnp.abs(det(offset, line_of_fire)) - BEAM_ACROSS / 2, 0.0),
    )
    return found & (squared(outside) <= scenario.radius * scenario.radius) & (squared(line_of_fire) > 0)


def _strike(
    scenario: Scenario, condition: Condition, shot: _Shot, damage: Float[Array, " unit"], hits: Int[Array, ""]
) -> tuple[Condition, Float[Array, ""]]:
    """Shields take what they can, armor counts against the rest of every hit. Reward: what enemies lose."""
    hp, shield, timer = condition.hp, condition.shield, condition.shield_timer
    reward = jnp.zeros((), hp.dtype)
    for hit in range(int(scenario.hits.max())):
        hurts = (damage > 0) & (hp > 0) & (hit < hits)
        absorbed = jnp.where(hurts, jnp.minimum(damage, shield), 0.0)
        lost = jnp.where(hurts, jnp.maximum(jnp.minimum(damage - absorbed - scenario.armor, hp), 0.0), 0.0)
        shield = shield - absorbed
        hp = hp - lost
        timer = jnp.where(hurts & (scenario.max_shield > 0), SHIELD_DELAY, timer)
        gained = absorbed + lost + jnp.where(hurts & (hp == 0), KILL_REWARD, 0.0)
        reward += jnp.sum(jnp.where(scenario.is_ally, 0.0, gained))
    if scenario.blasts.any():
        explodes = shot.shooter & scenario.blasts
        reward += jnp.sum(jnp.where(explodes & ~scenario.is_ally, hp, 0.0))
        hp = jnp.where(explodes, 0.0, hp)
    return condition._replace(hp=hp, shield=shield, shield_timer=timer), reward


def _heal(scenario: Scenario, condition: Condition, shot: _Shot, previous_target: Int[Array, " unit"]) -> Condition:
    """A healer's turn: one tick's worth of hit points for the patient, whoever it is, fallen or removed included."""
    hp, energy, pool, target = condition.hp, condition.energy, condition.heal_pool, condition.target
    healer = shot.shooter & scenario.is_healer
    missing = jnp.sum(jnp.where(shot.victim, scenario.max_hp - hp, 0.0))
    unaffordable = (previous_target != target) & (energy < ENERGY_TO_START_HEALING)
    gives_up = healer & (unaffordable | (missing == 0))
    heals = healer & ~gives_up
    wanted = jnp.minimum(missing, HEALING_PER_SECOND * TICK)
    paid = jnp.where(heals & (pool < wanted), jnp.minimum(energy, 1.0), 0.0)
    pool = pool + HEALING_PER_ENERGY * paid
    healed = jnp.where(heals, jnp.minimum(wanted, pool), 0.0)
    return condition._replace(
        hp=hp + jnp.where(shot.victim, jnp.sum(healed), 0.0),
        energy=energy - paid,
        heal_pool=pool - healed,
        target=jnp.where(gives_up, NOBODY, target),
    )
