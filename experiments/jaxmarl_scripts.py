"""JaxMARL's own scripts, unchanged, on a world of this project.

    git clone https://github.com/FLAIROx/JaxMARL
    python experiments/jaxmarl_scripts.py JaxMARL/baselines/IPPO/ippo_ff_mpe.py spread --agents 4 --time-limit 25 \
        --rows ippo.csv --every 10 -- TOTAL_TIMESTEPS=1e6 NUM_SEEDS=3

A script asks JaxMARL for an environment by a name of JaxMARL's. Whatever it asks for, it is given the world named
here; with `--world-of-jaxmarl` in place of a world it is given what it asks for, to compare with. Words after `--`
are the script's.

What it reports to Weights & Biases becomes rows of a file: which of its NUM_SEEDS seeds, which update, after how many
steps of teams, the return of an episode, and everything else that it reported. A return is the sum of one agent's
rewards as the world gives them: what JaxMARL's MPELogWrapper multiplied by the number of agents, and `--reward-scale`
by that, is divided out. Of a world whose score is per agent there is also R.
"""

import argparse
import csv
import os
import runpy
import sys
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jaxmarl
import jaxmarl.environments.smax
import jaxmarl.wrappers.baselines
import numpy as np
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.wrappers.baselines import MPELogWrapper

from diamond_attention import Smaclite
from diamond_attention.adapters.jaxmarl_env import WorldMultiAgentEnv

RETURNS = ("test_returned_episode_returns", "returns", "returned_episode_returns")
"""What scripts call the return of an episode. QMIX begins its episodes anew for every update and has a mean over all
steps, also those before an episode ended, in the last of these; what it means is in the first."""


class Reports:
    """What a script says of itself, update by update and of every seed: rows, written at once."""

    def __init__(self, to: Path, every: int, reward_scale: float) -> None:
        self._file = to.open("w", newline="")
        self._every = every
        self._writer: Any = None
        self._config: Mapping[str, Any] = {}
        self._logged = 0
        self.return_counts = reward_scale
        """By how much the returns that are reported are larger than the world's."""
        self.per_agent = 0
        """Of how many agents R is the return divided by them; zero where the score is another."""
        self.number, self.last = 0, {}

    def init(self, config: Mapping[str, Any], **settings: Any) -> None:
        self._config = config

    def log(self, metrics: Mapping[str, Any]) -> None:
        # Of several seeds, which JaxMARL trains side by side, each reports in turn.
        update, seed = divmod(self._logged, self._config["NUM_SEEDS"])
        self._logged += 1
        steps = self._config["NUM_ENVS"] * self._config["NUM_STEPS"]
        updates = int(self._config["TOTAL_TIMESTEPS"] // steps)
        update += 1
        if update % self._every and update != updates:
            return
        numbers = {name: np.asarray(value) for name, value in metrics.items()}
        reported = {name: float(value) for name, value in numbers.items() if value.ndim == 0}
        row = {"seed": seed, "update": update, "env_steps": update * steps}
        row["second"] = round(time.perf_counter() - START, 1)
        for name in RETURNS:
            if name in reported:
                row["return"] = reported[name] / self.return_counts
                if self.per_agent:
                    row["R"] = row["return"] / self.per_agent
                break
        row |= {name: value for name, value in reported.items() if name not in row}
        self.last = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(self.last), lineterminator="\n")
            self._writer.writeheader()
        self._writer.writerow(self.last)
        self._file.flush()
        self.number += 1

    def as_wandb(self) -> types.ModuleType:
        module = types.ModuleType("wandb")
        module.init = self.init  # type: ignore[attr-defined]
        module.log = self.log  # type: ignore[attr-defined]
        return module

    def divide_what_is_multiplied(self) -> None:
        """JaxMARL's record of MPE multiplies returns, not rewards, by the number of agents."""

        class Told(MPELogWrapper):
            def __init__(told, env: MultiAgentEnv) -> None:  # noqa: N805 - self is the reports
                super().__init__(env)
                self.return_counts *= env.num_agents

        jaxmarl.wrappers.baselines.MPELogWrapper = Told


class Scaled(WorldMultiAgentEnv):
    """A world whose rewards are multiplied, for learners that expect small ones."""

    scale = 1.0

    def step_env(self, key, state, actions):  # type: ignore[no-untyped-def]
        seen, state, rewards, done, info = super().step_env(key, state, actions)
        return seen, state, jax.tree.map(lambda reward: reward * self.scale, rewards), done, info


def give_instead(asked: argparse.Namespace, reports: Reports) -> None:
    """From now on JaxMARL makes this world, whatever is asked for. Settings of its own worlds mean nothing here."""

    def make(name: str = "", scenario: Any = None, **settings: Any) -> MultiAgentEnv:
        world = Smaclite(map=scenario) if asked.world == "smaclite" and scenario else asked.world
        env = Scaled(world, asked.agents, time_limit=asked.time_limit, discrete_actions=True)
        env.scale = asked.reward_scale
        reports.per_agent = env.num_agents if env.game.world.scoring.per_agent else 0
        return env

    jaxmarl.make = make
    jaxmarl.environments.smax.HeuristicEnemySMAX = make
    for module in (jaxmarl.environments.smax, sys.modules["jaxmarl.environments.smax"]):
        module.map_name_to_scenario = lambda name: name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("world", nargs="?")
    parser.add_argument("--world-of-jaxmarl", action="store_true")
    parser.add_argument("--agents", type=int)
    parser.add_argument("--time-limit", type=int, help="steps of an episode, where not the world's own")
    parser.add_argument("--reward-scale", type=float, default=1.0, help="what rewards are multiplied by")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="of how many updates one has a row; the last one has")
    own, theirs = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, theirs = own[:cut], own[cut + 1 :]
    asked = parser.parse_args(own)
    if (asked.world is None) != asked.world_of_jaxmarl:
        parser.error("name a world, or say --world-of-jaxmarl")
    if asked.every < 1:
        parser.error(f"--every is {asked.every}; give 1 or more")
    reports = Reports(asked.rows, asked.every, asked.reward_scale)
    reports.divide_what_is_multiplied()
    if asked.world is not None:
        give_instead(asked, reports)
    sys.modules["wandb"] = reports.as_wandb()
    os.environ.setdefault("WANDB_ENTITY", "")  # which their settings read
    sys.path.insert(0, str(asked.script.parent.resolve()))
    # Disabled, as their settings have it, the scripts of Q-learning report nothing. Here nothing goes anywhere.
    sys.argv = [str(asked.script), "WANDB_MODE=online", *theirs]
    runpy.run_path(str(asked.script), run_name="__main__")
    jax.effects_barrier()
    print(f"{reports.number} rows in {time.perf_counter() - START:.0f} s; the last: {reports.last}")


START = time.perf_counter()

if __name__ == "__main__":
    main()
