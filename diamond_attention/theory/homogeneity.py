"""Whether two players are homogeneous, as the paper defines it: checked, not believed.

For any input and any string of random bits given to both: the same output, and both use exactly those bits. What a
player hears is part of what it is given. Everything is tried up to a size, every case twice, because a player that
flips coins of its own or remembers earlier games need not differ from the other the first time.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diamond_attention.theory.machine import Heard, NotEnoughBits, Outcome, Player, Tape, heard, steps


@dataclass(frozen=True)
class Difference:
    """A case in which two players are not homogeneous."""

    tape: Tape
    bits: str
    hears: tuple[Heard, ...]
    one: Outcome | str
    other: Outcome | str

    def __str__(self) -> str:
        return (
            f"given the input {self.tape}, the bits {self.bits!r} and what it heard, {self.hears}, one player made "
            f"{_shown(self.one)} and the other {_shown(self.other)}"
        )


def _shown(found: Outcome | str) -> str:
    return found if isinstance(found, str) else f"{found.output} of {found.used} bits"


def first_difference(
    one: Player,
    other: Player,
    inputs: Sequence[Tape],
    most_bits: int,
    messages: Sequence[str] = (),
    players: int = 2,
    rounds: int = 1,
) -> Difference | None:
    """The first case found, or None. Heard are all multisets of `players` of the messages, `rounds` times."""
    sets = [heard(each) for each in itertools.combinations_with_replacement(messages, players)] if messages else []
    for tape in inputs:
        for bits in every_string(most_bits):
            for hears in itertools.product(sets, repeat=rounds) if sets else [()]:
                found = [alone(player, tape, bits, hears) for player in (one, other) for _ in range(2)]
                if any(each != found[0] for each in found):
                    differing = next(each for each in found if each != found[0])
                    return Difference(tape, bits, hears, found[0], differing)
    return None


def every_string(most_bits: int) -> Iterator[str]:
    for length in range(most_bits + 1):
        yield from map("".join, itertools.product("01", repeat=length))


def alone(player: Player, tape: Tape, bits: str, hears: Sequence[Heard]) -> Outcome | str:
    """What one player makes of these bits, hearing this; in words where it does not use exactly those bits."""
    life, told = steps(player, tape, bits), iter(hears)
    try:
        message = next(life)
        while True:
            message = life.send(next(told, ()) if message is None else None)
    except NotEnoughBits:
        return "a request for more bits"
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome if outcome.used == len(bits) else f"use of {outcome.used} bits only"
