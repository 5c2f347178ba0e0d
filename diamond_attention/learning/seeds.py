"""Several seeds of one method in one program: stacked, advanced, and taken apart again."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.learning.contract import Learner, LearnerState, Method
from diamond_attention.learning.devices import all_on, place, shared_by
from diamond_attention.learning.finite import first_non_finite

MOST_UPDATES_PER_CALL = 100

Advance = Callable[[LearnerState, Any], tuple[LearnerState, dict[str, jax.Array]]]


def stack_seeds(states: Sequence[LearnerState], devices: Sequence[jax.Device] = ()) -> LearnerState:
    """One learner with a leading seed axis. Through NumPy: slicing on the device would compile for every shape."""
    return place(jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(list(states))), devices)


def split_seeds(stacked: LearnerState) -> list[LearnerState]:
    """The learners of `stack_seeds`, as NumPy arrays."""
    arrays = jax.device_get(stacked)
    return [jax.tree.map(lambda x: x[i], arrays) for i in range(len(arrays.update))]  # noqa: B023 - used at once


def advance_seeds(method: Method, learner: Learner, devices: tuple[jax.Device, ...] = ()) -> Advance:
    """`advance(states, count)`: `count` updates of all stacked seeds, and their metrics [update, seed].

    The count is a value, not a shape, so every split of a run into calls runs the same program and gives
    the same bits. That is what makes a resumed run equal to one that was never stopped. Several `devices` share the
    work of each seed; otherwise it is done where the states are.
    """
    several: dict[str, Any] = {}
    if len(devices) > 1:
        learner, several = shared_by(learner, devices), {"out_shardings": all_on(devices)}

    def update_all(states: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        def one(state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
            after, metrics = method.update(learner, state)
            # Whatever a method makes, nothing that is not finite is kept: a seed that fails now, or failed before,
            # stays in its last good state. The barrier keeps XLA from computing `failure` anew in every selection.
            unfit = -first_non_finite(_floats(after))
            failure = jnp.where(
                state.failure != 0, state.failure, jnp.where(after.failure != 0, after.failure, unfit)
            )
            failure = jax.lax.optimization_barrier(failure)
            kept, rest = _replay_apart(after)
            state = jax.tree.map(lambda new, old: jnp.where(failure != 0, old, new), rest, _replay_apart(state)[1])
            return state._replace(failure=failure, **kept), {**metrics, "failure": failure}

        return jax.vmap(one)(states)

    @partial(jax.jit, donate_argnums=0, **several)
    def advance(states: LearnerState, count: Any) -> tuple[LearnerState, dict[str, jax.Array]]:
        shapes = jax.eval_shape(update_all, states)[1]
        log = jax.tree.map(lambda x: jnp.zeros((MOST_UPDATES_PER_CALL, *x.shape), x.dtype), shapes)

        def one_update(i: Any, carry: Any) -> Any:
            states, log = carry
            states, metrics = update_all(states)
            return states, jax.tree.map(lambda rows, row: rows.at[i].set(row), log, metrics)

        return jax.lax.fori_loop(0, count, one_update, (states, log))

    return advance


def _replay_apart(state: LearnerState) -> tuple[dict[str, Any], LearnerState]:
    """Past steps, where a state has them, and the rest: to go through gigabytes after each update takes too long.

    A seed that failed never plays, learns or is saved again, so what stands in its replay no longer matters.
    """
    kept = {"replay": state.replay} if hasattr(state, "replay") else {}
    return kept, state._replace(**dict.fromkeys(kept))


def _floats(state: LearnerState) -> dict[str, Any]:
    """Every array of the state that could stop being finite, by name; past steps apart."""
    leaves = jax.tree_util.tree_leaves_with_path(_replay_apart(state)[1])
    named = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    return {name: leaf for name, leaf in named.items() if jnp.issubdtype(leaf.dtype, jnp.floating)}


def name_of_failure(method: Method, state: LearnerState, failure: int) -> str:
    """What is not finite: a part of the update, which the method knows, or of the state that it made."""
    return method.failed_part(state, failure) if failure > 0 else list(_floats(state))[-failure - 1]


def name_of_broken(tensors: Sequence[str], weights: Any, failure: int) -> str:
    """What a method's failure number stands for: a tensor it learns from, the loss, or an entry of the gradient.

    Entries are counted through all arrays of the weights, laid out one after the other.
    """
    names = [*tensors, "loss"]
    if failure <= len(names):
        return names[failure - 1]
    entry = failure - len(names) - 1
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights):
        if entry < leaf.size:
            return "gradient." + jax.tree_util.keystr(path, simple=True, separator=".")
        entry -= leaf.size
    raise ValueError("no tensor has that number")


# A run that is resumed where it was trained, or trained again, need not be traced again, which takes seconds.
advance_seeds_once = lru_cache(maxsize=4)(advance_seeds)
