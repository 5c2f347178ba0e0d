"""What off-policy methods learn from: past steps, kept on the device, the newest in the place of the oldest.

A ring of rows in a few lines, and not a library: the one made for JAX (flashbax) brings Flax, Chex and TensorStore
with it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray


class Replay(NamedTuple):
    """All zero when empty, so that a checkpoint may leave it out."""

    rows: Any  # a pytree of arrays, leading axis: place
    next_place: Int[Array, ""]
    filled: Int[Array, ""]


def empty_replay(one_row: Any, places: int) -> Replay:
    """Room for so many rows like this one, of which only shapes and dtypes matter."""
    rows = jax.tree.map(lambda x: jnp.zeros((places, *x.shape), x.dtype), one_row)
    return Replay(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add_rows(replay: Replay, new: Any) -> Replay:
    """As many rows each time as divide the places: they never wrap around, and XLA writes them in place."""
    places, number = (jax.tree.leaves(rows)[0].shape[0] for rows in (replay.rows, new))
    rows = jax.tree.map(
        lambda old, added: jax.lax.dynamic_update_slice_in_dim(old, added, replay.next_place, 0), replay.rows, new
    )
    return Replay(rows, (replay.next_place + number) % places, jnp.minimum(replay.filled + number, places))


def draw_places(replay: Replay, key: PRNGKeyArray, shape: tuple[int, ...]) -> Int[Array, "..."]:
    """Places of rows that are filled, all equally likely, with repetition; the first while none is."""
    return jax.random.randint(key, shape, 0, jnp.maximum(replay.filled, 1))


def rows_at(replay: Replay, places: Int[Array, " row"]) -> Any:
    return jax.tree.map(lambda rows: rows[places], replay.rows)
