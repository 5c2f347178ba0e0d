"""Locks between processes. A lock dies with its process; its file goes when it is free."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diamond_attention.errors import UserError

PATIENCE = 0.5
"""Seconds. Whoever asks `is_locked` holds the lock for a moment."""


@contextmanager
def locked(file: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Holds a lock. If another process has it, `busy` is called, which raises, or says that this one waits."""
    descriptor = _take(file, busy)
    try:
        yield
    finally:
        os.unlink(file)  # while it is held: whoever waits for it finds it gone, and makes a new one
        os.close(descriptor)


def is_locked(file: Path) -> bool:
    """Whether another process holds it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _take(file: Path, busy: Callable[[], None]) -> int:
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(file, flags, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UserError(f"{file} is a link, so it is not used as a lock; remove it.") from None
            raise UserError(f"{file.parent} cannot be written ({error.strerror}); name another folder.") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{file} is not a plain file, so it is not used as a lock; remove it.")
            if not _locked_soon(descriptor):
                busy()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(file, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the one who had it removed the file meanwhile


def _locked_soon(descriptor: int) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
