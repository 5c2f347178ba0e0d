"""JaxMARL's own scripts, unchanged, on a world of this project.

    git clone https://github.com/FLAIROx/JaxMARL
    python experiments/jaxmarl_scripts.py JaxMARL/baselines/IPPO/ippo_ff_mpe.py spread --agents 4 --rows ippo.csv \
        -- TOTAL_TIMESTEPS=1e6 NUM_SEEDS=3

A script asks JaxMARL for an environment by a name of JaxMARL's. Whatever it asks for, it is given the world named
here; with `--world-of-jaxmarl` in place of a world it is given what it asks for, to compare with. What it reports to
Weights & Biases becomes rows of a file. Words after `--` are the script's.
"""

import argparse
import csv
import os
import runpy
import sys
import time
import types
from pathlib import Path
from typing import Any

import jax
import jaxmarl
import jaxmarl.environments.smax
import numpy as np
from jaxmarl.environments.multi_agent_env import MultiAgentEnv

from diamond_attention import Smaclite
from diamond_attention.adapters.jaxmarl_env import WorldMultiAgentEnv


class Reports:
    """What a script says of itself, update by update, and when it said so: a row each, written at once."""

    def __init__(self, to: Path) -> None:
        self._file = to.open("w", newline="")
        self._writer: Any = None
        self.number, self.last = 0, {}

    def log(self, metrics: dict[str, Any]) -> None:
        numbers = {name: np.asarray(value) for name, value in metrics.items()}
        row = {name: float(value) for name, value in numbers.items() if value.ndim == 0}
        self.last = {"second": round(time.perf_counter() - START, 1), **row}
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(self.last), lineterminator="\n")
            self._writer.writeheader()
        self._writer.writerow(self.last)
        self._file.flush()
        self.number += 1

    def as_wandb(self) -> types.ModuleType:
        module = types.ModuleType("wandb")
        module.init = lambda **settings: None  # type: ignore[attr-defined]
        module.log = self.log  # type: ignore[attr-defined]
        return module


def give_instead(world: str, agents: int | None) -> None:
    """From now on JaxMARL makes this world, whatever is asked for. Settings of its own worlds mean nothing here."""

    def make(name: str = "", scenario: Any = None, **settings: Any) -> MultiAgentEnv:
        chosen = Smaclite(map=scenario) if world == "smaclite" and scenario else world
        return WorldMultiAgentEnv(chosen, agents, discrete_actions=True)

    jaxmarl.make = make
    jaxmarl.environments.smax.HeuristicEnemySMAX = make
    jaxmarl.environments.smax.map_name_to_scenario = lambda name: name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("world", nargs="?")
    parser.add_argument("--world-of-jaxmarl", action="store_true")
    parser.add_argument("--agents", type=int)
    parser.add_argument("--rows", type=Path, required=True)
    own, theirs = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, theirs = own[:cut], own[cut + 1 :]
    asked = parser.parse_args(own)
    if (asked.world is None) != asked.world_of_jaxmarl:
        parser.error("name a world, or say --world-of-jaxmarl")
    if asked.world is not None:
        give_instead(asked.world, asked.agents)
    reports = Reports(asked.rows)
    sys.modules["wandb"] = reports.as_wandb()
    os.environ.setdefault("WANDB_ENTITY", "")  # which their settings read
    sys.path.insert(0, str(asked.script.parent.resolve()))
    sys.argv = [str(asked.script), *theirs]
    runpy.run_path(str(asked.script), run_name="__main__")
    jax.effects_barrier()
    print(f"{reports.number} rows in {time.perf_counter() - START:.0f} s; the last: {reports.last}")


START = time.perf_counter()

if __name__ == "__main__":
    main()
