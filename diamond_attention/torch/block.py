"""The Diamond Attention block (Eq. 4) and the layers around it; `diamond_attention/attention.py` is the same in JAX.

    P = softmax over agents ( T Aᵀ / sqrt(d) + M )
    tasks having seen agents = P  (W_A A) ⊕ T
    agents having seen tasks = Pᵀ (W_T T) ⊕ A

Parameters have the names and shapes of the policy bundle, so that a `state_dict` is what policy.safetensors holds.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

HIDDEN = -math.inf


class BlockOutput(NamedTuple):
    tasks: Tensor
    """[..., task, 2 width], having seen agents."""
    agents: Tensor
    """[..., agent, 2 width], having seen tasks."""
    weights: Tensor
    """[..., task, agent]: P, the mean over heads."""


class DiamondBlock(nn.Module):
    """One score matrix between tasks and agents, read in both directions."""

    def __init__(self, width: int):
        super().__init__()
        self.agent_values = orthogonal_linear(width, width, 1.0)
        self.task_values = orthogonal_linear(width, width, 1.0)

    def forward(
        self,
        tasks: Tensor,
        agents: Tensor,
        score_terms: Tensor,
        kept: Tensor | None = None,
        keep_probability: float = 1.0,
    ) -> BlockOutput:
        """Of tasks [..., task, width] and agents [..., agent, width].

        `score_terms` [..., head, task, agent] is M: 0, −∞ or anything between, a head for each of its slices of the
        channels. `kept` [..., task, agent] is the dropout ablation's mask on the weights.
        """
        heads = score_terms.shape[-3]
        by_head = [
            each.unflatten(-1, (heads, -1)).transpose(-2, -3)
            for each in (tasks, agents, self.task_values(tasks), self.agent_values(agents))
        ]
        queries, keys, task_values, agent_values = by_head
        weights = softmax_or_zero(queries @ keys.mT / math.sqrt(queries.shape[-1]) + score_terms)
        if kept is not None:
            weights = torch.where(kept.unsqueeze(-3), weights / keep_probability, 0.0)
        to_tasks, to_agents = (
            seen.transpose(-2, -3).flatten(-2) for seen in (weights @ agent_values, weights.mT @ task_values)
        )
        return BlockOutput(torch.cat([to_tasks, tasks], -1), torch.cat([to_agents, agents], -1), weights.mean(-3))


class ChoiceBlock(nn.Module):
    """What stands in place of a block where one agent alone reads the tasks: its softmax runs over the tasks."""

    def __init__(self, width: int):
        super().__init__()
        self.task_values = orthogonal_linear(width, width, 1.0)

    def forward(
        self, tasks: Tensor, viewer: Tensor, term: Tensor, kept: Tensor | None = None, keep_probability: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Of the viewer [..., width]: itself having seen the tasks, and what it gave to each."""
        scores = (tasks @ viewer.unsqueeze(-1)).squeeze(-1) / math.sqrt(tasks.shape[-1])
        weights = softmax_or_zero(scores + term)
        if kept is not None:
            weights = torch.where(kept, weights / keep_probability, 0.0)
        seen = (weights.unsqueeze(-2) @ self.task_values(tasks)).squeeze(-2)
        return torch.cat([seen, viewer], -1), weights


class Projection(nn.Module):
    """Two linear layers around a SiLU, then normalised, without a scale or an offset of its own."""

    def __init__(self, features: int, width: int):
        super().__init__()
        self.first = orthogonal_linear(features, width, math.sqrt(2.0))
        self.second = orthogonal_linear(width, width, 1.0)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.norm(self.second(nn.functional.silu(self.first(rows))))


def orthogonal_linear(features: int, out: int, scale: float) -> nn.Linear:
    layer = nn.Linear(features, out)
    if layer.weight.numel():
        nn.init.orthogonal_(layer.weight, gain=scale)
    nn.init.zeros_(layer.bias)
    return layer


def softmax_or_zero(scores: Tensor) -> Tensor:
    """Over the last axis; a row in which everything is hidden gives zeros, not NaN, also in gradients."""
    nobody = (scores == HIDDEN).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(nobody, 0.0), -1).masked_fill(nobody, 0.0)


def unless_hidden(present: Tensor) -> Tensor:
    """The term that hides from attention who is not there: 0 or −∞."""
    return torch.zeros(present.shape, device=present.device).masked_fill(~present, HIDDEN)
