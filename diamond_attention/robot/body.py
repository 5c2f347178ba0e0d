"""The body of a robot: whatever senses and moves, at the other end of two pipes, in any language.

One line of JSON each way. In:  {"own": [x, y, …], "tasks": [[x, y], …]}   what it senses now
                           Out: {"action": [fx, fy], "step": 17, …}        what it should do
"""

import json
import os
import select
import time
from typing import Any

from diamond_attention.errors import UserError, shown
from diamond_attention.robot.senses import SensedWorld, Senses

LONGEST_LINE = 1 << 20
READ_AT_ONCE = 1 << 16
MOST_LATE_READS = 16
"""A body that writes all the time must not keep a robot from its step."""


class GoneError(Exception):
    """The other end of the pipe was closed: there is no body any more, or no robot."""


class Lines:
    """Either end of the two pipes, by their file descriptors."""

    def __init__(self, reading: int, writing: int):
        self._reading, self._writing = reading, writing
        self._unread = self._unwritten = b""
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
        late = 0
        while late < MOST_LATE_READS:
            wait = until - time.monotonic()
            late += wait <= 0
            if not select.select([self._reading], [], [], max(0.0, wait))[0]:
                break
            self._read()
            del self._lines[:-1]
        lines, self._lines = self._lines, []
        return _object(lines[-1]) if lines else None

    def write(self, values: dict[str, Any], seconds: float | None = None) -> None:
        """TimeoutError if the other end does not read it in that time, which is endless unless said."""
        self._unwritten += json.dumps(values).encode() + b"\n"
        until = None if seconds is None else time.monotonic() + seconds
        while not self._write_on(None if until is None else max(0.0, until - time.monotonic())):
            if until is not None and time.monotonic() >= until:
                raise TimeoutError

    def offer(self, values: dict[str, Any]) -> None:
        """Never waits: as much is written as fits the pipe. Lines that come before the rest of this one fits are left
        out.
        """
        self._write_on(0.0)
        if not self._unwritten:
            self._unwritten = json.dumps(values).encode() + b"\n"
            self._write_on(0.0)

    def _write_on(self, seconds: float | None) -> bool:
        """Whether all is written now. A pipe that is ready takes PIPE_BUF bytes at once, and more may wait."""
        try:
            while self._unwritten and select.select([], [self._writing], [], seconds)[1]:
                written = os.write(self._writing, self._unwritten[: select.PIPE_BUF])
                self._unwritten = self._unwritten[written:]
        except BrokenPipeError:
            raise GoneError from None
        return not self._unwritten

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
    except (ValueError, RecursionError):
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
        and all(type(each) in (int, float) and abs(each) < 1e9 for each in row)  # so neither infinite nor no number
    )


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} numbers ({', '.join(names)})"
