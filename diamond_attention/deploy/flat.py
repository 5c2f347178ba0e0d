"""Policies on a flat observation of fixed size: the actors of MAPPO and IPPO, of QMIX and of MASAC."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from diamond_attention.deploy.answers import Answer, Categorical, Gaussian, Menu, Squashed
from diamond_attention.deploy.interface import Deployed, Interface, allowed_actions, choices, whole
from diamond_attention.deploy.layers import Take, silu, take_linear
from diamond_attention.deploy.view import View

NARROWEST, WIDEST = -5.0, 2.0
"""Logarithms of the standard deviation of a squashed action."""


class Flat(Deployed):
    """Of any kind that writes what it sees into one vector."""

    def __init__(self, interface: Interface):
        self.action, self.sees_peers = interface.action, interface.sees_peers
        self.fixed_team = (interface.agents if interface.sees_peers else None, interface.tasks)
        agents = interface.agents if interface.sees_peers else 1
        self.inputs = agents * (len(interface.agent_features) + 1) + interface.tasks * (
            len(interface.task_features) + 1
        )
        self.outputs = interface.action.options(interface.tasks)


def observation(view: View, sees_peers: bool) -> Any:
    """Who is there, then what is known of each, zeros where nobody is; of several views at once likewise."""
    agents, present = view.agents, view.agent_present
    if not sees_peers:
        agents, present = agents[..., :1, :], present[..., :1]
    there = np.concatenate([present, view.task_present], axis=-1).astype(np.float32)
    shape = (*agents.shape[:-2], -1)
    return np.concatenate([there, agents.reshape(shape), view.tasks.reshape(shape)], axis=-1)


class FlatActor(Flat):
    """Two layers with tanh."""

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(interface)
        width = whole("width", settings.get("width"))
        self.first = take_linear(take, "hidden.first", self.inputs, width)
        self.second = take_linear(take, "hidden.second", width, width)
        self.last = take_linear(take, "answer", width, self.outputs)
        self.log_std = take("log_std", self.outputs) if self.action.kind == "continuous" else None

    def answer(self, view: View, number: Any = None) -> Answer:
        seen = observation(view, self.sees_peers)
        answer = self.last(np.tanh(self.second(np.tanh(self.first(seen)))))
        if self.log_std is not None:
            return Gaussian(answer, self.log_std)
        return Categorical(choices(answer, allowed_actions(view, self.action)))


class Layered(Flat):
    """Two hidden layers with SiLU."""

    def take_layers(self, settings: Mapping[str, Any], take: Take, outputs: int) -> None:
        width = whole("width", settings.get("width"))
        sizes = (self.inputs, width, width, outputs)
        pairs = enumerate(itertools.pairwise(sizes))
        self.layers = [take_linear(take, f"layers.layers.{i}", before, after) for i, (before, after) in pairs]

    def through(self, x: Any) -> Any:
        first, second, last = self.layers
        return last(silu(second(silu(first(x)))))


class QValues(Layered):
    """A value for every action, or for one of nine forces where actions are continuous (in two dimensions)."""

    def noise_axes(self, agents: Any, options: Any) -> list[Any]:
        return [self.outputs]

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(interface)
        self.entries = None
        if self.action.kind == "continuous":
            grid = itertools.product((-1.0, 0.0, 1.0), repeat=self.action.number)
            self.entries = np.asarray(list(grid), np.float32)
            self.outputs = len(self.entries)
        self.take_layers(settings, take, self.outputs)
        self.exploration = float(take("exploration"))

    def answer(self, view: View, number: Any = None) -> Answer:
        values = self.through(observation(view, self.sees_peers))
        every = np.ones(self.outputs, bool)
        allowed = every if self.entries is not None else allowed_actions(view, self.action)
        best = (np.arange(self.outputs) == np.argmax(choices(values, allowed))).astype(np.float32)
        number_allowed = np.add.reduce(allowed.astype(np.float32))
        share = np.where(number_allowed > 0, allowed.astype(np.float32) / np.maximum(number_allowed, 1.0), best)
        weight = (1.0 - self.exploration) * best + self.exploration * share
        smallest = np.float32(np.finfo(np.float32).tiny)
        logits = np.where(weight > 0, np.log(np.maximum(weight, smallest)), np.float32(-np.inf))
        return Categorical(logits) if self.entries is None else Menu(logits, self.entries)


class Soft(Layered):
    """The actor of MASAC: a tanh-normal distribution whose width it learns for every observation."""

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(interface)
        self.continuous = self.action.kind == "continuous"
        self.take_layers(settings, take, self.outputs * (2 if self.continuous else 1))

    def answer(self, view: View, number: Any = None) -> Answer:
        answer = self.through(observation(view, self.sees_peers))
        if self.continuous:
            return Squashed(answer[: self.outputs], within(answer[self.outputs :]))
        return Categorical(choices(answer, allowed_actions(view, self.action)))


def within(width: Any) -> Any:
    """Any number as the logarithm of a standard deviation, between the narrowest and the widest."""
    return NARROWEST + 0.5 * (WIDEST - NARROWEST) * (np.tanh(width) + 1.0)
