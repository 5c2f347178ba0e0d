"""The body of a robot: whatever senses and moves, at the other end of two pipes, in any language.

One line of JSON each way. In:  {"own": [x, y, …], "tasks": [[x, y], …]}   what it senses now
                           Out: {"action": [fx, fy], "step": 17, …}        what it should do
"""

import json
import math
import os
import select
import time
from typing import Any, BinaryIO

from diamond_attention.errors import UserError, shown
from diamond_attention.robot.senses import SensedWorld, Senses

LONGEST_LINE = 1 << 20
READ_AT_ONCE = 1 << 16


class GoneError(Exception):
    """The other end of the pipe was closed: there is no body any more, or no robot."""


class Lines:
    """Either end of the two pipes."""

    def __init__(self, reading: int, writing: BinaryIO):
        self._reading, self._writing = reading, writing
        self._unread = b""
        self._lines: list[bytes] = []

    def next(self, seconds: float | None = None) -> dict[str, Any]:
        """The next line; TimeoutError if none comes in that time, which is endless unless said."""
        while not self._lines:
            if not select.select([self._reading], [], [], seconds)[0]:
                raise TimeoutError
            self._read()
        return _object(self._lines.pop(0))

    def newest(self, until: float) -> dict[str, Any] | None:
        """The last of the lines that have come by a time of the monotonic clock; None if there is none."""
        while select.select([self._reading], [], [], max(0.0, until - time.monotonic()))[0]:
            self._read()
        lines, self._lines = self._lines, []
        return _object(lines[-1]) if lines else None

    def write(self, values: dict[str, Any]) -> None:
        try:
            self._writing.write(json.dumps(values).encode() + b"\n")
            self._writing.flush()
        except BrokenPipeError:
            raise GoneError from None

    def _read(self) -> None:
        data = os.read(self._reading, READ_AT_ONCE)
        if not data:
            raise GoneError
        *whole, self._unread = (self._unread + data).split(b"\n")
        self._lines += whole
        if len(self._unread) > LONGEST_LINE:
            raise UserError(f"a body sent a line of more than {LONGEST_LINE} bytes.")


def _object(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"a body sent {shown(line.decode(errors='replace'))}, which is no JSON object on one line.")
    return values


def senses_of(values: dict[str, Any], world: SensedWorld) -> Senses:
    own, tasks = values.get("own"), values.get("tasks")
    if not _numbers(own, len(world.own)):
        raise UserError(f'the body\'s "own" is {shown(own)}; it must be {_listed(world.own)}.')
    if not isinstance(tasks, list) or not tasks or not all(_numbers(row, len(world.task)) for row in tasks):
        raise UserError(f'the body\'s "tasks" is {shown(tasks)}; it must be rows of {_listed(world.task)}.')
    return Senses(own, tasks)  # type: ignore[arg-type]


def _numbers(row: Any, length: int) -> bool:
    return (
        isinstance(row, list)
        and len(row) == length
        and all(type(each) in (int, float) and math.isfinite(each) and abs(each) < 1e9 for each in row)
    )


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} numbers ({', '.join(names)})"
