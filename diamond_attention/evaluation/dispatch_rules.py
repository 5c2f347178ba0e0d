"""What a score in Dispatch is worth: programmed rules that decide in the order of the ranks, as commitments do.

    nearest    the nearest job that nobody of higher rank has claimed, if one is left
    best       the unclaimed job that earns the vehicle most; it stays where none earns anything

Both know what is claimed and nothing of who decides later.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from diamond_attention.play import begin_episode
from diamond_attention.ranks import draw_ranks
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import STAY, Dispatch, DispatchState, distances

Rule = Literal["nearest", "best"]


def decide_by_rule(
    world: Dispatch, state: DispatchState, ranks: Float32[Array, " agent"], rule: Rule
) -> Int[Array, " agent"]:
    """What every vehicle does. Of equal ranks the one with the lower number decides first."""
    worth = -distances(state) if rule == "nearest" else world.gains(state)

    def one_turn(free: Array, vehicle: Int[Array, ""]) -> tuple[Array, Array]:
        open_ = jnp.where(free, worth[vehicle], -jnp.inf)
        job = jnp.argmax(open_)
        goes = state.agent_present[vehicle] & (open_[job] > (-jnp.inf if rule == "nearest" else 0.0))
        return free & ~(goes & (jnp.arange(len(free)) == job)), jnp.where(goes, job + 1, STAY)

    order = jnp.argsort(-ranks)
    _, decided = jax.lax.scan(one_turn, state.task_present, order)
    return jnp.zeros(len(order), jnp.int32).at[order].set(decided.astype(jnp.int32))


def shares_by_rule(
    world: Dispatch, size: TeamSize, rule: Rule, *, episodes: int, seed: int
) -> Float[np.ndarray, " e"]:
    """The share of the optimum in each of so many episodes."""
    keys = jax.random.split(jax.random.key(seed), episodes)
    return np.asarray(_play(world, rule, jnp.asarray(size, jnp.int32), keys))


@partial(jax.jit, static_argnums=(0, 1))
def _play(world: Dispatch, rule: Rule, size: Array, keys: Array) -> Float[Array, " episode"]:
    def one_episode(key: Array) -> Array:
        reset_key, play_key = jax.random.split(key)
        state = begin_episode(world, size[None], reset_key).world

        def one_wave(state: DispatchState, key: Array) -> tuple[DispatchState, Array]:
            rank_key, step_key = jax.random.split(key)
            actions = decide_by_rule(world, state, draw_ranks(rank_key, world.max_agents), rule)
            after = world.step(state, actions, step_key)
            return after.state, after.measures["share"]

        return jnp.sum(jax.lax.scan(one_wave, state, jax.random.split(play_key, world.waves))[1])

    return jax.lax.map(one_episode, keys, batch_size=64)
