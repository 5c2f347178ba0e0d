"""Food Collection: agents collect food that grows again somewhere else.

The paper describes this world in two sentences, so its rules are ours, chosen to fit them and stated here.
The physics is that of Simple Spread. After each physical step, on the positions reached:

    D   the sum over foods of the distance to the nearest agent
    C   the foods some agent touches; each is collected once, by the nearest agent
    K   the ordered pairs of overlapping agents
    reward = −N_a · D + 20 · C − K

Then every collected food reappears, uniformly on the square but not where its collector already touches it.
The number the paper reports is the episode's reward divided by N_a.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from diamond_attention.actions import ActionKind, Continuous
from diamond_attention.errors import UserError
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds import particles
from diamond_attention.worlds.contract import Feature, Padding, Scoring, TeamSize, Transition, World
from diamond_attention.worlds.particles import Length, Particles, Physics, Start

Worth = Annotated[float, Between(-1_000_000, 1_000_000)]
"""A part of the reward."""

PROPOSALS = 4
"""Places drawn at once for a food that grows again."""


@dataclass(frozen=True)
class Food(World):
    """Food Collection for up to `max_agents` agents and `max_tasks` foods."""

    physics: Physics = field(default_factory=Physics)
    """How agents move and push each other; the defaults are VMAS's."""
    food_radius: Length = 0.05
    """A food is collected when its centre is nearer to an agent's than this and the agent's radius together."""
    collection_reward: Worth = 20.0
    """Gained for every food collected."""
    distance_weight: Worth = 1.0
    """Lost each step for every unit of distance between a food and its nearest agent, times the agents."""
    collision_penalty: Worth = 1.0
    """Lost each step for every ordered pair of overlapping agents, so twice for two agents in contact."""
    caution: Annotated[float, Between(0, 1_000_000)] = 1.0
    """How many times a collision counts while learning. Scores count it once."""
    half_width: Length = 1.0
    """Agents start, and food grows, uniformly on the square from −half_width to half_width; there are no walls."""
    start: Start = "scattered"
    """Where agents start: scattered, everybody somewhere on the square; depot, all at one point of it, drawn for each
    episode. From a depot agents pass through each other: no contact forces, but overlapping costs as ever."""
    mark_viewer: bool = True
    """Whether a last feature of every agent says which row is the viewer's. False: views as the paper has them."""
    max_agents: Padding = 4
    max_tasks: Padding = 4

    name = "food"
    title = "Food Collection"
    task = "food"
    scoring = Scoring(
        name="R, the return divided by the agents",
        per_agent=True,
        measures={
            "collections": "foods collected in an episode",
            "collisions": "ordered pairs of overlapping agents, summed over an episode's steps",
        },
    )
    task_features = particles.TASK_FEATURES
    has_places = True
    time_limit = 400

    def __post_init__(self) -> None:
        check_ranges(self, "world.")
        if self.half_width <= 2 * self.collection_distance:
            raise UserError(
                f"world.half_width is {self.half_width}; it must be above {2 * self.collection_distance:g}, twice "
                "the distance at which food is collected, or food could find no place to grow again."
            )

    @property
    def agent_features(self) -> tuple[Feature, ...]:  # type: ignore[override]
        return particles.agent_features(self.mark_viewer)

    @property
    def action_kind(self) -> ActionKind:
        return Continuous(2)

    @property
    def collection_distance(self) -> float:
        return self.physics.agent_radius + self.food_radius

    def as_scored(self) -> "Food":
        """The game that is scored."""
        return replace(self, caution=1.0)

    def check_size(self, size: TeamSize) -> None:
        particles.check_at_least_one_each(size)

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> Particles:
        return particles.begin(key, size, self.max_agents, self.max_tasks, self.half_width, self.start)

    def step(self, state: Particles, actions: Float[Array, "agent 2"], key: PRNGKeyArray) -> Transition:
        """Measures, summed over an episode's steps: `distance` D, `collections` C and `collisions` K."""
        state = particles.advance(self.physics, state, actions, self.start)
        nearest = particles.nearest_agents(state)
        collected = (nearest.distance < self.collection_distance) & state.task_present
        distance = particles.total_distance(state, nearest)
        collections = particles.fold(jnp.add, collected.astype(jnp.float32))
        collisions = particles.overlapping_pairs(self.physics, state)
        agents = particles.fold(jnp.add, state.agent_present.astype(jnp.float32))
        return Transition(
            state=state._replace(tasks=self.grow_again(key, state.tasks, collected, nearest.position)),
            reward=(
                -self.distance_weight * agents * distance
                + self.collection_reward * collections
                - self.caution * self.collision_penalty * collisions
            ),
            terminated=jnp.asarray(False),
            measures={"distance": distance, "collections": collections, "collisions": collisions},
        )

    def grow_again(
        self,
        key: PRNGKeyArray,
        foods: Float[Array, "task 2"],
        collected: Bool[Array, " task"],
        collectors: Float[Array, "task 2"],
    ) -> Float[Array, "task 2"]:
        """Each collected food moved to a place uniform on the square, outside its collector's reach.

        A bounded rejection: the first of PROPOSALS places out of reach. A collector's reach is at most 3 %
        of the square, so all four are refused about once in a million collections; then the last one moves
        half a square sideways, coming back in at the other edge, which is out of reach for certain.
        The difference from endless rejection is therefore below 1e-6 in total variation.
        """
        places = jax.random.uniform(
            key, (self.max_tasks, PROPOSALS, 2), minval=-self.half_width, maxval=self.half_width
        )
        last = places[:, -1]
        sideways = jnp.where(last[:, 0] > 0, -self.half_width, self.half_width)
        place = last.at[:, 0].add(sideways)
        for proposal in reversed(range(PROPOSALS)):
            candidate = places[:, proposal]
            out_of_reach = particles.distance(candidate - collectors) >= self.collection_distance
            place = jnp.where(out_of_reach[:, None], candidate, place)
        return jnp.where(collected[:, None], place, foods)

    def views(self, state: Particles, ranks: Float32[Array, " agent"]) -> AgentView:
        return particles.views(state, ranks, self.mark_viewer)

    def team_view(self, state: Particles) -> TeamView:
        return particles.team_view(state)

    def scene(self) -> Any:
        from diamond_attention.worlds.particle_scene import ParticleScene

        return ParticleScene
