"""A continuous action: the viewer weighs the tasks against each other, then a normal distribution."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.attention import linear, small_product, softmax_or_zero
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.initialise import orthogonal_linear


class ChoiceBlock(eqx.Module):
    """What stands in place of a Diamond Attention block where one agent alone reads the tasks.

    Over one agent the softmax of Eq. 4 is 1 for every task, and their sum grows with their number: a team that
    learned on four landmarks stops beside its two or eight. So here it runs over the tasks.
    """

    task_values: eqx.nn.Linear  # W_T

    def __init__(self, width: int, *, key: PRNGKeyArray):
        self.task_values = orthogonal_linear(width, width, scale=1.0, key=key)

    def __call__(
        self,
        tasks: Float[Array, "task width"],
        viewer: Float[Array, " width"],
        task_present: Bool[Array, " task"],
        kept: Bool[Array, " task"] | None = None,
        keep_probability: float = 1.0,
    ) -> tuple[Float[Array, " width"], Float[Array, " task"]]:
        """What the viewer saw of the tasks, and what it gave to each."""
        scores = small_product(tasks, viewer[:, None])[:, 0] / jnp.sqrt(tasks.shape[-1])
        scores = scores + jnp.where(task_present, jnp.float32(0.0), -jnp.inf)  # float32, and so is the softmax
        weights = softmax_or_zero(scores[None])[0].astype(tasks.dtype)
        if kept is not None:
            weights = jnp.where(kept, weights / keep_probability, 0.0)
        return small_product(weights[None], linear(self.task_values, tasks))[0], weights


class ContinuousHead(eqx.Module):
    """A normal distribution around a learned mean; its width is a free parameter, as in SB3."""

    hidden: eqx.nn.Linear
    mean: eqx.nn.Linear
    log_std: Float[Array, " component"]

    def __init__(self, features: int, width: int, components: int, *, key: PRNGKeyArray):
        hidden_key, mean_key = jax.random.split(key)
        self.hidden = orthogonal_linear(features, width, scale=2**0.5, key=hidden_key)
        self.mean = orthogonal_linear(width, components, scale=0.01, key=mean_key)
        self.log_std = jnp.zeros(components)

    def __call__(self, *viewer: Float[Array, " _"]) -> Gaussian:
        return Gaussian(self.mean(jax.nn.silu(linear(self.hidden, *viewer))).astype(jnp.float32), self.log_std)
