"""Keeps results/xor.csv, one row a training seed, and prints the README's tables from it.

python benchmarks/xor_results.py add TABLE.json [--commit C]     TABLE.json: diamond table --json
python benchmarks/xor_results.py readme
"""

import json
from collections import defaultdict
from pathlib import Path

import result_rows

from diamond_attention.evaluation.statistics import seed_interval
from diamond_attention.reports.names import place_of, policy_name
from diamond_attention.reports.paper import PAPER_XOR
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.xor import floor

RESULTS = result_rows.ROOT / "results" / "xor.csv"
WHAT = ("preset", "shaped", "overrides", "mask", "trained_on", "players", "actions", "play", "dropout")
COLUMNS = (*WHAT, "seed", "success", "episodes", "commit", "device")


def rows_of(table: Path, commit: str | None) -> list[dict[str, str]]:
    rows = []
    for line in json.loads(table.read_text()):
        players, actions = line["played_on"]
        for seed, success in zip(line.get("seeds", range(len(line["per_seed"]))), line["per_seed"], strict=True):
            row = {**line, "players": players, "actions": actions, "seed": seed, "success": success}
            row.setdefault("overrides", "")
            row["commit"] = commit or line["commit"]
            rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def markdown() -> str:
    """One table of what the paper trained, one of what it could not."""
    groups: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in result_rows.read(RESULTS):
        size = (int(row["players"]), int(row["actions"]))
        preset = result_rows.preset_of(row) + (", shaped" if row["shaped"] == "True" else "")
        groups[(row["trained_on"], size, preset, row["mask"], row["dropout"])][row["play"]].append(
            float(row["success"])
        )
    ordered = sorted(groups.items(), key=lambda g: (g[0][1], g[0][0], place_of(g[0][3]), g[0][4] == "off", g[0][2]))
    parts = []
    for title, small in (("Sizes the paper trained", True), ("Sizes it could not", False)):
        headings = ["policy", "trained n×k", "played n×k", "preset", "seeds", "greedy π*", "sampled π"]
        headings += ["paper π* / π", "floor"] if small else ["floor"]
        lines = []
        for (trained, size, preset, mask, dropout), play in ordered:
            if (size[0] <= 3) != small:
                continue
            policy = f"**{policy_name(mask)}**" if mask == "rank" else policy_name(mask, dropout)
            cells = [policy, trained.replace("x", "×"), "×".join(map(str, size)), preset]
            cells += [
                str(len(play["greedy"])),
                str(seed_interval(play["greedy"])),
                str(seed_interval(play["sampled"])),
            ]
            if small:
                trained_size = tuple(map(int, trained.split("x")))
                paper = [PAPER_XOR.get((mask, trained_size, size, way)) for way in ("greedy", "sampled")]
                cells.append(" / ".join(f"{p:.2f}" for p in paper if p is not None))
            chance = floor(*size)
            cells.append(f"{chance:.3f}" if chance >= 0.001 else f"{chance:.0e}")
            lines.append(cells)
        parts += [f"**{title}**", markdown_table(headings, lines)]
    return "\n\n".join(parts)


def with_tables(readme: str) -> str:
    return result_rows.with_blocks(readme, {"results": markdown()})


if __name__ == "__main__":
    result_rows.run_command(__doc__, RESULTS, COLUMNS, WHAT, rows_of, with_tables)
