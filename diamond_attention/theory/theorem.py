"""How likely n players with b random bits agree on an order, and what is possible with less. Exact where it can be.

Theorem 1 of the paper: the probability that n homogeneous players solve the XOR game with n actions is that of
agreeing on an order when each shares b bits, which is the chance that n strings of b bits all differ.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from diamond_attention.evaluation.statistics import Interval, wilson_interval
from diamond_attention.theory.machine import Player, play
from diamond_attention.theory.players import Ordering


def order_probability(players: int, bits: int) -> Fraction:
    """C(2^b, n) · n! / 2^(nb): all n strings of b bits differ."""
    return Fraction(math.perm(2**bits, players), 2 ** (players * bits))


def solves_xor(players: Sequence[Player], actions: int, bits: Sequence[str]) -> bool:
    """Whether all take different actions, each of them one that exists."""
    number = len(players)
    taken = [outcome.output[-1] for outcome in play(players, [((number, actions),)] * number, bits)]
    return len(set(taken)) == number and all(0 <= action < actions for action in taken)


def enumerated_probability(players: int, bits: int) -> Fraction:
    """The same by playing every game there is: all strings of all players."""
    strings = list(map("".join, itertools.product("01", repeat=bits)))
    machines = [Ordering(bits)] * players
    games = itertools.product(strings, repeat=players)
    return Fraction(sum(solves_xor(machines, players, game) for game in games), len(strings) ** players)


def simulated_probability(players: int, bits: int, games: int, seed: int = 0) -> Interval:
    """The same by drawing strings, with a 95 % interval. Only whether they differ is looked at: the protocol is."""
    drawn = np.random.default_rng(seed).integers(0, 2**bits, (games, players), dtype=np.uint64)
    ordered = np.sort(drawn, axis=1)
    return wilson_interval(int(np.sum(np.all(ordered[:, 1:] != ordered[:, :-1], axis=1))), games)


def solved_by(players: Iterable[Player], number: int, actions: int) -> int:
    """How many of these players, none of which samples, solve the XOR game together with copies of themselves."""
    return sum(solves_xor([player] * number, actions, [""] * number) for player in players)


def bits_needed(players: int, tie: float = 1e-6) -> int:
    """The fewest bits with which any two of n players draw the same string with a probability below `tie`."""
    bits = max(players - 1, 1).bit_length()
    while 1 - order_probability(players, bits) >= Fraction(tie):
        bits += 1
    return bits


# --- Without sharing ------------------------------------------------------------------------------


def best_private_xor(players: int, actions: int) -> Fraction:
    """The most that identical players reach in XOR when nobody hears the others' randomness: all choose uniformly.

    With probabilities p they succeed n! e_n(p) times, and the symmetric polynomial e_n is largest where all are even.
    """
    return Fraction(math.perm(actions, players), actions**players)


def best_private_dispatch(vehicles: int, jobs: int, travel: float) -> tuple[float, float]:
    """(how often to go at all, share of the optimum) for equal jobs that all cost `travel` of their value to reach.

    Who goes chooses uniformly. k (1 − (1 − p/k)^n) jobs are served on average and n p ways are paid; that is largest
    at p = k (1 − t^(1/(n−1))), or at p = 1 where that is more.
    """
    if not 0 <= travel < 1:
        raise ValueError("a way that costs as much as a job is worth is never gone")
    go = 1.0 if vehicles == 1 else min(1.0, jobs * (1 - travel ** (1 / (vehicles - 1))))
    served = jobs * (1 - (1 - go / jobs) ** vehicles)
    return go, (served - vehicles * go * travel) / (min(vehicles, jobs) * (1 - travel))
