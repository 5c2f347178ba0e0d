"""SMAClite through the original's Gymnasium interface: as code written for it expects it."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite.gymnasium_env import SmacliteEnv
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOOP, STOP

TRACES = Path(__file__).parent / "traces"


@pytest.mark.parametrize("name", ["2s3z_09_inrange_hold_eps", "MMM2_05_lowhp_eps"])
def test_the_original_s_seed_and_actions_give_the_original_s_episode(name):
    """Played freely, to its end, from the seed alone."""
    with np.load(TRACES / f"{name}.npz") as stored:
        trace = dict(stored)
    meta = json.loads(str(trace["meta"]))
    env = gymnasium.make(f"smaclite/{meta['map']}-v0", seed=meta["env_seed"])
    observations, info = env.reset()
    assert info == {"battle_won": False}
    for step in range(len(trace["actions"])):
        np.testing.assert_allclose(observations, trace["obs"][step], atol=1e-4)
        np.testing.assert_array_equal(env.unwrapped.get_avail_actions(), trace["avail"][step])
        np.testing.assert_allclose(env.unwrapped.get_state(), trace["state"][step], atol=1e-4)
        observations, reward, done, truncated, info = env.step(trace["actions"][step].tolist())
        assert reward == pytest.approx(trace["reward"][step], abs=1e-6)
        assert (done, truncated, info["battle_won"]) == (bool(trace["done"][step]), False, bool(trace["won"][step]))
    assert trace["reward"].sum() > 1  # something did happen


def test_it_looks_like_the_original():
    env = TimeLimit(gymnasium.make("smaclite/2s3z-v0", use_cpp_rvo2=True), max_episode_steps=3)
    inner = env.unwrapped
    assert (inner.n_agents, inner.n_enemies, inner.n_actions) == (5, 5, 11)
    assert (inner.obs_size, inner.state_size) == (80, 120)
    assert max(space.n for space in env.action_space) == 11
    observations, _ = env.reset(seed=3)
    assert isinstance(observations, tuple)
    assert [row.shape for row in inner.get_obs()] == [(80,)] * 5
    for _ in range(3):
        legal = inner.get_avail_actions()
        _, _, done, truncated, _ = env.step([int(np.flatnonzero(row)[0]) for row in legal])
    assert truncated
    assert not done
    assert {f"smaclite/{name}-v0" for name in MAPS} <= set(gymnasium.registry)


def test_an_illegal_action_names_the_agent_and_the_action():
    env = SmacliteEnv("2s3z")
    env.reset(seed=0)
    with pytest.raises(UserError, match="agent 2 chose action 6, which is not legal now; legal are 1, 2, 3, 4, 5"):
        env.step([STOP, STOP, 6, STOP, STOP])
    with pytest.raises(UserError, match="agent 0 chose action 99"):
        env.step([99, STOP, STOP, STOP, STOP])
    with pytest.raises(UserError, match="agent 4 chose action 0"):
        env.step([STOP, STOP, STOP, STOP, NOOP])
    with pytest.raises(UserError, match="4 actions were given for the 5 agents"):
        env.step([STOP] * 4)
    with pytest.raises(UserError, match="8m"):
        SmacliteEnv("8m")
    with pytest.raises(UserError, match="render_mode is 'human'"):
        SmacliteEnv("2s3z", render_mode="human")


def test_one_seed_gives_one_battle_and_another_seed_another():
    """Everybody shoots at the last enemy in range. The seed decides whose turn is first, which matters seldom."""

    def play(seed):
        env = SmacliteEnv("2s3z")
        env.reset(seed=seed)
        states = []
        for _ in range(30):
            legal = [np.flatnonzero(row) for row in env.get_avail_actions()]
            env.step([int(each[-1] if each[-1] >= FIRST_TARGET else each[0]) for each in legal])
            states.append(env.get_state())
        return states

    first, again, other = play(5), play(5), play(7)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_frames_without_a_display():
    env = gymnasium.make("smaclite/3s_vs_5z-v0", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step([STOP] * 3)
    after = env.render()
    assert before.shape == after.shape
    assert before.shape[2] == 3
    assert before.dtype == np.uint8
    assert (before != after).any()


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_s_own_checks_pass():
    """Gymnasium's checker samples actions blindly, which here are illegal; so they are made legal first."""

    class Legal(gymnasium.ActionWrapper):
        def action(self, actions):
            legal = self.unwrapped.get_avail_actions()
            return [a if row[a] else int(np.flatnonzero(row)[0]) for a, row in zip(actions, legal, strict=True)]

    check_env(Legal(SmacliteEnv("2s3z")), skip_render_check=True)
