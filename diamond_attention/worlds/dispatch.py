"""Dispatch: vehicles at depots choose jobs, all at once and without talking about it.

In every wave each vehicle stays or drives to one job. A job that several drive to is served once, and everybody who
drives pays the way:

    reward = value of the jobs that are served − travel_weight · distance driven by all

Then all are back at their depots, jobs that were served are replaced by new ones, and the others wait on. An episode
has a few waves.

The number of depots is how symmetric the world is. With one, all vehicles see the same, and nothing but shared
randomness can tell them apart; with as many as vehicles, everybody sees the jobs from a place of its own.

The score is the share of the optimum: what the best assignment of vehicles to jobs would have earned in that wave
(Hungarian method), averaged over the waves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActionKind, ActOrChooseTask
from diamond_attention.errors import UserError
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.ranks import hear_ranks
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.contract import (
    LARGEST_TEAM,
    Feature,
    Padding,
    Scoring,
    TeamSize,
    Transition,
    World,
)

STAY = 0
"""The action; job j is action j + 1."""
LEAST_OPTIMUM = 0.1
"""Below it a lost reward counts as a share of this: of next to nothing no share is worth telling."""


class DispatchState(NamedTuple):
    depots: Float[Array, "agent 2"]
    """Each vehicle's."""
    jobs: Float[Array, "task 2"]
    values: Float[Array, " task"]
    agent_present: Bool[Array, " agent"]
    task_present: Bool[Array, " task"]
    wave: Int[Array, ""]


@dataclass(frozen=True)
class Dispatch(World):
    """Dispatch for up to `max_agents` vehicles and `max_tasks` jobs."""

    depots: Annotated[int, Between(1, LARGEST_TEAM)] = 1
    """Vehicle i starts at depot i modulo this. 1: all see the same. As many as vehicles: everybody is elsewhere."""
    waves: Annotated[int, Between(1, 1000)] = 4
    """Choices in an episode."""
    travel_weight: Annotated[float, Between(0, 1000)] = 0.3
    """What a unit of distance costs. The square is two units wide, and a job is worth 1 on average."""
    value_spread: Annotated[float, Between(0, 1)] = 0.5
    """Values are drawn evenly from 1 − this to 1 + this. 0: all jobs are worth the same."""
    max_agents: Padding = 4
    max_tasks: Padding = 4

    name = "dispatch"
    title = "Dispatch"
    task = "job"
    scoring = Scoring(
        score="share",
        name="Share of the optimum",
        decimals=3,
        measures={
            "served": "jobs served, as a share of those the best assignment serves",
            "wasted": "vehicles that drove to a job which another one served, as a share of all",
        },
    )
    same_legal_actions = True
    varies: ClassVar[Mapping[str, str]] = {
        "depots": "Depots that the vehicles are spread over",
        "travel_weight": "What a unit of distance costs",
    }
    agent_features = (
        Feature("x of its depot relative to the viewer's", "half widths of the square", "place"),
        Feature("y, likewise", "half widths of the square", "place"),
        Feature("1 in the viewer's own row, else 0"),
    )
    task_features = (
        Feature("x relative to the viewer's depot", "half widths of the square", "place"),
        Feature("y, likewise", "half widths of the square", "place"),
        Feature("distance from the viewer's depot", "half widths of the square"),
        Feature("value", frame="common"),
        Feature("value less the viewer's way there"),
    )

    def __post_init__(self) -> None:
        check_ranges(self, "world.")

    @property
    def time_limit(self) -> int:
        return self.waves

    @property
    def action_kind(self) -> ActionKind:
        return ActOrChooseTask(fixed_actions=1)

    def check_size(self, size: TeamSize) -> None:
        if size.tasks < 1:
            raise UserError(f"tasks is {size.tasks}; Dispatch needs at least one job.")

    def played_at(self, size: TeamSize) -> str:
        depots = min(self.depots, int(size.agents))
        weight = "" if self.travel_weight == Dispatch.travel_weight else f", travel {self.travel_weight:g}"
        return f"{size.agents}x{size.tasks}, {depots} depot{'s' * (depots > 1)}{weight}"

    # --- The game ---------------------------------------------------------------------------------

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> DispatchState:
        depot_key, job_key = jax.random.split(key)
        places = jax.random.uniform(depot_key, (self.max_agents, 2), minval=-1.0, maxval=1.0)
        jobs, values = self._new_jobs(job_key)
        return DispatchState(
            depots=places[jnp.arange(self.max_agents) % self.depots],
            jobs=jobs,
            values=values,
            agent_present=jnp.arange(self.max_agents) < size.agents,
            task_present=jnp.arange(self.max_tasks) < size.tasks,
            wave=jnp.zeros((), jnp.int32),
        )

    def _new_jobs(self, key: PRNGKeyArray) -> tuple[Float[Array, "task 2"], Float[Array, " task"]]:
        place_key, value_key = jax.random.split(key)
        places = jax.random.uniform(place_key, (self.max_tasks, 2), minval=-1.0, maxval=1.0)
        spread = jax.random.uniform(value_key, (self.max_tasks,), minval=-1.0, maxval=1.0)
        return places, 1.0 + self.value_spread * spread

    def step(self, state: DispatchState, actions: Int[Array, " agent"], key: PRNGKeyArray) -> Transition:
        drives = (actions[:, None] == jnp.arange(self.max_tasks) + 1) & state.agent_present[:, None]
        drives = drives & state.task_present
        served = jnp.any(drives, axis=0)
        travel = self.travel_weight * jnp.sum(jnp.where(drives, distances(state), 0.0))
        reward = jnp.sum(jnp.where(served, state.values, 0.0)) - travel
        best, jobs_of_best = self.optimum(state)
        share = 1.0 - (best - reward) / jnp.maximum(best, LEAST_OPTIMUM)
        driving, number = jnp.sum(drives), jnp.sum(state.agent_present)
        new_jobs, new_values = self._new_jobs(key)
        wave = state.wave + 1
        return Transition(
            state=state._replace(
                jobs=jnp.where(served[:, None], new_jobs, state.jobs),
                values=jnp.where(served, new_values, state.values),
                wave=wave,
            ),
            reward=reward.astype(jnp.float32),
            terminated=wave >= self.waves,
            # Of an episode the sum over its waves is shown, so each counts as a part.
            measures={
                "share": share / self.waves,
                "served": jnp.sum(served) / jnp.maximum(jobs_of_best, 1) / self.waves,
                "wasted": (driving - jnp.sum(served)) / number / self.waves,
            },
        )

    def gains(self, state: DispatchState) -> Float[Array, "agent task"]:
        """What each vehicle alone would earn with each job; nothing where one of them is not there."""
        there = state.agent_present[:, None] & state.task_present
        return jnp.where(there, state.values - self.travel_weight * distances(state), 0.0)

    def optimum(self, state: DispatchState) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """What the best assignment earns, and how many jobs it serves. Whoever would lose by driving stays."""
        earned = best_assignment(jnp.maximum(self.gains(state), 0.0))
        return jnp.sum(earned), jnp.sum(earned > 0)

    # --- What is seen -----------------------------------------------------------------------------

    def views(self, state: DispatchState, ranks: Float32[Array, " agent"]) -> AgentView:
        depots, present = as_each_viewer_lists(state.depots), as_each_viewer_lists(state.agent_present)
        own_row = jnp.zeros((self.max_agents, self.max_agents, 1)).at[:, 0].set(1.0)
        peers = jnp.concatenate([depots - depots[:, :1], own_row], axis=-1)
        ways = distances(state)
        values = jnp.broadcast_to(state.values, ways.shape)
        relative = state.jobs[None] - state.depots[:, None]
        told = [relative, ways[..., None], values[..., None], (values - self.travel_weight * ways)[..., None]]
        open_ = jnp.broadcast_to(state.task_present, ways.shape)
        return AgentView(
            agents=jnp.where(present[..., None], peers, 0.0),
            tasks=jnp.where(open_[..., None], jnp.concatenate(told, axis=-1), 0.0),
            agent_present=present,
            task_present=open_,
            ranks=hear_ranks(ranks),
            legal_actions=jnp.concatenate([jnp.ones((self.max_agents, 1), bool), open_], axis=1),
        )

    def team_view(self, state: DispatchState) -> TeamView:
        return TeamView(
            agents=jnp.where(state.agent_present[:, None], state.depots, 0.0),
            tasks=jnp.where(
                state.task_present[:, None], jnp.concatenate([state.jobs, state.values[:, None]], axis=1), 0.0
            ),
            agent_present=state.agent_present,
            task_present=state.task_present,
        )

    def scene(self) -> Any:
        from diamond_attention.worlds.dispatch_scene import DispatchScene

        return DispatchScene


@jax.jit  # called outside of a program, its loops would be compiled anew each time
def best_assignment(gains: Float[Array, "agent task"]) -> Float[Array, " pair"]:
    """What each pair of the best assignment earns."""
    vehicles, jobs = optax.assignment.hungarian_algorithm(-gains)
    return gains[vehicles, jobs]


def distances(state: DispatchState) -> Float[Array, "agent task"]:
    """From every vehicle's depot to every job."""
    way = state.jobs[None] - state.depots[:, None]
    return jnp.sqrt(jnp.sum(way**2, axis=-1))
