"""Records what the PPO of Stable-Baselines3 computes, for `test_sb3_parity.py` to compare ours with.

In a virtual environment of its own:

    pip install stable-baselines3==2.9.2 torch==2.13.0
    python tests/recorded/record_sb3.py

It uses Stable-Baselines3 alone and nothing of this package, so that a mistake of ours cannot hide in the recording.
Policy and critic are one linear layer each, so that a test can write them down again.
"""

import json
import re
from pathlib import Path

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

HERE = Path(__file__).parent
SETTINGS = {
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "clip_range": 0.2,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "learning_rate": 0.01,
}
ENVS, STEPS = 2, 6
SPACES = {"discrete": gymnasium.spaces.Discrete(3), "continuous": gymnasium.spaces.Box(-1, 1, (2,))}
WEIGHTS = {
    "action_net.weight": {
        "discrete": [[0.8, -0.3], [-0.5, 0.6], [0.1, 0.2]],
        "continuous": [[0.7, -0.4], [0.2, 0.5]],
    },
    "action_net.bias": {"discrete": [0.1, -0.2, 0.3], "continuous": [0.05, -0.1]},
    "value_net.weight": [[0.6, -0.9]],
    "value_net.bias": [0.25],
    "log_std": {"continuous": [-0.5, 0.2]},
}

# The batch: one row for each environment. The first one's episode ends after its third step, the second one's
# with the last step of the rollout.
REWARDS = [[1.0, -0.5, 2.0, 0.0, 0.3, -1.0], [0.2, 0.4, -2.0, 1.5, 0.0, 3.0]]
VALUES = [[0.5, 0.1, -0.3, 0.7, 0.2, 0.4], [1.0, -0.2, 0.6, 0.0, 0.9, 0.3]]
EPISODE_STARTS = [[1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
LAST_VALUES, DONES = [0.8, 5.0], [False, True]
# How far the policy is from the one that acted, in log-probability. A ratio is clipped beyond ±0.18 and -0.22; there
# are gains and losses on either side of it.
MOVED = [[0.5, 0.5, -0.5, 0.05, -0.1, -0.6], [-0.3, 0.1, 0.4, 0.3, -0.4, 0.0]]


def batch_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """What was seen, and what was done."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(ENVS, STEPS, 2)).round(2).astype(np.float32)
    if kind == "discrete":
        return observations, random.integers(3, size=(ENVS, STEPS))
    return observations, random.normal(size=(ENVS, STEPS, 2)).round(2).astype(np.float32)


class Unused(gymnasium.Env):
    """Only tells PPO its spaces."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))

    def __init__(self, kind: str):
        self.action_space = SPACES[kind]


class Scripted(gymnasium.Env):
    """Eight steps in three episodes, whatever is done: terminated after three, cut by a time limit after two more."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = SPACES["discrete"]
    rewards = (1.0, -0.5, 2.0, 0.7, 0.3, -1.0, 0.4, 0.9)
    terminated = (False, False, True, False, False, False, False, False)
    truncated = (False, False, False, False, True, False, False, False)
    reached = np.random.default_rng(1).normal(size=(8, 2)).round(2).astype(np.float32)
    begun = np.random.default_rng(2).normal(size=(3, 2)).round(2).astype(np.float32)

    def __init__(self):
        self.step_number = 0
        self.episode = -1

    def reset(self, seed=None, options=None):
        self.episode += 1
        return self.begun[self.episode], {}

    def step(self, action):
        now = self.step_number
        self.step_number += 1
        return self.reached[now], self.rewards[now], self.terminated[now], self.truncated[now], {}


def ppo_on(environments, kind: str, normalise: bool, steps: int) -> PPO:
    model = PPO(
        "MlpPolicy", environments, n_steps=steps, batch_size=steps * environments.num_envs, n_epochs=1,
        normalize_advantage=normalise, policy_kwargs={"net_arch": []}, seed=0, device="cpu", **SETTINGS,
    )  # fmt: skip
    model.set_logger(configure(None, []))
    for name, parameter in model.policy.named_parameters():
        values = WEIGHTS[name][kind] if isinstance(WEIGHTS[name], dict) else WEIGHTS[name]
        with torch.no_grad():
            parameter.copy_(torch.tensor(values))
    return model


def together(make, number: int):
    return stable_baselines3.common.vec_env.DummyVecEnv([make] * number)


def weights_of(model: PPO) -> dict[str, list]:
    return {name: parameter.tolist() for name, parameter in model.policy.named_parameters()}


def record_training(kind: str) -> dict:
    """The batch, what the policy says about it, a step with normalised advantages, three with plain ones."""
    observations, actions = batch_of(kind)
    recorded = {"observations": observations.tolist(), "actions": actions.tolist()}
    for normalise in (True, False):
        model = ppo_on(together(lambda: Unused(kind), ENVS), kind, normalise, STEPS)
        with torch.no_grad():
            values, log_probability, entropy = model.policy.evaluate_actions(
                torch.tensor(observations.reshape(ENVS * STEPS, 2)),
                torch.tensor(actions.reshape(ENVS * STEPS, *actions.shape[2:])),
            )
        old_log_probability = log_probability.reshape(ENVS, STEPS) - torch.tensor(MOVED)
        buffer = model.rollout_buffer
        for step in range(STEPS):
            buffer.add(
                observations[:, step], actions[:, step], np.array(REWARDS)[:, step],
                np.array(EPISODE_STARTS)[:, step], torch.tensor(VALUES)[:, step], old_log_probability[:, step],
            )  # fmt: skip
        buffer.compute_returns_and_advantage(torch.tensor(LAST_VALUES), np.array(DONES))
        recorded |= {
            "weights": weights_of(model),
            "log_probability": log_probability.reshape(ENVS, STEPS).tolist(),
            "entropy": entropy.reshape(ENVS, STEPS).tolist(),
            "predicted_values": values.reshape(ENVS, STEPS).tolist(),
            "old_log_probability": old_log_probability.tolist(),
            "advantages": buffer.advantages.T.tolist(),
            "returns": buffer.returns.T.tolist(),
        }
        steps = []
        for _ in range(1 if normalise else 3):
            norms.clear()
            model.train()  # one epoch of one minibatch: all of the buffer
            logged = {name.removeprefix("train/"): float(value) for name, value in model.logger.name_to_value.items()}
            steps.append({**logged, "gradient_norm": norms[0], "weights_after": weights_of(model)})
        recorded["normalised advantages" if normalise else "plain advantages"] = steps
    return recorded


def record_time_limit() -> dict:
    """A rollout SB3 collects itself, because it adds the value beyond a time limit to the reward on the way."""
    model = ppo_on(together(Scripted, 1), "discrete", False, 8)
    _, callback = model._setup_learn(8)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=8)
    buffer = model.rollout_buffer
    with torch.no_grad():
        reached_values = model.policy.predict_values(torch.tensor(Scripted.reached)).flatten()
    return {
        "rewards": Scripted.rewards,
        "terminated": Scripted.terminated,
        "truncated": Scripted.truncated,
        "values": buffer.values.flatten().tolist(),
        "values_of_reached": reached_values.tolist(),
        "advantages": buffer.advantages.flatten().tolist(),
        "returns": buffer.returns.flatten().tolist(),
    }


# `PPO.train` throws away the gradient's norm, which clipping returns.
norms: list[float] = []
clip_gradients = torch.nn.utils.clip_grad_norm_


def clip_and_note(parameters, max_norm):
    norm = clip_gradients(parameters, max_norm)
    norms.append(float(norm))
    return norm


def rounded(values):
    """To what float32 knows, so that 0.13 is written as 0.13."""
    if isinstance(values, dict):
        return {name: rounded(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [rounded(value) for value in values]
    return float(f"{values:.7g}") if isinstance(values, float) else values


if __name__ == "__main__":
    torch.nn.utils.clip_grad_norm_ = clip_and_note
    recording = {
        "origin": {
            "made by": "tests/recorded/record_sb3.py",
            "stable_baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "how": "PPO.train() on a RolloutBuffer filled by hand; PPO.collect_rollouts() for the time limit",
        },
        "settings": SETTINGS,
        "rewards": REWARDS,
        "values": VALUES,
        "episode_starts": EPISODE_STARTS,
        "last_values": LAST_VALUES,
        "dones": DONES,
        **{kind: record_training(kind) for kind in SPACES},
        "time_limit": record_time_limit(),
    }
    text = json.dumps(rounded(recording), indent=1)
    one_row_a_line = re.sub(r"\[[^\[\]{}]+\]", lambda row: " ".join(row[0].split()), text)
    (HERE / "sb3_ppo_loss.json").write_text(one_row_a_line + "\n")
