"""What several figures share: matplotlib without a display, weights as a heatmap, saving."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display server needed
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import AxesImage

from diamond_attention.errors import UserError

HIDDEN_COLOUR = "#eeeeee"


def draw_weights(
    axes: Axes,
    weights: Float[np.ndarray, "task agent"],
    visible: Bool[np.ndarray, " agent"],
    text_size: float | None = 7,
) -> AxesImage:
    """Attention weights, darker for more; the columns of hidden peers are hatched. No text size, no numbers."""
    image = axes.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
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
        for task in range(tasks if text_size else 0):
            value = weights[task, agent]
            axes.text(
                agent,
                task,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=text_size,
                color="w" if value > 0.6 else "k",
            )
    axes.set(xticks=range(agents), yticks=range(tasks))
    return image


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


def save(figure: plt.Figure, to: Path) -> Path:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(to, dpi=150)
    except OSError as error:
        raise UserError(f"--to is {to.parent}, which cannot be written ({error.strerror}).") from None
    finally:
        plt.close(figure)
    return to
