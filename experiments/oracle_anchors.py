"""What hand-written play scores on Simple Spread and Food Collection: the anchors a learned score is read against.

    python experiments/oracle_anchors.py [--episodes 512] [--seed 0] [--to diamond_attention/reports/anchors.csv]

R is the episode's reward divided by the number of agents, as in the paper; mean and standard deviation over episodes.
The figures read the file; `tests/test_names_and_anchors.py` plays some of its cells again.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import jax
import numpy as np

from diamond_attention.evaluation import oracles
from diamond_attention.reports.anchors import FILE
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread

TEAMS = range(2, 9)
SIZES = {
    Spread: [TeamSize(agents, agents) for agents in TEAMS],
    Food: [TeamSize(agents, foods) for agents in TEAMS for foods in TEAMS],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=FILE)
    options = parser.parse_args()
    rows = []
    for kind, sizes in SIZES.items():
        for name in [*oracles.ORACLES, *(["bound"] if kind is Spread else [])]:
            of_oracle = [score(kind, size, name, options.episodes, options.seed) for size in sizes]
            cells = [f"{row['agents']}/{row['tasks']}: {row['mean']:.0f} ± {row['sd']:.0f}" for row in of_oracle]
            print(f"{kind.name:>6} {name:>8}  " + "  ".join(cells), flush=True)
            rows += of_oracle
    with open(options.to, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def score(kind: type[Spread] | type[Food], size: TeamSize, name: str, episodes: int, seed: int) -> dict[str, Any]:
    """R of one oracle at one size, with the world's default settings."""
    world = kind(max_agents=int(size.agents), max_tasks=int(size.tasks))
    if name == "bound":
        assert isinstance(world, Spread)
        starts = oracles.starts(world, size, episodes=episodes, seed=seed)
        returns = np.asarray(jax.jit(jax.vmap(lambda state: oracles.spread_bound(world, state)))(starts))
    else:
        returns = oracles.play(world, size, oracles.ORACLES[name], episodes=episodes, seed=seed).returns
    scores = returns / size.agents
    return {
        "world": world.name,
        "oracle": name,
        "agents": size.agents,
        "tasks": size.tasks,
        "episodes": episodes,
        "seed": seed,
        "mean": round(float(scores.mean()), 2),
        "sd": round(float(scores.std()), 2),
    }


if __name__ == "__main__":
    main()
