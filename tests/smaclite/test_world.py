"""SMAClite through the contract of worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOOP, STOP
from diamond_attention.worlds.smaclite.world import UNIT_TYPE_NAMES, Smaclite

PADDED = Smaclite("2s3z", max_agents=8, max_tasks=9)
RANKS = jnp.arange(8, dtype=jnp.float32)


def test_views_show_who_is_near_and_alive():
    state = PADDED.reset(jax.random.key(0), PADDED.size)
    state.enemies["position"] = state.enemies["position"].at[0].set(jnp.array([7.875, 17.45]))
    state.agents["alive"] = state.agents["alive"].at[4].set(False)
    views = PADDED.views(state, RANKS)
    assert views.agents.shape[:2] == (8, 8)
    assert views.tasks.shape[:2] == (8, 9)
    assert views.legal_actions.shape == (8, FIRST_TARGET + 9)
    np.testing.assert_array_equal(views.agent_present[0], [True] * 4 + [False] * 4)
    np.testing.assert_array_equal(views.task_present[0], [True] + [False] * 8)
    # Enemy 0 from agent 0: two away to the north, unhurt, a stalker, and a legal target.
    types = [name == "stalker" for name in UNIT_TYPE_NAMES]
    np.testing.assert_allclose(views.tasks[0, 0], [2 / 9, 0, 2 / 9, 1, 1, *types, 1], atol=1e-6)
    # The dead and the padding see nobody, and can do nothing but nothing.
    for absent in (4, 7):
        assert not np.asarray(views.agent_present[absent]).any()
        assert not np.asarray(views.task_present[absent]).any()
        np.testing.assert_array_equal(np.flatnonzero(views.legal_actions[absent]), [NOOP])
    team = PADDED.team_view(state)
    assert np.asarray(team.agent_present).sum() == 4
    assert np.asarray(team.task_present).sum() == 5


def test_a_step_moves_the_battle_and_leaves_the_padding_alone():
    key = jax.random.key(5)
    state = PADDED.reset(key, PADDED.size)
    actions = jnp.array([STOP] * 5 + [NOOP] * 3)
    transition = PADDED.step(state, actions, key)
    # The enemies come closer, those who were told to stop stand, the padding stays what it is.
    way = np.asarray(transition.state.enemies["position"] - state.enemies["position"])
    assert (way[:5, 0] < -1).all()
    assert not way[5:].any()
    np.testing.assert_array_equal(transition.state.agents["position"], state.agents["position"])
    np.testing.assert_array_equal(transition.state.last_actions[:5], [STOP] * 5)
    assert not np.asarray(transition.state.agents["alive"][5:]).any()
    assert transition.measures["battle_won"] == 0.0
    assert not transition.terminated


def test_a_healer_s_tasks_are_its_patients():
    world = Smaclite("MMM2", max_agents=10, max_tasks=12)
    views = world.views(world.reset(jax.random.key(0), world.size), jnp.zeros(10, jnp.float32))
    # The medivac is agent 0: it sees its nine comrades, never itself; the others see no enemy yet.
    np.testing.assert_array_equal(views.task_present[0], [False] + [True] * 9 + [False] * 2)
    np.testing.assert_array_equal(views.legal_actions[0, FIRST_TARGET:], views.task_present[0])
    assert not np.asarray(views.task_present[1:]).any()


def test_sizes_are_the_map_s():
    with pytest.raises(UserError, match="always played with 5 agents and 5 tasks"):
        PADDED.check_size(TeamSize(4, 5))
    with pytest.raises(UserError, match="needs room for 8 agents"):
        Smaclite("3s5z").check_size(TeamSize(8, 8))
    PADDED.check_size(PADDED.size)
