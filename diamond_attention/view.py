"""What one agent sees, and what the critic sees.

Everything a policy may know is in an `AgentView`: one agent, one step, in that agent's own frame,
unbatched. A team is `jax.vmap` over views; a batch is another `jax.vmap`. Because the policy reads
nothing else, decentralised execution is true by construction.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Shaped


class AgentView(NamedTuple):
    """What one agent sees this step. Row 0 of every agent axis is the viewer itself."""

    agents: Float[Array, "agent agent_feature"]
    """The viewer and its peers, described in the viewer's own frame."""
    tasks: Float[Array, "task task_feature"]
    """The tasks, described in the viewer's own frame."""
    agent_present: Bool[Array, " agent"]
    """False for padding, for dead agents and for peers out of sight: the same thing to a policy."""
    task_present: Bool[Array, " task"]
    ranks: Float32[Array, " agent"]
    """The random numbers heard this step. They may only ever become a term added to attention scores."""
    legal_actions: Bool[Array, " action"] | None = None
    """Which actions the world allows now; None where every action is always legal."""
    kept_attention: Bool[Array, "block task agent"] | None = None
    """Dropout ablation only: which attention weights survive this step. Data, so an update can replay it."""


class TeamView(NamedTuple):
    """All agents and tasks in one common frame: what the critic reads while training, and nobody else."""

    agents: Float[Array, "agent team_feature"]
    tasks: Float[Array, "task team_task_feature"]
    agent_present: Bool[Array, " agent"]
    task_present: Bool[Array, " task"]


def viewer_first(viewer: Int[Array, ""] | int, number_of_agents: int) -> Int[Array, " agent"]:
    """The order in which `viewer` lists the team: itself, then everybody else by ascending index.

    >>> viewer_first(2, 4).tolist()
    [2, 0, 1, 3]
    """
    others = jnp.arange(number_of_agents - 1)
    others = jnp.where(others < viewer, others, others + 1)
    return jnp.concatenate([jnp.asarray(viewer)[None], others])


def as_each_viewer_lists(values: Shaped[Array, "agent ..."]) -> Shaped[Array, "viewer agent ..."]:
    """One value for each agent, listed as every agent would list it, in the order of `viewer_first`.

    A choice between two shifted copies, not a gather: XLA fuses it, and views of a thousand teams of four
    take half the time, of eight thousand a fifth.
    """
    size = values.shape[0]
    listed_before = jnp.arange(size - 1)[None] < jnp.arange(size)[:, None]
    listed_before = listed_before.reshape(size, size - 1, *[1] * (values.ndim - 1))
    others = jnp.where(listed_before, values[None, :-1], values[None, 1:])
    return jnp.concatenate([values[:, None], others], axis=1)
