"""How Dispatch is drawn: depots with their vehicles, jobs as large as they are worth, and who drives where."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from diamond_attention.colours import agent_colour, agent_name, text_on
from diamond_attention.worlds.dispatch import STAY, DispatchState

JOB_COLOUR, WASTED_COLOUR, DEPOT_COLOUR = "#30363d", "#c1121f", "#e9ecef"
REACH = 1.25
"""The square is one half width, and vehicles stand around their depots."""
AROUND = 0.11


class DispatchScene:
    """Vehicles around their depots, jobs as large as their value, a line to the job that is chosen."""

    def __init__(self, axes: Axes, recording: Any, names: bool, text_size: float) -> None:
        self._recording, self._names, self._ranked = recording, names, recording.policy.hears_ranks
        self._states: DispatchState = recording.states
        agents, tasks = int(recording.size.agents), int(recording.size.tasks)
        number = "Number: place by rank, 1 is the highest. " if self._ranked else ""
        self.legend = (
            f"{number}Circles are jobs, larger is worth more. Red: several drive to one job, which pays once."
        )
        axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_color("#d0d0d0")
        depots = np.asarray(self._states.depots[0])[:agents]
        self._vehicles = around(depots)
        places = np.unique(depots, axis=0)
        axes.plot(*places.T, "s", markersize=5.5 * text_size, color=DEPOT_COLOUR, markeredgecolor="#adb5bd", zorder=1)
        self._ways = LineCollection([], linewidths=0.3 * text_size, zorder=2)
        axes.add_collection(self._ways, autolim=False)
        small = min(1.0, 8 / max(agents, tasks))
        self._size = (1.6 * text_size * small) ** 2 * 3
        self._jobs = axes.scatter([], [], zorder=3, edgecolor="white")
        for agent, (x, y) in enumerate(self._vehicles):
            axes.plot(x, y, "o", color=agent_colour(agent), markersize=2.2 * text_size * small, zorder=4)
        self._labels = [
            axes.text(
                float(self._vehicles[agent, 0]),
                float(self._vehicles[agent, 1]),
                "",
                color=text_on(agent_colour(agent)),
                ha="center",
                va="center",
                fontsize=0.9 * text_size * small,
                fontweight="bold",
                zorder=5,
            )
            for agent in range(agents)
        ]
        self._tasks = tasks

    def show(self, frame: int) -> None:
        jobs, values = (np.asarray(each[frame])[: self._tasks] for each in (self._states.jobs, self._states.values))
        last = frame == self._recording.frames - 1
        actions = np.asarray(self._recording.actions[frame])[: len(self._vehicles)]
        drives = (actions != STAY) & (not last)
        chosen = np.bincount(actions[drives] - 1, minlength=self._tasks)
        self._jobs.set_offsets(jobs)
        self._jobs.set_sizes(self._size * values)
        self._jobs.set_facecolor([WASTED_COLOUR if count > 1 else JOB_COLOUR for count in chosen])
        driving = np.flatnonzero(drives).tolist()
        self._ways.set_segments([(self._vehicles[agent], jobs[actions[agent] - 1]) for agent in driving])
        self._ways.set_color([to_rgb(agent_colour(agent)) for agent in driving])
        for agent, label in enumerate(self._labels):
            name, place = agent_name(agent), self._recording.places[frame, agent]
            label.set_text(name if not self._ranked else f"{name}\n#{place}" if self._names else str(place))


def around(depots: np.ndarray) -> np.ndarray:
    """Where vehicles stand: alone at its depot in the middle, several of one depot in a ring."""
    places = depots.astype(float)
    for depot in np.unique(depots, axis=0):
        here = np.flatnonzero((depots == depot).all(axis=1))
        angles = 2 * np.pi * np.arange(len(here)) / len(here) + np.pi / 2
        ring = AROUND * max(1.0, len(here) / 8) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        places[here] += ring if len(here) > 1 else 0.0
    return places
