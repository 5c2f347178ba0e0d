"""What the small extras are for, in an environment that has them: `adapters`, `smaclite`, `film` and `onnx`."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
from first_steps import diamond

import diamond_attention.adapters.gymnasium_env
import diamond_attention.worlds.smaclite.gymnasium_env  # noqa: F401 - both make their worlds known by importing them
from diamond_attention.adapters.pettingzoo_env import WorldParallelEnv
from diamond_attention.deploy import Agent, spread_view

if __name__ == "__main__":
    # Worlds as others' environments.
    team = gymnasium.make("diamond/spread-v0", agents=2)
    team.reset(seed=0)
    seen, reward, *_ = team.step(team.action_space.sample())
    assert seen.shape[0] == 2
    assert np.isfinite(reward)
    env = WorldParallelEnv("xor", agents=2)
    env.reset(seed=0)
    env.step({name: env.action_space(name).sample() for name in env.agents})
    assert not env.agents  # an episode of one step
    battle = gymnasium.make("smaclite/2s3z-v0", seed=1)
    battle.reset()
    battle.step([int(row.argmax()) for row in battle.unwrapped.get_avail_actions()])

    # A policy as an ONNX file decides as it does with numpy.
    diamond("export", "spread-floor", "--to", "policy.onnx")
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    view = spread_view((0.4, -0.2), (0.0, 0.1), [[1.0, 1.2], [-0.8, 0.3]], 0.5, [[1.1, 0.4]], [[0, 0]], [0.25])
    given = {name: getattr(view, name) for name in ("agents", "tasks", "agent_present", "task_present", "ranks")}
    given["noise"] = np.zeros(2, np.float32)
    (action,) = session.run(["action"], given)
    assert np.allclose(action, Agent.load("spread-floor").decide(view), atol=1e-5)

    # A film, with the ffmpeg that the extra brings.
    diamond("watch", "spread-floor", "--steps", "3", "--to", "film.mp4", "--quiet")
    assert Path("film.mp4").stat().st_size > 1000
    print("all well with the extras, gymnasium", gymnasium.__version__, "onnxruntime", onnxruntime.__version__)
    print("on Python", sys.version.split()[0])
