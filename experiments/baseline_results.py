"""The tables of docs/baselines.md: XOR beside the paper's Table 1, what a decision takes, and how methods were tuned.

    python experiments/baseline_results.py

measures decisions anew and writes diamond_attention/reports/decisions.json; run it on an otherwise idle machine.
"""

import json
from collections import defaultdict
from collections.abc import Mapping

import result_rows
import xor_results
from result_rows import described

from diamond_attention.bench.decisions import TEAM_SIZES, measure_decisions
from diamond_attention.evaluation.statistics import score_interval, seed_interval
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.reports import decisions as timed
from diamond_attention.reports.paper import PAPER_XOR, TRAINED_AND_PLAYED
from diamond_attention.reports.tables import markdown_table
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.presets import PRESETS, with_method
from diamond_attention.runs.settings import described_as
from diamond_attention.worlds.spread import Spread

CROSS_CHECK = result_rows.RESULTS / "mappo_cross_check.csv"
TUNING = result_rows.RESULTS / "baseline_tuning.csv"
OURS = ("rank", "none", "dropout")
"""Masks of our own lines."""
PLAYS = ("greedy", "sampled")


# --- XOR ------------------------------------------------------------------------------------------


def xor() -> str:
    """The paper's Table 1: a line for each method, greedy and sampled success, and in brackets what the paper has."""
    rates: dict[tuple, list[float]] = defaultdict(list)
    lines: dict[tuple[str, str, str], None] = {}
    for row in xor_results.rows():
        preset, mask = result_rows.preset_of(row), row["mask"]
        if mask in MASKS and mask not in OURS:
            continue
        if mask == "dropout" and row["dropout"] == "on":
            continue
        trained, played = _size(row["trained_on"]), (int(row["players"]), int(row["actions"]))
        if (trained, played) in TRAINED_AND_PLAYED:
            rates[mask, preset, trained, played, row["play"]].append(float(row["success"]))
            lines[mask, preset, row["preset"]] = None
    table = []
    for mask, preset, _ in sorted(lines, key=lambda line: (described(line[0]).place, line[1])):
        cells = [_xor_cell(rates, mask, preset, *sizes) for sizes in TRAINED_AND_PLAYED]
        seeds = {len(found) for key, found in rates.items() if key[:2] == (mask, preset)}
        count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)}–{max(seeds)}"
        policy = described(mask)
        table.append([policy.in_play("off"), preset, policy.robot_needs, count, *cells])
    headings = [_sizes_as_text(*sizes) for sizes in TRAINED_AND_PLAYED]
    return markdown_table(["policy", "preset", "a robot needs", "seeds", *headings], table)


def _xor_cell(rates: Mapping[tuple, list[float]], mask: str, preset: str, trained: tuple, played: tuple) -> str:
    found = [rates.get((mask, preset, trained, played, play)) for play in PLAYS]
    ours = [f"{seed_interval(each).mean:.2f}" if each else "–" for each in found]
    paper = [PAPER_XOR.get((mask, trained, played, play)) for play in PLAYS]
    return " / ".join(ours) + (" ({:.2f} / {:.2f})".format(*paper) if None not in paper else "")


def _sizes_as_text(trained: tuple[int, int], played: tuple[int, int]) -> str:
    text = ["{}×{}".format(*size) for size in (trained, played)]
    return text[0] if trained == played else " → ".join(text)


def _size(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text.count("x") == 1 else ()


# --- Decisions ------------------------------------------------------------------------------------


def measure() -> None:
    """Greedy decisions of every method on Simple Spread, fresh weights, its own default sizes; one core."""
    preset, found = PRESETS["spread-gpu"][1], []
    for name in METHODS:
        settings = preset if name == "ppo" else with_method(preset, name)
        key = described_as(settings).key
        found.append({"policy": key, "method": name, "decisions": measure_decisions(settings)})
        print(key, *(f"{row['median_milliseconds']:.3f}" for row in found[-1]["decisions"]), flush=True)
    timed.FILE.write_text(json.dumps({"environment": describe_environment(), "measured": found}, indent=1) + "\n")


def decisions() -> str:
    """Median milliseconds of one decision by team size; of those that decide together, of the team's."""
    table = []
    for key, times in timed.times().items():
        policy = described(key, Spread())
        label = f"Diamond Attention, {policy.label}" if policy.key in MASKS else policy.label
        table.append([label, policy.robot_needs, *(f"{times[size]:.2f}" for size in TEAM_SIZES)])
    return markdown_table(["policy", "a robot needs", *(f"{size} agents, ms" for size in TEAM_SIZES)], table)


# --- Tuning ---------------------------------------------------------------------------------------


def tuning() -> str:
    """The three best settings of each method, and how many were tried."""
    found: dict[str, list[tuple[float, list[str]]]] = defaultdict(list)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in result_rows.read(TUNING):
        if row["place"] == "N=3":
            groups[row["method"], row["settings"]].append(row["score"])
    for (method, settings), scores in groups.items():
        mean = sum(map(float, scores)) / len(scores) if all(scores) else float("-inf")
        cells = [f"{mean:.0f}" if all(scores) else "not finished", " ".join(f"{float(s):.0f}" for s in scores if s)]
        found[method].append((mean, [settings, *cells]))
    table = [
        [*([described(method, Spread()).label, str(len(found[method]))] if i == 0 else ["", ""]), *cells]
        for method in sorted(found, key=result_rows.place_of)
        for i, (_, cells) in enumerate(sorted(found[method], key=lambda each: -each[0])[:3])
    ]
    return markdown_table(["method", "tried", "the three best settings", "R at N=3", "by seed"], table)


# --- Another implementation -----------------------------------------------------------------------


def cross_check() -> str:
    """MAPPO by BenchMARL and by us: mean over seeds, Student's interval, and every seed."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in result_rows.read(CROSS_CHECK):
        scores[row["implementation"]].append(float(row["R"]))
    table = []
    for name, each in scores.items():
        interval = score_interval(each)
        by_seed = " ".join(f"{r:.0f}" for r in each)
        table.append([name, f"{interval.mean:.0f} [{interval.low:.0f}, {interval.high:.0f}]", by_seed])
    return markdown_table(["MAPPO of", "R at N=4", "by seed"], table)


# --- Tables that `diamond reproduce` made ---------------------------------------------------------


def reproduced(entry: str, number: int) -> result_rows.Table:
    """The table of that number on a page that `diamond reproduce` wrote, which results/ has a copy of."""

    def table() -> str:
        parts = (result_rows.RESULTS / f"{entry}.md").read_text().split("\n\n")
        return [part.strip() for part in parts if part.startswith("| ")][number]

    return table


REPRODUCED = ("spread", "food", "table2")

TABLES: dict[str, result_rows.Table] = {
    **{f"reproduced-{entry}": reproduced(entry, 0) for entry in REPRODUCED},
    **{f"reproduced-{entry}-cost": reproduced(entry, 1) for entry in REPRODUCED},
    **{f"faults-{world}": reproduced("faults", number) for number, world in enumerate(("xor", "dispatch", "spread"))},
    "reproduced-dispatch": reproduced("dispatch", 0),
    "baselines-cross-check": cross_check,
    "baselines-xor": xor,
    "baselines-decisions": decisions,
    "baselines-tuning": tuning,
}

if __name__ == "__main__":
    measure()
