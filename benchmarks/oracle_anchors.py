"""What hand-written play scores on Simple Spread and Food Collection: the anchors a learned score is read against.

    python benchmarks/oracle_anchors.py [--episodes 64] [--seed 0] [--out anchors.json]

R is the episode's reward divided by the number of agents, as in the paper; mean ± standard deviation over episodes.
"""

import argparse
import json
from collections.abc import Iterable

import jax
import numpy as np

from diamond_attention.evaluation import oracles
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread

SPREAD_SIZES = [TeamSize(agents, agents) for agents in range(2, 9)]
FOOD_SIZES = [TeamSize(2, 2), TeamSize(4, 4), TeamSize(8, 8), *(TeamSize(agents, 4) for agents in (2, 3, 5, 6, 7, 8))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="", help="also write the numbers as JSON to this file")
    options = parser.parse_args()
    rows: list[dict] = []
    for kind, sizes in ((Spread, SPREAD_SIZES), (Food, FOOD_SIZES)):
        for name in [*oracles.ORACLES, *(["bound"] if kind is Spread else [])]:
            of_oracle = list(score(kind, sizes, name, options.episodes, options.seed))
            cells = [f"{row['agents']}/{row['tasks']}: {row['mean']:.0f} ± {row['std']:.0f}" for row in of_oracle]
            print(f"{kind.name:>6} {name:>8}  " + "  ".join(cells), flush=True)
            rows += of_oracle
    if options.out:
        with open(options.out, "w") as file:
            json.dump(
                {"episodes": options.episodes, "seed": options.seed, "steps": 400, "rows": rows}, file, indent=1
            )


def score(kind: type, sizes: Iterable[TeamSize], name: str, episodes: int, seed: int) -> Iterable[dict]:
    for size in sizes:
        world = kind(max_agents=size.agents, max_tasks=size.tasks)
        measures: dict[str, float] = {}
        if name == "bound":
            starts = oracles.starts(world, size, episodes=episodes, seed=seed)
            returns = np.asarray(
                jax.jit(jax.vmap(lambda state, world=world: oracles.spread_bound(world, state)))(starts)
            )
        else:
            played = oracles.play(world, size, oracles.ORACLES[name], episodes=episodes, seed=seed)
            returns = played.returns
            measures = {measure: round(float(values.mean()), 3) for measure, values in played.measures.items()}
        scores = returns / size.agents
        yield {
            "world": kind.name,  # type: ignore[attr-defined]
            "policy": name,
            "agents": size.agents,
            "tasks": size.tasks,
            "mean": round(float(scores.mean()), 2),
            "std": round(float(scores.std()), 2),
            **measures,
        }


if __name__ == "__main__":
    main()
