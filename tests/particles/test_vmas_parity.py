"""Step by step against recordings of VMAS (see README.md in this folder)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread

HERE = Path(__file__).parent
ROOM = 16


def step_all(positions, velocities, landmarks, actions):
    """One step from each of these states, all padded to one size so that one program serves every recording."""
    states, agents = positions.shape[:2]

    def pad(values):
        return jnp.pad(jnp.asarray(values), ((0, 0), (0, ROOM - agents), (0, 0)))

    present = jnp.broadcast_to(jnp.arange(ROOM) < agents, (states, ROOM))
    state = Particles(pad(positions), pad(velocities), pad(landmarks), present, present)
    transition = one_step(state, pad(actions))
    return (
        np.asarray(transition.state.positions)[:, :agents],
        np.asarray(transition.state.velocities)[:, :agents],
        np.asarray(transition.reward),
    )


@jax.jit
def one_step(state, actions):
    world = Spread(max_agents=ROOM, max_tasks=ROOM)
    return jax.vmap(lambda state, actions: world.step(state, actions, jax.random.key(0)))(state, actions)


def reward_in_float64(positions, landmarks):
    """VMAS's reward with no rounding to speak of."""
    positions, landmarks = positions.astype(np.float64), landmarks.astype(np.float64)
    agents = positions.shape[1]
    nearest = np.linalg.norm(positions[:, :, None] - landmarks[:, None], axis=-1).min(axis=1)
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1)
    return -agents * nearest.sum(axis=1) - ((apart < 0.3).sum(axis=(1, 2)) - agents)


@pytest.mark.optimised
@pytest.mark.parametrize("agents", [2, 4, 8, 16])
def test_every_recorded_step_is_reproduced(agents):
    recording = np.load(HERE / f"vmas_spread_{agents}.npz")
    landmarks = np.broadcast_to(recording["landmarks"], (200, agents, 2))
    positions, velocities, rewards = step_all(
        recording["positions"][:-1], recording["velocities"][:-1], landmarks, recording["actions"]
    )
    np.testing.assert_allclose(positions, recording["positions"][1:], rtol=0, atol=1e-5)
    np.testing.assert_allclose(velocities, recording["velocities"][1:], rtol=0, atol=1e-5)
    # VMAS subtracts N² distances one after another in float32; at N = 16 that alone loses 1e-4 of about 100.
    np.testing.assert_allclose(rewards, recording["rewards"], rtol=1e-5, atol=1e-5)
    exact = reward_in_float64(recording["positions"][1:], landmarks)
    np.testing.assert_allclose(rewards, exact, rtol=1e-6, atol=1e-5)
    assert np.abs(rewards - exact).max() <= np.abs(recording["rewards"] - exact).max() + 1e-6


@pytest.mark.parametrize("agents", [2, 4, 8, 16])
def test_the_recordings_hold_many_collisions(agents):
    positions = np.load(HERE / f"vmas_spread_{agents}.npz")["positions"]
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1)
    overlapping = (apart < 0.3).sum(axis=(1, 2)) > agents
    assert overlapping.sum() >= 30


@pytest.mark.optimised
def test_the_edges_of_the_rules_are_reproduced():
    recording = np.load(HERE / "vmas_spread_edges.npz")
    positions, velocities, rewards = step_all(
        recording["positions"], recording["velocities"], recording["landmarks"], recording["actions"]
    )
    np.testing.assert_allclose(positions, recording["next_positions"], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(velocities, recording["next_velocities"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(rewards, recording["rewards"], rtol=1e-5, atol=1e-5)
