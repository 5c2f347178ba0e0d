"""Diamond Attention as a model of BenchMARL, for policies and for critics.

    task = with_ranks(VmasTask.SIMPLE_SPREAD.get_task({"n_agents": 4, "obs_agents": False, "max_steps": 100}))
    model = DiamondConfig(task_columns=(4, 12), task_features=2)
    Experiment(task, MappoConfig.get_from_yaml(), model, seed=0, config=ExperimentConfig.get_from_yaml()).run()

An observation is a flat vector. `task_columns` says which of its columns are rows about tasks, in the viewer's frame;
all others are about the agent itself. Each agent broadcasts those once a step, with its rank, and sees what it hears
of a peer as the difference to its own. Nothing else of a peer reaches a policy.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Experiment
from benchmarl.models.common import Model, ModelConfig
from tensordict import TensorDictBase
from torch import Tensor, nn
from torchrl.envs import EnvBase, Transform

from diamond_attention.deploy.interface import Action
from diamond_attention.errors import UserError
from diamond_attention.torch.block import orthogonal_linear
from diamond_attention.torch.policy import HEARS_RANKS, DiamondPolicy, DiamondTrunk
from diamond_attention.torch.torchrl_ranks import RANK, DrawRanks
from diamond_attention.torch.views import Views


@dataclass
class DiamondConfig(ModelConfig):
    """Settings of the model. `model_config_registry["diamond"] = DiamondConfig` makes BenchMARL know it by name."""

    width: int = 64
    mask: str = "rank"
    """As in training with JAX, but for dropout. Critics hide nobody."""
    third_block: str = "choice"
    task_columns: Sequence[int] | None = None
    """First column and the one after the last. None: the whole observation is one task."""
    task_features: int = 0
    """Columns of one task."""
    rank_key: str | None = RANK
    """Where `DrawRanks` writes. None: nobody has a rank, and all are equal."""
    start_from: str | None = None
    """A bundle whose weights policies begin with, such as `spread`."""

    @staticmethod
    def associated_class() -> type[Model]:
        return Diamond

    @classmethod
    def get_from_yaml(cls, path: str | None = None) -> "DiamondConfig":
        """Without a path the defaults above."""
        return cls() if path is None else super().get_from_yaml(path)


def with_ranks(task: TaskClass, hold: int | str = 1) -> TaskClass:
    """The same task, in which every agent draws a rank."""
    ranked = copy.copy(task)
    ranked.get_env_transforms = _AndRanks(task, hold)
    return ranked


def policies_of(experiment: Experiment) -> list[DiamondPolicy]:
    """Those of an experiment with continuous actions: one, or one for each agent that has its own; to `save`."""
    return [module for module in experiment.policy.modules() if isinstance(module, DiamondPolicy)]


class _AndRanks:
    """A class: BenchMARL saves tasks with an experiment, and a function within another cannot be saved."""

    def __init__(self, task: TaskClass, hold: int | str):
        self.task, self.hold = task, hold

    def __call__(self, env: EnvBase) -> list[Transform]:
        return [*self.task.get_env_transforms(env), DrawRanks(tuple(self.task.group_map(env)), self.hold)]


class Diamond(Model):
    def __init__(
        self,
        *,
        width: int,
        mask: str,
        third_block: str,
        task_columns: Sequence[int] | None,
        task_features: int,
        rank_key: str | None,
        start_from: str | None,
        **about: Any,
    ):
        super().__init__(**about)
        self.rank_key = None if self.is_critic else rank_key
        self.observed = [key for key in self.in_keys if _last(key) != rank_key]
        self.ranks = [key for key in self.in_keys if _last(key) == self.rank_key]
        if mask == "dropout":
            raise UserError("mask is dropout, whose masks are not stored here; use rank, none or another.")
        if self.rank_key is not None and mask in HEARS_RANKS and not self.ranks:
            raise UserError(
                f"nothing that agents observe is called {self.rank_key!r}; give the experiment with_ranks(task), or "
                "set rank_key to None to go without ranks."
            )
        columns = sum(self.input_spec[key].shape[-1] for key in self.observed)
        self.task_columns = self._checked(task_columns, task_features, columns)
        self.task_features = task_features if self.task_columns else columns
        first, last = self.task_columns or (0, 0)
        agent_features = columns - (last - first) + 1  # and whether it is the viewer
        out = self.output_leaf_spec.shape[-1]
        settings: dict[str, Any] = {"width": width, "third_block": third_block}
        settings["mask"] = "none" if self.is_critic else mask
        self.answers_with_normal = not self.centralised and self._is_mean_and_width(out)

        def network() -> nn.Module:
            if not self.answers_with_normal:
                return DiamondNetwork(agent_features, self.task_features, out, pooled=self.centralised, **settings)
            action = Action("continuous", out // 2)
            if start_from is None:
                return DiamondPolicy(agent_features, self.task_features, action, **settings)
            policy = DiamondPolicy.load(start_from)
            has = policy.agent_features, policy.task_features, policy.action
            wanted = agent_features, self.task_features, action
            if has != wanted:
                raise UserError(
                    f"start_from is {start_from!r}, a policy for {has[0]} features of agents, {has[1]} of tasks and "
                    f"{has[2]}; these observations have {wanted[0]} and {wanted[1]}, and actions are {wanted[2]}."
                )
            return policy

        self.networks = nn.ModuleList(network() for _ in range(1 if self.share_params else self.n_agents))
        self.networks.to(self.device)
        agents = self.n_agents if self.input_has_agent_dim else 1
        listed = [[viewer, *(peer for peer in range(agents) if peer != viewer)] for viewer in range(agents)]
        self.register_buffer("listed", torch.tensor(listed, device=self.device), persistent=False)

    def _checked(self, columns: Sequence[int] | None, features: int, observed: int) -> tuple[int, int] | None:
        if columns is None or not self.input_has_agent_dim:
            return None  # a critic that reads the state of the world has no agent's observation before it
        first, last = columns
        if not 0 <= first < last <= observed or features < 1 or (last - first) % features:
            raise UserError(
                f"task_columns are {tuple(columns)} and task_features {features}; an observation has {observed} "
                "columns, and those of tasks must be whole tasks."
            )
        return first, last

    def _is_mean_and_width(self, out: int) -> bool:
        """Whether the algorithm makes a normal distribution from the answer: then the policy is one of ours."""
        if self.action_spec is None or _last(self.out_key) != "logits":
            return False
        action = self.action_spec[self.agent_group, "action"]
        return action.dtype.is_floating_point and out == 2 * action.shape[-1]

    def _forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = torch.cat([tensordict.get(key).float() for key in self.observed], -1)
        if not self.input_has_agent_dim:
            rows = rows.unsqueeze(-2)  # the state of the world, as a team of one would see it
        ranks = tensordict.get(self.ranks[0]).squeeze(-1) if self.ranks else torch.zeros_like(rows[..., 0])
        views = self.views(rows, ranks)
        if self.centralised:
            answer = torch.stack([network(views) for network in self.networks], -2)
            answer = answer.squeeze(-2) if self.share_params else answer
        elif self.share_params:
            answer = self._answer(self.networks[0], views)
        else:
            each = enumerate(self.networks)
            answer = torch.cat([self._answer(network, _of_viewer(views, number)) for number, network in each], -2)
        return tensordict.set(self.out_key, answer)

    def views(self, rows: Tensor, ranks: Tensor) -> Views:
        """What each agent sees, from what each observes [..., agent, column] and drew [..., agent]."""
        if self.task_columns is None:
            tasks, own = rows.unsqueeze(-2), rows
        else:
            first, last = self.task_columns
            tasks = rows[..., first:last].unflatten(-1, (-1, self.task_features))
            own = torch.cat([rows[..., :first], rows[..., last:]], -1)
        heard = own[..., self.listed, :]  # [..., viewer, agent, column], the viewer first
        peers = heard[..., 1:, :] - heard[..., :1, :]
        is_viewer = torch.zeros_like(heard[..., :1])
        is_viewer[..., 0, :] = 1.0
        agents = torch.cat([torch.cat([heard[..., :1, :], peers], -2), is_viewer], -1)
        return Views(agents, tasks, ranks=ranks[..., self.listed])

    def _answer(self, network: nn.Module, views: Views) -> Tensor:
        if not self.answers_with_normal:
            return network(views)
        normal = network(views)[0].base_dist
        return torch.cat([normal.mean, network.head.log_std.expand_as(normal.mean)], -1)


class DiamondNetwork(DiamondTrunk):
    """Any numbers for each viewer or, `pooled`, for the team: what critics answer, and policies of other actions."""

    def __init__(self, agent_features: int, task_features: int, out: int, *, pooled: bool, **settings: Any):
        super().__init__(agent_features, task_features, **settings)
        self.pooled = pooled
        self.hidden = orthogonal_linear(2 * self.width, self.width, 2.0**0.5)
        self.out = orthogonal_linear(self.width, out, 0.01)

    def forward(self, views: Views) -> Tensor:
        viewers = self.see(views).viewer
        hidden = nn.functional.silu(self.hidden(viewers.mean(-2) if self.pooled else viewers))
        return self.out(hidden)


def _of_viewer(views: Views, number: int) -> Views:
    assert views.ranks is not None
    rows = (views.agents[..., [number], :, :], views.tasks[..., [number], :, :])
    return Views(*rows, ranks=views.ranks[..., [number], :])


def _last(key: Any) -> str:
    """A key of a tensordict is a name, or a path of names."""
    return key if isinstance(key, str) else key[-1]
