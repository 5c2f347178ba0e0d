"""Keeps results/smaclite.csv, one row for each training seed, map and way of playing, and makes its tables."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import result_rows
from result_rows import place_of, policy_name

from diamond_attention.errors import UserError
from diamond_attention.evaluation.statistics import seed_interval
from diamond_attention.reports.paper import PAPER_SMACLITE
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.smaclite.maps import MAPS

RESULTS = result_rows.RESULTS / "smaclite.csv"
WHAT = ("preset", "overrides", "mask", "trained_on", "map", "jitter", "play", "dropout")
COLUMNS = (*WHAT, "seed", "win_rate", "episodes", "commit", "device", "steps", "seconds", "parameters")
JITTER = 0.5
WAYS = (("greedy", 0.0), ("sampled", 0.0), ("greedy", JITTER), ("sampled", JITTER))
"""Play and jitter of the table's columns; rows of other jitters stay in the file."""

SHORT_MAPS = ("2s3z", "3s5z", "3s5z_vs_3s6z")
SHORT = {
    ("smaclite-gpu", "rank", "off"): "rank mask",
    ("smaclite-gpu", "none", "off"): "no mask",
    ("smaclite-gpu", "dropout", "on"): "dropout, on in play",
    ("smaclite-cpu total_steps=450000", "rank", "off"): "rank mask, two cores",
    ("smaclite-cpu world.jitter=0.0 total_steps=450000", "rank", "off"): "rank mask, two cores, starts not scattered",
}
"""Preset, mask and dropout of the README's lines, all trained on 2s3z, and what they are called there."""

Line = tuple[str, str, str, str, str]
"""Map played, mask, dropout, preset with what was changed of it, maps trained on."""


def rows_of(lines: Iterable[Mapping[str, Any]], commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in lines:
        if line.get("measure") != "battle_won":
            raise UserError("a line of SMAClite has no win rate: is it of `diamond table --json`?")
        for seed, rate in zip(line["seeds"], line["per_seed"], strict=True):
            row = {**line, "seed": seed, "win_rate": round(rate, 4), "commit": commit or line["commit"]}
            rows.append({name: str(row.get(name, "")) for name in COLUMNS})
    return rows


def by_line(rows: Iterable[Mapping[str, str]]) -> dict[Line, dict[tuple[str, float], list[float]]]:
    """Win rates of the seeds, by way of playing: those that trained on one map first, then in the order of masks."""
    lines: dict[Line, dict[tuple[str, float], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        line = (row["map"], row["mask"], row["dropout"], result_rows.preset_of(row), row["trained_on"])
        lines[line][row["play"], float(row["jitter"])].append(float(row["win_rate"]))

    def place(line: Line) -> tuple:
        map_name, mask, dropout, preset, trained_on = line
        return list(MAPS).index(map_name), trained_on.count(","), place_of(mask), dropout == "off", preset

    return {line: lines[line] for line in sorted(lines, key=place)}


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table for each map played, a line for each policy; nothing where there are no rows."""
    lines = by_line(rows)
    headings = ["policy", "preset", "trained on", "seeds", "greedy π*", "sampled π"]
    headings += [f"greedy π*, ±{JITTER}", f"sampled π, ±{JITTER}", "paper"]
    parts = []
    for played in dict.fromkeys(line[0] for line in lines):
        table = []
        for line, by_way in lines.items():
            map_name, mask, dropout, preset, trained_on = line
            if map_name != played:
                continue
            seeds = max(len(rates) for rates in by_way.values())
            paper = PAPER_SMACLITE.get((mask, trained_on, map_name))
            cells = [f"**{policy_name(mask)}**" if mask == "rank" else policy_name(mask, dropout), preset]
            cells += [trained_on.replace(",", ", ") + (", zero-shot" if _is_new(line) else ""), str(seeds)]
            cells += [_rate(by_way.get(way, []), seeds) for way in WAYS]
            table.append([*cells, "" if paper is None else f"{paper:.3f}"])
        parts += [f"**Played on {played}**", markdown_table(headings, table)]
    return "\n\n".join(parts)


def _is_new(line: Line) -> bool:
    return line[0] not in line[-1].split(",")


def _rate(per_seed: Sequence[float], seeds: int) -> str:
    """One seed has no spread, and an interval from one number to itself would look like certainty."""
    if not per_seed:
        return ""
    text = str(seed_interval(per_seed)) if len(per_seed) > 1 else f"{per_seed[0]:.3f}"
    return text if len(per_seed) == seeds else f"{text}, {len(per_seed)} of {seeds} seeds"


def short(rows: Sequence[Mapping[str, str]]) -> str:
    """For the README: sampled play from the map's own starts, mean over seeds, and what the paper has."""
    known = by_line(rows)
    lines = []
    for (preset, mask, dropout), name in SHORT.items():
        rates = [known.get((map_name, mask, dropout, preset, "2s3z"), {}).get(WAYS[1]) for map_name in SHORT_MAPS]
        lines.append([name, *("" if rate is None else f"{seed_interval(rate).mean:.2f}" for rate in rates)])
    for mask, name in (("rank", "*paper, rank mask*"), ("none", "*paper, no mask*")):
        paper = [PAPER_SMACLITE.get((mask, "2s3z", map_name)) for map_name in SHORT_MAPS]
        lines.append([name, *("" if rate is None else f"{rate:.2f}" for rate in paper)])
    return markdown_table(["trained on 2s3z, played on", *SHORT_MAPS], lines)


TABLES: dict[str, result_rows.Table] = {
    "smaclite": lambda: markdown(result_rows.read(RESULTS)),
    "readme-smaclite": lambda: short(result_rows.read(RESULTS)),
}
