"""Makes the README's tables of speed from what `diamond bench PRESET --to results/bench_WORLD_DEVICE.json` wrote.

python benchmarks/speed_results.py
"""

import json
from typing import Any

import result_rows

from diamond_attention.bench import mebibytes, rounded
from diamond_attention.reports.tables import markdown_table

RESULTS = result_rows.ROOT / "results"
DEVICES = {"cpu": "2 CPU cores", "gpu": "one H200"}


def measured(world: str) -> list[tuple[str, dict[str, Any]]]:
    """What is there of a world: the device in words, and its measurements."""
    files = {name: RESULTS / f"bench_{world}_{device}.json" for device, name in DEVICES.items()}
    return [(name, json.loads(file.read_text())) for name, file in files.items() if file.exists()]


def xor() -> str:
    lines = []
    for device, found in measured("xor"):
        for row in found["results"]:
            solved = row["slowest_seconds_to_solve"]
            cells = [device, str(row["seeds"]), f"{row['compile_seconds']:.0f}", f"{row['updates_per_second']:.0f}"]
            cells.append(f"{row['steps_per_second']:,.0f}")
            lines.append([*cells, "not reached" if solved is None else f"{solved:.2f}"])
    headings = ["device", "seeds at once", "compile s", "updates/s", "steps/s, all seeds"]
    return markdown_table([*headings, "s to success ≥ 0.99, slowest seed"], lines)


def spread() -> str:
    """Simulation, training and one agent's decision; VMAS in the same run, other systems as recorded elsewhere."""
    lines = []
    for device, found in measured("spread"):
        for row in found["simulation"]:
            beside = f"VMAS, same run: {rounded(row['vmas_steps_per_second'])}" if row["times_vmas"] else ""
            envs = f"{row['envs']:,} envs"
            lines.append(["simulation, alone", device, envs, rounded(row["steps_per_second"]), ""])
            if "steps_per_second_with_views" in row:
                with_views = rounded(row["steps_per_second_with_views"])
                lines.append(["simulation, with views", device, envs, with_views, beside])
        for row in found["training"]:
            setting = f"{found['preset']}, compiled in {row['compile_seconds']:.0f} s"
            lines.append(["training", device, setting, rounded(row["steps_per_second"]), ""])
        for row in found["recorded_elsewhere"]:
            if row["system"].startswith("VMAS") and found["vmas"] == "measured":
                continue
            cells = [f"*{row['what']}*", "recorded elsewhere", f"{row['system']}, {row['setting']}"]
            lines.append([*cells, rounded(row["steps_per_second"]), ""])
    return markdown_table(["what", "device", "setting", "env-steps/s", "beside it"], lines)


def decisions() -> str:
    lines = [
        [f"{row['agents']}", f"{row['median_milliseconds']:.2f}", f"{row['percentile_95_milliseconds']:.2f}"]
        for device, found in measured("spread")
        if device == DEVICES["cpu"]
        for row in found["decisions"]
    ]
    return markdown_table(["agents and landmarks", "median ms", "95th percentile ms"], lines)


def smaclite() -> str:
    lines = []
    for device, found in measured("smaclite"):
        for row in found["simulation"]:
            cells = ["battles", device, f"{row['map']}, {row['envs']:,} at once"]
            lines.append([*cells, rounded(row["steps_per_second"]), mebibytes(row["program_bytes"])])
        for row in found["training"]:
            cells = ["training", device, f"{found['preset']}, {row['seeds']} seed(s)"]
            lines.append([*cells, rounded(row["steps_per_second"]), mebibytes(row["program_bytes"])])
    return markdown_table(["what", "device", "setting", "env-steps/s", "memory"], lines)


BLOCKS = {"speed": xor, "spread-speed": spread, "decisions": decisions, "smaclite-speed": smaclite}


def with_tables(readme: str) -> str:
    return result_rows.with_blocks(readme, {marker: text() for marker, text in BLOCKS.items()})


if __name__ == "__main__":
    result_rows.README.write_text(with_tables(result_rows.README.read_text()))
