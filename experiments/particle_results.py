"""Keeps results/particles.csv, one row for each training seed and team size, and makes both worlds' tables of it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import result_rows
from result_rows import place_of, policy_name

from diamond_attention.evaluation.statistics import Interval, paired_interval, score_interval
from diamond_attention.reports.anchors import ORACLES, anchors, programmed_team
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread

RESULTS = result_rows.RESULTS / "particles.csv"
WHAT = ("world", "preset", "overrides", "mask", "trained_on", "agents", "tasks", "simulator", "play", "dropout")
MEASURES = ("collisions", "covered", "collections")
COLUMNS = (*WHAT, "seed", "R", *MEASURES, "episodes", "commit", "device", "steps", "seconds", "parameters")

SIZES = range(2, 9)
LARGE_SIZES = (16, 32, 64)
SHORT_SIZES = (2, 4, 6, 8)
"""Of the README's tables."""
HOME = (4, 4)
"""Where all were trained."""
WORLDS = {"spread": Spread(), "food": Food()}
SIMULATOR = {"spread": "vmas", "food": "own"}
"""Where the scores of the tables were played."""
NORMAL = 1.96
"""Standard errors in half a 95 % interval of a mean over hundreds of episodes."""
SHORT_SPREAD = [("spread-gpu", mask, "off") for mask in ("floor", "none", "rank")] + [("spread-cpu", "rank", "off")]
SHORT_FOOD = [("food-gpu", mask, "off") for mask in ("split", "none", "floor", "rank")]

Size = tuple[int, int]
"""Agents and tasks."""
Policy = tuple[str, str, str]
"""Preset with what was changed of it, mask, dropout in play."""
Scores = dict[Size, dict[int, float]]
"""R by size and training seed."""


def rows_of(lines: Iterable[Mapping[str, Any]], commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in lines:
        agents, tasks = line["played_on"]
        for i, seed in enumerate(line["seeds"]):
            measured = {m: line["measures"][m]["per_seed"][i] for m in MEASURES if m in line["measures"]}
            row = {**line, "agents": agents, "tasks": tasks, "seed": seed, "R": round(line["per_seed"][i], 2)}
            row |= {name: round(measured[name], 2) if name in measured else "" for name in MEASURES}
            row["commit"] = commit or line["commit"]
            rows.append({name: str(row.get(name, "")) for name in COLUMNS})
    return rows


def by_policy(world: str, simulator: str) -> dict[Policy, Scores]:
    """Greedy play; the paper's mask first, then as tables and figures order them."""
    found: dict[Policy, Scores] = defaultdict(lambda: defaultdict(dict))
    for row in result_rows.read(RESULTS):
        if (row["world"], row["simulator"], row["play"]) == (world, simulator, "greedy"):
            policy = (result_rows.preset_of(row), row["mask"], row["dropout"])
            found[policy][int(row["agents"]), int(row["tasks"])][int(row["seed"])] = float(row["R"])
    order = sorted(found, key=lambda policy: (policy[0], place_of(policy[1]), policy[2] == "off"))
    return {policy: found[policy] for policy in order}


def line_of(world: str, agents: Iterable[int]) -> list[Size]:
    """The sizes a table of teams shows: as many landmarks as agents, always four foods."""
    return [(n, n if world == "spread" else HOME[1]) for n in agents]


# --- R by team size -------------------------------------------------------------------------------


def scores(world: str) -> str:
    """A line for each policy: mean over seeds, and the interval at the size trained on."""
    sizes = line_of(world, SIZES)
    lines = []
    for (preset, mask, dropout), at_size in by_policy(world, SIMULATOR[world]).items():
        found = {size: score_interval(list(at_size[size].values())) for size in sizes if at_size[size]}
        cells = [f"{found[size].mean:.0f}" if size in found else "" for size in sizes]
        cells.append(f"[{found[HOME].low:.1f}, {found[HOME].high:.1f}]" if HOME in found else "")
        lines.append([policy_name(mask, dropout), preset, str(len(at_size[HOME])), *cells])
    lines += [[name, "", "", *cells, ""] for name, *cells in _anchor_lines(world, sizes)]
    return markdown_table(["policy", "preset", "seeds", *map(str, SIZES), "95 % interval at 4"], lines)


def short_scores(world: str, policies: Sequence[Policy], names: Mapping[str, str] | None = None) -> str:
    """For the README: R of a few policies at a few sizes, beside hand-written play; means over seeds."""
    sizes = line_of(world, SHORT_SIZES)
    known = by_policy(world, SIMULATOR[world])
    lines = [
        [
            (names or {}).get(preset, "{}").format(policy_name(mask)),
            *(f"{score_interval(list(known[preset, mask, dropout][size].values())).mean:.0f}" for size in sizes),
        ]
        for preset, mask, dropout in policies
    ]
    lines += _anchor_lines(world, sizes, leave_out="random")
    return markdown_table(["agents", *map(str, SHORT_SIZES)], lines)


def _anchor_lines(world: str, sizes: Sequence[Size], leave_out: str = "") -> list[list[str]]:
    """What hand-written play scores, where it is known."""
    lines = []
    for oracle, name in ORACLES.items():
        known = anchors(WORLDS[world], oracle)
        if known and oracle != leave_out:
            lines.append([f"*{name}*", *(f"{known[size].mean:.0f}" for size in sizes)])
    return lines


def large_teams() -> str:
    """R of teams far larger than the one trained with, on our own world: mean [95 % interval over seeds]."""
    lines = []
    for (preset, mask, dropout), at_size in by_policy("spread", "own").items():
        per_seed = [list(at_size[size].values()) for size in line_of("spread", LARGE_SIZES)]
        found = [score_interval(scores) if scores else None for scores in per_seed]
        cells = ["" if i is None else f"{i.mean:,.0f} [{i.low:,.0f}, {i.high:,.0f}]" for i in found]
        if any(per_seed):
            lines.append([policy_name(mask, dropout), preset, str(max(map(len, per_seed))), *cells])
    return markdown_table(["policy", "preset", "seeds", *map(str, LARGE_SIZES)], lines)


# --- Against no mask ------------------------------------------------------------------------------


def pairs_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """R of both at the training seeds both have."""
    shared = sorted(set(ours) & set(theirs))
    return [ours[seed] for seed in shared], [theirs[seed] for seed in shared]


def against_no_mask() -> str:
    """How much better each mask is than none, in per cent of |R|: mean, low and high over paired seeds."""
    found = by_policy("spread", "vmas")
    lines = []
    for (preset, mask, dropout), at_size in found.items():
        plain = found.get((preset, "none", "off"))
        if mask == "none" or not plain:
            continue
        pairs = [pairs_of(at_size[size], plain[size]) for size in line_of("spread", SIZES)]
        cells = [_per_cent(paired_interval(*pair).relative if len(pair[0]) > 1 else None) for pair in pairs]
        lines.append([policy_name(mask, dropout), preset, str(max(len(ours) for ours, _ in pairs)), *cells])
    return markdown_table(["policy", "preset", "pairs", *map(str, SIZES)], lines)


def ways_to_form_the_ratio() -> str:
    """The learned floor against no mask once more: the share of two means, and the mean of each pair's share."""
    found = by_policy("spread", "vmas")
    ours, theirs = (found["spread-gpu", mask, "off"] for mask in ("floor", "none"))
    pairs = [pairs_of(ours[size], theirs[size]) for size in line_of("spread", SIZES)]
    each = [(np.array(a) - np.array(b)) / np.abs(b) for a, b in pairs]
    of_means = [paired_interval(*pair).relative for pair in pairs]
    lines = [
        ["difference of means, as a share of the mean", *map(_per_cent, of_means)],
        ["mean of each pair's own share", *(_per_cent(score_interval(shares)) for shares in each)],
    ]
    return markdown_table(["how the ratio is formed", *map(str, SIZES)], lines)


def _per_cent(interval: Interval | None) -> str:
    if interval is None:
        return ""
    mean, low, high = (f"{100 * share:+.1f}" for share in interval)
    return f"{mean} [{low}, {high}]"


# --- All sizes at once ----------------------------------------------------------------------------


def at_all_sizes(world: str) -> str:
    """At how many sizes each policy is ahead of the better programmed team, behind it, and below no mask."""
    found = by_policy(world, SIMULATOR[world])
    lines = []
    for (preset, mask, dropout), at_size in found.items():
        plain, below = found.get((preset, "none", "off")), ""
        if mask != "none" and plain:
            pairs = [pairs_of(at_size[size], plain[size]) for size in at_size]
            below = _ahead_and_behind([paired_interval(*pair).absolute for pair in pairs])[1]
        who = [policy_name(mask, dropout), preset, str(len(at_size[HOME]))]
        lines.append([*who, *_ahead_and_behind(_against_programmed(world, at_size)), below])
    headings = ["ahead of the programmed team", "behind it", "below no mask"]
    return markdown_table(["policy", "preset", "seeds", *headings], lines)


def _against_programmed(world: str, at_size: Scores) -> list[Interval]:
    """The mean over seeds less the programmed team's; both are uncertain, the second by its episodes."""
    _, programmed = programmed_team(WORLDS[world])
    differences = []
    for size, per_seed in at_size.items():
        ours, theirs = score_interval(list(per_seed.values())), programmed[size]
        mean = ours.mean - theirs.mean
        half = math.hypot(ours.high - ours.mean, NORMAL * theirs.sd / math.sqrt(theirs.episodes))
        differences.append(Interval(mean, mean - half, mean + half))
    return differences


def _ahead_and_behind(differences: Sequence[Interval]) -> tuple[str, str]:
    """How many are above zero, and how many below; in brackets, those whose interval leaves zero out."""
    ahead = sum(difference.mean > 0 for difference in differences), sum(each.low > 0 for each in differences)
    behind = sum(difference.mean < 0 for difference in differences), sum(each.high < 0 for each in differences)
    return "{} ({})".format(*ahead), "{} ({})".format(*behind)


def food_on_shared_seeds() -> str:
    """No mask beside half the heads, on the training seeds both have."""
    found = by_policy("food", "own")
    none, split = (found["food-gpu", mask, "off"] for mask in ("none", "split"))
    lines = []
    for mask, at_size, other in (("none", none, split), ("split", split, none)):
        pairs = {size: pairs_of(at_size[size], other[size]) for size in at_size}
        own = {size: dict(enumerate(ours)) for size, (ours, _) in pairs.items()}
        means = [f"{np.mean(pairs[size][0]):.0f}" for size in line_of("food", SIZES)]
        ahead, _ = _ahead_and_behind(_against_programmed("food", own))
        of_other, _ = _ahead_and_behind([paired_interval(*pair).absolute for pair in pairs.values()])
        lines.append([policy_name(mask), *means, ahead, of_other])
    headings = ["policy", *map(str, SIZES), "ahead of the programmed team", "ahead of the other"]
    return markdown_table(headings, lines)


TABLES: dict[str, result_rows.Table] = {
    "spread": lambda: scores("spread"),
    "spread-differences": against_no_mask,
    "spread-ratios": ways_to_form_the_ratio,
    "spread-large": large_teams,
    "spread-sizes": lambda: at_all_sizes("spread"),
    "food": lambda: scores("food"),
    "food-sizes": lambda: at_all_sizes("food"),
    "food-shared": food_on_shared_seeds,
    "readme-spread": lambda: short_scores("spread", SHORT_SPREAD, {"spread-cpu": "{}, trained on two cores"}),
    "readme-food": lambda: short_scores("food", SHORT_FOOD),
}
