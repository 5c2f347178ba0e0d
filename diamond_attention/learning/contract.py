"""What a method of learning is to the rest of the project: its settings, how it begins, one update, who plays."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.policies.contract import Policy
from diamond_attention.policies.kind import Described, KindSettings
from diamond_attention.ranks import RankHold
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import World

LearnerState = Any
"""Everything one seed's training depends on, as a NamedTuple of arrays: two equal states have equal futures.

Two of its fields are asked for by name: `update`, how many it has made, and `failure`, 0 while all is well. A third,
`replay`, may hold past steps. It can be gigabytes, so nobody goes through it after an update: the method itself
answers for what it adds.
"""


class MethodSettings:
    """What every method's settings, a frozen dataclass, must have; the last two with a default."""

    name: ClassVar[str]
    """The method's own, and that of its group of settings: --ppo.learning-rate."""
    envs: int
    """Teams that play side by side."""
    memory_settings: ClassVar[tuple[str, ...]] = ("envs",)
    """The settings to lower when a device runs out of memory."""

    @property
    def steps_per_update(self) -> int:
        """Steps of all teams together."""
        raise AttributeError(f"{type(self).__name__} needs a property steps_per_update")

    def episode_steps(self, world: World) -> int:
        """Steps of a whole training episode."""
        return world.time_limit


class RolloutSettings(MethodSettings):
    """Of a method whose teams all play `steps` steps between two updates; episodes may be cut to train on."""

    steps: int
    cut_after: int | None

    @property
    def steps_per_update(self) -> int:
        return self.envs * self.steps

    def episode_steps(self, world: World) -> int:
        return world.time_limit if self.cut_after is None else min(self.cut_after, world.time_limit)


class Critic(Protocol):
    """The value of a state: one for the team, or one for each agent."""

    reads_views: ClassVar[bool]

    def __call__(self, view: TeamView, views: AgentView | None, policy: Policy) -> Float[Array, " *agent"]: ...


class Learner(NamedTuple):
    """What `begin` and `update` are functions of, besides the state; fixed for a run."""

    world: World
    sizes: tuple[tuple[int, int], ...]
    """(agents, tasks) pairs; each episode draws one."""
    hold: RankHold
    policy: KindSettings
    method: Any
    """The method's own settings."""
    episode_steps: int
    """Of a whole training episode."""
    total_updates: int
    share: Callable[[Any], Any] = eqx.nn.Identity()
    """Arrays with a leading axis of teams or samples, laid over the devices of a seed (see devices.py): what is made
    of each row alone is then made by the device that has it. On one device, nothing changes."""
    whole: Callable[[Any], Any] = eqx.nn.Identity()
    """The opposite, for what rows are to be picked from: every device of the seed has all of it."""


class Method(NamedTuple):
    """A line of `METHODS`. All functions are pure and of one seed; whoever trains several applies `jax.vmap`."""

    settings: type[MethodSettings]
    policy: KindSettings
    """What it learns unless another policy is asked for."""
    begin: Callable[[Learner, PRNGKeyArray], LearnerState]
    update: Callable[[Learner, LearnerState], tuple[LearnerState, dict[str, Array]]]
    """One update and one row of metrics, with `return` and the world's measures among them. A state with a `failure`,
    or with a number that is not finite, is not kept (see seeds.py)."""
    policy_of: Callable[[LearnerState], Policy]
    """The policy that plays."""
    failed_part: Callable[[LearnerState, int], str]
    """The name of what failed, from the number in `failure`."""
    collect: Callable[[Learner, LearnerState, PRNGKeyArray], Any] | None = None
    """The part of an update in which the teams play, where a bench can time it apart."""
    loss: Callable[[Learner, LearnerState, Any, PRNGKeyArray], Any] | None = None
    """What an update lowers and its gradient, ((loss, parts), gradient), of a state whose `weights` it reaches and of
    all that `collect` has made, in one minibatch: so that two devices can be held against each other."""
    start_from: Callable[[LearnerState, Policy, LearnerState | None], LearnerState] | None = None
    """A fresh state begun with this policy and with what else fits of another run's state if there is one."""
    described: Callable[[KindSettings, World], Described] | None = None
    """What readers call it with its own kind of policy, in that world; by default they call it by the policy."""
    saved_part: Callable[[Learner, LearnerState], LearnerState] | None = None
    """What of a state a checkpoint keeps, the rest being None: zero where a run begins or goes on. By default all."""
