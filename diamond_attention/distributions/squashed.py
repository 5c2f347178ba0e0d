"""A normal distribution pressed into a box, for one agent: what soft actor-critic acts with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

NODES, SHARES = np.polynomial.hermite_e.hermegauss(16)
"""Of Gauss's quadrature for a standard normal variable; the shares add up to √(2π)."""


class Squashed(eqx.Module):
    """The hyperbolic tangent of independent normal components: every action lies inside [-1, 1]."""

    mean: Float[Array, " component"]
    log_std: Float[Array, " component"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, " component"]:
        return self.sample_with_log_probability(key)[0]

    def sample_with_log_probability(self, key: PRNGKeyArray) -> tuple[Float[Array, " component"], Float[Array, ""]]:
        """Both from the number before it is squashed, so that gradients pass and nothing is lost near the walls."""
        noise = jax.random.normal(key, self.mean.shape)
        before = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(before), self._log_density(noise, before)

    def mode(self) -> Float[Array, " component"]:
        return jnp.tanh(self.mean)

    def log_probability(self, action: Float[Array, " component"]) -> Float[Array, ""]:
        # float32's tanh reaches 1 at about 9; an action there is taken for one just inside.
        before = jnp.arctanh(jnp.clip(action, -1.0 + 1e-6, 1.0 - 1e-6))
        return self._log_density((before - self.mean) * jnp.exp(-self.log_std), before)

    def entropy(self) -> Float[Array, ""]:
        """The normal distribution's, and the mean of what squashing adds, by quadrature."""
        before = self.mean[:, None] + jnp.exp(self.log_std)[:, None] * jnp.asarray(NODES, jnp.float32)
        shares = jnp.asarray(SHARES / SHARES.sum(), jnp.float32)
        return jnp.sum(self.log_std + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e)) + jnp.sum(log_slope(before) @ shares)

    def _log_density(self, noise: Float[Array, " component"], before: Float[Array, " component"]) -> Float[Array, ""]:
        return jnp.sum(-0.5 * noise**2 - self.log_std - 0.5 * jnp.log(2.0 * jnp.pi) - log_slope(before))


def log_slope(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """log(1 − tanh² x), written so that it neither overflows nor rounds to log 0."""
    return 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
