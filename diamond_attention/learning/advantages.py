"""Generalised advantage estimation that knows a time limit from an ending."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalised_advantages(
    reward: Float[Array, " step"],
    value: Float[Array, "step ..."],
    next_value: Float[Array, "step ..."],
    terminated: Bool[Array, " step"],
    truncated: Bool[Array, " step"],
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "step ..."]:
    """A_t = δ_t + γλ A_{t+1} within an episode, with δ_t = r_t + γ V(s_{t+1}) - V(s_t).

    `next_value` is the value of the state each step led to, before any reset. A terminated episode is worth nothing
    afterwards, so its V(s_{t+1}) is dropped; one that was only cut by a time limit would have gone on, so its
    V(s_{t+1}) stays. Neither passes advantages across the boundary. Values are the team's, or each agent's.
    """
    for_all = (len(reward), *[1] * (value.ndim - 1))
    reward, terminated, truncated = (x.reshape(for_all) for x in (reward, terminated, truncated))
    surprise = reward + gamma * jnp.where(terminated, 0.0, next_value) - value

    def backwards(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, continues = step
        advantage = delta + gamma * gae_lambda * jnp.where(continues, later, 0.0)
        return advantage, advantage

    goes_on = ~(terminated | truncated)
    return jax.lax.scan(backwards, jnp.zeros(value.shape[1:]), (surprise, goes_on), reverse=True)[1]
