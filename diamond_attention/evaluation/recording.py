"""One episode kept step by step, with the ranks and the attention behind every action, for pictures and films."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.colours import place_by_rank
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.errors import UserError
from diamond_attention.evaluation.conditions import Conditions, check_sizes, variant_to_play
from diamond_attention.play import TeamState, begin_episode, play_step
from diamond_attention.policies.contract import PerAgentPolicy, Policy
from diamond_attention.policies.kind import Described
from diamond_attention.ranges import Between, check_number
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.folder import Run
from diamond_attention.runs.memory import bytes_of, check_fits, check_play_fits
from diamond_attention.runs.settings import described_as
from diamond_attention.runs.sizes import padded
from diamond_attention.view import AgentView, viewer_first
from diamond_attention.worlds.contract import TeamSize, World

LARGEST_SHOWN = 100
"""Agents or tasks in a picture; more could not be told apart."""
SHOWN = Between(1, LARGEST_SHOWN)
RECORDED_STEPS = Between(1, 100_000)


class Recording(NamedTuple):
    """An episode. Frame t is the state after t steps and what the agents make of it; the last is the end."""

    run: Run
    world: World
    size: TeamSize
    trained_steps: int
    """Of the checkpoint that played."""
    states: Any
    """The world's own states, with a leading frame axis."""
    actions: Float[np.ndarray, "frame agent ..."]
    step_keys: Any
    """What the world was given at each step, so that it can be played again in slow motion."""
    ranks: Float[np.ndarray, "frame agent"]
    weights: tuple[Float[np.ndarray, "frame viewer task agent"], ...]
    """Attention of each block that weighs tasks and agents, all viewers listing the team in the same order."""
    choices: Float[np.ndarray, "frame viewer task"] | None
    """How a viewer weighs the tasks against each other as it acts, where its policy tells."""
    returns: Float[np.ndarray, " frame"]
    """Of the episode so far."""
    measures: dict[str, Float[np.ndarray, " frame"]]
    """Likewise."""

    @property
    def frames(self) -> int:
        return len(self.ranks)

    @property
    def policy(self) -> Described:
        return described_as(self.run.settings)

    @property
    def places(self) -> Int[np.ndarray, "frame agent"]:
        return place_by_rank(self.ranks)

    def lower_ranked(self, frame: int) -> Bool[np.ndarray, "viewer agent"]:
        """Who ranks below whom."""
        ranks = self.ranks[frame]
        return ranks[None, :] < ranks[:, None]

    def sees(self, frame: int, block: int = 0) -> Bool[np.ndarray, "viewer agent"]:
        """Whom each viewer's mask leaves in that block."""
        lower = self.lower_ranked(frame)
        return ~lower if block in self.policy.hides_in else np.ones_like(lower)

    def visible(self, frame: int, viewer: int, block: int = 0) -> Bool[np.ndarray, " agent"]:
        """Whom this one sees."""
        return self.sees(frame, block)[viewer]


def size_to_show(run: Run, world: World, agents: int | None = None, tasks: int | None = None) -> TeamSize:
    """The size asked for, or the largest it was trained on; the world may refuse it, or have only its own.

    Where only the agents are named there are as many tasks, if that is how it was trained.
    """
    if world.sizes is not None:
        if agents is not None or tasks is not None:
            raise UserError(f"--agents and --tasks do not fit {world.name}, where the map says who plays.")
        return world.sizes[0]
    sizes = [TeamSize(int(size.agents), int(size.tasks)) for size in run.settings.sizes]
    largest = max(sizes)
    for name, number in (("--agents", agents), ("--tasks", tasks)):
        check_number(name, number, SHOWN, besides=(None,))
    if agents is None:
        agents = int(largest.agents) if tasks is None or any(n != k for n, k in sizes) else tasks
    if tasks is None:
        tasks = agents if all(n == k for n, k in sizes) else int(largest.tasks)
    if max(agents, tasks) > LARGEST_SHOWN:
        raise UserError(
            f"{agents} agents and {tasks} tasks are too many to draw, and at most {LARGEST_SHOWN} of each can be; "
            "name fewer with --agents."
        )
    size = TeamSize(agents, tasks)
    check_sizes(run.settings, world, [size])
    return size


def record(
    run: Run,
    size: TeamSize,
    *,
    steps: int | None = None,
    seed: int = 0,
    greedy: bool = True,
    world: World | None = None,
) -> Recording:
    """Plays the newest checkpoint for `steps` steps, or until the episode ends."""
    check_number("--steps", steps, RECORDED_STEPS, besides=(None,))
    policy, trained_steps = load_policy(run)
    world = variant_to_play(run) if world is None else world
    # Of several maps, the one with this size, alone: that is how an evaluation plays it.
    world = next((alone for alone in world.apart() if alone.sizes is None or size in alone.sizes), world)
    world = padded(world, [size])
    check_sizes(run.settings, world, [size])
    check_play_fits(world, policy, at_once=1)
    reset_key, play_key = jax.random.split(jax.random.key(seed))
    frames = min(steps or world.time_limit, world.time_limit) + 1
    keys = jax.random.split(play_key, frames)
    number = jnp.asarray([size], jnp.int32)
    conditions = Conditions(world, run.settings.rank_hold, greedy)
    # Every viewer's attention is kept for every step: of a hundred agents that is megabytes a step.
    kept = bytes_of(jax.eval_shape(partial(_play, conditions), policy, number, reset_key, keys))
    check_fits(kept, "this recording", f"{size.agents} agents (--agents) and {frames - 1} steps (--steps)")
    *played, terminated = jax.tree.map(np.asarray, _play(conditions, policy, number, reset_key, keys))
    # The step that ends an episode leads to one more state worth seeing.
    frames = int(np.argmax(terminated)) + 2 if terminated.any() else len(keys)
    cut = jax.tree.map(lambda x: x[:frames], played)
    return Recording(run, world, size, trained_steps, *cut)


@partial(jax.jit, static_argnums=0)
def _play(conditions: Conditions, policy: Policy, size: Array, reset_key: PRNGKeyArray, keys: PRNGKeyArray) -> tuple:
    world, hold, greedy = conditions

    def one_step(team: TeamState, key: PRNGKeyArray) -> tuple[TeamState, tuple]:
        played = play_step(world, policy, team, key, hold=hold, greedy=greedy)
        weights, choices = what_was_weighed(policy, played.views, world)
        acted = (played.actions, jax.random.key_data(played.step_key))
        seen = (played.reached.ranks, weights, choices)
        so_far = (team.episode_return, team.episode_measures, played.transition.terminated)
        return played.reached, (team.world, *acted, *seen, *so_far)

    team = begin_episode(world, size, reset_key, memory=policy.first_memory(world.max_agents))
    return jax.lax.scan(one_step, team, keys)[1]


def what_was_weighed(policy: Policy, views: AgentView, world: World) -> tuple[tuple[Array, ...], Array | None]:
    """Attention between tasks and agents block by block, in the team's order, and how viewers weigh the tasks."""
    if not isinstance(policy, PerAgentPolicy):
        return (), None
    distributions, attention = jax.vmap(policy)(views)
    orders = jax.vmap(lambda viewer: viewer_first(viewer, world.max_agents))(jnp.arange(world.max_agents))

    def in_team_order(weights: Float[Array, "task agent"], order: Array) -> Float[Array, "task agent"]:
        return jnp.zeros_like(weights).at[:, order].set(weights)

    between = tuple(jax.vmap(in_team_order)(w, orders) for w in attention if w.shape[-1] == world.max_agents)
    if isinstance(distributions, Categorical):
        # Actions that concern tasks come last.
        return between, jax.nn.softmax(distributions.logits, axis=-1)[:, -world.max_tasks :]
    return between, attention[-1][:, :, 0] if attention else None
