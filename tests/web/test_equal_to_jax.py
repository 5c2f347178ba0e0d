"""What the live page computes under node is what JAX computes: policies, views, physics and scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import ask, needs_node
from deployed import CASES, each_view, files_of, in_jax, made, random_policy, team_views

from diamond_attention.deploy.bundle import read_bundle
from diamond_attention.runs.bundle import load_policy
from diamond_attention.web.live_page import LIVE_POLICIES

pytestmark = needs_node

CLOSE = 1e-5
KINDS = [name for name in CASES if name.startswith(("diamond", "commitments")) and "dropout," not in name]
KINDS = [name for name in KINDS if not name.endswith(", dropout")]


def whole_team(bundle, agents, tasks, seed):
    """Random views in which everybody is there and everything is legal, as on the page."""
    views = team_views(bundle, agents, tasks, seed)
    there = {"agent_present": np.ones_like(views.agent_present), "task_present": np.ones_like(views.task_present)}
    legal = None if views.legal_actions is None else np.ones_like(views.legal_actions)
    return views._replace(**there, legal_actions=legal)


def as_json(views):
    return [
        {name: getattr(view, name).tolist() for name in ("agents", "tasks", "ranks")} for view in each_view(views)
    ]


def answer_of(distribution):
    return distribution.mean if hasattr(distribution, "mean") else distribution.logits


def logits_of_commitments(policy, view):
    """One agent's, from its own view, as `decide_alone` works them out before it takes the best."""
    table = policy.table(view)
    first_prices, before = policy.first_prices(table), jnp.sum(table.ranks > table.ranks[0])
    actions, _ = policy.replay(table, first_prices, before, greedy=True)
    return policy.turn(table, first_prices, policy.tasks_of(actions, table), 0).logits


def assert_same_answers(ours, theirs):
    """Scores of actions matter by their differences: to 1e-5 of the largest, which is what float32 leaves of them.

    JAX's own, with logits to 28, are off by as much from what it computes in more digits. Probabilities to 1e-5.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    largest = np.maximum(1, np.abs(theirs).max(-1, keepdims=True))
    np.testing.assert_allclose(ours / largest, theirs / largest, atol=CLOSE)
    np.testing.assert_allclose(jax.nn.softmax(ours), jax.nn.softmax(theirs), atol=CLOSE)


def assert_plays_as(bundle, policy, folder, tmp_path, sizes):
    """Beside JAX, and beside the policy in numpy."""
    for seed, (agents, tasks) in enumerate(sizes):
        views = whole_team(bundle, agents, tasks, seed)
        [answers] = ask(tmp_path, {"ask": "decide", "folder": str(folder), "views": as_json(views)})
        without_jax = [bundle.policy.decide(view).answer for view in each_view(views)]
        played = [each["answer"] for each in answers]
        assert_same_answers(played, [answer_of(each) for each in without_jax])
        if hasattr(policy, "rank_terms"):
            distributions, attention = jax.vmap(policy)(in_jax(views))
            expected = answer_of(distributions)
            for block, weights in enumerate(attention[:2]):
                np.testing.assert_allclose([each["attention"][block] for each in answers], weights, atol=CLOSE)
        else:
            expected = jax.vmap(lambda view: logits_of_commitments(policy, view))(in_jax(views))
        assert_same_answers(played, expected)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_and_mask_with_random_weights_is_that_of_jax(name, tmp_path):
    policy, bundle = made(name)
    world, settings = CASES[name]
    for file, data in files_of(world, settings, random_policy(world, settings)).items():
        (tmp_path / file).write_bytes(data)
    assert_plays_as(bundle, policy, tmp_path, tmp_path, [(5, 6), (5, 6), (1, 1), (2, 9)])


@pytest.mark.parametrize("name", LIVE_POLICIES)
def test_every_policy_of_the_page_is_that_of_jax(name, tmp_path):
    folder = LIVE_POLICIES[name]
    assert_plays_as(read_bundle(folder), load_policy(folder)[0], folder, tmp_path, [(4, 4), (8, 8), (16, 16)])
