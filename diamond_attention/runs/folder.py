"""The run folder: the only thing training leaves behind, and the only thing evaluation knows.

runs/xor/                       a group: seeds that train in one program
  seed_0/                       a run
    settings.json               what was asked for
    environment.json            what it ran on
    metrics.csv                 one row an update
    events.out.tfevents.*       the same for TensorBoard
    checkpoints/step_N/         the training state, and the policy bundle (see bundle.py)
    episodes.csv                one row an evaluation episode, only ever appended to
    finished.json | failed.json how it ended, if it did

An exported policy is a folder with a policy bundle alone, and counts as a run that can be played and started from.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.runs.environment import describe_environment
from diamond_attention.runs.files import read_json, write_json
from diamond_attention.runs.settings import FORMAT, MIGRATIONS, Settings, from_json, to_json
from diamond_attention.worlds.contract import World

SHIPPED = Path(__file__).parents[1] / "shipped"
UNPACKED = Path("runs/shipped")


@dataclass(frozen=True)
class Run:
    """One seed's folder, opened."""

    path: Path
    preset: str
    seed: int
    group_seeds: tuple[int, ...]
    """The seeds that trained together; they resume together too."""
    settings: Settings
    started_from: str | None = None
    """The run whose weights it began with, as it was named then."""
    policy_alone: bool = False
    """Exported: it holds a policy to play with, and nothing to go on training from."""

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes.csv"

    @property
    def environment(self) -> dict[str, Any]:
        if (self.path / "policy.json").exists():
            found = read_json(self.path / "policy.json").get("trained", {}).get("environment")
            return found if isinstance(found, dict) else {}
        return self._read("environment.json") or {}

    @property
    def failure(self) -> dict[str, Any] | None:
        return self._read("failed.json")

    @property
    def finished(self) -> dict[str, Any] | None:
        return self._read("finished.json")

    def _read(self, name: str) -> dict[str, Any] | None:
        return read_json(self.path / name) if (self.path / name).exists() else None


def describe_run(run: Run) -> dict[str, Any]:
    """What settings.json holds, and a policy bundle as what it was trained on."""
    return {
        "format": FORMAT,
        "preset": run.preset,
        "seed": run.seed,
        "group_seeds": list(run.group_seeds),
        "started_from": run.started_from,
        "settings": to_json(run.settings),
    }


# --- Creating -------------------------------------------------------------------------------------


def create_group(
    folder: Path,
    preset: str,
    settings: Settings,
    seeds: Sequence[int],
    overwrite: bool,
    started_from: str | None = None,
) -> list[Run]:
    """A folder for each seed. What is already there stays, unless `overwrite`."""
    present = sorted(folder.glob("seed_*")) if folder.exists() else []
    if _is_run(folder):
        raise UserError(f"--out is {folder}, which is itself a run; name another folder.")
    if present and not overwrite:
        raise UserError(
            f"{folder} already holds {len(present)} run(s); name another --out, continue with "
            f"`diamond resume {folder}`, or replace them with --overwrite."
        )
    for path in present:
        if not _is_run(path):
            raise UserError(
                f"{path} is not a run of ours, so it is not overwritten; move it away or name another --out."
            )
    for path in present:
        shutil.rmtree(path)
    runs = []
    for seed in seeds:
        run = Run(folder / f"seed_{seed}", preset, seed, tuple(seeds), settings, started_from)
        try:
            run.checkpoints.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"--out is {folder}, which cannot be written ({error.strerror}).") from None
        write_json(run.path / "settings.json", describe_run(run))
        write_json(run.path / "environment.json", describe_environment())
        runs.append(run)
    return runs


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Holds the group's lock, so that two processes never write to one run. The lock dies with the process."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out is {folder}, which is a file; name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = open(folder / ".lock", "w")  # noqa: SIM115 - closed by the with below
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); name another folder.") from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder} is being trained by another process; wait for it or stop it.") from None
        yield


# --- Opening --------------------------------------------------------------------------------------


def open_run(path: Path | str, world: World | None = None) -> Run:
    """One seed's folder, an exported policy or the name of a shipped one; an older format is migrated."""
    folder = _unpacked(Path(path))
    if (folder / "policy.json").exists():
        file, described = folder / "policy.json", read_json(folder / "policy.json").get("trained")
        if not isinstance(described, dict):
            raise UserError(f"{file} does not say what its policy was trained on.")
        return _run_of(file, described, folder, world, policy_alone=True)
    file = folder / "settings.json"
    if not file.exists():
        raise UserError(f"{folder} is not a run: it has no settings.json.")
    values = read_json(file)
    return _run_of(file, values, folder, world, policy_alone=values.get("policy_alone") is True)


def _run_of(file: Path, values: dict[str, Any], folder: Path, world: World | None, policy_alone: bool) -> Run:
    found = values.get("format")
    if not isinstance(found, int):
        raise UserError(f"{file} has no format number; it is not a settings.json of this project.")
    if found > FORMAT:
        raise UserError(
            f"{file} has format {found} and this version reads up to {FORMAT}; upgrade diamond-attention."
        )
    while values["format"] < FORMAT:
        if values["format"] not in MIGRATIONS:
            raise UserError(f"{file} has format {found}, which this version can no longer read; train it anew.")
        values = {**MIGRATIONS[values["format"]](values), "format": values["format"] + 1}
    try:
        settings = from_json(values.get("settings"), world)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    seed, seeds = values.get("seed"), values.get("group_seeds")
    named = isinstance(seeds, list) and all(isinstance(s, int) for s in seeds) and seed in seeds
    if not named or not isinstance(seed, int):
        raise UserError(f"{file} does not say which seed it is.")
    started_from = values.get("started_from")
    return Run(folder, str(values.get("preset", "")), seed, tuple(seeds or ()), settings, started_from, policy_alone)


def find_runs(paths: Iterable[Path | str], world: World | None = None) -> list[Run]:
    """Runs named directly or through their group's folder, in order of seed; or the name of a shipped policy."""
    runs = []
    for path in map(Path, paths):
        path = _unpacked(path)
        if _is_run(path):
            runs.append(open_run(path, world))
            continue
        members = [member for member in sorted(path.glob("seed_*")) if _is_run(member)] if path.is_dir() else []
        if not members:
            raise UserError(
                f"{path} holds no run; name a run folder, a folder of seeds or a policy that ships with the package "
                "(`diamond list` shows them)."
            )
        runs.extend(sorted((open_run(member, world) for member in members), key=lambda run: run.seed))
    return runs


def _is_run(folder: Path) -> bool:
    return (folder / "settings.json").exists() or (folder / "policy.json").exists()


def open_group(path: Path, world: World | None = None) -> list[Run]:
    """All runs that train together with the one named."""
    first = find_runs([path], world)[0]
    if first.policy_alone:
        raise UserError(f"{path} holds a policy alone, which cannot be resumed; start a new run with --from {path}.")
    members = [first.path.parent / f"seed_{seed}" for seed in first.group_seeds]
    missing = [str(member) for member in members if not (member / "settings.json").exists()]
    if missing:
        raise UserError(
            f"{first.path} trained together with {', '.join(missing)}, which is gone; "
            "a group resumes whole or not at all."
        )
    runs = [open_run(member, world) for member in members]
    for run in runs:
        if run.settings != first.settings:
            raise UserError(f"{run.path} and {first.path} trained together but their settings.json differ.")
    return runs


# --- Shipped policies -----------------------------------------------------------------------------


def shipped_policies() -> list[str]:
    """The trained policies inside the package, by name."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/policy.json"))


def _unpacked(path: Path) -> Path:
    """A shipped policy as a folder of your own, so that what is evaluated has a place for its rows; else the path."""
    if path.exists() or str(path) not in shipped_policies():
        return path
    source, target = SHIPPED / path, UNPACKED / path
    if not target.exists():
        partial = target.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            shutil.copytree(source, partial)
            os.replace(partial, target)
        except OSError as error:
            raise UserError(f"{target} cannot be written ({error.strerror}); work in a folder of your own.") from None
    copy = target / "policy.json"
    if not copy.exists() or copy.read_bytes() != (source / "policy.json").read_bytes():
        raise UserError(f"{target} holds the policy of another version; move it away and try again.")
    return target
