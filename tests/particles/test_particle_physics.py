"""The physics by hand: cases small enough to work out on paper."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.worlds import particles
from diamond_attention.worlds.particles import (
    Particles,
    Physics,
    fold,
)

PHYSICS = Physics()

# Compiled as one: operation by operation, compiling would be most of the tests' time.
advance = jax.jit(particles.advance, static_argnums=0)
contact_forces = jax.jit(particles.contact_forces, static_argnums=0)
overlapping_pairs = jax.jit(particles.overlapping_pairs, static_argnums=0)
nearest_agents = jax.jit(particles.nearest_agents)
total_distance = jax.jit(particles.total_distance)


def team(*positions, velocities=None, tasks=((0.0, 0.0),), present=None):
    positions = jnp.array(positions, jnp.float32)
    return Particles(
        positions=positions,
        velocities=jnp.zeros_like(positions) if velocities is None else jnp.array(velocities, jnp.float32),
        tasks=jnp.array(tasks, jnp.float32),
        agent_present=jnp.ones(len(positions), bool) if present is None else jnp.array(present),
        task_present=jnp.ones(len(tasks), bool),
    )


def test_a_force_moves_an_agent_at_rest():
    reached = advance(PHYSICS, team((1.0, 2.0)), jnp.array([[1.0, -0.5]]))
    np.testing.assert_allclose(reached.velocities, [[0.1, -0.05]], rtol=1e-6)
    # The new velocity already counts: semi-implicit Euler.
    np.testing.assert_allclose(reached.positions, [[1.01, 1.995]], rtol=1e-6)


def test_drag_takes_a_quarter_of_the_velocity_before_the_force_adds_to_it():
    reached = advance(PHYSICS, team((0.0, 0.0), velocities=[(1.0, 0.0)]), jnp.array([[1.0, 0.0]]))
    np.testing.assert_allclose(reached.velocities, [[0.85, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(reached.positions, [[0.085, 0.0]], rtol=1e-6)


def test_full_force_for_ever_reaches_four_tenths_on_each_axis():
    state = team((0.0, 0.0))
    for _ in range(100):
        state = advance(PHYSICS, state, jnp.ones((1, 2)))
    np.testing.assert_allclose(state.velocities, [[0.4, 0.4]], rtol=1e-5)


def test_the_force_is_a_box_and_actions_outside_it_are_clipped():
    reached = advance(PHYSICS, team((0.0, 0.0)), jnp.array([[7.0, -7.0]]))
    np.testing.assert_allclose(reached.velocities, [[0.1, -0.1]], rtol=1e-6)


def test_overlap_pushes_both_apart_by_stiffness_times_depth():
    forces = contact_forces(PHYSICS, team((0.0, 0.0), (0.2, 0.0)))
    # 0.1 deep; at a hundred margins the softplus adds nothing.
    np.testing.assert_allclose(forces, [[-10.0, 0.0], [10.0, 0.0]], rtol=1e-5)


def test_the_push_is_along_the_line_between_centres():
    forces = contact_forces(PHYSICS, team((0.0, 0.0), (0.12, 0.16)))
    np.testing.assert_allclose(forces, [[-6.0, -8.0], [6.0, 8.0]], rtol=1e-5)


def test_at_exact_touch_the_push_is_the_softplus_of_zero_and_nobody_overlaps():
    touching = team((-0.15, 0.0), (0.15, 0.0))
    force = 100 * 1e-3 * math.log(2)
    np.testing.assert_allclose(contact_forces(PHYSICS, touching), [[-force, 0.0], [force, 0.0]], rtol=1e-4)
    assert overlapping_pairs(PHYSICS, touching) == 0


@pytest.mark.parametrize("apart", [0.0, 5e-7, 0.3001, 1.0])
def test_no_push_in_one_place_or_apart(apart):
    forces = contact_forces(PHYSICS, team((0.0, 0.0), (apart, 0.0)))
    assert not forces.any()


def test_pushes_from_several_add_up_and_leave_the_centre_of_mass_alone():
    forces = contact_forces(PHYSICS, team((0.0, 0.0), (0.2, 0.0), (-0.1, 0.0), (5.0, 5.0)))
    # 0 ← 1: −10; 0 ← 2: +20; 1 and 2 touch exactly at 0.3 apart: the softplus of zero.
    touch = 0.1 * math.log(2)
    expected = [[10.0, 0.0], [10.0 + touch, 0.0], [-20.0 - touch, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(forces, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(forces.sum(axis=0), 0.0, atol=1e-5)


def test_two_agents_in_one_place_stay_together_until_their_actions_differ():
    state = team((0.3, 0.3), (0.3, 0.3))
    for _ in range(5):
        state = advance(PHYSICS, state, jnp.full((2, 2), 0.5))
    np.testing.assert_array_equal(state.positions[0], state.positions[1])
    assert jnp.isfinite(state.positions).all()
    state = advance(PHYSICS, state, jnp.array([[1.0, 0.0], [-1.0, 0.0]]))
    state = advance(PHYSICS, state, jnp.zeros((2, 2)))
    assert abs(state.positions[0, 0] - state.positions[1, 0]) > 0.3


def test_an_absent_agent_neither_moves_nor_touches_nor_reaches():
    state = team((0.0, 0.0), (0.1, 0.0), tasks=[(0.1, 0.0)], present=[True, False])
    reached = advance(PHYSICS, state, jnp.ones((2, 2)))
    np.testing.assert_allclose(reached.positions, [[0.01, 0.01], [0.1, 0.0]], rtol=1e-6)
    assert overlapping_pairs(PHYSICS, state) == 0
    np.testing.assert_allclose(nearest_agents(state).distance, [0.1], rtol=1e-6)


def test_nearest_agents_and_their_total():
    state = team((0.0, 0.0), (3.0, 4.0), tasks=[(3.0, 0.0), (3.0, 5.0), (0.0, 0.0)])
    nearest = nearest_agents(state)
    np.testing.assert_allclose(nearest.distance, [3.0, 1.0, 0.0])
    np.testing.assert_allclose(nearest.position, [(0.0, 0.0), (3.0, 4.0), (0.0, 0.0)])
    assert total_distance(state, nearest) == 4.0


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13])
def test_fold_is_a_sum(length):
    values = jnp.arange(3.0 * length).reshape(length, 3)
    np.testing.assert_allclose(fold(jnp.add, values), values.sum(axis=0))


@pytest.mark.parametrize("bad", [{"agent_radius": 0.0}, {"drag": 1.5}, {"mass": -1.0}])
def test_impossible_physics_is_refused_in_one_sentence(bad):
    with pytest.raises(UserError, match=f"physics.{next(iter(bad))} is"):
        Physics(**bad)
