"""The score of Dispatch against its number of depots, which is how symmetric it is: a line a policy."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from diamond_attention.reports.panels import draw_means, save
from diamond_attention.reports.tables import Line, table_lines
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import described_as

WAYS = {"greedy": "-", "sampled": "--"}
"""How a line is drawn."""


def draw_depots(runs: Sequence[Run], to: Path) -> Path | None:
    """Every policy at the size most were played at, greedily and sampled. None unless depots differ."""
    known = {described_as(run.settings).key: described_as(run.settings) for run in runs}
    scores: dict[tuple[str, str], dict[int, Line]] = defaultdict(dict)
    lines = [line for line in table_lines(runs) if "depots" in line.varied and not line.broadcast]
    size, _ = max(Counter(line.played_on for line in lines).items(), key=lambda each: each[1], default=((0, 0), 0))
    for line in lines:
        if line.played_on == size:
            scores[line.mask, line.play][int(line.varied["depots"])] = line
    numbers = sorted({number for by_number in scores.values() for number in by_number})
    if len(numbers) < 2:
        return None
    figure, axes = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    for (key, play), by_number in sorted(scores.items(), key=lambda each: known[each[0][0]].place):
        intervals = {float(number): line.interval for number, line in by_number.items()}
        draw_means(axes, intervals, known[key].colour, WAYS[play], f"{known[key].label}, {play}")
    axes.set_xticks(numbers)
    axes.set_xlabel(f"depots of {size[0]} vehicles")
    axes.set_ylabel(lines[0].scoring.name)
    for said, place in (("all see the same", "left"), ("everybody is elsewhere", "right")):
        axes.set_title(said, loc=place, fontsize=8, color="#555555")  # type: ignore[arg-type]
    figure.legend(fontsize=8, frameon=False, ncols=2, handlelength=3.5, loc="outside lower center")
    return save(figure, to)
