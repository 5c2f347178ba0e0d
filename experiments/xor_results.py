"""Makes the tables of the XOR game from results/table1.csv, made by `diamond reproduce table1`, and results/xor.csv.

xor.csv, which is kept here, has what the paper's Table 1 does not: other masks, and more than three players.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import result_rows
from result_rows import place_of, policy_name

from diamond_attention.evaluation.statistics import seed_interval
from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.reports.paper import PAPER_XOR
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.xor import chance_level

TABLE_1 = result_rows.RESULTS / "table1.csv"
RESULTS = result_rows.RESULTS / "xor.csv"
MIXED = result_rows.RESULTS / "xor_mixed_sizes_2_to_12.json"
FASTER = result_rows.RESULTS / "xor_n12_learning_rate_3e-4.json"
WHAT = ("preset", "shaped", "overrides", "mask", "trained_on", "players", "actions", "play", "dropout")
COLUMNS = (*WHAT, "seed", "success", "episodes", "commit", "device")
LARGEST_OF_THE_PAPER = 3
SHORT = {("rank", "xor"): (2, 3, 5, 8, 12), ("floor", "xor"): (2, 3, 5), ("none", "xor"): (2, 3)}
"""Mask and preset of the README's lines, with the sizes n = k there are rows of."""


def rows_of(lines: Iterable[Mapping[str, Any]], commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in lines:
        players, actions = line["played_on"]
        said = {"overrides": "", "shaped": False, **line, "players": players, "actions": actions}
        said["commit"] = commit or line["commit"]
        for seed, success in zip(line.get("seeds", range(len(line["per_seed"]))), line["per_seed"], strict=True):
            row = {**said, "seed": seed, "success": success}
            rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def rows() -> list[dict[str, str]]:
    """Of both files, one for each training seed and way of playing."""
    found = []
    for row in result_rows.read(TABLE_1):
        players, actions = re.findall(r"\d+", row["played_on"])
        own = {"shaped": "False", "players": players, "actions": actions, "success": row["score"]}
        found.append({name: {**row, **own}[name] for name in COLUMNS})
    return [*found, *result_rows.read(RESULTS)]


def sizes(paper_trained_them: bool) -> str:
    """A line for each policy of ours and size: those the paper trained, or those it could not."""
    groups: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows():
        size = (int(row["players"]), int(row["actions"]))
        preset = result_rows.preset_of(row) + (", shaped" if row["shaped"] == "True" else "")
        if row["mask"] in MASKS and (size[0] <= LARGEST_OF_THE_PAPER) == paper_trained_them:
            group = groups[(row["trained_on"], size, preset, row["mask"], row["dropout"])]
            group[row["play"]].append(float(row["success"]))
    headings = ["policy", "trained n×k", "played n×k", "preset", "seeds", "greedy π*", "sampled π"]
    headings += [*(["paper π* / π"] if paper_trained_them else []), "chance level"]
    lines = []
    for (trained, size, preset, mask, dropout), play in sorted(
        groups.items(), key=lambda g: (g[0][1], g[0][0], place_of(g[0][3]), g[0][4] == "off", g[0][2])
    ):
        policy = f"**{policy_name(mask)}**" if mask == "rank" else policy_name(mask, dropout)
        cells = [policy, trained.replace("x", "×"), "×".join(map(str, size)), preset, str(len(play["greedy"]))]
        cells += [str(seed_interval(play[way])) for way in ("greedy", "sampled")]
        if paper_trained_them:
            trained_size = tuple(map(int, trained.split("x")))
            paper = [PAPER_XOR.get((mask, trained_size, size, way)) for way in ("greedy", "sampled")]
            cells.append(" / ".join(f"{p:.2f}" for p in paper if p is not None))
        lines.append([*cells, _short(chance_level(*size))])
    return markdown_table(headings, lines)


def mixed_sizes() -> str:
    """Greedy success of each seed that trained on every size from 2 to 12 of 12 actions at once."""
    lines = [line for line in json.loads(MIXED.read_text())["lines"] if line["play"] == "greedy"]
    per_seed = zip(*(line["per_seed"] for line in lines), strict=True)
    headings = ["training seed", *(str(line["played_on"][0]) for line in lines)]
    rows = [[str(seed), *map(_share, successes)] for seed, successes in enumerate(per_seed)]
    chance = [_short(chance_level(*line["played_on"])) for line in lines]
    return markdown_table(headings, [*rows, ["*chance level*", *chance]])


def learning_rates() -> str:
    """How many seeds solve n=k=12 (greedy success above 0.99) at the preset's learning rate and at three times it."""
    usual = [
        float(row["success"])
        for row in result_rows.read(RESULTS)
        if (row["trained_on"], row["play"], row["mask"]) == ("12x12", "greedy", "rank")
    ]
    faster = next(x["per_seed"] for x in json.loads(FASTER.read_text())["lines"] if x["play"] == "greedy")
    lines = [[rate, *_solved(per_seed)] for rate, per_seed in (("1e-4", usual), ("3e-4", faster))]
    return markdown_table(["learning rate", "seeds", "solved"], lines)


def _solved(per_seed: Sequence[float]) -> list[str]:
    return [str(len(per_seed)), str(sum(success > 0.99 for success in per_seed))]


def short() -> str:
    """For the README: sampled success by size, mean over seeds."""
    found = defaultdict(list)
    for row in rows():
        if row["play"] == "sampled" and row["trained_on"] == f"{row['players']}x{row['actions']}":
            found[row["mask"], row["preset"], int(row["players"])].append(float(row["success"]))
    columns = SHORT["rank", "xor"]
    lines = []
    for (mask, preset), known in SHORT.items():
        means = [seed_interval(found[mask, preset, n]).mean if n in known else None for n in columns]
        lines.append([policy_name(mask), *("" if mean is None else _share(mean) for mean in means)])
    lines.append(["*chance level*", *(_short(chance_level(n, n)) for n in columns)])
    return markdown_table(["n = k", *map(str, columns)], lines)


def _share(value: float) -> str:
    return f"{value:.2f}"


def _short(chance: float) -> str:
    return f"{chance:.3f}" if chance >= 0.001 else f"{chance:.0e}"


TABLES: dict[str, result_rows.Table] = {
    "xor": lambda: sizes(paper_trained_them=True),
    "xor-beyond": lambda: sizes(paper_trained_them=False),
    "xor-mixed": mixed_sizes,
    "xor-learning-rates": learning_rates,
    "readme-xor": short,
}
