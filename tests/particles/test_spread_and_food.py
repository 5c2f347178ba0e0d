"""The two worlds: rewards by hand, what agents see, and that padding changes nothing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention import DiamondSettings, begin_episode, build_policy, play_step
from diamond_attention.errors import UserError
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles, Physics
from diamond_attention.worlds.spread import Spread

WORLDS = [Spread(), Food()]
by_name = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnums=0)
def compiled_step(world, state, actions, key):
    """Compiled as one: operation by operation, compiling would be most of the test's time."""
    return world.step(state, actions, key)


@functools.partial(jax.jit, static_argnums=0)
def compiled_views(world, state, ranks):
    return world.views(state, ranks)


@functools.partial(jax.jit, static_argnums=0)
def compiled_reset(world, key, size):
    return world.reset(key, size)


def on_the_host(function):
    """NumPy arrays out: slicing a JAX array compiles a program for every slice."""
    return lambda *arguments: jax.tree.map(np.asarray, function(*arguments))


step, see, begin = on_the_host(compiled_step), on_the_host(compiled_views), on_the_host(compiled_reset)


def state(positions, tasks, velocities=None):
    positions, tasks = jnp.array(positions, jnp.float32), jnp.array(tasks, jnp.float32)
    return Particles(
        positions,
        jnp.zeros_like(positions) if velocities is None else jnp.array(velocities, jnp.float32),
        tasks,
        jnp.ones(len(positions), bool),
        jnp.ones(len(tasks), bool),
    )


def with_room(world, agents, tasks):
    return dataclasses.replace(world, max_agents=agents, max_tasks=tasks)


# --- rewards --------------------------------------------------------------------------------------


def test_spread_reward_by_hand():
    start = state([(0.0, 0.0), (1.0, 0.0), (0.0, 2.0)], [(0.0, 0.5), (1.0, 0.0), (0.0, 3.0)])
    reached = step(with_room(Spread(), 3, 3), start, jnp.zeros((3, 2)), KEY)
    assert reached.reward == pytest.approx(-3 * (0.5 + 0.0 + 1.0))
    assert reached.measures["distance"] == pytest.approx(1.5)
    assert reached.measures["covered"] == pytest.approx(1 / 3)
    assert not reached.terminated


def test_each_overlapping_pair_costs_two():
    # Rushing into each other: apart before the step, overlapping after it.
    rushing = state([(-0.16, 0.0), (0.16, 0.0)], [(-0.16, 0.0), (0.16, 0.0)], [(1.0, 0.0), (-1.0, 0.0)])
    reached = step(with_room(Spread(), 2, 2), rushing, jnp.zeros((2, 2)), KEY)
    assert reached.measures["collisions"] == 2
    assert reached.reward == pytest.approx(-2 * 2 * 0.075 - 2, rel=1e-5)


def test_food_reward_by_hand():
    start = state([(0.0, 0.0), (2.0, 0.0)], [(0.1, 0.0), (0.0, 0.6), (2.0, -0.15)])
    reached = step(with_room(Food(), 2, 3), start, jnp.zeros((2, 2)), KEY)
    assert reached.measures["collections"] == 2
    assert reached.measures["distance"] == pytest.approx(0.1 + 0.6 + 0.15)
    assert reached.reward == pytest.approx(-2 * 0.85 + 40, rel=1e-5)
    np.testing.assert_array_equal(reached.state.tasks[1], start.tasks[1])
    assert (reached.state.tasks[0] != start.tasks[0]).any()
    assert (reached.state.tasks[2] != start.tasks[2]).any()


def test_a_food_between_two_agents_is_collected_once():
    start = state([(-0.16, 0.0), (0.16, 0.0)], [(0.0, 0.0)])
    reached = step(with_room(Food(), 2, 1), start, jnp.zeros((2, 2)), KEY)
    assert reached.measures["collections"] == 1
    assert reached.reward == pytest.approx(20 - 2 * 0.16, rel=1e-5)


def test_every_coefficient_of_food_is_a_setting():
    start = state([(-0.16, 0.0), (0.16, 0.0)], [(0.0, 0.0)], [(1.0, 0.0), (-1.0, 0.0)])
    world = Food(
        physics=Physics(agent_radius=0.1),
        food_radius=0.02,
        collection_reward=3.0,
        distance_weight=0.5,
        collision_penalty=7.0,
        max_agents=2,
        max_tasks=1,
    )
    reached = step(world, start, jnp.zeros((2, 2)), KEY)
    # Each ends 0.16 − 0.075 = 0.085 from the food: within 0.12, and the two 0.17 apart, within 0.2.
    assert reached.reward == pytest.approx(3 - 0.5 * 2 * 0.085 - 7 * 2, rel=1e-5)


def test_caution_makes_collisions_dearer_and_is_no_part_of_the_game():
    rushing = state([(-0.16, 0.0), (0.16, 0.0)], [(0.5, 0.0)], [(1.0, 0.0), (-1.0, 0.0)])
    plain, careful = with_room(Food(), 2, 1), with_room(Food(caution=5.0), 2, 1)
    once, dearer = (step(world, rushing, jnp.zeros((2, 2)), KEY) for world in (plain, careful))
    assert once.measures["collisions"] == dearer.measures["collisions"] == 2
    assert once.reward - dearer.reward == pytest.approx(4 * 2, rel=1e-5)
    assert careful.as_scored() == plain
    assert Spread().as_scored() == Spread()
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(UserError, match=r"world\.caution"):
            Food(caution=wrong)


# --- food grows again -----------------------------------------------------------------------------


def test_food_never_grows_within_its_collectors_reach():
    world = with_room(Food(), 1, 64)
    random = np.random.default_rng(0)
    collectors = jnp.asarray(random.uniform(-1.2, 1.2, (500, 64, 2)), jnp.float32)
    keys = jax.random.split(KEY, 500)
    grow = jax.jit(jax.vmap(lambda key, at: world.grow_again(key, at, jnp.ones(64, bool), at)))
    places = np.asarray(grow(keys, collectors))
    assert np.linalg.norm(places - np.asarray(collectors), axis=-1).min() >= 0.2 - 1e-6
    assert np.abs(places).max() <= 1
    # Uniform on what is left: with collectors everywhere, each quarter gets a quarter.
    quarters = (places[..., 0] > 0) * 2 + (places[..., 1] > 0)
    np.testing.assert_allclose(np.bincount(quarters.ravel()) / quarters.size, 0.25, atol=0.01)


@pytest.mark.parametrize("collector", [(0.0, 0.0), (0.95, -0.95), (-1.0, 0.0)])
def test_if_every_proposal_is_refused_food_moves_half_a_square(collector, monkeypatch):
    world = with_room(Food(), 1, 1)
    at = jnp.array([collector], jnp.float32)

    def always_here(key, shape, minval, maxval):
        return jnp.broadcast_to(jnp.clip(at + 0.03, minval, maxval), shape)

    monkeypatch.setattr(jax.random, "uniform", always_here)
    place = world.grow_again(KEY, at, jnp.ones(1, bool), at)
    assert jnp.linalg.norm(place - at) > 0.2
    assert jnp.abs(place).max() <= 1


def test_food_that_nobody_touches_stays():
    world = with_room(Food(), 2, 2)
    start = state([(0.0, 0.0), (1.0, 1.0)], [(0.5, 0.5), (-0.5, -0.5)])
    np.testing.assert_array_equal(step(world, start, jnp.zeros((2, 2)), KEY).state.tasks, start.tasks)


# --- starting -------------------------------------------------------------------------------------


@by_name
def test_starts_are_uniform_on_the_square_and_at_rest(world):
    starts = jax.jit(jax.vmap(lambda key: world.reset(key, TeamSize(4, 4))))(jax.random.split(KEY, 2000))
    starts = jax.tree.map(np.asarray, starts)
    assert not starts.velocities.any()
    for places in (starts.positions, starts.tasks):
        assert np.abs(places).max() <= 1
        np.testing.assert_allclose(places.mean(axis=(0, 1)), 0.0, atol=0.03)
        np.testing.assert_allclose(places.var(axis=(0, 1)), 1 / 3, atol=0.02)


@by_name
def test_sizes_that_cannot_be_played_are_refused(world):
    world.check_size(TeamSize(8, 8))
    with pytest.raises(UserError, match="at least one of each"):
        world.check_size(TeamSize(0, 0))


def test_spread_needs_a_landmark_for_each_agent_and_food_does_not():
    with pytest.raises(UserError, match="one landmark for each agent"):
        Spread().check_size(TeamSize(4, 3))
    Food().check_size(TeamSize(4, 3))


def test_a_square_too_small_to_grow_food_is_refused():
    with pytest.raises(UserError, match=r"world\.half_width is 0\.3"):
        Food(half_width=0.3)


# --- seeing ---------------------------------------------------------------------------------------


@by_name
def test_views_by_hand(world):
    moving = state([(1.0, 2.0), (4.0, 6.0)], [(1.0, 1.0), (0.0, 0.0)], [(0.1, 0.2), (0.4, 0.8)])
    views = see(with_room(world, 2, 2), moving, jnp.array([0.25, 0.75], jnp.float32))
    np.testing.assert_allclose(views.agents[0], [[1, 2, 0.1, 0.2, 1], [3, 4, 0.3, 0.6, 0]], rtol=1e-5)
    np.testing.assert_allclose(views.agents[1], [[4, 6, 0.4, 0.8, 1], [-3, -4, -0.3, -0.6, 0]], rtol=1e-5)
    np.testing.assert_allclose(views.tasks[0], [[0, -1], [-1, -2]])
    np.testing.assert_allclose(views.tasks[1], [[-3, -5], [-4, -6]])
    np.testing.assert_allclose(views.ranks, [[0.25, 0.75], [0.75, 0.25]])


@by_name
def test_team_view_is_in_the_worlds_frame(world):
    moving = state([(1.0, 2.0), (4.0, 6.0)], [(1.0, 1.0), (0.0, 0.0)], [(0.1, 0.2), (0.4, 0.8)])
    view = with_room(world, 2, 2).team_view(moving)
    np.testing.assert_allclose(view.agents, [[1, 2, 0.1, 0.2], [4, 6, 0.4, 0.8]])
    np.testing.assert_allclose(view.tasks, moving.tasks)


@by_name
def test_renaming_the_agents_renames_the_views_and_nothing_else(world):
    moving = begin(world, KEY, TeamSize(4, 4))
    moving = moving._replace(velocities=np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32))
    ranks = np.random.default_rng(0).uniform(size=4).astype(np.float32)
    order = np.array([2, 0, 3, 1])
    renamed = moving._replace(positions=moving.positions[order], velocities=moving.velocities[order])
    views, of_renamed = see(world, moving, ranks), see(world, renamed, ranks[order])
    for new, old in enumerate(order):
        seen = np.concatenate([views.agents[old], views.ranks[old][:, None]], axis=1)
        seen_renamed = np.concatenate([of_renamed.agents[new], of_renamed.ranks[new][:, None]], axis=1)
        np.testing.assert_array_equal(seen[0], seen_renamed[0])
        np.testing.assert_array_equal(*(rows[np.lexsort(rows.T)] for rows in (seen[1:], seen_renamed[1:])))
        np.testing.assert_array_equal(views.tasks[old], of_renamed.tasks[new])


@by_name
def test_renaming_the_agents_changes_neither_reward_nor_physics(world):
    start = begin(world, KEY, TeamSize(4, 4))
    start = start._replace(positions=0.3 * start.positions)
    actions = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    order = np.array([2, 0, 3, 1])
    renamed = start._replace(positions=start.positions[order], velocities=start.velocities[order])
    reached, of_renamed = step(world, start, actions, KEY), step(world, renamed, actions[order], KEY)
    np.testing.assert_allclose(reached.state.positions[order], of_renamed.state.positions, atol=1e-6)
    assert reached.reward == pytest.approx(float(of_renamed.reward), rel=1e-6)


# --- starting from one point ----------------------------------------------------------------------


def at_depot(world):
    return dataclasses.replace(world, start="depot")


@by_name
def test_everybody_starts_from_one_point_which_is_another_in_every_episode(world):
    size = TeamSize(3, 3)
    starts = [begin(with_room(at_depot(world), 4, 4), jax.random.key(number), size) for number in range(200)]
    for start in starts:
        np.testing.assert_array_equal(start.positions, [*[start.positions[0]] * 3, (0.0, 0.0)])
    depots = np.stack([start.positions[0] for start in starts])
    # Uniform on the square: a mean of 0, a variance of a third.
    np.testing.assert_allclose(depots.mean(axis=0), 0.0, atol=4 / np.sqrt(3 * 200))
    np.testing.assert_allclose(depots.var(axis=0), 1 / 3, atol=4 * np.sqrt(4 / 45 / 200))
    # Nothing else is another than in scattered starts.
    scattered = begin(with_room(world, 4, 4), jax.random.key(0), size)
    np.testing.assert_array_equal(starts[0].tasks, scattered.tasks)
    np.testing.assert_array_equal(starts[0].agent_present, scattered.agent_present)


@by_name
def test_from_one_point_agents_pass_through_each_other_and_pay_for_it(world):
    world = with_room(at_depot(world), 3, 3)
    start = begin(world, KEY, TeamSize(3, 3))
    actions = np.array([(1.0, 0.0), (1.0, 0.0), (0.0, 0.5)], np.float32)
    together = step(world, start, actions, KEY)
    assert together.measures["collisions"] == 6
    # Each goes where it would go alone.
    for agent in range(3):
        only = start._replace(agent_present=np.arange(3) == agent)
        alone = step(world, only, actions, KEY)
        np.testing.assert_array_equal(together.state.positions[agent], alone.state.positions[agent])
    # In scattered starts a team a hair apart is thrown asunder.
    apart = start._replace(positions=start.positions + np.array([(0.0, 0.0), (2e-6, 0.0), (0.0, 2e-6)], np.float32))
    thrown = step(dataclasses.replace(world, start="scattered"), apart, actions, KEY)
    assert np.abs(thrown.state.positions - together.state.positions).max() > 0.3


@pytest.mark.parametrize(("mask", "greedy"), [("none", True), ("none", False), ("rank", True)])
def test_who_sees_the_same_and_draws_nothing_stays_together(mask, greedy):
    """Shared ranks or noise of one's own part a team that starts from one point; nothing else does."""
    world = with_room(Spread(start="depot"), 4, 4)
    policy = build_policy(world, DiamondSettings(width=8, mask=mask), KEY)
    team = begin_episode(world, np.array([[4, 4]]), KEY)

    def one(team, key):
        return play_step(world, policy, team, key, hold=1, greedy=greedy).reached, None

    ended, _ = jax.jit(lambda keys: jax.lax.scan(one, team, keys))(jax.random.split(KEY, 60))
    spread = np.ptp(np.asarray(ended.world.positions), axis=0).max()
    assert np.abs(ended.world.positions - team.world.positions).max() > 1e-3  # it does go somewhere
    assert spread < 1e-6 if (mask, greedy) == ("none", True) else spread > 1e-5, spread


# --- padding --------------------------------------------------------------------------------------


@by_name
def test_more_room_changes_nothing(world):
    size = TeamSize(3, 3)
    tight, roomy = with_room(world, size.agents, size.tasks), with_room(world, 8, 8)
    agents, tasks = size
    start, roomy_start = begin(tight, KEY, size), begin(roomy, KEY, size)
    np.testing.assert_array_equal(start.positions, roomy_start.positions[:agents])
    np.testing.assert_array_equal(start.tasks, roomy_start.tasks[:tasks])
    actions = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    # Near each other, so that they touch.
    start, roomy_start = (s._replace(positions=0.3 * s.positions) for s in (start, roomy_start))
    for number in range(3):
        reached = step(tight, start, actions[:agents], jax.random.key(number))
        roomy_reached = step(roomy, roomy_start, actions, jax.random.key(number))
        np.testing.assert_allclose(reached.state.positions, roomy_reached.state.positions[:agents], atol=1e-5)
        np.testing.assert_allclose(reached.state.tasks, roomy_reached.state.tasks[:tasks], atol=1e-6)
        assert reached.reward == pytest.approx(float(roomy_reached.reward), rel=1e-5)
        for name, value in reached.measures.items():
            assert value == pytest.approx(float(roomy_reached.measures[name]), rel=1e-5)
        assert not roomy_reached.state.positions[agents:].any()
        start, roomy_start = reached.state, roomy_reached.state
    ranks = np.random.default_rng(0).uniform(size=8).astype(np.float32)
    views, roomy_views = see(tight, start, ranks[:agents]), see(roomy, start_with_room(start, 8), ranks)
    np.testing.assert_allclose(views.agents, roomy_views.agents[:agents, :agents])
    np.testing.assert_allclose(views.tasks, roomy_views.tasks[:agents, :tasks])
    np.testing.assert_allclose(views.ranks, roomy_views.ranks[:agents, :agents])
    assert not roomy_views.agents[:agents, agents:].any()
    assert not roomy_views.agent_present[:agents, agents:].any()
    assert not roomy_views.task_present[:, tasks:].any()


def start_with_room(state, room):
    return jax.tree.map(lambda x: np.pad(x, [(0, room - x.shape[0])] + [(0, 0)] * (x.ndim - 1)), state)


@by_name
def test_one_program_serves_every_size(world):
    roomy = with_room(world, 8, 8)
    programs = 0

    @jax.jit
    def episode(key, agents, tasks):
        nonlocal programs
        programs += 1
        start = roomy.reset(key, TeamSize(agents, tasks))
        return roomy.step(start, jnp.zeros((8, 2)), key).reward

    for agents in (1, 4, 8):
        assert jnp.isfinite(episode(KEY, agents, agents))
    assert programs == 1
