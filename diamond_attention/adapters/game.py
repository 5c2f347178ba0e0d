"""A team's episodes in any world as pure functions: what the environments of other libraries are made of.

Which library asks makes no difference to the game: the same sizes, time limit, observations and choices.

- **Flat observations** hold who is there, then what is known of each, zeros where nobody is (policies/flat.py); of
  agents that are not there all is zero. Ranks are not in them: a network that can read the numbers breaks symmetry
  without any mask. They are in the views.
- **Illegal actions** are no error: the world takes them as it does in training, where nothing can stop a batch. A
  battle's unit stands still, a vehicle stays.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from diamond_attention.actions import Actions, Continuous
from diamond_attention.errors import UserError, shown
from diamond_attention.play import TeamState, begin_episode
from diamond_attention.policies.flat import allowed_actions, number_of_outputs, observation_of, state_of
from diamond_attention.ranges import Between, check_number
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.seeds import SEED
from diamond_attention.runs.sizes import MAP, SAME, padded, team_sizes
from diamond_attention.view import AgentView
from diamond_attention.worlds.contract import TeamSize, World
from diamond_attention.worlds.registry import WORLDS

TIME_LIMIT = Between(1, 2**31 - 1)


class Turn(NamedTuple):
    """What a step leads to. Ended by the task or by the clock, never by both."""

    team: TeamState
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    measures: Mapping[str, Float[Array, ""]]


@dataclass(frozen=True)
class Game:
    """A world at certain sizes, of which each episode draws one. Hashable, so that it is static in `jax.jit`."""

    world: World
    sizes: tuple[TeamSize, ...]
    time_limit: int
    discrete_actions: bool
    """Whether one chooses from a few vectors where the world's actions are continuous."""

    def begin(self, key: PRNGKeyArray) -> TeamState:
        return begin_episode(self.world, jnp.asarray(self.sizes, jnp.int32), key, self.time_limit)

    def step(self, team: TeamState, actions: Actions, key: PRNGKeyArray) -> Turn:
        """`actions` as `as_world_takes` gives them; those of absent agents do not matter."""
        after = self.world.step(team.world, actions, key)
        reached = team._replace(world=after.state, step_of_episode=team.step_of_episode + 1)
        truncated = ~after.terminated & (reached.step_of_episode >= team.cut_at)
        return Turn(reached, after.reward, after.terminated, truncated, after.measures)

    # --- What is seen -----------------------------------------------------------------------------

    def views(self, team: TeamState, key: PRNGKeyArray) -> AgentView:
        """What every agent sees, with ranks drawn from `key`."""
        return self.world.views(team.world, draw_ranks(key, self.agents))

    def present(self, team: TeamState) -> Bool[Array, " agent"]:
        """Who is there, and alive."""
        return self.world.team_view(team.world).agent_present

    def flat(self, team: TeamState) -> Float[Array, "agent feature"]:
        views = self.world.views(team.world, jnp.zeros(self.agents, jnp.float32))
        rows = jax.vmap(partial(observation_of, sees_peers=self.world.sees_peers))(views)
        return jnp.where(self.present(team)[:, None], rows, 0.0)

    def state(self, team: TeamState) -> Float[Array, " feature"]:
        """All there is to know: for critics and mixers, while training."""
        return state_of(self.world.team_view(team.world))

    def legal(self, team: TeamState) -> Bool[Array, "agent choice"]:
        """Which choices make sense now. Only where one chooses."""
        if isinstance(self.world.action_kind, Continuous):
            return jnp.ones((self.agents, len(self.menu)), bool)
        return jax.vmap(allowed_actions)(self.world.views(team.world, jnp.zeros(self.agents, jnp.float32)))

    # --- What is done -----------------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """Of the largest team."""
        return self.world.max_agents

    @property
    def chooses(self) -> bool:
        """Whether an action is a number out of `choices`. Else it is a vector of `components` in [-1, 1]."""
        return self.discrete_actions or not isinstance(self.world.action_kind, Continuous)

    @property
    def forbids(self) -> bool:
        """Whether some choices are illegal at times."""
        return not isinstance(self.world.action_kind, Continuous)

    @property
    def choices(self) -> int:
        if isinstance(self.world.action_kind, Continuous):
            return len(self.menu)
        return number_of_outputs(self.world.action_kind, self.world.max_tasks)

    @property
    def components(self) -> int:
        return self.world.action_kind.size if isinstance(self.world.action_kind, Continuous) else 0

    @property
    def menu(self) -> Float[np.ndarray, "choice component"]:
        """The vectors to choose from: zero, then each component alone at −1 and at 1, as MPE has it."""
        each = np.eye(self.components, dtype=np.float32)
        return np.concatenate([np.zeros_like(each[:1]), np.stack([-each, each], axis=1).reshape(-1, self.components)])

    def as_world_takes(self, actions: Int[Array, " agent"] | Float[Array, "agent component"]) -> Actions:
        if self.chooses and isinstance(self.world.action_kind, Continuous):
            return jnp.asarray(self.menu)[actions]
        return actions

    def checked(self, actions: Any, batch: tuple[int, ...], whose: str) -> np.ndarray:
        """Actions as an array of shape `batch`, with one more axis if they are vectors; refused if they are not."""
        shape = batch if self.chooses else (*batch, self.components)
        wanted = f"numbers of shape {shape}" if shape else "a number"
        wanted = f"{wanted}, from 0 to {self.choices - 1}" if self.chooses else f"{wanted}, all finite"
        try:
            given = np.asarray(actions)
        except ValueError:  # rows of different lengths
            given = np.asarray(None)
        if given.dtype.kind not in ("iu" if self.chooses else "iuf"):
            raise UserError(f"{whose} is {shown(actions)}; give {wanted}.")
        if given.shape != shape:
            raise UserError(f"{whose} is {shown(actions)} of shape {given.shape}; give {wanted}.")
        fine = (given >= 0) & (given < self.choices) if self.chooses else np.isfinite(given)
        if not fine.all():
            raise UserError(f"{whose} contains {given[~fine].flat[0]}; give {wanted}.")
        return given.astype(np.int32 if self.chooses else np.float32)


def game_of(
    world: World | str,
    agents: int | str | None = None,
    tasks: int | str | None = None,
    time_limit: int | None = None,
    discrete_actions: bool = False,
) -> Game:
    """`world` by its name, or with settings of its own. Sizes as `diamond train` takes them: 4, or "2:4".

    Without `agents` a team is as large as the world says; without `tasks` there are as many as agents if those are
    given. The time limit is the world's unless said.
    """
    if isinstance(world, str):
        if world not in WORLDS:
            raise UserError(f"there is no world called {shown(world)}; choose from {', '.join(WORLDS)}.")
        world = WORLDS[world]()
    elif World not in type(world).__mro__:
        raise UserError(f"the world is {shown(world)}; give the name of one, or one itself, such as Spread().")
    if world.sizes is not None:
        asked = MAP if agents is None else str(agents), MAP if tasks is None else str(tasks)
    else:
        as_many = SAME if agents is not None else str(world.max_tasks)
        asked = str(world.max_agents if agents is None else agents), as_many if tasks is None else str(tasks)
    sizes = team_sizes(world, *asked)
    check_number("time_limit", time_limit, TIME_LIMIT, besides=(None,))
    limit = world.time_limit if time_limit is None else time_limit
    return Game(padded(world, sizes), sizes, limit, discrete_actions)


# --- Episode after episode ------------------------------------------------------------------------


class Episode(NamedTuple):
    """One of a sequence of episodes that one seed decides."""

    seed: UInt32[Array, ""]
    number: Int[Array, ""]
    """How many episodes went before since the seed was given."""
    team: TeamState

    @property
    def step_key(self) -> PRNGKeyArray:
        return jax.random.fold_in(self._moment_key, 0)

    @property
    def rank_key(self) -> PRNGKeyArray:
        """For the ranks with which the next actions are chosen."""
        return jax.random.fold_in(self._moment_key, 1)

    @property
    def _moment_key(self) -> PRNGKeyArray:
        return jax.random.fold_in(_episode_key(self.seed, self.number), self.team.step_of_episode)


NO_STEP = 2**32 - 1
"""No episode has so many."""


def begin_numbered(game: Game, seed: UInt32[Array, ""], number: Int[Array, ""]) -> Episode:
    return Episode(seed, number, game.begin(jax.random.fold_in(_episode_key(seed, number), NO_STEP)))


def _episode_key(seed: UInt32[Array, ""], number: Int[Array, ""]) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), number)


def seed_given(seed: int | None) -> np.uint32:
    """The seed, or one drawn at random where none is given."""
    check_number("seed", seed, SEED, besides=(None,))
    return np.uint32(secrets.randbits(32) if seed is None else seed)
