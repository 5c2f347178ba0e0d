"""A method whose answers can be worked out: an update adds up `ENVS` numbers drawn with the seed's own key.

Whole numbers, whose sums have no rounding, so they are equal however seeds and teams are spread.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.learning.contract import Learner, Method

ENVS = 6  # which four devices cannot share evenly
UPDATES = 5


class Sum(NamedTuple):
    total: Any
    teams: Any
    key: Any
    update: Any
    failure: Any


def update(learner: Learner, state: Sum) -> tuple[Sum, dict[str, Any]]:
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.update)
    keys = learner.share(jax.random.split(key, ENVS))
    teams = jax.vmap(lambda k: jax.random.randint(k, (), 0, 100))(keys)
    rows = jax.random.permutation(key, ENVS)
    drawn = learner.share(learner.whole(teams)[rows])
    after = state._replace(total=state.total + jnp.sum(drawn * rows), teams=teams, update=state.update + 1)
    return after, {"total": after.total, "seed": state.key[-1]}


METHOD = Method(None, None, None, update, None, None)  # type: ignore[arg-type]
LEARNER = Learner(None, ((1, 1),), None, None, None, 1, 1)  # type: ignore[arg-type]


def begin(seed: int) -> Sum:
    zero, key = np.zeros((), np.int32), jax.random.key_data(jax.random.key(seed))
    return Sum(np.zeros((), np.float32), np.zeros(ENVS, np.int32), np.asarray(key), zero, zero)


def added(seeds: Sequence[int]) -> tuple[list[Sum], list[list[float]]]:
    """By a plain loop: every seed's state at the end, and its totals on the way."""
    once = jax.jit(lambda state: update(LEARNER, state)[0])
    states, totals = [begin(seed) for seed in seeds], []
    for _ in range(UPDATES):
        states = [once(state) for state in states]
        totals.append([float(state.total) for state in states])
    return states, totals


def same(
    states: Sequence[Any], logs: Sequence[dict[str, Any]], expected: tuple[list[Sum], list[list[float]]]
) -> bool:
    leaves = zip(jax.tree.leaves(list(states)), jax.tree.leaves(expected[0]), strict=True)
    totals = np.concatenate([log["total"] for log in logs])
    return np.array_equal(totals, expected[1]) and all(
        one.dtype == other.dtype and np.array_equal(one, other) for one, other in leaves
    )
