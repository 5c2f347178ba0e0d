"""The actor of MASAC: a flat observation, and a distribution whose width it learns for every observation."""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from diamond_attention.actions import Continuous
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.squashed import Squashed
from diamond_attention.policies.contract import Attention, PerAgentPolicy
from diamond_attention.policies.flat import allowed_actions, number_of_outputs, observation_of, observation_size
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.layers import Layers
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView

NARROWEST, WIDEST = -5.0, 2.0
"""Logarithms of the standard deviation before squashing."""


@dataclass(frozen=True)
class SoftSettings:
    """Two hidden layers on a flat observation, shared by all agents, tanh-normal actions; for one team size."""

    kind: Literal["soft"] = "soft"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 256
    """Of each hidden layer. More: more capacity; time grows with its square."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")


class SoftPolicy(PerAgentPolicy):
    layers: Layers
    continuous: bool = eqx.field(static=True)
    sees_peers: bool = eqx.field(static=True)

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        answer = self.layers(observation_of(view, self.sees_peers))
        if self.continuous:
            mean, width = jnp.split(answer, 2)
            return Squashed(mean, within(width)), ()
        return Categorical(jnp.where(allowed_actions(view), answer, -jnp.inf)), ()


def within(width):
    """Any number as the logarithm of a standard deviation, between the narrowest and the widest."""
    return NARROWEST + 0.5 * (WIDEST - NARROWEST) * (jnp.tanh(width) + 1.0)


def build_soft(settings: SoftSettings, interface: Interface, key: PRNGKeyArray) -> SoftPolicy:
    continuous = isinstance(interface.action_kind, Continuous)
    outputs = number_of_outputs(interface.action_kind, interface.max_tasks) * (2 if continuous else 1)
    sizes = [observation_size(interface), settings.width, settings.width, outputs]
    return SoftPolicy(Layers(sizes, last_scale=0.01, key=key), continuous, interface.sees_peers)
