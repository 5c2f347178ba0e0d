"""Advantages and PPO against closed forms, and the learning results the whole project rests on."""

import dataclasses
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.actions import ChooseTask
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.advantages import generalised_advantages
from diamond_attention.learning.ppo import PpoState, Weights, computing_in, ppo_loss, update
from diamond_attention.learning.ppo_method import failed_part
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.rollout import Experience, collect
from diamond_attention.learning.value_scale import ValueScale, follow_values
from diamond_attention.play import TeamState, begin_episode
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.assemble import begin_learning, build_learner, shape_of_learner
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import _on_device, train
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.contract import TeamSize, Transition, World
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor, chance_level

TINY = Settings(
    world=Xor(),
    policy=DiamondSettings(width=8),
    ppo=PpoSettings(envs=8, steps=2, batch=16, epochs=8, learning_rate=3e-3, target_kl=1e-3),
    total_steps=160,
)


@cache
def begun() -> PpoState:
    return begin_learning(TINY, 0)


@cache
def update_of(settings: Settings):
    """One compiled program for each settings: compiling one takes longer than all that the tests do with it."""
    learner = build_learner(settings)
    return jax.jit(lambda state: update(learner, state))


def advantages(reward, value, next_value, terminated=None, truncated=None, gamma=0.9, gae_lambda=0.8):
    never = jnp.zeros(len(reward), bool)
    return generalised_advantages(
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(value, jnp.float32),
        jnp.asarray(next_value, jnp.float32),
        never if terminated is None else jnp.asarray(terminated),
        never if truncated is None else jnp.asarray(truncated),
        gamma,
        gae_lambda,
    )


@pytest.mark.optimised
def test_advantages_of_a_constant_reward_are_a_geometric_sum():
    """Zero values and reward 1: A_t = sum of (γλ)^i over the steps that are left."""
    found = advantages([1.0] * 10, [0.0] * 10, [0.0] * 10)
    expected = [(1 - 0.72 ** (10 - t)) / (1 - 0.72) for t in range(10)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.optimised
def test_with_lambda_one_advantages_are_returns_minus_values():
    reward, value = [1.0, 2.0, 3.0], [0.5, 0.25, 0.125]
    found = advantages(reward, value, [0.25, 0.125, 9.0], [False, False, True], gae_lambda=1.0)
    returns = [1 + 0.9 * 2 + 0.81 * 3, 2 + 0.9 * 3, 3]
    np.testing.assert_allclose(found, np.subtract(returns, value), rtol=1e-5)


@pytest.mark.optimised
def test_a_true_value_function_leaves_no_advantage_at_a_time_limit():
    """Reward 1 for ever is worth 1/(1-γ). Cut by a time limit the advantage is zero; ended, it is -γV."""
    value = 1 / (1 - 0.9)
    rows = {"reward": [1.0] * 3, "value": [value] * 3, "next_value": [value] * 3}
    cut = advantages(**rows, truncated=[False, False, True])
    np.testing.assert_allclose(cut, [0, 0, 0], atol=1e-5)
    ended = advantages(**rows, terminated=[False, False, True])
    assert float(ended[2]) == pytest.approx(-0.9 * value, rel=1e-5)


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_no_advantage_crosses_the_end_of_an_episode(how):
    ends = {how: [False, True, False, False]}
    before = advantages([0, 0, 0, 0], [0] * 4, [0] * 4, **ends)
    after = advantages([0, 0, 100, 100], [0] * 4, [0] * 4, **ends)
    np.testing.assert_array_equal(before[:2], after[:2])
    assert float(after[2]) == pytest.approx(100 + 0.9 * 0.8 * 100)


@pytest.mark.parametrize(
    "mask",
    [pytest.param("rank", marks=pytest.mark.optimised), "none", "dropout", "signed", "floor", "first", "split"],
)
def test_the_first_ratio_is_one(mask):
    """Ranks and dropout masks are data: asked the same question again, the policy gives the same answer."""
    settings = dataclasses.replace(TINY, policy=DiamondSettings(width=8, mask=mask))
    learner = build_learner(settings)
    # Whatever the weights are; to begin each mask's own takes longer than the rest of the test.
    draw = np.random.default_rng(0).standard_normal
    weights = jax.tree.map(lambda x: jnp.asarray(0.3 * draw(x.shape), x.dtype), shape_of_learner(settings).weights)
    state = begun()._replace(weights=weights)

    @jax.jit
    def first_loss(state):
        _, experience = jax.vmap(
            lambda team, key: collect(learner.world, jnp.asarray(learner.sizes), *state.weights, team, key, 2, 1, 1)
        )(state.teams, jax.random.split(jax.random.key(1), 8))
        flat = jax.tree.map(lambda x: x.reshape(16, *x.shape[2:]), experience)
        gain = jnp.arange(16.0)
        again = jax.vmap(jax.vmap(lambda v, a: state.weights.policy(v)[0].log_probability(a)))(
            flat.views, flat.actions
        )
        parts = [
            ppo_loss(dataclasses.replace(settings.ppo, ratio=ratio), state.weights, flat, gain, gain)[1]
            for ratio in ("joint", "agent")
        ]
        return flat.log_probability, again, parts

    before, again, (joint, agent) = first_loss(state)
    np.testing.assert_allclose(again, before, rtol=1e-6, atol=1e-6)
    for parts in (joint, agent):
        assert float(parts["kl"]) == pytest.approx(0, abs=1e-7)
        assert float(parts["clip_fraction"]) == 0


def test_the_joint_ratio_is_the_product_of_the_agents_own():
    """Two agents whose probabilities double: jointly 4, each 2; clipped at 1.2 either way."""
    settings = PpoSettings(envs=2, steps=1, batch=2, normalise_advantages=False, value_coefficient=0.0)
    learner = build_learner(TINY)

    @jax.jit
    def policy_losses(state):
        _, experience = jax.vmap(
            lambda team, key: collect(learner.world, jnp.asarray(learner.sizes), *state.weights, team, key, 1, 1, 1)
        )(jax.tree.map(lambda x: x[:2], state.teams), jax.random.split(jax.random.key(1), 2))
        flat = jax.tree.map(lambda x: x.reshape(2, *x.shape[2:]), experience)
        halved = flat._replace(log_probability=flat.log_probability - jnp.log(2.0))
        up, down = jnp.ones(2), -jnp.ones(2)
        return {
            ratio: [
                ppo_loss(dataclasses.replace(settings, ratio=ratio), state.weights, halved, gain, up)[1][
                    "policy_loss"
                ]
                for gain in (up, down)
            ]
            for ratio in ("joint", "agent")
        }

    losses = policy_losses(begun())
    for ratio, size in (("joint", 4.0), ("agent", 2.0)):
        # A gain is clipped at 1.2; a loss is not clipped from above: min(-ratio, -1.2).
        np.testing.assert_allclose(losses[ratio], [-1.2, size], rtol=1e-4)


def test_updates_stop_once_the_policy_has_moved_too_far():
    _, metrics = update_of(TINY)(begun())
    assert 1 <= int(metrics["minibatches"]) < 8
    # Past its last update the learning rate is zero, which leads nowhere.
    _, metrics = update_of(TINY)(begun()._replace(update=jnp.asarray(TINY.total_updates)))
    assert int(metrics["minibatches"]) == 8


def test_the_learning_rate_anneals_to_zero():
    state, rates = begun(), []
    for _ in range(TINY.total_updates):
        state, metrics = update_of(TINY)(state)
        rates.append(float(metrics["learning_rate"]))
    np.testing.assert_allclose(rates, 3e-3 * (1 - np.arange(10) / 10), rtol=1e-5)


def test_failure_numbers_name_their_tensors():
    state = begun()
    weights = state.weights
    assert failed_part(state, 6) == "reward"
    assert failed_part(state, 7) == "loss"
    first_leaf = jax.tree.leaves(weights)[0].size
    assert failed_part(state, 8) == failed_part(state, 7 + first_leaf)
    assert failed_part(state, 8) == "gradient.policy.embed_agent.first.weight"
    assert failed_part(state, 8 + first_leaf) == "gradient.policy.embed_agent.first.bias"


class Clock(NamedTuple):
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Waiting(World):
    """Reward 1 every step, cut after three: the value of an endless task must not sink at the cut."""

    max_agents: int = 1
    max_tasks: int = 1
    name = "waiting"
    time_limit = 3
    action_kind = ChooseTask()

    def reset(self, key, size: TeamSize):
        return Clock(jnp.zeros((), jnp.int32))

    def step(self, state, actions, key):
        return Transition(Clock(state.time + 1), jnp.ones(()), jnp.asarray(False), {"success": jnp.ones(())})

    def views(self, state, ranks):
        return AgentView(
            jnp.ones((1, 1, 1)),
            jnp.ones((1, 1, 1)),
            jnp.ones((1, 1), bool),
            jnp.ones((1, 1), bool),
            as_each_viewer_lists(ranks),
        )

    def team_view(self, state):
        return TeamView(jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones(1, bool), jnp.ones(1, bool))


WAITING = Settings(
    world=Waiting(), agents="1", policy=DiamondSettings(width=8), ppo=PpoSettings(envs=64, steps=2, batch=128)
)


@partial(jax.jit, static_argnums=2)
def waited(weights: Weights, team: TeamState, cut_after: int | None = None) -> Experience:
    length = dataclasses.replace(WAITING.ppo, cut_after=cut_after).episode_steps(WAITING.world)
    return collect(WAITING.world, jnp.array([[1, 1]]), *weights, team, jax.random.key(0), 7, 1, length)[1]


def begin_waiting(cut_at: int | None = None) -> tuple[Weights, TeamState]:
    team = begin_episode(WAITING.world, jnp.array([[1, 1]]), jax.random.key(0), cut_at)
    return begin_learning(WAITING, 0).weights, team


def test_a_time_limit_is_truncation_and_episodes_restart():
    experience = waited(*begin_waiting())
    assert experience.truncated.tolist() == [False, False, True, False, False, True, False]
    assert not bool(experience.terminated.any())
    assert experience.finished_return.tolist() == [0, 0, 3, 0, 0, 3, 0]


def test_a_first_episode_cut_short_is_truncated_but_not_reported():
    experience = waited(*begin_waiting(cut_at=1))
    assert experience.truncated.tolist() == [True, False, False, True, False, False, True]
    assert experience.finished_return.tolist() == [0, 0, 0, 3, 0, 0, 3]


def test_training_episodes_may_be_cut_before_the_worlds_limit():
    experience = waited(*begin_waiting(cut_at=2), 2)
    assert experience.truncated.tolist() == [False, True, False, True, False, True, False]
    assert experience.finished_return.tolist() == [0, 2, 0, 2, 0, 2, 0]


def test_teams_begin_out_of_phase():
    assert set(begin_learning(WAITING, 0).teams.cut_at.tolist()) == {1, 2, 3}


def test_in_half_precision_the_policy_says_nearly_the_same_and_learns_in_full():
    settings = dataclasses.replace(TINY, world=Spread(), agents="4")
    state = begin_learning(settings, 0)
    team = jax.tree.map(lambda x: x[0], state.teams)
    views = settings.world.views(team.world, draw_ranks(jax.random.key(1), 4))
    full, half = jax.jit(
        lambda policy: [jax.vmap(computing_in(precision, policy))(views)[0] for precision in ("float32", "bfloat16")]
    )(state.weights.policy)
    assert half.mean.dtype == jnp.float32
    assert not np.array_equal(half.mean, full.mean)
    np.testing.assert_allclose(half.mean, full.mean, atol=0.1 * float(jnp.abs(full.mean).max()))
    halved = dataclasses.replace(settings, ppo=dataclasses.replace(settings.ppo, precision="bfloat16"))
    after, _ = update_of(halved)(state)
    assert {x.dtype for x in jax.tree.leaves(after.weights)} == {jnp.dtype("float32")}
    assert int(after.failure) == 0


def test_following_the_values_changes_no_value():
    """The critic's last layer is corrected for the new scale, so what it says about any state stays the same."""
    weights = begin_learning(WAITING, 0).weights
    view = WAITING.world.team_view(None)
    value_of = jax.jit(lambda critic: critic(view))
    scale = ValueScale(*jnp.array([0.3, 2.0, 0.5]))
    targets = jnp.array([-900.0, -700.0, -100.0])
    follow = jax.jit(follow_values)
    moved_critic, moved = follow(weights.critic, scale, targets)
    values = []
    for critic, by in ((weights.critic, scale), (moved_critic, moved)):
        centre, deviation = by.centre_and_deviation()
        values.append(float(centre + deviation * value_of(critic)))
    np.testing.assert_allclose(values[1], values[0], atol=1e-3)  # of values in the hundreds
    # Debiased: after one update from nothing the scale is that of the targets alone.
    centre, deviation = follow(weights.critic, ValueScale(*jnp.zeros(3)), targets)[1].centre_and_deviation()
    np.testing.assert_allclose([centre, deviation], [np.mean(targets), np.std(targets)], rtol=1e-5)


# Normalised, a step of the critic is a share of the values' deviation, here 0.2: as quick only with larger steps.
@pytest.mark.parametrize(("normalise_values", "learning_rate"), [(False, 3e-3), (True, 1e-2)])
def test_the_critic_of_an_endless_task_learns_its_endless_value(normalise_values, learning_rate):
    """With truncation bootstrapped the value tends to 1/(1-γ) = 2; learned as death it would stay near 1.2."""
    settings = Settings(
        world=Waiting(),
        agents="1",
        policy=DiamondSettings(width=8),
        ppo=PpoSettings(
            envs=8,
            steps=12,
            batch=96,
            epochs=4,
            gamma=0.5,
            learning_rate=learning_rate,
            normalise_advantages=False,
            normalise_values=normalise_values,
        ),
        total_steps=96 * 300,
    )
    state = begin_learning(settings, 0)
    for _ in range(300):
        state, _ = update_of(settings)(state)
    value = jax.jit(lambda critic: critic(WAITING.world.team_view(None)))(state.weights.critic)
    if state.value_scale is not None:
        centre, deviation = state.value_scale.centre_and_deviation()
        value = centre + deviation * value
    assert float(value) == pytest.approx(2.0, abs=0.05)


def test_several_sizes_train_in_one_run():
    settings = dataclasses.replace(
        TINY, agents="2:3", tasks="3", ppo=dataclasses.replace(TINY.ppo, envs=64, batch=128)
    )
    assert settings.sizes == (TeamSize(2, 3), TeamSize(3, 3))
    state = begin_learning(settings, 0)
    assert set(np.asarray(state.teams.world.players).tolist()) == {2, 3}


def test_contradicting_settings_are_refused():
    with pytest.raises(UserError, match="does not divide"):
        PpoSettings(envs=3, steps=2, batch=4)
    with pytest.raises(UserError, match="gamma"):
        PpoSettings(gamma=1.5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """With some mask on XOR n=k=2, two seeds, with the demo's settings; trained when first asked for."""
    folder = tmp_path_factory.mktemp("learns")
    preset = dataclasses.replace(PRESETS["xor-demo"][1], total_steps=32_000)

    @cache
    def with_mask(mask):
        settings = dataclasses.replace(preset, policy=dataclasses.replace(preset.policy, mask=mask))
        return train(settings, [0, 1], folder / mask, preset="xor-demo")

    return with_mask


def success_of(run, play):
    return np.mean([row["success"] for row in evaluate(run, episodes=4000, play=(play,))])


@pytest.mark.long
@pytest.mark.optimised
def test_the_rank_mask_learns_xor(trained):
    for run in trained("rank"):
        assert success_of(run, "greedy") >= 0.999
        assert success_of(run, "sampled") >= 0.99


@pytest.mark.long
def test_no_mask_stays_on_the_floor(trained):
    for run in trained("none"):
        assert success_of(run, "greedy") == 0.0
        assert success_of(run, "sampled") <= chance_level(2, 2) + 0.03


def test_running_out_of_device_memory_names_the_settings_to_lower():
    def full():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    with pytest.raises(UserError, match=r"ppo\.envs 8.*ppo\.batch.*policy\.width.*seeds"):
        _on_device(full, TINY)


def test_ties_between_ranks_are_as_rare_as_the_docs_say():
    """23 random bits: with 2^16 numbers about 2^32 / 2 / 2^23 = 256 pairs are equal."""
    numbers = np.asarray(draw_ranks(jax.random.key(3), 2**16))
    equal = 2**16 - len(np.unique(numbers))
    assert 180 < equal < 340


def test_weights_are_what_gradients_reach():
    state = begun()
    after, _ = update_of(TINY)(state)
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), state.weights, after.weights)
    still = [jax.tree_util.keystr(p) for p, changed in jax.tree_util.tree_leaves_with_path(moved) if not changed]
    # A bias that only adds a constant to all logits has no gradient; every weight matrix must have moved.
    assert not [name for name in still if "weight" in name], still
