"""Ranks: drawing them, holding them, hearing them, and the mask they make (Eq. 3).

Every agent draws one number and broadcasts it once. The numbers are drawn from a key the run owns, put into the view,
stored with the step and replayed in the update: they are data. If the policy drew them itself, the old and the new
log-probability of an action would belong to different masks. Ranks are float32 always: of 23 random bits a four-agent
team holds a tie about once in 1.4 million draws, of bfloat16's 7 once in twenty.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, PRNGKeyArray

from diamond_attention.view import as_each_viewer_lists

RankHold = int | Literal["episode"]  # steps for which a draw of ranks stays in force


def draw_ranks(key: PRNGKeyArray, number_of_agents: int) -> Float32[Array, " agent"]:
    """One uniform number in [0, 1) for each agent."""
    return jax.random.uniform(key, (number_of_agents,), dtype=jnp.float32)


def hold_ranks(
    held: Float32[Array, " agent"], fresh: Float32[Array, " agent"], step_of_episode: Int[Array, ""], hold: RankHold
) -> Float32[Array, " agent"]:
    """The ranks in force at this step: fresh ones every `hold` steps (1 is the paper), or once an episode."""
    due = step_of_episode == 0 if hold == "episode" else step_of_episode % hold == 0
    return jnp.where(due, fresh, held)


def hear_ranks(ranks: Float32[Array, " agent"]) -> Float32[Array, "viewer agent"]:
    """What each agent hears, its own number first. The broadcast reaches the whole team."""
    return as_each_viewer_lists(ranks)


def rank_mask(ranks: Float32[Array, " agent"]) -> Float[Array, " agent"]:
    """Eq. 3 for one viewer: 0 where a peer ranks at least as high as the viewer (row 0), else -inf.

    Equal ranks see each other, so a tie hides nobody and the viewer always sees itself.
    """
    return jnp.where(ranks >= ranks[0], 0.0, -jnp.inf)


def rank_sign(ranks: Float32[Array, " agent"]) -> Float[Array, " agent"]:
    """For one viewer (row 0): 1 for higher-ranked peers, -1 for lower-ranked ones, 0 for itself and ties."""
    return jnp.sign(ranks - ranks[0])
