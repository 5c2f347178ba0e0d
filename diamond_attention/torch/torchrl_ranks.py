"""Ranks in TorchRL: every agent draws a number each step, and the number becomes part of what was observed."""

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import Transform

from diamond_attention.errors import UserError

RANK = "rank"
STEP = "rank_step"
RANDOM_BITS = 23
"""As in training with JAX and on robots."""


class DrawRanks(Transform):
    """Adds (group, "rank") [..., agent, 1]: drawn when the step is observed, so stored and replayed with it.

    An algorithm that goes over its data again, as PPO does, then asks the new policy about the very ranks under which
    the old one acted. If the policy drew them itself, the ratio of an unchanged policy would not be one.

    `hold`: steps for which a number stays in force, or "episode". With more than one, "rank_step" counts.
    """

    def __init__(self, groups: Sequence[str] = ("agents",), hold: int | str = 1):
        if hold != "episode" and (type(hold) is not int or hold < 1):
            raise UserError(f"hold is {hold!r}; it must be a number of steps, 1 or more, or 'episode'.")
        super().__init__()
        self.groups, self.hold = tuple(groups), hold

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        for group in self.groups:
            if group not in set(observation_spec.keys()):
                raise UserError(f"there is no group {group!r} of agents; there are {list(observation_spec.keys())}.")
            shape = (*observation_spec[group].shape, 1)
            observation_spec[group, RANK] = Bounded(
                0.0, 1.0, torch.Size(shape), observation_spec.device, torch.float32
            )
        if self._counts:
            shape = (*observation_spec.shape, 1)
            observation_spec[STEP] = Unbounded(torch.Size(shape), observation_spec.device, torch.int64)
        return observation_spec

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        begins = tensordict.get("_reset", None)  # [..., 1]: of some teams only, where a batch of them goes on
        if begins is None:
            begins = torch.ones((*tensordict_reset.batch_size, 1), dtype=torch.bool, device=tensordict_reset.device)
        if self._counts:
            first = torch.zeros_like(begins, dtype=torch.int64)
            tensordict_reset.set(STEP, _where(begins, first, tensordict.get(STEP, None)))
        return self._drawn(begins, tensordict, tensordict_reset)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        due = torch.full((*next_tensordict.batch_size, 1), self.hold == 1, device=next_tensordict.device)
        if self._counts:
            step = tensordict.get(STEP) + 1
            next_tensordict.set(STEP, step)
            due = step % int(self.hold) == 0
        return self._drawn(due, tensordict, next_tensordict)

    @property
    def _counts(self) -> bool:
        return self.hold not in (1, "episode")

    def _drawn(self, due: Tensor, before: TensorDictBase, after: TensorDictBase) -> TensorDictBase:
        """New numbers for the teams that are due [..., 1], of the others those that they had."""
        for group in self.groups:
            shape = (*after.get(group).batch_size, 1)
            fresh = torch.randint(1 << RANDOM_BITS, shape, device=due.device) / (1 << RANDOM_BITS)
            after.set((group, RANK), _where(due.unsqueeze(-1), fresh, before.get((group, RANK), None)))
        return after


def _where(chosen: Tensor, ours: Tensor, otherwise: Tensor | None) -> Tensor:
    return ours if otherwise is None else torch.where(chosen, ours, otherwise)
