"""The sphere physics of VMAS 1.5.2 as pure functions: what Simple Spread and Food Collection stand on.

Agents are spheres pushed by a force they choose. One step, in VMAS's order:

    contact forces from the positions now
    v ← (1 − drag) · v + (action + contact) / mass · Δt
    p ← p + v · Δt

There are no walls and no speed limit. Positions of tasks never enter the physics: nobody bumps into them. Agents that
start from one point (`Start`) pass through each other: there, contact forces are left out.
Absent agents stand still at the origin and touch nobody, so one program serves every team size.

`tests/particles` holds the recordings of VMAS that these functions are checked against.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.ranks import hear_ranks
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.contract import Feature, TeamSize

NO_CONTACT_BELOW = 1e-6
"""Two spheres closer than this push each other nowhere: the direction between them is not defined."""

AGENT_FEATURES = (
    Feature("x: its own in the world, of a peer relative to the viewer", "world units"),
    Feature("y, likewise", "world units"),
    Feature("velocity along x, likewise", "world units per second"),
    Feature("velocity along y, likewise", "world units per second"),
    Feature("1 in the viewer's own row, else 0"),
)
TASK_FEATURES = (
    Feature("x relative to the viewer", "world units"),
    Feature("y relative to the viewer", "world units"),
)

Tree = TypeVar("Tree")

Start = Literal["scattered", "depot"]
"""Where agents start: everybody somewhere, as in VMAS; or all at one point, drawn anew for every episode.

From one point nobody pushes anybody, at any time. The contact force has no direction between two agents at the same
place, and thirty times the strength of an action between two that are a hair apart: it would throw a team asunder
along differences as small as a rounding error, and nobody could say any more what the policy has decided. To overlap
costs what it always costs.
"""

Length = Annotated[float, Between(1e-6, 1_000_000)]
"""In world units. Smaller, and float32 would divide by zero; larger, and its squares would overflow."""


@dataclass(frozen=True)
class Physics:
    """The constants of VMAS."""

    agent_radius: Length = 0.15
    """Two agents touch when their centres are less than twice this apart."""
    mass: Annotated[float, Between(1e-6, 1_000_000)] = 1.0
    """More: the same force changes the velocity less."""
    time_step: Annotated[float, Between(1e-6, 1000)] = 0.1
    """Simulated seconds a step."""
    drag: Annotated[float, Between(0, 1)] = 0.25
    """Share of its velocity an agent loses each step."""
    contact_stiffness: Annotated[float, Between(1e-6, 1_000_000_000)] = 100.0
    """Force for each unit of overlap between two agents."""
    contact_margin: Length = 1e-3
    """How softly the contact force sets in; at first touch it is already stiffness · margin · ln 2."""

    def __post_init__(self) -> None:
        check_ranges(self, "world.physics.")


class Particles(NamedTuple):
    """A team of agents and its tasks on the plane."""

    positions: Float[Array, "agent 2"]
    velocities: Float[Array, "agent 2"]
    tasks: Float[Array, "task 2"]
    agent_present: Bool[Array, " agent"]
    task_present: Bool[Array, " task"]


# --- starting -------------------------------------------------------------------------------------


def begin(
    key: PRNGKeyArray, size: TeamSize, max_agents: int, max_tasks: int, half_width: float, start: Start = "scattered"
) -> Particles:
    """Agents, or the one depot of all, and tasks uniform on the square, everybody at rest.

    Larger padding draws the same positions and some more that nobody uses, so that an episode does not
    depend on how much room the world keeps.
    """
    agent_key, task_key = jax.random.split(key)
    agent_present = jnp.arange(max_agents) < size.agents
    task_present = jnp.arange(max_tasks) < size.tasks
    positions = jax.random.uniform(agent_key, (max_agents, 2), minval=-half_width, maxval=half_width)
    if start == "depot":
        positions = jnp.broadcast_to(positions[0], positions.shape)
    tasks = jax.random.uniform(task_key, (max_tasks, 2), minval=-half_width, maxval=half_width)
    return Particles(
        positions=jnp.where(agent_present[:, None], positions, 0.0),
        velocities=jnp.zeros((max_agents, 2)),
        tasks=jnp.where(task_present[:, None], tasks, 0.0),
        agent_present=agent_present,
        task_present=task_present,
    )


def check_at_least_one_each(size: TeamSize) -> None:
    if size.agents < 1 or size.tasks < 1:
        raise UserError(f"agents is {size.agents} and tasks is {size.tasks}; there must be at least one of each.")


# --- distances ------------------------------------------------------------------------------------


def fold(combine: Callable[[Tree, Tree], Tree], items: Tree) -> Tree:
    """The leading axis combined into one, half with half, as elementwise operations.

    XLA's CPU compiler does not fuse a reduction over a few agents with the arithmetic around it. Written
    like this a step is about five times as fast for eight agents, or for four in a thousand environments;
    for four agents in 64 environments it makes no difference.
    """
    while (length := jax.tree.leaves(items)[0].shape[0]) > 1:
        half = length // 2
        joined = combine(
            jax.tree.map(lambda x, half=half: x[:half], items),
            jax.tree.map(lambda x, half=half: x[half : 2 * half], items),
        )
        items = (
            jax.tree.map(lambda x, y, half=half: jnp.concatenate([x, y[2 * half :]]), joined, items)
            if length % 2
            else joined
        )
    return jax.tree.map(lambda x: x[0], items)


def distance(offset: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
    # Not jnp.linalg.norm: a reduction over two components would not be fused either.
    return jnp.sqrt(offset[..., 0] ** 2 + offset[..., 1] ** 2)


class Nearest(NamedTuple):
    """For every task, the agent nearest to it."""

    distance: Float[Array, " task"]
    position: Float[Array, "task 2"]


def nearest_agents(particles: Particles) -> Nearest:
    """Of equally near agents, one of them. With nobody present, infinitely far."""
    apart = distance(particles.positions[:, None] - particles.tasks[None])
    apart = jnp.where(particles.agent_present[:, None], apart, jnp.inf)
    places = jnp.broadcast_to(particles.positions[:, None], (*apart.shape, 2))

    def nearer(one: Nearest, other: Nearest) -> Nearest:
        switch = other.distance < one.distance
        return Nearest(
            jnp.where(switch, other.distance, one.distance),
            jnp.where(switch[..., None], other.position, one.position),
        )

    return fold(nearer, Nearest(apart, places))


def total_distance(particles: Particles, nearest: Nearest) -> Float[Array, ""]:
    """The sum over tasks of the distance to the nearest agent."""
    return fold(jnp.add, jnp.where(particles.task_present, nearest.distance, 0.0))


def overlapping_pairs(physics: Physics, particles: Particles) -> Float[Array, ""]:
    """How many ordered pairs of agents overlap: two agents in contact count twice, as VMAS counts them."""
    apart = distance(particles.positions[:, None] - particles.positions[None])
    overlapping = (apart < 2 * physics.agent_radius) & _pairs(particles.agent_present)
    return fold(jnp.add, fold(jnp.add, overlapping.astype(jnp.float32)))


def _pairs(present: Bool[Array, " agent"]) -> Bool[Array, "agent agent"]:
    return present[:, None] & present[None] & ~jnp.eye(present.shape[0], dtype=bool)


# --- moving ---------------------------------------------------------------------------------------


def contact_forces(physics: Physics, particles: Particles) -> Float[Array, "agent 2"]:
    """The push each agent gets from those it overlaps.

    Stiffness times a softplus of the overlap, along the line between the centres. The softplus never
    reaches zero, so VMAS cuts the force off beyond contact, and at (nearly) the same place, where there is
    no direction: two agents exactly on top of each other stay together until their actions part them.
    """
    # [other, agent, 2]: what is added up leads.
    offset = particles.positions[None] - particles.positions[:, None]
    apart = distance(offset)
    contact_distance = 2 * physics.agent_radius
    # softplus(x) = x + log(1 + exp(−x)) needs no case distinction where x ≥ 0, and elsewhere there is no force.
    overlap = jnp.maximum(contact_distance - apart, 0.0)
    penetration = overlap + physics.contact_margin * jnp.log1p(jnp.exp(-overlap / physics.contact_margin))
    touching = (apart <= contact_distance) & (apart >= NO_CONTACT_BELOW) & _pairs(particles.agent_present)
    push = jnp.where(touching, physics.contact_stiffness * penetration / jnp.where(touching, apart, 1.0), 0.0)
    return fold(jnp.add, push[..., None] * offset)


def advance(
    physics: Physics, particles: Particles, actions: Float[Array, "agent 2"], start: Start = "scattered"
) -> Particles:
    """One step: each agent's action is its force, clipped to the box [−1, 1]²."""
    force = jnp.clip(actions, -1.0, 1.0)
    if start == "scattered":
        force = force + contact_forces(physics, particles)
    force = jnp.where(particles.agent_present[:, None], force, 0.0)
    velocities = particles.velocities * (1 - physics.drag) + force / physics.mass * physics.time_step
    return particles._replace(
        positions=particles.positions + velocities * physics.time_step,
        velocities=velocities,
    )


# --- seeing ---------------------------------------------------------------------------------------


def agent_features(mark_viewer: bool) -> tuple[Feature, ...]:
    return AGENT_FEATURES if mark_viewer else AGENT_FEATURES[:-1]


def views(particles: Particles, ranks: Float32[Array, " agent"], mark_viewer: bool = True) -> AgentView:
    """What every agent sees: agents as (x, y, vx, vy, is it the viewer), tasks as (x, y).

    The viewer's own row is in the world's frame; its peers and the tasks are relative to it, velocities too. No view
    holds an index: agents are told apart by where they are. Without the last feature an agent at the origin of the
    world sees itself just as it would see a peer it stands on, and trained teams were seen to leave landmarks there.
    """
    listed = as_each_viewer_lists(jnp.concatenate([particles.positions, particles.velocities], axis=-1))
    present = as_each_viewer_lists(particles.agent_present)
    own = listed[:, :1]
    agents = jnp.concatenate([own, listed[:, 1:] - own], axis=1)
    if mark_viewer:
        agents = jnp.concatenate([agents, jnp.zeros((*listed.shape[:2], 1)).at[:, 0].set(1.0)], axis=-1)
    tasks = particles.tasks[None] - particles.positions[:, None]
    task_present = jnp.broadcast_to(particles.task_present, tasks.shape[:2])
    return AgentView(
        agents=jnp.where(present[..., None], agents, 0.0),
        tasks=jnp.where(task_present[..., None], tasks, 0.0),
        agent_present=present,
        task_present=task_present,
        ranks=hear_ranks(ranks),
    )


def team_view(particles: Particles) -> TeamView:
    """Everybody in the world's frame: positions and velocities of agents, positions of tasks."""
    return TeamView(
        agents=jnp.concatenate([particles.positions, particles.velocities], axis=-1),
        tasks=particles.tasks,
        agent_present=particles.agent_present,
        task_present=particles.task_present,
    )
