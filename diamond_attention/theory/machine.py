"""Players as the paper defines them: machines that compute, broadcast, receive and sample, until they halt.

A player starts with an input on its tape. Computing turns the tape into a new one and says what comes next; each of
the other three routines returns to computing. A broadcast is anonymous: who receives learns which messages were sent
and how many players sent each, its own among them, and nothing about who did.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Tape = tuple[Any, ...]
"""What a player knows: its input, and whatever was added since."""
Heard = tuple[tuple[str, int], ...]
"""Messages and how many players sent each, in the order of the messages."""


@dataclass(frozen=True)
class Broadcast:
    """Send a portion of the tape to everybody; nothing is added."""

    message: str


@dataclass(frozen=True)
class Receive:
    """Wait until everybody else waits or has halted, then add what was broadcast."""


@dataclass(frozen=True)
class Sample:
    """Add this many fresh random bits."""

    bits: int


@dataclass(frozen=True)
class Halt:
    """The end; the tape is the output."""


Next = Broadcast | Receive | Sample | Halt
MOST_ROUTINES = 1000
"""Of one player. A terminating machine has an end; this one is for tests."""


class Player(Protocol):
    def compute(self, tape: Tape) -> tuple[Tape, Next]:
        """Any computation that ends: the new tape, and the routine that follows."""
        ...


class NotEnoughBits(Exception):  # noqa: N818 - it names what happened
    """A player asked for more random bits than there are."""


@dataclass(frozen=True)
class Outcome:
    """What became of one player."""

    output: Tape
    used: int
    """Random bits that it sampled."""
    said: tuple[str, ...]


def heard(messages: Sequence[str]) -> Heard:
    return tuple(sorted(Counter(messages).items()))


Life = Generator[str | None, Heard | None, Outcome]


def steps(player: Player, tape: Tape, bits: str) -> Life:
    """A player's life: yields each message it sends, and None where it waits to receive, which must be sent back.

    Returns its outcome.
    """
    used = 0
    said: list[str] = []
    for _ in range(MOST_ROUTINES):
        tape, routine = player.compute(tape)
        if isinstance(routine, Halt):
            return Outcome(tape, used, tuple(said))
        if isinstance(routine, Sample):
            if used + routine.bits > len(bits):
                raise NotEnoughBits
            tape = (*tape, bits[used : used + routine.bits])
            used += routine.bits
        elif isinstance(routine, Broadcast):
            said.append(routine.message)
            yield routine.message
        else:
            tape = (*tape, (yield None))
    raise RuntimeError(f"a player has not halted after {MOST_ROUTINES} routines")


def play(players: Sequence[Player], inputs: Sequence[Tape], bits: Sequence[str]) -> list[Outcome]:
    """All players together, each with its own input and its own random bits.

    In rounds: everybody goes on until it waits or halts, then those who wait hear what was said in this round.
    """
    lives = [steps(player, tape, own) for player, tape, own in zip(players, inputs, bits, strict=True)]
    outcomes: dict[int, Outcome] = {}
    hears: dict[int, Heard | None] = dict.fromkeys(range(len(lives)))
    while hears:
        messages: list[str] = []
        waiting = []
        for i, told in hears.items():
            try:
                message = lives[i].send(told)
                while message is not None:
                    messages.append(message)
                    message = lives[i].send(None)
                waiting.append(i)
            except StopIteration as end:
                outcomes[i] = end.value
        hears = dict.fromkeys(waiting, heard(messages))
    return [outcomes[i] for i in range(len(lives))]
