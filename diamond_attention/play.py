"""Begin an episode, see, act, one step: what learning, evaluation and films share. One team; callers `jax.vmap`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import Actions
from diamond_attention.policies.contract import Memory, Policy
from diamond_attention.ranks import RankHold, draw_ranks, hold_ranks
from diamond_attention.view import AgentView
from diamond_attention.worlds.contract import State, TeamSize, Transition, World, no_actions


class TeamState(NamedTuple):
    """One running episode."""

    world: State
    ranks: Float32[Array, " agent"]  # held between draws; replaced at step 0 of every episode
    step_of_episode: Int[Array, ""]
    cut_at: Int[Array, ""]  # the step at which the episode is cut if it has not terminated before
    episode_return: Float[Array, ""]
    episode_measures: dict[str, Float[Array, ""]]
    memory: Memory = None


def begin_episode(
    world: World,
    sizes: Int[Array, "choice 2"],
    key: PRNGKeyArray,
    cut_at: Int[Array, ""] | int | None = None,
    memory: Memory = None,
) -> TeamState:
    """An episode of one of these sizes at its first step, to be cut at the world's time limit unless said."""
    size_key, reset_key, action_key = jax.random.split(key, 3)
    state = world.reset(reset_key, TeamSize(*sizes[jax.random.randint(size_key, (), 0, sizes.shape[0])]))
    # The names of the measures are found without running a step.
    names = sorted(jax.eval_shape(world.step, state, no_actions(world), action_key).measures)
    return TeamState(
        world=state,
        ranks=jnp.zeros(world.max_agents, jnp.float32),
        step_of_episode=jnp.zeros((), jnp.int32),
        cut_at=jnp.asarray(world.time_limit if cut_at is None else cut_at, jnp.int32),
        episode_return=jnp.zeros(()),
        episode_measures={name: jnp.zeros(()) for name in names},
        memory=memory,
    )


def see(world: World, policy: Policy, team: TeamState, key: PRNGKeyArray, hold: RankHold) -> tuple[AgentView, Array]:
    """Every agent's view at this step, with the ranks in force and what else its policy wants drawn."""
    rank_key, noise_key = jax.random.split(key)
    ranks = hold_ranks(team.ranks, draw_ranks(rank_key, world.max_agents), team.step_of_episode, hold)
    return policy.draw(world.views(team.world, ranks), noise_key), ranks


class Played(NamedTuple):
    """One step as it happened."""

    reached: TeamState  # not yet reset, so the last state of an episode can still be valued and scored
    views: AgentView
    actions: Actions
    log_probability: Float[Array, " agent"]
    transition: Transition
    truncated: Bool[Array, ""]
    step_key: PRNGKeyArray  # what the world was given, so that a film can play the step again in slow motion


def play_step(
    world: World, policy: Policy, team: TeamState, key: PRNGKeyArray, *, hold: RankHold, greedy: bool
) -> Played:
    """See, act, step."""
    see_key, act_key, step_key = jax.random.split(key, 3)
    views, ranks = see(world, policy, team, see_key, hold)
    acted = policy.act(views, team.memory, act_key, greedy)
    after = world.step(team.world, acted.actions, step_key)
    step, total = team.step_of_episode + 1, team.episode_return + after.reward
    measures = {name: so_far + after.measures[name] for name, so_far in team.episode_measures.items()}
    reached = TeamState(after.state, ranks, step, team.cut_at, total, measures, acted.memory)
    truncated = ~after.terminated & (step >= team.cut_at)
    return Played(reached, views, acted.actions, acted.log_probability, after, truncated, step_key)
