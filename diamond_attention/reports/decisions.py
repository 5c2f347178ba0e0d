"""How long a robot waits for a decision, to stand beside what a policy scores: timed once, kept in decisions.json."""

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("decisions.json")
"""Written by experiments/baseline_results.py."""

HEADING = "ms a decision, 4 / 16 / 64 agents"
EXPLAINED = (
    "Milliseconds of a greedy decision on one core, where they were timed: Simple Spread, each method's own size of "
    "network; of MAT and pH-MARL the whole team's."
)


@cache
def times() -> dict[str, dict[int, float]]:
    """Median milliseconds by policy and number of agents."""
    measured = json.loads(FILE.read_text())["measured"]
    return {
        each["policy"]: {row["agents"]: row["median_milliseconds"] for row in each["decisions"]} for each in measured
    }


def time_of(policy: str) -> str:
    """A policy's cell under the heading; empty if it was not timed."""
    return " / ".join(f"{milliseconds:.2f}" for milliseconds in times().get(policy, {}).values())
