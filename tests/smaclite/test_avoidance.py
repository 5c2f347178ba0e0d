"""Collision avoidance on cases worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.worlds.smaclite import avoidance
from diamond_attention.worlds.smaclite.avoidance import Constraints, Lines
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.vectors import Vector

SLOTS = 4


def programs(cases):
    """Constraints of several programs at once: for each a list of (point, direction, is_wall)."""
    shape = (SLOTS, len(cases))
    values = {name: np.zeros(shape, np.float32) for name in ("px", "py", "dx", "dy")}
    exists, wall = np.zeros(shape, bool), np.zeros(shape, bool)
    for column, lines in enumerate(cases):
        for row, ((px, py), (dx, dy), is_wall) in enumerate(lines):
            for name, value in zip(("px", "py", "dx", "dy"), (px, py, dx, dy), strict=True):
                values[name][row, column] = value
            exists[row, column], wall[row, column] = True, is_wall
    lines = Lines(
        Vector(jnp.asarray(values["px"]), jnp.asarray(values["py"])),
        Vector(jnp.asarray(values["dx"]), jnp.asarray(values["dy"])),
    )
    return Constraints(lines, jnp.asarray(exists), jnp.asarray(wall))


def test_linear_programs():
    east, north, south = (1.0, 0.0), (0.0, 1.0), (0.0, -1.0)
    half = 0.5**0.5
    cases = [
        # (lines, wanted, expected); a line allows what lies to its left
        ([], (2.0, 0.0), (2.0, 0.0)),
        # x <= 1: straight down onto the line
        ([((1.0, 0.0), north, False)], (2.0, 0.5), (1.0, 0.5)),
        # x <= 1 and y >= 1: the corner
        ([((1.0, 0.0), north, False), ((0.0, 1.0), east, False)], (2.0, 0.0), (1.0, 1.0)),
        # the nearest point on y >= 1.8 is too fast; the line meets the speed limit at x = sqrt(4 - 1.8²)
        ([((0.0, 1.8), east, False)], (2.0, 0.0), ((4 - 1.8**2) ** 0.5, 1.8)),
        # x <= -1 and x >= 1 cannot both be: as little of each as possible, and then as the last step left it
        ([((-1.0, 0.0), north, False), ((1.0, 0.0), south, False)], (0.0, 1.0), (0.0, None)),
        # the same with x <= -1 a wall: walls are not violated
        ([((-1.0, 0.0), north, True), ((1.0, 0.0), south, False)], (0.0, 0.0), (-1.0, None)),
        # y >= 1, x >= 1, x + y <= 0: the middle of the triangle they leave out
        (
            [((0.0, 1.0), east, False), ((1.0, 0.0), south, False), ((0.0, 0.0), (-half, half), False)],
            (1.0, 1.0),
            None,
        ),
    ]
    constraints = programs([lines for lines, _, _ in cases])
    wanted = np.array([case[1] for case in cases], np.float32)
    goal = Vector(jnp.asarray(wanted[:, 0]), jnp.asarray(wanted[:, 1]))
    found = jax.jit(avoidance.solve)(constraints, goal, goal, jnp.full(len(cases), 2.0))
    for column, (_, _, expected) in enumerate(cases):
        if expected is None:
            continue
        for component, value in zip((found.x, found.y), expected, strict=True):
            if value is not None:
                assert component[column] == pytest.approx(value, abs=1e-5), column
    # The triangle: equally deep behind all three lines.
    violation = constraints.lines.violation(found)[:3, 6]
    np.testing.assert_allclose(violation, violation[0], atol=1e-5)
    assert violation[0] > 0


MARINES = scenario_of("10m_vs_11m").cast(np.float32)
UNITS = MARINES.number_of_units


@jax.jit
def marines_avoid(position, velocity, wanted, alive):
    split = [Vector(pairs[:, 0], pairs[:, 1]) for pairs in (position, velocity, wanted)]
    found = avoidance.avoid(MARINES, split[0], split[1], split[2], split[2], alive)
    return jnp.stack([found.velocity.x, found.velocity.y], axis=1), found.dropped


def marines(*units):
    """Some marines (position, velocity, wanted); the others are dead and out of the way."""
    arrays = np.zeros((3, UNITS, 2), np.float32)
    arrays[0] = 16.0
    for index, unit in enumerate(units):
        arrays[:, index] = unit
    alive = np.arange(UNITS) < len(units)
    velocity, dropped = marines_avoid(*arrays, alive)
    return np.asarray(velocity[: len(units)]), int(dropped)


def test_nobody_near_means_the_wanted_velocity():
    velocity, dropped = marines(((16, 16), (0, 0), (3, 0)), ((20, 16), (0, 0), (0, 0)))
    np.testing.assert_allclose(velocity, [(3, 0), (0, 0)])
    assert dropped == 0


def test_who_stands_is_never_pushed_and_the_other_yields_fully():
    # Touching exactly (both radii 0.375): along the line between them there is no way.
    velocity, _ = marines(((16, 16), (0, 0), (3, 1)), ((16.75, 16), (0, 0), (0, 0)))
    np.testing.assert_allclose(velocity, [(0, 1), (0, 0)], atol=1e-5)


def test_overlapping_pairs_part_within_one_tick_and_share_the_work():
    # 0.25 too close, both moving: each backs off at half of 0.25 a tick, 16 ticks a second.
    velocity, _ = marines(((16, 16), (0, 0), (3, 0)), ((16.5, 16), (0, 0), (-3, 0)))
    np.testing.assert_allclose(velocity, [(-2, 0), (2, 0)], atol=1e-4)


def test_units_on_one_spot_part_without_dividing_by_zero():
    velocity, _ = marines(((16, 16), (0, 0), (3, 0)), ((16, 16), (0, 0), (3, 0)))
    assert np.isfinite(velocity).all()
    assert abs(velocity[0, 0] - velocity[1, 0]) > 1


def test_walls_stop_who_touches_them_and_a_crowd_beyond_the_budget_is_counted():
    # The lane's northern wall is at y = 24.
    velocity, _ = marines(((10, 23.7), (0, 0), (1, 3)))
    np.testing.assert_allclose(velocity, [(1, 0)], atol=1e-5)
    # Twelve others on a ring around one marine, room for eight.
    ring = [
        ((16 + 0.7 * np.cos(angle), 16 + 0.7 * np.sin(angle)), (0, 0), (0, 0)) for angle in np.arange(12) * np.pi / 6
    ]
    _, dropped = marines(((16, 16), (0, 0), (3, 0)), *ring)
    assert dropped == 4


def test_batches_of_batches_are_solved_like_single_battles():
    """Crowds of marines at random: enough of them for the second program to work in groups."""
    shape = (3, 8, UNITS, 2)
    keys = jax.random.split(jax.random.key(0), 4)
    position = 14.5 + 3 * jax.random.uniform(keys[0], shape)
    velocity, wanted = (jax.random.uniform(key, shape, minval=-2, maxval=2) for key in keys[1:3])
    alive = jax.random.uniform(keys[3], shape[:-1]) < 0.9
    arguments = (position, velocity, wanted, alive)
    one_by_one, dropped = jax.lax.map(lambda row: jax.lax.map(lambda one: marines_avoid(*one), row), arguments)
    together, also_dropped = jax.vmap(jax.vmap(marines_avoid))(*arguments)
    np.testing.assert_allclose(together, one_by_one, atol=1e-3)
    np.testing.assert_array_equal(dropped, also_dropped)
    assert np.asarray(dropped).any()
    assert not np.allclose(together, jnp.where(alive[..., None], wanted, 0.0), atol=0.1)


def test_the_corrected_wall_keeps_its_distance():
    position, velocity = Vector(jnp.array([10.0]), jnp.array([22.0])), Vector(jnp.array([0.0]), jnp.array([3.0]))
    one = jax.tree.map(lambda values: jnp.broadcast_to(values, (UNITS, 1)), (position, velocity))
    walkers = avoidance.walkers(MARINES, *one, one[1], jnp.ones((UNITS, 1), bool))
    as_original, exists, _ = avoidance.wall_lines(MARINES, walkers, correct=False)
    corrected, _, _ = avoidance.wall_lines(MARINES, walkers, correct=True)
    assert exists[0, 0, 0]
    # Two to the wall within a second: the original ignores the radius there, the correction subtracts it.
    assert as_original.point.y[0, 0, 0] == pytest.approx(2.0)
    assert corrected.point.y[0, 0, 0] == pytest.approx(2.0 - 0.375)
