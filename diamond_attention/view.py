"""What one agent sees, and what the critic sees.

Everything a policy may know is in an `AgentView`: one agent, one step, in that agent's own frame, unbatched. A team
is `jax.vmap` over views, a batch another one. Nothing else is read: execution is decentralised by construction.
"""

from typing import Any, NamedTuple

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
    noise: Any = None
    """The random data its policy asked for, such as dropout masks: data, so that an update can replay it."""


class TeamView(NamedTuple):
    """All agents and tasks in one common frame: what the critic reads while training, and nobody else."""

    agents: Float[Array, "agent team_feature"]
    tasks: Float[Array, "task team_task_feature"]
    agent_present: Bool[Array, " agent"]
    task_present: Bool[Array, " task"]


def viewer_first(viewer: Int[Array, ""] | int, number_of_agents: int) -> Int[Array, " agent"]:
    """The order in which `viewer` lists the team: itself, then everybody else by index; 2 of 4: [2, 0, 1, 3]."""
    return as_each_viewer_lists(jnp.arange(number_of_agents))[viewer]


def as_each_viewer_lists(values: Shaped[Array, "agent ..."]) -> Shaped[Array, "viewer agent ..."]:
    """One value for each agent, the same to all, listed as every agent would list it."""
    return own_row_first(values[None])


def own_row_first(values: Shaped[Array, "#viewer agent ..."]) -> Shaped[Array, "viewer agent ..."]:
    """What each viewer (a single row: all of them) says of each agent by index, in the order of `viewer_first`."""
    size = values.shape[1]
    own = values[0] if len(values) == 1 else values.reshape(size * size, *values.shape[2:])[:: size + 1]
    # A choice between two shifted copies, not a gather: XLA fuses it, and views of a thousand teams of four take
    # half the time, of eight thousand a fifth.
    listed_before = jnp.expand_dims(jnp.arange(size - 1) < jnp.arange(size)[:, None], range(2, values.ndim))
    return jnp.concatenate([own[:, None], jnp.where(listed_before, values[:, :-1], values[:, 1:])], axis=1)
