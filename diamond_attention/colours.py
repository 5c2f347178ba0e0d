"""Colours, names and places of agents in pictures, and which ink can be read on them."""

import numpy as np
from jaxtyping import Float, Int
from matplotlib.colors import to_hex, to_rgb

AGENT_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c")
"""Okabe and Ito's, a larger team begins again."""


def agent_colour(agent: int) -> str:
    return AGENT_COLOURS[agent % len(AGENT_COLOURS)]


def agent_name(agent: int) -> str:
    """A letter, so that nobody takes it for a rank or a task.

    >>> agent_name(0), agent_name(26)
    ('A', 'A1')
    """
    rounds, letter = divmod(agent, 26)
    return chr(ord("A") + letter) + (str(rounds) if rounds else "")


def text_on(colour: str | tuple[float, float, float, float]) -> str:
    """Black or white, whichever can be read on this colour."""
    return "black" if brightness(colour) > 0.5 else "white"


def legible(colour: str) -> str:
    """The same hue, dark enough to be read on white."""
    darker = min(1.0, 0.5 / max(brightness(colour), 1e-6))
    red, green, blue = to_rgb(colour)
    return to_hex((red * darker, green * darker, blue * darker))


def brightness(colour: str | tuple[float, float, float, float]) -> float:
    """0 for black, 1 for white, weighted as the eye does.

    >>> brightness("#ff0000") < brightness("#00ff00")
    True
    """
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def place_by_rank(ranks: Float[np.ndarray, "*frame agent"]) -> Int[np.ndarray, "*frame agent"]:
    """1 for the highest rank.

    >>> place_by_rank(np.array([0.2, 0.9, 0.5])).tolist()
    [3, 1, 2]
    """
    return 1 + np.sum(ranks[..., None, :] > ranks[..., :, None], axis=-1)
