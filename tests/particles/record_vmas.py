"""Records the short VMAS episodes that `test_vmas_parity.py` replays. Needs the `vmas` extra.

    python tests/particles/record_vmas.py

Uses VMAS alone and nothing of this package, so that a mistake of ours cannot hide in the recording.
"""

from pathlib import Path

import numpy as np
import torch
import vmas

HERE = Path(__file__).parent
STEPS = 200


def make(agents: int, episodes: int):
    return vmas.make_env(
        "simple_spread", num_envs=episodes, device="cpu", continuous_actions=True, clamp_actions=True, seed=agents,
        n_agents=agents,
    )  # fmt: skip


def stacked(entities, quantity: str) -> np.ndarray:
    return torch.stack([getattr(entity.state, quantity) for entity in entities], dim=1).numpy().copy()


def record_episode(agents: int) -> dict[str, np.ndarray]:
    """Everybody pushes into one heap for 15 steps, then apart for 5, with noise; so contacts never stop."""
    environment = make(agents, episodes=1)
    random = np.random.default_rng(100 + agents)
    team, landmarks = environment.world.agents, environment.world.landmarks
    positions, velocities, actions, rewards = [stacked(team, "pos")], [stacked(team, "vel")], [], []
    for step in range(STEPS):
        inwards = positions[-1].mean(axis=1, keepdims=True) - positions[-1]
        towards = np.clip(4 * inwards, -1, 1) * (1 if step % 20 < 15 else -1)
        action = (towards + random.normal(0, 0.5, towards.shape)).astype(np.float32)
        _, reward, _, _ = environment.step([torch.tensor(action[:, index]) for index in range(agents)])
        positions.append(stacked(team, "pos"))
        velocities.append(stacked(team, "vel"))
        actions.append(action)
        rewards.append(reward[0].numpy().copy())
    # A pair this close to touching would make the reward depend on the last bit of a position.
    places = np.concatenate(positions)
    apart = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
    assert np.abs(apart - 0.3).min() > 2e-6, "choose another seed"
    return {
        "positions": places,
        "velocities": np.concatenate(velocities),
        "landmarks": stacked(landmarks, "pos")[0],
        "actions": np.concatenate(actions),
        "rewards": np.concatenate(rewards),
    }


def record_edges() -> dict[str, np.ndarray]:
    """Single steps of three agents from states where a rule changes: one case a row."""
    far = (5.0, 5.0)
    cases = [
        [(0, 0), (0, 0), far],  # the same place: no push
        [(0, 0), (5e-7, 0), far],  # nearer than 1e-6: no push
        [(0, 0), (2e-6, 0), far],  # just further: the full push
        [(0, 0), (0.1, 0.05), far],  # deep overlap
        [(0.15, 0), (-0.15, 0), far],  # exactly touching: pushed, yet not overlapping
        [(0, 0), (0, 0.29995), far],  # within the margin
        [(0, 0), (0, 0.30005), far],  # just apart: no push
        [(0, 0), (0.2, 0), (0.1, 0.17)],  # three in a heap
        [(0, 0), (0, 0), (0.1, 0)],  # two in one place, both pushed by a third
        [(100, 100), (100.1, 100), far],  # far from the origin: there are no walls
    ]
    positions = np.array(cases, np.float32)
    random = np.random.default_rng(0)
    velocities = random.normal(0, 1, positions.shape).astype(np.float32)
    velocities[[0, 1, 4]] = 0
    actions = random.uniform(-2, 2, positions.shape).astype(np.float32)  # half of them outside the box
    actions[[0, 4]] = 0
    environment = make(3, episodes=len(cases))
    team, landmarks = environment.world.agents, environment.world.landmarks
    for index, agent in enumerate(team):
        agent.set_pos(torch.tensor(positions[:, index]), batch_index=None)
        agent.set_vel(torch.tensor(velocities[:, index]), batch_index=None)
    _, reward, _, _ = environment.step([torch.tensor(actions[:, index]) for index in range(3)])
    return {
        "positions": positions,
        "velocities": velocities,
        "landmarks": stacked(landmarks, "pos"),
        "actions": actions,
        "next_positions": stacked(team, "pos"),
        "next_velocities": stacked(team, "vel"),
        "rewards": reward[0].numpy().copy(),
    }


if __name__ == "__main__":
    for agents in (2, 4, 8, 16):
        np.savez_compressed(HERE / f"vmas_spread_{agents}.npz", **record_episode(agents))
    np.savez_compressed(HERE / "vmas_spread_edges.npz", **record_edges())
