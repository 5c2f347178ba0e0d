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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.runs.bundle_format import SEALED_BUNDLES, SHIPPED, shipped_policies
from diamond_attention.runs.checkpoint import step_folders
from diamond_attention.runs.files import is_there, make_folders, read_file, read_json, write_folder
from diamond_attention.runs.locks import locked
from diamond_attention.runs.seeds import is_seed
from diamond_attention.runs.settings import FORMAT, MIGRATIONS, Settings, flat, from_json, to_json
from diamond_attention.worlds.contract import World

UNPACKED = Path("runs/shipped")
LARGEST_SHIPPED = 1 << 24


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
    def name(self) -> str:
        """What to call it: its folder, or of a policy inside the package the name that it goes by."""
        return self.path.name if self.path.parent == SHIPPED else str(self.path)

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
            trained = read_json(self.path / "policy.json").get("trained")
            found = trained.get("environment") if isinstance(trained, dict) else None
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


# --- Opening --------------------------------------------------------------------------------------


def open_run(path: Path | str, world: World | None = None) -> Run:
    """One seed's folder, an exported policy or the name of a shipped one; an older format is migrated."""
    folder = _found(Path(path))
    _check_no_links(folder)
    if (folder / "policy.json").exists():
        file = folder / "policy.json"
        described = read_json(file, sealed=SEALED_BUNDLES).get("trained")
        if not isinstance(described, dict):
            raise UserError(f"{file} does not say what its policy was trained on.")
        return _run_of(file, described, folder, world, policy_alone=True)
    file = folder / "settings.json"
    if not file.exists():
        raise UserError(f"{folder} is not a run: it has no settings.json.")
    values = read_json(file, sealed=range(3, FORMAT + 1))
    return _run_of(file, values, folder, world, policy_alone=values.get("policy_alone") is True)


def _check_no_links(run: Path) -> None:
    """A run that somebody else sent may hold links to files of yours; nothing is read, written or removed there."""
    for folder in (run, run / "checkpoints", *step_folders(run / "checkpoints")):
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_symlink():
                raise UserError(f"{path} is a link, and a run holds none; put what it points to in its place.")


def _run_of(file: Path, values: dict[str, Any], folder: Path, world: World | None, policy_alone: bool) -> Run:
    found = values.get("format")
    if type(found) is not int:
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
    named = isinstance(seeds, list) and all(type(s) is int and is_seed(s) for s in seeds) and seed in seeds
    if not named or type(seed) is not int:
        raise UserError(f"{file} does not say which seed it is.")
    started_from = values.get("started_from")
    if started_from is not None:
        started_from = str(started_from)
    return Run(folder, str(values.get("preset", "")), seed, tuple(seeds or ()), settings, started_from, policy_alone)


def find_runs(paths: Iterable[Path | str], world: World | None = None) -> list[Run]:
    """Runs named directly or through their group's folder, in order of seed; or the name of a shipped policy."""
    runs = []
    for path in map(Path, paths):
        path = _found(path)
        if is_run(path):
            runs.append(open_run(path, world))
            continue
        members = [member for member in seeds_in(path) if is_run(member)]
        for member in members:
            if member.is_symlink():
                raise UserError(f"{member} is a link, and a group holds none; name the folder it points to.")
        if not members:
            raise UserError(
                f"{path} holds no run; name a run folder, a folder of seeds or a policy that ships with the package "
                "(`diamond list` shows them)."
            )
        runs.extend(sorted((open_run(member, world) for member in members), key=lambda run: run.seed))
    return runs


def runs_there(folder: Path) -> list[Run]:
    """The runs of a group, in order of seed; none where nothing was begun."""
    return [open_run(member) for member in seeds_in(folder) if is_run(member)]


def is_run(folder: Path) -> bool:
    return (folder / "settings.json").exists() or (folder / "policy.json").exists()


def seeds_in(folder: Path) -> list[Path]:
    """What has the name of a seed's folder, in order of seed."""
    found = folder.glob("seed_*") if folder.is_dir() else ()
    return sorted((path for path in found if path.name[5:].isdecimal()), key=lambda path: int(path.name[5:]))


def group_folder(path: Path) -> Path:
    """Of a run, or of the folder of its group."""
    path = _found(path)
    if not path.is_dir():
        raise UserError(f"{path} holds no run; name a run folder, or a folder of seeds.")
    if (path / "policy.json").exists():
        raise _cannot_be_resumed(path)
    return path.parent if is_run(path) else path


def open_group(path: Path, world: World | None = None) -> list[Run]:
    """All runs that train together with the one named."""
    first = find_runs([path], world)[0]
    if first.policy_alone:
        raise _cannot_be_resumed(path)
    members = [first.path.parent / f"seed_{seed}" for seed in first.group_seeds]
    missing = [str(member) for member in members if member.is_symlink() or not (member / "settings.json").exists()]
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


def _cannot_be_resumed(path: Path) -> UserError:
    return UserError(f"{path} holds a policy alone, which cannot be resumed; start a new run with --from {path}.")


def has_ended(run: Run) -> bool:
    """Whether there is nothing left to train: it finished, it failed, or it is a policy alone."""
    return run.policy_alone or run.finished is not None or run.failure is not None


def check_same_training(run: Run, settings: Settings) -> None:
    """Raises UserError unless the run has these settings. A shorter training may not stand for a longer one."""
    there, asked = dict(flat(to_json(run.settings))), dict(flat(to_json(settings)))
    if there != asked:
        name = next(each for each in ("total_steps", *asked, *there) if there.get(each) != asked.get(each))
        raise UserError(
            f"{run.path} holds another training: its {name} is {there.get(name)}, and {asked.get(name)} is needed "
            "here; name another folder with --out."
        )


def check_same_seeds(run: Run, seeds: Sequence[int], remedy: str) -> None:
    """Raises UserError unless the run was trained beside exactly these seeds."""
    if set(run.group_seeds) != set(seeds):
        there, asked = (", ".join(map(str, each)) for each in (run.group_seeds, seeds))
        raise UserError(f"{run.path.parent} was trained with seeds {there}, and {asked} were asked for; {remedy}.")


# --- Shipped policies -----------------------------------------------------------------------------


def own_copy(run: Run) -> Run:
    """A shipped policy as a folder of your own, so that what is evaluated has a place for its rows; else the run."""
    name = run.path.name
    source, target, lock = SHIPPED / name, UNPACKED / name, UNPACKED / f".{name}.lock"
    if run.path != source and (run.path != target or not is_there(lock)):  # a lock that is left over goes
        return run
    files = {file.name: read_file(file, LARGEST_SHIPPED) for file in sorted(source.iterdir())}
    make_folders(UNPACKED)
    with locked(lock, busy=lambda: None):
        if not target.exists():
            write_folder(target, files)
    return open_run(name)


def _found(path: Path) -> Path:
    """A folder as it was named or, if there is none, the shipped policy of that name: your own copy, else ours."""
    if path.exists() or str(path) not in shipped_policies():
        return path
    source, copy = SHIPPED / path, UNPACKED / path
    if not is_there(copy):
        return source
    if read_file(copy / "policy.json", LARGEST_SHIPPED) != read_file(source / "policy.json", LARGEST_SHIPPED):
        raise UserError(f"{copy} holds the policy of another version; move it away and try again.")
    return copy
