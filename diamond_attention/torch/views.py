"""What agents see, as tensors with any number of leading axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError


class Views(NamedTuple):
    """A batch of what `AgentView` holds. Row 0 of each agent axis is the viewer; `...` is any
    number of axes, or none.
    """

    agents: Tensor
    """[..., agent, feature]: the viewer, then the peers it knows of, in any order."""
    tasks: Tensor
    """[..., task, feature]"""
    agent_present: Tensor | None = None
    """[..., agent], bool; by default all are there. Rows of who is not there mean nothing."""
    task_present: Tensor | None = None
    ranks: Tensor | None = None
    """[..., agent], float32: the numbers heard this step, the viewer's own first. Data, to be stored and replayed."""
    legal_actions: Tensor | None = None
    """[..., action], bool: what can be done now; by default every task that is there may be chosen."""
    kept: Tensor | None = None
    """[..., block, task, agent], bool: which attention weights dropout keeps, from `DiamondPolicy.draw`. Data too."""


def as_batch(views: Sequence[View], device: torch.device | str = "cpu") -> Views:
    """Views of numpy arrays, such as `deploy.spread_view` makes, one after the other along a new first axis.

    They may be of different sizes: what a view does not list is absent from it. All have legal actions, or none.
    """
    if not views:
        raise UserError("there is no view to make a batch of.")
    legal = [view.legal_actions for view in views]
    if any(each is None for each in legal) and not all(each is None for each in legal):
        raise UserError("some views have legal_actions and others none; give all of them, or none.")
    rows = [(np.asarray(view.agents, np.float32), np.asarray(view.tasks, np.float32)) for view in views]
    told = [(view.agent_present, view.task_present) for view in views]
    present = [[_flags(flags[side], both[side]) for flags, both in zip(told, rows, strict=True)] for side in range(2)]
    ranks = [
        np.zeros(len(agents), np.float32) if view.ranks is None else np.asarray(view.ranks, np.float32)
        for view, (agents, _) in zip(views, rows, strict=True)
    ]
    agents, tasks, agent_present, task_present, numbers = (
        _padded(part, device) for part in (*map(list, zip(*rows, strict=True)), *present, ranks)
    )
    can = None if legal[0] is None else _padded([np.asarray(each, bool) for each in legal], device)
    return Views(agents, tasks, agent_present, task_present, numbers, can)


def _flags(told: Any, rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), bool) if told is None else np.asarray(told, bool)


def _padded(arrays: list[np.ndarray], device: torch.device | str) -> Tensor:
    """Stacked, the shorter ones with zeros at the end."""
    largest = np.max([each.shape for each in arrays], axis=0)
    whole = np.zeros((len(arrays), *largest), arrays[0].dtype)
    for row, each in zip(whole, arrays, strict=True):
        row[tuple(slice(size) for size in each.shape)] = each
    return torch.from_numpy(whole).to(device)
