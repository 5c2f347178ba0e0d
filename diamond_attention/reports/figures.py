"""Figures: what a team's ranks do to its attention, and how it gets better while training."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from diamond_attention.actions import ActOrChooseTask, Categorical
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import dropout_in_force
from diamond_attention.evaluation.statistics import score_interval, seed_interval
from diamond_attention.learning.rollout import act, begin_episode, episode_length, see
from diamond_attention.reports.names import naming, place_of
from diamond_attention.reports.panels import draw_weights, save
from diamond_attention.reports.recording import size_to_show
from diamond_attention.reports.scenes import SCENES
from diamond_attention.reports.scores import TITLES, Group, draw_heatmap, draw_team_sizes, names_apart
from diamond_attention.reports.snapshots import draw_snapshots
from diamond_attention.runs.record import Run, read_rows
from diamond_attention.runs.settings import check_seed, padded
from diamond_attention.runs.train import load_policy
from diamond_attention.worlds.contract import TeamSize, as_scored
from diamond_attention.worlds.xor import floor

STYLES = ("-", "--", ":", "-.")
"""Of learning curves whose masks, and so colours, are the same."""
OWN_COLOUR, OTHER_COLOUR = "#0072b2", "#bcd6e8"


def draw_figures(runs: Sequence[Run], to: Path, seed: int = 0, agents: int | None = None) -> Iterator[Path | str]:
    """Every figure these runs have the rows for, into the folder `to`; a sentence for each that is left out."""
    check_seed(seed)
    by_world: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_world[run.settings.world.name].append(run)
    shown = {name: one_to_show(members) for name, members in by_world.items()}
    sizes = {name: size_to_show(run, agents) for name, run in shown.items()}  # refused before anything is drawn
    for name, run in shown.items():
        if name in SCENES:
            ending = f"_{name}" if len(SCENES.keys() & shown.keys()) > 1 else ""
            yield draw_snapshots(run, sizes[name], to / f"attention_snapshots{ending}.png", seed)
        elif isinstance(run.settings.world.action_kind, ActOrChooseTask):
            yield f"attention.png is left out: it has no room for the actions of {name}; see `diamond watch`."
        else:
            yield draw_attention(run, to / "attention.png", seed, sizes[name])
    if any(run.metrics.exists() for run in runs):
        yield draw_learning_curves([run for run in runs if run.metrics.exists()], to / "learning_curves.png")
    else:
        yield "learning_curves.png is left out: a policy alone has no record of its training."
    if by_world.keys() & TITLES.keys():
        yield draw_team_sizes(runs, to / "team_size.png") or (
            "team_size.png is left out: it needs two team sizes; run `diamond evaluate RUN --agents 2:8` first."
        )
    if "food" in by_world:
        yield draw_heatmap(runs, to / "heatmap.png") or (
            "heatmap.png is left out: it needs several numbers of agents and of foods; "
            "run `diamond evaluate RUN --agents 2:8 --tasks 2:8` first."
        )
    scored = [run for run in runs if run.settings.world.name in TITLES]
    unplayed = [str(run.path) for run in scored if not run.episodes.exists()]
    if 0 < len(unplayed) < len(scored):
        more = f" (and {len(unplayed) - 1} more)" if len(unplayed) > 1 else ""
        yield f"{unplayed[0]}{more} is in no figure of scores: run `diamond evaluate` on it first."


def one_to_show(runs: Sequence[Run]) -> Run:
    """The run whose attention is drawn: the first that finished with the rank mask, else the first that did."""
    good = [run for run in runs if run.failure is None] or list(runs)
    return next((run for run in good if run.settings.policy.mask == "rank"), good[0])


def draw_attention(run: Run, to: Path, seed: int = 0, size: TeamSize | None = None) -> Path:
    """One step of one team: ranks on top, then for each agent whom it sees, its attention, its choice."""
    settings = run.settings
    policy, step = load_policy(run)
    largest = max(settings.sizes) if size is None else size
    world = padded(as_scored(settings.world), [largest])
    reset_key, see_key, act_key = jax.random.split(jax.random.key(seed), 3)
    team = begin_episode(world, jnp.asarray([largest]), reset_key)
    views, ranks = see(world, policy, team, see_key, settings.rank_hold, dropout_in_force(settings, None))
    distributions, attention = jax.vmap(policy)(views)
    actions, _ = act(policy, views, act_key, greedy=True)
    if not isinstance(distributions, Categorical):
        raise UserError(f"the attention figure shows choices between tasks, and {world.name} has none.")
    probabilities = np.asarray(jax.nn.softmax(distributions.logits, axis=-1))
    agents, tasks = int(largest.agents), int(largest.tasks)

    mask = naming(policy.mask)

    figure, axes = plt.subplots(
        4,
        agents,
        figsize=(1.2 + 1.9 * agents, 7.4),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [0.9, 1.2, 1.2, 0.9]},
    )
    for viewer in range(agents):
        order = [viewer, *(i for i in range(agents) if i != viewer)]
        columns = [order.index(i) for i in range(agents)]  # every panel lists the team in the same order
        _draw_ranks(axes[0, viewer], np.asarray(ranks)[:agents], viewer)
        for row, block in ((1, 0), (2, 1)):
            weights = np.asarray(attention[block][viewer])[:tasks][:, columns]
            visible = np.asarray(ranks)[:agents] >= float(ranks[viewer])
            if block not in mask.hides_in:
                visible = np.ones(agents, bool)
            draw_weights(axes[row, viewer], weights, visible)
            axes[row, viewer].set_xlabel("attends to agent")
            if viewer:
                axes[row, viewer].set_yticklabels([])
        _draw_choice(axes[3, viewer], probabilities[viewer][:tasks], int(actions[viewer]))
    for row, label in enumerate(("rank", "block 1\ntask", "block 2\ntask", "P(action)")):
        axes[row, 0].set_ylabel(label)
    title = f"{mask.label}, n={agents}, k={tasks}, after {step:,} steps. {mask.caption}"
    figure.suptitle(fill(title, 30 + 22 * agents), fontsize=9)
    return save(figure, to)


def _draw_ranks(axes: Axes, ranks: np.ndarray, viewer: int) -> None:
    colours = [OWN_COLOUR if i == viewer else OTHER_COLOUR for i in range(len(ranks))]
    axes.bar(range(len(ranks)), ranks, color=colours)
    axes.axhline(ranks[viewer], color=OWN_COLOUR, linewidth=0.8, linestyle=":")
    axes.set(ylim=(0, 1), xticks=range(len(ranks)), yticks=[0, 1], title=f"agent {viewer}")
    place = int(np.sum(ranks > ranks[viewer])) + 1
    axes.text(0.03, 0.9, f"place {place}", transform=axes.transAxes, fontsize=8, va="top")


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
        length = episode_length(run.settings.world, run.settings.ppo.cut_after)
        panels[run.settings.world.name, sizes, length][run.settings, run.started_from].append(run)
    if not panels:
        raise UserError("all of these runs failed, so there is no learning curve to draw.")
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.9), squeeze=False, layout="constrained")
    worlds = [*TITLES, *sorted({world for world, _, _ in panels} - TITLES.keys())]
    smallest_first = sorted(
        panels.items(), key=lambda panel: (worlds.index(panel[0][0]), next(iter(panel[1].values()))[0].settings.sizes)
    )
    before = ""
    for axis, ((world, sizes, length), policies) in zip(axes[0], smallest_first, strict=True):
        names = names_apart(policies)
        drawn: list[str] = []
        for group in sorted(policies, key=lambda group: (place_of(group[0].policy.mask), names[group])):
            mask, members = group[0].policy.mask, policies[group]
            steps, curves = _curves(members)
            if not len(steps):
                continue
            interval = score_interval if _measure(members)[0] == "return" else partial(seed_interval, resamples=1000)
            middle, low, high = np.asarray([interval(column) for column in curves.T]).T
            seeds = f"{len(members)} seed{'s' * (len(members) > 1)}"
            name, style = f"{naming(mask).label}{names[group]}, {seeds}", STYLES[drawn.count(mask) % len(STYLES)]
            drawn.append(mask)
            axis.plot(steps, middle, color=naming(mask).colour, linestyle=style, label=name)
            axis.fill_between(steps, low, high, color=naming(mask).colour, alpha=0.2, linewidth=0)
        settings = next(iter(policies.values()))[0].settings
        if len(settings.sizes) == 1 and world == "xor":
            only = settings.sizes[0]
            axis.axhline(
                floor(int(only.agents), int(only.tasks)), color="k", linewidth=0.8, linestyle=":", label="floor"
            )
        if world == "xor":
            axis.set_ylim(-0.02, 1.05)
        axis.set(title=f"{TITLES[world]}, {sizes}" if world in TITLES else sizes, xlabel="steps of the team")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        else:
            axis.text(0.5, 0.5, "no training episode has ended yet", ha="center", transform=axis.transAxes)
        measure, label, _ = _measure(next(iter(policies.values())))
        if measure == "return":
            label = label.replace("training episodes", f"training episodes of {length} steps")
        if label != before:
            axis.set_ylabel(label, fontsize=9)
        before = label
    return save(figure, to)


def _measure(runs: Sequence[Run]) -> tuple[str, str, float]:
    """What a learning curve shows: a column of metrics.csv, its name, and what it is divided by."""
    if any("success" in row for run in runs for row in read_rows(run.metrics)[:1]):
        return "success", "success while training (sampled)\nmean and 95 % interval over seeds", 1.0
    if any("battle_won" in row for run in runs for row in read_rows(run.metrics)[:1]):
        return "battle_won", "battles won while training (sampled)\nmean and 95 % interval over seeds", 1.0
    teams = {int(size.agents) for size in runs[0].settings.sizes}
    if len(teams) > 1:  # a mean over episodes of different teams has no one number to be divided by
        return "return", "return\nof training episodes\nmean and 95 % interval over seeds", 1.0
    return "return", "return per agent\nof training episodes\nmean and 95 % interval over seeds", float(teams.pop())


def _curves(runs: Sequence[Run], points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The measure by step, averaged in equal bins so that every seed has the same points: [point], [seed, point]."""
    column, _, divisor = _measure(runs)
    rows = [[row for row in read_rows(run.metrics) if row.get(column)] for run in runs]
    length = min(map(len, rows))
    if not length:
        return np.zeros(0), np.zeros((len(runs), 0))
    width = max(1, length // points)
    used = length // width * width
    steps = np.asarray([float(row["step"]) for row in rows[0][:used]]).reshape(-1, width).mean(1)
    curves = [np.asarray([float(row[column]) for row in seed[:used]]).reshape(-1, width).mean(1) for seed in rows]
    return steps, np.asarray(curves) / divisor
