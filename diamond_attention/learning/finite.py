"""Which number stopped being finite. A seed that fails keeps its last good state, and says what broke."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Int


def first_non_finite(tensors: Mapping[str, Array]) -> Int[Array, ""]:
    """1 + the index of the first tensor that holds NaN or infinity; 0 if all are finite."""
    broken = jnp.stack([~jnp.all(jnp.isfinite(tensor)) for tensor in tensors.values()])
    return jnp.where(jnp.any(broken), 1 + jnp.argmax(broken), 0).astype(jnp.int32)
