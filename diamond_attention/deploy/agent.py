"""One agent of a team, or all of them, deciding with a trained policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diamond_attention.deploy.bundle import Bundle, read_bundle
from diamond_attention.deploy.interface import Decided
from diamond_attention.deploy.view import View, as_arrays
from diamond_attention.errors import UserError

RANDOM_BITS = 23
"""Of the number that an agent draws, as in training."""


class Agent:
    """A policy that was loaded, and a source of random numbers.

    One object may serve any number of agents. Nothing is remembered between decisions but the generator's state.
    """

    def __init__(self, bundle: Bundle, seed: int | None = None):
        self.name = bundle.name
        """Of the shipped policy, or of the bundle's folder."""
        self.kind = bundle.kind
        self.agent_features = bundle.interface.agent_features
        """The columns of a view's agents: name, unit, and how peers see the same (`frame`)."""
        self.task_features = bundle.interface.task_features
        self.world = bundle.world
        """Settings of the world that it was trained in."""
        self.rank_hold = bundle.rank_hold
        """Steps for which a number that was drawn stays in force: 1 or more, or "episode"."""
        self.together = bundle.policy.together
        """True where the policy decides for all agents at once, so that only `decide_team` can be asked."""
        self.asks_number = bundle.policy.asks_number
        """True where `decide` must be told the agent's number in the team."""
        self.generator = np.random.default_rng(seed)
        """Of everything random that is this agent's own."""
        self._policy, self._interface = bundle.policy, bundle.interface

    @classmethod
    def load(cls, named: Path | str, seed: int | None = None) -> "Agent":
        """A shipped policy by its name, or the folder of a bundle. Without a seed no two agents draw the same."""
        return cls(read_bundle(named), seed)

    # --- Ranks ------------------------------------------------------------------------------------

    def draw_rank(self) -> np.float32:
        """The number to broadcast: uniform in [0, 1), 23 random bits as in training."""
        return np.float32(self.generator.integers(1 << RANDOM_BITS) / (1 << RANDOM_BITS))

    def rank_is_due(self, step: int) -> bool:
        """Whether a new number is drawn at this step of an episode, counted from 0; else the last one stays."""
        return step == 0 if self.rank_hold == "episode" else step % int(self.rank_hold) == 0

    # --- Deciding ---------------------------------------------------------------------------------

    def decide(self, view: Any, *, number: int | None = None, sampled: bool = False) -> Any:
        """One agent's action: the number of a choice, or a float32 vector in [−1, 1].

        The most likely one or, if `sampled`, one drawn as likely as it is. `number` is the agent's own in the team,
        from 0, for the few policies that ask for it.
        """
        return _plain(self.decided(view, number=number, sampled=sampled).action)

    def decided(self, view: Any, *, number: int | None = None, sampled: bool = False) -> Decided:
        """The action, and the distribution it comes from."""
        if self.together:
            raise UserError(
                f"{self.name} is a policy of the kind {self.kind}, which decides for all agents at once; call "
                "decide_team with the views of the whole team."
            )
        if self.asks_number and (type(number) is not int or number < 0):
            raise UserError(
                f"{self.name} is a policy of the kind {self.kind} that makes for the task with the agent's own "
                "number; call decide(view, number=…), counted from 0."
            )
        seen = self._checked(view)
        if self.asks_number and number is not None and number >= len(seen.agents):
            raise UserError(f"number is {number}, and the view lists {len(seen.agents)} agents, counted from 0.")
        seen = self._policy.drawn(seen, self.generator)
        if sampled:
            return self._policy.sample(seen, number, self.generator)
        return self._policy.decide(seen, number)

    def decide_team(self, views: Sequence[Any], *, sampled: bool = False) -> Any:
        """Every agent's action, from one view for each agent in the order of their numbers, each listing all others.

        Where agents decide alone this is one decision after the other.
        """
        return self.decided_team(views, sampled=sampled).action

    def decided_team(self, views: Sequence[Any], *, sampled: bool = False) -> Decided:
        seen = [self._checked(view) for view in views]
        if not seen or any(len(view.agents) != len(seen) for view in seen):
            raise UserError(f"there are {len(seen)} views, and each must list all {len(seen)} agents, itself first.")
        if not self.together:
            numbers = range(len(seen)) if self.asks_number else [None] * len(seen)
            each = [self.decided(view, number=i, sampled=sampled) for i, view in zip(numbers, views, strict=True)]
            answers = [np.stack(parts) for parts in zip(*(decided.answer for decided in each), strict=True)]
            actions = np.stack([decided.action for decided in each])
            return Decided(actions, type(each[0].answer)(*answers))
        team = stacked(seen)
        noise = self._policy.team_noise(team, self.generator) if sampled else None
        return self._policy.decide_team(team, noise)

    def _checked(self, view: Any) -> View:
        seen = as_arrays(view, len(self.agent_features), len(self.task_features))
        rows, fixed = (len(seen.agents), len(seen.tasks)), self._policy.fixed_team
        for number, only, what in ((rows[0], fixed[0], "agents"), (rows[1], fixed[1], "tasks")):
            if only is not None and number != only:
                raise UserError(
                    f"the view lists {number} {what}, and {self.name}, a policy of the kind {self.kind}, plays only "
                    f"with {only}; list who is missing as absent, or use a policy of the kind diamond."
                )
        options = self._interface.action.options(len(seen.tasks))
        if not options or (self._policy.needs_task and not len(seen.tasks)):
            raise UserError(f"the view lists no task, and {self.name} needs at least one, be it an absent one.")
        if self._interface.action.kind == "continuous":
            seen = seen._replace(legal_actions=None)
        elif seen.legal_actions is not None and seen.legal_actions.shape != (options,):
            raise UserError(
                f"view.legal_actions has the shape {seen.legal_actions.shape}, and there are {options} actions to "
                "choose from."
            )
        heard = seen.ranks[:1] if self._policy.ranks_may_be_missing else seen.ranks
        if np.isnan(heard).any():
            raise UserError(
                "view.ranks holds something that is no number; mark a peer that was not heard as absent, or let a "
                "number below all others, such as -1, stand in for it."
            )
        return seen


def stacked(views: Sequence[View]) -> View:
    """Views of one team as one, with a leading axis; all with legal actions, or none."""
    legal = [view.legal_actions for view in views]
    if any(each is None for each in legal) and not all(each is None for each in legal):
        raise UserError("some views have legal_actions and others none; give all of them, or none.")
    shapes = {(view.agents.shape, view.tasks.shape) for view in views}
    if len(shapes) > 1:
        raise UserError("the views of a team list different numbers of tasks; list the same ones in every view.")
    parts = {name: np.stack([getattr(view, name) for view in views]) for name in View._fields[:5]}
    return View(**parts, legal_actions=None if legal[0] is None else np.stack(legal))


def _plain(action: Any) -> Any:
    return int(action) if np.ndim(action) == 0 else action
