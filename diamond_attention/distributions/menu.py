"""A distribution over a few vectors, for one agent: how one acts that only chooses, where actions are continuous."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from diamond_attention.distributions.categorical import Categorical


class Menu(eqx.Module):
    choice: Categorical
    entries: Float[Array, "choice component"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, " component"]:
        return self.entries[self.choice.sample(key)]

    def mode(self) -> Float[Array, " component"]:
        return self.entries[self.choice.mode()]

    def log_probability(self, action: Float[Array, " component"]) -> Float[Array, ""]:
        return self.choice.log_probability(nearest_entry(self.entries, action))

    def entropy(self) -> Float[Array, ""]:
        return self.choice.entropy()


def nearest_entry(entries: Float[Array, "choice component"], action: Float[Array, " component"]) -> Int[Array, ""]:
    """Which entry an action was."""
    return jnp.argmin(jnp.sum((entries - action) ** 2, axis=1))
