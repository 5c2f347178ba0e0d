"""What hand-written play scores, to stand beside learned play: played once, kept in anchors.csv."""

import csv
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from diamond_attention.worlds.contract import World
from diamond_attention.worlds.registry import WORLDS

FILE = Path(__file__).with_name("anchors.csv")
"""Written by experiments/oracle_anchors.py."""

PROGRAMMED_TEAMS = {"assigned": "PD + Hungarian", "avoiding": "PD + Hungarian + repulsion"}
"""The oracles that divide the work, and what figures and tables call them."""
ORACLES = {"bound": "bound", **PROGRAMMED_TEAMS, "random": "random"}
"""All that stand beside learned play, the best first."""


class Anchor(NamedTuple):
    """R of an oracle at one size, over episodes."""

    mean: float
    sd: float
    episodes: int


def anchors(world: World, oracle: str) -> dict[tuple[int, int], Anchor]:
    """R by (agents, tasks). Empty for a world whose settings are not those the oracles played with."""
    found = _read().get((world.name, oracle), {})
    return found if found and _has_default_settings(world.as_scored()) else {}


def programmed_team(world: World) -> tuple[str, dict[tuple[int, int], Anchor]]:
    """What learned play has to beat: the better programmed team's label, and its R by (agents, tasks).

    The same team at every size of a world, the one with the higher mean over the sizes both have played: to take the
    better one size by size would name a team that nobody programmed. No anchors where `anchors` has none.
    """
    teams = {label: anchors(world, oracle) for oracle, label in PROGRAMMED_TEAMS.items()}
    shared = set.intersection(*(set(found) for found in teams.values()))
    return max(teams.items(), key=lambda team: sum(team[1][size].mean for size in shared))


def _has_default_settings(world: World) -> bool:
    if world.name not in WORLDS or not isinstance(world, WORLDS[world.name]):
        return False
    usual: Any = WORLDS[world.name]()
    return dataclasses.replace(usual, max_agents=world.max_agents, max_tasks=world.max_tasks) == world


@cache
def _read() -> dict[tuple[str, str], dict[tuple[int, int], Anchor]]:
    found: dict[tuple[str, str], dict[tuple[int, int], Anchor]] = {}
    with open(FILE, newline="") as file:
        for row in csv.DictReader(file):
            of_oracle = found.setdefault((row["world"], row["oracle"]), {})
            of_oracle[int(row["agents"]), int(row["tasks"])] = Anchor(
                float(row["mean"]), float(row["sd"]), int(row["episodes"])
            )
    return found
