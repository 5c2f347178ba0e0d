"""Attention at several moments of one episode: the world on top, below it what every agent attends to."""

from pathlib import Path

import matplotlib.pyplot as plt

from diamond_attention.reports.names import naming
from diamond_attention.reports.panels import draw_weights, legible, save
from diamond_attention.reports.recording import Recording, record
from diamond_attention.reports.scenes import agent_colour, agent_name, scene_of
from diamond_attention.runs.record import Run
from diamond_attention.worlds.contract import TeamSize

MOMENTS = (0, 10, 25, 50, 100)
"""Steps: a team that knows where to go is there after about fifty."""

MOST_CELLS_WITH_NUMBERS = 25


def draw_snapshots(run: Run, size: TeamSize, to: Path, seed: int = 0) -> Path:
    """Columns are moments of a greedy episode; rows the world and then one agent after the other."""
    scene_of(run.settings.world.name)  # before anything is computed
    recording = record(run, size, steps=max(MOMENTS), seed=seed)
    moments = [moment for moment in MOMENTS if moment < recording.frames]
    agents, tasks = int(size.agents), int(size.tasks)
    width = 2.35
    height = max(0.95, min(1.5, 0.24 * tasks))
    figure, axes = plt.subplots(
        1 + agents,
        len(moments),
        figsize=(0.9 + width * len(moments), 1.0 + width + (height + 0.28) * agents),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [width, *([height] * agents)]},
    )
    for column, frame in enumerate(moments):
        scene = scene_of(recording.world.name)(axes[0, column], recording, names=True, text_size=6.5)
        scene.show(frame)
        axes[0, column].set_title(f"step {frame}", fontsize=11)
        for viewer in range(agents):
            image = _draw_viewer(axes[1 + viewer, column], recording, frame, viewer)
            if column == 0:
                axes[1 + viewer, 0].set_ylabel(
                    f"agent {agent_name(viewer)}", color=legible(agent_colour(viewer)), fontweight="bold"
                )
    bar = figure.colorbar(image, ax=axes[1:, :], shrink=0.6, aspect=30, pad=0.01)
    bar.set_label(f"weight in block 1 (rows: {tasks} tasks, columns: {agents} agents)")
    mask = naming(run.settings.policy.mask)
    highest = "#1 is the highest rank. " if mask.hears_ranks else ""
    figure.suptitle(
        f"{mask.label}, {agents} agents, after {recording.trained_steps:,} training steps\n{highest}{mask.caption}"
        "\nDotted lines: how an agent weighs the tasks in block 3. It prefers the one it weighs highest.",
        fontsize=10,
    )
    return save(figure, to)


def _draw_viewer(axes: plt.Axes, recording: Recording, frame: int, viewer: int):
    weights = recording.weights[frame, viewer]
    small = weights.size <= MOST_CELLS_WITH_NUMBERS
    image = draw_weights(axes, weights, recording.visible(frame, viewer), text_size=6.5 if small else None)
    tasks, agents = weights.shape
    axes.set_xticks(range(agents), [agent_name(agent) for agent in range(agents)])
    axes.set_yticks(range(tasks), [str(task + 1) for task in range(tasks)])
    axes.tick_params(labelsize=7, length=0, pad=2)
    for agent, label in enumerate(axes.get_xticklabels()):
        label.set_color(legible(agent_colour(agent)))
        label.set_fontweight("bold" if agent == viewer else "normal")
    if naming(recording.run.settings.policy.mask).hears_ranks:
        place = recording.places[frame, viewer]
        axes.set_title(f"{agent_name(viewer)} is #{place}", fontsize=7.5, pad=2, loc="left")
    choice = recording.choices[frame, viewer]
    axes.set_title(f"prefers {choice.argmax() + 1} ({choice.max():.2f})", fontsize=7.5, pad=2, loc="right")
    axes.spines[:].set_color("#c0c0c0")
    return image
