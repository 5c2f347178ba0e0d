"""Animated GIFs that stay small and keep their colours."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

PALETTE = 96
"""Colours of a GIF. Below 256 there is room for a transparent one, and pixels that stay as they were cost nothing.
Fewer make a film smaller, but with 64 pale orange lines turn yellow."""

END = 2000
"""Milliseconds for which the last picture stays before the movie begins again."""


def write_gif(
    pictures: Iterable[Image.Image], samples: Sequence[Image.Image], to: Path, frames_per_second: int
) -> None:
    """`samples` are the pictures whose colours make the palette. One for all: palettes of their own would flicker."""
    pixels = np.concatenate([np.asarray(sample).reshape(-1, 3) for sample in samples])
    # One number for each colour: sorting rows of three would take seconds.
    numbers, counts = np.unique(
        pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32), return_counts=True
    )
    colours = np.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=1).astype(np.uint8)
    # By the root of their number: counted fully, thin green lines would get no colour of their own and turn blue.
    weighed = np.repeat(colours, np.sqrt(counts).astype(int), axis=0)
    # Means of their nearest colours: without these steps pale lines of neighbouring hues become one.
    palette = Image.fromarray(weighed[None]).quantize(PALETTE, kmeans=2).getpalette() or []
    nearest = _nearest_colours(palette)
    frames = []
    for picture in pictures:
        red, green, blue = np.moveaxis(np.asarray(picture) >> 3, -1, 0)
        frames.append(Image.fromarray(nearest[red, green, blue]))
        frames[-1].putpalette(palette)
    durations = [round(1000 / frames_per_second)] * (len(frames) - 1) + [END]
    frames[0].save(to, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


def _nearest_colours(palette: list[int]) -> UInt8[np.ndarray, "32 32 32"]:
    """For every colour of five bits a channel, the nearest in the palette.

    Pillow's own search is coarser: it turns a white background grey.
    """
    levels = np.arange(32) * 255 // 31
    colours = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1)
    apart = [np.sum((colours - colour) ** 2, axis=-1) for colour in np.reshape(palette, (-1, 3))]
    return np.argmin(apart, axis=0).astype(np.uint8)
