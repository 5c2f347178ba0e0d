"""A group of runs on the disk: whether it may be put there, how it appears whole, and who trains it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError, shown
from diamond_attention.runs.checkpoint import FILES
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import (
    json_bytes,
    make_folders,
    move,
    read_json,
    remove,
    remove_if_empty,
    unfinished,
    write_folder,
)
from diamond_attention.runs.folder import Run, check_same_training, describe_run, is_run, open_run, seeds_in
from diamond_attention.runs.locks import is_locked, locked
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.registry import WORLDS

LOCK = ".lock"
NEW_GROUP = ".new_group"
OURS = re.compile(
    r"(\.unfinished\.)?(settings|environment|finished|failed)\.json|policy\.(json|safetensors)|\.(episodes\.csv\.)?lock"
    r"|(\.unfinished\.)?(metrics|episodes)\.csv|(metrics\.csv|\w+\.json)\.partial|events\.out\.tfevents\..*"
)
"""The files of a run. What is not named here belongs to somebody else and is never removed."""


def check_free(folder: Path, overwrite: bool) -> None:
    """Raises UserError unless a group may be put here. Nothing is touched."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out is {folder}, which is a file; name a folder.")
    if is_run(folder):
        raise UserError(f"--out is {folder}, which is itself a run; name another folder.")
    present = seeds_in(folder)
    if present and not overwrite:
        raise UserError(
            f"{folder} already holds {len(present)} run(s); name another --out, continue with "
            f"`diamond resume {folder}`, or replace them with --overwrite."
        )
    for path in present:
        strange = path if path.is_symlink() or not path.is_dir() else _stranger_in(path)
        if strange is not None:
            raise UserError(f"{strange} is not ours, so nothing is overwritten; move it away or name another --out.")


def create_group(
    folder: Path,
    preset: str,
    settings: Settings,
    seeds: Sequence[int],
    overwrite: bool,
    started_from: str | None = None,
    first_checkpoint: Callable[[Run, dict[str, Any]], Mapping[str, bytes]] = lambda run, environment: {},
) -> list[Run]:
    """A folder for each seed, all by one rename (see `settle`). What is already there stays, unless `overwrite`."""
    settle(folder)
    check_free(folder, overwrite)
    runs = [Run(folder / f"seed_{seed}", preset, seed, tuple(seeds), settings, started_from) for seed in seeds]
    environment = describe_environment()
    files: dict[str, bytes] = {}
    for run in runs:
        own = {"settings.json": json_bytes(describe_run(run)), "environment.json": json_bytes(environment)}
        own |= {f"checkpoints/step_0/{name}": data for name, data in first_checkpoint(run, environment).items()}
        files |= {f"{run.path.name}/{name}": data for name, data in own.items()}
    write_folder(folder / NEW_GROUP, files)
    settle(folder)
    return runs


def settle(folder: Path) -> None:
    """Ends what a process here had begun: a new group that is complete takes the old one's place.

    From the moment it is called .new_group its runs are there, and those before it are gone. It can be cut off
    anywhere and called again.
    """
    new = folder / NEW_GROUP
    remove(unfinished(new))
    if new.is_symlink() or not new.is_dir():
        return
    coming = seeds_in(new)
    if coming:
        group = {f"seed_{seed}" for seed in read_json(coming[0] / "settings.json").get("group_seeds", ())}
        for path in seeds_in(folder):
            if (new / path.name).exists() or path.name not in group:
                remove(path)
        for path in coming:
            move(path, folder / path.name)
    remove_if_empty(new)


def was_begun(folder: Path, settings: Settings, seeds: Sequence[int], started_from: str | None) -> bool:
    """Whether this very training is in that folder, however far it came. Another one is refused."""
    if not folder.is_dir():
        return False
    with exclusive(folder):
        settle(folder)
    world = settings.world if settings.world.name not in WORLDS else None
    runs = [open_run(member, world) for member in seeds_in(folder) if is_run(member)]
    for run in runs:
        check_same_training(run, settings)
        for what, there, asked in (
            ("the seeds", sorted(run.group_seeds), sorted(seeds)),
            ("--from", run.started_from, started_from),
        ):
            if there != asked:
                raise UserError(
                    f"{run.path} holds another training: {what} {shown(there)}, and {shown(asked)} asked for here; "
                    "name another folder with --out."
                )
    return bool(runs)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Holds the group's lock, so that two processes never write to one run. Folders made for nothing go again."""

    def busy() -> None:
        raise UserError(f"{folder} is being trained by another process; wait for it or stop it.")

    made = make_folders(folder)
    try:
        with locked(folder / LOCK, busy):
            yield
    finally:
        for each in made:
            remove_if_empty(each)


def is_training(run: Run) -> bool:
    """Whether another process trains it just now."""
    return is_locked(run.path.parent / LOCK)


def _stranger_in(run: Path) -> Path | None:
    """Something in a run's folder that no version of this package puts there."""
    for path in sorted(run.iterdir()):
        if path.name == "checkpoints" and path.is_dir() and not path.is_symlink():
            for step in sorted(path.iterdir()):
                ours = re.fullmatch(r"step_\d+(\.partial)?|\.unfinished\.step_\d+", step.name)
                names = {each.name for each in step.iterdir()} if step.is_dir() else {""}
                if not ours or step.is_symlink() or not names <= FILES:
                    return step
        elif not OURS.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            return path
    return None
