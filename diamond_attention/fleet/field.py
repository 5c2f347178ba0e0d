"""The world as a fleet's bodies are in it: it lets them sense, moves them, and keeps the score."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.robot.senses import Senses
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.contract import TeamSize, World, no_actions

LAST_PART = 0.25
"""Of the steps: when a team should have reached what it was sent for."""


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
        self._total, self._ended = 0.0, 0
        self._measures: dict[str, float] = {}
        self._reached: list[bool] = []

    def senses(self) -> dict[int, Senses]:
        """Of everybody who is there."""
        own, tasks, open_ = map(np.asarray, _look(self.world, self._state, self.present))
        there = tasks[open_].tolist()
        return {number: Senses(own[number].tolist(), there) for number in np.flatnonzero(self.present).tolist()}

    def move(self, actions: Mapping[int, Any]) -> None:
        """One step; whoever says nothing does nothing."""
        chosen = self._none.copy()
        for number, action in actions.items():
            if action is not None:
                chosen[number] = action
        self._state, *told = _advance(self.world, self._state, self.present, chosen, self._key, self.step)
        reward, over, measures = jax.device_get(told)
        self._keep(float(reward), {name: float(value) for name, value in measures.items()})
        if over:
            self._ended += 1
            self._state = _begin_again(self.world, self._size, self._key, self.step)
        self.step += 1

    def _keep(self, reward: float, measures: Mapping[str, float]) -> None:
        scoring, agents = self.world.scoring, int(self.present.sum())
        scored = reward if scoring.score == "return" else measures[scoring.score]
        self._total += scored / (agents if scoring.per_agent else 1)
        for name, value in measures.items():
            self._measures[name] = self._measures.get(name, 0.0) + value
        if "covered" in measures:
            covered = round(measures["covered"] * self._tasks)
            self._reached.append(covered >= min(agents, self._tasks))

    @property
    def score(self) -> float:
        """As tables have it; of several episodes their mean."""
        return self._total / max(1, self._ended)

    def found(self) -> dict[str, float]:
        """The score, and what else there is to say of what was played."""
        per_step = {"covered"}
        told = {"score": self.score}
        for name in self.world.scoring.measures:
            divisor = self.step if name in per_step else max(1, self._ended)
            told[name] = self._measures.get(name, 0.0) / max(1, divisor)
        if self._reached:
            last = self._reached[-max(1, round(LAST_PART * self.step)) :]
            told["success"] = sum(last) / len(last)
        return told


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
