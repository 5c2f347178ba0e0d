"""Points and directions of the plane, component by component.

The components are separate arrays of one shape. An array with a last axis of two would make the compiler
work on pairs; this way it works on whole rows of units.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Components = Float[Array, "..."]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Vector:
    x: Components
    y: Components

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(self.x - other.x, self.y - other.y)

    def __neg__(self) -> "Vector":
        return Vector(-self.x, -self.y)

    def __mul__(self, factor: Any) -> "Vector":
        return Vector(self.x * factor, self.y * factor)

    def __truediv__(self, divisor: Any) -> "Vector":
        return Vector(self.x / divisor, self.y / divisor)

    def __getitem__(self, index: Any) -> "Vector":
        return Vector(self.x[index], self.y[index])


def vector(pairs: Float[Array, "... 2"]) -> Vector:
    return Vector(pairs[..., 0], pairs[..., 1])


def pairs(vectors: Vector) -> Float[Array, "... 2"]:
    return jnp.stack([vectors.x, vectors.y], axis=-1)


def dot(a: Vector, b: Vector) -> Components:
    return a.x * b.x + a.y * b.y


def det(a: Vector, b: Vector) -> Components:
    """Positive when b lies to the left of a."""
    return a.x * b.y - a.y * b.x


def squared(a: Vector) -> Components:
    return dot(a, a)


def length(a: Vector) -> Components:
    return jnp.sqrt(squared(a))


def unit(a: Vector) -> Vector:
    """The direction of a; zero for zero, where the original would divide by it."""
    size = length(a)
    return a / jnp.where(size > 0, size, 1.0)


def choose(condition: Array, a: Vector, b: Vector) -> Vector:
    return Vector(jnp.where(condition, a.x, b.x), jnp.where(condition, a.y, b.y))
