"""One battle: its state, its start, and one step of it, as pure functions.

    scenario = scenario_of("2s3z")
    state = start(scenario)
    outcome = step(scenario, state, actions, draw_turn_orders(scenario, key))

Everything is unbatched; `jax.vmap` makes many battles. Precision follows the state: float32 to train, float64
(with `jax.enable_x64`) to compare with the original. Positions are float32 in either case, as they are in
the original.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.worlds.smaclite import avoidance, combat, kernels, observe, targeting
from diamond_attention.worlds.smaclite.scenario import (
    BEST_RETURN,
    NOBODY,
    NOOP,
    STOP,
    TICK,
    TICKS_PER_STEP,
    WIN_REWARD,
    Scenario,
)
from diamond_attention.worlds.smaclite.targeting import Intention, Orders
from diamond_attention.worlds.smaclite.vectors import Vector, pairs, vector


class BattleState(NamedTuple):
    """Everything that is true between two steps. The unit axis is the global id."""

    position: Float32[Array, "unit 2"]
    velocity: Float[Array, "unit 2"]
    hp: Float[Array, " unit"]
    """Of removed units too, where it means nothing; ask `alive`."""
    shield: Float[Array, " unit"]
    cooldown: Float[Array, " unit"]
    """Seconds until the weapon is ready."""
    shield_timer: Float[Array, " unit"]
    """Seconds until the shield grows again."""
    energy: Float[Array, " unit"]
    heal_pool: Float[Array, " unit"]
    target: Int[Array, " unit"]
    """Global id, or NOBODY. It can point at a unit that has just died."""
    attacking: Bool[Array, " unit"]
    """False between steps, except for a unit that fell before its turn and was healed back."""
    alive: Bool[Array, " unit"]
    last_actions: Int[Array, " agent"]
    """NOBODY before the first step."""
    lines_dropped: Int[Array, ""]
    """Constraints of collision avoidance that found no room, so far. Anything but zero deserves a look."""


class Outcome(NamedTuple):
    state: BattleState
    reward: Float[Array, ""]
    done: Bool[Array, ""]
    """One side is gone."""
    won: Bool[Array, ""]
    """No enemy is left; also when both sides vanish together."""


class Tick(NamedTuple):
    """What one tick came to."""

    state: BattleState
    reward: Float[Array, ""]
    """Unscaled, without the one for winning."""


class Decision(NamedTuple):
    """What everybody has made up its mind to do in a tick."""

    target: Int[Array, " unit"]
    intention: Intention


def start(
    scenario: Scenario, key: PRNGKeyArray | None = None, jitter: float = 0.0, dtype: Any = jnp.float32
) -> BattleState:
    """The beginning of a battle: always the same, unless `jitter` moves every unit by up to that much each way.

    A unit that would be moved into a wall or off the map keeps its place.
    """
    units = scenario.number_of_units
    position = jnp.asarray(scenario.start)
    if jitter > 0.0:
        if key is None:
            raise ValueError("A start with jitter needs a key.")
        moved = position + jax.random.uniform(key, position.shape, jnp.float32, -jitter, jitter)
        position = jnp.where(observe.is_free(scenario, vector(moved))[:, None], moved, position)
    zeros = jnp.zeros(units, dtype)
    return BattleState(
        position=position,
        velocity=jnp.zeros((units, 2), dtype),
        hp=jnp.asarray(scenario.max_hp, dtype),
        shield=jnp.asarray(scenario.max_shield, dtype),
        cooldown=zeros,
        shield_timer=zeros,
        energy=jnp.asarray(scenario.first_energy, dtype),
        heal_pool=zeros,
        target=jnp.full(units, NOBODY, jnp.int32),
        attacking=jnp.zeros(units, bool),
        alive=jnp.ones(units, bool),
        last_actions=jnp.full(scenario.number_of_agents, NOBODY, jnp.int32),
        lines_dropped=jnp.zeros((), jnp.int32),
    )


def draw_turn_orders(scenario: Scenario, key: PRNGKeyArray) -> Int[Array, "tick unit"]:
    """A random order of all units for every tick of a step. The dead among them will be passed over.

    Sorted by counting who comes before whom, which for so few is several times faster than a sort.
    """
    ids = scenario.ids
    bits = jax.random.bits(key, (TICKS_PER_STEP, scenario.number_of_units))
    tie = bits[:, :, None] == bits[:, None, :]
    before = (bits[:, :, None] < bits[:, None, :]) | (tie & (ids[:, None] < ids[None, :]))
    turn = jnp.sum(before, axis=1)
    return jnp.sum(jnp.where(turn[:, None, :] == ids[:, None], ids, 0), axis=-1, dtype=jnp.int32)


def step(
    scenario: Scenario,
    state: BattleState,
    actions: Int[Array, " agent"],
    turn_orders: Int[Array, "tick unit"],
    correct_walls: bool = False,
) -> Outcome:
    """Half a second of battle. An illegal action counts as standing still; the original would stop with an error."""
    if kernels.are_used(state.hp.dtype):
        # Late, because what a kernel carries out is said here.
        from diamond_attention.worlds.smaclite import battle_kernels

        return battle_kernels.step(scenario, state, actions, turn_orders, correct_walls)
    return step_plainly(scenario, state, actions, turn_orders, correct_walls)


def step_plainly(
    scenario: Scenario,
    state: BattleState,
    actions: Int[Array, " agent"],
    turn_orders: Int[Array, "tick unit"],
    correct_walls: bool = False,
) -> Outcome:
    """`step` without kernels of our own: on a CPU, in double precision, and what kernels are compared with."""
    return _step(scenario, state, actions, turn_orders, correct_walls, record=False)[0]


def step_and_record(
    scenario: Scenario,
    state: BattleState,
    actions: Int[Array, " agent"],
    turn_orders: Int[Array, "tick unit"],
    correct_walls: bool = False,
) -> tuple[Outcome, Tick]:
    """A step, and every tick of it (a leading tick axis)."""
    outcome, ticks = _step(scenario, state, actions, turn_orders, correct_walls, record=True)
    assert ticks is not None
    return outcome, ticks


@partial(jax.jit, static_argnames=("scenario", "correct_walls", "record"))
def _step(
    scenario: Scenario,
    state: BattleState,
    actions: Int[Array, " agent"],
    turn_orders: Int[Array, "tick unit"],
    correct_walls: bool,
    record: bool,
) -> tuple[Outcome, Tick | None]:
    scenario = scenario.cast(state.hp.dtype)
    actions = allowed(scenario, state, actions)
    orders = targeting.orders_from_actions(scenario, where(state), actions)

    def tick(state: BattleState, turn_order: Int[Array, " unit"]) -> tuple[BattleState, Any]:
        result = play_tick(scenario, state, orders, turn_order, correct_walls)
        return result.state, (result if record else result.reward)

    state, recorded = lax.scan(tick, state._replace(last_actions=actions), turn_orders)
    rewards = recorded.reward if record else recorded
    return end(scenario, state, jnp.sum(rewards)), (recorded if record else None)


def allowed(scenario: Scenario, state: BattleState, actions: Int[Array, " agent"]) -> Int[Array, " agent"]:
    """The actions, standing still in the place of illegal ones."""
    legal = observe.legal_actions(scenario, where(state), state.alive)
    is_legal = jnp.take_along_axis(legal, actions[:, None], axis=1)[:, 0]
    return jnp.where(is_legal, actions, jnp.where(state.alive[scenario.ally_ids], STOP, NOOP)).astype(jnp.int32)


def end(scenario: Scenario, state: BattleState, collected: Float[Array, ""]) -> Outcome:
    reward, over, won = ending(scenario, state.alive, collected)
    return Outcome(state, reward * (BEST_RETURN / scenario.largest_return), over, won)


def ending(scenario: Scenario, alive: Any, collected: Any) -> tuple[Any, Any, Any]:
    """Of a step whose ticks `collected` so much: its unscaled reward, whether the battle is over, whether it is won.

    `alive` may be JAX's array or numpy's, so that `stepped` gets Python's double precision. Scaling is left to the
    caller: multiplying and then dividing, as `stepped` does, gives another last bit than multiplying by one factor.
    """
    won = ~alive[scenario.enemy_ids].any()
    lost = ~alive[scenario.ally_ids].any()
    return collected + WIN_REWARD * won, won | lost, won


def play_tick(
    scenario: Scenario,
    state: BattleState,
    orders: Orders,
    turn_order: Int[Array, " unit"],
    correct_walls: bool = False,
) -> Tick:
    """A sixteenth of a second: everybody decides, everybody finds a way, then each has its turn."""
    scenario = scenario.cast(state.hp.dtype)
    decision = decide(scenario, state, orders)
    way = avoidance.avoid(
        scenario,
        where(state),
        vector(state.velocity),
        decision.intention.velocity,
        decision.intention.capped,
        state.alive,
        correct_walls,
    )
    return act(scenario, state, decision, way, turn_order)


def decide(scenario: Scenario, state: BattleState, orders: Orders) -> Decision:
    position, alive = where(state), state.alive
    target = targeting.drop_targets(scenario, position, state.hp, alive, state.target, orders)
    target, speed = targeting.acquire_targets(scenario, position, state.hp, alive, target)
    return Decision(target, targeting.intend(scenario, position, alive, state.attacking, target, speed, orders))


def act(
    scenario: Scenario,
    state: BattleState,
    decision: Decision,
    way: avoidance.Avoidance,
    turn_order: Int[Array, " unit"],
) -> Tick:
    real, alive, intention = state.hp.dtype, state.alive, decision.intention
    velocity = pairs(way.velocity)
    next_position = (pairs(where(state)) + velocity * TICK).astype(jnp.float32)
    cooldown = jnp.maximum(state.cooldown - TICK, 0.0)
    turns = combat.take_turns(
        scenario,
        combat.Condition(state.hp, state.shield, state.shield_timer, state.energy, state.heal_pool, decision.target),
        alive,
        cooldown,
        state.position,
        next_position,
        intention,
        state.target,
        turn_order,
    )
    condition, acted = turns.condition, turns.acted
    attacks = acted & (intention.victim != NOBODY)
    return Tick(
        state=state._replace(
            position=jnp.where(acted[:, None], next_position, state.position),
            velocity=jnp.where(acted[:, None], velocity, state.velocity),
            hp=condition.hp,
            shield=condition.shield,
            cooldown=jnp.where(turns.fired, scenario.cooldown, jnp.where(acted, cooldown, state.cooldown)).astype(
                real
            ),
            shield_timer=condition.shield_timer,
            energy=condition.energy,
            heal_pool=condition.heal_pool,
            target=condition.target,
            attacking=intention.attacking & ~attacks,
            alive=alive & (condition.hp > 0),
            lines_dropped=state.lines_dropped + way.dropped,
        ),
        reward=turns.reward,
    )


@partial(jax.jit, static_argnames="scenario")
def legal_actions(scenario: Scenario, state: BattleState) -> Bool[Array, "agent action"]:
    return observe.legal_actions(scenario.cast(state.hp.dtype), where(state), state.alive)


@partial(jax.jit, static_argnames="scenario")
def observations(
    scenario: Scenario, state: BattleState, legal: Bool[Array, "agent action"]
) -> Float32[Array, "agent feature"]:
    scenario = scenario.cast(state.hp.dtype)
    return observe.observations(scenario, where(state), state.hp, state.shield, state.alive, legal)


@partial(jax.jit, static_argnames="scenario")
def state_vector(scenario: Scenario, state: BattleState) -> Float32[Array, " feature"]:
    return observe.state_vector(
        scenario.cast(state.hp.dtype),
        where(state),
        state.hp,
        state.shield,
        state.cooldown,
        state.energy,
        state.alive,
        state.last_actions,
    )


def where(state: BattleState) -> Vector:
    return vector(state.position.astype(state.hp.dtype))
