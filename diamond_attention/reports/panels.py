"""What several figures share: matplotlib without a display, weights as a heatmap, names of lines, saving."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display server needed
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from diamond_attention.colours import legible
from diamond_attention.evaluation.statistics import Interval
from diamond_attention.runs.files import appearing

HIDDEN_COLOUR = "#eeeeee"


def draw_weights(
    axes: Axes,
    weights: Float[np.ndarray, "task agent"],
    visible: Bool[np.ndarray, " agent"],
    text_size: float | None = 7,
) -> AxesImage:
    """Attention weights, darker for more; the columns of hidden peers are hatched. No text size, no numbers.

    Weights sum to one over a row, so one of zeros is a task that is not there for the viewer: it stays empty.
    """
    image = axes.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    tasks, agents = weights.shape
    for agent in range(agents):
        if not visible[agent]:
            axes.add_patch(
                plt.Rectangle(
                    (agent - 0.5, -0.5),
                    1,
                    tasks,
                    facecolor=HIDDEN_COLOUR,
                    edgecolor="#b0b0b0",
                    hatch="////",
                    linewidth=0,
                )
            )
            continue
        for task in np.flatnonzero(weights.any(axis=1)).tolist() if text_size else ():
            value = weights[task, agent]
            axes.text(
                agent,
                task,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=text_size,
                color="w" if value > 0.6 else "k",
            )
    axes.set(xticks=range(agents), yticks=range(tasks))
    return image


def name_ends(axes: Axes, ends: Mapping[str, tuple[float, float]], colours: Mapping[str, str], away: float) -> None:
    """The name of each line beside its end, so far to the right of the last, no two on top of each other."""
    low, high = axes.get_ylim()
    gap = 0.075 * (high - low)
    order = sorted(ends, key=lambda name: ends[name][1])
    heights = spread_out([ends[name][1] for name in order], gap)
    right = max(x for x, _ in ends.values()) + away
    for name, height in zip(order, heights, strict=True):
        axes.annotate(
            name,
            ends[name],
            (right, height),
            color=legible(colours[name]),
            fontsize=8,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#c0c0c0", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4},
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """The same in the same order, ascending, but at least so far apart, and on average where they were.

    >>> spread_out([0.0, 0.0, 5.0], gap=1.0)
    [-0.5, 0.5, 5.0]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        # A group is written around its mean; if two groups meet, they become one.
        while len(groups) > 1 and _lowest(groups[-1], gap) < _lowest(groups[-2], gap) + gap * len(groups[-2]):
            last = groups.pop()
            groups[-1] += last
    return [_lowest(group, gap) + gap * place for group in groups for place in range(len(group))]


def _lowest(group: Sequence[float], gap: float) -> float:
    return float(np.mean(group)) - gap * (len(group) - 1) / 2


def draw_means(axes: Axes, intervals: Mapping[float, Interval], colour: str, style: str, label: str) -> None:
    """A mean at each number, joined by a line, and a band from the low to the high ends."""
    at = sorted(intervals)
    means, low, high = zip(*(intervals[number] for number in at), strict=True)
    axes.plot(at, means, style, color=colour, marker="o", markersize=3.5, label=label)
    axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")


def save(figure: plt.Figure, to: Path) -> Path:
    try:
        with appearing(to) as aside:
            figure.savefig(aside, dpi=125, pil_kwargs={"optimize": True})
    finally:
        plt.close(figure)
    return to
