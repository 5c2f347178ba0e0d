"""Keeps results/smaclite.csv, one row a training seed, map and way of playing, and the README's table made from it.

python benchmarks/smaclite_results.py add TABLE.json… [--commit C]     TABLE.json: diamond table --json
python benchmarks/smaclite_results.py readme
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import result_rows

from diamond_attention.errors import UserError
from diamond_attention.evaluation.statistics import seed_interval
from diamond_attention.reports.names import place_of, policy_name
from diamond_attention.reports.paper import PAPER_SMACLITE
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.smaclite.maps import MAPS

RESULTS = result_rows.ROOT / "results" / "smaclite.csv"
WHAT = ("preset", "overrides", "mask", "trained_on", "map", "jitter", "play", "dropout")
COLUMNS = (*WHAT, "seed", "win_rate", "episodes", "commit", "device")
JITTER = 0.5
WAYS = (("greedy", 0.0), ("sampled", 0.0), ("greedy", JITTER), ("sampled", JITTER))
"""Play and jitter of the table's columns; rows of other jitters stay in the file."""

CAPTION = f"""### SMAClite, battles on other maps than those trained on

Win rate: mean over training seeds [95 % bootstrap interval over those seeds], {{episodes}} battles for each seed. The
sample is the training seed: without jitter every battle of a map starts identically and only the order in which units
act is left to chance, so a deterministic policy (greedy, with neither ranks nor dropout) plays practically one game,
and its {{episodes}} battles are one observation; ranks, dropout and sampling vary the play, not the start. ±{JITTER}
lets every unit start up to that far from its place each way. The paper prints one number for each cell and does not
say whether play was greedy or sampled. Rows: [results/smaclite.csv](results/smaclite.csv).
"""


def rows_of(table: Path, commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in json.loads(table.read_text()):
        if line.get("measure") != "battle_won":
            raise UserError(f"{table} is not `diamond table --json` of SMAClite runs: a line has no win rate.")
        for seed, rate in zip(line["seeds"], line["per_seed"], strict=True):
            row = {**line, "seed": seed, "win_rate": round(rate, 4), "commit": commit or line["commit"]}
            rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """The caption and a line for each policy and map played; nothing where there are no rows."""
    if not rows:
        return ""
    lines: dict[tuple, dict[tuple[str, float], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        policy = (row["mask"], row["dropout"], result_rows.preset_of(row), row["trained_on"])
        lines[(row["map"], *policy)][(row["play"], float(row["jitter"]))].append(float(row["win_rate"]))

    def place(line: tuple) -> tuple:
        map_name, mask, dropout, preset, trained_on = line
        return list(MAPS).index(map_name), trained_on.count(","), place_of(mask), dropout == "off", preset

    headings = ["policy", "preset", "trained on", "played on", "seeds", "greedy π*", "sampled π"]
    headings += [f"greedy π*, ±{JITTER}", f"sampled π, ±{JITTER}", "paper"]
    table = []
    for line in sorted(lines, key=place):
        map_name, mask, dropout, preset, trained_on = line
        name = policy_name(mask, dropout)
        seeds = max(len(rates) for rates in lines[line].values())
        paper = PAPER_SMACLITE.get((mask, trained_on, map_name))
        table.append(
            [
                f"**{name}**" if mask == "rank" else name,
                preset,
                trained_on.replace(",", ", "),
                map_name if map_name in trained_on.split(",") else f"{map_name}, zero-shot",
                str(seeds),
                *(_rate(lines[line].get(way, []), seeds) for way in WAYS),
                "" if paper is None else f"{paper:.3f}",
            ]
        )
    episodes = " or ".join(str(number) for number in sorted({int(row["episodes"]) for row in rows}))
    return CAPTION.format(episodes=episodes) + "\n" + markdown_table(headings, table)


def _rate(per_seed: Sequence[float], seeds: int) -> str:
    """One seed has no spread, and an interval from one number to itself would look like certainty."""
    if not per_seed:
        return ""
    text = str(seed_interval(per_seed)) if len(per_seed) > 1 else f"{per_seed[0]:.3f}"
    return text if len(per_seed) == seeds else f"{text}, {len(per_seed)} of {seeds} seeds"


def with_tables(readme: str) -> str:
    return result_rows.with_blocks(readme, {"smaclite": markdown(result_rows.read(RESULTS))})


if __name__ == "__main__":
    result_rows.run_command(__doc__, RESULTS, COLUMNS, WHAT, rows_of, with_tables)
