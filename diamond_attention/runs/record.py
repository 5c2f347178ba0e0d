"""The run folder: the only thing training leaves behind, and the only thing evaluation knows.

runs/xor/                       a group: seeds that train in one program
  seed_0/                       a run
    settings.json               what was asked for
    environment.json            what it ran on
    metrics.csv                 one row an update
    events.out.tfevents.*       the same for TensorBoard
    checkpoints/step_N/
    episodes.csv                one row an evaluation episode, only ever appended to
    finished.json | failed.json how it ended, if it did
"""

import csv
import fcntl
import importlib.metadata
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import jax

from diamond_attention.errors import UserError
from diamond_attention.runs.checkpoint import LARGEST_JSON, write_json
from diamond_attention.runs.settings import FORMAT, MIGRATIONS, Settings, from_json, to_json
from diamond_attention.worlds.contract import World

TIMING_COLUMNS = ("seconds", "steps_per_second")
"""The only columns of metrics.csv that two equal runs do not share."""


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
        return _read_json(self.path / "environment.json") if (self.path / "environment.json").exists() else {}

    @property
    def failure(self) -> dict[str, Any] | None:
        return _read_json(self.path / "failed.json") if (self.path / "failed.json").exists() else None

    @property
    def finished(self) -> dict[str, Any] | None:
        return _read_json(self.path / "finished.json") if (self.path / "finished.json").exists() else None


# --- Creating and opening -------------------------------------------------------------------------


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
    if (folder / "settings.json").exists():
        raise UserError(f"--out is {folder}, which is itself a run; name another folder.")
    if present and not overwrite:
        raise UserError(
            f"{folder} already holds {len(present)} run(s); name another --out, continue with "
            f"`diamond resume {folder}`, or replace them with --overwrite."
        )
    for path in present:
        if not (path / "settings.json").exists():
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
        write_settings(run)
        write_json(run.path / "environment.json", describe_environment())
        runs.append(run)
    return runs


def write_settings(run: Run) -> None:
    described = {
        "format": FORMAT,
        "preset": run.preset,
        "seed": run.seed,
        "group_seeds": list(run.group_seeds),
        "started_from": run.started_from,
        "settings": to_json(run.settings),
    }
    write_json(run.path / "settings.json", described | ({"policy_alone": True} if run.policy_alone else {}))


def open_run(path: Path, world: World | None = None) -> Run:
    """Opens one seed's folder; an older format is migrated, an unknown one refused."""
    file = path / "settings.json"
    if not file.exists():
        raise UserError(f"{path} is not a run: it has no settings.json.")
    values = _read_json(file)
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
    return Run(
        path,
        str(values.get("preset", "")),
        seed,
        tuple(seeds or ()),
        settings,
        values.get("started_from"),
        values.get("policy_alone") is True,
    )


def find_runs(paths: Iterable[Path | str], world: World | None = None) -> list[Run]:
    """Runs named directly or through their group's folder, in order of seed; or the name of a shipped policy."""
    runs = []
    for path in map(Path, paths):
        if not path.exists() and str(path) in shipped_policies():
            path = unpack(str(path))
        if (path / "settings.json").exists():
            runs.append(open_run(path, world))
            continue
        members = sorted(path.glob("seed_*/settings.json")) if path.is_dir() else []
        if not members:
            raise UserError(
                f"{path} holds no run; name a run folder, a folder of seeds or a policy that ships with the package "
                "(`diamond list` shows them)."
            )
        runs.extend(sorted((open_run(m.parent, world) for m in members), key=lambda run: run.seed))
    return runs


SHIPPED = Path(__file__).parents[1] / "shipped"
UNPACKED = Path("runs/shipped")


def shipped_policies() -> list[str]:
    """The trained policies inside the package, by name."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/settings.json"))


def unpack(name: str) -> Path:
    """A shipped policy as a run of your own, so that what is evaluated has a place for its rows."""
    source, target = SHIPPED / name, UNPACKED / name
    if not target.exists():
        partial = target.with_name(name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            shutil.copytree(source, partial)
            os.replace(partial, target)
        except OSError as error:
            raise UserError(f"{target} cannot be written ({error.strerror}); work in a folder of your own.") from None
    for file in source.glob("checkpoints/*/state.json"):
        copy = target / file.relative_to(source)
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            raise UserError(f"{target} holds the policy of another version; move it away and try again.")
    return target


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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise UserError(f"{path} is over {LARGEST_JSON} bytes; it is not ours.")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path} cannot be read as JSON.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold what it should.")
    return values


def check_writable(to: Path) -> None:
    """Before minutes of work whose outcome is to be written there."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.open("a").close()
    except OSError as error:
        raise UserError(f"--to is {to}, which cannot be written ({error.strerror}).") from None


def describe_environment() -> dict[str, Any]:
    """Versions, commit and device: what a reader needs to run it again."""
    device = jax.devices()[0]
    names = ("diamond-attention", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "commit": source_commit(),
        "command": ["diamond", *sys.argv[1:]],
    }


def source_commit() -> str:
    """The commit of the package's own checkout, with + if it was changed since; "unknown" if installed."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
        return answer.stdout.strip()

    try:
        package = str(Path(__file__).parents[1])
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", package) else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


# --- metrics.csv and TensorBoard ------------------------------------------------------------------


class Metrics:
    """Appends one row an update to metrics.csv and to TensorBoard's event file."""

    def __init__(self, run: Run, columns: Sequence[str], resumed_at_update: int):
        """Drops rows after `resumed_at_update`: updates whose results were lost and will be made again."""
        self.columns = ["update", "step", *columns, *TIMING_COLUMNS]
        kept = []
        for row in read_rows(run.metrics):
            if list(row) != self.columns or not row["update"].isdigit():
                raise UserError(f"{run.metrics} is not a metrics file of this version; move it away and resume.")
            if int(row["update"]) <= resumed_at_update:
                kept.append(row)
        partial = run.metrics.with_name("metrics.csv.partial")
        with open(partial, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, run.metrics)
        self._file: TextIO = open(run.metrics, "a", newline="")  # noqa: SIM115 - open as long as the run
        self._writer = csv.DictWriter(self._file, self.columns)
        self._events = _Events(run.path, resumed_at_update * run.settings.ppo.steps_per_update)

    def append(self, row: dict[str, Any]) -> None:
        # NaN means "nothing to average", as in an update in which no episode ended: an empty cell.
        self._writer.writerow({k: "" if isinstance(v, float) and v != v else v for k, v in row.items()})
        self._events.append(row)

    def sync(self) -> None:
        """Before a checkpoint is renamed its rows must be on the disk, or resume could not find them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._events.flush()

    def close(self) -> None:
        self._file.close()
        self._events.close()


class _Events:
    def __init__(self, folder: Path, resumed_at_step: int):
        # tensorboard takes a second to import, and only training needs it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._protocol = (event_pb2, summary_pb2)
        self._writer = EventFileWriter(str(folder))
        if resumed_at_step:
            # Tells TensorBoard to forget points from here on that an earlier life of the run wrote.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(
                event_pb2.Event(session_log=start, step=resumed_at_step + 1, wall_time=time.time())
            )

    def append(self, row: dict[str, Any]) -> None:
        event_pb2, summary_pb2 = self._protocol
        values = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in ("update", "step") and float(value) == float(value)
        ]
        self._writer.add_event(
            event_pb2.Event(summary=summary_pb2.Summary(value=values), step=int(row["step"]), wall_time=time.time())
        )

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def read_rows(path: Path) -> list[dict[str, str]]:
    """The complete rows of a CSV file; a last row cut short by a crash is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    rows = list(csv.DictReader(io.StringIO(complete, newline="")))
    return [row for row in rows if None not in row and None not in row.values()]


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Appends whole rows to a CSV file, with a header if it is new; earlier rows are never rewritten.

    A row that a crash cut short is closed with a line end first, so that it cannot swallow a new one.
    """
    if not rows:
        return
    columns = list(rows[0])
    new = not path.exists() or path.stat().st_size == 0
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    if new:
        writer.writeheader()
    else:
        with open(path, newline="") as file:
            header = next(csv.reader(file), [])
        if header != columns:
            raise UserError(f"{path} has other columns than this version writes; move it away and evaluate again.")
    writer.writerows(rows)
    with open(path, "a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\r\n")
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())
