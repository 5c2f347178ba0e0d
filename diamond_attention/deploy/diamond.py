"""Diamond Attention: three blocks and a head, for one agent's view. docs/policy_format.md has it in words."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Answer, Categorical, Gaussian
from diamond_attention.deploy.interface import Deployed, Interface, allowed_actions, choices, one_of, whole
from diamond_attention.deploy.layers import (
    HIDDEN,
    Linear,
    Take,
    silu,
    softmax_or_zero,
    take_linear,
    take_projection,
    unless_hidden,
)
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError

MASKS = ("rank", "none", "dropout", "signed", "floor", "first", "split")
THIRD_BLOCKS = ("choice", "paper")
BLOCKS, MASKED_BLOCKS = 3, 2


class Block(NamedTuple):
    """One score matrix between tasks and agents, read in both directions."""

    agent_values: Linear
    task_values: Linear

    def __call__(self, tasks: Any, agents: Any, terms: list[Any], kept: Any = None, share: float = 1.0) -> Any:
        """Tasks having seen agents, and agents having seen tasks; `terms` has one for each head."""
        agent_values, task_values = self.agent_values(agents), self.task_values(tasks)
        size = tasks.shape[-1] // len(terms)
        to_tasks, to_agents = [], []
        for head, term in enumerate(terms):
            own = slice(head * size, (head + 1) * size)
            weights = softmax_or_zero(tasks[:, own] @ agents[:, own].T * (1.0 / math.sqrt(size)) + term)
            if kept is not None:
                weights = np.where(kept, weights / share, np.float32(0))
            to_tasks.append(weights @ agent_values[:, own])
            to_agents.append(weights.T @ task_values[:, own])
        return np.concatenate([*to_tasks, tasks], axis=-1), np.concatenate([*to_agents, agents], axis=-1)


class Diamond(Deployed):
    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        width = whole("width", settings.get("width"))
        self.mask = one_of("mask", settings.get("mask"), MASKS)
        self.rate = settings.get("dropout_rate", 0.5)
        if self.mask == "dropout" and settings.get("dropout_at_execution", True) is False:
            self.mask = "none"  # weight for weight the same
        if self.mask == "dropout" and not (isinstance(self.rate, float) and 0 < self.rate < 1):
            raise UserError(f"its setting dropout_rate is {self.rate!r}, and must lie between 0 and 1.")
        self.action = interface.action
        continuous, chooses = self.action.kind == "continuous", self.action.kind == "choose_task"
        by_choice = one_of("third_block", settings.get("third_block", "choice"), THIRD_BLOCKS) == "choice"
        self.choice = take_linear(take, "choice.task_values", width, width) if continuous and by_choice else None
        blocks = BLOCKS if chooses or (continuous and not by_choice) else MASKED_BLOCKS
        self.embed_agent = take_projection(take, "embed_agent", len(interface.agent_features), width)
        self.embed_task = take_projection(take, "embed_task", len(interface.task_features), width)
        self.blocks = [
            Block(*(take_linear(take, f"blocks.{i}.{side}_values", width, width) for side in ("agent", "task")))
            for i in range(blocks)
        ]
        self.agent_projections, self.task_projections = (
            [take_projection(take, f"{side}_projections.{i}", 2 * width, width) for i in range(MASKED_BLOCKS)]
            for side in ("agent", "task")
        )
        bias = (
            take("rank_bias", MASKED_BLOCKS) if settings["mask"] in ("signed", "floor") else np.zeros(MASKED_BLOCKS)
        )
        softplus = np.log1p(np.exp(-np.abs(bias))) + np.maximum(bias, 0)
        self.rank_bias = [float(each) for each in (softplus if self.mask == "floor" else bias)]
        if continuous:
            self.hidden = take_linear(take, "head.hidden", 2 * width, width)
            self.mean = take_linear(take, "head.mean", width, self.action.number)
            self.log_std = take("head.log_std", self.action.number)
        elif chooses:
            self.query = take_projection(take, "head.viewer_projection", 2 * width, width)
            self.keys = take_projection(take, "head.task_projection", 2 * width, width)
        else:
            self.act_hidden = take_linear(take, "head.act_hidden", width, width)
            self.act = take_linear(take, "head.act", width, self.action.number)
            self.choose_viewer = take_linear(take, "head.choose_viewer", width, width)
            self.choose_task = take_linear(take, "head.choose_task", width, width)
            self.choose = take_linear(take, "head.choose", width, 1)
        self.width = width

    def drawn(self, view: View, generator: np.random.Generator) -> View:
        if self.mask != "dropout":
            return view
        shape = (BLOCKS, len(view.tasks), len(view.agents))
        if view.noise is not None:
            if np.shape(view.noise) != shape:
                raise UserError(f"view.noise has the shape {np.shape(view.noise)}, and must have {shape}.")
            return view
        return view._replace(noise=generator.random(shape, np.float32) >= self.rate)

    def rank_terms(self, block: int, ranks: Any) -> list[Any]:
        """What ranks add to the scores of a block, in each of its heads."""
        hidden = np.float32(HIDDEN)
        if self.mask == "rank" or (self.mask == "first" and block == 0):
            return [np.where(ranks >= ranks[0], np.float32(0), hidden)]
        if self.mask == "split":
            return [np.where(ranks >= ranks[0], np.float32(0), hidden), np.float32(0)]
        if self.mask == "signed":
            return [self.rank_bias[block] * np.sign(ranks - ranks[0])]
        if self.mask == "floor":
            return [np.where(ranks < ranks[0], np.float32(-self.rank_bias[block]), np.float32(0))]
        return [np.float32(0)]

    def answer(self, view: View, number: Any = None) -> Answer:
        agents, tasks = self.embed_agent(view.agents), self.embed_task(view.tasks)
        present = unless_hidden(view.task_present[:, None] & view.agent_present[None, :])
        kept = [None] * BLOCKS if self.mask != "dropout" else [view.noise[block] for block in range(BLOCKS)]
        share = 1.0 - self.rate

        terms = [present + term for term in self.rank_terms(0, view.ranks)]
        tasks, agents = self.blocks[0](tasks, agents, terms, kept[0], share)
        tasks, agents = self.task_projections[0](tasks), self.agent_projections[0](agents)

        terms = [present + term for term in self.rank_terms(1, view.ranks)]
        tasks, agents = self.blocks[1](tasks, agents, terms, kept[1], share)
        tasks, viewer = self.task_projections[1](tasks), self.agent_projections[1](agents[:1])

        if self.action.kind == "act_or_choose_task":
            return self.act_or_choose(viewer, tasks, view)
        third = None if kept[2] is None else kept[2][:, :1]
        if self.choice is not None:
            weights = softmax_or_zero(
                viewer @ tasks.T * (1.0 / math.sqrt(self.width)) + unless_hidden(view.task_present)
            )
            if third is not None:
                weights = np.where(third.T, weights / share, np.float32(0))
            viewer = np.concatenate([weights @ self.choice(tasks), viewer], axis=-1)
        else:
            tasks, viewer = self.blocks[2](tasks, viewer, [present[:, :1]], third, share)
        if self.action.kind == "continuous":
            return Gaussian(self.mean(silu(self.hidden(viewer)))[0], self.log_std)
        logits = self.keys(tasks) @ self.query(viewer)[0] * self.width**-0.25
        return Categorical(choices(logits, allowed_actions(view, self.action)))

    def act_or_choose(self, viewer: Any, tasks: Any, view: View) -> Answer:
        fixed = self.act(silu(self.act_hidden(viewer)))[0]
        chosen = self.choose(silu(self.choose_viewer(viewer) + self.choose_task(tasks)))[:, 0]
        return Categorical(choices(np.concatenate([fixed, chosen]), allowed_actions(view, self.action)))
