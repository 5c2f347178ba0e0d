"""Live against VMAS; runs only where the `vmas` extra is installed."""

import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# A submodule: this folder's own name must not pass for the package.
pytest.importorskip("vmas.simulator.environment")

import torch
import vmas
from vmas.simulator.environment import Environment

from diamond_attention.evaluation import oracles, vmas_bridge
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread


@pytest.mark.parametrize("agents", [1, 2, 4, 8, 16])
def test_a_step_from_any_state_is_vmas_own(agents):
    generator = np.random.default_rng(agents)
    shape = (256, agents, 2)
    positions = generator.uniform(-0.6, 0.6, shape).astype(np.float32)
    velocities = generator.normal(0, 0.5, shape).astype(np.float32)
    landmarks = generator.uniform(-1, 1, shape).astype(np.float32)
    actions = generator.uniform(-1.3, 1.3, shape).astype(np.float32)
    theirs = vmas_bridge.step(positions, velocities, landmarks, actions)

    world = Spread(max_agents=agents, max_tasks=agents)
    present = jnp.ones(shape[:2], bool)
    state = Particles(jnp.asarray(positions), jnp.asarray(velocities), jnp.asarray(landmarks), present, present)
    ours = jax.jit(jax.vmap(world.step))(state, jnp.asarray(actions), jax.random.split(jax.random.key(0), 256))
    np.testing.assert_allclose(ours.state.positions, theirs.positions, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.state.velocities, theirs.velocities, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=1e-5, atol=1e-5)


def heaps(environment, step, generator):
    """Everybody into one heap for 15 steps, then apart for 5, with noise: contacts never stop."""
    positions = np.asarray(vmas_bridge.state_of(environment).positions)
    towards = np.clip(4 * (positions.mean(axis=1, keepdims=True) - positions), -1, 1)
    towards *= 1 if step % 20 < 15 else -1
    return (towards + generator.normal(0, 0.5, towards.shape)).astype(np.float32)


@pytest.mark.parametrize("world", [Spread(), Food(collection_reward=0.0)], ids=["spread", "food"])
@pytest.mark.parametrize("agents", [2, 4, 8, 16])
def test_two_hundred_steps_of_collisions_each_from_vmas_own_state(agents, world):
    """Food Collection shares the physics and, with foods where VMAS has landmarks, all of the reward but food."""
    world = replace(world, max_agents=agents, max_tasks=agents)
    episodes = 4
    environment = vmas.make_env(
        "simple_spread", num_envs=episodes, device="cpu", clamp_actions=True, n_agents=agents, seed=agents
    )
    step = jax.jit(jax.vmap(world.step))
    keys = jax.random.split(jax.random.key(0), episodes)
    generator = np.random.default_rng(agents)
    steps_with_contact = 0
    for number in range(200):
        before = vmas_bridge.state_of(environment)
        actions = heaps(environment, number, generator)
        _, rewards, _, _ = environment.step([torch.tensor(actions[:, index]) for index in range(agents)])
        after = vmas_bridge.state_of(environment)
        ours = step(before, jnp.asarray(actions), keys)
        np.testing.assert_allclose(ours.state.positions, after.positions, rtol=0, atol=1e-5)
        np.testing.assert_allclose(ours.state.velocities, after.velocities, rtol=0, atol=1e-5)
        places = np.asarray(after.positions)
        distances = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
        steps_with_contact += ((distances < 0.3).sum(axis=(1, 2)) > agents).mean()
        # A pair within rounding of touching may count for one simulator and not for the other.
        clear = np.abs(distances - 0.3).min(axis=(1, 2)) > 2e-6
        # VMAS subtracts N² distances one after another in float32; hence relative.
        np.testing.assert_allclose(ours.reward[clear], rewards[0].numpy()[clear], rtol=1e-5, atol=1e-5)
    assert steps_with_contact >= 30


def test_food_under_an_agent_does_not_push_it():
    """Foods right where the agents are: the step is VMAS's with its landmarks far away."""
    generator = np.random.default_rng(0)
    positions = generator.uniform(-0.5, 0.5, (64, 4, 2)).astype(np.float32)
    velocities = generator.normal(0, 0.5, (64, 4, 2)).astype(np.float32)
    actions = generator.uniform(-1, 1, (64, 4, 2)).astype(np.float32)
    theirs = vmas_bridge.step(positions, velocities, np.full((64, 4, 2), 50.0, np.float32), actions)
    present = jnp.ones((64, 4), bool)
    state = Particles(jnp.asarray(positions), jnp.asarray(velocities), jnp.asarray(positions), present, present)
    ours = jax.jit(jax.vmap(Food(max_agents=4, max_tasks=4).step))(
        state, jnp.asarray(actions), jax.random.split(jax.random.key(0), 64)
    )
    assert float(ours.measures["collections"].sum()) > 0
    np.testing.assert_allclose(ours.state.positions, theirs.positions, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.state.velocities, theirs.velocities, rtol=0, atol=1e-5)


def test_a_whole_episode_without_contact_stays_together():
    """400 steps from VMAS's own start, both simulators running freely."""
    environment = vmas.make_env("simple_spread", num_envs=8, device="cpu", clamp_actions=True, n_agents=1, seed=3)
    world = Spread(max_agents=1, max_tasks=1)
    step = jax.jit(jax.vmap(world.step))
    state = vmas_bridge.state_of(environment)
    generator = np.random.default_rng(0)
    for _ in range(400):
        actions = generator.uniform(-1, 1, (8, 1, 2)).astype(np.float32)
        _, rewards, _, _ = environment.step([torch.tensor(actions[:, 0])])
        transition = step(state, jnp.asarray(actions), jax.random.split(jax.random.key(0), 8))
        state = transition.state
        np.testing.assert_allclose(transition.reward, rewards[0], rtol=1e-4, atol=1e-4)


def test_views_are_those_of_our_world():
    environment = vmas.make_env("simple_spread", num_envs=2, device="cpu", n_agents=3)
    observation = environment.reset(seed=0)[1].numpy()  # of agent 1: own 4, landmarks 6, others 4
    views = jax.vmap(Spread(max_agents=3, max_tasks=3).views)(vmas_bridge.state_of(environment), jnp.zeros((2, 3)))
    np.testing.assert_allclose(views.agents[:, 1, 0, :4], observation[:, :4], atol=1e-6)
    np.testing.assert_allclose(views.tasks[:, 1].reshape(2, 6), observation[:, 4:10], atol=1e-6)
    np.testing.assert_allclose(views.agents[:, 1, 1:, :2].reshape(2, 4), observation[:, 10:], atol=1e-6)


def test_the_seed_gives_vmas_own_starts():
    seen = []
    vmas_bridge.roll_out(
        lambda state, step: seen.append(state) or jnp.zeros((4, 3, 2)), agents=3, episodes=4, seed=11, steps=1
    )
    expected = vmas.make_env("simple_spread", num_envs=4, device="cpu", n_agents=3, seed=11)
    np.testing.assert_array_equal(seen[0].positions, vmas_bridge.state_of(expected).positions)
    np.testing.assert_array_equal(seen[0].tasks, vmas_bridge.state_of(expected).tasks)


class StopEpisodeError(Exception):
    pass


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_elses_randomness_is_touched(fails):
    def fail(state, step):
        if step == 3:
            # As VMAS leaves things when its step raises: the global streams swapped.
            torch.manual_seed(0)
            np.random.seed(0)
            random.seed(0)
            raise StopEpisodeError
        return jnp.zeros((2, 2, 2))

    def numbers():
        return torch.rand(3).tolist(), np.random.rand(3).tolist(), [random.random() for _ in range(3)]

    def run(between):
        torch.manual_seed(7), np.random.seed(7), random.seed(7)
        other = vmas.make_env("simple_spread", num_envs=2, device="cpu", n_agents=2, seed=7)
        other.reset()
        between()
        starts = other.reset()[0].tolist()
        return starts, numbers()

    def between():
        if fails:
            with pytest.raises(StopEpisodeError):
                vmas_bridge.roll_out(fail, agents=2, episodes=2, seed=1)
        else:
            vmas_bridge.roll_out(lambda state, step: jnp.zeros((2, 2, 2)), agents=2, episodes=2, seed=1, steps=3)
            vmas_bridge.random_player(2, 2, seed=1)(3)
            vmas_bridge.step(*[np.zeros((1, 2, 2), np.float32)] * 4)

    assert run(lambda: None) == run(between)


def test_bad_actions_raise_and_still_restore():
    before = [state.clone() if isinstance(state, torch.Tensor) else state for state in Environment.vmas_random_state]
    with pytest.raises(AssertionError):
        vmas_bridge.roll_out(lambda state, step: np.full((2, 2, 2), np.nan), agents=2, episodes=2, seed=1)
    assert torch.equal(before[0], Environment.vmas_random_state[0])


def test_an_oracle_scores_the_same_on_both_simulators():
    generator = np.random.default_rng(0)
    theirs = vmas_bridge.roll_out(
        lambda state, step: oracles.assigned(state, generator), agents=2, episodes=256, seed=0, steps=60
    )
    ours = oracles.play(
        Spread(max_agents=2, max_tasks=2), TeamSize(2, 2), oracles.assigned, episodes=256, seed=0, steps=60
    )
    # Different starts, so equal up to the spread of a mean over 256 episodes.
    spread = np.hypot(theirs.returns.std(), ours.returns.std()) / np.sqrt(256)
    assert abs(theirs.returns.mean() - ours.returns.mean()) < 4 * spread
