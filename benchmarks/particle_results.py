"""Keeps results/particles.csv, one row a training seed and team size, and the README's tables made from it.

python benchmarks/particle_results.py add TABLE.json… [--commit C]     TABLE.json: diamond table --json
python benchmarks/particle_results.py readme
"""

import json
from collections import defaultdict
from pathlib import Path

import result_rows

from diamond_attention.evaluation.statistics import paired_interval, score_interval
from diamond_attention.reports.anchors import anchors
from diamond_attention.reports.names import place_of, policy_name
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread

RESULTS = result_rows.ROOT / "results" / "particles.csv"
WHAT = ("world", "preset", "overrides", "mask", "trained_on", "agents", "tasks", "simulator", "play", "dropout")
MEASURES = ("collisions", "covered", "collections")
COLUMNS = (*WHAT, "seed", "R", *MEASURES, "episodes", "commit", "device")
SIZES = range(2, 9)
LARGE_SIZES = (16, 32, 64)


def rows_of(table: Path, commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in json.loads(table.read_text()):
        agents, tasks = line["played_on"]
        for i, seed in enumerate(line["seeds"]):
            measured = {m: line["measures"][m]["per_seed"][i] for m in MEASURES if m in line["measures"]}
            row = {**line, "agents": agents, "tasks": tasks, "seed": seed, "R": round(line["per_seed"][i], 2)}
            row |= {name: round(measured[name], 2) if name in measured else "" for name in MEASURES}
            row["commit"] = commit or line["commit"]
            rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def by_policy(world: str, simulator: str, tasks: int | None) -> dict[tuple, dict[int, dict[int, float]]]:
    """(preset and overrides, mask, dropout) -> agents -> seed -> R, greedy; `tasks` None: as many as agents."""
    found: dict[tuple, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in result_rows.read(RESULTS):
        agents = int(row["agents"])
        wanted = (world, simulator, "greedy", agents if tasks is None else tasks)
        if (row["world"], row["simulator"], row["play"], int(row["tasks"])) == wanted:
            policy = (result_rows.preset_of(row), row["mask"], row["dropout"])
            found[policy][agents][int(row["seed"])] = float(row["R"])
    order = sorted(found, key=lambda policy: (policy[0], place_of(policy[1]), policy[2] == "off"))
    return {policy: found[policy] for policy in order}


def scores(world: str, simulator: str, tasks: int | None, oracles: dict[str, str]) -> str:
    """R by team size, a line a policy: mean over seeds, and the interval at the size trained on."""
    kind = {"spread": Spread(), "food": Food()}[world]
    lines = []
    for (preset, mask, dropout), at_size in by_policy(world, simulator, tasks).items():
        found = {n: score_interval(list(at_size[n].values())) for n in SIZES if at_size[n]}
        cells = [f"{found[n].mean:.0f}" if n in found else "" for n in SIZES]
        cells.append(f"[{found[4].low:.1f}, {found[4].high:.1f}]" if 4 in found else "")
        lines.append([policy_name(mask, dropout), preset, str(len(at_size[4])), *cells])
    for oracle, name in oracles.items():
        known = anchors(kind, oracle)
        cells = [f"{known[(n, n if tasks is None else tasks)].mean:.0f}" for n in SIZES]
        lines.append([f"*{name}*", "", "", *cells, ""])
    return markdown_table(["policy", "preset", "seeds", *map(str, SIZES), "95 % interval at 4"], lines)


def large_teams() -> str:
    """R of teams far larger than the one trained with, on our own world: mean [95 % interval over seeds]."""
    lines = []
    for (preset, mask, dropout), at_size in by_policy("spread", "own", None).items():
        seeds = max(len(at_size[n]) for n in LARGE_SIZES)
        found = [score_interval(list(at_size[n].values())) if at_size[n] else None for n in LARGE_SIZES]
        cells = ["" if i is None else f"{i.mean:,.0f} [{i.low:,.0f}, {i.high:,.0f}]" for i in found]
        if seeds:
            lines.append([policy_name(mask, dropout), preset, str(seeds), *cells])
    return markdown_table(["policy", "preset", "seeds", *map(str, LARGE_SIZES)], lines)


def against_no_mask() -> str:
    """How much better each mask is than none, in per cent of |R|: mean, low and high over paired seeds."""
    found = by_policy("spread", "vmas", None)
    lines = []
    for (preset, mask, dropout), at_size in found.items():
        plain = found.get((preset, "none", "off"), {})
        if mask == "none" or not plain:
            continue
        cells, pairs = [], 0
        for n in SIZES:
            shared = sorted(set(at_size[n]) & set(plain[n]))
            pairs = max(pairs, len(shared))
            if len(shared) < 2:
                cells.append("")
                continue
            relative = paired_interval([at_size[n][s] for s in shared], [plain[n][s] for s in shared]).relative
            mean, low, high = ("", "", "") if relative is None else (f"{100 * share:+.1f}" for share in relative)
            cells.append(mean and f"{mean} [{low}, {high}]")
        lines.append([policy_name(mask, dropout), preset, str(pairs), *cells])
    return markdown_table(["policy", "preset", "pairs", *map(str, SIZES)], lines)


BLOCKS = {
    "spread": lambda: scores(
        "spread", "vmas", None, {"bound": "bound", "assigned": "PD + Hungarian", "random": "random"}
    ),
    "spread-differences": against_no_mask,
    "spread-large": large_teams,
    "food": lambda: scores("food", "own", 4, {"assigned": "PD + Hungarian", "random": "random"}),
}


def with_tables(readme: str) -> str:
    return result_rows.with_blocks(readme, {marker: text() for marker, text in BLOCKS.items()})


if __name__ == "__main__":
    result_rows.run_command(__doc__, RESULTS, COLUMNS, WHAT, rows_of, with_tables)
