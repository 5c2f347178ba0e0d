"""What an agent can do: the kinds of action, and the distributions policies give over them."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


@dataclass(frozen=True)
class ChooseTask:
    """Pick one of the tasks: one logit for each, however many there are."""


@dataclass(frozen=True)
class Continuous:
    """A vector, clipped to [-1, 1] by the world."""

    size: int


@dataclass(frozen=True)
class ActOrChooseTask:
    """Do one of a few fixed things that concern no task, or act upon one of the tasks, however many there are.

    Actions are the fixed ones first, then one for each task; a view's `legal_actions` has as many entries.
    """

    fixed_actions: int


ActionKind = ChooseTask | Continuous | ActOrChooseTask


class Categorical(eqx.Module):
    """One of several choices; a choice with logit -inf is never taken."""

    logits: Float[Array, " choice"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, ""]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, ""]:
        """The greedy action; equal logits go to the first, so identical agents choose identically."""
        return jnp.argmax(self.logits)

    def log_probability(self, action: Int[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(self.logits)[action]

    def entropy(self) -> Float[Array, ""]:
        log_p = jax.nn.log_softmax(self.logits)
        # 0 log 0 = 0; the inner where keeps the gradient of an impossible choice finite.
        possible = jnp.isfinite(log_p)
        return -jnp.sum(jnp.where(possible, jnp.exp(log_p) * jnp.where(possible, log_p, 0.0), 0.0))


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


Distribution = Categorical | Gaussian
