"""A distribution over continuous actions, for one agent."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Gaussian(eqx.Module):
    """Independent normal components; the world clips what it receives."""

    mean: Float[Array, " component"]
    log_std: Float[Array, " component"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, " component"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, " component"]:
        return self.mean

    def log_probability(self, action: Float[Array, " component"]) -> Float[Array, ""]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2.0 * jnp.pi))

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(self.log_std + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e))
