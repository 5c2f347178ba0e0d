"""Figures: what a team's ranks do to its attention, and how success grows while training."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")  # no display server needed
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from diamond_attention.actions import Categorical
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import dropout_in_force
from diamond_attention.evaluation.statistics import seed_interval
from diamond_attention.learning.rollout import act, begin_episode, see
from diamond_attention.runs.record import Run, read_rows
from diamond_attention.runs.train import load_run
from diamond_attention.worlds.xor import floor

COLOURS = {"rank": "#1f5fa8", "none": "#8a8a8a", "dropout": "#d9822b"}
LABELS = {"rank": "rank mask", "none": "no mask", "dropout": "dropout"}
CAPTIONS = {
    "rank": "Each row of a block sums to one over\n"
    "the agents its viewer can see; hatched columns are peers hidden by rank.",
    "none": "Each row of a block sums to one.",
    "dropout": "Weights are dropped at random and\nthe others scaled up, so a row sums to one only on average.",
}
HIDDEN_COLOUR = "#eeeeee"


def draw_attention(run: Run, to: Path, seed: int = 0) -> Path:
    """One step of one team: ranks on top, then for each agent whom it sees, its attention, its choice."""
    settings = run.settings
    state, step = load_run(run)
    policy, world = state.weights.policy, settings.world
    reset_key, see_key, act_key = jax.random.split(jax.random.key(seed), 3)
    largest = max(settings.sizes)
    team = begin_episode(world, jnp.asarray([largest]), reset_key)
    views, ranks = see(world, policy, team, see_key, settings.rank_hold, dropout_in_force(settings, None))
    distributions, attention = jax.vmap(policy)(views)
    actions, _ = act(policy, views, act_key, greedy=True)
    if not isinstance(distributions, Categorical):
        raise UserError(f"the attention figure shows choices between tasks, and {world.name} has none.")
    probabilities = np.asarray(jax.nn.softmax(distributions.logits, axis=-1))
    agents, tasks = int(largest.agents), int(largest.tasks)

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
            if policy.mask != "rank":
                visible = np.ones(agents, bool)
            _draw_weights(axes[row, viewer], weights, visible, first_column=viewer == 0)
        _draw_choice(axes[3, viewer], probabilities[viewer][:tasks], int(actions[viewer]))
    for row, label in enumerate(("rank", "block 1\ntask", "block 2\ntask", "P(action)")):
        axes[row, 0].set_ylabel(label)
    figure.suptitle(
        f"{LABELS[policy.mask]}, n={agents}, k={tasks}, after {step:,} steps. {CAPTIONS[policy.mask]}",
        fontsize=9,
    )
    return _save(figure, to)


def _draw_ranks(axes: Axes, ranks: np.ndarray, viewer: int) -> None:
    colours = [COLOURS["rank"] if i == viewer else "#c5d6ea" for i in range(len(ranks))]
    axes.bar(range(len(ranks)), ranks, color=colours)
    axes.axhline(ranks[viewer], color=COLOURS["rank"], linewidth=0.8, linestyle=":")
    axes.set(ylim=(0, 1), xticks=range(len(ranks)), yticks=[0, 1], title=f"agent {viewer}")
    place = int(np.sum(ranks > ranks[viewer])) + 1
    axes.text(0.03, 0.9, f"place {place}", transform=axes.transAxes, fontsize=8, va="top")


def _draw_weights(axes: Axes, weights: np.ndarray, visible: np.ndarray, first_column: bool) -> None:
    axes.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
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
        for task in range(tasks):
            value = weights[task, agent]
            axes.text(
                agent, task, f"{value:.2f}", ha="center", va="center", fontsize=7, color="w" if value > 0.6 else "k"
            )
    axes.set(xticks=range(agents), yticks=range(tasks), xlabel="attends to agent")
    if not first_column:
        axes.set_yticklabels([])


def _draw_choice(axes: Axes, probabilities: np.ndarray, action: int) -> None:
    colours = [COLOURS["rank"] if i == action else "#c5d6ea" for i in range(len(probabilities))]
    axes.bar(range(len(probabilities)), probabilities, color=colours)
    axes.set(ylim=(0, 1.05), xticks=range(len(probabilities)), yticks=[0, 1], xlabel=f"chooses {action}")


def draw_learning_curves(runs: Sequence[Run], to: Path) -> Path:
    """Success of the training episodes: mean over seeds, 95 % interval over seeds; one panel a team size."""
    panels: dict[str, dict[tuple[str, str], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.failure is not None:
            continue
        sizes = ", ".join(f"n={s.agents} k={s.tasks}" for s in run.settings.sizes)
        panels[sizes][(run.preset, run.settings.policy.mask)].append(run)
    if not panels:
        raise UserError("all of these runs failed, so there is no learning curve to draw.")
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False, sharey=True, layout="constrained"
    )
    smallest_first = sorted(panels.items(), key=lambda panel: next(iter(panel[1].values()))[0].settings.sizes)
    for axis, (sizes, policies) in zip(axes[0], smallest_first, strict=True):
        for (preset, mask), members in sorted(policies.items()):
            steps, curves = _curves(members)
            if not len(steps):
                continue
            middle, low, high = np.asarray([seed_interval(column, resamples=1000) for column in curves.T]).T
            name = LABELS[mask] + (f" ({preset})" if len({p for p, _ in policies}) > 1 else "")
            axis.plot(steps, middle, color=COLOURS[mask], label=f"{name}, {len(members)} seeds")
            axis.fill_between(steps, low, high, color=COLOURS[mask], alpha=0.2, linewidth=0)
        sizes_of_panel = next(iter(policies.values()))[0].settings.sizes
        if len(sizes_of_panel) == 1 and next(iter(policies.values()))[0].settings.world.name == "xor":
            only = sizes_of_panel[0]
            axis.axhline(
                floor(int(only.agents), int(only.tasks)), color="k", linewidth=0.8, linestyle=":", label="floor"
            )
        axis.set(title=sizes, xlabel="steps of the team", ylim=(-0.02, 1.05))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes[0, 0].set_ylabel("success while training (sampled)\nmean and 95 % interval over seeds")
    return _save(figure, to)


def _curves(runs: Sequence[Run], points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Success by step, averaged in equal bins so that every seed has the same points: [point], [seed, point]."""
    rows = [[row for row in read_rows(run.metrics) if row.get("success")] for run in runs]
    length = min(map(len, rows))
    if not length:
        return np.zeros(0), np.zeros((len(runs), 0))
    width = max(1, length // points)
    used = length // width * width
    steps = np.asarray([float(row["step"]) for row in rows[0][:used]]).reshape(-1, width).mean(1)
    curves = [np.asarray([float(row["success"]) for row in seed[:used]]).reshape(-1, width).mean(1) for seed in rows]
    return steps, np.asarray(curves)


def _save(figure: plt.Figure, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=150)
    plt.close(figure)
    return to
