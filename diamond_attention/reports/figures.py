"""Figures: what a team's ranks do to its attention, and how it gets better while training."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from diamond_attention.errors import UserError
from diamond_attention.evaluation.recording import Recording, record, size_to_show
from diamond_attention.evaluation.statistics import score_interval, seed_interval
from diamond_attention.reports.panels import draw_weights, save
from diamond_attention.reports.played import Group, names_apart, place_of
from diamond_attention.reports.scores import draw_heatmap, draw_team_sizes
from diamond_attention.reports.snapshots import check_viewers, draw_snapshots
from diamond_attention.runs.folder import Run
from diamond_attention.runs.metrics import COLUMNS
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.seeds import check_seed
from diamond_attention.runs.settings import described_as
from diamond_attention.worlds.contract import TeamSize, World, tasks_named, title_of

STYLES = ("-", "--", ":", "-.")
"""Of learning curves whose masks, and so colours, are the same."""
OWN_COLOUR, OTHER_COLOUR = "#0072b2", "#bcd6e8"
MOST_CELLS_WITH_NUMBERS = 256
"""Of one agent's weights in one block."""


def draw_figures(runs: Sequence[Run], to: Path, seed: int = 0, agents: int | None = None) -> Iterator[Path | str]:
    """Every figure these runs have the rows for, into the folder `to`; a sentence for each that is left out."""
    check_seed(seed)
    by_world: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_world[run.settings.world.name].append(run)
    shown = {name: one_to_show(members) for name, members in by_world.items()}
    # Refused before anything is drawn.
    sizes = {name: size_to_show(run, run.settings.world, agents) for name, run in shown.items()}
    for size in sizes.values():
        check_viewers(size)
    of_teams = file_names(
        {n: "attention_snapshots" if r.settings.world.time_limit > 1 else "attention" for n, r in shown.items()}
    )
    for name, run in shown.items():
        yield draw_one_team(run, sizes[name], to / of_teams[name], seed)
    if any(run.metrics.exists() for run in runs):
        yield draw_learning_curves([run for run in runs if run.metrics.exists()], to / "learning_curves.png")
    else:
        yield "learning_curves.png is left out: a policy alone has no record of its training."
    free = [run for run in runs if run.settings.world.sizes is None]
    if free:
        yield draw_team_sizes(free, to / "team_size.png") or (
            "team_size.png is left out: it needs two team sizes; run `diamond evaluate RUN --agents 2:8` first."
        )
    grids = {name: run.settings.world for name, run in shown.items() if plays_any_numbers(run.settings.world)}
    for name, file in file_names(dict.fromkeys(grids, "heatmap")).items():
        yield draw_heatmap(by_world[name], to / file) or (
            f"{file} is left out: it needs several numbers of agents and of {tasks_named(grids[name])}; "
            "run `diamond evaluate RUN --agents 2:8 --tasks 2:8` first."
        )
    unplayed = [str(run.path) for run in free if not run.episodes.exists()]
    if 0 < len(unplayed) < len(free):
        more = f" (and {len(unplayed) - 1} more)" if len(unplayed) > 1 else ""
        yield f"{unplayed[0]}{more} is in no figure of scores: run `diamond evaluate` on it first."


def one_to_show(runs: Sequence[Run]) -> Run:
    """The run whose attention is drawn: of those that finished, the first with the policy that tables list first."""
    good = [run for run in runs if run.failure is None] or list(runs)
    return min(good, key=lambda run: described_as(run.settings).place)


def file_names(bases: Mapping[str, str]) -> dict[str, str]:
    """A file for each world, with its name where several would have the same.

    >>> file_names({"xor": "attention", "food": "heatmap", "spread": "heatmap"})
    {'xor': 'attention.png', 'food': 'heatmap_food.png', 'spread': 'heatmap_spread.png'}
    """
    several = Counter(bases.values())
    return {world: f"{base}_{world}.png" if several[base] > 1 else f"{base}.png" for world, base in bases.items()}


def plays_any_numbers(world: World) -> bool:
    """Whether agents and tasks can be chosen apart, so that there can be a grid of both."""
    try:
        world.check_size(TeamSize(2, 3))
    except UserError:
        return False
    return world.sizes is None


def draw_one_team(run: Run, size: TeamSize, to: Path, seed: int) -> Path | str:
    """What a team attends to: of a world of one step that step, of others several moments."""
    several = run.settings.world.time_limit > 1
    drawn = draw_snapshots(run, size, to, seed) if several else draw_attention(run, to, seed, size)
    return drawn or f"{to.name} is left out: its policy has no attention to show."


def draw_attention(run: Run, to: Path, seed: int = 0, size: TeamSize | None = None) -> Path | None:
    """One step of one team: ranks on top, then for each agent whom it sees, its attention, its choice."""
    largest = max(run.settings.sizes) if size is None else size
    check_viewers(largest)
    recording = record(run, largest, steps=1, seed=seed)
    if len(recording.weights) < 2 or recording.choices is None:
        return None
    agents, tasks, policy = int(largest.agents), int(largest.tasks), recording.policy
    figure, axes = plt.subplots(
        4,
        agents,
        figsize=(1.2 + 1.9 * agents, 7.4),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [0.9, 1.2, 1.2, 0.9]},
    )
    for viewer in range(agents):
        _draw_ranks(axes[0, viewer], recording, viewer)
        for row, block in ((1, 0), (2, 1)):
            weights = recording.weights[block][0, viewer]
            few = weights.size <= MOST_CELLS_WITH_NUMBERS  # each number is a text of its own, and slow to lay out
            draw_weights(axes[row, viewer], weights, recording.visible(0, viewer, block), 7 if few else None)
            axes[row, viewer].set_xlabel("attends to agent")
            if viewer:
                axes[row, viewer].set_yticklabels([])
        _draw_choice(axes[3, viewer], recording.choices[0, viewer], int(recording.actions[0, viewer]))
    for row, label in enumerate(("rank", "block 1\ntask", "block 2\ntask", "P(action)")):
        axes[row, 0].set_ylabel(label)
    title = f"{policy.label}, n={agents}, k={tasks}, after {recording.trained_steps:,} steps. "
    title += " ".join(filter(None, (policy.ranks_do, policy.caption)))
    figure.suptitle(fill(title, 30 + 22 * agents), fontsize=9)
    return save(figure, to)


def _draw_ranks(axes: Axes, recording: Recording, viewer: int) -> None:
    ranks = recording.ranks[0]
    colours = [OWN_COLOUR if i == viewer else OTHER_COLOUR for i in range(len(ranks))]
    axes.bar(range(len(ranks)), ranks, color=colours)
    axes.axhline(ranks[viewer], color=OWN_COLOUR, linewidth=0.8, linestyle=":")
    axes.set(ylim=(0, 1.3), xticks=range(len(ranks)), yticks=[0, 1], title=f"agent {viewer}")
    place = recording.places[0, viewer]
    axes.text(0.03, 0.96, f"place {place}", transform=axes.transAxes, fontsize=8, va="top")


def _draw_choice(axes: Axes, probabilities: np.ndarray, action: int) -> None:
    colours = [OWN_COLOUR if i == action else OTHER_COLOUR for i in range(len(probabilities))]
    axes.bar(range(len(probabilities)), probabilities, color=colours)
    axes.set(ylim=(0, 1.05), xticks=range(len(probabilities)), yticks=[0, 1], xlabel=f"chooses {action}")


def draw_learning_curves(runs: Sequence[Run], to: Path) -> Path:
    """Success of the training episodes, else R: mean over seeds, 95 % interval over seeds; one panel a team size.

    Returns of short episodes and of long ones have no common axis, so runs that cut them differently get panels of
    their own.
    """
    panels: dict[tuple[str, str, int], dict[Group, list[Run]]]
    panels = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.failure is not None:
            continue
        sizes = ", ".join(f"n={s.agents} k={s.tasks}" for s in run.settings.sizes)
        length = run.settings.method.episode_steps(run.settings.world)
        panels[run.settings.world.name, sizes, length][run.settings, run.started_from].append(run)
    if not panels:
        raise UserError("all of these runs failed, so there is no learning curve to draw.")
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.9), squeeze=False, layout="constrained")
    worlds = list(dict.fromkeys(world for world, _, _ in panels))
    smallest_first = sorted(
        panels.items(), key=lambda panel: (worlds.index(panel[0][0]), next(iter(panel[1].values()))[0].settings.sizes)
    )
    before = ""
    for axis, ((_, sizes, length), policies) in zip(axes[0], smallest_first, strict=True):
        settings = next(iter(policies.values()))[0].settings
        world, scoring = settings.world, settings.world.scoring
        names = names_apart(policies)
        drawn: list[str] = []
        for group in sorted(policies, key=lambda group: (place_of(group), names[group])):
            policy, members = described_as(group[0]), policies[group]
            steps, curves = _curves(members)
            if not len(steps):
                continue
            interval = partial(seed_interval, resamples=1000) if scoring.rate else score_interval
            middle, low, high = np.asarray([interval(column) for column in curves.T]).T
            seeds = f"{len(members)} seed{'s' * (len(members) > 1)}"
            name, style = f"{policy.label}{names[group]}, {seeds}", STYLES[drawn.count(policy.key) % len(STYLES)]
            drawn.append(policy.key)
            axis.plot(steps, middle, color=policy.colour, linestyle=style, label=name)
            axis.fill_between(steps, low, high, color=policy.colour, alpha=0.2, linewidth=0)
        if len(settings.sizes) == 1 and scoring.chance is not None:
            level = scoring.chance(*map(int, settings.sizes[0]))
            axis.axhline(level, color="k", linewidth=0.8, linestyle=":", label="chance level")
        if scoring.rate:
            axis.set_ylim(-0.02, 1.05)
        axis.set(title=f"{title_of(world)}, {sizes}", xlabel="steps of the team")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        else:
            axis.text(0.5, 0.5, "no training episode has ended yet", ha="center", transform=axis.transAxes)
        label, _ = _measure(next(iter(policies.values())))
        if not scoring.rate:
            label = label.replace("training episodes", f"training episodes of {length} steps")
        if label != before:
            axis.set_ylabel(label, fontsize=9)
        before = label
    return save(figure, to)


def _measure(runs: Sequence[Run]) -> tuple[str, float]:
    """What a learning curve shows, in words, and what the world's score is divided by."""
    scoring = runs[0].settings.world.scoring
    over = "mean and 95 % interval over seeds"
    if scoring.rate:
        return f"{scoring.name.lower()} while training (sampled)\n{over}", 1.0
    teams = {int(size.agents) for size in runs[0].settings.sizes}
    if not scoring.per_agent or len(teams) > 1:  # of different teams there is no one number to divide a mean by
        return f"{scoring.score}\nof training episodes\n{over}", 1.0
    return f"{scoring.score} per agent\nof training episodes\n{over}", float(teams.pop())


def _curves(runs: Sequence[Run], points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The measure by step, averaged in equal bins so that every seed has the same points: [point], [seed, point]."""
    column, divisor = runs[0].settings.world.scoring.score, _measure(runs)[1]
    rows = [[row for row in read_rows(run.metrics, COLUMNS) if row.get(column)] for run in runs]
    length = min(map(len, rows))
    if not length:
        return np.zeros(0), np.zeros((len(runs), 0))
    width = max(1, length // points)
    used = length // width * width
    steps = np.asarray([float(row["step"]) for row in rows[0][:used]]).reshape(-1, width).mean(1)
    curves = [np.asarray([float(row[column]) for row in seed[:used]]).reshape(-1, width).mean(1) for seed in rows]
    return steps, np.asarray(curves) / divisor
