"""Makes the tables of speed from what `diamond bench PRESET --to results/bench_WORLD_DEVICE.json` wrote."""

import json
from typing import Any

import result_rows

from diamond_attention.bench.report import mebibytes, rounded
from diamond_attention.reports.tables import markdown_table
from diamond_attention.worlds.smaclite.scenario import scenario_of

RESULTS = result_rows.RESULTS
DEVICES = {"cpu": "2 CPU cores", "gpu": "one H200"}
ELSEWHERE = {"cpu": "one CPU core, elsewhere", "gpu": "one H200, elsewhere"}
"""Where other systems were recorded: not in the same run, nor on the same machine."""
PARTS = {"rollout": "rollout", "epochs": "minibatches", "simulation": "the world, as part of the rollout"}


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
    """Simulation and training; VMAS in the same run, other systems as recorded elsewhere."""
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
            if not (row["system"].startswith("VMAS") and found["vmas"] == "measured"):
                lines.append([*_recorded(row), ""])
    return markdown_table(["what", "device", "setting", "env-steps/s", "beside it"], lines)


def _recorded(row: dict[str, Any]) -> list[str]:
    setting = row["setting"].removesuffix(", one core")
    cells = [f"*{row['what']}*", ELSEWHERE[row["device"]], f"{row['system']}, {setting}"]
    return [*cells, rounded(row["steps_per_second"])]


def parts() -> str:
    """Where an update's time goes, one seed."""
    lines = []
    for world in ("spread", "smaclite"):
        for device, found in measured(world):
            seconds = [found["parts"][f"{part}_seconds"] for part in ("update", *PARTS)]
            lines.append([found["preset"], device, *(f"{x:.3f}" for x in seconds)])
    return markdown_table(["preset", "device", "update, s", *(f"{name}, s" for name in PARTS.values())], lines)


def decisions() -> str:
    """One agent's decision on one CPU core, whatever the preset was trained on."""
    lines = [
        [
            found["preset"],
            str(found["settings"]["policy"]["width"]),
            str(row["agents"]),
            f"{row['median_milliseconds']:.2f}",
            f"{row['percentile_95_milliseconds']:.2f}",
        ]
        for _, found in measured("spread")
        for row in found["decisions"]
    ]
    return markdown_table(["preset", "width", "agents and landmarks", "median ms", "95th percentile ms"], lines)


def smaclite() -> str:
    lines = []
    for device, found in measured("smaclite"):
        for row in found["simulation"]:
            cells = ["battles", device, f"{row['map']}, {row['envs']:,} at once"]
            lines.append([*cells, rounded(row["steps_per_second"]), mebibytes(row["program_bytes"])])
        for row in found["training"]:
            seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
            cells = ["training", device, f"{found['preset']}, {seeds}"]
            lines.append([*cells, rounded(row["steps_per_second"]), mebibytes(row["program_bytes"])])
    recorded = {json.dumps(row): row for _, found in measured("smaclite") for row in found["recorded_elsewhere"]}
    lines += [[*_recorded(row), ""] for row in recorded.values()]
    return markdown_table(["what", "device", "setting", "env-steps/s", "memory"], lines)


def deployed() -> str:
    """Decisions without JAX, on one CPU core."""
    shown = {
        "policy": "policy", "kind": "kind", "peers": "peers", "play": "play", "resident_mb": "MB",
        "load_s": "s to load", "load_cpu_s": "of the processor", "median_ms": "median ms",
        "median_cpu_ms": "of the processor",
    }  # fmt: skip
    rows = result_rows.read(result_rows.RESULTS / "deploy_cost.csv")
    return markdown_table(list(shown.values()), [[row[name] for name in shown] for row in rows])


def minibatch_counts() -> str:
    """One minibatch's gradient in several ways, as compiled for an H200."""
    rows = map(json.loads, (result_rows.RESULTS / "minibatch_counts.jsonl").read_text().splitlines())
    lines = [
        [
            row["variant"],
            str(row["kernels"]),
            f"{row['MB']:,}",
            f"{row['ms_at_least']:.2f}",
            mebibytes(row["temp_bytes"]),
        ]
        for row in rows
    ]
    return markdown_table(["variant", "kernels", "MB moved", "ms at least", "memory besides"], lines)


def found_of_kernels(what: str) -> list[dict[str, Any]]:
    rows = map(json.loads, (result_rows.RESULTS / "battle_kernels.jsonl").read_text().splitlines())
    return [row for row in rows if row["what"] == what]


def battle_kernels() -> str:
    """Battles in kernels of our own and as XLA has them, and training on them."""
    ordinary = {
        (row["map"], row["envs"]): row["steps_per_second"]
        for device, found in measured("smaclite")
        if device == DEVICES["gpu"]
        for row in found["simulation"]
    }
    lines = []
    for row in found_of_kernels("rate"):
        before, now = ordinary[row["map"], row["envs"]], row["steps_per_second"]
        cells = [f"{row['map']}, {row['envs']:,} battles", rounded(before), rounded(now)]
        lines.append([*cells, f"{now / before:.1f}"])
    train = {row["kernels"]: row for row in found_of_kernels("train")}
    without, with_kernels = (train[used]["steps_per_second"] for used in (False, True))
    lines.append(
        [
            f"training {train[True]['preset']}, 1 seed",
            rounded(without),
            rounded(with_kernels),
            f"{with_kernels / without:.1f}",
        ]
    )
    return markdown_table(["what", "without", "with kernels", "ratio"], lines)


def battle_kernels_checked() -> str:
    """Every map: seconds until its kernels are compiled, and what differs from the ordinary code."""
    compiled = {row["map"]: row["took_s"] for row in found_of_kernels("asked") if row["took_s"] > 0}
    recorded = {(row["map"], row["way"], row["against"]): row for row in found_of_kernels("recordings")}
    states: dict[str, dict[str, Any]] = {}
    for row in found_of_kernels("check"):
        if row["last"] and row["states"] >= states.get(row["map"], row)["states"]:
            states[row["map"]] = row
    lines = []
    for name in sorted(compiled, key=lambda name: scenario_of(name).number_of_units):
        cells = [name, str(scenario_of(name).number_of_units), f"{compiled[name]:.0f}"]
        if name in states:
            row = states[name]
            shares = (row["different"], row["different"] - row["both"], row["nudged_different"])
            cells += [f"{row['states']:,}", *(f"{100 * share / row['states']:.2f} %" for share in shares)]
        else:
            cells += [""] * 4
        counts = [recorded.get((name, *pair)) for pair in RECORDED]
        cells.append("" if counts[0] is None else f"{counts[0]['steps']:,}")
        lines.append([*cells, *("" if count is None else str(count["different"]) for count in counts)])
    headings = ["map", "units", "s to compile", "random states", "differ", "more than a nudge explains", "nudged"]
    return markdown_table(
        [*headings, "recorded steps", "ordinary ≠ recorded", "kernels ≠ recorded", "kernels ≠ ordinary"], lines
    )


RECORDED = (("plain", "recorded"), ("kernels", "recorded"), ("kernels", "plain"))

TABLES: dict[str, result_rows.Table] = {
    "battle-kernels": battle_kernels,
    "battle-kernels-checked": battle_kernels_checked,
    "minibatch-counts": minibatch_counts,
    "deploy-cost": deployed,
    "xor-speed": xor,
    "spread-speed": spread,
    "parts": parts,
    "decisions": decisions,
    "smaclite-speed": smaclite,
}
