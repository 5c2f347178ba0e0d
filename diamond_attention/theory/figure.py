"""Success against random bits: the theorem as lines, drawn games as points, trained policies as crosses."""

import math
from pathlib import Path

from diamond_attention.reports.panels import save
from diamond_attention.theory.report import marks
from diamond_attention.theory.theorem import order_probability, simulated_probability

PLAYERS = (2, 3, 5, 8, 16, 64)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
BITS = range(1, 25)
GAMES = 40_000
BITS_OF = {"bfloat16": 9 - math.log2(4 / 3), "float32": 23}
"""As many as make two agree so often. Rounded to bfloat16, a number from [2^-(i+1), 2^-i) goes to one of 128 places
of 2^-(i+8) each: two fall into the same with a probability of 4/3 · 2^-9."""


def draw_theory(to: Path) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
    for n, colour in zip(PLAYERS, COLOURS, strict=True):
        fewest = (n - 1).bit_length()
        bits = [b for b in BITS if b >= fewest]
        axes.plot(bits, [float(order_probability(n, b)) for b in bits], color=colour, label=f"n = {n}")
        drawn = [simulated_probability(n, b, GAMES, seed=1000 * n + b) for b in bits]
        axes.plot(bits, [each.mean for each in drawn], "o", color=colour, markersize=4, markerfacecolor="none")
        trained = [mark for mark in marks() if mark.players == n]
        places = [BITS_OF.get(mark.ranks) or float(mark.ranks) for mark in trained]
        axes.plot(places, [mark.success for mark in trained], "x", color=colour, markersize=8, markeredgewidth=1.6)
    for name, place in BITS_OF.items():
        axes.axvline(place, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.text(place + 0.15, 0.03, name, color="#777777", fontsize=8)
    axes.set(xlabel="random bits that each player shares", ylabel="P(all n choose differently)", ylim=(-0.02, 1.04))
    axes.set_title("Lines: theorem. Circles: drawn games. Crosses: trained rank mask, ranks rounded.", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return save(figure, to)
