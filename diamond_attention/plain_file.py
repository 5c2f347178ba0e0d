"""Files from anywhere: only plain ones are read, and only if they are no larger than they can be."""

import os
import stat
from pathlib import Path


class NotPlainError(Exception):
    """A folder, a pipe or a device."""


class TooLargeError(Exception):
    def __init__(self, size: int):
        self.size = size


def read_plain_file(path: Path | str, most: int, *, follow_links: bool) -> bytes:
    """Of at most so many bytes. Where links are not followed, one is an OSError with the number ELOOP."""
    links = 0 if follow_links else os.O_NOFOLLOW
    # Without waiting: somebody would have to write into a pipe before it could be opened otherwise.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlainError
        if status.st_size > most:
            raise TooLargeError(status.st_size)
        with os.fdopen(file, "rb", closefd=False) as opened:
            return opened.read(most)
    finally:
        os.close(file)
