"""Attention at several moments of one episode: the world on top, below it what every agent attends to."""

from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt

from diamond_attention.actions import Continuous
from diamond_attention.colours import agent_colour, agent_name, legible
from diamond_attention.errors import UserError
from diamond_attention.evaluation.recording import Recording, record
from diamond_attention.reports.panels import draw_weights, save
from diamond_attention.reports.scenes import scene_of
from diamond_attention.runs.folder import Run
from diamond_attention.worlds.contract import TeamSize, tasks_named

MOMENTS = (0, 10, 25, 50, 100)
"""Steps: a team that knows where to go is there after about fifty."""
SHORT = 25
"""Of an episode with fewer frames than this, as many moments are shown, spread evenly."""

NARROWEST = 5.6
"""Inches, so that a picture of one moment has room for its title."""

MOST_CELLS_WITH_NUMBERS = 25

MOST_VIEWERS = 32
"""Each agent's view is a panel, or several; 32 of them take a minute to draw, and a hundred would take many."""


def check_viewers(size: TeamSize) -> None:
    """Raises UserError if a picture of everybody's attention would have too many panels."""
    if size.agents > MOST_VIEWERS:
        raise UserError(
            f"{size.agents} agents are too many for a picture of what each attends to; choose at most {MOST_VIEWERS} "
            "with --agents."
        )


def draw_snapshots(run: Run, size: TeamSize, to: Path, seed: int = 0) -> Path | None:
    """Columns are moments of a greedy episode; rows the world and then one agent after the other.

    None for a policy without attention.
    """
    check_viewers(size)
    recording = record(run, size, steps=max(MOMENTS), seed=seed)
    if not recording.weights:
        return None
    moments = moments_of(recording.frames)
    agents, tasks = int(size.agents), int(size.tasks)
    width = 2.35
    height = max(0.95, min(1.5, 0.24 * tasks))
    figure, axes = plt.subplots(
        1 + agents,
        len(moments),
        figsize=(max(NARROWEST, 0.9 + width * len(moments)), 1.0 + width + (height + 0.28) * agents),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [width, *([height] * agents)]},
    )
    for column, frame in enumerate(moments):
        scene = scene_of(recording.world)(axes[0, column], recording, names=True, text_size=6.5)
        scene.show(frame)
        axes[0, column].set_title(f"step {frame}", fontsize=11)
        for viewer in range(agents):
            image = _draw_viewer(axes[1 + viewer, column], recording, frame, viewer)
            if column == 0:
                axes[1 + viewer, 0].set_ylabel(
                    f"agent {agent_name(viewer)}", color=legible(agent_colour(viewer)), fontweight="bold"
                )
    bar = figure.colorbar(image, ax=axes[1:, :], shrink=0.6, aspect=30, pad=0.01)
    bar.set_label(f"weight in block 1 (rows: {tasks} {tasks_named(recording.world)}, columns: {agents} agents)")
    mask = recording.policy
    highest = "#1 is the highest rank. " if mask.hears_ranks else ""
    lines = [
        f"{mask.label}, {agents} agents, after {recording.trained_steps:,} training steps",
        f"{highest}{' '.join(filter(None, (mask.ranks_do, mask.caption)))}",
        "Dotted lines: how an agent weighs the tasks in block 3. It prefers the one it weighs highest."
        if isinstance(recording.world.action_kind, Continuous)
        else f"Lines: how likely an agent is to choose that {recording.world.task}.",
    ]
    if not recording.weights[0][moments].any(axis=-1).all():
        lines[-1] += f" Empty rows: {tasks_named(recording.world)} it does not see."
    room = int(12 * figure.get_figwidth())
    figure.suptitle("\n".join(fill(line, room) for line in lines), fontsize=10)
    return save(figure, to)


def moments_of(frames: int) -> list[int]:
    """Which frames of an episode to show.

    >>> moments_of(61), moments_of(5), moments_of(2)
    ([0, 10, 25, 50], [0, 1, 2, 3, 4], [0, 1])
    """
    if frames > SHORT:
        return [moment for moment in MOMENTS if moment < frames]
    parts = len(MOMENTS) - 1
    return sorted({round(part * (frames - 1) / parts) for part in range(parts + 1)})


def _draw_viewer(axes: plt.Axes, recording: Recording, frame: int, viewer: int):
    weights = recording.weights[0][frame, viewer]
    small = weights.size <= MOST_CELLS_WITH_NUMBERS
    image = draw_weights(axes, weights, recording.visible(frame, viewer), text_size=6.5 if small else None)
    tasks, agents = weights.shape
    axes.set_xticks(range(agents), [agent_name(agent) for agent in range(agents)])
    axes.set_yticks(range(tasks), [str(task + 1) for task in range(tasks)])
    axes.tick_params(labelsize=7, length=0, pad=2)
    for agent, label in enumerate(axes.get_xticklabels()):
        label.set_color(legible(agent_colour(agent)))
        label.set_fontweight("bold" if agent == viewer else "normal")
    if recording.policy.hears_ranks:
        place = recording.places[frame, viewer]
        axes.set_title(f"{agent_name(viewer)} is #{place}", fontsize=7.5, pad=2, loc="left")
    if recording.choices is not None:
        choice = recording.choices[frame, viewer]
        preferred, other = f"prefers {choice.argmax() + 1} ({choice.max():.2f})", 1.0 - choice.sum()
        # Where there is more to do than to choose a task, as moving in a battle.
        title = preferred if choice.max() >= other else f"other actions ({other:.2f})"
        axes.set_title(title, fontsize=7.5, pad=2, loc="right")
    axes.spines[:].set_color("#c0c0c0")
    return image
