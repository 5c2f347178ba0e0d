"""The arrays of an .npz file from anywhere: nothing is unpacked that is larger than any trace."""

import io
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.plain_file import NotPlainError, TooLargeError, read_plain_file

LARGEST_FILE = 16 * 2**20
"""Bytes. The largest recording of an episode has a tenth of that."""
LARGEST_UNPACKED = 128 * 2**20
MOST_ARRAYS = 64

UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError),  # as a zip file
    *(RuntimeError, NotImplementedError),  # packed with a password, or in a way Python does not know
    *(ValueError, TypeError, LookupError, SyntaxError, tokenize.TokenError, MemoryError),  # a header, or its text
)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Raises UserError if this is no plain file, no .npz file, or one of a size that no trace has."""
    try:
        data = read_plain_file(path, LARGEST_FILE, follow_links=True)
    except NotPlainError:
        raise UserError(f"{path} is not a plain file; name the .npz file of a recorded episode.") from None
    except TooLargeError as error:
        raise UserError(
            f"{path} has {error.size} bytes, and no SMAClite trace has more than {LARGEST_FILE}."
        ) from None
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be opened ({getattr(error, 'strerror', error)}).") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            return _unpacked(packed, path)
    except UNREADABLE:
        raise UserError(f"{path} is not a SMAClite trace: it holds no description of an episode.") from None


def _unpacked(packed: zipfile.ZipFile, path: str | Path) -> dict[str, np.ndarray]:
    """All arrays. Python never unpacks more of a member than its entry says, so the entries can be believed."""
    members = packed.infolist()
    size = sum(member.file_size for member in members)
    if len(members) > MOST_ARRAYS or size > LARGEST_UNPACKED:
        raise UserError(
            f"{path} would unpack to {len(members)} arrays of {size} bytes, and no SMAClite trace has more than "
            f"{MOST_ARRAYS} of {LARGEST_UNPACKED}."
        )
    arrays = {}
    for member in members:
        with packed.open(member) as file:
            _check_header(file, member.file_size)
        with packed.open(member) as file:
            arrays[member.filename.removesuffix(".npy")] = np.lib.format.read_array(
                io.BytesIO(file.read()), allow_pickle=False
            )
    return arrays


def _check_header(file: IO[bytes], size: int) -> None:
    """Raises ValueError unless the array that the header promises is what follows: room is made for it at once."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError("another version of .npy")
    shape, _, dtype = read[version](file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError("the header promises another array than the one that follows")
