"""Collecting experience: one team in one world, step after step; the caller applies `jax.vmap`."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.critics import CommonCritic
from diamond_attention.policies.diamond import BLOCKS, DiamondPolicy
from diamond_attention.ranks import draw_kept_attention, draw_ranks, hold_ranks
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import Actions, State, TeamSize, World, no_actions

RankHold = int | Literal["episode"]


class TeamState(NamedTuple):
    """One running episode."""

    world: State
    ranks: Float32[Array, " agent"]
    """Held between draws; replaced at step 0 of every episode."""
    step_of_episode: Int[Array, ""]
    cut_at: Int[Array, ""]
    """The step at which the episode is cut if it has not terminated before."""
    episode_return: Float[Array, ""]
    episode_measures: dict[str, Float[Array, ""]]


class Experience(NamedTuple):
    """One step of one team, with everything the update needs to ask the policy the same question again."""

    views: AgentView
    """Leading axis: agent. The ranks and dropout masks in force are inside."""
    team_view: TeamView
    actions: Actions
    log_probability: Float[Array, " agent"]
    value: Float[Array, ""]
    next_value: Float[Array, ""]
    """The value of the state this step led to, before any reset."""
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    finished: Bool[Array, ""]
    """The last step of a whole episode: it terminated, or ran to its full time limit."""
    finished_return: Float[Array, ""]
    """The episode's return at its last step if it was a whole one, else 0."""
    finished_measures: dict[str, Float[Array, ""]]


def choose_size(sizes: Int[Array, "choice 2"], key: PRNGKeyArray) -> TeamSize:
    """Each episode draws one of the sizes the run trains on."""
    agents, tasks = sizes[jax.random.randint(key, (), 0, sizes.shape[0])]
    return TeamSize(agents, tasks)


def begin_episode(
    world: World, sizes: Int[Array, "choice 2"], key: PRNGKeyArray, cut_at: Int[Array, ""] | int | None = None
) -> TeamState:
    """An episode at its first step, to be cut at the world's time limit unless said."""
    size_key, reset_key, action_key = jax.random.split(key, 3)
    state = world.reset(reset_key, choose_size(sizes, size_key))
    measures = measures_of(world, state, action_key)
    return TeamState(
        world=state,
        ranks=jnp.zeros(world.max_agents, jnp.float32),
        step_of_episode=jnp.zeros((), jnp.int32),
        cut_at=jnp.asarray(world.time_limit if cut_at is None else cut_at, jnp.int32),
        episode_return=jnp.zeros(()),
        episode_measures={name: jnp.zeros(()) for name in measures},
    )


def episode_length(world: World, cut_after: int | None) -> int:
    """Steps of a whole training episode: the world's time limit, or fewer."""
    return world.time_limit if cut_after is None else min(cut_after, world.time_limit)


def measures_of(world: World, state: State, key: PRNGKeyArray) -> list[str]:
    """The names of a world's measures, found without running a step."""
    actions = no_actions(world)
    return sorted(jax.eval_shape(world.step, state, actions, key).measures)


def see(
    world: World,
    policy: DiamondPolicy,
    team: TeamState,
    key: PRNGKeyArray,
    hold: RankHold,
    dropout: bool,
) -> tuple[AgentView, Float32[Array, " agent"]]:
    """Every agent's view at this step, with the ranks in force and, if asked, fresh dropout masks."""
    rank_key, dropout_key = jax.random.split(key)
    ranks = hold_ranks(team.ranks, draw_ranks(rank_key, world.max_agents), team.step_of_episode, hold)
    views = world.views(team.world, ranks)
    if dropout:
        kept = jax.vmap(
            lambda agent_key: draw_kept_attention(
                agent_key, policy.dropout_rate, BLOCKS, world.max_tasks, world.max_agents
            )
        )(jax.random.split(dropout_key, world.max_agents))
        views = views._replace(kept_attention=kept)
    return views, ranks


def act(
    policy: DiamondPolicy, views: AgentView, key: PRNGKeyArray, greedy: bool
) -> tuple[Actions, Float[Array, " agent"]]:
    """Each agent acts on its own view alone: the joint call is nothing but `jax.vmap` over agents."""

    def one_agent(view: AgentView, agent_key: PRNGKeyArray) -> tuple[Array, Array]:
        distribution, _ = policy(view)
        action = distribution.mode() if greedy else distribution.sample(agent_key)
        return action, distribution.log_probability(action)

    return jax.vmap(one_agent)(views, jax.random.split(key, views.ranks.shape[0]))


class Played(NamedTuple):
    """One step as it happened."""

    reached: TeamState
    """Not yet reset, so the last state of an episode can still be valued and scored."""
    views: AgentView
    actions: Actions
    log_probability: Float[Array, " agent"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


def play_step(
    world: World,
    policy: DiamondPolicy,
    team: TeamState,
    key: PRNGKeyArray,
    *,
    hold: RankHold,
    dropout: bool,
    greedy: bool,
) -> Played:
    """See, act, step."""
    see_key, act_key, step_key = jax.random.split(key, 3)
    views, ranks = see(world, policy, team, see_key, hold, dropout)
    actions, log_probability = act(policy, views, act_key, greedy)
    transition = world.step(team.world, actions, step_key)
    step = team.step_of_episode + 1
    reached = TeamState(
        world=transition.state,
        ranks=ranks,
        step_of_episode=step,
        cut_at=team.cut_at,
        episode_return=team.episode_return + transition.reward,
        episode_measures={name: total + transition.measures[name] for name, total in team.episode_measures.items()},
    )
    truncated = ~transition.terminated & (step >= team.cut_at)
    return Played(reached, views, actions, log_probability, transition.reward, transition.terminated, truncated)


def collect(
    world: World,
    sizes: Int[Array, "choice 2"],
    policy: DiamondPolicy,
    critic: CommonCritic,
    team: TeamState,
    key: PRNGKeyArray,
    steps: int,
    hold: RankHold,
    cut_after: int | None = None,
) -> tuple[TeamState, Experience]:
    """`steps` steps of one team, beginning a new episode whenever one ends.

    Episodes are cut after `cut_after` steps, by default at the world's time limit.
    """
    full_length = episode_length(world, cut_after)
    dropout = policy.mask == "dropout"

    def one_step(team: TeamState, key: PRNGKeyArray) -> tuple[TeamState, tuple[Experience, TeamView]]:
        play_key, reset_key = jax.random.split(key)
        played = play_step(world, policy, team, play_key, hold=hold, dropout=dropout, greedy=False)
        reached = played.reached
        over = played.terminated | played.truncated
        finished = played.terminated | (played.truncated & (reached.cut_at == full_length))
        fresh = begin_episode(world, sizes, reset_key, full_length)
        after = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, reached)
        experience = Experience(
            views=played.views,
            team_view=world.team_view(team.world),
            actions=played.actions,
            log_probability=played.log_probability,
            value=jnp.zeros(()),
            next_value=jnp.zeros(()),
            reward=played.reward,
            terminated=played.terminated,
            truncated=played.truncated,
            finished=finished,
            finished_return=jnp.where(finished, reached.episode_return, 0.0),
            finished_measures={
                name: jnp.where(finished, total, 0.0) for name, total in reached.episode_measures.items()
            },
        )
        return after, (experience, world.team_view(reached.world))

    team, (experience, reached_views) = jax.lax.scan(one_step, team, jax.random.split(key, steps))
    # The critic reads all steps at once: inside the loop it would be a third of what a GPU has to start each step.
    return team, experience._replace(
        value=jax.vmap(critic)(experience.team_view), next_value=jax.vmap(critic)(reached_views)
    )
