"""Collecting experience: one team in one world, step after step; the caller applies `jax.vmap`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.actions import Actions
from diamond_attention.learning.contract import Critic
from diamond_attention.play import TeamState, begin_episode, play_step
from diamond_attention.policies.contract import Memory, Policy
from diamond_attention.ranks import RankHold
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import World


class Experience(NamedTuple):
    """One step of one team, with everything the update needs to ask the policy the same question again."""

    views: AgentView  # leading axis: agent; the ranks in force and the policy's noise are inside
    memory: Memory
    team_view: TeamView
    actions: Actions
    log_probability: Float[Array, " agent"]
    value: Float[Array, " *agent"]
    next_value: Float[Array, " *agent"]  # of the state this step led to, before any reset
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    finished: Bool[Array, ""]  # the last step of a whole episode: it terminated, or ran to its full time limit
    finished_return: Float[Array, ""]  # the episode's return at its last step if it was a whole one, else 0
    finished_measures: dict[str, Float[Array, ""]]


def collect(
    world: World,
    sizes: Int[Array, "choice 2"],
    policy: Policy,
    critic: Critic,
    team: TeamState,
    key: PRNGKeyArray,
    steps: int,
    hold: RankHold,
    full_length: int,
) -> tuple[TeamState, Experience]:
    """`steps` steps of one team, beginning a new episode, to be cut at `full_length`, whenever one ends."""

    def one_step(team: TeamState, key: PRNGKeyArray) -> tuple[TeamState, tuple[Any, ...]]:
        play_key, reset_key = jax.random.split(key)
        played = play_step(world, policy, team, play_key, hold=hold, greedy=False)
        reached, terminated = played.reached, played.transition.terminated
        over, whole = terminated | played.truncated, reached.cut_at == full_length
        finished = terminated | (played.truncated & whole)
        fresh = begin_episode(world, sizes, reset_key, full_length, policy.first_memory(world.max_agents))
        after = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, reached)
        asked = (played.views, team.memory, world.team_view(team.world), played.actions, played.log_probability)
        score, measures = jax.tree.map(
            lambda x: jnp.where(finished, x, 0.0), (reached.episode_return, reached.episode_measures)
        )
        came_of_it: Any = (played.transition.reward, terminated, played.truncated, finished, score, measures)
        experience = Experience(*asked, jnp.zeros(()), jnp.zeros(()), *came_of_it)  # valued below
        then_seen = world.views(reached.world, reached.ranks) if critic.reads_views else None
        return after, (experience, world.team_view(reached.world), then_seen)

    team, (experience, team_view, views) = jax.lax.scan(one_step, team, jax.random.split(key, steps))
    # The critic reads all steps at once: inside the loop it would be a third of what a GPU has to start each step.
    value_of = jax.vmap(lambda view, views: critic(view, views, policy))
    value = value_of(experience.team_view, experience.views)
    return team, experience._replace(value=value, next_value=value_of(team_view, views))
