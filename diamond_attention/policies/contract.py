"""What a method may ask of a policy: draw what it needs, act, answer again for what it did. One team, no batch."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.actions import Actions
from diamond_attention.distributions.either import Distribution
from diamond_attention.view import AgentView

Memory = Any  # a recurrent policy's state, a pytree with a leading agent axis; None where nothing is remembered
Attention = tuple[Float[Array, "task agent"], ...]  # the weights of each block that has them, column 0 the viewer


class Acted(NamedTuple):
    actions: Actions
    log_probability: Float[Array, " agent"]
    memory: Memory


class Policy(eqx.Module):
    """The contract. Every argument and result has a leading agent axis; absent agents are asked too."""

    decides_alone: ClassVar[bool] = False  # whether one agent can decide on its own view, without the others'

    def draw(self, views: AgentView, key: PRNGKeyArray) -> AgentView:
        """The views with the random data this policy wants in `noise`: drawn once, stored, and replayed."""
        return views

    def first_memory(self, agents: int) -> Memory:
        return None

    @abstractmethod
    def act(self, views: AgentView, memory: Memory, key: PRNGKeyArray, greedy: bool) -> Acted: ...

    @abstractmethod
    def ask_again(self, views: AgentView, memory: Memory, actions: Actions) -> tuple[Array, Array]:
        """The log-probability of those actions now, and the entropy, of each agent."""


class IndependentPolicy(Policy):
    """A policy under which every agent draws by itself, from the distribution it answers with."""

    @abstractmethod
    def answers(self, views: AgentView) -> Distribution: ...

    def act(self, views: AgentView, memory: Memory, key: PRNGKeyArray, greedy: bool) -> Acted:
        answers, keys = self.answers(views), jax.random.split(key, views.ranks.shape[0])
        actions = jax.vmap(lambda own, k: own.mode() if greedy else own.sample(k))(answers, keys)
        return Acted(actions, jax.vmap(lambda own, action: own.log_probability(action))(answers, actions), memory)

    def ask_again(self, views: AgentView, memory: Memory, actions: Actions) -> tuple[Array, Array]:
        answers = self.answers(views)
        return jax.vmap(lambda own, action: (own.log_probability(action), own.entropy()))(answers, actions)


class PerAgentPolicy(IndependentPolicy):
    """A policy written for one agent's view. A team is `jax.vmap` over it: nobody knows more than its view."""

    decides_alone = True

    @abstractmethod
    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]: ...

    def answers(self, views: AgentView) -> Distribution:
        return jax.vmap(lambda view: self(view)[0])(views)
