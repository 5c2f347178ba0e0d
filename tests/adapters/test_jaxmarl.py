"""Every world as a JaxMARL environment, against the installed JaxMARL; `make test-extras` installs it."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("jaxmarl", reason="the extra jaxmarl brings it")

from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.environments.spaces import Box, Discrete, Space
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper, SMAXLogWrapper

from diamond_attention import Smaclite, Spread, UserError
from diamond_attention.adapters.jaxmarl_env import WorldMultiAgentEnv
from diamond_attention.worlds.registry import WORLDS
from diamond_attention.worlds.smaclite.scenario import STOP

SETTINGS = {
    "xor": {"agents": 3},
    "spread": {"agents": 3, "time_limit": 4, "discrete_actions": True},
    "food": {"agents": 2, "tasks": 3, "time_limit": 4, "discrete_actions": True},
    "dispatch": {"agents": "2:3"},
    "smaclite": {"time_limit": 4},
    "a user's own": {"agents": 3, "tasks": 2},
}
ENVS = 4
ROOT = Path(__file__).parents[2]


def test_every_world_is_tried():
    assert set(WORLDS) <= set(SETTINGS)


@pytest.fixture(scope="module", params=SETTINGS)
def env(request, beacons):
    return WorldMultiAgentEnv(
        beacons() if request.param == "a user's own" else request.param, **SETTINGS[request.param]
    )


def test_it_is_what_jaxmarl_asks_of_an_environment(env):
    """What JaxMARL's own tests ask of each of its environments, and its base class of those who write one."""
    assert isinstance(env, MultiAgentEnv)
    assert env.agents == [f"agent_{index}" for index in range(env.num_agents)]
    assert set(env.observation_spaces) == set(env.action_spaces) == set(env.agents)
    seen, state = env.reset(jax.random.PRNGKey(0))
    for name in env.agents:
        assert isinstance(env.observation_space(name), Space)
        assert env.observation_space(name).shape == seen[name].shape
        assert env.observation_space(name).contains(seen[name])
        assert isinstance(env.action_space(name), Discrete)
        assert env.get_avail_actions(state)[name].shape == (env.action_space(name).n,)
    assert seen["world_state"].shape == (env.world_state_size,)
    assert env.agent_classes == {"agent": env.agents}
    actions = {name: env.action_space(name).sample(jax.random.PRNGKey(1)) for name in env.agents}
    after, reached, rewards, done, info = env.step(jax.random.PRNGKey(2), state, actions)
    assert set(after) == {*env.agents, "world_state"}
    assert set(rewards) == set(env.agents)
    assert set(done) == {*env.agents, "__all__"}
    assert all(jnp.shape(value) == (env.num_agents,) for value in info.values())
    assert jax.tree.structure(state) == jax.tree.structure(reached)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: a.dtype == b.dtype, state, reached)))


def test_jaxmarl_s_rollouts_of_q_learning_run_it(env):
    """Its wrapper reads masks, the state of all and one reward only of environments that it takes for SMAX."""
    teams = CTRolloutManager(LogWrapper(env), batch_size=ENVS)
    seen, state = teams.batch_reset(jax.random.PRNGKey(0))
    assert seen["__all__"].shape == (ENVS, env.world_state_size)
    legal = env.game.legal(jax.tree.map(lambda x: x[0], state.env_state))
    for index, name in enumerate(env.agents):
        np.testing.assert_array_equal(teams.get_valid_actions(state.env_state)[name][0], legal[index])

    def step(state, key):
        keys = jax.random.split(key, env.num_agents + 1)
        actions = {name: teams.batch_sample(k, name) for name, k in zip(env.agents, keys[1:], strict=True)}
        _, state, rewards, done, info = teams.batch_step(keys[0], state, actions)
        return state, (rewards, done["__all__"], info["returned_episode_returns"][:, 0])

    _, (rewards, done, returns) = jax.lax.scan(step, state, jax.random.split(jax.random.PRNGKey(1), 8))
    for name in env.agents:
        np.testing.assert_array_equal(rewards["__all__"], rewards[name])
    assert done.any()
    # Returns as JaxMARL counts them, against the rewards of each episode.
    for team in range(ENVS):
        so_far = 0.0
        for step_rewards, over, counted in zip(
            rewards["__all__"][:, team], done[:, team], returns[:, team], strict=True
        ):
            so_far += float(step_rewards)
            if over:
                assert float(counted) == pytest.approx(so_far, rel=1e-5, abs=1e-5)
                so_far = 0.0


def test_xor_is_the_game_that_it_is():
    env = WorldMultiAgentEnv("xor", 2)
    _, state = env.reset(jax.random.PRNGKey(0))
    for actions, reward in (((0, 1), 1.0), ((1, 1), 0.0)):
        chosen = dict(zip(env.agents, map(jnp.int32, actions), strict=True))
        _, _, rewards, done, info = env.step(jax.random.PRNGKey(1), state, chosen)
        assert float(rewards["agent_1"]) == reward
        assert bool(done["__all__"])
        assert info["success"].tolist() == [reward, reward]
        assert info["truncated"].tolist() == [0.0, 0.0]


def test_the_clock_and_the_task_are_told_apart_and_another_episode_begins():
    env = WorldMultiAgentEnv("spread", 2, time_limit=2, discrete_actions=True)
    first, state = env.reset(jax.random.PRNGKey(0))
    right = dict.fromkeys(env.agents, jnp.int32(2))
    seen, state, _, done, info = env.step(jax.random.PRNGKey(1), state, right)
    assert not any(map(bool, done.values()))
    own_place = slice(4, 6)  # after who is there: two agents and two landmarks
    np.testing.assert_allclose(seen["agent_0"][own_place] - first["agent_0"][own_place], [0.01, 0.0], atol=1e-5)
    seen, state, _, done, info = env.step(jax.random.PRNGKey(2), state, right)
    assert all(map(bool, done.values()))
    assert info["truncated"].tolist() == [1.0, 1.0]
    assert int(state.step_of_episode) == 0
    assert np.abs(seen["agent_0"][own_place] - first["agent_0"][own_place]).max() > 0.05


def test_the_dead_are_done_before_the_battle_is():
    env = WorldMultiAgentEnv(Smaclite(map="3s_vs_5z"))
    seen, state = env.reset(jax.random.PRNGKey(0))
    stop = dict.fromkeys(env.agents, jnp.int32(STOP))
    step, gone = jax.jit(env.step_env), []
    for key in jax.random.split(jax.random.PRNGKey(1), 80):
        seen, state, _, done, info = step(key, state, stop)
        gone.append(sum(bool(done[name]) for name in env.agents))
        for name in env.agents:
            assert not done[name] or not seen[name].any()
        if done["__all__"]:
            break
    assert gone == sorted(gone)
    assert {1, 2} & set(gone)
    assert gone[-1] == 3
    assert info["battle_won"].tolist() == [0.0] * 3


def test_jaxmarl_s_record_of_battles_wraps_it():
    env = SMAXLogWrapper(WorldMultiAgentEnv("smaclite", time_limit=2))
    keys = jax.random.split(jax.random.PRNGKey(0), ENVS)
    _, state = jax.vmap(env.reset)(keys)
    stop = dict.fromkeys(env.agents, jnp.full(ENVS, STOP))
    for _ in range(2):
        _, state, _, done, info = jax.vmap(env.step)(keys, state, stop)
    assert done["__all__"].all()
    assert info["returned_won_episode"].shape == (ENVS, 5)
    assert not info["returned_won_episode"].any()
    assert (info["returned_episode_lengths"] == 2).all()


def test_vectors_are_taken_too():
    env = WorldMultiAgentEnv(Spread(), 2)
    assert isinstance(env.action_space("agent_0"), Box)
    assert env.action_space("agent_0").shape == (2,)
    _, state = env.reset(jax.random.PRNGKey(0))
    env.step(jax.random.PRNGKey(1), state, dict.fromkeys(env.agents, jnp.ones(2)))


SCRIPT = """
import jax, wandb, jaxmarl
from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario

wandb.init(project="", config={})
for env in (jaxmarl.make("MPE_simple_spread_v3"), HeuristicEnemySMAX(scenario=map_name_to_scenario("3s5z"))):
    seen, _ = env.reset(jax.random.PRNGKey(0))
    wandb.log({"agents": env.num_agents, "choices": env.action_space(env.agents[0]).n, "all": seen["agent_0"]})
"""


@pytest.mark.parametrize(("world", "rows"), [("spread", ["4,5", "4,5"]), ("smaclite", ["5,11", "8,14"])])
def test_a_script_of_jaxmarl_s_is_handed_the_world_whatever_it_asks_for(world, rows, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, ROOT / "experiments" / "jaxmarl_scripts.py", "script.py", world, "--rows", "rows.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    head, *lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert head == "second,agents,choices"
    assert [re.sub(r"\.0\b", "", line.split(",", 1)[1]) for line in lines] == rows


WRONG = {
    "no world called 'sprad'": lambda env, state: WorldMultiAgentEnv("sprad"),
    "actions are continuous, so none is illegal": lambda env, state: env.get_avail_actions(state),
    "there is no action for agent_1": lambda env, state: act(env, state, {"agent_0": jnp.zeros(2)}),
    r"the action of agent_0 has shape \(3,\); it must have shape \(2,\)": lambda env, state: act(
        env, state, dict.fromkeys(env.agents, jnp.zeros(3))
    ),
}


def act(env, state, actions):
    return env.step(jax.random.PRNGKey(1), state, actions)


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(sentence):
    env = WorldMultiAgentEnv("spread", 2)
    _, state = env.reset(jax.random.PRNGKey(0))
    with pytest.raises(UserError, match=sentence) as refused:
        WRONG[sentence](env, state)
    assert str(refused.value).count("\n") == 0
