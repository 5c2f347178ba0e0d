"""Checkpoints: safetensors and JSON, written aside and renamed, checked before a byte is believed.

    checkpoints/step_1280/state.safetensors   every array of the learner, by name
    checkpoints/step_1280/state.json          update, score, digest of the other file
    checkpoints/step_1280/policy.*            the policy bundle (see bundle.py)

A folder under its final name is complete (see files.py). The training state is needed only to resume.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import LearnerState
from diamond_attention.runs.array_file import CheckpointError, digest, read_arrays
from diamond_attention.runs.arrays import as_bytes, named_arrays
from diamond_attention.runs.files import UNFINISHED, json_bytes, read_json, remove, remove_folder, write_folder

FORMAT = 2
"""Of state.json. 1 had no checksum."""
FILES = {"state.safetensors", "state.json", "policy.safetensors", "policy.json"}
KEPT = 2
"""How many of the newest checkpoints stay, besides the best."""


class CheckpointInfo(NamedTuple):
    path: Path
    step: int
    update: int
    score: float | None
    """Mean return of the training episodes since the checkpoint before; what "best" means."""


# --- Writing --------------------------------------------------------------------------------------


def checkpoint_files(
    state: LearnerState, *, step: int, score: float | None, beside: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The learner, its description and the files `beside` them."""
    arrays = as_bytes(state)
    described = {
        "format": FORMAT,
        "step": step,
        "update": int(state.update),
        "score": score,
        "sha256": digest(arrays),
    }
    return {"state.safetensors": arrays, "state.json": json_bytes(described), **(beside or {})}


def save_checkpoint(
    folder: Path, state: LearnerState, *, step: int, score: float | None, beside: Mapping[str, bytes] | None = None
) -> Path:
    """Writes a checkpoint under folder/step_N. Until the rename nothing changes."""
    final = folder / f"step_{step}"
    if final.exists():  # a broken one, which was skipped; the new one is what it should have been
        remove_folder(final)
    write_folder(final, checkpoint_files(state, step=step, score=score, beside=beside))
    return final


def prune_checkpoints(folder: Path, every: int) -> None:
    """Removes all but the newest few and the best. Called only after a new one is safely there.

    Of those made between two due ones, where somebody stopped the run, only one that is the newest stays: a run that
    was stopped and resumed keeps the same checkpoints as one that never was.
    """
    checkpoints = list_checkpoints(folder)
    due = [c for c in checkpoints if c.update % every == 0 or c is checkpoints[-1]]
    keep = {c.path for c in due[-KEPT:]}
    best = best_of(due)
    if best is not None:
        keep.add(best.path)
    for checkpoint in checkpoints:
        if checkpoint.path not in keep:
            remove_folder(checkpoint.path)


def remove_leftovers(folder: Path) -> None:
    """What a killed process was making or removing here."""
    for path in folder.glob(f"{UNFINISHED}step_*"):
        remove(path)
    for path in folder.glob("step_*.partial"):  # of an earlier version; whatever else has that ending is not ours
        if not path.is_symlink() and path.is_dir() and {each.name for each in path.iterdir()} <= FILES:
            remove(path)


# --- Finding --------------------------------------------------------------------------------------


def list_checkpoints(folder: Path) -> list[CheckpointInfo]:
    """Every checkpoint whose description can be read, oldest first. Its arrays are not looked at yet."""
    found = []
    for path in step_folders(folder):
        try:
            found.append(read_info(path))
        except CheckpointError:
            continue
    return sorted(found, key=lambda c: c.step)


def step_folders(folder: Path) -> list[Path]:
    """Every folder with the name of a checkpoint, whatever is in it, oldest first. Links are not ours."""
    named = [path for path in folder.glob("step_*") if path.name[5:].isdecimal() and not path.is_symlink()]
    return sorted((path for path in named if path.is_dir()), key=lambda path: int(path.name[5:]))


def best_of(checkpoints: list[CheckpointInfo]) -> CheckpointInfo | None:
    """The highest score; of equal ones the newest."""
    scored = [c for c in checkpoints if c.score is not None]
    return max(scored, key=lambda c: (c.score, c.step), default=None)


def read_info(path: Path) -> CheckpointInfo:
    values = read_description(path)
    return CheckpointInfo(path, values["step"], values["update"], values["score"])


def read_description(path: Path) -> dict[str, Any]:
    file = path / "state.json"
    try:
        values = read_json(file, sealed=range(2, FORMAT + 1))
    except UserError as error:
        raise CheckpointError(str(error)) from None
    wanted = {"format": int, "step": int, "update": int, "sha256": str}
    if any(type(values.get(k)) is not kind for k, kind in wanted.items()):
        raise CheckpointError(f"{file} does not describe a checkpoint.")
    if not 1 <= values["format"] <= FORMAT:
        raise CheckpointError(f"{file} has format {values['format']}; this version reads up to format {FORMAT}.")
    score = values.get("score")
    if score is not None and (type(score) not in (int, float) or not abs(score) < math.inf):
        raise CheckpointError(f"{file} does not describe a checkpoint: its score is no number.")
    if path.name != f"step_{values['step']}":
        raise CheckpointError(f"{file} is of step {values['step']}, and its folder is {path.name}.")
    return {**values, "score": score}


# --- Reading --------------------------------------------------------------------------------------


def load_checkpoint(path: Path, shapes: LearnerState, saved: LearnerState | None = None) -> LearnerState:
    """The learner in that folder. `shapes` is what the run's settings call for (see assemble).

    `saved` is the part of it that checkpoints hold, by default all; the rest is zero.
    """
    description = read_description(path)
    wanted = named_arrays(shapes if saved is None else saved)
    arrays = read_arrays(path / "state.safetensors", wanted, description["sha256"])
    if int(arrays["update"]) != description["update"]:
        raise CheckpointError(f"{path / 'state.safetensors'} and the state.json beside it are of different updates.")
    return with_zeros(arrays, shapes)


def with_zeros(saved: Mapping[str, Any], shapes: LearnerState) -> LearnerState:
    """The learner of what a checkpoint holds; the rest is zero."""
    leaves = [
        saved[name] if name in saved else np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in named_arrays(shapes).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)
