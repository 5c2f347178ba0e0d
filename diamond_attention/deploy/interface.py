"""What a kind of policy is to an agent: how it is built from a bundle, and how it decides."""

from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Answer
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError


class Action(NamedTuple):
    """What the world takes: one of its kinds, and the number that belongs to it."""

    kind: str
    """choose_task, continuous or act_or_choose_task."""
    number: int = 0
    """Components of a continuous action, or fixed actions besides the tasks."""

    def options(self, tasks: int) -> int:
        """How many numbers answer a view with so many tasks: one for each choice, or each component."""
        return self.number if self.kind == "continuous" else self.number + tasks


class Interface(NamedTuple):
    """What a bundle says of views and actions."""

    agent_features: tuple[dict[str, str], ...]
    task_features: tuple[dict[str, str], ...]
    action: Action
    agents: int
    """Of the largest team it was trained with, and its tasks."""
    tasks: int
    sees_peers: bool
    has_places: bool


class Decided(NamedTuple):
    action: Any
    """A number, or a float32 vector; of a team one for each agent."""
    answer: Answer
    """The distribution that it is the most likely value or a sample of."""


class Deployed:
    """One policy. Kinds that decide on one view write `answer`; others `decide` or `decide_team`."""

    together = False
    """Whether it decides for the whole team at once, on everybody's views."""
    asks_number = False
    """Whether an agent must know its own number in the team."""
    ranks_may_be_missing = False
    """Whether a peer's rank may be NaN, that of a peer which was not heard."""
    needs_task = False
    """Whether a view must list a task, also where none has to be chosen."""
    fixed_team: tuple[int | None, int | None] = (None, None)
    """Rows of agents and of tasks that every view must have, where that is fixed."""

    def answer(self, view: View, number: Any = None) -> Answer:
        raise NotImplementedError

    def drawn(self, view: View, generator: np.random.Generator) -> View:
        """The view with what the policy wants drawn before it decides, greedy or not."""
        return view

    def decide(self, view: View, number: Any = None, noise: Any = 0.0) -> Decided:
        answer = self.answer(view, number)
        return Decided(answer.act(noise), answer)

    def sample(self, view: View, number: Any, generator: np.random.Generator) -> Decided:
        answer = self.answer(view, number)
        return Decided(answer.act(answer.noise(generator)), answer)

    def noise_axes(self, agents: Any, options: Any) -> list[Any]:
        """Of the noise that makes a sample: one number for each option (or component), of everybody who needs one."""
        return [agents, options] if self.together else [options]

    def decide_team(self, views: View, noise: Any = None) -> Decided:
        """On views with a leading axis, one for each agent; only of a kind that decides together."""
        raise NotImplementedError

    def team_noise(self, views: View, generator: np.random.Generator) -> Any:
        raise NotImplementedError


def allowed_actions(view: View, action: Action) -> Any:
    """Which of the options may be taken; of several views at once likewise."""
    if view.legal_actions is not None:
        return view.legal_actions
    if not action.number:
        return view.task_present
    always = np.ones((*view.task_present.shape[:-1], action.number), bool)
    return np.concatenate([always, view.task_present], axis=-1)


def choices(logits: Any, allowed: Any) -> Any:
    """The logits of what is allowed, −∞ of the rest."""
    return np.where(allowed, logits, np.float32(-np.inf))


def one_of(setting: str, value: Any, known: tuple[Any, ...]) -> Any:
    """A bundle's setting, if this version knows what it means."""
    if value not in known:
        raise UserError(f"its setting {setting} is {value!r}, and this version knows {', '.join(map(str, known))}.")
    return value


def whole(setting: str, value: Any, most: int = 4096) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise UserError(f"its setting {setting} is {value!r}, and must be a whole number up to {most}.")
    return value
