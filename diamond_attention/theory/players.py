"""Players of the XOR game: the protocol that works, those that cannot, and some that cheat.

A player's input is the number of players and actions. Its output is its tape, whose last entry is the action.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from diamond_attention.theory.machine import Broadcast, Halt, Heard, Next, Receive, Sample, Tape, heard

XorInput = tuple[int, int]
"""Players and actions."""


@dataclass(frozen=True)
class Ordering:
    """Samples bits, broadcasts them, and takes the action with the number of players whose bits are smaller.

    Where all strings differ all actions do. It is what the rank mask does with a random number instead of bits.
    """

    bits: int

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        done = len(tape) - 1
        if done == 0:
            return tape, Sample(self.bits)
        if done == 1:
            return (*tape, "said"), Broadcast(tape[1])
        if done == 2:
            return tape, Receive()
        if done == 3:
            smaller = sum(count for message, count in tape[3] if message < tape[1])
            return (*tape, smaller), Halt()
        raise AssertionError("it has halted before")


@dataclass(frozen=True)
class Private:
    """Samples bits and tells nobody: a uniform choice among the actions, whose number is a power of two."""

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        _, actions = tape[0]
        if len(tape) == 1:
            return tape, Sample((actions - 1).bit_length())
        return (*tape, int(tape[1], 2)), Halt()


@dataclass(frozen=True)
class Deterministic:
    """Never samples. Says something, hears everybody, says something again …, and takes an action: all by a table."""

    first: str
    table: Mapping[tuple[Heard, ...], Any] = field(hash=False)
    """What to say after having heard this, round by round; after the last round, the action."""
    rounds: int

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        heard_so_far = tuple(tape[1:])
        if heard_so_far and heard_so_far[-1] == "said":
            return tape[:-1], Receive()
        if len(heard_so_far) == self.rounds:
            return (*tape, self.table[heard_so_far]), Halt()
        message = self.table[heard_so_far] if heard_so_far else self.first
        return (*tape, "said"), Broadcast(message)


def every_deterministic_player(players: int, actions: int, words: int, rounds: int) -> Iterator[Deterministic]:
    """All there are: whatever is said at first, and whatever follows from whatever can be heard."""
    messages = [chr(ord("a") + i) for i in range(words)]
    sets = [heard(each) for each in itertools.combinations_with_replacement(messages, players)]
    talks = [talk for length in range(1, rounds) for talk in itertools.product(sets, repeat=length)]
    ends = list(itertools.product(sets, repeat=rounds))
    for first in messages:
        for said in itertools.product(messages, repeat=len(talks)):
            for taken in itertools.product(range(actions), repeat=len(ends)):
                table = dict(zip((*talks, *ends), (*said, *taken), strict=True))
                yield Deterministic(first, table, rounds)


# --- Cheats ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """Has a name of its own, which no homogeneous player has, and takes the action of that number."""

    name: int

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        return (*tape, self.name), Halt()


@dataclass(frozen=True)
class HiddenCoin:
    """Flips coins of its own instead of sampling."""

    coin: random.Random = field(hash=False)

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        return (*tape, self.coin.randrange(tape[0][1])), Halt()


@dataclass
class Counting:
    """Remembers between games how many it has played."""

    played: int = 0

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        self.played += 1
        return (*tape, self.played % tape[0][1]), Halt()


@dataclass(frozen=True)
class Sleeper:
    """The ordering protocol, but for one string of bits, where it takes the action of its name."""

    name: int
    bits: int
    wakes_at: str

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        honest, following = Ordering(self.bits).compute(tape)
        if isinstance(following, Halt) and tape[1] == self.wakes_at:
            return (*tape, self.name), Halt()
        return honest, following


@dataclass(frozen=True)
class Oversampling:
    """The ordering protocol, one of whose players samples a bit more than the others."""

    bits: int
    more: int

    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        return Ordering(self.bits + self.more).compute(tape)
