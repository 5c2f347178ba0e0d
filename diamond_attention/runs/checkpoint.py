"""Checkpoints: safetensors and JSON, written aside and renamed, checked before a byte is believed.

    checkpoints/step_1280/state.safetensors   every array of the learner, by name
    checkpoints/step_1280/state.json          update, score, digest of the other file
    checkpoints/step_1280/policy.*            the policy bundle (see bundle.py)

A folder under its final name is complete: all files were written and synced in step_1280.partial, which
was then renamed. The training state is needed only to resume.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from diamond_attention.learning.contract import LearnerState
from diamond_attention.runs.arrays import CheckpointError, as_bytes, digest, named_arrays, read_arrays
from diamond_attention.runs.files import LARGEST_JSON, sync_folder, write_synced

FORMAT = 1
KEPT = 2
"""How many of the newest checkpoints stay, besides the best."""


class CheckpointInfo(NamedTuple):
    path: Path
    step: int
    update: int
    score: float | None
    """Mean return of the training episodes since the checkpoint before; what "best" means."""


# --- Writing --------------------------------------------------------------------------------------


def save_checkpoint(
    folder: Path, state: LearnerState, *, step: int, score: float | None, beside: Mapping[str, bytes] | None = None
) -> Path:
    """Writes a learner and the files `beside` it under folder/step_N. Until the rename nothing changes."""
    final = folder / f"step_{step}"
    partial = folder / f"step_{step}.partial"
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    arrays = as_bytes(state)
    write_synced(partial / "state.safetensors", arrays)
    described = {
        "format": FORMAT,
        "step": step,
        "update": int(state.update),
        "score": score,
        "sha256": digest(arrays),
    }
    write_synced(partial / "state.json", json.dumps(described, indent=1).encode())
    for name, data in (beside or {}).items():
        write_synced(partial / name, data)
    sync_folder(partial)
    if final.exists():  # left by an earlier life of this run; the new one is bit for bit the same or better
        shutil.rmtree(final)
    os.rename(partial, final)
    sync_folder(folder)
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
    values = read_description(path)
    return CheckpointInfo(path, values["step"], values["update"], values["score"])


def read_description(path: Path) -> dict[str, Any]:
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


def load_checkpoint(path: Path, shapes: LearnerState) -> LearnerState:
    """The learner in that folder. `shapes` is what the run's settings call for (see assemble)."""
    description = read_description(path)
    arrays = read_arrays(path / "state.safetensors", named_arrays(shapes), description["sha256"])
    if int(arrays["update"]) != description["update"]:
        raise CheckpointError(f"{path / 'state.safetensors'} and the state.json beside it are of different updates.")
    return jax.tree.unflatten(jax.tree.structure(shapes), list(arrays.values()))
