"""What becomes of the viewer's vector and those of the tasks: a distribution over actions."""

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal
from torch.nn.functional import silu

from diamond_attention.torch.block import HIDDEN, Projection, orthogonal_linear


class ContinuousHead(nn.Module):
    """A normal distribution around a learned mean; its width is a free parameter. Whoever acts clips to [−1, 1]."""

    def __init__(self, width: int, components: int):
        super().__init__()
        self.hidden = orthogonal_linear(2 * width, width, math.sqrt(2.0))
        self.mean = orthogonal_linear(width, components, 0.01)
        self.log_std = nn.Parameter(torch.zeros(components))

    def forward(self, viewer: Tensor, tasks: Tensor, allowed: Tensor | None) -> Distribution:
        mean = self.mean(silu(self.hidden(viewer)))
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)


class ChooseTaskHead(nn.Module):
    """One logit for each task: how well that task's vector fits the viewer's."""

    def __init__(self, width: int):
        super().__init__()
        self.viewer_projection = Projection(2 * width, width)
        self.task_projection = Projection(2 * width, width)

    def forward(self, viewer: Tensor, tasks: Tensor, allowed: Tensor) -> Distribution:
        query, keys = self.viewer_projection(viewer), self.task_projection(tasks)
        return _choice((keys @ query.unsqueeze(-1)).squeeze(-1) / query.shape[-1] ** 0.25, allowed)


class ActOrChooseTaskHead(nn.Module):
    """One logit for each fixed action, from the viewer; one for each task, from the viewer and that task."""

    def __init__(self, width: int, fixed_actions: int):
        super().__init__()
        self.act_hidden = orthogonal_linear(width, width, math.sqrt(2.0))
        self.act = orthogonal_linear(width, fixed_actions, 0.01)
        self.choose_viewer = orthogonal_linear(width, width, 1.0)
        self.choose_task = orthogonal_linear(width, width, 1.0)
        self.choose = orthogonal_linear(width, 1, 0.01)

    def forward(self, viewer: Tensor, tasks: Tensor, allowed: Tensor) -> Distribution:
        fixed = self.act(silu(self.act_hidden(viewer)))
        joined = self.choose_viewer(viewer).unsqueeze(-2) + self.choose_task(tasks)
        return _choice(torch.cat([fixed, self.choose(silu(joined)).squeeze(-1)], -1), allowed)


def _choice(logits: Tensor, allowed: Tensor) -> Categorical:
    # Not validated: an agent that is not there may have nothing to choose from, and its answer is not read.
    return Categorical(logits=logits.masked_fill(~allowed, HIDDEN), validate_args=False)
