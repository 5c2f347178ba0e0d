"""A disk that the process is cut off from before a chosen file operation, or that is full from there on.

It stands in front of the operations of `os` that change something under one folder. Killing is simulated in this
process: an exception that nobody catches is raised, from then on nothing can be changed (so that what would clean up
cannot), and open files are closed in the end, as the kernel would. A write counts twice: before it, and when half of
it is done.
"""

import errno
import os
from pathlib import Path
from typing import Any, Literal

Mode = Literal["count", "kill", "full"]
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
TAKES_ROOM = ("open", "write", "torn write", "mkdir", "fsync")


class Killed(BaseException):
    """The process is gone. Not an Exception, so that no handler of one hears it."""


class UnreliableDisk:
    def __init__(self, folder: Path, mode: Mode = "count", at: int = 0):
        self.folder, self.mode, self.at = str(folder), mode, at
        self.operations: list[str] = []
        self.opened: dict[int, str] = {}
        self.cut_off = False

    def __enter__(self) -> "UnreliableDisk":
        self.real: dict[str, Any] = {}
        for name in ("open", "close", "write", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir"):
            self.real[name] = getattr(os, name)
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self.real.items():
            setattr(os, name, function)
        for descriptor in self.opened:
            os.close(descriptor)

    def _point(self, what: str, where: str) -> None:
        if self.cut_off and self.mode == "kill":
            raise Killed
        self.operations.append(f"{what} {where.removeprefix(self.folder)}")
        if self.mode == "count":
            return
        if len(self.operations) - 1 == self.at:
            self.cut_off = True
        if self.cut_off and self.mode == "kill":
            raise Killed
        if self.cut_off and what in TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _where(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path, if it is one that is watched."""
        parent = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        whole = os.path.join(parent, os.fspath(path))
        return whole if isinstance(whole, str) and (whole + "/").startswith(self.folder + "/") else None

    def _open(self, path, flags, mode=0o777, *, dir_fd=None):
        where = self._where(path, dir_fd) if flags & CHANGES else None
        if where is not None:
            self._point("open", where)
        descriptor = self.real["open"](path, flags, mode, dir_fd=dir_fd)
        if where is not None:
            self.opened[descriptor] = where
        return descriptor

    def _close(self, descriptor):
        self.opened.pop(descriptor, None)
        return self.real["close"](descriptor)

    def _write(self, descriptor, data):
        where = self.opened.get(descriptor)
        if where is None:
            return self.real["write"](descriptor, data)
        self._point("write", where)
        half = len(data) // 2
        self.real["write"](descriptor, data[:half])
        self._point("torn write", where)
        self.real["write"](descriptor, data[half:])
        return len(data)

    def _fsync(self, descriptor):
        if descriptor in self.opened:
            self._point("fsync", self.opened[descriptor])
        return self.real["fsync"](descriptor)

    def _mkdir(self, path, mode=0o777, *, dir_fd=None):
        where = self._where(path, dir_fd)
        if where is not None and not os.path.lexists(where):
            self._point("mkdir", where)
        return self.real["mkdir"](path, mode, dir_fd=dir_fd)

    def _rename(self, path, to, **rest):
        return self._moved("rename", path, to, **rest)

    def _replace(self, path, to, **rest):
        return self._moved("replace", path, to, **rest)

    def _moved(self, name, path, to, **rest):
        where = self._where(to)
        if where is not None:
            self._point(name, where)
        return self.real[name](path, to, **rest)

    def _unlink(self, path, *, dir_fd=None):
        return self._gone("unlink", path, dir_fd)

    def _rmdir(self, path, *, dir_fd=None):
        return self._gone("rmdir", path, dir_fd)

    def _gone(self, name, path, dir_fd):
        where = self._where(path, dir_fd)
        if where is not None:
            self._point(name, where)
        return self.real[name](path, dir_fd=dir_fd)
