"""The world as a fleet's bodies are in it: it lets them sense, moves them, and keeps the score."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.robot.senses import Senses
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.contract import TeamSize, World, no_actions

LAST_PART = 0.25
"""Of an episode's steps: when a team should have reached what it was sent for."""


class Episode:
    """What has come of one episode so far."""

    def __init__(self, names: Iterable[str]):
        self.steps = 0
        self._sums = dict.fromkeys(names, 0.0)
        self._reached: list[bool] = []

    def add(self, values: Mapping[str, float], reached: bool | None) -> None:
        """One step's score and measures, and whether all that can be covered is, where the world tells."""
        self.steps += 1
        self._sums = added(self._sums, values)
        if reached is not None:
            self._reached.append(reached)

    def told(self) -> dict[str, float]:
        told = dict(self._sums)
        if self._reached:
            last = self._reached[-max(1, round(LAST_PART * self.steps)) :]
            told["success"] = sum(last) / len(last)
            told["covered"] /= self.steps
        return told


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + value for name, value in other.items()}


class Field:
    """`agents` are there at first; `more` can join. Who is not there is left out of everything."""

    def __init__(self, world: World, agents: int, more: int, tasks: int, steps: int, seed: int):
        world.check_size(TeamSize(agents, tasks))
        self.world = padded(world, [TeamSize(agents + more, tasks)])
        self.present = np.arange(agents + more) < agents
        self.steps, self.step = steps, 0
        self._key, begin_key = jax.random.split(jax.random.key(seed))
        self._tasks, self._size = tasks, TeamSize(agents + more, tasks)
        self._state = self.world.reset(begin_key, self._size)
        if not hasattr(self._state, "agent_present"):
            raise UserError(f"the world {world.name} does not say who is there, so nobody can join or leave it.")
        self._none = np.asarray(no_actions(self.world))
        # Compiled before the first step, which must not be late.
        jax.block_until_ready(_advance(self.world, self._state, self.present, self._none, self._key, 0))
        jax.block_until_ready(_begin_again(self.world, self._size, self._key, 0))
        self.episodes = 0
        """That are over."""
        self.episode = self._new_episode()
        """The one that is being played."""
        self._sums: dict[str, float] = {}

    def senses(self, coming: Sequence[int] = ()) -> dict[int, Senses]:
        """Of everybody who is there, and of those who are about to be, at the place where they will."""
        own, tasks, open_ = map(np.asarray, _look(self.world, self._state, self.present))
        there = tasks[open_].tolist()
        sensing = [*np.flatnonzero(self.present).tolist(), *coming]
        return {number: Senses(own[number].tolist(), there) for number in sensing}

    def move(self, actions: Mapping[int, Any]) -> None:
        """One step; whoever says nothing does nothing."""
        chosen = self._none.copy()
        for number, action in actions.items():
            if action is not None:
                chosen[number] = action
        self._state, *told = _advance(self.world, self._state, self.present, chosen, self._key, self.step)
        reward, terminated, measures = jax.device_get(told)
        self._keep(float(reward), {name: float(value) for name, value in measures.items()})
        if terminated or self.episode.steps >= self.world.time_limit:
            self.episodes += 1
            self._sums = added(self._sums, self.episode.told())
            self.episode = self._new_episode()
            self._state = _begin_again(self.world, self._size, self._key, self.step)
        self.step += 1

    def _new_episode(self) -> Episode:
        return Episode(["score", *self.world.scoring.measures])

    def _keep(self, reward: float, measures: Mapping[str, float]) -> None:
        scoring, agents = self.world.scoring, int(self.present.sum())
        scored = reward if scoring.score == "return" else measures[scoring.score]
        values = {"score": scored / (agents if scoring.per_agent else 1)}
        values |= {name: measures[name] for name in scoring.measures}
        reached = None
        if "covered" in measures:
            reached = round(measures["covered"] * self._tasks) >= min(agents, self._tasks)
        self.episode.add(values, reached)

    def found(self) -> dict[str, float]:
        """Score, measures and success: their mean over the episodes that are over, without the one that is not.
        Before the first one is over, what has come of it so far.
        """
        if not self.episodes:
            return self.episode.told()
        return {name: total / self.episodes for name, total in self._sums.items()}


@partial(jax.jit, static_argnums=0)
def _advance(world: World, state: Any, present: Any, actions: Any, key: Any, step: Any) -> tuple:
    after = world.step(state._replace(agent_present=present), actions, jax.random.fold_in(key, step))
    return after.state, after.reward, after.terminated, after.measures


@partial(jax.jit, static_argnums=(0, 1))
def _begin_again(world: World, size: TeamSize, key: Any, step: Any) -> Any:
    return world.reset(jax.random.fold_in(jax.random.fold_in(key, step), 1), size)


@partial(jax.jit, static_argnums=0)
def _look(world: World, state: Any, present: Any) -> tuple:
    seen = world.team_view(state._replace(agent_present=present))
    return seen.agents, seen.tasks, seen.task_present
