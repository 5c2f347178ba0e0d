"""Figures of what was evaluated: the score by team size, and by agents and tasks. R is the return per agent.

Both draw what runs have in their episodes.csv (`played_by`), or whatever else is put into `Played`.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from diamond_attention.colours import text_on
from diamond_attention.evaluation.statistics import Interval, score_interval
from diamond_attention.reports.anchors import anchors, programmed_team
from diamond_attention.reports.panels import name_ends, save
from diamond_attention.reports.played import Played, Size, played_by
from diamond_attention.runs.folder import Run
from diamond_attention.worlds.contract import World, tasks_named, title_of

SIMULATORS = {"vmas": " in VMAS"}
"""What a title adds where a world was played in a simulator that is not its own."""
MARKERS = "os^DvPX<>*"
"""Of a figure's lines in order: colours alone cannot be told apart in grey, or where lines run close together."""
BASELINE = "none"
"""The policy that the others are compared with."""
MOST_LINES = 4
"""Of scores that stand above a panel of differences; there the others are shown."""
MOST_HEATMAPS_ABREAST = 3
LARGE_TEAM_FROM = 10
"""Teams of this size and more have a panel of their own: R falls so fast with N that it would flatten the rest."""
NORMAL = 1.96
"""Standard errors in half a 95 % interval of a mean over many episodes."""


# --- R by team size -------------------------------------------------------------------------------


def draw_team_sizes(runs: Sequence[Run], to: Path) -> Path | None:
    """R against the size of the team; None if no world was played at two sizes."""
    names = dict.fromkeys(run.settings.world.name for run in runs)
    return draw_played_sizes(
        [played_by([run for run in runs if run.settings.world.name == name]) for name in names], to
    )


def draw_played_sizes(worlds: Sequence[Sequence[Played]], to: Path) -> Path | None:
    """A panel a world and one more for large teams; below, by how much the others differ from playing without a mask.

    Lines of good policies run so close together that only their differences can be told apart.
    """
    panels = []
    for ways in worlds:
        sizes = _diagonal(ways)
        if len(sizes) < 2:
            continue
        small = [size for size in sizes if size[0] < LARGE_TEAM_FROM]
        large = [size for size in sizes if size[0] >= LARGE_TEAM_FROM]
        for part in (small, large) if min(len(small), len(large)) > 1 else (sizes,):
            panels.append(([way for way in ways if any(size in way.scores for size in part)], part))
    if not panels:
        return None
    compared = [{way.name: better_by(way, ways, sizes) for way in ways} for ways, sizes in panels]
    below = [{name: found for name, found in differences.items() if len(found) > 1} for differences in compared]
    rows = 1 + any(below)
    figure, axes = plt.subplots(
        rows,
        len(panels),
        figsize=(5.4 * len(panels), 4.9 + 3.9 * (rows - 1)),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [4.9, 3.9][:rows]},
    )
    few, *_, many = sorted([way.seeds for ways, _ in panels for way in ways] * 2)
    seeds = f"{many}" if few == many else f"{few} to {many}"
    over = "one training seed, so no interval" if many == 1 else f"mean and 95 % interval over {seeds} training seeds"
    # A policy has the same marker in all panels.
    kinds = list(dict.fromkeys((way.policy.key, way.twins) for ways, _ in panels for way in ways))
    before = ""
    for column, (ways, sizes) in enumerate(panels):
        markers = {way.name: MARKERS[kinds.index((way.policy.key, way.twins)) % len(MARKERS)] for way in ways}
        _draw_team_size(axes[0, column], few_to_show(ways, sizes) if below[column] else ways, sizes, markers)
        scoring = ways[0].world.scoring
        label = "R, return per agent" if scoring.per_agent else scoring.name
        if label != before:
            axes[0, column].set_ylabel(f"{label} (higher is better)\n{over}", fontsize=9)
        before = label
        if below[column]:
            _draw_differences(axes[1, column], ways, sizes, below[column], markers)
        elif rows > 1:
            axes[1, column].set_visible(False)
    return save(figure, to)


def _diagonal(ways: Sequence[Played]) -> list[Size]:
    """The sizes along the x axis: as many tasks as agents; else, where agents vary more so, the commonest tasks."""
    played = {size for way in ways for size in way.scores}
    longest = sorted(size for size in played if size[0] == size[1])
    for commonest in sorted({tasks for _, tasks in played}):
        line = sorted(size for size in played if size[1] == commonest)
        longest = line if len(line) > len(longest) else longest
    return longest


def better_by(way: Played, ways: Sequence[Played], sizes: Sequence[Size]) -> dict[Size, Interval]:
    """How much higher it scores than the baseline that learned and played alike, over the training seeds of both."""
    if way.policy.key == BASELINE:
        return {}
    for other in ways:
        same = (other.alike, other.simulator, other.play) == (way.alike, way.simulator, way.play)
        if other.policy.key == BASELINE and same:
            ours, theirs = ({size: of.means(size) for size in sizes} for of in (way, other))
            shared = {size: sorted(ours[size].keys() & theirs[size].keys()) for size in sizes}
            return {
                size: score_interval([ours[size][seed] - theirs[size][seed] for seed in seeds])
                for size, seeds in shared.items()
                if seeds
            }
    return {}


def few_to_show(ways: Sequence[Played], sizes: Sequence[Size]) -> list[Played]:
    """Of many lines the paper's policy, the best baseline, and the best of the others."""
    if len({way.name for way in ways}) <= MOST_LINES:
        return list(ways)

    def score(way: Played) -> tuple[int, float]:
        played = [float(np.mean(list(way.means(size).values()))) for size in sizes if size in way.scores]
        return len(played), float(np.mean(played))

    first = min(way.policy.place for way in ways)
    kinds: list[list[Played]] = [[], [], []]
    for way in ways:
        kinds[0 if way.policy.place == first else 1 if way.policy.key == BASELINE else 2].append(way)
    names = {max(kind, key=score).name for kind in kinds if kind}
    return [way for way in ways if way.name in names]


def _draw_team_size(axes: Axes, ways: Sequence[Played], sizes: Sequence[Size], markers: dict[str, str]) -> None:
    world = ways[0].world
    several = len({way.simulator for way in ways}) > 1
    values: list[float] = []
    named: set[str] = set()
    for way in ways:
        there = [size for size in sizes if size in way.scores]
        if not there:
            continue
        middle, low, high = np.asarray([score_interval(list(way.means(size).values())) for size in there]).T
        values += [*low, *high]
        colour = way.policy.colour
        second = several and way.simulator == "own"
        agents = [agents for agents, _ in there]
        axes.plot(
            agents,
            middle,
            color=colour,
            linestyle="--" if second else "-",
            linewidth=1.8,
            marker=markers[way.name],
            markersize=5 if second else 6,
            markerfacecolor="white" if second else colour,
            label=None if way.name in named else way.name,
            zorder=3,
        )
        named.add(way.name)
        axes.fill_between(agents, low, high, color=colour, alpha=0.15, linewidth=0)
    bound = ("bound (nobody brakes or collides)", anchors(world, "bound"))
    for (label, found), style in ((programmed_team(world), "-."), (bound, ":")):
        there = [size for size in sizes if size in found]
        if there:
            means = [found[size].mean for size in there]
            values += means
            axes.plot([n for n, _ in there], means, color="#202020", linestyle=style, linewidth=1.2, label=label)
    low_end, high_end = min(values), max(values)
    room = 0.07 * (high_end - low_end or 1.0)
    _draw_random(axes, world, sizes, low_end, high_end)
    bottom, top = axes.get_ylim()
    axes.set_ylim(min(bottom, low_end - room), max(top, high_end + room))
    _name_sizes(axes, ways, sizes)
    where = " in VMAS (dashed: our own physics)" if several else SIMULATORS.get(ways[0].simulator, "")
    axes.set_title(f"{title_of(world)}{where}", fontsize=11)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def _name_sizes(axes: Axes, ways: Sequence[Played], sizes: Sequence[Size]) -> None:
    """The x axis, with the sizes that were trained on, and what both panels of a world share besides."""
    tasks = tasks_named(ways[0].world)
    same = all(agents == tasks for agents, tasks in sizes)
    played = {agents for agents, _ in sizes}
    trained = set().union(*(way.trained_on for way in ways))
    marked = set() if trained >= played else trained & played  # to mark all of them would say nothing
    for number in marked:
        axes.axvspan(number - 0.3, number + 0.3, color="#f0f0f0", zorder=-1, linewidth=0)
    axes.set_xticks([n for n, _ in sizes], [f"{n}\ntrained" if n in marked else str(n) for n, _ in sizes])
    axes.set(xlabel=f"team size N, with {f'N {tasks}' if same else f'{sizes[0][1]} {tasks}'}")
    room = 0.3 * min(np.diff([n for n, _ in sizes]))
    axes.set_xlim(sizes[0][0] - room, sizes[-1][0] + room)  # alike in both
    axes.grid(axis="y", color="#eeeeee", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_differences(
    axes: Axes,
    ways: Sequence[Played],
    sizes: Sequence[Size],
    differences: dict[str, dict[Size, Interval]],
    markers: dict[str, str],
) -> None:
    """How much better than the baseline. Side by side, or one interval would hide the other; named where they end."""
    colours = {way.name: way.policy.colour for way in ways}
    baseline = next(way.policy.label for way in ways if way.policy.key == BASELINE)
    numbers = [agents for agents, _ in sizes]
    step = 0.09 * min(np.diff(numbers))
    axes.axhline(0, color="#7a7a7a", linewidth=1.2, zorder=2)
    ends: dict[str, tuple[float, float]] = {baseline: (numbers[-1], 0.0)}
    for number, (name, found) in enumerate(differences.items()):
        shift = step * (number - (len(differences) - 1) / 2)
        at = [agents + shift for agents, _ in found]
        middle, low, high = np.asarray(list(found.values())).T
        axes.vlines(at, low, high, color=colours[name], linewidth=1.3, alpha=0.75, zorder=2)
        axes.plot(
            at, middle, color=colours[name], marker=markers[name], markersize=7, markeredgecolor="white", zorder=3
        )
        ends[name] = (at[-1], float(middle[-1]))
    _name_sizes(axes, ways, sizes)
    name_ends(axes, ends, {baseline: "#7a7a7a", **colours}, 3 * step)
    axes.set_title(f"How much better than {baseline}, trained alike", fontsize=10)
    axes.set_ylabel(f"R − R of {baseline}\nmean and 95 % interval\nover the seeds of both", fontsize=9)


def _draw_random(axes: Axes, world: World, sizes: Sequence[Size], low: float, high: float) -> None:
    """Random play sets the scale, but where it lies far below everything else it would flatten all differences."""
    found = anchors(world, "random")
    there = [size for size in sizes if size in found]
    if not there:
        return
    means = [found[size].mean for size in there]
    reach = 0.5 * (high - low)
    shown = min(means) >= low - reach
    axes.set_ylim(min(low, *(means if shown else [low])) - 0.07 * (high - low), high + 0.07 * (high - low))
    label = "random actions" if shown else f"random actions, {_number(max(means))} to {_number(min(means))}"
    axes.plot(
        [n for n, _ in there],
        means,
        color="#a0a0a0",
        linestyle=(0, (1, 1)),
        linewidth=1.5,
        label=label + ("" if shown else " (off the scale)"),
        scaley=False,
    )


def _number(value: float, decimals: int = 0) -> str:
    return f"{value:,.{decimals}f}".replace("-", "−")


# --- R by agents and foods ------------------------------------------------------------------------


def draw_heatmap(runs: Sequence[Run], to: Path) -> Path | None:
    """One world's score by agents and tasks, a panel a policy and one of the oracle; None without a grid to draw."""
    return draw_played_heatmap(played_by(runs), to)


def draw_played_heatmap(played: Sequence[Played], to: Path) -> Path | None:
    """The spread is over episodes, as in the paper: the oracle has no training seeds.

    Where each seed's mean is all that was kept, half of the mean's 95 % interval stands there instead.
    """
    ways = [way for way in played if _is_grid(way)]
    if not ways:
        return None
    of_means = any(way.episodes is not None for way in ways)
    grids = [
        (
            f"{way.name}\n{way.seeds} training seed{'s' * (way.seeds > 1)}, {_fewest(way):,} episodes each",
            _cells_of_means(way) if of_means else _cells(way),
        )
        for way in ways
    ]
    world = ways[0].world
    decimals = 2 if world.scoring.rate else 0
    label, oracle = programmed_team(world)
    shown = {size for _, cells in grids for size in cells}
    if shown & oracle.keys():
        cells = {
            size: (anchor.mean, NORMAL * anchor.sd / math.sqrt(anchor.episodes) if of_means else anchor.sd)
            for size, anchor in oracle.items()
            if size in shown
        }
        episodes = min(anchor.episodes for anchor in oracle.values())
        grids.append((f"{label}\nhand-written, {episodes:,} episodes", cells))
    agents, foods = sorted({n for n, _ in shown}), sorted({k for _, k in shown})
    low, high, extend = colour_range([mean for _, cells in grids for mean, _ in cells.values()])
    rows = -(-len(grids) // MOST_HEATMAPS_ABREAST)
    columns = -(-len(grids) // rows)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=((0.9 + 0.66 * len(agents)) * columns + 0.8, (1.4 + 0.54 * len(foods)) * rows),
        squeeze=False,
        layout="constrained",
    )
    for spare in axes.flat[len(grids) :]:
        spare.set_visible(False)
    for axis, (title, cells) in zip(axes.flat, grids, strict=False):
        grid = np.full((len(foods), len(agents)), np.nan)
        for (n, k), (mean, _) in cells.items():
            grid[foods.index(k), agents.index(n)] = mean
        image = axis.imshow(grid, vmin=low, vmax=high, cmap="cividis", origin="lower", aspect="auto")
        for (n, k), (mean, spread) in cells.items():
            axis.text(
                agents.index(n),
                foods.index(k),
                f"{_number(mean, decimals)}\n±{_number(spread, decimals)}",
                ha="center",
                va="center",
                fontsize=9,
                color=text_on(image.cmap(image.norm(mean))),
            )
        axis.set_title(title, fontsize=10)
        axis.set(xticks=range(len(agents)), xticklabels=agents, yticks=range(len(foods)), yticklabels=foods)
        axis.set(xlabel="agents", ylabel=tasks_named(world))
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    over = "half of its 95 % interval\n(over training seeds; of the programmed team over episodes)"
    label = f"{world.scoring.name}: mean ± {over if of_means else 'sd over episodes'}"
    figure.colorbar(image, ax=axes, label=label, pad=0.01, extend=extend)
    return save(figure, to)


def colour_range(means: Sequence[float]) -> tuple[float, float, Literal["neither", "min", "max", "both"]]:
    """From where to where colours differ, and beyond which end all are alike.

    A few sizes that score far off would leave one colour to all others, so a tail is cut that is longer than what the
    middle three fifths take.

    >>> colour_range([-1000, 0, 10, 20, 30, 40, 50, 60, 70, 80])
    (8.0, 80.0, 'min')
    """
    low, high = (float(end) for end in np.percentile(means, [20, 80]))
    cut_low, cut_high = low - min(means) > high - low, max(means) - high > high - low
    extend: Literal["neither", "min", "max", "both"]
    extend = "both" if cut_low and cut_high else "min" if cut_low else "max" if cut_high else "neither"
    return low if cut_low else float(min(means)), high if cut_high else float(max(means)), extend


def _is_grid(way: Played) -> bool:
    return len({n for n, _ in way.scores}) > 1 and len({k for _, k in way.scores}) > 1


def _fewest(way: Played) -> int:
    return way.episodes or min(len(values) for by_seed in way.scores.values() for values in by_seed.values())


def _cells(way: Played) -> dict[Size, tuple[float, float]]:
    pooled = {size: np.concatenate(list(by_seed.values())) for size, by_seed in way.scores.items()}
    return {size: (float(values.mean()), float(values.std())) for size, values in pooled.items()}


def _cells_of_means(way: Played) -> dict[Size, tuple[float, float]]:
    found = {size: score_interval(list(way.means(size).values())) for size in way.scores}
    return {size: (interval.mean, interval.high - interval.mean) for size, interval in found.items()}
