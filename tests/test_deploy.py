"""Policies without JAX: what they decide is what the package's own policies decide."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from deployed import AGENTS, CASES, TASKS, each_view, in_jax, made, team_views

from diamond_attention.deploy import Agent, UserError, View
from diamond_attention.deploy.answers import Categorical, Gaussian, Menu, Squashed
from diamond_attention.deploy.bundle import read_bundle
from diamond_attention.deploy.kinds import KINDS
from diamond_attention.deploy.threefry import noise_of_ranks
from diamond_attention.policies.contract import IndependentPolicy
from diamond_attention.policies.registry import POLICIES
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.bundle_format import shipped_policies

ROOT = Path(__file__).parents[1]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


# --- The same decisions ---------------------------------------------------------------------------


@eqx.filter_jit
def answers_in_jax(policy, views):
    return policy.answers(views)


@eqx.filter_jit
def actions_in_jax(policy, views, greedy):
    if policy.decides_alone:  # commitments: each agent on its own view
        views = jax.tree.map(lambda x: x[:, None], views)
        return jax.vmap(lambda view: policy.act(view, None, jax.random.key(0), greedy).actions[0])(views)
    return policy.act(views, None, jax.random.key(0), greedy).actions


def parts_of(answer):
    """The numbers of a distribution, JAX's or ours."""
    answer = getattr(answer, "choice", answer)
    return [np.asarray(getattr(answer, name)) for name in ("logits", "mean", "log_std") if hasattr(answer, name)]


def assert_same_decisions(policy, bundle, agents, tasks, seed):
    """Answers and greedy actions of a whole team; of commitments sampled ones too, whose noise everybody knows."""
    agent, views = Agent(bundle), team_views(bundle, agents, tasks, seed)
    seen, each = in_jax(views), list(each_view(views))
    decided = agent.decided_team(each)
    if isinstance(policy, IndependentPolicy):
        theirs = answers_in_jax(policy, seen)
        for ours, those in zip(parts_of(decided.answer), parts_of(theirs), strict=True):
            np.testing.assert_allclose(np.broadcast_to(ours, those.shape), those, **CLOSE)
        expected = np.asarray(jax.vmap(lambda answer: answer.mode())(theirs))
    else:
        expected = np.asarray(actions_in_jax(policy, seen, True))
        if bundle.kind == "commitments":
            sampled = np.asarray(actions_in_jax(policy, seen, False))
            np.testing.assert_array_equal(agent.decide_team(each, sampled=True), sampled)
    np.testing.assert_allclose(
        decided.action, expected if expected.dtype.kind == "i" else np.clip(expected, -1, 1), **CLOSE
    )


@pytest.mark.parametrize("name", CASES)
def test_every_kind_decides_as_in_jax(name):
    """With who is absent, what is illegal, ranks that tie, and nonsense in the rows of who is not there."""
    policy, bundle = made(name)
    world = CASES[name][0]
    for seed in range(3):
        assert_same_decisions(policy, bundle, world.max_agents, world.max_tasks, seed)


@pytest.mark.parametrize("name", shipped_policies())
def test_every_shipped_policy_decides_as_in_jax(name):
    policy, _ = load_policy(name)
    bundle = read_bundle(name)
    for agents, tasks in ((1, 2), (9, 9)):
        assert_same_decisions(policy, bundle, agents, tasks, seed=agents)


def test_where_nothing_is_said_of_legal_actions_every_task_that_is_there_may_be_chosen():
    for name, fixed in (("diamond rank, xor", 0), ("diamond floor, dispatch", 1)):
        bundle = made(name)[1]
        agent = Agent(bundle)
        for view in each_view(team_views(bundle, AGENTS, TASKS, seed=0)):
            told = view._replace(legal_actions=np.concatenate([np.ones(fixed, bool), view.task_present]))
            unsaid = agent.decided(view._replace(legal_actions=None))
            np.testing.assert_array_equal(unsaid.answer.logits, agent.decided(told).answer.logits)
            assert np.isneginf(unsaid.answer.logits[fixed:]).tolist() == (~view.task_present).tolist()


def test_a_team_of_one_needs_no_ranks_and_a_view_without_tasks_will_do_where_none_is_chosen():
    alone = View([[0.1, 0.2, 0, 0, 1]], [[0.5, 0.5]])
    agent = Agent.load("spread")
    np.testing.assert_array_equal(agent.decide(alone), agent.decide(alone._replace(ranks=[0.3])))
    absent = agent.decide(alone._replace(task_present=[False]))
    np.testing.assert_allclose(agent.decide(alone._replace(tasks=[])), absent, atol=1e-6)
    chooses = Agent(made("diamond rank, xor")[1])
    with pytest.raises(UserError, match="the view lists no task, and made needs at least one"):
        chooses.decide(View([[1.0]], []))


def test_dropout_in_play_is_drawn_by_the_agent_or_given():
    bundle = made("diamond dropout, spread")[1]
    view = next(each_view(team_views(bundle, AGENTS, AGENTS, seed=0)))
    agent = Agent(bundle, seed=0)
    assert np.array_equal(agent.decide(view), agent.decide(view))
    drawn = view._replace(noise=None)
    assert not np.array_equal(agent.decide(drawn), agent.decide(drawn))
    with pytest.raises(UserError, match=r"view\.noise has the shape \(2,\), and must have \(3, 5, 5\)"):
        agent.decide(view._replace(noise=[True, False]))


def test_every_kind_of_the_package_can_be_deployed():
    assert set(KINDS) == set(POLICIES)
    assert {bundle_kind.split(",")[0].split()[0] for bundle_kind in CASES} == set(KINDS)


# --- Noise ----------------------------------------------------------------------------------------


def test_the_noise_of_a_rank_is_that_of_jax():
    ranks = np.float32([0.0, 0.25, 1 - 2**-23, 0.7357, -1.0, 2.0])
    for rank, ours in zip(ranks, noise_of_ranks(ranks, 7), strict=True):
        key = jax.random.fold_in(jax.random.key(0), jax.lax.bitcast_convert_type(rank, np.uint32))
        np.testing.assert_allclose(ours, jax.random.gumbel(key, (7,)), rtol=1e-5)


def test_samples_are_as_likely_as_their_answers_say():
    generator = np.random.default_rng(0)
    wanted = np.float32([0.5, 0.3, 0.2, 0.0])
    with np.errstate(divide="ignore"):
        choice = Categorical(np.log(wanted))
    drawn = [choice.act(choice.noise(generator)) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, wanted, atol=0.03)  # three deviations
    menu = Menu(choice.logits, np.float32([[0, 1], [1, 0], [1, 1], [9, 9]]))
    assert {tuple(menu.act(menu.noise(generator))) for _ in range(99)} == {(0, 1), (1, 0), (1, 1)}
    narrow = Gaussian(np.float32([0.1, 0.2]), np.log(np.float32([0.2, 0.1])))
    drawn = np.stack([narrow.act(narrow.noise(generator)) for _ in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), [0.1, 0.2], atol=0.01)
    np.testing.assert_allclose(drawn.std(axis=0), [0.2, 0.1], rtol=0.04)
    np.testing.assert_array_equal(Gaussian(np.float32([-3, 0.5]), np.zeros(2)).act(), [-1, 0.5])  # as worlds clip
    squashed = Squashed(np.float32([0.5]), np.float32([-9]))
    np.testing.assert_allclose(squashed.act(squashed.noise(generator)), np.tanh(0.5), atol=1e-3)


def test_a_rank_has_the_random_bits_it_has_in_training_and_is_held_as_there():
    agent = Agent.load("spread", seed=0)
    ranks = np.array([agent.draw_rank() for _ in range(2000)])
    assert ranks.dtype == np.float32
    assert np.all((ranks >= 0) & (ranks < 1) & (ranks * 2**23 % 1 == 0))
    assert abs(ranks.mean() - 0.5) < 0.02
    assert len(set(ranks)) > 1995
    assert [agent.rank_is_due(step) for step in range(3)] == [True, True, True]
    agent.rank_hold = 2
    assert [agent.rank_is_due(step) for step in range(4)] == [True, False, True, False]
    agent.rank_hold = "episode"
    assert [agent.rank_is_due(step) for step in range(3)] == [True, False, False]


def test_agents_without_a_seed_draw_different_numbers_and_with_one_the_same():
    assert Agent.load("spread").draw_rank() != Agent.load("spread").draw_rank()
    assert Agent.load("spread", seed=5).draw_rank() == Agent.load("spread", seed=5).draw_rank()


# --- Small, quick and alone -----------------------------------------------------------------------


def test_nothing_of_jax_or_of_a_simulator_is_imported():
    script = """
import sys
import numpy as np
from diamond_attention import deploy

agent = deploy.Agent.load("spread")
action = agent.decide(deploy.View(np.ones((2, 5)), np.ones((3, 2)), ranks=[0.1, 0.9]), sampled=True)
assert action.shape == (2,)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    for name in ("jax", "jaxlib", "equinox", "optax", "scipy", "safetensors", "tyro", "matplotlib", "onnx", "torch"):
        assert name not in loaded
    ours = {name for name in loaded if name.startswith("diamond_attention.") and ".deploy" not in name}
    runs = {f"diamond_attention.runs{module}" for module in ("", ".array_file", ".bundle_format", ".files")}
    assert ours == {"diamond_attention.errors", "diamond_attention.plain_file", *runs}


def test_it_is_small_and_quick_enough_for_a_robot():
    """40 MB, 0.2 s and 1 ms with eight peers, on one core that others share: the best of five tries must do."""
    script = ROOT / "experiments" / "deploy_cost.py"
    # Compiled once, as on a robot: not to write what was compiled is to compile it again in every process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    one_core = {min(os.sched_getaffinity(0))}
    limits = {"resident_mb": 40, "load_cpu_s": 0.2, "median_cpu_ms": 1.0}
    for name in ("spread", "dispatch-commitments"):
        best = dict.fromkeys(limits, np.inf)
        for _ in range(5):
            command = [sys.executable, script, name, "--decisions", "200"]
            done = subprocess.run(
                command,
                env=environment,
                preexec_fn=lambda: os.sched_setaffinity(0, one_core),
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            best = {limit: min(least, json.loads(done.stdout)[limit]) for limit, least in best.items()}
            if all(best[limit] < most for limit, most in limits.items()):
                break
        else:
            pytest.fail(f"{name} at its best: {best}")
