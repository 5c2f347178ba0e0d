"""Simple Spread of VMAS: N agents must stand on N landmarks without bumping into each other.

The reward is VMAS's own, to the step: −N · Σ_landmarks (distance to the nearest agent), less one for every
ordered pair of overlapping agents. The factor N is VMAS's: it adds the distances up once for each agent.
The number the paper reports is the episode's reward divided by N.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.actions import ActionKind, Continuous
from diamond_attention.errors import UserError
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds import particles
from diamond_attention.worlds.contract import Feature, Padding, Scoring, TeamSize, Transition, World
from diamond_attention.worlds.particles import Length, Particles, Physics, Start


@dataclass(frozen=True)
class Spread(World):
    """Simple Spread for up to `max_agents` agents and as many landmarks."""

    physics: Physics = field(default_factory=Physics)
    """How agents move and push each other; the defaults are VMAS's."""
    collision_penalty: Annotated[float, Between(-1_000_000, 1_000_000)] = 1.0
    """Lost each step for every ordered pair of overlapping agents, so twice for two agents in contact."""
    half_width: Length = 1.0
    """Agents and landmarks start uniformly on the square from −half_width to half_width; there are no walls."""
    start: Start = "scattered"
    """Where agents start: scattered, everybody somewhere on the square; depot, all at one point of it, drawn for each
    episode. From a depot agents pass through each other: no contact forces, but overlapping costs as ever."""
    mark_viewer: bool = True
    """Whether a last feature of every agent says which row is the viewer's. False: views as the paper has them."""
    max_agents: Padding = 4
    max_tasks: Padding = 4

    name = "spread"
    title = "Simple Spread"
    task = "landmark"
    scoring = Scoring(
        name="R, the return divided by the agents",
        per_agent=True,
        measures={
            "collisions": "ordered pairs of overlapping agents, summed over an episode's steps",
            "covered": "the share of landmarks under an agent, summed likewise",
        },
    )
    task_features = particles.TASK_FEATURES
    has_places = True
    time_limit = 400

    def __post_init__(self) -> None:
        check_ranges(self, "world.")

    @property
    def agent_features(self) -> tuple[Feature, ...]:  # type: ignore[override]
        return particles.agent_features(self.mark_viewer)

    @property
    def action_kind(self) -> ActionKind:
        return Continuous(2)

    def check_size(self, size: TeamSize) -> None:
        particles.check_at_least_one_each(size)
        if size.agents != size.tasks:
            raise UserError(
                f"agents is {size.agents} and tasks is {size.tasks}: Simple Spread has one landmark for each agent; "
                "set both to the same number."
            )

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> Particles:
        return particles.begin(key, size, self.max_agents, self.max_tasks, self.half_width, self.start)

    def step(self, state: Particles, actions: Float[Array, "agent 2"], key: PRNGKeyArray) -> Transition:
        state = particles.advance(self.physics, state, actions, self.start)
        return Transition(state, *self.judge(state))

    def judge(self, state: Particles) -> tuple[Float[Array, ""], Array, dict[str, Float[Array, ""]]]:
        """The reward of having reached this state, that it never ends, and the measures.

        The measures, summed over an episode's steps: `distance` Σ_landmarks to the nearest agent,
        `collisions` ordered overlapping pairs, `covered` the share of landmarks under some agent.
        """
        nearest = particles.nearest_agents(state)
        distance = particles.total_distance(state, nearest)
        collisions = particles.overlapping_pairs(self.physics, state)
        agents = particles.fold(jnp.add, state.agent_present.astype(jnp.float32))
        landmarks = particles.fold(jnp.add, state.task_present.astype(jnp.float32))
        under_agent = (nearest.distance < self.physics.agent_radius) & state.task_present
        covered = particles.fold(jnp.add, under_agent.astype(jnp.float32)) / landmarks
        reward = -agents * distance - self.collision_penalty * collisions
        return reward, jnp.asarray(False), {"distance": distance, "collisions": collisions, "covered": covered}

    def views(self, state: Particles, ranks: Float32[Array, " agent"]) -> AgentView:
        return particles.views(state, ranks, self.mark_viewer)

    def team_view(self, state: Particles) -> TeamView:
        return particles.team_view(state)

    def scene(self) -> Any:
        from diamond_attention.worlds.particle_scene import ParticleScene

        return ParticleScene
