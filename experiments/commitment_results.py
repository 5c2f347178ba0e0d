"""The tables of docs/commitments.md: XOR and Dispatch by results/commitments.csv, and programmed rules beside them.

    python experiments/commitment_results.py

plays the programmed rules anew and writes results/dispatch_rules.csv.
"""

from collections import defaultdict
from statistics import fmean
from typing import get_args

import result_rows

from diamond_attention.evaluation.dispatch_rules import Rule, shares_by_rule
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import Dispatch

ROWS = result_rows.RESULTS / "commitments.csv"
RULES = result_rows.RESULTS / "dispatch_rules.csv"
COLUMNS = ("rule", "agents", "tasks", "depots", "travel_weight", "share", "standard_error", "episodes", "seed")
SIZES = ((6, 6), (64, 64), (64, 96))
WEIGHTS = (0.3, 0.6, 1.0)
LEARNED = (0.3, 1.0)
"""Those for which a policy was trained."""
EPISODES = 256


def measure() -> None:
    rows = []
    for weight in WEIGHTS:
        for agents, tasks in SIZES:
            for depots in (agents, 1):
                world = Dispatch(depots, travel_weight=weight, max_agents=agents, max_tasks=tasks)
                for rule in get_args(Rule):
                    shares = shares_by_rule(world, TeamSize(agents, tasks), rule, episodes=EPISODES, seed=0)
                    error = shares.std(ddof=1) / EPISODES**0.5
                    numbers = (f"{shares.mean():.4f}", f"{error:.4f}", EPISODES, 0)
                    row = dict(zip(COLUMNS, (rule, agents, tasks, depots, weight, *numbers), strict=True))
                    print(row, flush=True)
                    rows.append(row)
    result_rows.write(RULES, COLUMNS, rows)


def by_seed(world: str) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Scores of all training seeds by (group, where it was played), then by way of playing."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in result_rows.read(ROWS):
        if row["world"] == world and row["mask"] == "commitments":
            found[row["group"], row["played_at"]][row["play"]].append(float(row["score"]))
    return found


def both(scores: dict[str, list[float]]) -> str:
    return " / ".join(f"{fmean(scores[way]):.3f}" for way in ("greedy", "sampled") if scores[way])


def xor() -> str:
    """A line for each training, a column for each size, greedy / sampled."""
    found = by_seed("xor")
    sizes = sorted({at for _, at in found}, key=lambda at: tuple(map(int, at.split("x"))))
    trained = {"xor_commitments_2x3": "2x3 only", "xor_commitments": "up to 3x4"}
    return markdown_table(
        ["trained on", *sizes],
        [[label, *(both(found[group, at]) for at in sizes)] for group, label in trained.items()],
    )


def dispatch() -> str:
    """A line for each size and number of depots; for each price of travel the policy and the programmed rules."""
    found = by_seed("dispatch")
    rules = {
        (row["rule"], int(row["agents"]), int(row["tasks"]), int(row["depots"]), float(row["travel_weight"])): row
        for row in result_rows.read(RULES)
    }
    table = []
    for agents, tasks in SIZES:
        for depots in (agents, 1):
            cells = [f"{agents}x{tasks}, {depots} depot" + "s" * (depots > 1)]
            for weight in WEIGHTS:
                if weight in LEARNED:
                    at = cells[0] + (", travel 1" if weight == 1.0 else "")
                    cells.append(both(found[f"dispatch_commitments_travel={weight:g}", at]))
                for rule in get_args(Rule):
                    cells.append(f"{float(rules[rule, agents, tasks, depots, weight]['share']):.3f}")
            table.append(cells)
    headings = ["played"]
    for weight in WEIGHTS:
        headings += [f"travel {weight:g}: commitments"] if weight in LEARNED else []
        headings += [f"travel {weight:g}: {rule} unclaimed job" for rule in get_args(Rule)]
    return markdown_table(headings, table)


COSTS = result_rows.RESULTS / "commitments_cost.csv"  # by experiments/commitments_cost.py
TIMED = {
    ("dispatch-commitments", "jax"): "commitments, JAX",
    ("dispatch-commitments", "numpy"): "commitments, numpy alone",
    ("dispatch", "jax"): "Diamond Attention, width 32, JAX",
}


def cost() -> str:
    """Milliseconds of the processor for a decision: a line for each policy, a column for each size."""
    found = {
        (row["policy"], row["runtime"], f"{row['agents']}x{row['tasks']}"): float(row["median_cpu_milliseconds"])
        for row in result_rows.read(COSTS)
    }
    sizes = list(dict.fromkeys(size for _, _, size in found))
    lines = [[label, *(f"{found[*which, size]:.2g}" for size in sizes)] for which, label in TIMED.items()]
    return markdown_table(["vehicles x jobs", *sizes], lines)


TABLES: dict[str, result_rows.Table] = {
    "commitments-xor": xor,
    "commitments-dispatch": dispatch,
    "commitments-cost": cost,
}

if __name__ == "__main__":
    measure()
