"""The policy that acts or chooses a task: nothing, stop, four moves, then one action for each unit it can target."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.actions import ActOrChooseTask
from diamond_attention.build import build_policy
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.diamond_weights import BLOCKS
from diamond_attention.ranks import draw_ranks
from diamond_attention.view import AgentView
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET
from diamond_attention.worlds.smaclite.world import Smaclite

AGENT_FEATURES, TASK_FEATURES, FIXED = 4, 3, 6


def policy_with(mask: str) -> DiamondPolicy:
    """The last layers are made larger than they start, so that differences are differences and not rounding."""
    policy = DiamondPolicy(
        AGENT_FEATURES, TASK_FEATURES, ActOrChooseTask(FIXED), width=8, mask=mask, key=jax.random.key(1)
    )
    return eqx.tree_at(
        lambda p: (p.head.act.weight, p.head.choose.weight), policy, replace_fn=lambda weight: 100 * weight
    )


def random_view(seed: int, agents: int, tasks: int) -> AgentView:
    keys = jax.random.split(jax.random.key(seed), 4)
    return AgentView(
        agents=jax.random.normal(keys[0], (agents, AGENT_FEATURES)),
        tasks=jax.random.normal(keys[1], (tasks, TASK_FEATURES)),
        agent_present=jnp.ones(agents, bool),
        task_present=jnp.ones(tasks, bool),
        ranks=jax.random.uniform(keys[2], (agents,), jnp.float32),
        legal_actions=jax.random.bernoulli(keys[3], 0.7, (FIXED + tasks,)).at[1].set(True),
    )


@pytest.mark.parametrize("mask", ["rank", "none"])
def test_reordered_tasks_reorder_their_actions_and_leave_the_fixed_ones(mask):
    policy, view = policy_with(mask), random_view(0, 4, 5)
    order = jnp.array([3, 0, 4, 1, 2])
    actions = jnp.concatenate([jnp.arange(FIXED), FIXED + order])
    moved = view._replace(tasks=view.tasks[order], legal_actions=view.legal_actions[actions])
    before, after = policy(view)[0].logits, policy(moved)[0].logits
    np.testing.assert_allclose(after, before[actions], atol=1e-4)
    assert np.ptp(np.asarray(before)[np.asarray(view.legal_actions)]) > 0.1  # the logits do differ


@pytest.mark.parametrize("mask", ["rank", "none"])
def test_the_order_of_peers_changes_nothing(mask):
    policy, view = policy_with(mask), random_view(1, 5, 3)
    order = jnp.array([0, 3, 1, 4, 2])
    moved = view._replace(agents=view.agents[order], ranks=view.ranks[order])
    np.testing.assert_allclose(policy(moved)[0].logits, policy(view)[0].logits, atol=1e-4)


def test_ranks_matter_and_only_through_the_mask():
    view = random_view(2, 4, 3)
    other = view._replace(ranks=view.ranks.at[0].set(1.0))
    first = view._replace(ranks=view.ranks.at[0].set(0.0))
    assert not np.allclose(policy_with("rank")(first)[0].logits, policy_with("rank")(other)[0].logits, atol=1e-3)
    np.testing.assert_array_equal(policy_with("none")(first)[0].logits, policy_with("none")(other)[0].logits)


def test_any_number_of_agents_and_targets():
    policy = policy_with("rank")
    for agents, tasks in [(1, 1), (2, 64), (27, 30), (5, 1)]:
        distribution, attention = policy(random_view(3, agents, tasks))
        assert distribution.logits.shape == (FIXED + tasks,)
        assert [weights.shape for weights in attention] == [(tasks, agents)] * 2


def test_padding_changes_nothing():
    policy, view = policy_with("rank"), random_view(4, 3, 2)
    wide = AgentView(
        agents=jnp.pad(view.agents, ((0, 2), (0, 0)), constant_values=7.0),
        tasks=jnp.pad(view.tasks, ((0, 3), (0, 0)), constant_values=7.0),
        agent_present=jnp.pad(view.agent_present, (0, 2)),
        task_present=jnp.pad(view.task_present, (0, 3)),
        ranks=jnp.pad(view.ranks, (0, 2), constant_values=1.0),
        legal_actions=jnp.pad(view.legal_actions, (0, 3)),
    )
    logits = policy(wide)[0].logits
    np.testing.assert_allclose(logits[: FIXED + 2], policy(view)[0].logits, atol=1e-4)
    assert bool(jnp.all(logits[FIXED + 2 :] == -jnp.inf))


def test_illegal_actions_are_never_taken_and_nothing_learns_from_them():
    policy, view = policy_with("rank"), random_view(5, 3, 4)
    distribution, _ = policy(view)
    np.testing.assert_array_equal(jnp.isfinite(distribution.logits), view.legal_actions)
    drawn = jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 2000))
    assert set(np.unique(drawn)) <= set(np.flatnonzero(view.legal_actions))
    assert bool(view.legal_actions[distribution.mode()])

    def score(policy: DiamondPolicy) -> jax.Array:
        distribution, _ = policy(view)
        return distribution.log_probability(jnp.asarray(1)) + distribution.entropy()

    gradient = jax.tree.leaves(jax.grad(score)(policy))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in gradient)
    assert any(bool(jnp.any(leaf != 0)) for leaf in gradient)


def test_a_viewer_that_sees_nothing_can_still_act():
    policy = policy_with("rank")
    view = random_view(6, 3, 2)._replace(agent_present=jnp.zeros(3, bool), task_present=jnp.zeros(2, bool))
    view = view._replace(legal_actions=jnp.arange(FIXED + 2) == 0)
    distribution, _ = policy(view)
    assert int(distribution.mode()) == 0
    gradient = jax.grad(lambda p: p(view)[0].log_probability(jnp.asarray(0)) + p(view)[0].entropy())(policy)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))


def test_dropout_masks_are_replayed_from_the_view():
    policy, view = policy_with("dropout"), random_view(7, 3, 4)
    team = jax.tree.map(lambda values: values[None], view)
    one, other = (jax.tree.map(lambda values: values[0], policy.draw(team, jax.random.key(k))) for k in (0, 1))
    assert one.noise.shape == (BLOCKS, 4, 3)
    scaled_up = policy(view)[1][0] / (1 - policy.dropout_rate)
    for masked in (one, other):
        np.testing.assert_allclose(policy(masked)[1][0], jnp.where(masked.noise[0], scaled_up, 0), rtol=1e-5)
    assert not np.array_equal(policy(one)[0].logits, policy(other)[0].logits)


def test_a_team_decides_as_its_members_would_alone():
    """A healer among them: its targets are its comrades, and the one policy plays it too."""
    world = Smaclite("MMM2", max_agents=10, max_tasks=12)
    key = jax.random.key(0)
    policy = build_policy(world, DiamondSettings(width=8), key)
    views = world.views(world.reset(key, world.sizes[0]), draw_ranks(key, 10))
    together, _ = jax.vmap(policy)(views)
    alone_call = jax.jit(lambda view: policy(view))
    for agent in range(10):
        alone, _ = alone_call(jax.tree.map(lambda x: x[agent], views))  # noqa: B023 - used at once
        np.testing.assert_allclose(together.logits[agent], alone.logits, atol=1e-5)
    # The medivac may heal its nine comrades and nobody else; nobody can reach an enemy yet.
    targets = np.isfinite(together.logits[:, FIRST_TARGET:])
    np.testing.assert_array_equal(targets[0], [False] + [True] * 9 + [False] * 2)
    assert not targets[1:].any()
    for seed in range(20):
        actions = policy.act(views, None, jax.random.key(seed), greedy=False).actions
        assert bool(jnp.all(jnp.take_along_axis(views.legal_actions, actions[:, None], axis=1)))
