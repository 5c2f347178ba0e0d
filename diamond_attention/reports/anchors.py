"""What hand-written play scores, to stand beside learned play: played once, kept in anchors.csv."""

import csv
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from diamond_attention.worlds import WORLDS
from diamond_attention.worlds.contract import World, as_scored

FILE = Path(__file__).with_name("anchors.csv")
"""Written by benchmarks/oracle_anchors.py."""


class Anchor(NamedTuple):
    """R of an oracle at one size, over episodes."""

    mean: float
    sd: float
    episodes: int


def anchors(world: World, oracle: str) -> dict[tuple[int, int], Anchor]:
    """R by (agents, tasks). Empty for a world whose settings are not those the oracles played with."""
    return _read().get((world.name, oracle), {}) if _has_default_settings(as_scored(world)) else {}


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
