"""The hand-written policies, and the bound none of them may pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.evaluation import oracles
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread

FOUR = Spread()
SIZE = TeamSize(4, 4)
EPISODES = 16
STEPS = 60


bound_of = jax.jit(oracles.spread_bound, static_argnums=(0, 2))


def alone(position, landmark, velocity=(0.0, 0.0)):
    one = jnp.ones(1, bool)
    return Particles(
        *(jnp.array([value], jnp.float32) for value in (position, velocity, landmark)),
        one,
        one,
    )


@pytest.fixture(scope="module")
def played():
    """Every oracle from the same starts."""
    return {
        name: oracles.play(FOUR, SIZE, oracle, episodes=EPISODES, seed=0, steps=STEPS)
        for name, oracle in oracles.ORACLES.items()
    }


@pytest.fixture(scope="module")
def bound():
    starts = oracles.starts(FOUR, SIZE, episodes=EPISODES, seed=0)
    return np.asarray(jax.jit(jax.vmap(lambda state: oracles.spread_bound(FOUR, state, steps=STEPS)))(starts))


@pytest.mark.parametrize("name", oracles.ORACLES)
def test_no_oracle_passes_the_bound_in_any_episode(name, played, bound):
    assert (played[name].returns <= bound).all()


def test_splitting_the_work_beats_everything_else(played):
    means = {name: episodes.returns.mean() for name, episodes in played.items()}
    assert means["assigned"] > means["nearest"] > means["random"]
    assert means["assigned"] > 0.5 * means["still"]


def test_the_bound_by_hand():
    # One agent, one landmark 1 away on x: reach after 1, 2, 3 steps is 0.01, 0.0275, 0.050625.
    world = Spread(max_agents=1, max_tasks=1)
    bound = float(bound_of(world, alone((0.0, 0.0), (1.0, 0.0)), 3))
    assert bound == pytest.approx(-(0.99 + 0.9725 + 0.949375), rel=1e-6)
    # On the diagonal both axes are used at once: √2 faster.
    diagonal = float(bound_of(world, alone((0.0, 0.0), (1.0, 1.0)), 3))
    assert diagonal == pytest.approx(2**0.5 * bound, rel=1e-6)
    # A velocity it starts with carries it: 0.075 in the first step.
    moving = bound_of(world, alone((0.0, 0.0), (1.0, 0.0), velocity=(1.0, 0.0)), 1)
    assert moving == pytest.approx(-(1 - 0.01 - 0.075), rel=1e-6)


def test_one_agent_at_full_force_meets_the_bound_until_it_arrives():
    world = Spread(max_agents=1, max_tasks=1)
    state = alone((0.0, 0.0), (0.5, 0.5))
    total, step = 0.0, jax.jit(world.step)
    for _ in range(12):
        transition = step(state, jnp.ones((1, 2)), jax.random.key(0))
        state, total = transition.state, total + float(transition.reward)
    assert total == pytest.approx(float(bound_of(world, alone((0.0, 0.0), (0.5, 0.5)), 12)), rel=1e-5)


def test_being_thrown_by_an_overlap_at_the_start_is_in_the_bound():
    world = Spread(max_agents=2, max_tasks=2)
    both = jnp.ones(2, bool)
    positions, landmarks = jnp.array([(-0.01, 0.0), (0.01, 0.0)]), jnp.array([(-1.0, 0.0), (1.0, 0.0)])
    start = state = Particles(positions, jnp.zeros((2, 2)), landmarks, both, both)
    total, step = 0.0, jax.jit(world.step)
    for _ in range(3):
        transition = step(state, jnp.array([(-1.0, 0.0), (1.0, 0.0)]), jax.random.key(0))
        state, total = transition.state, total + float(transition.reward)
    bound = float(bound_of(world, start, 3))
    assert total == pytest.approx(bound, rel=1e-4)


def test_assignment_ignores_who_and_what_is_absent():
    state = oracles.starts(Food(max_agents=5, max_tasks=6), TeamSize(3, 2), episodes=4, seed=0)
    tight = oracles.starts(Food(max_agents=3, max_tasks=2), TeamSize(3, 2), episodes=4, seed=0)
    generator = np.random.default_rng(0)
    for oracle in (oracles.assigned, oracles.nearest):
        np.testing.assert_allclose(oracle(state, generator)[:, :3], oracle(tight, generator), atol=1e-6)


def test_food_is_collected():
    episodes = oracles.play(Food(), SIZE, oracles.assigned, episodes=4, seed=0, steps=100)
    assert (episodes.measures["collections"] > 10).all()
