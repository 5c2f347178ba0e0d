"""Figures of what was evaluated: R by team size, and by agents and foods. R is the return divided by the agents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from diamond_attention.evaluation.statistics import score_interval
from diamond_attention.reports.anchors import anchors
from diamond_attention.reports.episodes import newest_episodes
from diamond_attention.reports.names import naming, place_of, policy_name
from diamond_attention.reports.panels import save, text_on
from diamond_attention.runs.record import Run
from diamond_attention.runs.settings import Settings, flat, to_json
from diamond_attention.worlds.contract import World

Size = tuple[int, int]
"""Agents and tasks."""

Group = tuple[Settings, str | None]
"""What training seeds of one policy share: their settings, and the run whose weights they began with."""

TITLES = {"spread": "Simple Spread", "food": "Food Collection"}
TASKS = {"spread": "landmarks", "food": "foods"}
SIMULATORS = {"own": "our own physics", "vmas": "VMAS"}
MARKERS = "os^Dv<>"
MOST_DIFFERENCES = 2
"""Settings named in a legend before it says "…"."""

MOST_HEATMAPS_ABREAST = 3
LARGE_TEAM_FROM = 10
"""Teams of this size and more have a panel of their own: R falls so fast with N that it would flatten the rest."""


@dataclass
class Played:
    """One kind of policy played one way, its training seeds side by side."""

    name: str
    settings: Settings
    simulator: str
    play: str
    twins: int
    """How many lines of the same kind of mask, and so of the same colour, came before it in the figure."""
    scores: dict[Size, dict[int, Float[np.ndarray, " episode"]]] = field(default_factory=lambda: defaultdict(dict))
    """R of every episode, by size and training seed."""

    @property
    def seeds(self) -> int:
        return len({seed for by_seed in self.scores.values() for seed in by_seed})


def played_by(runs: Sequence[Run]) -> list[Played]:
    """What these runs, all of one world, have in episodes.csv; greedy play where there is some."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        if run.failure is None:
            groups[(run.settings, run.started_from)].append(run)
    names = names_apart(groups)
    found: list[Played] = []
    twins: dict[str, int] = defaultdict(int)
    for group in sorted(groups, key=lambda group: place_of(group[0].policy.mask)):
        settings = group[0]
        ways: dict[tuple[str, str], Played] = {}
        by_run = {run.seed: _newest_scores(run) for run in groups[group]}
        keys = sorted({key for scores in by_run.values() for key in scores}, reverse=True)
        greedy = any(play == "greedy" for _, _, play in keys)
        dropouts = sorted({dropout for _, dropout, _ in keys}, reverse=True)  # on, off: a line each
        for simulator, dropout, play in keys:
            if greedy and play != "greedy":
                continue
            name = policy_name(settings.policy.mask, dropout) + names[group] + ("" if greedy else ", sampled")
            before = twins[settings.policy.mask] + dropouts.index(dropout)
            way = Played(name, settings, simulator, play, before)
            for seed, scores in by_run.items():
                for size, values in scores.get((simulator, dropout, play), {}).items():
                    way.scores[size][seed] = values
            ways[simulator, dropout] = way
        found += ways.values()
        twins[settings.policy.mask] += len(dropouts)
    return found


def _newest_scores(run: Run) -> dict[tuple[str, str, str], dict[Size, Float[np.ndarray, " episode"]]]:
    """R by (simulator, dropout, play) and size: the newest checkpoint's, each episode once."""
    scores: dict[tuple[str, str, str], dict[Size, np.ndarray]] = defaultdict(dict)
    for (simulator, agents, tasks, play, dropout, *_), rows in newest_episodes(run).items():
        returns = np.asarray([float(row["return"]) for row in rows])
        scores[simulator, dropout, play][int(agents), int(tasks)] = returns / int(agents)
    return scores


def names_apart(groups: Mapping[Group, Sequence[Run]]) -> dict[Group, str]:
    """What tells policies with the same kind of mask apart: the preset, or else the settings that differ."""
    names = {}
    for group, runs in groups.items():
        alike = [other for other in groups if other[0].policy.mask == group[0].policy.mask]
        presets = {groups[other][0].preset for other in alike}
        if len(presets) == len(alike) > 1:
            names[group] = f" ({runs[0].preset})"
            continue
        described = [{**dict(flat(to_json(settings))), "from": source} for settings, source in alike]
        own = described[alike.index(group)]
        changed = [f"{name}={own[name]}" for name in own if len({str(other.get(name)) for other in described}) > 1]
        more = ", …" if len(changed) > MOST_DIFFERENCES else ""
        names[group] = "".join(f", {change}" for change in changed[:MOST_DIFFERENCES]) + more
    return names


# --- R by team size -------------------------------------------------------------------------------


def draw_team_sizes(runs: Sequence[Run], to: Path) -> Path | None:
    """R against the size of the team, a panel a world and one more for large teams.

    None if no world was played at two sizes.
    """
    panels = []
    for name in TITLES:
        ways = played_by([run for run in runs if run.settings.world.name == name])
        sizes = _diagonal(ways)
        if len(sizes) < 2:
            continue
        small = [size for size in sizes if size[0] < LARGE_TEAM_FROM]
        large = [size for size in sizes if size[0] >= LARGE_TEAM_FROM]
        for part in (small, large) if min(len(small), len(large)) > 1 else (sizes,):
            panels.append(([way for way in ways if any(size in way.scores for size in part)], part))
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(5.4 * len(panels), 4.9), squeeze=False, layout="constrained")
    for axis, (ways, sizes) in zip(axes[0], panels, strict=True):
        _draw_team_size(axis, ways, sizes)
    few, *_, many = sorted([way.seeds for ways, _ in panels for way in ways] * 2)
    seeds = f"{many}" if few == many else f"{few} to {many}"
    over = "one training seed, so no interval" if many == 1 else f"mean and 95 % interval over {seeds} training seeds"
    axes[0, 0].set_ylabel(f"R, return per agent (higher is better)\n{over}", fontsize=9)
    return save(figure, to)


def _diagonal(ways: Sequence[Played]) -> list[Size]:
    """The sizes along the x axis: as many tasks as agents; else, where agents vary more so, the commonest tasks."""
    played = {size for way in ways for size in way.scores}
    longest = sorted(size for size in played if size[0] == size[1])
    for commonest in sorted({tasks for _, tasks in played}):
        line = sorted(size for size in played if size[1] == commonest)
        longest = line if len(line) > len(longest) else longest
    return longest


def _draw_team_size(axes: Axes, ways: Sequence[Played], sizes: Sequence[Size]) -> None:
    world: World = ways[0].settings.world
    several = len({way.simulator for way in ways}) > 1
    values: list[float] = []
    named: set[str] = set()
    for way in ways:
        there = [size for size in sizes if size in way.scores]
        if not there:
            continue
        per_seed = [[float(np.mean(scores)) for scores in way.scores[size].values()] for size in there]
        middle, low, high = np.asarray([score_interval(scores) for scores in per_seed]).T
        values += [*low, *high]
        colour = naming(way.settings.policy.mask).colour
        second = several and way.simulator == "own"
        agents = [agents for agents, _ in there]
        axes.plot(
            agents,
            middle,
            color=colour,
            linestyle="--" if second else "-",
            linewidth=1.8,
            marker=MARKERS[way.twins % len(MARKERS)],
            markersize=4 if second else 5,
            markerfacecolor="white" if second else colour,
            label=None if way.name in named else way.name,
            zorder=3,
        )
        named.add(way.name)
        axes.fill_between(agents, low, high, color=colour, alpha=0.15, linewidth=0)
    scale = {"PD + Hungarian": ("assigned", "-."), "bound (nobody brakes or collides)": ("bound", ":")}
    for label, (oracle, style) in scale.items():
        found = anchors(world, oracle)
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
    same = all(agents == tasks for agents, tasks in sizes)
    tasks_named = TASKS[world.name]
    trained = _trained(ways, sizes)
    for number in trained:
        axes.axvspan(number - 0.3, number + 0.3, color="#f0f0f0", zorder=-1, linewidth=0)
    axes.set_xticks([n for n, _ in sizes], [f"{n}\ntrained" if n in trained else str(n) for n, _ in sizes])
    where = "VMAS (dashed: our own physics)" if several else SIMULATORS.get(ways[0].simulator, ways[0].simulator)
    axes.set(
        xlabel=f"team size N, with {f'N {tasks_named}' if same else f'{sizes[0][1]} {tasks_named}'}",
    )
    axes.set_title(f"{TITLES[world.name]} in {where}", fontsize=11)
    axes.grid(axis="y", color="#eeeeee", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


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


def _trained(ways: Sequence[Played], sizes: Sequence[Size]) -> set[int]:
    """The team sizes to mark: those trained on, unless that is all of them."""
    trained = {int(size.agents) for way in ways for size in way.settings.sizes}
    played = {agents for agents, _ in sizes}
    return set() if trained >= played else trained & played


def _number(value: float) -> str:
    return f"{value:,.0f}".replace("-", "−")


# --- R by agents and foods ------------------------------------------------------------------------


def draw_heatmap(runs: Sequence[Run], to: Path) -> Path | None:
    """Food Collection: R by agents and foods, a panel a policy and one of the oracle; None without a grid to draw.

    The spread is over episodes, as in the paper: the oracle has no training seeds.
    """
    ways = [way for way in played_by([run for run in runs if run.settings.world.name == "food"]) if _is_grid(way)]
    if not ways:
        return None
    grids = [
        (f"{way.name}\n{way.seeds} training seed{'s' * (way.seeds > 1)}, {_fewest(way):,} episodes each", _cells(way))
        for way in ways
    ]
    oracle = anchors(ways[0].settings.world, "assigned")
    shown = {size for _, cells in grids for size in cells}
    if shown & oracle.keys():
        cells = {size: (anchor.mean, anchor.sd) for size, anchor in oracle.items() if size in shown}
        episodes = min(anchor.episodes for anchor in oracle.values())
        grids.append((f"PD + Hungarian\nhand-written, {episodes:,} episodes", cells))
    agents, foods = sorted({n for n, _ in shown}), sorted({k for _, k in shown})
    means = [mean for _, cells in grids for mean, _ in cells.values()]
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
        image = axis.imshow(grid, vmin=min(means), vmax=max(means), cmap="cividis", origin="lower", aspect="auto")
        for (n, k), (mean, spread) in cells.items():
            axis.text(
                agents.index(n),
                foods.index(k),
                f"{_number(mean)}\n±{_number(spread)}",
                ha="center",
                va="center",
                fontsize=9,
                color=text_on(image.cmap(image.norm(mean))),
            )
        axis.set_title(title, fontsize=10)
        axis.set(xticks=range(len(agents)), xticklabels=agents, yticks=range(len(foods)), yticklabels=foods)
        axis.set(xlabel="agents $N_a$", ylabel="foods $N_f$")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="R, return per agent: mean ± sd over episodes", pad=0.01)
    return save(figure, to)


def _is_grid(way: Played) -> bool:
    return len({n for n, _ in way.scores}) > 1 and len({k for _, k in way.scores}) > 1


def _fewest(way: Played) -> int:
    return min(len(values) for by_seed in way.scores.values() for values in by_seed.values())


def _cells(way: Played) -> dict[Size, tuple[float, float]]:
    pooled = {size: np.concatenate(list(by_seed.values())) for size, by_seed in way.scores.items()}
    return {size: (float(values.mean()), float(values.std())) for size, values in pooled.items()}
