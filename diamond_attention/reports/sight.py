"""What ranks do at one moment of an episode, who is hidden from whom: a small table beside the world in a film."""

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from diamond_attention.colours import agent_colour, text_on
from diamond_attention.evaluation.recording import Recording
from diamond_attention.policies.kind import Described

HIDDEN_CELL, DAMPED_CELL = "#22262b", "#e8e8e8"
MOST_WITH_NUMBERS = 16
"""Agents; in a larger team the discs beside the table are too small to be written on."""


class SightPanel:
    """A row for each agent that looks, a column for each that could be seen, both in the order of their colours."""

    def __init__(self, axes: Axes, recording: Recording, points: float) -> None:
        """`points` is the side of the axes, which are square: what discs and numbers must fit into."""
        self._recording = recording
        agents = int(recording.size.agents)
        policy = recording.policy
        if policy.hides_in:
            block = "" if 1 in policy.hides_in else " in block 1"
            self.title = f"Who sees whom{block}"
            below = f"Dark: ranked below it, so hidden from it{block}."
        else:
            self.title = "Who attends to whom"
            below = f"Grey: ranked below it, so {policy.damps}."
        self.legend = f"A row: one agent's view of the others, in their colours. {below}"
        self._colours = np.asarray([to_rgb(agent_colour(agent)) for agent in range(agents)])
        header = -1.06  # a little apart from the cells
        first, last = header - 0.5, agents - 0.5
        axes.set(xlim=(first, last), ylim=(last, first), aspect="equal")
        axes.axis("off")
        extent = (-0.5, last, last, -0.5)
        self._image = axes.imshow(np.ones((agents, agents, 3)), extent=extent, interpolation="nearest")
        cell = points / (last - first)
        for edge in np.arange(agents + 1) - 0.5:
            axes.plot([-0.5, last], [edge, edge], color="white", linewidth=0.08 * cell)
            axes.plot([edge, edge], [-0.5, last], color="white", linewidth=0.08 * cell)
        at = np.arange(agents)
        apart = np.full(agents, header)
        self._numbers = []
        for x, y in ((apart, at), (at, apart)):
            axes.scatter(x, y, s=(0.86 * cell) ** 2, c=self._colours, linewidths=0, clip_on=False)
            for agent in range(agents if agents <= MOST_WITH_NUMBERS else 0):
                self._numbers.append(
                    axes.text(
                        x[agent],
                        y[agent],
                        "",
                        ha="center",
                        va="center_baseline",
                        fontsize=0.5 * cell,
                        fontweight="bold",
                        color=text_on(agent_colour(agent)),
                    )
                )

    def show(self, frame: int) -> None:
        recording = self._recording
        hidden = bool(recording.policy.hides_in)
        self._image.set_data(cells(recording.lower_ranked(frame), self._colours, hidden))
        places = [*recording.places[frame]] * 2
        for number, place in zip(self._numbers, places, strict=False):
            number.set_text(str(place))


def ranks_matter(policy: Described) -> bool:
    """Whether there is anything to show: lower-ranked peers are hidden, or count less."""
    return bool(policy.hides_in or policy.damps)


def cells(
    lower_ranked: Bool[np.ndarray, "viewer agent"], colours: Float[np.ndarray, "agent 3"], hidden: bool
) -> Float[np.ndarray, "viewer agent 3"]:
    """The table's colours: an agent's own, but dark or grey in the rows of those it ranks below."""
    below = to_rgb(HIDDEN_CELL if hidden else DAMPED_CELL)
    return np.where(lower_ranked[:, :, None], below, colours[None])
