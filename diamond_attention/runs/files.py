"""The only door to the disk. Whatever is written appears by one rename, whole, or does not appear.

    .unfinished.NAME     what is being made, or being removed, under the name it has or had

A process may be killed before any line of this file. What it leaves then is under its old name whole, under its new
name whole, or under a name that begins with .unfinished., which is ours and is removed by whoever comes next.

Links are never followed out of a folder: files are opened as they are, and a link in a file's place is refused.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError, printable
from diamond_attention.plain_file import NotPlainError, TooLargeError, read_plain_file

LARGEST_JSON = 1 << 20
UNFINISHED = ".unfinished."
CHECKSUM = "checksum"
"""Of the other values of a JSON file; a file edited by hand or damaged no longer has it."""


class DiskError(UserError):
    """The disk is full, or somebody else's. Everything that was there before is still there."""


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(f"{error.filename or path} cannot be written ({error.strerror}).") from None


# --- Writing --------------------------------------------------------------------------------------


def unfinished(path: Path) -> Path:
    return path.with_name(UNFINISHED + path.name.lstrip("."))


def write_file(path: Path, data: bytes) -> None:
    """Replaces a file whole: a reader sees the old one or the new one, never half."""
    with appearing(path) as aside:
        _write_new(aside, data)


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name to write a file under, with the same ending; it takes the file's place when all went well."""
    aside = unfinished(path)
    remove(aside)
    try:
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            os.replace(aside, path)
            sync_folder(path.parent)
    except (UserError, KeyboardInterrupt):
        remove(aside)  # on a full disk it would be in the way
        raise


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """A new folder with these files, some perhaps in folders of their own: `seed_0/settings.json`."""
    aside = unfinished(path)
    remove(aside)
    try:
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folders = dict.fromkeys(aside / name for each in files for name in reversed(Path(each).parents))
            for folder in folders:
                os.mkdir(folder)
            for name, data in files.items():
                _write_new(aside / name, data)
            for folder in folders:
                sync_folder(folder)
            os.rename(aside, path)
            sync_folder(path.parent)
    except (UserError, KeyboardInterrupt):
        remove(aside)
        raise


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_file(path, json_bytes(values))


def json_bytes(values: Mapping[str, Any]) -> bytes:
    """With a checksum as the last value."""
    return (json.dumps({**values, CHECKSUM: checksum(values)}, indent=2) + "\n").encode()


def checksum(values: Mapping[str, Any]) -> str:
    """SHA-256 of the values as JSON with sorted names and no spaces, the checksum itself left out."""
    rest = {name: value for name, value in values.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Growing:
    """A file that lines are added to. What `flush` has written survives the process, what `sync` has the machine."""

    def __init__(self, path: Path, new: bool = False):
        kind = os.O_CREAT | os.O_EXCL if new else 0
        self.path, self._waiting = path, bytearray()
        with _told(path):
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | kind, 0o666)

    def write(self, data: bytes) -> None:
        self._waiting += data

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        with _told(self.path):
            _write_all(self._file, bytes(waiting))

    def sync(self) -> None:
        self.flush()
        with _told(self.path):
            os.fsync(self._file)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._file)


def _write_new(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        _write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(to: Path) -> None:
    """Before minutes of work whose outcome is to be written there. Nothing is created."""
    nearest = next(folder for folder in (to.parent, *to.parent.parents) if folder.exists())
    if to.is_dir():
        raise UserError(f"--to is {to}, which is a folder; name a file.")
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(f"--to is {to}, which cannot be written; {nearest} is not a folder that you may write to.")
    if to.exists() and not os.access(to, os.W_OK):
        raise UserError(f"--to is {to}, which cannot be written (it is read-only).")


# --- Removing -------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """A file, a link (never what it points to) or a folder, if it is there."""
    with _told(path), suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def remove_folder(path: Path) -> None:
    """By one rename, so that nobody meets half a folder under its own name."""
    aside = unfinished(path)
    remove(aside)
    move(path, aside)
    remove(aside)


def move(path: Path, to: Path) -> None:
    """Both in one file system; where `to` is an empty folder or a file, it is replaced."""
    with _told(to):
        os.rename(path, to)
        sync_folder(to.parent)


def make_folders(path: Path) -> list[Path]:
    """The folder and those above it, where they are missing; returns those that were, the innermost first."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    with _told(path):
        path.mkdir(parents=True, exist_ok=True)
    return missing


def remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        os.rmdir(path)


# --- Reading --------------------------------------------------------------------------------------


def is_there(path: Path) -> bool:
    """Whether the name is taken, be it by a link that points nowhere."""
    return os.path.lexists(path)


def read_file(path: Path, most: int) -> bytes:
    """A plain file of at most so many bytes. A link, a pipe or a device is refused before a byte is waited for."""
    try:
        return read_plain_file(path, most, follow_links=False)
    except NotPlainError:
        raise UserError(f"{path} is not a plain file.") from None
    except TooLargeError as error:
        raise UserError(f"{path} has {error.size:,} bytes where it can have {most:,}; it is not ours.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a link; a run holds plain files, so copy what it points to.") from None
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None


def read_json(path: Path, sealed: range | None = None) -> dict[str, Any]:
    """The values of a JSON file. `sealed`: the formats that must have a checksum.

    Earlier ones need none, and what a later version's file must be like, this one cannot know.
    """
    try:
        values = json.loads(read_file(path, LARGEST_JSON))
        expected = checksum(values) if isinstance(values, dict) else ""
    except (ValueError, RecursionError):
        raise UserError(f"{path} cannot be read as JSON.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold what it should.")
    version, must_match = values.get("format"), CHECKSUM in values
    if sealed is not None and isinstance(version, int) and version >= sealed.start:
        must_match = version in sealed
    if must_match and values.get(CHECKSUM) != expected:
        raise UserError(f"{path} was changed after it was written: its checksum differs; put it back as it was.")
    return {name: _printable(value) for name, value in values.items() if name != CHECKSUM}


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return {printable(name): _printable(each) for name, each in value.items()} if isinstance(value, dict) else value
