"""Whole steps, as users call them: legal actions, observations, endings, precision, batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.worlds.smaclite import battle, scripted
from diamond_attention.worlds.smaclite.scenario import EAST, FIRST_TARGET, NOOP, NORTH, SOUTH, STOP, WEST, scenario_of

SCENARIO = scenario_of("2s3z")
START = battle.start(SCENARIO)
BATCH = 8


@jax.jit
def look(state):
    legal = battle.legal_actions(SCENARIO, state)
    return legal, battle.observations(SCENARIO, state, legal), battle.state_vector(SCENARIO, state)


@jax.jit
def step(state, actions, key):
    """A batch of battles."""

    def one(state, actions, key):
        return battle.step(SCENARIO, state, actions, battle.draw_turn_orders(SCENARIO, key))

    return jax.vmap(one)(state, actions, jax.random.split(key, BATCH))


@jax.jit
def batch_legal(state):
    return jax.vmap(lambda state: battle.legal_actions(SCENARIO, state))(state)


def batch(state):
    return jax.tree.map(lambda values: jnp.broadcast_to(values, (BATCH, *values.shape)), state)


def test_what_is_legal():
    position = np.asarray(SCENARIO.start).copy()
    position[0] = (10.0, 22.5)  # the lane ends at y = 24
    position[1] = (10.0, 23.5)
    position[2] = (-0.5, 16.0)
    position[5] = (10.0, 17.6)
    alive = np.ones(10, bool)
    alive[3] = False
    legal, observation, _ = look(START._replace(position=jnp.asarray(position), alive=jnp.asarray(alive)))
    assert legal[0, [STOP, NORTH, SOUTH, EAST, WEST]].all()
    assert not legal[1, NORTH]
    # Off the map nothing but the way back is legal.
    np.testing.assert_array_equal(legal[2, [NORTH, SOUTH, EAST, WEST]], [False, False, True, False])
    np.testing.assert_array_equal(np.flatnonzero(legal[3]), [NOOP])
    assert legal[0, FIRST_TARGET]
    assert legal[1, FIRST_TARGET]  # 5.9 away
    assert not legal[4, FIRST_TARGET + 1]
    assert not np.asarray(observation[3]).any()
    # Enemy 0 as agent 0 sees it: targetable, distance, way, hit points, shield, stalker.
    np.testing.assert_allclose(observation[0, 4:12], [1, 4.9 / 9, 0, -4.9 / 9, 1, 1, 1, 0], atol=1e-6)


def test_the_state_vector_knows_last_actions_and_cooldowns():
    _, _, before = look(START)
    assert not np.asarray(before[-55:]).any()
    state = START._replace(cooldown=START.cooldown.at[0].set(0.67), last_actions=jnp.array([1, 2, 3, 4, 0]))
    _, _, after = look(state)
    assert after[1] == pytest.approx(0.5)
    np.testing.assert_array_equal(np.flatnonzero(after[-55:]), [1, 13, 25, 37, 44])


def test_moves_go_as_far_as_half_a_second_allows_and_illegal_actions_stand_still():
    actions = np.tile([[EAST, FIRST_TARGET, STOP, NORTH, NOOP]], (BATCH, 1)).astype(np.int32)
    outcome = step(batch(START), actions, jax.random.key(0))
    moved = np.asarray(outcome.state.position - START.position)[0]
    # The stalker would cover 8 * 4.13 / 16 if nobody stood in its way; the last zealot is free to go north.
    np.testing.assert_allclose(moved[3], (0.0, 8 * 3.15 / 16), atol=1e-4)
    assert not moved[[1, 2, 4]].any()
    np.testing.assert_array_equal(outcome.state.last_actions[0], [EAST, STOP, STOP, NORTH, STOP])
    # Enemies come.
    assert (moved[5:, 0] < -1).all()
    assert not np.asarray(outcome.done).any()


def test_endings_and_the_reward_of_a_clean_win():
    enemies = SCENARIO.enemy_ids
    alone = START._replace(
        alive=START.alive.at[enemies[1:]].set(False),
        hp=START.hp.at[enemies].set(1.0),
        shield=START.shield.at[enemies].set(0.0),
        shield_timer=START.shield_timer.at[enemies].set(10.0),
        position=START.position.at[enemies[0]].set(jnp.array([10.0, 18.0])),
    )
    actions = np.full((BATCH, 5), FIRST_TARGET, np.int32)
    outcome = step(batch(alone), actions, jax.random.key(1))
    assert np.asarray(outcome.won).all()
    assert np.asarray(outcome.done).all()
    np.testing.assert_allclose(outcome.reward, (1.0 + 10.0 + 200.0) * 20 / 1020, rtol=1e-6)
    nobody = START._replace(alive=START.alive.at[SCENARIO.ally_ids].set(False))
    outcome = step(batch(nobody), np.zeros((BATCH, 5), np.int32), jax.random.key(1))
    assert np.asarray(outcome.done).all()
    assert not np.asarray(outcome.won).any()


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_an_ending_is_the_same_in_numpy_and_in_jax(kind):
    """Alive or not: agents, enemies; then reward, over, won. Who falls together with the last enemy has won."""
    known = {(1, 1): (7.0, False, False), (1, 0): (207.0, True, True), (0, 1): (7.0, True, False)}
    known[0, 0] = (207.0, True, True)
    for (agents, enemies), expected in known.items():
        alive = np.zeros(SCENARIO.number_of_units, bool)
        alive[SCENARIO.ally_ids[1]], alive[SCENARIO.enemy_ids[2]] = agents, enemies
        assert battle.ending(SCENARIO, kind(alive), 7.0) == expected


def test_only_what_is_allowed_is_chosen_and_all_of_it():
    allowed = jnp.array([[True, False, True], [False, True, False], [False, False, False]])
    chosen = jax.vmap(lambda key: scripted.choose_at_random(key, allowed))(jax.random.split(jax.random.key(0), 3000))
    assert chosen.dtype == jnp.int32
    shares = np.stack([np.bincount(column, minlength=3) / 3000 for column in np.asarray(chosen).T])
    # Half and half, within four standard errors; the only one; the first where nothing is allowed.
    np.testing.assert_allclose(shares[0], [0.5, 0, 0.5], atol=4 * 0.5 / np.sqrt(3000))
    np.testing.assert_array_equal(shares[1:], [[0, 1, 0], [1, 0, 0]])


def test_random_battles_stay_finite_in_float32_and_differ_by_their_keys():
    state = batch(START)
    for number in range(30):
        action_key, step_key = jax.random.split(jax.random.key(number))
        legal = batch_legal(state)
        actions = scripted.choose_at_random(action_key, legal)
        assert np.asarray(jnp.take_along_axis(legal, actions[..., None], axis=-1)).all()
        outcome = step(state, actions, step_key)
        state = outcome.state
    assert all(np.isfinite(values).all() for values in jax.tree.leaves(state))
    assert state.hp.dtype == jnp.float32
    assert not np.asarray(state.lines_dropped).any()
    assert len(np.unique(np.asarray(state.position)[:, 0, 0])) == BATCH


def test_starts_differ_only_with_jitter():
    np.testing.assert_array_equal(battle.start(SCENARIO, jax.random.key(0)).position, SCENARIO.start)
    moved = battle.start(SCENARIO, jax.random.key(0), jitter=0.25).position - SCENARIO.start
    assert 0.1 < np.abs(moved).max() <= 0.25
    with pytest.raises(ValueError, match="key"):
        battle.start(SCENARIO, jitter=0.25)


@pytest.mark.parametrize("name", ["2c_vs_64zg", "corridor", "2s3z"])
def test_nobody_starts_inside_a_wall(name):
    scenario = scenario_of(name)
    places = jax.vmap(lambda key: battle.start(scenario, key, jitter=2.0).position)(
        jax.random.split(jax.random.key(5), 64)
    )
    cells = np.floor(np.asarray(places)).astype(int)
    assert cells.min() >= 0
    assert cells.max() < len(scenario.blocked)
    assert not scenario.blocked[cells[..., 0], cells[..., 1]].any()
    assert (np.asarray(places) != scenario.start).any(axis=(0, 2)).all()  # each of them is moved in some battle


def test_turn_orders_are_permutations():
    orders = battle.draw_turn_orders(SCENARIO, jax.random.key(3))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(10), (8, 1)))
    assert len({tuple(row) for row in np.asarray(orders).tolist()}) > 1
