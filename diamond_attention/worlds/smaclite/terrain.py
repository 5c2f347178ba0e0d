"""The six terrains: which cells are blocked, and the rectangles that serve as walls.

The rectangles cover exactly the blocked cells of a 32 × 32 grid and may overlap. Their order is part of
the rules: walls become constraints in this order, and the order decides what happens when not all
constraints can be met.
"""

from dataclasses import dataclass

import numpy as np

MAP_SIZE = 32

Rectangle = tuple[int, int, int, int]
"""x, y, width, height."""

SIMPLE: tuple[Rectangle, ...] = ((0, 0, 32, 8), (0, 24, 32, 8))
"""A horizontal lane, open at both ends: units can leave the map sideways."""

FRAME: tuple[Rectangle, ...] = ((1, 1, 30, 2), (1, 3, 2, 28), (29, 3, 2, 28), (3, 29, 28, 2))
"""A square arena. The outermost ring of cells is free, but nobody gets there."""

# fmt: off
PENTAGON: tuple[Rectangle, ...] = (
    (0, 0, 32, 7), (0, 7, 8, 1), (20, 7, 12, 1), (0, 8, 7, 24), (21, 8, 11, 24), (7, 20, 1, 12),
    (20, 20, 12, 12), (8, 21, 1, 11), (19, 21, 13, 11), (9, 22, 1, 10), (18, 22, 14, 10), (10, 23, 1, 9),
    (17, 23, 15, 9), (11, 24, 1, 8), (16, 24, 16, 8), (12, 25, 20, 7),
)
OCTAGON: tuple[Rectangle, ...] = (
    (0, 0, 32, 5), (0, 5, 10, 1), (22, 5, 10, 1), (0, 6, 9, 1), (23, 6, 9, 1), (0, 7, 8, 1), (24, 7, 8, 1),
    (0, 8, 7, 1), (25, 8, 7, 1), (0, 9, 6, 1), (26, 9, 6, 1), (0, 10, 5, 22), (27, 10, 5, 22), (5, 22, 1, 10),
    (26, 22, 6, 10), (6, 23, 1, 9), (25, 23, 7, 9), (7, 24, 1, 8), (24, 24, 8, 8), (8, 25, 1, 7),
    (23, 25, 9, 7), (9, 26, 1, 6), (22, 26, 10, 6), (10, 27, 22, 5),
)
CORRIDOR: tuple[Rectangle, ...] = (
    (0, 0, 32, 1), (0, 1, 2, 1), (14, 1, 18, 11), (0, 2, 1, 30), (13, 3, 19, 8), (1, 12, 1, 20), (15, 12, 17, 1),
    (2, 13, 9, 19), (26, 13, 6, 1), (11, 14, 1, 4), (27, 14, 5, 1), (12, 15, 1, 2), (28, 15, 4, 1),
    (29, 16, 3, 1), (30, 17, 2, 1), (31, 18, 1, 14), (11, 22, 1, 10), (12, 23, 1, 9), (13, 24, 1, 8),
    (14, 25, 1, 7), (15, 26, 1, 6), (16, 27, 1, 5), (17, 28, 1, 4), (18, 29, 1, 3), (19, 30, 1, 2),
    (30, 30, 2, 2), (20, 31, 12, 1),
)
RAVINE: tuple[Rectangle, ...] = (
    (0, 0, 32, 6), (0, 6, 3, 1), (29, 6, 3, 1), (0, 7, 2, 1), (30, 7, 2, 1), (0, 8, 1, 1), (31, 8, 1, 1),
    (4, 12, 24, 1), (0, 17, 1, 15), (31, 17, 1, 15), (1, 18, 1, 14), (30, 18, 2, 14), (2, 19, 1, 13),
    (29, 19, 3, 13), (3, 20, 29, 12),
)
# fmt: on


@dataclass(frozen=True, eq=False)
class Edges:
    """The four edges of every rectangle, in the order they become constraints.

    Each rectangle is walked around with its inside on the left: bottom, right, top, left.
    """

    start: np.ndarray
    """[edge, 2]"""
    length: np.ndarray
    """[edge]"""
    heading: np.ndarray
    """[edge]: 0 east, 1 north, 2 west, 3 south."""
    corners: np.ndarray
    """[edge, 4]: x and y of the lower left, then of the upper right corner of the edge's rectangle."""


HEADINGS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


def edges_of(rectangles: tuple[Rectangle, ...]) -> Edges:
    start, length, heading, corners = [], [], [], []
    for x, y, width, height in rectangles:
        start += [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        length += [width, height, width, height]
        heading += [0, 1, 2, 3]
        corners += [(x, y, x + width, y + height)] * 4
    return Edges(
        start=np.array(start, float),
        length=np.array(length, float),
        heading=np.array(heading, np.int32),
        corners=np.array(corners, float),
    )


def blocked_cells(rectangles: tuple[Rectangle, ...]) -> np.ndarray:
    """[x, y] → whether the cell is blocked.

    >>> blocked_cells(SIMPLE)[5, [7, 8, 23, 24]].tolist()
    [True, False, False, True]
    """
    blocked = np.zeros((MAP_SIZE, MAP_SIZE), bool)
    for x, y, width, height in rectangles:
        blocked[x : x + width, y : y + height] = True
    return blocked
