"""How fast SMAClite's battles are, on four maps, the original's observations included."""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.bench.timing import best_of_turns, program_bytes, steps_for, without_compilation_cache
from diamond_attention.worlds.smaclite import battle, kernels
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.scripted import choose_at_random

BATTLES: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": dict.fromkeys(("2s3z", "3s5z", "MMM2", "27m_vs_30m"), (256,)),
    # Fewer battles of 57 units, which make thirty times the pairs that ten do.
    "gpu": {
        "2s3z": (1024, 8192, 65_536),
        "3s5z": (1024, 8192, 65_536),
        "MMM2": (1024, 8192, 32_768),
        "27m_vs_30m": (1024, 8192),
    },
}
"""SMAClite: how many battles at once on each map."""
STEPS_A_CALL_OF_BATTLES = 16
"""Fewer, because a step of a large battle takes long on a CPU."""
STEPS_BEFORE_BATTLES_ARE_TIMED = 64
"""Longer than most random battles last, so that early and late situations are mixed as in training."""


def random_battles(map_name: str, envs: int) -> tuple[Any, Any]:
    """A function (battles, key) -> (battles, what was seen) of some steps, to be compiled, and `envs` battles.

    Random legal actions, the original's observations. Battles begin anew as they end or reach the map's time limit.
    """
    scenario = scenario_of(map_name)
    first = battle.start(scenario)

    def one_step(carry: tuple[battle.BattleState, Array], key: PRNGKeyArray) -> tuple[Any, tuple[Array, Array]]:
        state, step_of_battle = carry
        action_key, order_key = jax.random.split(key)
        actions = choose_at_random(action_key, battle.legal_actions(scenario, state))
        outcome = battle.step(scenario, state, actions, battle.draw_turn_orders(scenario, order_key))
        legal = battle.legal_actions(scenario, outcome.state)
        # Summed, or the compiler would leave out what nobody reads.
        seen = jnp.sum(battle.observations(scenario, outcome.state, legal))
        over = outcome.done | (step_of_battle + 1 >= scenario.map.time_limit)
        fresh = first._replace(lines_dropped=outcome.state.lines_dropped)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, outcome.state)
        return (state, jnp.where(over, 0, step_of_battle + 1)), (outcome.reward, seen)

    @jax.jit
    def many_steps(carry: Any, key: PRNGKeyArray) -> Any:
        keys = jax.random.split(key, (envs, STEPS_A_CALL_OF_BATTLES))
        return jax.vmap(lambda one, keys: jax.lax.scan(one_step, one, keys))(carry, keys)

    return many_steps, jax.vmap(lambda _: (first, jnp.zeros((), jnp.int32)))(jnp.arange(envs))


def measure_battles(map_name: str, envs: int) -> dict[str, Any]:
    """Steps a second of `envs` battles of SMAClite at once.

    Constraints of collision avoidance that found no room in the map's budget are counted beside it.
    """
    scenario = scenario_of(map_name)
    many_steps, carry = random_battles(map_name, envs)
    with without_compilation_cache():
        started = time.perf_counter()
        program = many_steps.lower(carry, jax.random.key(0)).compile()
        compile_seconds = time.perf_counter() - started
    calls = 0

    def play(steps: int) -> None:
        nonlocal carry, calls
        for _ in range(steps // STEPS_A_CALL_OF_BATTLES):
            carry, _ = program(carry, jax.random.key(calls))
            calls += 1
        jax.block_until_ready(carry)

    play(STEPS_BEFORE_BATTLES_ARE_TIMED)
    steps = steps_for(play, STEPS_A_CALL_OF_BATTLES)
    best = best_of_turns({"ours": partial(play, steps)})
    return {
        "map": map_name,
        "envs": envs,
        "kernels": kernels.are_used(carry[0].hp.dtype),
        "agents": scenario.number_of_agents,
        "enemies": scenario.number_of_enemies,
        "steps_per_second": envs * steps / best["ours"],
        "compile_seconds": compile_seconds,
        "steps_played": envs * STEPS_A_CALL_OF_BATTLES * calls,
        "lines_dropped": int(carry[0].lines_dropped.sum()),
        "program_bytes": program_bytes(program),
    }
