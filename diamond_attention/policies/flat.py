"""A policy on a flat observation of fixed size: the actor of MAPPO and IPPO, and their critics.

Everything an agent sees is written into one vector, peers and tasks each at a place of their own. That is what most
methods of the field read, and why they play only teams of the size they were trained on.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.actions import ActionKind, ActOrChooseTask, Continuous
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.initialise import orthogonal_linear
from diamond_attention.policies.contract import Attention, PerAgentPolicy
from diamond_attention.policies.kind import Interface
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView, TeamView


@dataclass(frozen=True)
class FlatSettings:
    """Two hidden layers on a flat observation, shared by all agents; for one team size."""

    kind: Literal["flat"] = "flat"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 128
    """Of each hidden layer. More: more capacity; time grows with its square."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")


# --- Views as vectors -----------------------------------------------------------------------------


def observation_of(view: AgentView, sees_peers: bool = True) -> Float[Array, " feature"]:
    """One agent's view as a vector: who is there, then what is known of each; zeros where nobody is.

    Where what is seen of peers is always the same, as in XOR, only the viewer's own row is listed, and the vector
    does not depend on the size of the team.
    """
    seen = slice(None) if sees_peers else slice(1)
    return _flat(view.agents[seen], view.agent_present[seen], view.tasks, view.task_present)


def state_of(view: TeamView) -> Float[Array, " feature"]:
    """The team view as a vector, likewise: what a central critic reads while training."""
    return _flat(view.agents, view.agent_present, view.tasks, view.task_present)


def state_size(view: TeamView) -> int:
    """How many numbers that is, of a view or its shapes."""
    return sum(rows.shape[0] * (rows.shape[1] + 1) for rows in (view.agents, view.tasks))


def _flat(
    agents: Float[Array, "agent f"],
    agent_present: Bool[Array, " agent"],
    tasks: Float[Array, "task g"],
    task_present: Bool[Array, " task"],
) -> Float[Array, " feature"]:
    there = jnp.concatenate([agent_present, task_present]).astype(jnp.float32)
    known = [jnp.where(agent_present[:, None], agents, 0.0), jnp.where(task_present[:, None], tasks, 0.0)]
    return jnp.concatenate([there, *(rows.reshape(-1) for rows in known)])


def observation_size(interface: Interface) -> int:
    agents = interface.max_agents if interface.sees_peers else 1
    return agents * (interface.agent_features + 1) + interface.max_tasks * (interface.task_features + 1)


def number_of_outputs(action_kind: ActionKind, tasks: int) -> int:
    """How many numbers a fixed-size policy answers with: components, or one for each action."""
    if isinstance(action_kind, Continuous):
        return action_kind.size
    return tasks + (action_kind.fixed_actions if isinstance(action_kind, ActOrChooseTask) else 0)


def allowed_actions(view: AgentView) -> Bool[Array, " action"]:
    return view.task_present if view.legal_actions is None else view.legal_actions


# --- Networks -------------------------------------------------------------------------------------


class Hidden(eqx.Module):
    """Two layers with tanh."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = orthogonal_linear(features, width, scale=2**0.5, key=first_key)
        self.second = orthogonal_linear(width, width, scale=2**0.5, key=second_key)

    def __call__(self, x: Float[Array, " feature"]) -> Float[Array, " width"]:
        x = x.astype(self.first.weight.dtype)  # of a policy that computes in bfloat16
        return jnp.tanh(self.second(jnp.tanh(self.first(x))))


class FlatPolicy(PerAgentPolicy):
    hidden: Hidden
    answer: eqx.nn.Linear
    log_std: Float[Array, " component"] | None  # of a continuous action; a free parameter, as in SB3
    sees_peers: bool = eqx.field(static=True)

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        answer = self.answer(self.hidden(observation_of(view, self.sees_peers))).astype(jnp.float32)
        if self.log_std is not None:
            return Gaussian(answer, self.log_std), ()
        return Categorical(jnp.where(allowed_actions(view), answer, -jnp.inf)), ()


def build_flat(settings: FlatSettings, interface: Interface, key: PRNGKeyArray) -> FlatPolicy:
    hidden_key, answer_key = jax.random.split(key)
    outputs = number_of_outputs(interface.action_kind, interface.max_tasks)
    hidden = Hidden(observation_size(interface), settings.width, key=hidden_key)
    # Near zero: the first policy is close to uniform.
    answer = orthogonal_linear(settings.width, outputs, scale=0.01, key=answer_key)
    log_std = jnp.zeros(outputs) if isinstance(interface.action_kind, Continuous) else None
    return FlatPolicy(hidden, answer, log_std, interface.sees_peers)


class StateCritic(eqx.Module):
    """One value for the team, from all there is to know: MAPPO's."""

    hidden: Hidden
    value: eqx.nn.Linear
    reads_views: ClassVar[bool] = False

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        hidden_key, value_key = jax.random.split(key)
        self.hidden = Hidden(features, width, key=hidden_key)
        self.value = orthogonal_linear(width, 1, scale=1.0, key=value_key)

    def __call__(self, view: TeamView, views: AgentView | None = None, policy: Any = None) -> Float[Array, ""]:
        return self.value(self.hidden(state_of(view)))[0]


class OwnCritic(eqx.Module):
    """A value for each agent, from its own view alone: IPPO's."""

    hidden: Hidden
    value: eqx.nn.Linear
    sees_peers: bool = eqx.field(static=True)
    reads_views: ClassVar[bool] = True

    def __init__(self, features: int, width: int, sees_peers: bool, *, key: PRNGKeyArray):
        hidden_key, value_key = jax.random.split(key)
        self.hidden = Hidden(features, width, key=hidden_key)
        self.value = orthogonal_linear(width, 1, scale=1.0, key=value_key)
        self.sees_peers = sees_peers

    def __call__(self, view: TeamView, views: AgentView | None = None, policy: Any = None) -> Float[Array, " agent"]:
        return jax.vmap(lambda own: self.value(self.hidden(observation_of(own, self.sees_peers)))[0])(views)
