"""Every world as a PettingZoo parallel environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils import parallel_to_aec

from diamond_attention import Smaclite, Spread, TeamSize, UserError, Xor
from diamond_attention.adapters.pettingzoo_env import WorldParallelEnv
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.registry import WORLDS
from diamond_attention.worlds.smaclite.scenario import NOOP, STOP

pytestmark = pytest.mark.filterwarnings("ignore:No agents present but not all")  # of teams of several sizes

SETTINGS = {
    "xor": {"agents": 3},
    "spread": {"agents": 3, "time_limit": 15},
    "food": {"agents": 2, "tasks": 3, "time_limit": 15},
    "dispatch": {"agents": "2:3"},
    "smaclite": {"time_limit": 40},
    "a user's own": {"agents": 3, "tasks": 2},
}


def test_every_world_is_tried():
    assert set(WORLDS) <= set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_pettingzoo_s_own_tests_pass(name, beacons):
    def make():
        world = beacons() if name == "a user's own" else name
        return WorldParallelEnv(world, **SETTINGS[name])

    parallel_api_test(make(), num_cycles=60)
    parallel_seed_test(make, num_cycles=20)
    seed_test(lambda: parallel_to_aec(make()), num_cycles=20)


@pytest.mark.parametrize("name", ["food", "dispatch"])
def test_pettingzoo_s_own_tests_pass_on_views(name):
    def make():
        return WorldParallelEnv(name, **SETTINGS[name], observation="view", discrete_actions=True)

    parallel_api_test(make(), num_cycles=30)
    parallel_seed_test(make, num_cycles=20)


@pytest.mark.parametrize("observation", ["flat", "view"])
def test_what_is_seen_lies_in_its_space(observation):
    for world, sizes in ((Dispatch(), "2:3"), (Spread(), 2)):
        env = WorldParallelEnv(world, sizes, observation=observation)
        for episode in range(4):
            seen, told = env.reset(seed=episode)
            for name in env.agents:
                assert env.observation_space(name).contains(seen[name])
                mask = told[name].get("action_mask")
                assert (mask is not None) == (world.name == "dispatch")
                assert mask is None or env.action_space(name).contains(env.action_space(name).sample(mask))
            assert env.state_space.contains(env.state())


def test_xor_is_the_game_that_it_is():
    env = WorldParallelEnv("xor", 3)
    env.reset(seed=0)
    everybody = env.agents
    assert everybody == ["agent_0", "agent_1", "agent_2"]
    _, rewards, terminated, truncated, told = env.step({"agent_0": 2, "agent_1": 0, "agent_2": 1})
    assert rewards == dict.fromkeys(everybody, 1.0)
    assert terminated == dict.fromkeys(everybody, True)
    assert truncated == dict.fromkeys(everybody, False)
    assert told["agent_1"]["success"] == 1.0
    assert env.agents == []
    env.reset()
    _, rewards, *_ = env.step({"agent_0": 2, "agent_1": 2, "agent_2": 1})
    assert rewards == dict.fromkeys(everybody, 0.0)


def test_an_agent_of_simple_spread_sees_its_view_and_goes_where_it_is_told():
    world = Spread(max_agents=2, max_tasks=2)
    env = WorldParallelEnv(world)
    rows = WorldParallelEnv(world, observation="view")
    seen, _ = env.reset(seed=3)
    viewed, _ = rows.reset(seed=3)
    for name in env.agents:
        view = viewed[name]
        there = np.concatenate([view["agent_present"], view["task_present"]])
        expected = np.concatenate([there, view["agents"].ravel(), view["tasks"].ravel()])
        np.testing.assert_array_equal(seen[name], expected)
    # Row 0 is oneself, columns 0 and 1 the place; without forces from elsewhere only one's action moves one.
    before = viewed["agent_0"]["agents"][0, :2]
    after, *_ = rows.step({"agent_0": np.array([1.0, 0.0]), "agent_1": np.zeros(2)})
    moved = after["agent_0"]["agents"][0, :2] - before
    assert moved == pytest.approx([0.01, 0.0], abs=1e-5)
    # And so does the second direction of those to choose from: nothing, −x, x, −y, y.
    choosing = WorldParallelEnv(world, observation="view", discrete_actions=True)
    assert choosing.action_space("agent_0").n == 5
    choosing.reset(seed=3)
    chosen, *_ = choosing.step({"agent_0": 2, "agent_1": 0})
    np.testing.assert_array_equal(chosen["agent_0"]["agents"], after["agent_0"]["agents"])


def test_rewards_and_measures_are_the_world_s():
    """The first landmark's distance worked by hand from what the first agent sees."""
    env = WorldParallelEnv("spread", 1, observation="view", time_limit=3)
    env.reset(seed=1)
    for step in range(3):
        seen, rewards, terminated, truncated, told = env.step({"agent_0": np.array([0.3, -1.0], np.float32)})
        distance = np.linalg.norm(seen["agent_0"]["tasks"][0])
        assert rewards["agent_0"] == pytest.approx(-distance, rel=1e-5)
        assert told["agent_0"]["distance"] == pytest.approx(distance, rel=1e-5)
        assert not terminated["agent_0"]
        assert truncated["agent_0"] == (step == 2)
    assert env.agents == []


def test_ranks_are_in_views_and_change_every_step():
    env = WorldParallelEnv("spread", 3, observation="view", time_limit=5)
    seen, _ = env.reset(seed=0)
    heard = [seen["agent_0"]["ranks"]]
    for _ in range(4):
        seen, *_ = env.step({name: np.zeros(2, np.float32) for name in env.agents})
        heard.append(seen["agent_0"]["ranks"])
        # All hear the same numbers, their own first.
        assert sorted(seen["agent_1"]["ranks"]) == sorted(seen["agent_0"]["ranks"])
        assert seen["agent_1"]["ranks"][0] == seen["agent_0"]["ranks"][1]
    assert len({tuple(ranks) for ranks in heard}) == 5


def test_a_seed_decides_its_episodes_and_no_two_are_the_same():
    def sequence(seed):
        env = WorldParallelEnv("spread", 2)
        return [tuple(env.reset(seed=seed)[0]["agent_0"])] + [tuple(env.reset()[0]["agent_0"]) for _ in range(2)]

    assert sequence(7) == sequence(7)
    assert len({*sequence(7), *sequence(8)}) == 6
    without = [WorldParallelEnv("spread", 2).reset()[0]["agent_0"] for _ in range(2)]
    assert not np.array_equal(*without)


def test_teams_of_several_sizes():
    env = WorldParallelEnv("dispatch", "2:4")
    assert len(env.possible_agents) == 4
    numbers = set()
    for seed in range(12):
        seen, _ = env.reset(seed=seed)
        numbers.add(len(env.agents))
        assert set(seen) == set(env.agents) == set(env.possible_agents[: len(env.agents)])
        env.step(dict.fromkeys(env.agents, 0))
    assert numbers == {2, 3, 4}


def test_the_dead_leave_and_the_time_limit_cuts():
    env = WorldParallelEnv(Smaclite(map="3s_vs_5z"), time_limit=80)
    env.reset(seed=0)
    numbers = []
    while env.agents:
        actions = dict.fromkeys(env.agents, STOP)
        seen, rewards, terminated, truncated, told = env.step(actions)
        assert set(seen) == set(rewards) == set(terminated) == set(truncated) == set(told) == set(actions)
        assert all(not seen[name].any() for name in actions if name not in env.agents)  # nothing is seen by the dead
        numbers.append(len(env.agents))
    # Three stalkers that stand still fall one after the other.
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) < 80
    assert all(terminated.values())
    assert {name: one["battle_won"] for name, one in told.items()} == dict.fromkeys(told, 0.0)
    short = WorldParallelEnv("smaclite", time_limit=2)
    short.reset(seed=0)
    short.step(dict.fromkeys(short.agents, STOP))
    *_, terminated, truncated, _ = short.step(dict.fromkeys(short.agents, STOP))
    assert all(truncated.values())
    assert not any(terminated.values())
    assert short.agents == []


def test_illegal_actions_are_taken_as_the_world_takes_them():
    """Here everybody stands still; nothing is in reach of anybody at first."""
    ends = []
    for action in (STOP, NOOP, 10):
        env = WorldParallelEnv("smaclite")
        _, told = env.reset(seed=0)
        assert told["agent_0"]["action_mask"][action] == (action == STOP)
        env.step(dict.fromkeys(env.agents, action))
        ends.append(env.state())
    # The last actions are not in the team view, so all else can be compared.
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_an_episode_is_the_world_s_own_episode():
    """Played beside the world itself, with the same keys."""
    world = Xor(max_agents=2, max_tasks=3)
    env = WorldParallelEnv(world, 2, 3)
    seen, _ = env.reset(seed=0)
    view = jax.tree.map(lambda x: x[0], world.views(world.reset(jax.random.key(0), TeamSize(2, 3)), jnp.zeros(2)))
    # Peers are left out where there is nothing to see of them.
    expected = np.concatenate([[1.0], np.ones(3), view.agents[0], view.tasks.ravel()])
    np.testing.assert_allclose(seen["agent_0"], expected)


WRONG = {
    "no world called 'sprad'; choose from xor, spread": lambda: WorldParallelEnv("sprad"),
    "the world is 3; give the name of one": lambda: WorldParallelEnv(3),
    "give the name of one, or one itself, such as Spread": lambda: WorldParallelEnv(Spread),
    "agents is 'many'; write a number": lambda: WorldParallelEnv("spread", "many"),
    "agents is 2 and tasks is 3: Simple Spread has one landmark": lambda: WorldParallelEnv("spread", 2, 3),
    "the map decides": lambda: WorldParallelEnv("smaclite", 4),
    "time_limit is 0; it must lie": lambda: WorldParallelEnv("spread", time_limit=0),
    "observation is 'pixels'; it must be flat or view": lambda: WorldParallelEnv("spread", observation="pixels"),
    "seed is -1; it must lie": lambda: WorldParallelEnv("spread").reset(seed=-1),
    "there is no running episode; call reset": lambda: WorldParallelEnv("spread").step({}),
    "actions were given for .'agent_0'., but agent_0, agent_1 are there": lambda: begun().step({"agent_0": [0, 0]}),
    "the action of agent_1 is .0, 0, 0. of shape .3,.; give numbers of shape .2,., all finite": lambda: act(
        [0, 0, 0]
    ),
    "the action of agent_1 contains nan; give numbers": lambda: act([0.0, np.nan]),
    "the action of agent_1 is 'up'": lambda: act("up"),
    "the action of agent_1 is ..1., 2.; give numbers of shape .2,.": lambda: act([[1], 2]),
    "the action of agent_1 contains 5; give a number, from 0 to 4": lambda: act(5, True),
    "the action of agent_1 is 1.5; give a number, from 0 to 4": lambda: act(1.5, True),
    "the action of agent_1 is .1, 2. of shape .2,.; give a number, from 0 to 4": lambda: act([1, 2], True),
}


def begun(discrete=False):
    env = WorldParallelEnv("spread", 2, discrete_actions=discrete)
    env.reset(seed=0)
    return env


def act(action, discrete=False):
    begun(discrete).step({"agent_0": 0 if discrete else [0.0, 0.0], "agent_1": action})


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(sentence):
    with pytest.raises(UserError, match=sentence) as refused:
        WRONG[sentence]()
    assert str(refused.value).count("\n") == 0
    assert str(refused.value).endswith(".")
