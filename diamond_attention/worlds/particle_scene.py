"""How Simple Spread and Food Collection are drawn: discs on the plane, and what they are after.

Artists are made once and moved from frame to frame, so that a film costs no more than its pixels.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from diamond_attention.colours import agent_colour, agent_name, text_on
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles

TASK_COLOUR = "#30363d"
TRAIL_FRAMES = 40
LINE_SHADES = 5
SAME_PLACE = 0.2
"""Of a radius: agents nearer to each other than this share one label, or nobody could read any."""
FURTHEST_SHOWN = 2.5
"""In half widths of the world: an agent that runs away leaves the picture instead of shrinking it."""


class ParticleScene:
    """Simple Spread and Food Collection: discs on the plane, and what they are after."""

    def __init__(self, axes: Axes, recording: Any, names: bool, text_size: float) -> None:
        world = recording.world
        self._recording, self._places, self._names = recording, recording.places, names
        self._states: Particles = recording.states
        agents, tasks = int(recording.size.agents), int(recording.size.tasks)
        radius, half_width = world.physics.agent_radius, world.half_width
        self._ranked = recording.policy.hears_ranks
        number = "Number in a disc: place by rank, 1 is the highest. " if self._ranked else ""
        weighed = f"Dotted: how much an agent heeds each {world.task} as it acts, weights of {1 / LINE_SHADES:g} up."
        self.legend = f"{number}{weighed} Solid: its way here."
        self._colours = np.asarray([to_rgb(agent_colour(agent)) for agent in range(agents)])

        furthest = max(1.0, float(np.abs(self._states.positions).max()) / half_width)
        reach = half_width * min(furthest, FURTHEST_SHOWN) + 1.3 * radius
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_color("#d0d0d0")
        axes.add_patch(
            Rectangle((-half_width,) * 2, 2 * half_width, 2 * half_width, fill=False, color="#e4e4e4", linewidth=1)
        )

        def discs(size: float, count: int, **style) -> EllipseCollection:
            sizes = [2 * size] * count
            made = EllipseCollection(
                sizes, sizes, [0.0] * count, units="xy", offsets=[(0, 0)] * count, offset_transform=axes.transData
            )
            made.set(**style)
            axes.add_collection(made, autolim=False)
            return made

        self._trails = LineCollection([], linewidths=2.2, zorder=1, capstyle="round", colors=self._colours, alpha=0.5)
        self._attention = LineCollection([], linewidths=2.6, linestyles=(0, (1, 1)), zorder=2)
        for lines in (self._trails, self._attention):
            axes.add_collection(lines, autolim=False)
        if isinstance(world, Food):
            self._tasks = [discs(world.food_radius, tasks, facecolor="#4c9a2a", edgecolor=TASK_COLOUR, zorder=3)]
            label_at = world.food_radius * 1.2
        else:  # a ring an agent fits into, above the agents so that one can see how well it does
            ring = discs(radius, tasks, facecolor="none", edgecolor=TASK_COLOUR, linestyle=(0, (2, 2)), zorder=4.5)
            self._tasks = [ring, discs(radius / 7, tasks, color=TASK_COLOUR, zorder=3)]
            label_at = radius * 0.8
        self._task_labels = [
            axes.text(0, 0, str(task + 1), fontsize=0.8 * text_size, color=TASK_COLOUR, zorder=6, clip_on=True)
            for task in range(tasks if names else 0)
        ]
        self._label_at = np.asarray([label_at, label_at])
        self._same_place = SAME_PLACE * radius
        self._agents = discs(radius, agents, facecolor=self._colours, edgecolor="white", linewidth=0.8, zorder=4)
        self._labels = [
            axes.text(
                0,
                0,
                "",
                ha="center",
                va="center",
                fontsize=text_size,
                color=text_on(agent_colour(agent)),
                zorder=5,
                linespacing=0.95,
                fontweight="bold",
                clip_on=True,
            )
            for agent in range(agents)
        ]

    def show(self, frame: int) -> None:
        past = np.asarray(self._states.positions[max(0, frame - TRAIL_FRAMES) : frame + 1])
        positions, tasks = past[-1], np.asarray(self._states.tasks[frame])
        self._agents.set_offsets(positions)
        for kind in self._tasks:
            kind.set_offsets(tasks)
        for label, place in zip(self._task_labels, tasks + self._label_at, strict=False):
            label.set_position(tuple(place))
        words = [self._word(frame, agent) for agent in range(len(positions))]
        # Of agents that stand on each other the uppermost disc, which is the last, names all.
        same = np.hypot(*(positions[:, None] - positions[None]).transpose(2, 0, 1)) < self._same_place
        for agent, (label, position) in enumerate(zip(self._labels, positions, strict=True)):
            stack = np.flatnonzero(same[agent])
            label.set_text(" ".join(words[one] for one in stack) if agent == stack[-1] else "")
            label.set_position(tuple(position))
        if self._recording.choices is not None:
            self._show_attention(positions, tasks, self._recording.choices[frame])
        self._show_trails(past)

    def _word(self, frame: int, agent: int) -> str:
        name, place = agent_name(agent), self._places[frame, agent]
        return name if not self._ranked else f"{name}\n#{place}" if self._names else str(place)

    def _show_attention(
        self,
        positions: Float[np.ndarray, "agent 2"],
        tasks: Float[np.ndarray, "task 2"],
        choices: Float[np.ndarray, "agent task"],
    ) -> None:
        ends = np.broadcast_to(tasks, (len(positions), *tasks.shape))
        begins = np.broadcast_to(positions[:, None], ends.shape)
        self._attention.set_segments(list(np.stack([begins, ends], axis=2).reshape(-1, 2, 2)))
        # Eight agents and eight tasks make 64 lines: at full strength they would cover everything else, and in
        # as many shades as there are weights a movie would be twice as large.
        shades = np.floor(np.clip(choices, 0.0, 1.0) * LINE_SHADES) / LINE_SHADES
        colours = np.concatenate(
            [
                np.repeat(self._colours, len(tasks), axis=0),
                np.where(shades > 0, 0.3 + 0.7 * shades, 0.0).reshape(-1, 1),
            ],
            axis=1,
        )
        self._attention.set_color(colours.tolist())

    def _show_trails(self, past: Float[np.ndarray, "frame agent 2"]) -> None:
        self._trails.set_segments(list(past.swapaxes(0, 1)))
