"""Tables of fleets on bad networks, from results/fleet.csv (experiments/fleet_faults.py)."""

from collections.abc import Sequence
from statistics import mean, stdev

import result_rows

FLEET = result_rows.RESULTS / "fleet.csv"
COLUMNS = {
    "spread: R": ("spread", "score", 0),
    "success": ("spread", "success", 2),
    "spread-floor: R": ("spread-floor", "score", 0),
    "its success": ("spread-floor", "success", 2),
    "food: R": ("food", "score", 0),
    "foods": ("food", "collections", 0),
    "dispatch-commitments: share": ("dispatch-commitments", "score", 3),
    "jobs served": ("dispatch-commitments", "served", 2),
}
LIE = "one "


def told(values: Sequence[float], decimals: int) -> str:
    """The mean over seeds and, behind it, its standard error."""
    if not values:
        return ""
    error = f" ± {stdev(values) / len(values) ** 0.5:.{decimals}f}" if len(values) > 1 else ""
    return f"{mean(values):.{decimals}f}{error}"


def faults() -> str:
    rows = result_rows.read(FLEET)
    lines = ["| fault | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS)]
    for fault in dict.fromkeys(row["fault"] for row in rows):
        cells = [
            told([float(row[name]) for row in rows if (row["fault"], row["policy"]) == (fault, policy)], decimals)
            for policy, name, decimals in COLUMNS.values()
        ]
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = {"fleet-faults": faults}
