"""The settings that all off-policy methods share."""

from dataclasses import dataclass
from typing import Annotated

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import RolloutSettings
from diamond_attention.ranges import Between, check_ranges


@dataclass(frozen=True)
class OffPolicySettings(RolloutSettings):
    """Play a little, keep the steps, learn from steps drawn among all that are kept."""

    memory_settings = ("replay", "envs", "batch")

    envs: Annotated[int, Between(1, 2**20)] = 64
    """Teams that play side by side."""
    steps: Annotated[int, Between(1, 2**16)] = 1
    """Steps each team plays before an update. More: a better-used device, staler data."""
    gradient_steps: Annotated[int, Between(1, 2**16)] = 1
    """Minibatches learned from in an update. More: more learning from each step, and more time."""
    batch: Annotated[int, Between(1, 2**24)] = 256
    """Joint samples (one step of one team) in a minibatch, drawn with repetition."""
    replay: Annotated[int, Between(1, 2**30)] = 65_536
    """Steps that are kept, the newest in the place of the oldest; a multiple of envs × steps. More: less is
    forgotten, more memory and larger checkpoints."""
    warmup: Annotated[int, Between(1, 2**30)] = 1024
    """Steps that must have been kept before learning begins."""
    learning_rate: Annotated[float, Between(0, 1000, low_left_out=True)] = 3e-4
    """Adam's step size."""
    anneal: bool = False
    """Lower the learning rate linearly to zero over the run."""
    gamma: Annotated[float, Between(0, 1)] = 0.99
    """Discount. Nearer 1: rewards further away count."""
    tau: Annotated[float, Between(0, 1, low_left_out=True)] = 0.005
    """How far the slow copies, which targets are computed with, follow after each minibatch."""
    reward_scale: Annotated[float, Between(0, 1_000_000, low_left_out=True)] = 1.0
    """Rewards are learned from times this. Networks learn values near 1 most easily; scores are never scaled."""
    max_grad_norm: Annotated[float, Between(0, 1_000_000_000, low_left_out=True)] = 10.0
    """Gradients longer than this are scaled down to it: the policy's, the critics' or mixer's, each by itself."""
    keep_replay: bool = True
    """Whether a checkpoint holds the replay buffer. Without it checkpoints are small, and a run that is resumed fills
    a new one before it learns on: no longer the same to the bit as one that was never stopped."""
    cut_after: Annotated[int | None, Between(1, 1_000_000)] = None
    """Cut training episodes after this many steps; what follows still counts in the targets. None: at the world's
    time limit."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.name}.")
        if self.replay % self.steps_per_update:
            raise UserError(
                f"{self.name}.replay is {self.replay}, which is not a multiple of the {self.steps_per_update} steps "
                f"of an update ({self.name}.envs {self.envs} × {self.name}.steps {self.steps}); choose a multiple."
            )
        if self.warmup > self.replay:
            raise UserError(
                f"{self.name}.warmup is {self.warmup}, and {self.name}.replay keeps {self.replay} steps; lower it."
            )
