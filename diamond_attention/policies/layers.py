"""Plain linear layers one after the other, with SiLU between them: what off-policy baselines are made of."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.initialise import orthogonal_linear


class Layers(eqx.Module):
    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, sizes: Sequence[int], *, last_scale: float = 1.0, key: PRNGKeyArray):
        """`sizes`: of the input, of every hidden layer, of the output."""
        pairs = list(pairwise(sizes))
        scales = [2**0.5] * (len(pairs) - 1) + [last_scale]
        self.layers = tuple(
            orthogonal_linear(before, after, scale=scale, key=own)
            for (before, after), scale, own in zip(pairs, scales, jax.random.split(key, len(pairs)), strict=True)
        )

    def __call__(self, x: Float[Array, " feature"]) -> Float[Array, " out"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.silu(layer(x))
        return last(x)
