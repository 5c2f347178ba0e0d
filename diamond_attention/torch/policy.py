"""The policy of the paper as a module for batches of views; docs/policy_format.md has it in words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from diamond_attention.deploy.bundle import Bundle, read_bundle
from diamond_attention.deploy.diamond import BLOCKS, MASKED_BLOCKS, MASKS, THIRD_BLOCKS
from diamond_attention.deploy.interface import Action, one_of, whole
from diamond_attention.errors import UserError
from diamond_attention.runs.files import is_there, write_folder
from diamond_attention.torch.block import ChoiceBlock, DiamondBlock, Projection, unless_hidden
from diamond_attention.torch.bundle import bundle_files
from diamond_attention.torch.heads import ActOrChooseTaskHead, ChooseTaskHead, ContinuousHead
from diamond_attention.torch.views import Views

Attention = tuple[Tensor, ...]
LEARNED_BIAS = {"signed": 1.0, "floor": 2.0}
"""What a rank is worth at first, of masks where that is learned."""
HEARS_RANKS = {"rank", "signed", "floor", "first", "split"}


class Seen(NamedTuple):
    """What two or three blocks make of a view."""

    viewer: Tensor
    """[..., 2 width], or [..., width] where a head stands in place of the third block."""
    tasks: Tensor
    """[..., task, 2 width or width]"""
    attention: Attention
    """P of each block, [..., task, agent]."""


class DiamondTrunk(nn.Module):
    """Everything before the head, for views with so many features.

    `third_block` is what reads the tasks for the viewer: `choice` or `paper` give a vector of fixed length, `paper`
    also one for each task; None leaves that to the head.
    """

    def __init__(
        self,
        agent_features: int,
        task_features: int,
        *,
        width: int = 64,
        mask: str = "rank",
        third_block: str | None = "choice",
        dropout_rate: float = 0.5,
        dropout_at_execution: bool = True,
    ):
        super().__init__()
        self.width = whole("width", width)
        self.mask = one_of("mask", mask, MASKS)
        self.dropout_rate, self.dropout_at_execution = dropout_rate, dropout_at_execution
        if mask == "dropout" and not 0 < dropout_rate < 1:
            raise UserError(f"dropout_rate is {dropout_rate!r}, and must lie between 0 and 1.")
        if mask == "split" and width % 2:
            raise UserError(f"width is {width}; mask split needs an even one.")
        self.embed_agent, self.embed_task = Projection(agent_features, width), Projection(task_features, width)
        blocks = BLOCKS if third_block == "paper" else MASKED_BLOCKS
        self.blocks = nn.ModuleList(DiamondBlock(width) for _ in range(blocks))
        self.choice = ChoiceBlock(width) if third_block == "choice" else None
        self.agent_projections, self.task_projections = (
            nn.ModuleList(Projection(2 * width, width) for _ in range(MASKED_BLOCKS)) for _ in range(2)
        )
        bias = LEARNED_BIAS.get(mask)
        self.rank_bias = None if bias is None else nn.Parameter(torch.full((MASKED_BLOCKS,), bias))

    def draw(self, views: Views, generator: torch.Generator | None = None) -> Views:
        """The views with what the policy wants drawn: of the dropout ablation, which attention weights are kept.

        Drawn once, stored with the views and replayed, like ranks. In evaluation mode nothing is dropped where the
        policy was trained so.
        """
        if self.mask != "dropout" or not (self.training or self.dropout_at_execution):
            return views
        shape = (*views.agents.shape[:-2], BLOCKS, views.tasks.shape[-2], views.agents.shape[-2])
        drawn = torch.rand(shape, generator=generator, device=views.agents.device)
        return views._replace(kept=drawn >= self.dropout_rate)

    def rank_terms(self, block: int, ranks: Tensor) -> Tensor:
        """What ranks [..., agent] add to the scores of a block, [..., head, 1, agent]. The only place they enter."""
        own, nothing = ranks[..., :1], torch.zeros_like(ranks)
        if self.mask == "rank" or (self.mask == "first" and block == 0):
            terms = [unless_hidden(ranks >= own)]
        elif self.mask == "split":
            terms = [unless_hidden(ranks >= own), nothing]
        elif self.mask == "signed" and self.rank_bias is not None:
            terms = [self.rank_bias[block] * torch.sign(ranks - own)]
        elif self.mask == "floor" and self.rank_bias is not None:
            terms = [-nn.functional.softplus(self.rank_bias[block]) * (ranks < own)]
        else:
            terms = [nothing]
        return torch.stack(terms, -2).unsqueeze(-2)

    def see(self, views: Views) -> Seen:
        agent_present = _all_there(views.agent_present, views.agents)
        task_present = _all_there(views.task_present, views.tasks)
        agents = self.embed_agent(_where_there(views.agents, agent_present))
        tasks = self.embed_task(_where_there(views.tasks, task_present))
        ranks = self._ranks(views)
        present = unless_hidden(task_present.unsqueeze(-1) & agent_present.unsqueeze(-2)).unsqueeze(-3)
        keep, shown = 1.0 - self.dropout_rate, []
        for block in range(MASKED_BLOCKS):
            seen = self.blocks[block](tasks, agents, present + self.rank_terms(block, ranks), _of(views, block), keep)
            tasks, agents = self.task_projections[block](seen.tasks), self.agent_projections[block](seen.agents)
            shown.append(seen.weights)
        viewer = agents[..., 0, :]
        kept = None if views.kept is None else views.kept[..., 2, :, :1]
        if self.choice is not None:
            third = None if kept is None else kept.squeeze(-1)
            viewer, weights = self.choice(tasks, viewer, unless_hidden(task_present), third, keep)
            shown.append(weights.unsqueeze(-1))
        elif len(self.blocks) == BLOCKS:
            # The viewer always sees itself, so no mask changes this last block.
            seen = self.blocks[2](tasks, viewer.unsqueeze(-2), present[..., :1], kept, keep)
            tasks, viewer = seen.tasks, seen.agents.squeeze(-2)
            shown.append(seen.weights)
        return Seen(viewer, tasks, tuple(shown))

    def _ranks(self, views: Views) -> Tensor:
        if views.ranks is not None:
            return views.ranks.float()
        if self.mask in HEARS_RANKS and views.agents.shape[-2] > 1:
            raise UserError(
                f"views.ranks is missing, and the policy's mask is {self.mask}; it holds the numbers of all "
                f"{views.agents.shape[-2]} agents, the viewer's first."
            )
        return torch.zeros(views.agents.shape[:-1], device=views.agents.device)


class DiamondPolicy(DiamondTrunk):
    """`policy(views)` gives the action distribution and the attention weights P behind it.

    `DiamondPolicy.load("spread")` has the weights of a bundle; `DiamondPolicy(5, 2, Action("continuous", 2))` begins
    anew, as in training here.
    """

    def __init__(
        self,
        agent_features: int,
        task_features: int,
        action: Action,
        *,
        third_block: str = "choice",
        **settings: Any,
    ):
        by_kind: dict[str, str | None] = {
            "continuous": one_of("third_block", third_block, THIRD_BLOCKS),
            "choose_task": "paper",
            "act_or_choose_task": None,
        }
        block = by_kind[one_of("action", action.kind, tuple(by_kind))]
        super().__init__(agent_features, task_features, third_block=block, **settings)
        self.agent_features, self.task_features, self.action = agent_features, task_features, action
        self.third_block = third_block
        self.bundle: Mapping[str, Any] | None = None
        """The policy.json that it was loaded from."""
        self.name: str | None = None
        """Of that policy."""
        self.head: nn.Module
        if action.kind == "continuous":
            self.head = ContinuousHead(self.width, action.number)
        elif action.kind == "choose_task":
            self.head = ChooseTaskHead(self.width)
        else:
            self.head = ActOrChooseTaskHead(self.width, action.number)

    def forward(self, views: Views) -> tuple[Distribution, Attention]:
        both = ((views.agents, self.agent_features, "agents"), (views.tasks, self.task_features, "tasks"))
        for rows, number, what in both:
            if rows.shape[-1] != number:
                raise UserError(f"views.{what} has rows of {rows.shape[-1]} features, and the policy reads {number}.")
        seen = self.see(views)
        allowed = None if self.action.kind == "continuous" else self._allowed(views)
        return self.head(seen.viewer, seen.tasks, allowed), seen.attention

    def _allowed(self, views: Views) -> Tensor:
        if views.legal_actions is not None:
            return views.legal_actions
        present = _all_there(views.task_present, views.tasks)
        return torch.cat([present.new_ones((*present.shape[:-1], self.action.number)), present], -1)

    # --- Bundles ----------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """As a bundle has them."""
        return {
            "kind": "diamond",
            "width": self.width,
            "mask": self.mask,
            "third_block": self.third_block,
            "dropout_rate": self.dropout_rate,
            "dropout_at_execution": self.dropout_at_execution,
        }

    @classmethod
    def load(cls, named: Path | str) -> "DiamondPolicy":
        """A shipped policy by its name, or the folder of a bundle."""
        bundle = read_bundle(named)
        if bundle.kind != "diamond":
            raise UserError(
                f"{named} is a policy of the kind {bundle.kind}, and diamond_attention.torch knows diamond; "
                "diamond_attention.deploy plays every kind."
            )
        settings = {name: value for name, value in bundle.described["settings"].items() if name != "kind"}
        interface = bundle.interface
        policy = cls(len(interface.agent_features), len(interface.task_features), interface.action, **settings)
        policy.load_state_dict({name: torch.tensor(array) for name, array in bundle.arrays.items()})
        policy.bundle, policy.name = bundle.described, bundle.name
        return policy

    def save(self, folder: Path | str, like: Path | str | None = None) -> None:
        """The policy as a bundle in a new folder, for everything that takes one: `diamond evaluate`, a robot.

        Where it was not loaded from one, `like` names a policy for the same views and actions, whose world it plays.
        """
        described = self.bundle if like is None else self._like(read_bundle(like))
        if described is None:
            raise UserError("this policy was not loaded from a bundle; name one for the same world: save(…, like=…).")
        if is_there(Path(folder)):
            raise UserError(f"{folder} already exists; name a new folder.")
        arrays = {name: values.detach().float().cpu().numpy() for name, values in self.state_dict().items()}
        write_folder(Path(folder), bundle_files(described, self.settings, arrays, self.name))

    def _like(self, bundle: Bundle) -> Mapping[str, Any]:
        interface = bundle.interface
        theirs = len(interface.agent_features), len(interface.task_features), interface.action
        if theirs != (self.agent_features, self.task_features, self.action):
            raise UserError(
                f"{bundle.name} reads {theirs[0]} features of agents and {theirs[1]} of tasks and answers "
                f"{theirs[2]}; this policy reads {self.agent_features} and {self.task_features} and answers "
                f"{self.action}."
            )
        return bundle.described


# --- Parts ----------------------------------------------------------------------------------------


def _all_there(present: Tensor | None, rows: Tensor) -> Tensor:
    return torch.ones(rows.shape[:-1], dtype=torch.bool, device=rows.device) if present is None else present


def _where_there(rows: Tensor, present: Tensor) -> Tensor:
    """Zeros in the rows of who is not there: whatever stands in them, no weight times it may be no number."""
    return rows.float().masked_fill(~present.unsqueeze(-1), 0.0)


def _of(views: Views, block: int) -> Tensor | None:
    return None if views.kept is None else views.kept[..., block, :, :]
