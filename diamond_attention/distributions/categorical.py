"""A distribution over choices, for one agent."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Categorical(eqx.Module):
    """One of several choices; a choice with logit -inf is never taken."""

    logits: Float[Array, " choice"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, ""]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, ""]:
        return jnp.argmax(self.logits)  # equal logits go to the first, so identical agents choose identically

    def log_probability(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(self.logits)[action]

    def entropy(self) -> Float[Array, ""]:
        log_p = jax.nn.log_softmax(self.logits)
        # 0 log 0 = 0; the inner where keeps the gradient of an impossible choice finite.
        possible = jnp.isfinite(log_p)
        return -jnp.sum(jnp.where(possible, jnp.exp(log_p) * jnp.where(possible, log_p, 0.0), 0.0))
