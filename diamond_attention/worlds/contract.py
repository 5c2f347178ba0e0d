"""What a world is: pure functions on one team, and facts about it, most of which have a default.

A world is a frozen dataclass that inherits from `World`: its fields are its settings, its methods never keep
state. Everything is unbatched; whoever runs it applies `jax.vmap`. Write your own after docs/your_own_world.md
and run `diamond_attention.worlds.conformance.check_world` over it.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActionKind, Actions, Continuous
from diamond_attention.policies.kind import Frame
from diamond_attention.ranges import Between
from diamond_attention.view import AgentView, TeamView

State = Any
"""A pytree of arrays, known only to its world."""


LARGEST_TEAM = 4096
"""Agents, or tasks."""

Padding = tyro.conf.Suppress[Annotated[int, Between(1, LARGEST_TEAM)]]
"""An int that is no option of the command line: it follows from the sizes that are played."""


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


class Scoring(NamedTuple):
    """How readers are told how well a team did: what tables, figures and the progress line need to know."""

    score: str = "return"
    """The column that counts: a measure, or the return."""
    name: str = "Return of the team"
    per_agent: bool = False
    """Divide the score by the number of agents."""
    decimals: int = 1
    """Of the score and what stands beside it, in a table; a rate always has three."""
    rate: bool = False
    """It lies between 0 and 1, an episode's score being 0 or 1; intervals and axes respect that."""
    solved: float | None = None
    """A rate from which on the task counts as solved; a bench then measures the time until there."""
    measures: Mapping[str, str] = {}
    """What stands beside the score in a table, and what each means."""
    chance: Callable[[int, int], float] | None = None
    """What agents and tasks so many reach at most without shared randomness, where that is known."""


class Feature(NamedTuple):
    """One number in a row of a view: what it is and in which unit."""

    name: str
    unit: str = ""
    frame: Frame = "own"
    """How a peer sees the same thing, as far as the viewer can tell."""


class World(Protocol):
    """The contract. `max_agents` and `max_tasks` are fields, of the type `Padding`: no episode is larger."""

    name: ClassVar[str]
    title: ClassVar[str] = ""
    """As figures call it; by default its name."""
    task: ClassVar[str] = "task"
    """What one task is called."""
    scoring: ClassVar[Scoring] = Scoring()
    varies: ClassVar[Mapping[str, str]] = {}
    """Settings that an evaluation or a film may choose anew, and what to say of them: `--map`, `--jitter`."""
    agent_features: ClassVar[tuple[Feature, ...]] = ()
    """What the columns of a view's agents are, in order; numbered where nothing is said."""
    task_features: ClassVar[tuple[Feature, ...]] = ()
    sees_peers: ClassVar[bool] = True
    """False where what an agent sees of its peers is always the same: a flat observation then leaves them out."""
    same_legal_actions: ClassVar[bool] = False
    """True where what is legal for one agent is legal for all, so that everybody knows what its peers may do."""
    has_places: ClassVar[bool] = False
    """True where rows of a view begin with a place, and those of agents go on with a velocity, one component for each
    of the action's: the viewer's in the world's frame, all others relative to the viewer."""

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

    # --- the game -----------------------------------------------------------------------------------

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> State: ...

    def step(self, state: State, actions: Actions, key: PRNGKeyArray) -> Transition: ...

    def views(self, state: State, ranks: Float32[Array, " agent"]) -> AgentView:
        """What every agent sees: an AgentView with a leading agent axis. Absent agents get a view too."""
        ...

    def team_view(self, state: State) -> TeamView: ...

    # --- facts with defaults ------------------------------------------------------------------------

    def check_size(self, size: TeamSize) -> None:
        """Raises UserError with one sentence if this world cannot be played at that size."""

    @property
    def sizes(self) -> tuple[TeamSize, ...] | None:
        """The sizes a world insists on, as a map with its units does; None where whoever plays it chooses."""
        return None

    def as_scored(self) -> Self:
        """The game itself, where settings such as dearer collisions only shape what is learned from."""
        return self

    def apart(self) -> tuple[Self, ...]:
        """As evaluations play it: a mixture of maps, say, each map by itself."""
        return (self,)

    def tags(self) -> tuple[str, ...]:
        """Words that a table puts beside the preset, for settings that deserve one."""
        return ()

    def played_at(self, size: TeamSize) -> str:
        """What a table says a team was trained or played on."""
        return f"{size.agents}x{size.tasks}"

    def scene(self) -> Any:
        """The class that draws it (see reports/scenes.py); None for agents above, tasks below and lines between."""
        return None

    def pictures(self, recording: Any) -> Any:
        """A film of a recorded episode as frames of its own, where a scene will not do; None for the usual one."""
        return None


def title_of(world: World) -> str:
    return world.title or world.name


def tasks_named(world: World) -> str:
    """What several tasks are called: landmarks, enemies."""
    return f"{world.task[:-1]}ies" if world.task.endswith("y") else f"{world.task}s"


def conditions_of(world: World) -> dict[str, Any]:
    """What an evaluation may vary, to be written beside its results."""
    return {name: getattr(world, name) for name in world.varies}


def no_actions(world: World) -> Actions:
    """An action for every agent, all zero, of the right shape."""
    if isinstance(world.action_kind, Continuous):
        return jnp.zeros((world.max_agents, world.action_kind.size))
    return jnp.zeros(world.max_agents, jnp.int32)


def _example_views(world: World) -> tuple[AgentView, TeamView]:
    """The shapes of one agent's view and of the team view; nothing is computed."""

    def look() -> tuple[AgentView, TeamView]:
        state = world.reset(jax.random.key(0), TeamSize(world.max_agents, world.max_tasks))
        views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
        return jax.tree.map(lambda x: x[0], views), world.team_view(state)

    return jax.eval_shape(look)


# Every checkpoint asks for them, and tracing a battle takes a second.
example_views: Callable[[World], tuple[AgentView, TeamView]] = lru_cache(maxsize=16)(_example_views)  # type: ignore[assignment]
