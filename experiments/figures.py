"""Draws docs/images/team_size.png and docs/images/food_heatmap.png anew from results/particles.csv.

    python experiments/figures.py [--to FOLDER]

`diamond figure` draws the same from the episodes of runs. The rows have each training seed's mean and not its
episodes, so the heat map shows how certain a mean is instead of how episodes vary.
"""

import argparse
from pathlib import Path

import numpy as np
import particle_results
from particle_results import HOME, SIMULATOR, SIZES, WORLDS, Policy, by_policy
from result_rows import ROOT, policy_name, read

from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.reports.played import Played
from diamond_attention.reports.scores import draw_played_heatmap, draw_played_sizes

IMAGES = ROOT / "docs" / "images"

SPREAD = [("spread-gpu", mask, "off") for mask in ("rank", "none", "signed", "floor", "split")]
"""Those with five training seeds or more; the table beside the figure has the others."""
FOOD = [("food-gpu", mask, "off") for mask in ("rank", "none", "floor", "split")]


def played(world: str, policies: list[Policy]) -> list[Played]:
    """What the rows have of these policies, teams of 2 to 8 agents."""
    known = by_policy(world, SIMULATOR[world])
    ways = []
    for preset, mask, dropout in policies:
        name = policy_name(mask, dropout)
        twins = sum(way.policy.key == mask for way in ways)
        trained_on = frozenset({HOME[0]})
        way = Played(name, MASKS[mask], WORLDS[world], trained_on, preset, SIMULATOR[world], "greedy", twins)
        way.episodes = fewest_episodes(world, (preset, mask, dropout))
        for size, per_seed in known[preset, mask, dropout].items():
            if size[0] in SIZES:
                way.scores[size] = {seed: np.array([score]) for seed, score in per_seed.items()}
        ways.append(way)
    return ways


def fewest_episodes(world: str, policy: Policy) -> int:
    """Of each training seed."""
    return min(
        int(row["episodes"])
        for row in read(particle_results.RESULTS)
        if row["world"] == world
        and (particle_results.result_rows.preset_of(row), row["mask"], row["dropout"]) == policy
        and (row["simulator"], row["play"]) == (SIMULATOR[world], "greedy")
        and int(row["agents"]) in SIZES
    )


def draw(to: Path) -> list[Path | None]:
    return [
        draw_played_sizes([played("spread", SPREAD), played("food", FOOD)], to / "team_size.png"),
        draw_played_heatmap(played("food", FOOD), to / "food_heatmap.png"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=IMAGES)
    for figure in draw(parser.parse_args().to):
        print(figure)


if __name__ == "__main__":
    main()
