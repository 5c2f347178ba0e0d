"""Ctrl-C and SIGTERM while a run trains: noted, so that the update under way can finish and be saved."""

import os
import signal
from types import FrameType
from typing import Any


class Interrupted(Exception):  # noqa: N818 - it is not an error
    """SIGINT or SIGTERM arrived; the run is saved and can be resumed."""

    def __init__(self, signal_number: int):
        self.signal_number = signal_number


class signals_noted:  # noqa: N801 - reads as a phrase where it is used
    """SIGINT and SIGTERM are noted, so that the update under way can finish; a second one stops at once."""

    only_relayed = False
    """In a process that is watched (process_group.py) they come through `relay`, each once, whoever was sent them."""
    relayed: list[int] | None = None
    """The list that `relay` adds to, once there is one. It stays when the work is done: a signal that reaches one
    process of a run later than another must not cut short what is still being written."""

    def __enter__(self) -> list[int]:
        noted: list[int] = []
        signals_noted.relayed = noted

        def note(number: int, frame: FrameType | None) -> None:
            noted.append(number)
            for each, handler in self.before.items():
                signal.signal(each, handler)

        self.before: dict[int, Any] = {}
        try:
            for number in () if self.only_relayed else (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread: signals are somebody else's business
            self.before = {}
        return noted

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def relay(number: int) -> None:
    """A signal that reached this process in another way, in any thread; its second ends it at once."""
    noted = signals_noted.relayed
    if noted is None or noted:
        os._exit(128 + number)
    noted.append(number)
