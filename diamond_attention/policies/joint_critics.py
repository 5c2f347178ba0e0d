"""Critics of soft actor-critic, used in training only: they read what every agent sees, and what all do."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.actions import Actions, Continuous
from diamond_attention.policies.flat import number_of_outputs, observation_of, observation_size
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.layers import Layers
from diamond_attention.view import AgentView

HiddenSizes = Callable[[int, int], Sequence[int]]
"""The hidden layers of a critic with that many inputs, for that many agents."""


class JointCritic(eqx.Module):
    """Where actions are continuous, one value of what all do; else a value of every action of every agent."""

    layers: Layers
    agents: int = eqx.field(static=True)
    continuous: bool = eqx.field(static=True)
    sees_peers: bool = eqx.field(static=True)

    def __init__(self, interface: Interface, hidden: HiddenSizes, *, key: PRNGKeyArray):
        self.agents, self.sees_peers = interface.max_agents, interface.sees_peers
        self.continuous = isinstance(interface.action_kind, Continuous)
        actions = number_of_outputs(interface.action_kind, interface.max_tasks)
        seen = observation_size(interface) + (actions if self.continuous else 0)
        inputs, outputs = self.agents * seen, 1 if self.continuous else self.agents * actions
        self.layers = Layers([inputs, *hidden(inputs, self.agents), outputs], key=key)

    def __call__(self, views: AgentView, actions: Actions = None) -> Float[Array, "*any"]:
        seen = jax.vmap(lambda view: observation_of(view, self.sees_peers))(views).reshape(-1)
        if self.continuous:
            return self.layers(jnp.concatenate([seen, actions.reshape(-1)]))[0]
        return self.layers(seen).reshape(self.agents, -1)


class Twins(eqx.Module):
    """Two critics that know nothing of each other. Targets take the lower value: one alone overestimates."""

    first: JointCritic
    second: JointCritic

    def both(self, *arguments: Any) -> Float[Array, "2 *any"]:
        return jnp.stack([self.first(*arguments), self.second(*arguments)])

    def lower(self, *arguments: Any) -> Float[Array, "*any"]:
        return jnp.min(self.both(*arguments), axis=0)


def build_twins(interface: Interface, hidden: HiddenSizes, key: PRNGKeyArray) -> Twins:
    first, second = jax.random.split(key)
    return Twins(JointCritic(interface, hidden, key=first), JointCritic(interface, hidden, key=second))
