"""Can the paper's block itself learn to play more agents than it was trained with? Three attempts, and their table.

    diamond reproduce scaling --with experiments/scaling_attempts.py
    diamond train dispatch --with experiments/scaling_attempts.py --policy.kind diamond-nobody --agents 2:6

- diamond-nobody: attention averages, so a block sees shares and never numbers. An agent more that everybody sees and
  that nobody is takes a share of every row, and what it takes tells how many others there are.
- diamond-tasks: the block's tasks look at agents only. Here they look at each other first, and every task is told
  what it saw.

The first attempt needs no code: the plain block, trained on many sizes (`diamond train dispatch --agents 2:6`).
All are trained on Dispatch with two to six vehicles and jobs, and played with up to 64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention import AgentView, Described, Interface, PerAgentPolicy, PolicyKind, register_policy
from diamond_attention.attention import Projection, small_product, softmax_or_zero
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.ranges import Between
from diamond_attention.reproduce.entries import SMALL_TEAMS, Entry, Group, Wanted, on_small_teams, register_entry


@dataclass(frozen=True)
class NobodySettings:
    """The paper's block with one agent more, which everybody sees and nobody is."""

    kind: Literal["diamond-nobody"] = "diamond-nobody"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 32
    """Of the policy: that of the preset `dispatch`, which the plain block has."""


@dataclass(frozen=True)
class TasksSettings:
    """The paper's block, with tasks that look at each other first."""

    kind: Literal["diamond-tasks"] = "diamond-tasks"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 32
    """Of the policy: that of the preset `dispatch`, which the plain block has."""


class WithNobody(PerAgentPolicy):
    policy: DiamondPolicy

    def __call__(self, view: AgentView):
        rows = jnp.pad(view.agents, ((0, 1), (0, 1))).at[-1, -1].set(1.0)  # a last feature says who is nobody
        present, ranks = jnp.append(view.agent_present, True), jnp.append(view.ranks, jnp.inf)
        return self.policy(view._replace(agents=rows, agent_present=present, ranks=ranks))


class TasksFirst(PerAgentPolicy):
    embed: Projection
    values: Projection
    policy: DiamondPolicy

    def __call__(self, view: AgentView):
        tokens, values = jax.vmap(self.embed)(view.tasks), jax.vmap(self.values)(view.tasks)
        scores = small_product(tokens, tokens.T) / jnp.sqrt(tokens.shape[-1])
        seen: Float[Array, "task width"] = small_product(
            softmax_or_zero(jnp.where(view.task_present, scores, -jnp.inf)), values
        )
        return self.policy(view._replace(tasks=jnp.concatenate([view.tasks, seen], axis=1)))


def build_with_nobody(settings: NobodySettings, interface: Interface, key: PRNGKeyArray) -> eqx.Module:
    sizes = (interface.agent_features + 1, interface.task_features)
    return WithNobody(DiamondPolicy(*sizes, interface.action_kind, width=settings.width, key=key))


def build_tasks_first(settings: TasksSettings, interface: Interface, key: PRNGKeyArray) -> eqx.Module:
    embed_key, values_key, key = jax.random.split(key, 3)
    width, features = settings.width, interface.task_features
    return TasksFirst(
        Projection(features, width, key=embed_key),
        Projection(features, width, key=values_key),
        DiamondPolicy(interface.agent_features, features + width, interface.action_kind, width=width, key=key),
    )


NOBODY = Described("diamond-nobody", "rank mask, and nobody", hears_ranks=True)
TASKS = Described("diamond-tasks", "rank mask, tasks first", hears_ranks=True)

register_policy(PolicyKind(NobodySettings, build_with_nobody, describe=lambda settings: NOBODY))
register_policy(PolicyKind(TasksSettings, build_tasks_first, describe=lambda settings: TASKS))


def attempts() -> Iterator[Wanted]:
    """All of them, played with the largest team of training and with larger ones, from one depot and from many."""
    sizes = tuple(("--agents", n, "--tasks", n) for n in ("6", "12", "64"))
    plays = tuple((*size, "--depots", depots, "--episodes", "64") for depots in ("1", "64") for size in sizes)
    yield Wanted(on_small_teams("rank", "0.3"), plays)
    for kind in ("nobody", "tasks"):
        words = ("dispatch", *SMALL_TEAMS, "--policy.kind", f"diamond-{kind}", "--world.travel-weight", "0.3")
        yield Wanted(Group(f"dispatch_{kind}_travel=0.3", words, seeds=5), plays)


register_entry("scaling", Entry("Can the paper's block be taught to scale? Three attempts", tuple(attempts())))
