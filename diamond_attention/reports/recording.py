"""One episode kept step by step, with the ranks and the attention behind every action, for pictures and movies."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import dropout_in_force
from diamond_attention.learning.rollout import RankHold, TeamState, begin_episode, play_step
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.reports.names import naming
from diamond_attention.runs.record import Run
from diamond_attention.runs.settings import padded
from diamond_attention.runs.train import load_policy
from diamond_attention.view import viewer_first
from diamond_attention.worlds.contract import TeamSize, World, as_scored

LARGEST_SHOWN = 100
"""Agents or tasks in a picture; more could not be told apart."""


class Recording(NamedTuple):
    """A greedy episode. Frame t is the state after t steps and what the agents make of it; the last is the end."""

    run: Run
    world: World
    size: TeamSize
    trained_steps: int
    """Of the checkpoint that played."""
    states: Any
    """The world's own states, with a leading frame axis."""
    ranks: Float[np.ndarray, "frame agent"]
    weights: Float[np.ndarray, "frame viewer task agent"]
    """Attention of block 1, all viewers listing the team in the same order."""
    choices: Float[np.ndarray, "frame viewer task"]
    """Attention of the last block: how a viewer weighs the tasks against each other before it acts."""
    returns: Float[np.ndarray, " frame"]
    """Of the episode so far."""

    @property
    def frames(self) -> int:
        return len(self.ranks)

    @property
    def places(self) -> Int[np.ndarray, "frame agent"]:
        """1 for the highest rank: that agent sees only itself."""
        return 1 + np.sum(self.ranks[:, None, :] > self.ranks[:, :, None], axis=-1)

    def visible(self, frame: int, viewer: int) -> Bool[np.ndarray, " agent"]:
        """Whom the viewer's mask leaves in block 1."""
        if 0 in naming(self.run.settings.policy.mask).hides_in:
            return self.ranks[frame] >= self.ranks[frame, viewer]
        return np.ones(len(self.ranks[frame]), bool)


def size_to_show(run: Run, agents: int | None = None, tasks: int | None = None) -> TeamSize:
    """The size asked for, or the largest it was trained on; the world may refuse it.

    Where only the agents are named there are as many tasks, if that is how it was trained.
    """
    sizes = [TeamSize(int(size.agents), int(size.tasks)) for size in run.settings.sizes]
    largest = max(sizes)
    if agents is None:
        agents = int(largest.agents) if tasks is None or any(n != k for n, k in sizes) else tasks
    if tasks is None:
        tasks = agents if all(n == k for n, k in sizes) else int(largest.tasks)
    if max(agents, tasks) > LARGEST_SHOWN:
        raise UserError(f"{agents} agents and {tasks} tasks are too many to draw; at most {LARGEST_SHOWN}.")
    size = TeamSize(agents, tasks)
    run.settings.world.check_size(size)
    return size


def record(run: Run, size: TeamSize, *, steps: int, seed: int = 0) -> Recording:
    """Plays the newest checkpoint for `steps` steps, or until the episode ends."""
    policy, trained_steps = load_policy(run)
    world = padded(as_scored(run.settings.world), [size])
    world.check_size(size)
    hold, dropout = run.settings.rank_hold, dropout_in_force(run.settings, None)
    reset_key, play_key = jax.random.split(jax.random.key(seed))
    keys = jax.random.split(play_key, min(steps, world.time_limit) + 1)
    number = jnp.asarray([size], jnp.int32)
    played = _play(_Conditions(world, hold, dropout), policy, number, reset_key, keys)
    states, ranks, weights, choices, returns, terminated = jax.tree.map(np.asarray, played)
    # The step that ends an episode leads to one more state worth seeing.
    frames = int(np.argmax(terminated)) + 2 if terminated.any() else len(keys)
    cut = jax.tree.map(lambda x: x[:frames], (states, ranks, weights, choices, returns))
    return Recording(run, world, size, trained_steps, *cut)


class _Conditions(NamedTuple):
    """What the compiled program is specialised on."""

    world: World
    hold: RankHold
    dropout: bool


@partial(jax.jit, static_argnums=0)
def _play(
    conditions: _Conditions, policy: DiamondPolicy, size: Array, reset_key: PRNGKeyArray, keys: PRNGKeyArray
) -> tuple:
    world, hold, dropout = conditions

    def in_team_order(viewer: Array, weights: Float[Array, "task agent"]) -> Float[Array, "task agent"]:
        return jnp.zeros_like(weights).at[:, viewer_first(viewer, world.max_agents)].set(weights)

    def one_step(team: TeamState, key: PRNGKeyArray) -> tuple[TeamState, tuple]:
        played = play_step(world, policy, team, key, hold=hold, dropout=dropout, greedy=True)
        _, attention = jax.vmap(policy)(played.views)
        weights = jax.vmap(in_team_order)(jnp.arange(world.max_agents), attention[0])
        seen = (played.reached.ranks, weights, attention[-1][:, :, 0])
        return played.reached, (team.world, *seen, team.episode_return, played.terminated)

    return jax.lax.scan(one_step, begin_episode(world, size, reset_key), keys)[1]
