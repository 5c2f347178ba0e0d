"""Every world as a JaxMARL environment, against the installed JaxMARL; `make test-extras` installs it."""

import csv
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
from diamond_attention.worlds.smaclite.scenario import BEST_RETURN, FIRST_TARGET, STOP, scenario_of

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


LAST_STEPS = {
    "the last enemy falls": (1, 1, 200.0, True),
    "time is up as an enemy falls, another stands": (2, 1, 0.0, False),
    # JaxMARL knows a win by a last reward of at least one.
    "time is up as four enemies fall, another stands": (5, 4, 0.0, True),
}
"""Of each: enemies that stand before, enemies that fall, what a win earns, whether JaxMARL calls it one."""


@pytest.mark.parametrize("ending", LAST_STEPS)
def test_a_won_battle_is_counted_and_the_measure_knows_better_than_the_reward(ending):
    standing, fall, bonus, called_won = LAST_STEPS[ending]
    env = SMAXLogWrapper(WorldMultiAgentEnv("smaclite", time_limit=1))
    _, state = env.reset(jax.random.PRNGKey(0))
    world = state.env_state.world
    places = world.agents["position"]
    weak = jnp.arange(5) < fall
    enemies = world.enemies | {
        "alive": jnp.arange(5) < standing,
        "position": jnp.where(weak[:, None], places + jnp.array([1.0, 0.0]), world.enemies["position"]),
        "hp": jnp.where(weak, 5.0, world.enemies["hp"]),
        "shield": jnp.where(weak, 0.0, world.enemies["shield"]),
    }
    state = state.replace(env_state=state.env_state._replace(world=world._replace(enemies=enemies)))
    legal = env.get_avail_actions(state.env_state)
    actions = {
        name: jnp.int32(FIRST_TARGET + index if index < fall else STOP) for index, name in enumerate(env.agents)
    }
    assert all(legal[name][actions[name]] for name in env.agents)
    _, _, rewards, done, info = env.step(jax.random.PRNGKey(1), state, actions)
    assert done["__all__"]
    # Five hit points and ten for the kill, of each, in the scale of the game; shields come back by a little.
    earned = (15 * fall + bonus) * BEST_RETURN / scenario_of("2s3z").largest_return
    np.testing.assert_allclose(rewards["agent_0"], earned, rtol=0.01)
    np.testing.assert_allclose(info["returned_episode_returns"], np.full(5, earned), rtol=0.01)
    assert info["returned_won_episode"].tolist() == [float(called_won)] * 5
    assert info["battle_won"].tolist() == [float(bonus > 0)] * 5


def test_vectors_are_taken_too():
    env = WorldMultiAgentEnv(Spread(), 2)
    assert isinstance(env.action_space("agent_0"), Box)
    assert env.action_space("agent_0").shape == (2,)
    _, state = env.reset(jax.random.PRNGKey(0))
    env.step(jax.random.PRNGKey(1), state, dict.fromkeys(env.agents, jnp.ones(2)))


SCRIPT = """
import sys

import jax
import jax.numpy as jnp
import wandb
from jaxmarl import make
from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario
from jaxmarl.wrappers.baselines import MPELogWrapper, SMAXLogWrapper

config = {"NUM_SEEDS": 3, "NUM_ENVS": 2, "NUM_STEPS": 10, "TOTAL_TIMESTEPS": 100.0}
# What Q-learning asks before it reports.
assert "WANDB_MODE=online" in sys.argv
wandb.init(project="", config=config, mode="online")
if sys.argv[-1] == "mpe":
    env = MPELogWrapper(make("MPE_simple_spread_v3"))
else:
    env = SMAXLogWrapper(HeuristicEnemySMAX(scenario=map_name_to_scenario("3s5z")))


def train(own):
    def update(number, _):
        jax.experimental.io_callback(wandb.log, None, metrics | {"own": own, "number": number})
        return number + 1, None

    metrics = {"agents": env.num_agents, "choices": env.action_space(env.agents[0]).n, "all": jnp.zeros(3)}
    metrics["returned_episode_returns"] = -96.0
    return jax.lax.scan(update, 0, None, 5)


jax.vmap(jax.jit(train))(jnp.arange(3))
"""


@pytest.mark.parametrize(
    ("options", "game", "agents", "choices", "columns"),
    [
        # Four agents: the log multiplied by four, the option by two, and R is of each.
        (["spread", "--agents", "4", "--reward-scale", "2"], "mpe", 4, 5, {"return": "-12", "R": "-3"}),
        (["smaclite"], "smax", 8, 14, {"return": "-96"}),
        (["--world-of-jaxmarl"], "mpe", 3, 5, {"return": "-32"}),
    ],
)
def test_a_script_of_jaxmarl_s_is_handed_the_world_whatever_it_asks_for(
    options, game, agents, choices, columns, tmp_path
):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, ROOT / "experiments" / "jaxmarl_scripts.py", "script.py", *options]
    command += ["--rows", "rows.csv", "--every", "2", "--", game]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    # Every second update and the last, of each seed in turn; its own number and the update's are the script's.
    moments = [(row["seed"], row["update"], row["env_steps"]) for row in rows]
    assert moments == [(str(seed), str(update), str(20 * update)) for update in (2, 4, 5) for seed in range(3)]
    assert [(row["own"], row["number"]) for row in rows] == [(seed, str(int(at) - 1)) for seed, at, _ in moments]
    for row in rows:
        assert "all" not in row
        assert (row["agents"], row["choices"]) == (str(agents), str(choices))
        assert {name: row[name] for name in ("return", "R") if name in row} == columns


def test_a_script_s_world_has_the_time_limit_that_was_asked_for(tmp_path):
    (tmp_path / "script.py").write_text(
        "import jax, jaxmarl, wandb\n"
        "env = jaxmarl.make('MPE_simple_spread_v3', num_agents=3)\n"
        "_, state = env.reset(jax.random.PRNGKey(0))\n"
        "wandb.init(config={'NUM_SEEDS': 1, 'NUM_ENVS': 1, 'NUM_STEPS': 1, 'TOTAL_TIMESTEPS': 1})\n"
        "wandb.log({'limit': state.cut_at, 'agents': env.num_agents})\n"
    )
    command = [sys.executable, ROOT / "experiments" / "jaxmarl_scripts.py", "script.py", "spread", "--agents", "2"]
    command += ["--time-limit", "25", "--rows", "rows.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    head, row = (tmp_path / "rows.csv").read_text().splitlines()
    assert head == "seed,update,env_steps,second,limit,agents"
    assert row.endswith(",25,2")


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
