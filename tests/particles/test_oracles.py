"""The hand-written policies, and the bound none of them may pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.evaluation import oracles
from diamond_attention.reports import anchors as kept
from diamond_attention.reports.anchors import Anchor, programmed_team
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

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


def team(positions, tasks, present=None):
    """One episode of agents at rest, as the oracles take it."""
    there = np.ones(len(positions), bool) if present is None else np.array(present)
    positions, tasks = np.array([positions], np.float32), np.array([tasks], np.float32)
    return Particles(positions, np.zeros_like(positions), tasks, there[None], np.ones(tasks.shape[:2], bool))


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
    for oracle in (oracles.assigned, oracles.avoiding, oracles.nearest):
        np.testing.assert_allclose(oracle(state, generator)[:, :3], oracle(tight, generator), atol=1e-6)


def test_food_is_collected():
    episodes = oracles.play(Food(), SIZE, oracles.assigned, episodes=4, seed=0, steps=100)
    assert (episodes.measures["collections"] > 10).all()


# --- keeping clear of each other ------------------------------------------------------------------


def test_two_agents_head_on_by_hand():
    # 0.31 apart on x and each a landmark 0.01 towards the other: PD control is 20 · 0.01 = 0.2 inwards.
    state = team([(-0.155, 0.0), (0.155, 0.0)], [(-0.145, 0.0), (0.145, 0.0)])
    generator = np.random.default_rng(0)
    np.testing.assert_allclose(oracles.assigned(state, generator), [[(0.2, 0.0), (-0.2, 0.0)]], atol=1e-4)
    # 0.01 of the room of 0.32 is missing: 75 · 0.01 = 0.75 outwards.
    np.testing.assert_allclose(oracles._repulsion(state), [[(-0.75, 0.0), (0.75, 0.0)]], atol=1e-4)
    np.testing.assert_allclose(oracles.avoiding(state, generator), [[(-0.55, 0.0), (0.55, 0.0)]], atol=1e-4)


def test_the_push_leads_away_along_the_line_between_two_agents_and_is_limited_to_the_box():
    # Offset (0.18, 0.24), so 0.3 apart: 75 · 0.02 = 1.5 along (0.6, 0.8).
    state = team([(0.0, 0.0), (0.18, 0.24)], [(0.0, 0.0), (0.18, 0.24)])
    np.testing.assert_allclose(oracles._repulsion(state), [[(-0.9, -1.2), (0.9, 1.2)]], atol=1e-4)
    actions = oracles.avoiding(state, np.random.default_rng(0))
    np.testing.assert_allclose(actions, [[(-0.9, -1.0), (0.9, 1.0)]], atol=1e-4)


def test_what_agents_push_each_other_adds_up_to_nothing():
    state = oracles.starts(Spread(max_agents=8, max_tasks=8), TeamSize(8, 8), episodes=EPISODES, seed=0)
    pushes = oracles._repulsion(state)
    assert (np.abs(pushes).max(axis=(1, 2)) > 0).any()
    np.testing.assert_allclose(pushes.sum(axis=1), 0.0, atol=1e-4)


def test_with_room_enough_nobody_is_pushed():
    state = team([(-0.5, 0.0), (0.0, 0.0), (0.0, 0.33)], [(1.0, 0.0), (0.5, 0.5), (0.02, 0.3)])
    generator = np.random.default_rng(0)
    np.testing.assert_array_equal(oracles.avoiding(state, generator), oracles.assigned(state, generator))


def test_agents_at_the_very_same_place_push_nowhere():
    state = team([(0.1, 0.1), (0.1, 0.1)], [(0.1, 0.1), (0.5, 0.5)])
    np.testing.assert_array_equal(oracles._repulsion(state), np.zeros((1, 2, 2)))


def test_an_absent_agent_pushes_nobody():
    # Absent agents stand at the origin.
    places, landmarks = [(0.1, 0.0), (0.0, 0.0)], [(-0.5, 0.0)]
    generator = np.random.default_rng(0)
    beside_nobody = team(places, landmarks, present=[True, False])
    np.testing.assert_array_equal(oracles._repulsion(beside_nobody)[0, 0], (0.0, 0.0))
    np.testing.assert_allclose(oracles.avoiding(beside_nobody, generator)[0, 0], (-1.0, 0.0), atol=1e-6)
    # 0.22 of the room is missing beside somebody, a push of 16.5: more than the whole force.
    beside_somebody = team(places, landmarks)
    np.testing.assert_allclose(oracles.avoiding(beside_somebody, generator)[0, 0], (1.0, 0.0), atol=1e-6)


def test_keeping_clear_beats_driving_through_each_other():
    world, size = Spread(max_agents=6, max_tasks=6), TeamSize(6, 6)
    through, clear = (
        oracles.play(world, size, oracle, episodes=32, seed=7, steps=150)
        for oracle in (oracles.assigned, oracles.avoiding)
    )
    assert clear.measures["collisions"].mean() < 0.1 * through.measures["collisions"].mean()
    better = clear.returns - through.returns
    assert better.mean() > 4 * better.std() / len(better) ** 0.5
    assert clear.returns.mean() > 0.8 * through.returns.mean()


# --- the programmed team --------------------------------------------------------------------------


def rows(*means):
    return {(n, n): Anchor(mean, 1.0, 512) for n, mean in enumerate(means, start=2)}


def test_the_programmed_team_is_the_better_one_over_all_sizes_not_at_each(monkeypatch):
    # Better at one size of three, worse over them all.
    found = {("spread", "assigned"): rows(-10.0, -20.0, -30.0), ("spread", "avoiding"): rows(-1.0, -25.0, -39.0)}
    monkeypatch.setattr(kept, "_read", lambda: found)
    assert programmed_team(Spread()) == ("PD + Hungarian", found["spread", "assigned"])
    found["spread", "avoiding"] = rows(-11.0, -21.0, -20.0)
    assert programmed_team(Spread()) == ("PD + Hungarian + repulsion", found["spread", "avoiding"])


def test_the_programmed_team_is_decided_on_the_sizes_both_have(monkeypatch):
    # At the third size only one of them has played, and badly; its row is kept.
    found = {("spread", "assigned"): rows(-10.0, -20.0), ("spread", "avoiding"): rows(-9.0, -19.0, -500.0)}
    monkeypatch.setattr(kept, "_read", lambda: found)
    assert programmed_team(Spread()) == ("PD + Hungarian + repulsion", found["spread", "avoiding"])


def test_on_simple_spread_the_programmed_team_keeps_clear():
    label, found = programmed_team(Spread(max_agents=8, max_tasks=8))
    assert label == "PD + Hungarian + repulsion"
    assert found == kept.anchors(Spread(), "avoiding")
    assert found.keys() == kept.anchors(Spread(), "assigned").keys() == {(n, n) for n in range(2, 9)}
    for size, anchor in kept.anchors(Spread(), "assigned").items():
        assert anchor.mean < found[size].mean < kept.anchors(Spread(), "bound")[size].mean


def test_on_food_collection_the_programmed_team_has_every_size():
    label, found = programmed_team(Food())
    assert label in kept.PROGRAMMED_TEAMS.values()
    assert found.keys() == {(n, k) for n in range(2, 9) for k in range(2, 9)}
    assert programmed_team(Food(caution=5.0)) == (label, found)


@pytest.mark.parametrize("world", [Spread(half_width=2.0), Food(collection_reward=1.0), Xor()])
def test_there_is_no_programmed_team_beside_a_world_with_other_rules(world):
    assert programmed_team(world)[1] == {}
