"""The agents of QMIX: a value for every action, from a flat observation, and the mixer that values the team.

Where actions are continuous an agent chooses one of nine forces (in two dimensions): full, none and full backwards
along each axis. That is another task than the continuous one, and rows say so.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.actions import Actions, Continuous
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.menu import Menu, nearest_entry
from diamond_attention.policies.contract import Attention, PerAgentPolicy
from diamond_attention.policies.flat import allowed_actions, number_of_outputs, observation_of, observation_size
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.layers import Layers
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView


@dataclass(frozen=True)
class QSettings:
    """A value for every action, two hidden layers on a flat observation, shared by all agents; for one team size."""

    kind: Literal["q-values"] = "q-values"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 256
    """Of each hidden layer. More: more capacity; time grows with its square."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")


class QPolicy(PerAgentPolicy):
    """Greedy play takes the best action; sampled play takes any other with the share it was last trained with."""

    layers: Layers
    exploration: Float[Array, ""]
    entries: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)
    """What can be chosen where actions are continuous."""
    sees_peers: bool = eqx.field(static=True)

    def values(self, view: AgentView) -> Float[Array, " action"]:
        return self.layers(observation_of(view, self.sees_peers))

    def allowed(self, view: AgentView) -> Bool[Array, " action"]:
        return allowed_actions(view) if self.entries is None else jnp.ones(len(self.entries), bool)

    def chosen(self, actions: Actions) -> Int[Array, " agent"]:
        """Which action each agent took, as a number."""
        if self.entries is None:
            return actions
        entries = jnp.asarray(self.entries)
        return jax.vmap(lambda action: nearest_entry(entries, action))(actions)

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        choice = Categorical(explored(self.values(view), self.allowed(view), self.exploration))
        return (choice if self.entries is None else Menu(choice, jnp.asarray(self.entries))), ()


def explored(
    values: Float[Array, " action"], allowed: Bool[Array, " action"], exploration: Float[Array, ""]
) -> Float[Array, " action"]:
    """Logits: the best allowed action, and with a share of `exploration` any allowed one."""
    best = jax.nn.one_hot(jnp.argmax(jnp.where(allowed, values, -jnp.inf)), len(values))
    share = jnp.where(jnp.any(allowed), allowed / jnp.maximum(jnp.sum(allowed), 1), best)
    return jnp.log((1.0 - exploration) * best + exploration * share)


def build_q(settings: QSettings, interface: Interface, key: PRNGKeyArray) -> QPolicy:
    kind, entries = interface.action_kind, None
    outputs = number_of_outputs(kind, interface.max_tasks)
    if isinstance(kind, Continuous):
        grid = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * kind.size, indexing="ij"), axis=-1).reshape(-1, kind.size)
        entries, outputs = tuple(map(tuple, grid.tolist())), len(grid)
    sizes = [observation_size(interface), settings.width, settings.width, outputs]
    # Near zero: values that begin too high are believed for long, since targets take the highest.
    layers = Layers(sizes, last_scale=0.01, key=key)
    return QPolicy(layers, jnp.ones(()), entries, interface.sees_peers)


class Mixer(eqx.Module):
    """The team's value from its agents' values: never falls when one of them rises (Rashid et al. 2018).

    Four networks read the state of the team and give the weights of two layers; those that multiply are made
    positive.
    """

    first_weights: eqx.nn.Linear
    first_bias: eqx.nn.Linear
    second_weights: eqx.nn.Linear
    second_bias: Layers
    agents: int = eqx.field(static=True)

    def __init__(self, features: int, agents: int, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.first_weights = eqx.nn.Linear(features, agents * width, key=keys[0])
        self.first_bias = eqx.nn.Linear(features, width, key=keys[1])
        self.second_weights = eqx.nn.Linear(features, width, key=keys[2])
        self.second_bias = Layers([features, width, 1], last_scale=0.01, key=keys[3])
        self.agents = agents

    def __call__(self, values: Float[Array, " agent"], state: Float[Array, " feature"]) -> Float[Array, ""]:
        weights = jnp.abs(self.first_weights(state)).reshape(self.agents, -1)
        hidden = jax.nn.elu(values @ weights + self.first_bias(state))
        return hidden @ jnp.abs(self.second_weights(state)) + self.second_bias(state)[0]
