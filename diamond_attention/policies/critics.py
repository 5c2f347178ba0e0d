"""The common critic: one value for the whole team, from the team view; used in training only."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.attention import DiamondBlock, Projection, linear, presence_term
from diamond_attention.initialise import orthogonal_linear
from diamond_attention.view import AgentView, TeamView


class CommonCritic(eqx.Module):
    """One unmasked Diamond block, then a mean over each set: no order matters. Without views it knows no ranks."""

    embed_agent: Projection
    embed_task: Projection
    block: DiamondBlock
    agent_projection: Projection
    task_projection: Projection
    hidden: eqx.nn.Linear
    value: eqx.nn.Linear
    reads_views: ClassVar[bool] = False

    def __init__(self, agent_features: int, task_features: int, *, width: int = 64, key: PRNGKeyArray):
        keys = iter(jax.random.split(key, 7))
        self.embed_agent = Projection(agent_features, width, key=next(keys))
        self.embed_task = Projection(task_features, width, key=next(keys))
        self.block = DiamondBlock(width, key=next(keys))
        self.agent_projection, self.task_projection = (Projection(2 * width, width, key=next(keys)) for _ in range(2))
        # Two extra inputs: how many agents and tasks there are, which a mean forgets.
        self.hidden = orthogonal_linear(2 * width + 2, width, scale=2**0.5, key=next(keys))
        self.value = orthogonal_linear(width, 1, scale=1.0, key=next(keys))

    def __call__(self, view: TeamView, views: AgentView | None = None, policy: Any = None) -> Float[Array, ""]:
        agents, tasks = self.embed_agent(view.agents), self.embed_task(view.tasks)
        seen = self.block(tasks, agents, presence_term(view.task_present, view.agent_present)[None])
        agents, tasks = self.agent_projection(*seen.agents), self.task_projection(*seen.tasks)
        counts = jnp.log1p(jnp.stack([jnp.sum(view.agent_present), jnp.sum(view.task_present)]))
        means = [mean_of_present(agents, view.agent_present), mean_of_present(tasks, view.task_present)]
        # One vector: alone, counts of several seeds are read from elsewhere in memory by XLA for GPUs (jax 0.11.2).
        return self.value(jax.nn.silu(linear(self.hidden, jnp.concatenate([*means, counts]))))[0]


def mean_of_present(tokens: Float[Array, "token width"], present: Bool[Array, " token"]) -> Float[Array, " width"]:
    """The mean over the rows that are there; zeros if none is."""
    return jnp.sum(jnp.where(present[:, None], tokens, 0.0), axis=0) / jnp.maximum(jnp.sum(present), 1)
