"""What a world is: six pure functions on one team, and six facts about it.

A world is a frozen dataclass: its fields are its settings, its methods never keep state. Everything is
unbatched; whoever runs it applies `jax.vmap`. Write your own after docs/your_own_world.md and run
`diamond_attention.worlds.conformance.check_world` over it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActionKind, Continuous
from diamond_attention.view import AgentView, TeamView

State = Any
"""A pytree of arrays, known only to its world."""

Actions = Any
"""One action for each agent, absent ones included: Int[agent] to choose a task, Float[agent, component]."""


class TeamSize(NamedTuple):
    """How many agents and tasks an episode has. Values, not shapes: one program serves every size."""

    agents: Int[Array, ""] | int
    tasks: Int[Array, ""] | int


class Transition(NamedTuple):
    state: State
    reward: Float[Array, ""]
    """The team's reward."""
    terminated: Bool[Array, ""]
    """The task itself is over. Time limits are not termination; they belong to whoever runs the world."""
    measures: Mapping[str, Float[Array, ""]]
    """Named scalars of this step. An episode's measure is the sum over its steps."""


class World(Protocol):
    """The contract. `max_agents` and `max_tasks` are the padding: no episode is larger."""

    @property
    def name(self) -> str: ...

    @property
    def max_agents(self) -> int: ...

    @property
    def max_tasks(self) -> int: ...

    @property
    def action_kind(self) -> ActionKind: ...

    @property
    def time_limit(self) -> int:
        """Steps after which an episode is cut (truncated) if it has not terminated."""
        ...

    def check_size(self, size: TeamSize) -> None:
        """Raises UserError with one sentence if this world cannot be played at that size."""
        ...

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> State: ...

    def step(self, state: State, actions: Actions, key: PRNGKeyArray) -> Transition: ...

    def views(self, state: State, ranks: Float32[Array, " agent"]) -> AgentView:
        """What every agent sees: an AgentView with a leading agent axis. Absent agents get a view too."""
        ...

    def team_view(self, state: State) -> TeamView: ...


def sizes_of(world: World) -> tuple[TeamSize, ...] | None:
    """The sizes a world insists on, as a map with its units does; None where whoever plays it chooses.

    A world says so with an attribute `sizes`. Most have none, so it is no part of the contract.
    """
    return getattr(world, "sizes", None)


def as_scored(world: World) -> World:
    """The game itself, where settings such as scattered starts or dearer collisions only shape what is learned from.

    A world with such settings says so with a method `as_scored`. Most have none, so it is no part of the contract.
    """
    own = getattr(world, "as_scored", None)
    return world if own is None else own()


def no_actions(world: World) -> Actions:
    """An action for every agent, all zero, of the right shape."""
    if isinstance(world.action_kind, Continuous):
        return jnp.zeros((world.max_agents, world.action_kind.size))
    return jnp.zeros(world.max_agents, jnp.int32)
