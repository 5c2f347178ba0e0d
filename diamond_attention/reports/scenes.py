"""What a world looks like. A scene owns one pair of axes and can show any frame of a recording on it.

A world names its own with `World.scene`; one that does not is drawn by `TokenScene`. Artists are made once and moved
from frame to frame, so that a film costs no more than its pixels.
"""

from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from diamond_attention.actions import ActOrChooseTask, Continuous
from diamond_attention.colours import agent_colour, agent_name, text_on
from diamond_attention.evaluation.recording import Recording
from diamond_attention.worlds.contract import World, tasks_named


class Scene(Protocol):
    """How one world is drawn."""

    legend: str
    """One sentence that says what there is to see."""

    def __init__(self, axes: Axes, recording: Recording, names: bool, text_size: float) -> None:
        """`names` also labels agents and tasks, for a picture that has more to say about them."""
        ...

    def show(self, frame: int) -> None: ...


class TokenScene:
    """Any world: the agents above, the tasks below, and how each agent weighs the tasks, or which it has chosen."""

    def __init__(self, axes: Axes, recording: Recording, names: bool, text_size: float) -> None:
        self._recording, self._names = recording, names
        agents, tasks = int(recording.size.agents), int(recording.size.tasks)
        self._ranked = recording.policy.hears_ranks
        place = "Number: place by rank, 1 is the highest. " if self._ranked else ""
        task = recording.world.task
        chosen, weighed = f"leads to the {task} an agent chooses", f"is as dark as an agent's weight for that {task}"
        self.legend = f"{place}A line {chosen if recording.choices is None else weighed}."
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.spines[:].set_color("#d0d0d0")
        self._above = np.stack([(np.arange(agents) + 0.5) / agents, np.full(agents, 0.8)], axis=1)
        below = np.stack([(np.arange(tasks) + 0.5) / max(tasks, 1), np.full(tasks, 0.2)], axis=1)
        self._lines = LineCollection(
            [(above, task) for above in self._above for task in below], linewidths=0.25 * text_size, zorder=1
        )
        axes.add_collection(self._lines, autolim=False)
        # As large as the text, which knows how large the picture is, and as fits.
        most = max(agents, tasks, 1)
        token, written = 4.6 * text_size * min(1.0, 5 / most), text_size * min(1.0, 10 / most)
        for agent, (x, y) in enumerate(self._above):
            axes.plot(x, y, "o", color=agent_colour(agent), markersize=token, markeredgecolor="white", zorder=3)
        for number, (x, y) in enumerate(below, start=1):
            axes.plot(x, y, "s", color="#30363d", markersize=0.8 * token, markeredgecolor="white", zorder=3)
            axes.text(x, y, str(number), color="white", ha="center", va="center", fontsize=written, zorder=4)
        small = 0.85 * text_size
        axes.text(0.01, 0.97, "agents", va="top", fontsize=small, color="#606060")
        axes.text(0.01, 0.03, tasks_named(recording.world), fontsize=small, color="#606060")
        self._labels = [
            axes.text(
                at[0],
                at[1],
                "",
                color=text_on(agent_colour(agent)),
                ha="center",
                va="center",
                fontsize=written,
                fontweight="bold",
                zorder=4,
            )
            for agent, at in enumerate(self._above)
        ]

    def show(self, frame: int) -> None:
        recording = self._recording
        for agent, label in enumerate(self._labels):
            name, place = agent_name(agent), recording.places[frame, agent]
            label.set_text(name if not self._ranked else f"{name}\n#{place}" if self._names else str(place))
        colours = []
        for agent in range(len(self._labels)):
            weights = np.clip(self._weights(frame, agent), 0.0, 1.0)
            colours += [(*to_rgb(agent_colour(agent)), float(weight)) for weight in weights]
        self._lines.set_color(colours)

    def _weights(self, frame: int, agent: int) -> np.ndarray:
        """Of each task. A policy that is more than a function of one view tells only what was done."""
        recording = self._recording
        if recording.choices is not None:
            return recording.choices[frame, agent]
        numbers, kind = np.arange(int(recording.size.tasks)), recording.world.action_kind
        if isinstance(kind, Continuous):
            return np.zeros(len(numbers))
        fixed = kind.fixed_actions if isinstance(kind, ActOrChooseTask) else 0
        return (numbers == recording.actions[frame, agent] - fixed).astype(float)


def scene_of(world: World) -> type[Scene]:
    return world.scene() or TokenScene
