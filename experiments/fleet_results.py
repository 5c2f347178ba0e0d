"""Tables of fleets on bad networks, from results/fleet.csv (experiments/fleet_faults.py)."""

from collections.abc import Mapping
from statistics import mean, stdev

import result_rows

FLEET = result_rows.RESULTS / "fleet.csv"
NONE = "none"
COLUMNS = {
    "spread: R": ("spread", "score", 0),
    "success": ("spread", "success", 2),
    "spread-floor: R": ("spread-floor", "score", 0),
    "its success": ("spread-floor", "success", 2),
    "food: R": ("food", "score", 0),
    "dispatch-commitments: share": ("dispatch-commitments", "score", 3),
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


TABLES = {"fleet-faults": faults}
