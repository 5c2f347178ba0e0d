"""Normalised values (PopArt): the critic predicts values less their running mean, over their running deviation."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

RATE = 0.1  # share of each new update in the running moments: they must follow as the team improves


class ValueScale(NamedTuple):
    """Running moments of the values to be predicted: a debiased exponential average over updates."""

    mean: Float[Array, ""]
    mean_square: Float[Array, ""]
    weight: Float[Array, ""]

    def centre_and_deviation(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """0 and 1 before anything was seen. The deviation is at least a tenth of the values' size.

        Where all values are nearly the same, one step of the critic would otherwise be nearly nothing.
        """
        weight = jnp.where(self.weight > 0, self.weight, 1.0)
        centre, square = self.mean / weight, self.mean_square / weight
        deviation = jnp.sqrt(jnp.maximum(square - centre**2, jnp.maximum(0.01 * square, 1e-6)))
        return centre, jnp.where(self.weight > 0, deviation, 1.0)


def follow_values(critic: Any, scale: ValueScale, targets: Array) -> tuple[Any, ValueScale]:
    """Moves the scale towards these targets, and the critic's last layer so that every value stays what it was."""
    seen = (jnp.mean(targets), jnp.mean(targets**2), jnp.ones(()))
    moved = ValueScale(*[(1 - RATE) * old + RATE * new for old, new in zip(scale, seen, strict=True)])
    (old_centre, old_deviation), (centre, deviation) = scale.centre_and_deviation(), moved.centre_and_deviation()
    last = critic.value
    weight = last.weight * old_deviation / deviation
    bias = (last.bias * old_deviation + old_centre - centre) / deviation
    return eqx.tree_at(lambda c: (c.value.weight, c.value.bias), critic, (weight, bias)), moved
