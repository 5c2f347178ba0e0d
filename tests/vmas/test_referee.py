"""Trained policies on the real VMAS; runs only where the `vmas` extra is installed."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("vmas.simulator.environment")

from diamond_attention import PolicySettings, Settings, build_policy, train
from diamond_attention.command_line import run_command
from diamond_attention.evaluation import vmas, vmas_bridge
from diamond_attention.evaluation.evaluate import evaluate, play_episodes
from diamond_attention.evaluation.vmas import play_on_vmas
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.rows import read_rows
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.spread import Spread

KEY = jax.random.key(5)


def policy_with(mask: str):
    """Fresh weights with a louder last layer: agents move, each by what it sees."""
    import equinox as eqx

    policy = build_policy(Spread(), PolicySettings(width=8, mask=mask), jax.random.key(0))
    return eqx.tree_at(lambda p: p.head.mean.weight, policy, replace_fn=lambda weight: 100 * weight)


def test_the_policy_plays_vmas_as_it_plays_our_world():
    """Without ranks greedy play has no randomness, so both simulators must go the same way from VMAS's starts."""
    policy = policy_with("none")
    theirs = play_on_vmas(policy, 3, 16, KEY, greedy=True, steps=15)
    starts = []
    start_key, _ = jax.random.split(jax.random.fold_in(KEY, 0))
    vmas_bridge.roll_out(
        lambda state, step: starts.append(state) or np.zeros((16, 3, 2), np.float32),
        agents=3,
        episodes=16,
        seed=int(jax.random.bits(start_key)),
        steps=1,
    )
    world = Spread(max_agents=3, max_tasks=3)

    @jax.jit
    @jax.vmap
    def one_step(state):
        views = world.views(state, jnp.zeros(3))
        actions = jax.vmap(lambda view: policy(view)[0].mode())(views)
        return world.step(state, actions, KEY)

    state, returns, collisions = starts[0], 0.0, 0.0
    for _ in range(15):
        transition = one_step(state)
        state = transition.state
        returns, collisions = returns + transition.reward, collisions + transition.measures["collisions"]
    # A contact amplifies rounding, so episodes that had one are compared loosely and the others closely.
    apart = np.asarray(collisions) == 0
    assert apart.sum() >= 4
    np.testing.assert_allclose(theirs["return"][apart], returns[apart], rtol=1e-4)
    np.testing.assert_allclose(theirs["return"], returns, rtol=2e-2)


def test_greedy_sampled_and_dropout_play_differently_and_repeat():
    masks = {True: "dropout", False: "none"}  # with dropout off its policy is, weight for weight, the one without
    ways = {
        (greedy, dropout): play_on_vmas(policy_with(masks[dropout]), 2, 4, KEY, greedy=greedy, steps=12)["return"]
        for greedy in (True, False)
        for dropout in (True, False)
    }
    assert len({tuple(returns) for returns in ways.values()}) == 4
    again = play_on_vmas(policy_with("dropout"), 2, 4, KEY, greedy=True, steps=12)["return"]
    np.testing.assert_array_equal(again, ways[True, True])


def test_ranks_are_drawn_and_held():
    policy = policy_with("rank")
    returns = [
        play_on_vmas(policy, 3, 4, KEY, hold=hold, greedy=True, steps=12)["return"] for hold in (1, 5, "episode")
    ]
    assert len({tuple(each) for each in returns}) == 3


def test_one_program_for_each_number_of_agents():
    before = vmas._decide._cache_size()
    policy = policy_with("rank")
    for agents in (2, 5):
        for greedy in (True, False):
            play_on_vmas(policy, agents, 3, KEY, greedy=greedy, steps=2)
    assert vmas._decide._cache_size() - before == 2


def test_both_simulators_agree_on_a_policys_score():
    policy, episodes = policy_with("rank"), 256
    world = Spread(max_agents=2, max_tasks=2)
    ours = play_episodes(world, policy, TeamSize(2, 2), episodes, KEY)
    theirs = play_on_vmas(policy, 2, episodes, KEY)
    assert set(ours) == set(theirs)
    for name in ("return", "covered"):
        # Different starts, so equal up to the spread of a mean over 256 episodes.
        spread = np.hypot(ours[name].std(), theirs[name].std()) / np.sqrt(episodes)
        assert abs(ours[name].mean() - theirs[name].mean()) < 4 * spread


def test_a_policy_that_is_built_for_each_size_plays_all_of_them_on_vmas(tmp_path):
    small = {"envs": 4, "steps": 2, "replay": 16, "warmup": 8, "batch": 8}
    settings = with_method(Settings(world=Spread(), agents="2", total_steps=16), "gsa")
    settings = replace(settings, method=replace(settings.method, gradient_steps=1, **small))
    (run,) = train(settings, [0], tmp_path)
    rows = evaluate(run, sizes=[TeamSize(2, 2), TeamSize(3, 3)], episodes=2, play=["greedy"], simulator="vmas")
    assert [(row["simulator"], row["agents"]) for row in rows] == [("vmas", 2)] * 2 + [("vmas", 3)] * 2


def test_evaluate_appends_rows_of_both_simulators(tmp_path, capsys):
    settings = Settings(
        world=Spread(),
        agents="2",
        policy=PolicySettings(width=4),
        ppo=PpoSettings(envs=4, steps=2, batch=8),
        total_steps=16,
    )
    train(settings, [0], tmp_path)
    for simulator in ("own", "vmas"):
        arguments = ["--agents", "2:3", "--episodes", "3", "--simulator", simulator]
        assert run_command(["evaluate", str(tmp_path), *arguments]) == 0
    rows = read_rows(tmp_path / "seed_0" / "episodes.csv")
    assert [row["simulator"] for row in rows] == ["own"] * 12 + ["vmas"] * 12
    assert {row["length"] for row in rows} == {"400"}
    capsys.readouterr()
    assert run_command(["table", str(tmp_path), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {(line["simulator"], line["played_on"][0]) for line in lines} == {
        (simulator, agents) for simulator in ("own", "vmas") for agents in (2, 3)
    }
