"""The one datagram that a robot sends at every step, and how a stranger's is told from a peer's.

    bytes    what
    0-1      DA
    2        version of this format, 1
    3        how many values there are, v
    4-7      mark of the fleet: tells fleets apart before anything is computed
    8-9      number of the agent
    10-17    epoch: higher after every start of that agent's process
    18-25    step: 0 at the start of an epoch, one more with every message
    26-29    rank, float32 in [0, 1)
    30-      v values, float32: what peers must know of its body, such as its place and velocity
    last 16  authentication code: HMAC-SHA256 of all before it, cut to 16 bytes

Numbers are big-endian. The key is derived from the fleet's secret and the fleet's name, so a message of another fleet
is refused also where both have the same secret. Epoch and step together are the sequence number: no pair is ever sent
twice, so whoever hears a pair that is not newer than the newest hears a repetition.
"""

import hashlib
import hmac
import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from diamond_attention.errors import UserError

MAGIC, VERSION = b"DA", 1
HEAD = struct.Struct(">2sBB4sHQQf")
CODE_BYTES = 16
MOST_VALUES = 32
"""Of a message; more would be another format."""
LARGEST_MESSAGE = HEAD.size + 4 * MOST_VALUES + CODE_BYTES
MOST_AGENTS = 4096
"""Agents are numbered from 0; a peer's table never holds more."""
SHORTEST_SECRET = 16

MALFORMED, OTHER_FLEET, FORGED, STRANGE = "malformed", "other fleet", "forged", "strange"
"""Why a datagram is refused: it is no message of this format; it is of a fleet with another name; its code is wrong,
so whoever sent it does not have the secret; its code is right, and what it says cannot be."""


class Refused(Exception):  # noqa: N818 - whoever sent it is wrong, not we
    """A datagram that is no message of a peer; `reason` is one of the above."""

    def __init__(self, reason: str):
        self.reason = reason


class Said(NamedTuple):
    """What an agent tells its peers."""

    agent: int
    epoch: int
    step: int
    rank: float
    values: tuple[float, ...]


class Seal:
    """Writes and reads the messages of one fleet."""

    def __init__(self, secret: bytes, fleet: str):
        if len(secret) < SHORTEST_SECRET:
            raise UserError(f"the fleet's key has {len(secret)} bytes; it needs at least {SHORTEST_SECRET}.")
        self._mark = hashlib.sha256(fleet.encode()).digest()[:4]
        self._key = hmac.digest(secret, b"diamond attention fleet 1\0" + fleet.encode(), "sha256")

    def write(self, said: Said) -> bytes:
        head = HEAD.pack(MAGIC, VERSION, len(said.values), self._mark, said.agent, said.epoch, said.step, said.rank)
        body = head + _floats(said.values)
        return body + self._code(body)

    def read(self, datagram: bytes) -> Said:
        """Raises Refused. Nothing of it is believed before the code is checked."""
        if not HEAD.size + CODE_BYTES <= len(datagram) <= LARGEST_MESSAGE:
            raise Refused(MALFORMED)
        magic, version, count, mark, agent, epoch, step, rank = HEAD.unpack_from(datagram)
        if magic != MAGIC or version != VERSION or len(datagram) != HEAD.size + 4 * count + CODE_BYTES:
            raise Refused(MALFORMED)
        if mark != self._mark:
            raise Refused(OTHER_FLEET)
        if not hmac.compare_digest(self._code(datagram[:-CODE_BYTES]), datagram[-CODE_BYTES:]):
            raise Refused(FORGED)
        values = struct.unpack_from(f">{count}f", datagram, HEAD.size)
        if agent >= MOST_AGENTS or not 0 <= rank < 1 or not all(map(math.isfinite, values)):
            raise Refused(STRANGE)
        return Said(agent, epoch, step, rank, values)

    def _code(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:CODE_BYTES]


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f">{len(values)}f", *values)
