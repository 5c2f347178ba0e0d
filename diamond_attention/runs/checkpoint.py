"""Checkpoints: safetensors and JSON, written aside and renamed, checked before a byte is believed.

    checkpoints/step_1280/state.safetensors   every array of the learner, by name
    checkpoints/step_1280/state.json          update, score, digest of the other file

A folder under its final name is complete: both files were written and synced in step_1280.partial, which
was then renamed. Loading executes nothing and follows nothing: names, shapes and dtypes must be exactly
those the run's settings call for, checked on the header before any array is read.
"""

import hashlib
import json
import os
import shutil
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Int

from diamond_attention.errors import UserError
from diamond_attention.learning.ppo import LearnerState
from diamond_attention.policies.diamond import DiamondPolicy

FORMAT = 1
LARGEST_JSON = 1 << 20
KEPT = 2
"""How many of the newest checkpoints stay, besides the best."""

DTYPES = {"F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64", "U32": "uint32", "BOOL": "bool"}


class CheckpointError(UserError):
    """This checkpoint cannot be used; another one may be."""


class PolicyAlone(NamedTuple):
    """What is left of a learner when only playing is asked for: a tenth of the bytes."""

    policy: DiamondPolicy
    update: Int[Array, ""]


Saved = TypeVar("Saved", LearnerState, PolicyAlone)


class CheckpointInfo(NamedTuple):
    path: Path
    step: int
    update: int
    score: float | None
    """Mean return of the training episodes since the checkpoint before; what "best" means."""


# --- Writing --------------------------------------------------------------------------------------


def save_checkpoint(folder: Path, state: LearnerState | PolicyAlone, *, step: int, score: float | None) -> Path:
    """Writes a learner, or its policy alone, under folder/step_N. Until the rename at the end nothing has changed."""
    final = folder / f"step_{step}"
    partial = folder / f"step_{step}.partial"
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    tensors = safetensors.numpy.save({name: np.asarray(leaf) for name, leaf in named_arrays(state)})
    _write_synced(partial / "state.safetensors", tensors)
    described = {
        "format": FORMAT,
        "step": step,
        "update": int(state.update),
        "score": score,
        "sha256": hashlib.sha256(tensors).hexdigest(),
    }
    _write_synced(partial / "state.json", json.dumps(described, indent=1).encode())
    _sync_folder(partial)
    if final.exists():  # left by an earlier life of this run; the new one is bit for bit the same or better
        shutil.rmtree(final)
    os.rename(partial, final)
    _sync_folder(folder)
    return final


def prune_checkpoints(folder: Path) -> None:
    """Removes all but the newest few and the best. Called only after a new one is safely there."""
    checkpoints = list_checkpoints(folder)
    keep = {c.path for c in checkpoints[-KEPT:]}
    best = best_of(checkpoints)
    if best is not None:
        keep.add(best.path)
    for checkpoint in checkpoints:
        if checkpoint.path not in keep:
            shutil.rmtree(checkpoint.path)


def write_json(path: Path, values: Any) -> None:
    """Replaces a JSON file whole: a reader sees the old one or the new one, never half."""
    partial = path.with_name(path.name + ".partial")
    _write_synced(partial, (json.dumps(values, indent=2) + "\n").encode())
    os.replace(partial, path)
    _sync_folder(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Finding --------------------------------------------------------------------------------------


def list_checkpoints(folder: Path) -> list[CheckpointInfo]:
    """Every checkpoint whose description can be read, oldest first. Its arrays are not looked at yet."""
    found = []
    for path in folder.glob("step_*"):
        if path.is_symlink():  # ours never are; what a link points to is not ours to load or prune
            continue
        try:
            found.append(read_info(path))
        except CheckpointError:
            continue
    return sorted(found, key=lambda c: c.step)


def best_of(checkpoints: list[CheckpointInfo]) -> CheckpointInfo | None:
    """The highest score; of equal ones the newest."""
    scored = [c for c in checkpoints if c.score is not None]
    return max(scored, key=lambda c: (c.score, c.step), default=None)


def read_info(path: Path) -> CheckpointInfo:
    values = _read_description(path)
    return CheckpointInfo(path, values["step"], values["update"], values["score"])


def _read_description(path: Path) -> dict[str, Any]:
    if path.suffix == ".partial":
        raise CheckpointError(f"{path} was never finished.")
    file = path / "state.json"
    try:
        if file.is_symlink() or file.stat().st_size > LARGEST_JSON:
            raise CheckpointError(f"{file} is a link or over {LARGEST_JSON} bytes; it is not one of our checkpoints.")
        values = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{file} is missing or not JSON; the checkpoint is broken.") from None
    wanted = {"format": int, "step": int, "update": int, "sha256": str}
    if not isinstance(values, dict) or any(type(values.get(k)) is not kind for k, kind in wanted.items()):
        raise CheckpointError(f"{file} does not describe a checkpoint.")
    if values["format"] != FORMAT:
        raise CheckpointError(f"{file} has format {values['format']}; this version reads format {FORMAT}.")
    score = values.get("score")
    if score is not None and type(score) not in (int, float):
        raise CheckpointError(f"{file} does not describe a checkpoint.")
    return {**values, "score": score}


# --- Reading --------------------------------------------------------------------------------------


def load_checkpoint(path: Path, shapes: Saved) -> Saved:
    """The learner, or policy alone, in that folder. `shapes` is what the run's settings call for (see assemble)."""
    description = _read_description(path)
    file = path / "state.safetensors"
    wanted = dict(named_arrays(shapes))
    payload = sum(leaf.size * leaf.dtype.itemsize for leaf in wanted.values())
    try:
        if file.is_symlink() or not stat.S_ISREG(file.stat().st_mode):
            raise CheckpointError(f"{file} is a link or no file at all; checkpoints are plain files.")
        size = file.stat().st_size
        with open(file, "rb") as opened:
            prefix = opened.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= LARGEST_JSON:
                raise CheckpointError(f"{file} is not a safetensors file.")
            if size != 8 + length + payload:
                raise CheckpointError(
                    f"{file} has {size} bytes where its settings call for {8 + length + payload}: "
                    "it is cut short, too long, or of another run or version."
                )
            _check_header(file, opened.read(length), wanted)
            opened.seek(0)
            data = opened.read(size)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror}).") from None
    if hashlib.sha256(data).hexdigest() != description["sha256"]:
        raise CheckpointError(f"{file} is damaged: its contents do not match the digest in state.json.")
    try:
        arrays = safetensors.numpy.load(data)
    except Exception as error:  # whatever the parser objects to, the answer is the same
        raise CheckpointError(f"{file} is not a valid safetensors file ({error}).") from None
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.all(np.isfinite(array)):
            raise CheckpointError(f"{file} holds values that are not finite, in {name}.")
    if int(arrays["update"]) != description["update"]:
        raise CheckpointError(f"{file} and the state.json beside it are of different updates.")
    leaves = [arrays[name] for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _check_header(file: Path, header: bytes, wanted: dict[str, Any]) -> None:
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file} is not a safetensors file.") from None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{file} is not a safetensors file.")
    entries.pop("__metadata__", None)
    strangers = sorted(set(entries) ^ set(wanted))
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


def named_arrays(state: Any) -> list[tuple[str, Any]]:
    """Every array of the learner with its name, such as weights.policy.embed_agent.first.weight."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]
