"""Views, ranks, the mask of Eq. 3, the block of Eq. 4 and the policy, against answers worked out by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diamond_attention.actions import ChooseTask, Continuous
from diamond_attention.attention import DiamondBlock, presence_term, softmax_or_zero
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.policies.critics import CommonCritic
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.policies.diamond_weights import BLOCKS
from diamond_attention.policies.heads.continuous import ChoiceBlock
from diamond_attention.ranks import draw_ranks, hear_ranks, hold_ranks, rank_mask, rank_sign
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists, viewer_first

INFINITY = jnp.inf
AGENT_FEATURES, TASK_FEATURES, WIDTH = 3, 2, 8
WITHOUT_BLINDING = ["signed", "floor", "first", "split"]
EVERY_MASK = pytest.mark.parametrize(
    "mask", [pytest.param("rank", marks=pytest.mark.optimised), "none", *WITHOUT_BLINDING]
)


def random_view(key, agents: int, tasks: int, absent_agents: int = 0, absent_tasks: int = 0) -> AgentView:
    """A view without any symmetry, so that nothing equal is equal by accident."""
    keys = jax.random.split(key, 3)
    return AgentView(
        agents=jax.random.normal(keys[0], (agents, AGENT_FEATURES)),
        tasks=jax.random.normal(keys[1], (tasks, TASK_FEATURES)),
        agent_present=jnp.arange(agents) < agents - absent_agents,
        task_present=jnp.arange(tasks) < tasks - absent_tasks,
        ranks=jax.random.uniform(keys[2], (agents,), jnp.float32),
    )


def policy_with(mask: str, action_kind=None) -> DiamondPolicy:
    return DiamondPolicy(
        AGENT_FEATURES, TASK_FEATURES, action_kind or ChooseTask(), width=WIDTH, mask=mask, key=jax.random.key(5)
    )


def test_every_viewer_lists_itself_first_and_the_others_by_index():
    assert viewer_first(0, 3).tolist() == [0, 1, 2]
    assert viewer_first(1, 3).tolist() == [1, 0, 2]
    assert viewer_first(2, 3).tolist() == [2, 0, 1]


@pytest.mark.parametrize("agents", [1, 2, 3, 5])
@pytest.mark.parametrize("features", [(), (3,), (2, 3)])
def test_every_viewer_lists_the_team_itself_first(agents, features):
    values = np.random.default_rng(0).normal(size=(agents, *features)).astype(np.float32)
    listed = as_each_viewer_lists(jnp.asarray(values))
    for viewer in range(agents):
        others = [other for other in range(agents) if other != viewer]
        np.testing.assert_array_equal(listed[viewer], values[[viewer, *others]])


def test_mask_of_three_agents_worked_by_hand():
    """Ranks .2, .7, .5: agent 0 sees all, agent 1 only itself, agent 2 itself and agent 1."""
    heard = hear_ranks(jnp.array([0.2, 0.7, 0.5], jnp.float32))
    np.testing.assert_array_equal(heard, np.float32([[0.2, 0.7, 0.5], [0.7, 0.2, 0.5], [0.5, 0.2, 0.7]]))
    masks = jax.vmap(rank_mask)(heard)
    np.testing.assert_array_equal(masks[0], [0, 0, 0])
    np.testing.assert_array_equal(masks[1], [0, -INFINITY, -INFINITY])
    np.testing.assert_array_equal(masks[2], [0, -INFINITY, 0])


def test_equal_ranks_see_each_other():
    np.testing.assert_array_equal(rank_mask(jnp.float32([0.5, 0.5, 0.4])), [0, 0, -INFINITY])


def test_ranks_are_float32_and_differ():
    ranks = draw_ranks(jax.random.key(0), 1000)
    assert ranks.dtype == jnp.float32
    assert len(set(ranks.tolist())) == 1000
    assert 0 <= float(ranks.min()) < float(ranks.max()) < 1


@pytest.mark.parametrize(("hold", "fresh_at"), [(1, [0, 1, 2, 3, 4, 5]), (3, [0, 3]), ("episode", [0])])
def test_ranks_are_held_as_long_as_asked(hold, fresh_at):
    held, fresh = jnp.zeros(2, jnp.float32), jnp.ones(2, jnp.float32)
    drawn = [step for step in range(6) if hold_ranks(held, fresh, jnp.asarray(step), hold)[0] == 1]
    assert drawn == fresh_at


def joined(parts):
    return np.concatenate(parts, axis=-1)


def test_block_of_two_tasks_and_three_agents_worked_by_hand():
    """Width 1, W_A doubles and W_T triples, so P and both outputs can be written down."""
    block = DiamondBlock(1, key=jax.random.key(0))
    block = jax.tree.map(jnp.zeros_like, block)
    block = jax.tree_util.tree_map_with_path(
        lambda path, x: x + (2.0 if "agent_values" in str(path) else 3.0) if "weight" in str(path) else x, block
    )
    tasks = jnp.array([[0.0], [np.log(2.0)]])
    agents = jnp.array([[1.0], [0.0], [5.0]])
    term = jnp.array([0.0, 0.0, -INFINITY])[None].repeat(2, 0)  # the third agent is hidden
    out = block(tasks, agents, term[None])
    # Task 0 scores both visible agents 0; task 1 scores them log 2 and 0, that is two to one.
    np.testing.assert_allclose(out.weights, [[1 / 2, 1 / 2, 0], [2 / 3, 1 / 3, 0]], rtol=1e-6)
    np.testing.assert_allclose(joined(out.tasks), [[2 * 1 / 2, 0.0], [2 * 2 / 3, np.log(2)]], rtol=1e-6)
    third = 3 * np.log(2)
    np.testing.assert_allclose(joined(out.agents), [[third * 2 / 3, 1.0], [third / 3, 0.0], [0.0, 5.0]], rtol=1e-6)


def test_a_choice_among_three_tasks_worked_by_hand():
    """Width 1, W_T triples: the viewer scores the tasks log 2 and 0, two to one; the third is absent."""
    block = jax.tree.map(jnp.zeros_like, ChoiceBlock(1, key=jax.random.key(0)))
    block = jax.tree_util.tree_map_with_path(lambda path, x: x + 3.0 if "weight" in str(path) else x, block)
    tasks = jnp.array([[np.log(2.0)], [0.0], [7.0]])
    seen, weights = block(tasks, jnp.ones(1), jnp.array([True, True, False]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(seen, [3 * np.log(2) * 2 / 3], rtol=1e-6)
    nothing, weights = block(tasks, jnp.ones(1), jnp.zeros(3, bool))
    np.testing.assert_array_equal(weights, 0)
    np.testing.assert_array_equal(nothing, [0.0])


def test_a_choice_does_not_grow_with_the_number_of_tasks():
    """The reason for the softmax over tasks: every task twice reads like every task once."""
    block = ChoiceBlock(WIDTH, key=jax.random.key(0))
    tasks, viewer = jax.random.normal(jax.random.key(1), (5, WIDTH)), jax.random.normal(jax.random.key(2), (WIDTH,))
    once, _ = block(tasks, viewer, jnp.ones(5, bool))
    twice, _ = block(jnp.concatenate([tasks, tasks]), viewer, jnp.ones(10, bool))
    np.testing.assert_allclose(twice, once, rtol=1e-5, atol=1e-6)


def test_joined_features_stay_with_their_own_rows():
    """Eq. 4 as read here: tasks keep T beside what they saw, agents keep A. The shapes pin it."""
    block = DiamondBlock(WIDTH, key=jax.random.key(0))
    tasks, agents = jax.random.normal(jax.random.key(1), (5, WIDTH)), jax.random.normal(jax.random.key(2), (3, WIDTH))
    out = block(tasks, agents, jnp.zeros((1, 5, 3)))
    assert [part.shape for part in out.tasks] == [(5, WIDTH)] * 2
    assert [part.shape for part in out.agents] == [(3, WIDTH)] * 2
    np.testing.assert_array_equal(out.tasks[1], tasks)
    np.testing.assert_array_equal(out.agents[1], agents)
    np.testing.assert_allclose(out.weights.sum(axis=1), np.ones(5), rtol=1e-6)


def test_a_row_in_which_all_is_hidden_gives_zeros_and_finite_gradients():
    scores = jnp.array([[1.0, 2.0], [-INFINITY, -INFINITY]])
    np.testing.assert_allclose(softmax_or_zero(scores)[1], [0, 0])
    gradient = jax.grad(lambda s: jnp.sum(softmax_or_zero(s) ** 2))(scores)
    assert bool(jnp.all(jnp.isfinite(gradient)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_softmax_equals_the_library_where_nothing_is_hidden(seed):
    scores = 30 * jax.random.normal(jax.random.key(seed), (3, 4))
    np.testing.assert_allclose(softmax_or_zero(scores), jax.nn.softmax(scores, axis=-1), atol=1e-6)


@EVERY_MASK
def test_the_order_of_peers_changes_nothing(mask):
    policy = eqx.filter_jit(policy_with(mask))
    view = random_view(jax.random.key(1), agents=5, tasks=4)
    order = jnp.array([0, 3, 1, 4, 2])
    moved = view._replace(agents=view.agents[order], ranks=view.ranks[order])
    before, weights = policy(view)
    after, moved_weights = policy(moved)
    np.testing.assert_allclose(after.logits, before.logits, atol=1e-5)
    np.testing.assert_allclose(moved_weights[0], weights[0][:, order], atol=1e-6)


@EVERY_MASK
def test_the_order_of_tasks_only_reorders_the_choices(mask):
    policy = eqx.filter_jit(policy_with(mask))
    view = random_view(jax.random.key(2), agents=4, tasks=5)
    order = jnp.array([4, 2, 0, 1, 3])
    before, _ = policy(view)
    after, _ = policy(view._replace(tasks=view.tasks[order]))
    np.testing.assert_allclose(after.logits, before.logits[order], atol=1e-5)


@EVERY_MASK
def test_absent_agents_and_tasks_change_nothing(mask):
    policy = eqx.filter_jit(policy_with(mask))
    view = random_view(jax.random.key(3), agents=6, tasks=5, absent_agents=3, absent_tasks=2)
    small = AgentView(view.agents[:3], view.tasks[:3], view.agent_present[:3], view.task_present[:3], view.ranks[:3])
    padded, padded_weights = policy(view)
    bare, bare_weights = policy(small)
    np.testing.assert_allclose(padded.logits[:3], bare.logits, atol=1e-5)
    assert bool(jnp.all(padded.logits[3:] == -INFINITY))
    np.testing.assert_allclose(padded_weights[0][:3, :3], bare_weights[0], atol=1e-6)
    np.testing.assert_array_equal(padded_weights[0][:, 3:], 0)


@pytest.mark.optimised
def test_a_hidden_peer_cannot_influence_the_viewer():
    policy = eqx.filter_jit(policy_with("rank"))
    view = random_view(jax.random.key(4), agents=3, tasks=3)._replace(ranks=jnp.float32([0.5, 0.1, 0.9]))
    changed = view._replace(agents=view.agents.at[1].add(100.0))
    np.testing.assert_array_equal(policy(changed)[0].logits, policy(view)[0].logits)
    visible = view._replace(agents=view.agents.at[2].add(100.0))
    assert not np.allclose(policy(visible)[0].logits, policy(view)[0].logits)


@pytest.mark.parametrize("mask", WITHOUT_BLINDING)
def test_other_forms_hide_nobody_altogether(mask):
    """A lower-ranked peer, hidden by the hard mask, still reaches the top-ranked viewer."""
    policy = policy_with(mask)
    view = random_view(jax.random.key(4), agents=3, tasks=3)._replace(ranks=jnp.float32([0.9, 0.1, 0.5]))
    changed = view._replace(agents=view.agents.at[1].add(1.0))
    assert not np.allclose(policy(changed)[0].logits, policy(view)[0].logits, atol=1e-4)


@pytest.mark.parametrize("mask", ["rank", *WITHOUT_BLINDING])
def test_ranks_tell_identical_agents_apart(mask):
    """Everybody sees the same; only the ranks they heard differ."""
    policy = policy_with(mask)
    agents, tasks = jnp.ones((3, AGENT_FEATURES)), jax.random.normal(jax.random.key(0), (3, TASK_FEATURES))
    view = AgentView(agents, tasks, jnp.ones(3, bool), jnp.ones(3, bool), jnp.float32([0.2, 0.5, 0.8]))
    top = view._replace(ranks=jnp.float32([0.8, 0.2, 0.5]))
    assert not np.allclose(policy(view)[0].logits, policy(top)[0].logits, atol=1e-5)


def test_first_is_the_hard_mask_in_the_first_block_and_none_in_the_second():
    view = random_view(jax.random.key(4), agents=3, tasks=3)._replace(ranks=jnp.float32([0.5, 0.1, 0.9]))
    first, second, _ = policy_with("first")(view)[1]
    np.testing.assert_array_equal(first[:, 1], 0)
    assert bool(jnp.all(second[:, 1] > 0))
    np.testing.assert_array_equal(first, policy_with("rank")(view)[1][0])


def test_split_is_the_mean_of_a_masked_and_an_open_head():
    block = DiamondBlock(4, key=jax.random.key(0))
    tasks, agents = jax.random.normal(jax.random.key(1), (2, 4)), jax.random.normal(jax.random.key(2), (3, 4))
    hidden, open_ = jnp.array([0.0, -INFINITY, 0.0]), jnp.zeros(3)
    out = block(tasks, agents, jnp.stack([hidden, open_])[:, None])
    masked = softmax_or_zero(tasks[:, :2] @ agents[:, :2].T / np.sqrt(2) + hidden)
    everybody = softmax_or_zero(tasks[:, 2:] @ agents[:, 2:].T / np.sqrt(2))
    np.testing.assert_allclose(out.weights, (masked + everybody) / 2, atol=1e-6)
    values = jax.vmap(block.agent_values)(agents)
    expected = jnp.concatenate([masked @ values[:, :2], everybody @ values[:, 2:], tasks], axis=-1)
    np.testing.assert_allclose(joined(out.tasks), expected, atol=1e-5)


@pytest.mark.parametrize(("mask", "off"), [("signed", 0.0), ("floor", -1e9)])
def test_a_learned_bias_of_nothing_is_no_mask(mask, off):
    view = random_view(jax.random.key(5), agents=3, tasks=3)
    policy = eqx.tree_at(lambda p: p.rank_bias, policy_with(mask), jnp.full(2, off))
    np.testing.assert_allclose(policy(view)[0].logits, policy_with("none")(view)[0].logits, atol=1e-6)


def test_biases_of_three_agents_worked_by_hand():
    ranks = jnp.float32([0.5, 0.1, 0.9])
    np.testing.assert_array_equal(rank_sign(ranks), [0, -1, 1])
    np.testing.assert_array_equal(policy_with("signed").rank_terms(0, ranks)[0, 0], [0, -1, 1])
    damped = policy_with("floor").rank_terms(1, ranks)[0, 0]
    np.testing.assert_allclose(damped, [0, -np.log1p(np.exp(2.0)), 0], rtol=1e-6)


def test_without_the_mask_ranks_mean_nothing():
    """If a policy could read the numbers, the ablation without a mask would prove nothing."""
    view = random_view(jax.random.key(5), agents=3, tasks=3)
    for mask in ("none", "dropout"):
        policy = policy_with(mask)
        np.testing.assert_array_equal(policy(view)[0].logits, policy(view._replace(ranks=view.ranks[::-1]))[0].logits)


@pytest.mark.parametrize("mask", ["rank", *WITHOUT_BLINDING])
def test_only_the_order_of_ranks_matters(mask):
    policy = policy_with(mask)
    view = random_view(jax.random.key(6), agents=4, tasks=3)
    squeezed = view._replace(ranks=(view.ranks / 1000).astype(jnp.float32))
    np.testing.assert_array_equal(policy(view)[0].logits, policy(squeezed)[0].logits)


@pytest.mark.parametrize("kind", [ChooseTask(), Continuous(2)])
@pytest.mark.parametrize("mask", ["rank", *WITHOUT_BLINDING])
def test_separate_calls_equal_the_joint_one(mask, kind):
    """Decentralised execution: N agents deciding alone are the vmapped team."""
    policy = policy_with(mask, kind)
    views = jax.vmap(lambda k: random_view(k, agents=4, tasks=3))(jax.random.split(jax.random.key(7), 4))
    together, weights = jax.vmap(policy)(views)
    for agent in range(4):
        alone, own_weights = policy(jax.tree.map(lambda x: x[agent], views))  # noqa: B023
        for joint, single in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(joint[agent], single, atol=1e-5)
        np.testing.assert_allclose(weights[0][agent], own_weights[0], atol=1e-6)


def test_any_team_size_out():
    policy = policy_with("rank")
    for agents, tasks in [(1, 1), (2, 7), (9, 3)]:
        distribution, weights = policy(random_view(jax.random.key(8), agents, tasks))
        assert distribution.logits.shape == (tasks,)
        assert [w.shape for w in weights] == [(tasks, agents), (tasks, agents), (tasks, 1)]
        assert bool(jnp.all(jnp.isfinite(distribution.logits)))


def test_dropout_masks_are_replayed_from_the_view():
    policy = policy_with("dropout")
    view = random_view(jax.random.key(9), agents=3, tasks=3)
    alone = jax.tree.map(lambda x: x[None], view)  # a team of one view
    first, second = (jax.tree.map(lambda x: x[0], policy.draw(alone, jax.random.key(k))) for k in (0, 1))
    assert first.noise.shape == (BLOCKS, 3, 3)
    # Survivors are scaled up, so that the expectation over masks is the weight without dropout.
    scaled_up = policy(view)[1][0] / (1 - policy.dropout_rate)
    for masked in (first, second):
        np.testing.assert_allclose(policy(masked)[1][0], jnp.where(masked.noise[0], scaled_up, 0), rtol=1e-5)
    assert not np.array_equal(first.noise[0], second.noise[0])
    assert not np.array_equal(policy(first)[0].logits, policy(second)[0].logits)


def test_the_critic_does_not_know_any_order_or_padding():
    critic = CommonCritic(AGENT_FEATURES, TASK_FEATURES, width=WIDTH, key=jax.random.key(1))
    view = random_view(jax.random.key(10), agents=5, tasks=4, absent_agents=2, absent_tasks=1)
    team = TeamView(view.agents, view.tasks, view.agent_present, view.task_present)
    order = jnp.array([2, 0, 1, 4, 3])
    moved = team._replace(agents=team.agents[order], agent_present=team.agent_present[order])
    bare = TeamView(team.agents[:3], team.tasks[:3], team.agent_present[:3], team.task_present[:3])
    assert float(critic(moved)) == pytest.approx(float(critic(team)), abs=1e-5)
    assert float(critic(bare)) == pytest.approx(float(critic(team)), abs=1e-5)


def test_presence_hides_rows_and_columns():
    term = presence_term(jnp.array([True, False]), jnp.array([True, True, False]))
    np.testing.assert_array_equal(term, [[0, 0, -INFINITY], [-INFINITY] * 3])


def test_categorical_against_closed_forms():
    uniform = Categorical(jnp.array([0.0, 0.0, -INFINITY]))
    assert float(uniform.entropy()) == pytest.approx(np.log(2))
    assert float(uniform.log_probability(jnp.asarray(1))) == pytest.approx(-np.log(2))
    assert int(uniform.mode()) == 0
    drawn = jax.vmap(uniform.sample)(jax.random.split(jax.random.key(0), 1000))
    assert set(drawn.tolist()) == {0, 1}
    gradient = jax.grad(lambda x: Categorical(jnp.where(jnp.array([True, True, False]), x, -INFINITY)).entropy())
    assert bool(jnp.all(jnp.isfinite(gradient(jnp.array([0.3, 0.1, 0.0])))))


def test_gaussian_against_closed_forms():
    normal = Gaussian(jnp.array([1.0, -1.0]), jnp.log(jnp.array([1.0, 2.0])))
    expected = -np.log(2 * np.pi) - np.log(2) - 0.5 * (0.5**2)
    assert float(normal.log_probability(jnp.array([1.0, 0.0]))) == pytest.approx(expected, abs=1e-6)
    assert float(normal.entropy()) == pytest.approx(np.log(2 * np.pi * np.e) + np.log(2), abs=1e-6)
    drawn = np.asarray(jax.vmap(normal.sample)(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose(drawn.mean(0), [1, -1], atol=0.05)
    np.testing.assert_allclose(drawn.std(0), [1, 2], atol=0.05)
