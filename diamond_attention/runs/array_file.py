"""Named arrays in a safetensors file, checked before a byte is believed.

Loading executes nothing and follows nothing: names, shapes and dtypes must be exactly those that are called for,
checked on the header before any array is read. Needs numpy alone, so that a robot without JAX reads the same files.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.runs.files import LARGEST_JSON, read_file

DTYPES = {"F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64", "U32": "uint32", "BOOL": "bool"}
LARGEST = 1 << 32
"""Bytes of a file of an earlier version, in which a policy is one part among others."""


class CheckpointError(UserError):
    """This checkpoint cannot be used; another one may be."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_arrays(file: Path, wanted: Mapping[str, Any], sha256: str, among_others: bool = False) -> dict[str, Any]:
    """The arrays called for, by name. Unless `among_others`, the file must hold nothing else."""
    try:
        data = read_file(file, LARGEST if among_others else 8 + LARGEST_JSON + _payload(wanted))
    except UserError as error:
        raise CheckpointError(str(error)) from None
    return arrays_in(data, file, wanted, sha256, among_others)


def arrays_in(
    data: bytes, file: Path | str, wanted: Mapping[str, Any], sha256: str, among_others: bool = False
) -> dict[str, Any]:
    """Likewise, of a file that has been read; `file` is what sentences call it."""
    payload = _payload(wanted)
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 2 <= length <= LARGEST_JSON:
        raise CheckpointError(f"{file} is not a safetensors file.")
    if not among_others and len(data) != 8 + length + payload:
        raise CheckpointError(
            f"{file} has {len(data)} bytes where its settings call for {8 + length + payload}: "
            "it is cut short, too long, or of another run or version."
        )
    entries = _checked_header(file, data[8 : 8 + length], wanted, among_others)
    if digest(data) != sha256:
        raise CheckpointError(f"{file} is damaged: its contents do not match the digest beside it.")
    arrays = {name: _array(file, name, entries[name], leaf, data, 8 + length) for name, leaf in wanted.items()}
    broken = name_of_non_finite(arrays)
    if broken is not None:
        raise CheckpointError(f"{file} holds values that are not finite, in {broken}.")
    return arrays


def _payload(wanted: Mapping[str, Any]) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in wanted.values())


def _array(file: Path | str, name: str, entry: Any, leaf: Any, data: bytes, first: int) -> np.ndarray:
    """One array, where the header says that it stands; shape and dtype are checked already."""
    offsets = entry.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(each) is int for each in offsets):
        raise CheckpointError(f"{file} does not say where {name} stands.")
    begin, end = offsets
    if not 0 <= begin <= end <= len(data) - first or end - begin != leaf.size * leaf.dtype.itemsize:
        raise CheckpointError(f"{file} says of {name} that it stands where there is no room for it.")
    stored = np.dtype(leaf.dtype).newbyteorder("<")
    return np.frombuffer(data, stored, leaf.size, first + begin).reshape(leaf.shape)


def name_of_non_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.all(np.isfinite(array)):
            return name
    return None


def _checked_header(file: Path | str, header: bytes, wanted: Mapping[str, Any], among_others: bool) -> dict[str, Any]:
    """What it says of every array."""
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file} is not a safetensors file.") from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{file} is not a safetensors file.")
    entries.pop("__metadata__", None)
    strangers = sorted(set(wanted) - set(entries) if among_others else set(entries) ^ set(wanted))
    if strangers:
        verb = "holds" if strangers[0] in entries else "lacks"
        raise CheckpointError(f"{file} {verb} {strangers[0]}, which does not fit the run's settings.")
    for name, leaf in wanted.items():
        entry = entries[name] if isinstance(entries[name], dict) else {}
        dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
        if shape != list(leaf.shape) or dtype != str(leaf.dtype):
            raise CheckpointError(
                f"{file} holds {name} as {dtype} {shape}, where the run's settings make it "
                f"{leaf.dtype} {list(leaf.shape)}."
            )
    return entries
