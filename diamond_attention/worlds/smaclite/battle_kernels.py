"""A step of many battles side by side as a few kernels: two in each tick, where XLA needs a hundred and fifty.

Targets, orders, fighting and healing have a lane for each battle, avoidance has one for each unit of each battle: it
is most of the work, and one unit's way is no other's concern. What is computed is said in `battle` and nowhere else.
"""

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int

from diamond_attention.errors import notice
from diamond_attention.worlds.smaclite import avoidance, battle, targeting
from diamond_attention.worlds.smaclite.avoidance import Avoidance, Walkers
from diamond_attention.worlds.smaclite.kernels import LANES, SWITCH, UNITS_UNASKED, in_lanes, no_kernels
from diamond_attention.worlds.smaclite.scenario import Scenario
from diamond_attention.worlds.smaclite.vectors import Vector, vector


def step(
    scenario: Scenario, state: battle.BattleState, actions: Array, turn_orders: Array, correct_walls: bool
) -> battle.Outcome:
    """`battle.step`, in kernels where the program runs on a GPU. All batches, of whatever `vmap`, are one batch."""
    if not are_used_for(scenario, correct_walls):
        return battle.step_plainly(scenario, state, actions, turn_orders, correct_walls)
    alone = jax.tree.map(lambda values: values[..., None], (state, actions, turn_orders))
    return jax.tree.map(lambda values: values[..., 0], _joined(scenario, correct_walls)(*alone))


@lru_cache(maxsize=32)
def are_used_for(scenario: Scenario, correct_walls: bool) -> bool:
    """Whether this GPU's compiler takes the kernels of this map: asked before a whole training depends on them."""
    if SWITCH not in os.environ and (doubt := _doubt(scenario)):
        notice(f"{doubt}, so battles go the slower, ordinary way; {SWITCH}=on asks for them.")
        return False

    def one_battle() -> Any:
        orders = battle.draw_turn_orders(scenario, jax.random.key(0))
        return battle.start(scenario), jnp.zeros(scenario.number_of_agents, jnp.int32), orders

    shapes = jax.tree.map(
        lambda one: jax.ShapeDtypeStruct((*one.shape, LANES), one.dtype), jax.eval_shape(one_battle)
    )
    try:
        jax.jit(partial(step_side_by_side, scenario, correct_walls=correct_walls)).lower(*shapes).compile()
    except Exception as error:  # neither Pallas nor Triton nor XLA has one type for what it cannot do
        return no_kernels(f"{jax.devices()[0].device_kind} for {scenario.map.name}", error)
    return True


def _doubt(scenario: Scenario) -> str:
    """Why kernels may not be what is wanted, where nobody said so."""
    if jax.device_count() > 1:
        # The compiler would bring all battles to every device, since it does not know how to part a kernel.
        return "SMAClite's kernels are for one GPU, and several are to be seen here"
    if scenario.number_of_units > UNITS_UNASKED:
        return f"SMAClite's kernels of {scenario.map.name} take minutes to compile"
    return ""


@lru_cache(maxsize=32)
def _joined(scenario: Scenario, correct_walls: bool) -> Callable[..., battle.Outcome]:
    def plainly(*given: Any) -> Any:
        one = partial(battle.step_plainly, scenario, correct_walls=correct_walls)
        return jax.vmap(one, in_axes=-1, out_axes=-1)(*given)

    # A program by itself, so that its tables stay within. Handed over from outside they would be batched where
    # maps are mixed, which `custom_vmap` refuses.
    @custom_vmap
    @jax.jit
    def step_many(*given: Any) -> Any:
        kernel = partial(step_side_by_side, scenario, correct_walls=correct_walls)
        return lax.platform_dependent(*given, cuda=kernel, default=plainly)

    @step_many.def_vmap
    def _more(axis_size: int, in_batched: list, *given: Any) -> tuple[Any, Any]:
        def join(values: Array, batched: bool) -> Array:
            values = values if batched else jnp.broadcast_to(values, (axis_size, *values.shape))
            return jnp.moveaxis(values, 0, -1).reshape(*values.shape[1:-1], -1)

        def split(values: Array) -> Array:
            return jnp.moveaxis(values.reshape(*values.shape[:-1], -1, axis_size), -1, 0)

        found = jax.tree.map(split, step_many(*jax.tree.map(join, given, tuple(in_batched))))
        return found, jax.tree.map(lambda _: True, found)

    return step_many


def step_side_by_side(
    scenario: Scenario,
    state: battle.BattleState,
    actions: Int[Array, "agent battle"],
    turn_orders: Int[Array, "tick unit battle"],
    correct_walls: bool = False,
    interpret: bool = False,
) -> battle.Outcome:
    """`battle.step` in float32; every array has a last axis of battles."""
    scenario = scenario.cast(jnp.float32)
    run = partial(in_lanes, interpret=interpret)

    def begin(given: Any) -> Any:
        state, actions = given
        orders = targeting.orders_from_actions(scenario, battle.where(state), actions)
        return orders, battle.decide(scenario, state, orders)

    def act(given: Any) -> Any:
        state, decision, velocity, dropped, turn_order, orders, collected = given
        way = Avoidance(velocity, jnp.sum(dropped, dtype=jnp.int32))
        state, reward = battle.act(scenario, state, decision, way, turn_order)
        return state, battle.decide(scenario, state, orders), collected + reward

    # Compiled apart, so that what is called in every tick is one program.
    run_begin, run_act = (jax.jit(partial(run, each, f"smaclite_{each.__name__}")) for each in (begin, act))
    find_ways = jax.jit(partial(avoid_side_by_side, scenario, correct_walls=correct_walls, interpret=interpret))
    # Handed over, or the compiler would make them anew in every tick.
    constants = tuple(map(jnp.asarray, (scenario.ids, scenario.radius, scenario.speed, scenario.flies)))

    # Which ground is free is a large table, and asking it is better left to XLA.
    each = partial(jax.vmap, in_axes=-1, out_axes=-1)
    actions = each(partial(battle.allowed, scenario))(state, actions)
    orders, decision = run_begin((state, actions))
    state = state._replace(last_actions=actions)
    collected = jnp.zeros(state.hp.shape[-1:], state.hp.dtype)
    # Written out: a loop would copy what it carries.
    for turn_order in turn_orders:
        velocity, dropped = find_ways(state, decision, constants)
        state, decision, collected = run_act((state, decision, velocity, dropped, turn_order, orders, collected))
    return each(partial(battle.end, scenario))(state, collected)


def avoid_side_by_side(
    scenario: Scenario,
    state: battle.BattleState,
    decision: battle.Decision,
    constants: tuple[Array, ...],
    correct_walls: bool,
    interpret: bool,
) -> tuple[Vector, Int[Array, "unit battle"]]:
    intention = decision.intention

    def avoid(everybody: Any, own: Any, constants: Any) -> Any:
        position, velocity, wanted, alive = everybody
        others = avoidance.walkers(
            scenario, *(expand(values) for values in (vector(position), vector(velocity), wanted, alive))
        )
        position, velocity, wanted, capped, alive = own
        own_id, radius, speed, flies = constants
        moves = alive & ((wanted.x != 0) | (wanted.y != 0))
        walker = Walkers(own_id, radius, speed, flies, vector(position), vector(velocity), alive, moves)
        walker, wanted, capped = jax.tree.map(lambda value: value[None, None], (walker, wanted, capped))
        way, dropped = avoidance.ways(scenario, others, walker, wanted, capped, correct_walls)
        return jax.tree.map(lambda value: value[0, 0], (way, dropped))

    def expand(values: Any) -> Any:
        return jax.tree.map(lambda value: value[:, None], values)

    return in_lanes(
        avoid,
        "smaclite_avoid",
        (state.position, state.velocity, intention.velocity, state.alive),
        (state.position, state.velocity, intention.velocity, intention.capped, state.alive),
        constants,
        interpret,
    )
