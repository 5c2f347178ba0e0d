"""Tables of fleets on bad networks: results/fleet.csv, fleet_smaclite.csv, fleet_32.json (experiments/fleet_*.py)."""

import json
from collections.abc import Mapping
from statistics import mean, stdev

import result_rows

from diamond_attention.broadcast import faults_in_order

FLEET, SMACLITE, AT_ONCE = (
    result_rows.RESULTS / name for name in ("fleet.csv", "fleet_smaclite.csv", "fleet_32.json")
)
NONE = "none"
COLUMNS = {
    "spread: R": ("spread", "score", 0),
    "its success": ("spread", "success", 2),
    "spread-floor: R": ("spread-floor", "score", 0),
    "success": ("spread-floor", "success", 2),
    "food: R": ("food", "score", 0),
    "foods collected": ("food", "success", 0),
    "dispatch-commitments: share": ("dispatch-commitments", "score", 3),
    "jobs served": ("dispatch-commitments", "success", 3),
}
BySeed = Mapping[str, float]


def told(values: BySeed, without: BySeed, decimals: int) -> str:
    """The mean over seeds; behind it how much it is above the same seeds without a fault, and the standard error."""
    if not values:
        return ""
    both = [values[seed] - without[seed] for seed in values if seed in without]
    text = f"{mean(values.values()):.{decimals}f}"
    if not any(both):
        return text
    error = f" ± {stdev(both) / len(both) ** 0.5:.{decimals}f}" if len(both) > 1 else ""
    return f"{text} ({mean(both):+.{decimals}f}{error})"


def faults() -> str:
    rows = result_rows.read(FLEET)

    def values(fault: str, policy: str, name: str) -> BySeed:
        return {row["seed"]: float(row[name]) for row in rows if (row["fault"], row["policy"]) == (fault, policy)}

    lines = ["| fault | seeds | " + " | ".join(COLUMNS) + " |", "| --- | --- |" + " --- |" * len(COLUMNS)]
    named = dict.fromkeys(row["fault"] for row in rows)
    for fault in sorted(named, key=lambda fault: (fault != NONE, not fault.startswith(("loss", "delay")))):
        of_fault = [values(fault, policy, name) for policy, name, _ in COLUMNS.values()]
        cells = [
            told(here, values(NONE, policy, name), decimals)
            for here, (policy, name, decimals) in zip(of_fault, COLUMNS.values(), strict=True)
        ]
        seeds = sorted({len(each) for each in of_fault})
        lines.append(
            f"| {fault} | {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def smaclite() -> str:
    rows = result_rows.read(SMACLITE)

    def rates(broadcast: str) -> BySeed:
        of_it = [row for row in rows if row["broadcast"] == broadcast]
        return {row["seed"]: float(row["battles won"]) / float(row["episodes"]) for row in of_it}

    lines = ["| broadcast | seeds | battles | win rate | steps of a battle |", "| --- | --- | --- | --- | --- |"]
    for broadcast in sorted({row["broadcast"] for row in rows}, key=faults_in_order):
        of_it = [row for row in rows if row["broadcast"] == broadcast]
        battles, steps = sum(int(row["episodes"]) for row in of_it), mean(float(row["steps"]) for row in of_it)
        rate = told(rates(broadcast), rates(""), 3)
        lines.append(f"| {broadcast or 'perfect'} | {len(of_it)} | {battles} | {rate} | {steps:.1f} |")
    return "\n".join(lines)


SHOWN_AT_ONCE = {
    "machine": "machine",
    "cores": "cores",
    "load average before": "load average of the machine before",
    "minutes": "minutes, starting included",
    "seconds of the processor": "seconds of the processor, all processes together",
    "steps": "steps of the world",
    "deadlines missed by the world": "deadlines that the world missed",
    "packets sent": "steps of the robots, all together",
    "deadlines missed": "deadlines that robots missed",
    "heard": "messages heard",
    "MB of the largest robot, after each tenth": "MB of the largest robot, after each tenth of the steps",
}


def at_once() -> str:
    found = json.loads(AT_ONCE.read_text())
    found |= {"deadlines missed": 0, **found["messages"]}
    lines = ["| what | thirty-two robots |", "| --- | --- |"]
    for name, told_as in SHOWN_AT_ONCE.items():
        if name in found:
            value = found[name]
            each = value if isinstance(value, list) else [value]
            shown = ", ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in each)
            lines.append(f"| {told_as} | {shown} |")
    return "\n".join(lines)


TABLES = {"fleet-faults": faults, "fleet-smaclite": smaclite, "fleet-32": at_once}
