"""Several seeds of one method in one program: stacked, advanced, and taken apart again."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.learning.contract import Learner, LearnerState, Method

MOST_UPDATES_PER_CALL = 100

Advance = Callable[[LearnerState, Any], tuple[LearnerState, dict[str, jax.Array]]]


def stack_seeds(states: Sequence[LearnerState]) -> LearnerState:
    """One learner with a leading seed axis. Through NumPy: slicing on the device would compile for every shape."""
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(list(states))))


def split_seeds(stacked: LearnerState) -> list[LearnerState]:
    """The learners of `stack_seeds`, as NumPy arrays."""
    arrays = jax.device_get(stacked)
    return [jax.tree.map(lambda x: x[i], arrays) for i in range(len(arrays.update))]  # noqa: B023 - used at once


def advance_seeds(method: Method, learner: Learner) -> Advance:
    """`advance(states, count)`: `count` updates of all stacked seeds, and their metrics [update, seed].

    The count is a value, not a shape, so every split of a run into calls runs the same program and gives
    the same bits. That is what makes a resumed run equal to one that was never stopped.
    """

    def update_all(states: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        def one(state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
            state, metrics = method.update(learner, state)
            return state, {**metrics, "failure": state.failure}

        return jax.vmap(one)(states)

    @partial(jax.jit, donate_argnums=0)
    def advance(states: LearnerState, count: Any) -> tuple[LearnerState, dict[str, jax.Array]]:
        shapes = jax.eval_shape(update_all, states)[1]
        log = jax.tree.map(lambda x: jnp.zeros((MOST_UPDATES_PER_CALL, *x.shape), x.dtype), shapes)

        def one_update(i: Any, carry: Any) -> Any:
            states, log = carry
            states, metrics = update_all(states)
            return states, jax.tree.map(lambda rows, row: rows.at[i].set(row), log, metrics)

        return jax.lax.fori_loop(0, count, one_update, (states, log))

    return advance


# A run that is resumed where it was trained, or trained again, need not be traced again, which takes seconds.
advance_seeds_once = lru_cache(maxsize=4)(advance_seeds)
