"""Any world as a PettingZoo parallel environment: agents by name, the absent leave, everybody gets the team's reward.

An agent observes one vector, a Box, because that is what nearly every learner reads as it is. Where the world forbids
actions `infos[agent]["action_mask"]` says which are legal, so that a learner which knows no masks runs too. With
`observation="view"` it is the Dict that the policies of this project read: `agents` and `tasks` as rows, who is
there, the random `ranks` of this step, and the mask.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from diamond_attention.actions import Actions
from diamond_attention.adapters.game import Episode, Game, Turn, begin_numbered, game_of, seed_given
from diamond_attention.errors import UserError, shown
from diamond_attention.worlds.contract import World

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ImportError:
    raise UserError(
        'PettingZoo is not installed; install it with: pip install "diamond-attention[adapters]".'
    ) from None

Observation = Literal["flat", "view"]
FIRST = np.uint32(0), np.int32(0)
"""A seed and an episode, for the shapes of what is seen."""


class Moment(NamedTuple):
    """What there is to know between two steps."""

    observed: Any
    """A vector or a dict for each agent, with an agent axis in front."""
    masks: Bool[Array, "agent choice"] | None
    present: Bool[Array, " agent"]
    state: Float[Array, " feature"]


class WorldParallelEnv(ParallelEnv):
    """One episode after the other in one world, cut at its time limit or at `time_limit`."""

    def __init__(
        self,
        world: World | str,
        agents: int | str | None = None,
        tasks: int | str | None = None,
        *,
        time_limit: int | None = None,
        discrete_actions: bool = False,
        observation: Observation = "flat",
    ):
        """World, sizes and time limit as `game_of` takes them."""
        if observation not in ("flat", "view"):
            raise UserError(f"observation is {shown(observation)}; it must be flat or view.")
        self._game = game_of(world, agents, tasks, time_limit, discrete_actions)
        self._observation = observation
        self.metadata = {"name": f"{self._game.world.name}_v0", "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = [f"agent_{index}" for index in range(self._game.agents)]
        self.agents: list[str] = []
        self._episode: Episode | None = None
        self._moment: Moment = jax.eval_shape(partial(_begin, self._game, observation), *FIRST)[1]
        # Each agent has spaces of its own, since spaces draw random numbers.
        self._observation_spaces = {name: _space_of(self._moment.observed) for name in self.possible_agents}
        self._action_spaces = {name: _action_space(self._game) for name in self.possible_agents}
        self.state_space = spaces.Box(-np.inf, np.inf, self._moment.state.shape, np.float32)

    def observation_space(self, agent: str) -> spaces.Space:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """A seed's first episode; without one the next episode. There are no options."""
        which: tuple[Any, Any]
        if seed is None and self._episode is not None:
            which = self._episode.seed, self._episode.number + 1
        else:
            which = seed_given(seed), np.int32(0)
        self._episode, moment = _begin(self._game, self._observation, *which)
        self._moment = jax.device_get(moment)
        self.agents = self._those_there()
        none_yet = {name: np.float32(0) for name in self._episode.team.episode_measures}
        return self._seen_by(self.agents), self._told(self.agents, none_yet)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        acting = self.agents
        if self._episode is None or not acting:
            raise UserError("there is no running episode; call reset() first.")
        if set(actions) != set(acting):
            raise UserError(
                f"actions were given for {shown(sorted(map(str, actions)))}, but {', '.join(acting)} are there; "
                "give one for each of them."
            )
        idle = np.zeros((), np.int32) if self._game.chooses else np.zeros(self._game.components, np.float32)
        chosen = {name: self._game.checked(actions[name], (), f"the action of {name}") for name in acting}
        everybodys = np.stack([chosen.get(name, idle) for name in self.possible_agents])
        self._episode, turn, moment = _step(self._game, self._observation, self._episode, everybodys)
        self._moment = jax.device_get(moment)
        reward, terminated, truncated, measures = jax.device_get(turn[1:])
        there = set(self._those_there())
        self.agents = [] if terminated or truncated else [name for name in acting if name in there]
        return (
            self._seen_by(acting),
            dict.fromkeys(acting, float(reward)),
            {name: bool(terminated) or name not in there for name in acting},
            {name: bool(truncated) and name in there for name in acting},
            self._told(acting, measures),
        )

    def state(self) -> np.ndarray:
        """All there is to know, for critics and mixers that may know it while training."""
        if self._episode is None:
            raise UserError("there is no running episode; call reset() first.")
        return np.asarray(self._moment.state)

    def render(self) -> None:
        """Nothing; `diamond watch` draws films."""

    def close(self) -> None:
        pass

    def _those_there(self) -> list[str]:
        return [name for name, there in zip(self.possible_agents, self._moment.present, strict=True) if there]

    def _seen_by(self, names: list[str]) -> dict[str, Any]:
        rows = {name: index for index, name in enumerate(self.possible_agents)}
        return {name: jax.tree.map(lambda x: x[rows[name]].copy(), self._moment.observed) for name in names}  # noqa: B023

    def _told(self, names: list[str], measures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        told: dict[str, dict[str, Any]] = {
            name: {measure: float(value) for measure, value in measures.items()} for name in names
        }
        if self._moment.masks is not None:
            rows = {name: index for index, name in enumerate(self.possible_agents)}
            for name in names:
                told[name]["action_mask"] = self._moment.masks[rows[name]].astype(np.int8)
        return told


def _action_space(game: Game) -> spaces.Space:
    if game.chooses:
        return spaces.Discrete(game.choices)
    return spaces.Box(-1.0, 1.0, (game.components,), np.float32)


def _space_of(observed: Any) -> spaces.Space:
    """Of one agent, from the shapes of all agents' observations."""
    if isinstance(observed, dict):
        return spaces.Dict({name: _space_of(part) for name, part in observed.items()})
    if observed.dtype == jnp.int8:
        return spaces.Box(0, 1, observed.shape[1:], np.int8)
    return spaces.Box(-np.inf, np.inf, observed.shape[1:], np.float32)


@partial(jax.jit, static_argnums=(0, 1))
def _begin(game: Game, observation: Observation, seed: Any, number: Any) -> tuple[Episode, Moment]:
    episode = begin_numbered(game, seed, number)
    return episode, _moment(game, observation, episode)


@partial(jax.jit, static_argnums=(0, 1))
def _step(game: Game, observation: Observation, episode: Episode, actions: Actions) -> tuple[Episode, Turn, Moment]:
    turn = game.step(episode.team, game.as_world_takes(actions), episode.step_key)
    episode = episode._replace(team=turn.team)
    return episode, turn, _moment(game, observation, episode)


def _moment(game: Game, observation: Observation, episode: Episode) -> Moment:
    masks = game.legal(episode.team) if game.forbids else None
    observed: Any = game.flat(episode.team)
    if observation == "view":
        views = game.views(episode.team, episode.rank_key)
        observed = {
            "agents": views.agents,
            "tasks": views.tasks,
            "agent_present": views.agent_present.astype(jnp.int8),
            "task_present": views.task_present.astype(jnp.int8),
            "ranks": views.ranks,
        }
        if masks is not None:
            observed["action_mask"] = masks.astype(jnp.int8)
    return Moment(observed, masks, game.present(episode.team), game.state(episode.team))
