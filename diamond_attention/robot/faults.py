"""A bad network where there is a good one: messages are lost and late where they are received.

Which ones are lost follows from the seed and from who says what to whom, and not from the order in which packets
happen to arrive: the same fleet loses the same messages on every machine.
"""

import hashlib
import heapq
import struct
from dataclasses import dataclass
from typing import Annotated

from diamond_attention.ranges import Between, check_ranges
from diamond_attention.robot.message import Said

MOST_WAITING = 1 << 16
"""Messages that are on their way to one robot; more are lost."""


@dataclass(frozen=True)
class Faults:
    loss: Annotated[float, Between(0, 1)] = 0.0
    """Share of the messages that a robot never hears, drawn for each message and receiver."""
    delay: Annotated[int, Between(0, 1000)] = 0
    """Steps of the receiver by which a message is late."""
    seed: Annotated[int, Between(0, 2**32 - 1)] = 0
    """Which messages are lost."""

    def __post_init__(self) -> None:
        check_ranges(self, "--")


class BadEar:
    """What one robot hears of what arrives."""

    def __init__(self, faults: Faults, own: int):
        self._faults, self._own = faults, own
        self._waiting: list[tuple[int, Said]] = []

    def is_lost(self, said: Said) -> bool:
        named = struct.pack(">QHHQQ", self._faults.seed, self._own, said.agent, said.epoch, said.step)
        drawn = int.from_bytes(hashlib.blake2b(named, digest_size=7).digest()) / 2**56
        return drawn < self._faults.loss or len(self._waiting) >= MOST_WAITING

    def arrive(self, said: Said, step: int) -> None:
        heapq.heappush(self._waiting, (step + self._faults.delay, said))

    def due(self, step: int) -> list[Said]:
        """What is heard until this step."""
        heard = []
        while self._waiting and self._waiting[0][0] <= step:
            heard.append(heapq.heappop(self._waiting)[1])
        return heard
