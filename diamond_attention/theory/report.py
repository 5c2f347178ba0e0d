"""`diamond theory`: the theorem checked, what is impossible, and how many bits a fleet needs; printed and drawn."""

import csv
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from diamond_attention.reports.tables import markdown_table
from diamond_attention.theory.homogeneity import first_difference
from diamond_attention.theory.players import Named, Ordering, every_deterministic_player
from diamond_attention.theory.theorem import (
    best_private_dispatch,
    best_private_xor,
    bits_needed,
    enumerated_probability,
    order_probability,
    simulated_probability,
    solved_by,
)

MARKS = Path(__file__).with_name("marks.csv")
"""Success of trained policies whose ranks were rounded; written by experiments/rounded_ranks.py."""
ENUMERATED = ((2, 1), (2, 2), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2))
SIMULATED = ((5, 8), (8, 8), (16, 12), (64, 16))
GAMES = 100_000
FLEETS = (2, 4, 8, 16, 32, 64, 128, 1024)
TIE = 1e-6

Say = Callable[[str], None]


class Mark(NamedTuple):
    """How often trained players chose differently, their ranks rounded in this way."""

    players: int
    ranks: str
    """Bits, or a type of floating point numbers."""
    success: float
    episodes: int


def marks() -> list[Mark]:
    with open(MARKS, newline="") as file:
        return [
            Mark(int(row["players"]), row["ranks"], float(row["success"]), int(row["episodes"]))
            for row in csv.DictReader(file)
        ]


def report(say: Say) -> bool:
    """Says everything; whether all of it came out as the theorem has it."""
    holds = [each(say) for each in (say_theorem, say_homogeneity, say_impossible)]
    say_private(say)
    say_bits(say)
    say_marks(say)
    return all(holds)


def say_theorem(say: Say) -> bool:
    say(
        "Theorem 1: n homogeneous players with b shared random bits each solve XOR with probability "
        "C(2^b, n) n! / 2^(nb)."
    )
    say("Every game played (exactly equal), then games drawn at random (95 % interval):\n")
    rows, holds = [], True
    for n, b in ENUMERATED:
        exact, played = order_probability(n, b), enumerated_probability(n, b)
        holds &= exact == played
        rows.append([str(n), str(b), _fraction(exact), _fraction(played), f"all {2 ** (n * b):,}"])
    for n, b in SIMULATED:
        exact, drawn = order_probability(n, b), simulated_probability(n, b, GAMES)
        rows.append(
            [str(n), str(b), f"{float(exact):.5f}", f"[{drawn.low:.5f}, {drawn.high:.5f}]", f"{GAMES:,} drawn"]
        )
    say(markdown_table(["players", "bits", "theorem", "played", "games"], rows) + "\n")
    return holds


def _fraction(number: Fraction) -> str:
    return f"{number} = {float(number):.5f}"


def say_homogeneity(say: Say) -> bool:
    inputs, messages = [((2, 2),)], ["00", "01", "10", "11"]
    honest = first_difference(Ordering(2), Ordering(2), inputs, 3, messages)
    cheat = first_difference(Named(0), Named(1), inputs, 3, messages)
    say("Homogeneous: two players of the ordering protocol are the same for all inputs, bits and messages tried.")
    say(f"Not homogeneous: players with names of their own; {cheat}.\n")
    return honest is None and cheat is not None


def say_impossible(say: Say) -> bool:
    say("Without randomness: every player that says one of so many words in so many rounds, beside its own copies.\n")
    rows, holds = [], True
    for n, words, rounds in ((2, 2, 1), (2, 2, 2), (2, 3, 1), (3, 2, 1)):
        everyone = list(every_deterministic_player(n, n, words, rounds))
        solved = solved_by(everyone, n, n)
        holds &= solved == 0
        rows.append([str(n), str(words), str(rounds), f"{len(everyone):,}", str(solved)])
    say(markdown_table(["players", "words", "rounds", "such players", "that solve XOR"], rows) + "\n")
    return holds


def say_private(say: Say) -> None:
    say("With private randomness only, the best that identical players can do (n = k):\n")
    rows = []
    for n in (2, 3, 4, 8, 16):
        go, share = best_private_dispatch(n, n, 0.3)
        rows.append([str(n), f"{float(best_private_xor(n, n)):.4g}", f"{share:.3f}", f"{go:.2f}"])
    heads = ["n", "XOR: success", "equal jobs at 0.3 of their value: share of the optimum", "by going so often"]
    say(markdown_table(heads, rows) + "\n")


def say_bits(say: Say) -> None:
    say(f"Bits for a tie less often than {TIE:g} per step; a float32 rank has 23:\n")
    rows = [[str(n), str(bits_needed(n, TIE)), f"{float(1 - order_probability(n, 23)):.1e}"] for n in FLEETS]
    say(markdown_table(["agents", "bits", "a tie with 23 bits"], rows) + "\n")


def say_marks(say: Say) -> None:
    by_players: dict[int, dict[str, Mark]] = defaultdict(dict)
    for mark in marks():
        by_players[mark.players][mark.ranks] = mark
    if not by_players:
        return
    ways = list(dict.fromkeys(mark.ranks for mark in marks()))
    say(
        "The rank mask, trained on XOR, played greedily with rounded ranks: success, and in brackets the theorem's.\n"
    )
    rows = []
    for n, found in by_players.items():
        theory = [f" ({float(order_probability(n, int(way))):.3f})" if way.isdigit() else "" for way in ways]
        rows.append([str(n), *(f"{found[way].success:.3f}{exact}" for way, exact in zip(ways, theory, strict=True))])
    heads = ["players", *(f"{way} bits" if way.isdigit() else way for way in ways)]
    say(markdown_table(heads, rows) + "\n")
