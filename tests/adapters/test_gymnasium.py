"""A team as one agent of Gymnasium, alone and many at once."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from diamond_attention import Spread, UserError
from diamond_attention.adapters.gymnasium_env import TeamEnv, TeamVectorEnv
from diamond_attention.worlds.registry import WORLDS

SETTINGS = {
    "xor": {"agents": 2, "tasks": 3},
    "spread": {"agents": 2, "time_limit": 4},
    "food": {"agents": 2, "tasks": 3, "time_limit": 4, "discrete_actions": True},
    "dispatch": {"agents": "2:3"},
    "smaclite": {"time_limit": 6},
    "a user's own": {"agents": 3, "tasks": 2},
}


def arguments(name, beacons):
    return {"world": beacons() if name == "a user's own" else name, **SETTINGS[name]}


def test_every_world_is_tried():
    assert set(WORLDS) <= set(SETTINGS)


@pytest.mark.filterwarnings("ignore::UserWarning")  # that numbers without bounds are unusual
@pytest.mark.parametrize("name", SETTINGS)
def test_gymnasium_s_own_checks_pass(name, beacons):
    check_env(TeamEnv(**arguments(name, beacons)), skip_render_check=True)


@pytest.mark.parametrize("name", ["xor", "spread", "dispatch", "a user's own"])
def test_many_teams_are_what_gymnasium_makes_of_single_ones(name, beacons):
    """Step by step the same as Gymnasium's own vector environment over `TeamEnv`, over several episodes."""
    said = arguments(name, beacons)
    ours = TeamVectorEnv(**said, num_envs=3)
    theirs = SyncVectorEnv([lambda: TeamEnv(**said)] * 3, autoreset_mode=ours.metadata["autoreset_mode"])
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    same(ours.reset(seed=5), theirs.reset(seed=5))
    ours.action_space.seed(1)
    ends = 0
    for _ in range(12):
        actions = ours.action_space.sample()
        here, there = ours.step(actions), theirs.step(actions)
        same(here, there)
        ends += int((here[2] | here[3]).sum())
    assert ends >= 3  # or nothing began anew
    same(ours.reset(), theirs.reset())


def same(ours, theirs):
    """What is told may have another float type there, where it goes through Python's."""
    *ours, told = ours
    *theirs, told_there = theirs
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert one.dtype == other.dtype
    assert set(told) == set(told_there)
    for name, value in told.items():
        np.testing.assert_allclose(value, told_there[name], atol=1e-5)


def test_an_episode_s_last_observation_is_returned_and_the_next_step_begins_another():
    envs = TeamVectorEnv("spread", 1, num_envs=2, time_limit=2)
    first, _ = envs.reset(seed=0)
    still = np.zeros((2, 1, 2), np.float32)
    envs.step(still)
    last, _, terminated, truncated, _ = envs.step(still)
    assert truncated.all()
    assert not terminated.any()
    np.testing.assert_allclose(last[..., 2:4], first[..., 2:4], atol=1e-6)  # it stood still: one place, to the end
    begun, rewards, terminated, truncated, _ = envs.step(still + 1)
    assert not (terminated | truncated).any()
    assert not rewards.any()
    assert not np.allclose(begun, last)
    again = TeamEnv("spread", 1, time_limit=2)
    again.reset(seed=1)  # the second team's seed
    np.testing.assert_array_equal(again.reset()[0], begun[1])


def test_gymnasium_s_statistics_of_episodes():
    """Of XOR, where an episode is one step: everybody alike never scores, all different always does."""
    envs = RecordEpisodeStatistics(TeamVectorEnv("xor", 2, num_envs=2))
    envs.reset(seed=0)
    *_, infos = envs.step(np.array([[0, 0], [0, 1]]))
    assert infos["episode"]["r"].tolist() == [0, 1]
    assert infos["episode"]["l"].tolist() == [1, 1]
    assert infos["success"].tolist() == [0, 1]


def test_worlds_are_made_by_name():
    env = gymnasium.make("diamond/dispatch-v0", agents=3)
    assert env.observation_space.shape[0] == 3
    assert env.action_space.nvec.tolist() == [4, 4, 4]
    envs = gymnasium.make_vec("diamond/xor-v0", num_envs=5, vectorization_mode="vector_entry_point", agents=2)
    assert isinstance(envs.unwrapped, TeamVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.reset(seed=0)[0].shape[:2] == (5, 2)
    assert {f"diamond/{name}-v0" for name in WORLDS} <= set(gymnasium.registry)


def test_masks_say_what_is_legal():
    envs = TeamVectorEnv("dispatch", "2:3", num_envs=8)
    _, told = envs.reset(seed=0)
    assert told["action_mask"].shape == (8, 3, 4)
    assert set(told["action_mask"].sum(axis=-1).ravel().tolist()) == {3, 4}  # staying, and two or three jobs
    assert data_equivalence(told["_action_mask"], np.ones(8, bool))


WRONG = {
    "no world called 'sprad'": lambda: TeamEnv("sprad"),
    "num_envs is 0; it must lie": lambda: TeamVectorEnv("xor", num_envs=0),
    "there is no running episode; call reset": lambda: TeamVectorEnv("xor").step([[0, 1]]),
    "there is no running episode": lambda: after_the_end(),
    "the teams' actions is .* of shape .1, 2.; give numbers of shape .3, 2., from 0 to 1": lambda: act([[0, 1]]),
    "the teams' actions contains 2; give": lambda: act([[0, 1], [0, 1], [0, 2]]),
    "2 seeds were given for 3 teams": lambda: TeamVectorEnv("xor", num_envs=3).reset(seed=[1, 2]),
    "seed is -1; it must lie": lambda: TeamVectorEnv("xor", num_envs=2).reset(seed=[1, -1]),
    "the team's action is .* of shape .2,.; give numbers of shape .2, 2., all finite": lambda: go([0.0, 0.0]),
}


def act(actions):
    envs = TeamVectorEnv("xor", num_envs=3)
    envs.reset(seed=0)
    envs.step(actions)


def go(actions):
    env = TeamEnv(Spread(), 2)
    env.reset(seed=0)
    env.step(actions)


def after_the_end():
    env = TeamEnv("xor")
    env.reset(seed=0)
    env.step([0, 1])
    env.step([0, 1])


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(sentence):
    with pytest.raises(UserError, match=sentence) as refused:
        WRONG[sentence]()
    assert str(refused.value).count("\n") == 0
