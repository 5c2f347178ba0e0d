"""The score of Dispatch against its number of depots, which is how symmetric it is: a line a policy."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from diamond_attention.reports.panels import save
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
    sizes = Counter(line.played_on for line in lines)
    for line in lines:
        if line.played_on == sizes.most_common(1)[0][0]:
            scores[line.mask, line.play][int(line.varied["depots"])] = line
    numbers = sorted({number for by_number in scores.values() for number in by_number})
    if len(numbers) < 2:
        return None
    figure, axes = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    for (key, play), by_number in sorted(scores.items(), key=lambda each: known[each[0][0]].place):
        ordered = sorted(by_number.items())
        at = [number for number, _ in ordered]
        means, low, high = zip(*(line.interval for _, line in ordered), strict=True)
        label = f"{known[key].label}, {play}"
        axes.plot(at, means, WAYS[play], color=known[key].colour, marker="o", markersize=4, label=label)
        axes.fill_between(at, low, high, color=known[key].colour, alpha=0.12, linewidth=0)
    some = next(iter(next(iter(scores.values())).values()))
    axes.set_xticks(numbers)
    axes.set_xlabel(f"depots of {some.played_on[0]} vehicles")
    axes.set_ylabel(some.scoring.name)
    axes.annotate(
        "all see the same",
        (numbers[0], 1),
        (0, 4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
    axes.annotate(
        "everybody is elsewhere",
        (numbers[-1], 1),
        (0, 4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
        ha="right",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    figure.legend(fontsize=8, frameon=False, ncols=2, loc="outside lower center")
    return save(figure, to)
