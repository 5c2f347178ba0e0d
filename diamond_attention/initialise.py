"""How linear layers begin."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray


def orthogonal_linear(features: int, out: int, *, scale: float, key: PRNGKeyArray) -> eqx.nn.Linear:
    """A linear layer with orthogonal weights and zero bias.

    Never build one inside `jax.vmap`: a batched QR deadlocks XLA's CPU runtime. Build each seed's and stack them.
    """
    layer = eqx.nn.Linear(features, out, key=key)
    weight = jax.nn.initializers.orthogonal(scale)(key, (out, features), jnp.float32)
    return eqx.tree_at(lambda linear: (linear.weight, linear.bias), layer, (weight, jnp.zeros(out)))
