"""What a user does first, with what was installed alone: run in an empty folder by that environment's Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import diamond_attention
from diamond_attention import Spread, TeamSize, evaluate, load_policy, open_run, public
from diamond_attention.deploy import Agent
from diamond_attention.ranks import draw_ranks


def diamond(*words: str) -> None:
    command = shutil.which("diamond", path=str(Path(sys.executable).parent))
    assert command, "the command is not installed"
    subprocess.run([command, *words], check=True, timeout=500)


if __name__ == "__main__":
    home = Path(diamond_attention.__file__)
    assert home.is_relative_to(sys.prefix), f"{home} is not what was installed into {sys.prefix}"
    assert all(hasattr(diamond_attention, name) for name in public.__all__)

    # Trained, gone on with, played and shown.
    small = ["--policy.width", "8", "--ppo.envs", "8", "--ppo.batch", "8", "--ppo.epochs", "1"]
    diamond("train", "xor", *small, "--total-steps", "64", "--out", "run")
    diamond("resume", "run")
    rows = evaluate(open_run("run/seed_0"), episodes=4, play=["sampled"])
    assert len(rows) == 4
    diamond("table", "run")
    diamond("figure", "run", "--to", "figures")
    assert list(Path("figures").glob("*.png"))

    # A shipped policy decides the same with JAX and with numpy alone.
    policy, _ = load_policy("spread-floor")
    world = Spread(max_agents=4, max_tasks=4)
    state = world.reset(jax.random.key(0), TeamSize(4, 4))
    views = world.views(state, draw_ranks(jax.random.key(1), 4))
    actions = policy.act(views, None, jax.random.key(2), greedy=True).actions
    agent = Agent.load("spread-floor")
    own = [jax.tree.map(lambda rows, me=me: np.asarray(rows[me]), views) for me in range(4)]
    acted = np.clip(actions, -1, 1)  # as the world takes them, and as a robot gets them
    assert np.allclose([agent.decide(view) for view in own], acted, atol=1e-5)
    print("all well with Python", sys.version.split()[0], "jax", jax.__version__, "numpy", np.__version__)
