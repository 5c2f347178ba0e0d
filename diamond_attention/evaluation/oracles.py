"""What a score is worth: hand-written policies, and a bound, for Simple Spread and Food Collection.

The policies know everything and are programmed, not learned. They say where a learned one stands:

    random       every action uniform
    still        no action at all
    nearest      everybody to the nearest task: nobody splits the work
    assigned     PD control to the tasks of the cheapest assignment (Hungarian), decided anew each step;
                 straight through whoever stands in the way
    avoiding     the same, and a push away from every peer that is near

`spread_bound` is what no team beats; see there for what is proven.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize import linear_sum_assignment

from diamond_attention.worlds.contract import TeamSize, Transition
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles, contact_forces
from diamond_attention.worlds.spread import Spread

POSITION_GAIN = 20.0
VELOCITY_GAIN = 8.0
"""Full force until close, then braking. Of the pairs tried on Simple Spread, from (1, 1) to (100, 20), within 3 %
of the best."""

ROOM = 0.32
PUSH = 75.0
"""For `avoiding`: nearer to a peer than ROOM, the push is PUSH times the distance missing. Agents touch at 0.3, and
two that press on each other at full force stop 1 / PUSH short of ROOM, at 0.307: clear of each other, but hardly
further from their landmarks than that takes.

Chosen on Simple Spread with 9 and 10 agents, sizes no table shows, and another seed than the tables' (101, 256
episodes): of 63 pairs, ROOM from 0.305 to 0.6 and PUSH · ROOM from 1 to 128, the best at both sizes, and at 3 agents.
At its best PUSH, ROOM 0.31 or 0.35 costs 8 to 10 % and 0.4 costs 31 %. To add the push before PD control is limited
to the box, 18 pairs, cost 10 %. On Food Collection (9 agents and 9 foods, 10 and 5, 5 and 10, 3 and 3; the same seed)
none of 10 pairs was better than no push by two standard errors."""

Oracle = Callable[[Particles, np.random.Generator], Float[np.ndarray, "episode agent 2"]]
"""Actions for a batch of episodes from their full states."""


class OracleEpisodes(NamedTuple):
    """One entry an episode."""

    returns: Float[np.ndarray, " episode"]
    """The sum of team rewards. The paper's R is this divided by the number of agents."""
    measures: dict[str, Float[np.ndarray, " episode"]]


def play(
    world: Spread | Food, size: TeamSize, oracle: Oracle, *, episodes: int, seed: int, steps: int | None = None
) -> OracleEpisodes:
    """Episodes of an oracle in a world; the same seed gives every oracle the same starts."""
    generator = np.random.default_rng(seed)
    state = starts(world, size, episodes=episodes, seed=seed)
    step_key = _keys(seed)[1]
    returns = np.zeros(episodes)
    measures: dict[str, np.ndarray] = {}
    for step in range(world.time_limit if steps is None else steps):
        actions = oracle(jax.tree.map(np.asarray, state), generator)
        transition = _step(world, state, actions.astype(np.float32), step_key, step)
        state = transition.state
        returns += np.asarray(transition.reward)
        for name, value in transition.measures.items():
            measures[name] = measures.get(name, np.zeros(episodes)) + np.asarray(value)
    return OracleEpisodes(returns, measures)


def starts(world: Spread | Food, size: TeamSize, *, episodes: int, seed: int) -> Particles:
    """The states in which `play` begins its episodes."""
    world.check_size(size)
    return _reset(world, jax.random.split(_keys(seed)[0], episodes), size)


def _keys(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """For the starts and for the steps."""
    start_key, step_key = jax.random.split(jax.random.key(seed))
    return start_key, step_key


# Compiled once for each world, not once a call.
@functools.partial(jax.jit, static_argnums=0)
def _reset(world: Spread | Food, keys: PRNGKeyArray, size: TeamSize) -> Particles:
    return jax.vmap(lambda key: world.reset(key, size))(keys)


@functools.partial(jax.jit, static_argnums=0)
def _step(world: Spread | Food, state: Particles, actions: Array, key: PRNGKeyArray, step: int) -> Transition:
    keys = jax.random.split(jax.random.fold_in(key, step), actions.shape[0])
    return jax.vmap(world.step)(state, actions, keys)


# --- policies -------------------------------------------------------------------------------------


def random(state: Particles, generator: np.random.Generator) -> Float[np.ndarray, "episode agent 2"]:
    """Every action uniform."""
    return generator.uniform(-1, 1, np.shape(state.positions))


def still(state: Particles, generator: np.random.Generator) -> Float[np.ndarray, "episode agent 2"]:
    """Nobody moves, except apart where they overlap."""
    return np.zeros(np.shape(state.positions))


def nearest(state: Particles, generator: np.random.Generator) -> Float[np.ndarray, "episode agent 2"]:
    """Everybody to the nearest task."""
    chosen = _costs(state).argmin(axis=-1)
    return _steer(state, np.take_along_axis(np.asarray(state.tasks), chosen[..., None], axis=1))


def assigned(state: Particles, generator: np.random.Generator) -> Float[np.ndarray, "episode agent 2"]:
    """Everybody to their task in the assignment of least total distance; an agent too many brakes."""
    targets = np.array(state.positions)
    for episode, costs in enumerate(_costs(state)):
        there = np.flatnonzero(np.asarray(state.agent_present)[episode])
        tasks = np.flatnonzero(np.asarray(state.task_present)[episode])
        rows, columns = linear_sum_assignment(costs[np.ix_(there, tasks)])
        targets[episode, there[rows]] = np.asarray(state.tasks)[episode, tasks[columns]]
    return _steer(state, targets)


def avoiding(state: Particles, generator: np.random.Generator) -> Float[np.ndarray, "episode agent 2"]:
    """As `assigned`, and away from every peer that is near."""
    return np.clip(assigned(state, generator) + _repulsion(state), -1, 1)


def _costs(state: Particles) -> Float[np.ndarray, "episode agent task"]:
    apart = np.linalg.norm(np.asarray(state.positions)[:, :, None] - np.asarray(state.tasks)[:, None], axis=-1)
    return np.where(np.asarray(state.task_present)[:, None], apart, np.inf)


def _steer(state: Particles, targets: np.ndarray) -> Float[np.ndarray, "episode agent 2"]:
    """PD control, within the box of forces."""
    towards = POSITION_GAIN * (targets - np.asarray(state.positions))
    return np.clip(towards - VELOCITY_GAIN * np.asarray(state.velocities), -1, 1)


def _repulsion(state: Particles) -> Float[np.ndarray, "episode agent 2"]:
    """Away from each peer in proportion to how much it is too near, not yet within the box of forces."""
    positions = np.asarray(state.positions)
    # [episode, agent, peer, 2]
    offset = positions[:, :, None] - positions[:, None]
    apart = np.linalg.norm(offset, axis=-1)
    # An absent peer pushes nobody.
    missing = np.maximum(ROOM - apart, 0) * np.asarray(state.agent_present)[:, None]
    # From oneself, or a peer at the very same place, no direction leads away: the offset is zero, and so is the push.
    direction = offset / np.where(apart > 0, apart, 1)[..., None]
    return PUSH * (missing[..., None] * direction).sum(axis=2)


ORACLES: dict[str, Oracle] = {
    "random": random,
    "still": still,
    "nearest": nearest,
    "assigned": assigned,
    "avoiding": avoiding,
}


# --- bound ----------------------------------------------------------------------------------------


def spread_bound(world: Spread, state: Particles, steps: int | None = None) -> Float[Array, ""]:
    """A return no team reaches from this start: one unbatched state, `jax.vmap` for more.

    For every landmark and every step, the closest any agent could be by then if it had headed there from
    the start at full force and gone through everybody: one agent may serve many landmarks, nobody brakes,
    nobody collides. The force is a box, so the two axes are independent: after t steps an agent can be
    anywhere within reach(t) of where it would have drifted, on each axis, and nowhere else.

    Agents that overlap at the start push each other apart in the first step whatever they do; that push is
    in the drift. A push from a later collision is not: it can throw an agent faster than its own force
    would, for a penalty of two a step. So the bound is proven for teams that do not touch after the start.
    That nobody gains by being thrown is not proven; where it was tried (two agents that run into each other
    before they set out, over starts and timings) it always lost.
    """
    physics = world.physics
    push = contact_forces(physics, state) / physics.mass * physics.time_step

    def one_step(carried: tuple[Array, Array, Array, Array, Array], _: None) -> tuple[tuple, Float[Array, ""]]:
        place, drift, reach, speed, push = carried
        drift = drift * (1 - physics.drag) + push
        place = place + drift * physics.time_step
        speed = speed * (1 - physics.drag) + physics.time_step / physics.mass
        reach = reach + speed * physics.time_step
        short = jnp.maximum(jnp.abs(place[:, None] - state.tasks[None]) - reach, 0.0)
        apart = jnp.where(state.agent_present[:, None], jnp.sqrt(jnp.sum(short**2, axis=-1)), jnp.inf)
        closest = jnp.where(state.task_present, jnp.min(apart, axis=0), 0.0)
        return (place, drift, reach, speed, jnp.zeros_like(push)), jnp.sum(closest)

    begin = (state.positions, state.velocities, jnp.zeros(()), jnp.zeros(()), push)
    _, distances = jax.lax.scan(one_step, begin, None, length=world.time_limit if steps is None else steps)
    return -jnp.sum(state.agent_present) * jnp.sum(distances)
