"""What an agent can do: the kinds of action."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray


@dataclass(frozen=True)
class ChooseTask:
    """Pick one of the tasks: one logit for each, however many there are."""


@dataclass(frozen=True)
class Continuous:
    """A vector, clipped to [-1, 1] by the world."""

    size: int


@dataclass(frozen=True)
class ActOrChooseTask:
    """Do one of a few fixed things that concern no task, or act upon one of the tasks, however many there are.

    Actions are the fixed ones first, then one for each task; a view's `legal_actions` has as many entries.
    """

    fixed_actions: int


ActionKind = ChooseTask | Continuous | ActOrChooseTask

Actions = Any
"""One action for each agent, absent ones included: Int[agent] to choose, Float[agent, component] if continuous."""


def random_actions(action_kind: ActionKind, views: Any, key: PRNGKeyArray) -> Actions:
    """One action for each of a team's views (an `AgentView` with an agent axis in front), all equally likely.

    Of `legal_actions`, or of the tasks present where a view has none; continuous actions lie in [-1, 1].
    """
    if isinstance(action_kind, Continuous):
        return jax.random.uniform(key, (len(views.ranks), action_kind.size), minval=-1.0, maxval=1.0)
    return choose_uniformly(key, views.task_present if views.legal_actions is None else views.legal_actions)


def choose_uniformly(key: PRNGKeyArray, allowed: Bool[Array, "*batch choice"]) -> Int[Array, " *batch"]:
    """Any of the choices that are allowed, all equally likely; the first where none is."""
    return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)
