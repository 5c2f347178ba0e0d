"""Methods that learn from what they keep: the replay buffer, targets worked by hand, and their whole way through."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.build import build_policy, interface_of
from diamond_attention.command_line import run_command
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.menu import Menu
from diamond_attention.distributions.squashed import Squashed
from diamond_attention.errors import UserError
from diamond_attention.learning.masac import MasacSettings
from diamond_attention.learning.off_policy import Kept, OffPolicyState, clipped, failed_part, kept_of, play_all
from diamond_attention.learning.qmix import QmixSettings, qmix_loss
from diamond_attention.learning.replay import add_rows, draw_places, empty_replay, rows_at
from diamond_attention.learning.sac import SacWeights, choice_losses, sac_loss
from diamond_attention.learning.seeds import advance_seeds, stack_seeds
from diamond_attention.policies.flat import FlatSettings, state_of
from diamond_attention.policies.joint_critics import JointCritic
from diamond_attention.policies.mat import MatSettings
from diamond_attention.policies.q_values import Mixer, QSettings, explored
from diamond_attention.policies.soft import SoftSettings
from diamond_attention.runs import memory
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
from diamond_attention.runs.memory import bytes_of, check_training_fits, training_bytes
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import resume, train
from diamond_attention.view import AgentView
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

XOR = Xor(max_agents=2, max_tasks=2)
SPREAD = Spread(max_agents=2, max_tasks=2)


# --- The replay buffer ----------------------------------------------------------------------------


def test_the_newest_rows_take_the_place_of_the_oldest():
    replay = empty_replay({"a": jnp.zeros(2), "b": jnp.zeros((), jnp.int32)}, 6)
    for start in (1, 3, 5, 7):  # eight rows into six places
        new = {
            "a": jnp.asarray([[start, start], [start + 1, start + 1]], float),
            "b": jnp.asarray([start, start + 1]),
        }
        replay = add_rows(replay, new)
    np.testing.assert_array_equal(replay.rows["b"], [7, 8, 3, 4, 5, 6])
    np.testing.assert_array_equal(replay.rows["a"][:, 0], [7, 8, 3, 4, 5, 6])
    assert (int(replay.filled), int(replay.next_place)) == (6, 2)
    np.testing.assert_array_equal(rows_at(replay, jnp.asarray([5, 0, 0]))["b"], [6, 7, 7])


def test_only_rows_that_are_there_are_drawn_and_all_of_them():
    replay = add_rows(empty_replay(jnp.zeros(()), 8), jnp.arange(4.0))
    assert set(np.asarray(draw_places(replay, jax.random.key(0), (200,))).tolist()) == {0, 1, 2, 3}
    assert set(np.asarray(draw_places(empty_replay(jnp.zeros(()), 8), jax.random.key(0), (9,))).tolist()) == {0}


def test_an_update_does_not_copy_the_buffer():
    """Neither the selection of failed seeds nor the look for numbers that are not finite goes through it."""
    temporary = []
    for places in (64, 64 * 4096):
        settings = tiny("masac", XOR, replay=places)
        states = jax.eval_shape(lambda s=settings: jax.tree.map(lambda x: x[None], begin_learning(s, 0)))
        program = advance_seeds(method_of(settings), build_learner(settings)).lower(states, 1).compile()
        temporary.append(program.memory_analysis().temp_size_in_bytes)
    assert temporary[1] < temporary[0] + 100_000, temporary


# --- Distributions --------------------------------------------------------------------------------


def test_a_squashed_distribution_is_one():
    """Its density adds up to one, its entropy is the mean of minus its logarithm, and both ways to it agree."""
    squashed = Squashed(jnp.asarray([0.3]), jnp.asarray([-0.5]))
    x = jnp.linspace(-0.9999, 0.9999, 20_001)
    density = jnp.exp(jax.vmap(lambda a: squashed.log_probability(a[None]))(x))
    assert float(jnp.trapezoid(density, x)) == pytest.approx(1.0, abs=1e-3)
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions, log_probability = jax.vmap(squashed.sample_with_log_probability)(keys)
    assert float(squashed.entropy()) == pytest.approx(-float(jnp.mean(log_probability)), abs=0.02)
    again = jax.vmap(squashed.log_probability)(actions)
    np.testing.assert_allclose(again, log_probability, atol=2e-3)
    assert float(squashed.mode()[0]) == pytest.approx(np.tanh(0.3))
    far = Squashed(jnp.asarray([40.0]), jnp.asarray([2.0]))
    assert np.isfinite(far.sample_with_log_probability(jax.random.key(1))[1])
    assert np.all(np.isfinite(jax.grad(lambda m: Squashed(m, far.log_std).entropy())(far.mean)))


def test_a_menu_is_a_choice_of_vectors():
    menu = Menu(Categorical(jnp.log(jnp.asarray([0.25, 0.75]))), jnp.asarray([[1.0, 0.0], [0.0, -1.0]]))
    np.testing.assert_array_equal(menu.mode(), [0.0, -1.0])
    assert float(menu.log_probability(jnp.asarray([1.0, 0.0]))) == pytest.approx(np.log(0.25))
    assert float(menu.entropy()) == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)))
    drawn = jax.vmap(menu.sample)(jax.random.split(jax.random.key(0), 2000))
    assert float(jnp.mean(drawn[:, 0])) == pytest.approx(0.25, abs=0.04)


def test_an_exploring_agent_takes_any_allowed_action_with_that_share():
    values, allowed = jnp.asarray([3.0, 1.0, 2.0, 9.0]), jnp.asarray([True, True, True, False])
    shares = jax.nn.softmax(explored(values, allowed, jnp.asarray(0.3)))
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1, 0.0], atol=1e-6)
    np.testing.assert_allclose(jax.nn.softmax(explored(values, allowed, jnp.asarray(0.0))), [1, 0, 0, 0], atol=1e-6)
    nothing_allowed = jax.nn.softmax(explored(values, jnp.zeros(4, bool), jnp.asarray(0.3)))
    assert np.all(np.isfinite(nothing_allowed))


# --- QMIX -----------------------------------------------------------------------------------------


def test_the_mixer_never_falls_when_an_agents_value_rises():
    mixer = Mixer(5, 3, 8, key=jax.random.key(0))
    for seed in range(20):
        values, state = jax.random.normal(jax.random.key(seed), (3,)), jax.random.normal(jax.random.key(-seed), (5,))
        assert np.all(np.asarray(jax.grad(mixer)(values, state)) >= 0)


def test_so_the_best_joint_action_is_everybodys_own_best():
    """All 27 joint actions of three agents with three actions each, in twenty states."""
    mixer = Mixer(4, 3, 8, key=jax.random.key(1))
    for seed in range(20):
        own = jax.random.normal(jax.random.key(seed), (3, 3))
        state = jax.random.normal(jax.random.key(100 + seed), (4,))
        joint = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3)
        of_team = jax.vmap(lambda a, own=own, state=state: mixer(own[jnp.arange(3), a], state))(jnp.asarray(joint))
        best = jnp.argmax(own, axis=1)
        assert float(jnp.max(of_team)) == pytest.approx(float(mixer(own[jnp.arange(3), best], state)), rel=1e-6)


def tiny(name: str, world, **changes) -> Settings:
    """One update of 4 teams × 2 steps and two minibatches of eight."""
    settings = with_method(Settings(world=world, agents="2", total_steps=6 * 8, checkpoint_every=2), name)
    numbers = {"envs": 4, "steps": 2, "gradient_steps": 2, "batch": 8, "replay": 16, "warmup": 8, **changes}
    policy = replace(settings.policy, width=8) if hasattr(settings.policy, "width") else settings.policy
    return replace(settings, policy=policy, method=replace(settings.method, **numbers))


def played(settings: Settings) -> tuple:
    """A learner, and eight steps that it would keep. Its slow copy differs, so that it matters who is asked."""
    learner, state = build_learner(settings), begin_learning(settings, 0)
    batch = jax.jit(lambda state, key: kept_of(play_all(learner, state, key)[1]))(state, jax.random.key(5))
    slow = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), state.slow)
    return learner, state._replace(slow=slow), batch


def test_qmix_targets_by_hand():
    """r + γ Q_slow(s', argmax of the weights' own values), and nothing after the end; spread has no end, XOR only."""
    settings = tiny("qmix", SPREAD, gamma=0.9, reward_scale=0.5)
    learner, state, batch = played(settings)
    slow = state.slow
    batch = batch._replace(terminated=jnp.arange(8) % 2 == 0)
    errors = []
    for i in range(8):
        step: Kept = jax.tree.map(lambda x, i=i: x[i], batch)
        own = jax.vmap(state.weights.policy.values)(step.next_views)
        theirs = jax.vmap(slow.policy.values)(step.next_views)
        best = np.argmax(np.asarray(own), axis=1)
        after = slow.mixer(theirs[jnp.arange(2), best], state_of(step.next_team_view))
        target = 0.5 * step.reward + (0.0 if i % 2 == 0 else 0.9) * after
        values = jax.vmap(state.weights.policy.values)(step.views)
        forces = np.asarray(state.weights.policy.entries)
        taken = [int(np.flatnonzero((forces == np.asarray(a)).all(axis=1))[0]) for a in step.actions]
        value = state.weights.mixer(values[jnp.arange(2), jnp.asarray(taken)], state_of(step.team_view))
        errors.append(float((value - target) ** 2))
    loss, _ = qmix_loss(learner, state.weights, slow, batch, jax.random.key(0))
    assert float(loss) == pytest.approx(np.mean(errors), rel=1e-4)


def test_on_continuous_worlds_qmix_chooses_among_nine_forces():
    policy = build_policy(SPREAD, QSettings(width=4), jax.random.key(0))
    assert sorted(policy.entries) == [(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)]
    chosen = policy.chosen(jnp.asarray(policy.entries))
    np.testing.assert_array_equal(chosen, np.arange(9))


def test_exploration_falls_and_stays():
    settings = tiny("qmix", XOR, explore_first=0.8, explore_last=0.2, explore_until=0.5)
    learner, state = build_learner(settings), begin_learning(settings, 0)
    update = jax.jit(lambda state: method_of(settings).update(learner, state)[0])
    shares = []
    for _ in range(6):
        state = update(state)
        shares.append(float(state.weights.policy.exploration))
    np.testing.assert_allclose(shares, [0.8, 0.6, 0.4, 0.2, 0.2, 0.2], atol=1e-6)


# --- Soft actor-critic ----------------------------------------------------------------------------


def test_soft_targets_and_the_price_of_randomness_by_hand_where_actions_are_choices():
    settings = tiny("masac", XOR, gamma=0.9, reward_scale=2.0, alpha=0.7, target_share=0.5)
    learner, state, batch = played(settings)
    weights, slow = state.weights, state.slow
    batch = batch._replace(terminated=jnp.arange(8) % 2 == 0)
    alpha = float(jnp.exp(weights.log_alpha))
    critic, actor, lacking = [], [], []
    for i in range(8):
        step: Kept = jax.tree.map(lambda x, i=i: x[i], batch)
        then = np.asarray(jax.nn.softmax(jax.vmap(lambda v: weights.policy(v)[0].logits)(step.next_views)))
        low = np.minimum(slow.first(step.next_views), slow.second(step.next_views))
        after = (then * (low - alpha * np.log(then))).sum(axis=1)
        target = 2.0 * float(step.reward) + (0.0 if i % 2 == 0 else 0.9) * after
        actions = np.asarray(step.actions)
        values = [
            np.asarray(one(step.views))[[0, 1], actions] for one in (weights.critics.first, weights.critics.second)
        ]
        critic.append(sum(np.mean((value - target) ** 2) for value in values))
        now = np.asarray(jax.nn.softmax(jax.vmap(lambda v: weights.policy(v)[0].logits)(step.views)))
        entropy = -(now * np.log(now)).sum(axis=1)
        low = np.minimum(weights.critics.first(step.views), weights.critics.second(step.views))
        actor.append(-np.mean((now * low).sum(axis=1) + alpha * entropy))
        lacking.append(np.mean(0.5 * np.log(2) - entropy))
    _, parts = sac_loss(learner, weights, slow, batch, jax.random.key(0))
    assert float(parts["critic_loss"]) == pytest.approx(np.mean(critic), rel=1e-4)
    assert float(parts["policy_loss"]) == pytest.approx(np.mean(actor), rel=1e-4)
    assert float(parts["lacking_entropy"]) == pytest.approx(np.mean(lacking), rel=1e-3, abs=1e-6)
    # Randomness lacks: the price rises. It gets too much: the price falls.
    gradient = jax.grad(lambda w: sac_loss(learner, w, slow, batch, jax.random.key(0))[0])(weights)
    assert float(gradient.log_alpha) == pytest.approx(-np.mean(lacking), rel=1e-3, abs=1e-6)


class Answering(eqx.Module):
    """A policy that answers every view alike, as far as its legal actions go."""

    logits: jax.Array

    def answers(self, views):
        return Categorical(jnp.where(views.legal_actions, self.logits, -jnp.inf))


class Valuing(eqx.Module):
    """Two critics that value every view alike."""

    values: jax.Array  # [twin, agent, action]

    def both(self, views):
        return self.values

    def lower(self, views):
        return jnp.min(self.values, axis=0)


def test_the_dead_have_one_choice_and_count_neither_for_the_policy_nor_for_its_randomness():
    """One team of two, the second dead: it may do nothing but nothing. The first has two actions left of three."""
    method = MasacSettings(gamma=0.5, reward_scale=1.0, target_share=0.5)
    legal = jnp.asarray([[[True, True, False], [True, False, False]]])
    rows, both = jnp.zeros((1, 2, 1, 1)), jnp.ones((1, 2, 1), bool)
    views = AgentView(rows, rows, both, both, jnp.zeros((1, 2, 1)), legal)
    reward, going, actions = jnp.ones(1), jnp.zeros(1, bool), jnp.asarray([[1, 0]])
    batch = Kept(views, None, actions, reward, going, views, None)
    critics = Valuing(jnp.asarray([[[1.0, 2, 9], [5, 9, 9]], [[2, 0, 9], [3, 9, 9]]]))
    slow = Valuing(jnp.stack([jnp.asarray([[4.0, 8, 99], [6, 99, 99]])] * 2))
    logits = jnp.log(jnp.asarray([[3.0, 1, 1], [7, 1, 1]]))
    weights = SacWeights(Answering(logits), critics, jnp.log(2.0))

    # The first chooses 3/4 and 1/4, whose entropy is 0.5623; the second has no choice, so 1 and no entropy.
    # What follows is worth 3/4 · 4 + 1/4 · 8 + 2 · 0.5623 = 6.1247 to the first, and 6 to the second.
    # Targets are 1 + half of that: 4.0623 and 4. The twins said 2 and 5, and 0 and 3.
    critic, actor, lacking, value = choice_losses(method, weights, slow, batch, jax.random.key(0))
    by_twin = [((2 - 4.062335) ** 2 + (5 - 4) ** 2) / 2, ((0 - 4.062335) ** 2 + (3 - 4) ** 2) / 2]
    assert float(critic) == pytest.approx(sum(by_twin), rel=1e-5)
    assert float(value) == 2.5
    # Of the first alone: 3/4 · 1 + 1/4 · 0 + 2 · 0.5623, and half of log 2 less 0.5623.
    assert float(actor) == pytest.approx(-(0.75 + 2 * 0.562335), rel=1e-5)
    assert float(lacking) == pytest.approx(0.5 * np.log(2) - 0.562335, rel=1e-4)

    def policy_loss(policy):
        return choice_losses(method, weights._replace(policy=policy), slow, batch, jax.random.key(0))[1]

    gradient = jax.grad(policy_loss)(weights.policy).logits
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(np.asarray(gradient) != 0, [[True, True, False], [False] * 3])


def test_a_team_of_which_all_are_dead_teaches_its_policy_nothing():
    legal = jnp.asarray([[[True, False]]])
    rows, there = jnp.zeros((1, 1, 1, 1)), jnp.ones((1, 1, 1), bool)
    views = AgentView(rows, rows, there, there, jnp.zeros((1, 1, 1)), legal)
    batch = Kept(views, None, jnp.zeros((1, 1), int), jnp.ones(1), jnp.ones(1, bool), views, None)
    twins = Valuing(jnp.ones((2, 1, 2)))
    weights = SacWeights(Answering(jnp.zeros((1, 2))), twins, jnp.zeros(()))
    critic, actor, lacking, _ = choice_losses(MasacSettings(), weights, twins, batch, jax.random.key(0))
    assert (float(critic), float(actor), float(lacking)) == (0.0, 0.0, 0.0)  # the end, worth 1, as was said


@pytest.mark.parametrize("team", ["mean", "sum"])
def test_soft_targets_by_hand_where_actions_are_continuous(team):
    """A policy that answers the same to every view."""
    settings = tiny("masac", SPREAD, gamma=0.9, reward_scale=1.0, team=team, alpha=0.2, target_entropy=-1.5)
    learner, state, batch = played(settings)

    weights, slow = state.weights, state.slow
    policy = weights.policy
    last = policy.layers.layers[-1]
    bias = jnp.asarray([0.2, -0.4, -8.0, -8.0])  # tanh(−8) = −1: the narrowest, e⁻⁵
    policy = eqx.tree_at(
        lambda p: (p.layers.layers[-1].weight, p.layers.layers[-1].bias), policy, (0 * last.weight, bias)
    )
    weights = weights._replace(policy=policy)
    alpha = float(jnp.exp(weights.log_alpha))
    own = Squashed(jnp.asarray([0.2, -0.4]), jnp.full(2, -5.0))

    def drawn(key):
        """Every agent's action and the team's log-probability, from the keys that the loss will use."""
        keys = jax.vmap(lambda k: jax.random.split(k, 2))(jax.random.split(key, 8))
        actions, log_probability = jax.vmap(jax.vmap(own.sample_with_log_probability))(keys)
        return actions, jnp.sum(log_probability, axis=1) / (1 if team == "sum" else 2)

    now_key, then_key = jax.random.split(jax.random.key(0))
    then, of_team = drawn(then_key)
    low = jnp.minimum(jax.vmap(slow.first)(batch.next_views, then), jax.vmap(slow.second)(batch.next_views, then))
    target = batch.reward + 0.9 * (low - alpha * of_team)
    critics = (weights.critics.first, weights.critics.second)
    values = [jax.vmap(one)(batch.views, batch.actions) for one in critics]
    expected = sum(float(jnp.mean((value - target) ** 2)) for value in values)
    _, parts = sac_loss(learner, weights, slow, batch, jax.random.key(0))
    assert float(parts["critic_loss"]) == pytest.approx(expected, rel=1e-3)
    actions, of_team = drawn(now_key)
    low = jnp.minimum(*(jax.vmap(one)(batch.views, actions) for one in critics))
    assert float(parts["policy_loss"]) == pytest.approx(float(jnp.mean(alpha * of_team - low)), rel=1e-3)
    assert float(parts["lacking_entropy"]) == pytest.approx(float(-1.5 * 2 + jnp.mean(of_team)), rel=1e-3)


def test_each_loss_reaches_its_own_weights_only():
    settings = tiny("masac", SPREAD)
    learner, state, batch = played(settings)

    def part(name):
        return jax.grad(lambda w: sac_loss(learner, w, state.slow, batch, jax.random.key(0))[1][name])(state.weights)

    def reached(tree):
        return float(sum(jnp.abs(x).sum() for x in jax.tree.leaves(tree))) > 0

    critic, actor = part("critic_loss"), part("policy_loss")
    assert (reached(critic.policy), reached(critic.critics), float(critic.log_alpha)) == (False, True, 0.0)
    assert (reached(actor.policy), reached(actor.critics), float(actor.log_alpha)) == (True, False, 0.0)


def test_a_critic_as_published_for_ph_marl_has_as_many_parameters():
    """Widths 2m, m, m/N for m inputs: 27,481 where four agents see 18 numbers and do two."""
    from diamond_attention.learning.ph_marl import pyramid
    from diamond_attention.policies.layers import Layers

    inputs = 4 * (18 + 2)
    layers = Layers([inputs, *pyramid(inputs, 4), 1], key=jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(layers)) == 27_481
    interface = interface_of(SPREAD)
    critic = JointCritic(interface, pyramid, key=jax.random.key(0))
    assert critic.layers.layers[0].weight.shape[1] == 2 * (2 * 6 + 2 * 3 + 2)


def test_a_policy_that_cannot_be_learned_so_is_refused_in_a_sentence():
    for name, policy in (("masac", FlatSettings()), ("masac", MatSettings()), ("masac", QSettings())):
        with pytest.raises(UserError, match=rf"policy\.kind is {policy.kind}, and method masac learns kinds whose"):
            begin_learning(replace(tiny(name, SPREAD), policy=policy), 0)
    with pytest.raises(UserError, match=r"policy\.kind is soft, and method qmix learns values of actions"):
        begin_learning(replace(tiny("qmix", SPREAD), policy=SoftSettings()), 0)


def test_gradients_are_clipped_each_part_by_itself():
    class Parts(NamedTuple):
        policy: dict
        critics: jax.Array

    gradient = Parts({"a": jnp.asarray([3.0]), "b": jnp.asarray([4.0])}, jnp.asarray([0.0, 0.5]))
    policy, critics = clipped(gradient, 1.0)
    np.testing.assert_allclose([policy["a"][0], policy["b"][0]], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(critics, [0.0, 0.5])


# --- Exact, safe, refused -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "left out"])
def test_a_run_stopped_and_resumed_is_the_same_to_the_bit_if_its_replay_is_kept(keep, tmp_path):
    settings = tiny("masac", XOR, keep_replay=keep)
    (straight,) = train(settings, [0], tmp_path / "straight")
    (run,) = train(settings, [0], tmp_path / "group")
    (run.path / "finished.json").unlink()
    (run.checkpoints / "step_48").rename(tmp_path / "gone")
    (again,) = resume(tmp_path / "group")
    ours, theirs = ((r.checkpoints / "step_48" / "state.safetensors").read_bytes() for r in (again, straight))
    assert (ours == theirs) == keep
    assert (b'"replay.rows' in ours[:10_000]) == keep


def test_a_resumed_run_without_its_replay_fills_one_before_it_learns(tmp_path):
    settings = tiny("qmix", XOR, keep_replay=False, warmup=16)
    (run,) = train(settings, [0], tmp_path / "group")
    (run.path / "finished.json").unlink()
    (run.checkpoints / "step_48").rename(tmp_path / "gone")
    resume(tmp_path / "group")
    rows = (run.path / "metrics.csv").read_text().splitlines()
    kept = rows[0].split(",").index("kept")
    assert [int(row.split(",")[kept]) for row in rows[1:]] == [8, 16, 16, 16, 8, 16]


def test_what_is_not_finite_is_not_kept_and_the_seed_stops_with_its_name():
    settings = tiny("masac", SPREAD)
    learner, state = build_learner(settings), begin_learning(settings, 0)
    broken = state._replace(weights=state.weights._replace(log_alpha=jnp.asarray(jnp.nan)))
    advance = advance_seeds(method_of(settings), learner)
    after, _ = advance(stack_seeds([state, broken]), 1)
    assert int(after.failure[0]) == 0
    failure = int(after.failure[1])
    assert failure != 0
    assert failed_part(state, failure) in ("loss", "gradient.policy.layers.layers[0].weight")
    odd = state.teams.world._replace(positions=state.teams.world.positions.at[0, 0, 0].set(jnp.inf))
    after, _ = advance(stack_seeds([state._replace(teams=state.teams._replace(world=odd))]), 1)
    assert failed_part(state, int(after.failure[0])).startswith("view.")


def test_a_buffer_that_does_not_fit_the_device_is_refused_in_a_sentence(monkeypatch):
    settings = tiny("masac", XOR)
    needed = training_bytes(settings)
    assert needed > bytes_of(begin_learning(settings, 0).replay)
    monkeypatch.setattr(memory, "device_bytes", lambda: needed - 1)
    with pytest.raises(UserError, match=r"this training needs at least .* masac\.replay 16, masac\.envs 4"):
        check_training_fits(settings, [0])


def test_wrong_numbers_are_one_sentence():
    with pytest.raises(
        UserError, match=r"masac\.replay is 100, which is not a multiple of the 64 steps of an update"
    ):
        MasacSettings(replay=100)
    with pytest.raises(UserError, match=r"qmix\.warmup is 1000, and qmix\.replay keeps 640 steps; lower it"):
        QmixSettings(replay=640, warmup=1000)
    with pytest.raises(UserError, match=r"masac\.team is 'some'; it must be one of mean, sum"):
        MasacSettings(team="some")


def test_an_option_of_a_method_with_a_hyphen_in_its_name(capsys):
    assert run_command(["show", "xor-demo", "--method", "ph-marl", "--ph-marl.tau", "0.5"]) == 0
    assert "ph-marl.tau = 0.5" in capsys.readouterr().out
    assert run_command(["train", "xor-demo", "--method", "ph-marl", "--ph-marl.tau", "2"]) == 2
    assert "ph-marl.tau" in capsys.readouterr().err


def test_the_state_says_what_it_keeps():
    state = begin_learning(tiny("qmix", XOR), 0)
    assert isinstance(state, OffPolicyState)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(state.replay.rows)} == {16}
