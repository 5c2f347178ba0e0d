"""The settings of PPO."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import RolloutSettings
from diamond_attention.ranges import Between, check_ranges

Ratio = Literal["joint", "agent"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class PpoSettings(RolloutSettings):
    """PPO with a shared policy and a critic of the team. Each number says what it does when you raise it."""

    name = "ppo"
    memory_settings = ("envs", "steps", "batch")

    envs: Annotated[int, Between(1, 2**20)] = 64
    """Teams that play side by side. More: a steadier gradient and a better-used device, fewer updates a step."""
    steps: Annotated[int, Between(1, 2**16)] = 2
    """Steps each team plays before an update. More: longer-sighted advantages, staler data."""
    batch: Annotated[int, Between(1, 2**30)] = 128
    """Joint samples (one step of one team) in a minibatch; must divide envs × steps."""
    epochs: Annotated[int, Between(1, 1000)] = 1
    """Passes over the collected steps. More: more learning from each step, further from the policy that took it."""
    learning_rate: Annotated[float, Between(0, 1000, low_left_out=True)] = 1e-4
    """Adam's step size."""
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run. The last policy is then also a calm one."""
    gamma: Annotated[float, Between(0, 1)] = 0.99
    """Discount. Nearer 1: rewards further away count."""
    gae_lambda: Annotated[float, Between(0, 1)] = 0.95
    """Nearer 1: advantages lean on observed rewards; nearer 0: on the critic."""
    clip: Annotated[float, Between(0, 1000, low_left_out=True)] = 0.2
    """How far the probability ratio may move in one update before its gradient stops."""
    value_coefficient: Annotated[float, Between(0, 1_000_000)] = 0.5
    """Weight of the critic's loss."""
    entropy_coefficient: Annotated[float, Between(0, 1_000_000)] = 0.0
    """Reward for staying random. More: slower to commit."""
    max_grad_norm: Annotated[float, Between(0, 1_000_000_000, low_left_out=True)] = 10.0
    """Gradients longer than this are scaled down to it."""
    target_kl: Annotated[float | None, Between(0, 1000, low_left_out=True)] = 0.25
    """Stop this update's epochs once the policy has moved 1.5 times this far (as SB3 does). None: never stop."""
    ratio: Ratio = "joint"
    """Clip the team's joint probability ratio (the paper, through SB3) or each agent's own."""
    normalise_advantages: bool = True
    """Subtract the mean and divide by the deviation, in each minibatch."""
    precision: Precision = "float32"
    """What the policy's layers compute in while training. bfloat16: faster on a GPU, slower on a CPU. Weights, the
    critic, ranks, the softmax and log-probabilities are float32 always."""
    normalise_values: bool = False
    """Let the critic predict values less their running mean, over their running deviation. For large rewards."""
    cut_after: Annotated[int | None, Between(1, 1_000_000)] = None
    """Cut training episodes after this many steps; what follows is still in the critic's value. None: at the
    world's time limit. Fewer: more beginnings among the steps, where most of the coordinating is done."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.name}.")
        if self.ratio not in get_args(Ratio):
            raise UserError(f"{self.name}.ratio is {self.ratio!r}; it must be one of {', '.join(get_args(Ratio))}.")
        if self.precision not in get_args(Precision):
            raise UserError(
                f"{self.name}.precision is {self.precision!r}; it must be one of {', '.join(get_args(Precision))}."
            )
        if self.steps_per_update % self.batch:
            raise UserError(
                f"{self.name}.batch is {self.batch}, which does not divide the {self.steps_per_update} steps of a "
                f"rollout ({self.name}.envs {self.envs} × {self.name}.steps {self.steps}); choose a divisor."
            )
        if self.normalise_advantages and self.batch < 2:
            raise UserError(
                f"{self.name}.batch is 1, and advantages cannot be normalised over one sample; use 2 or more."
            )


@dataclass(frozen=True)
class RelativeOfPpoSettings(PpoSettings):
    """PPO's, for methods that clip every agent's own ratio and no other."""

    ratio: Literal["agent"] = "agent"
    """Each agent's own probability ratio is clipped."""
