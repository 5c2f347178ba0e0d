"""What there is to see in a folder of runs, read anew whenever a file has changed, and never written to.

Whatever cannot be read becomes a sentence beside the rest: a run that is being made, damaged, or of a later version.
Links are not followed, neither by this module nor by the readers of `runs`.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from diamond_attention.errors import Notice, UserError
from diamond_attention.plain_file import read_plain_file
from diamond_attention.reports import tables
from diamond_attention.reports.episodes import newest_episodes
from diamond_attention.reports.played import names_apart
from diamond_attention.runs.folder import Run, is_run, open_run
from diamond_attention.runs.group import is_training
from diamond_attention.runs.metrics import COLUMNS
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.settings import described_as
from diamond_attention.web.server import RefusedError

PICTURES = (".gif", ".png", ".mp4", ".webm")
DEEPEST, MOST_FOLDERS, MOST_PICTURES = 6, 5000, 200
"""What is looked at; a folder with more holds something else besides runs."""
LARGEST_PICTURE = 1 << 28
POINTS = 200
"""Of a curve; more would not be seen."""

Seen = TypeVar("Seen")


class RunsFolder:
    """Answers about one folder; the paths that it tells and takes are relative to it."""

    def __init__(self, folder: Path):
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; name the one that holds your runs, such as runs.")
        self.folder = folder
        self._kept: dict[tuple[str, Path], tuple[Any, Any]] = {}

    # --- What there is ----------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """Every run with what became of it, the columns that can be drawn, and the pictures."""
        columns: dict[str, None] = {}
        entries: list[dict[str, Any]] = []
        for path, run in self._runs():
            if isinstance(run, UserError):
                entries.append({"path": self._name(path), "state": "broken", "sentence": str(run)})
                continue
            try:
                entries.append(self._described(run))
            except UserError as error:
                entries.append({"path": self._name(path), "state": "broken", "sentence": str(error)})
                continue
            columns |= dict.fromkeys(entries[-1]["columns"])
        return {
            "folder": str(self.folder),
            "runs": entries,
            "columns": [name for name in columns if name not in ("update", "step")],
            "pictures": [self._name(path) for path in self._pictures()],
        }

    def _described(self, run: Run) -> dict[str, Any]:
        policy, rows = described_as(run.settings), self._rows(run)
        last = rows[-1] if rows else {}
        failure = run.failure
        state = _state(run)
        sentence = str(failure.get("sentence", "")) if failure is not None else ""
        if state == "interrupted":
            sentence = f"diamond resume {run.path} goes on."
        return {
            "path": self._name(run.path),
            "preset": run.preset,
            "seed": run.seed,
            "world": run.settings.world.title or run.settings.world.name,
            "policy": policy.label,
            "state": state,
            "sentence": sentence,
            "step": int(last["step"]) if last else 0,
            "steps": run.settings.total_steps,
            "rate": _number(last.get("steps_per_second")),
            "columns": [name for name in last if name not in ("update", "step")],
        }

    def curves(self, column: str) -> list[dict[str, Any]]:
        """For each run that has that column, or by default its world's score: what to call it, and points by step."""
        runs = [run for _, run in self._runs() if isinstance(run, Run)]
        groups: dict[Any, list[Run]] = {}
        for run in runs:
            groups.setdefault((run.settings, run.started_from), []).append(run)
        apart, found = names_apart(groups), []
        for group, members in groups.items():
            policy, world = described_as(group[0]), group[0].world
            name = column or world.scoring.score
            sizes = ", ".join(f"{size.agents}x{size.tasks}" for size in group[0].sizes)
            for run in members:
                try:
                    rows = [row for row in self._rows(run) if row.get(name)]
                except UserError:
                    continue  # the overview says it
                points = _binned([(float(row["step"]), float(row[name])) for row in rows])
                if points:
                    found.append(
                        {
                            "path": self._name(run.path),
                            "panel": f"{world.title or world.name}, {sizes}: {name}",
                            "line": policy.label + apart[group],
                            "colour": policy.colour,
                            "points": points,
                        }
                    )
        return found

    def scores(self) -> dict[str, Any]:
        """The tables of `diamond table`, one for each world, and what they leave out."""
        good: list[Run] = []
        left_out: list[str] = []
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always", Notice)
            for _, run in self._runs():
                if isinstance(run, UserError) or run.failure is not None or not run.episodes.exists():
                    continue
                try:
                    if newest_episodes(run):
                        good.append(run)
                except UserError as error:
                    left_out.append(str(error))
            parts = tables.by_world(tables.table_lines(good)) if good else []
        told = dict.fromkeys(str(each.message) for each in notices)  # each once, however often it was read
        made = [
            {
                "world": part[0].world,
                "explanations": tables.explanations(part),
                "headings": tables.headings(part),
                "rows": tables.text_rows(part),
            }
            for part in parts
        ]
        return {"tables": made, "sentences": [*left_out, *told]}

    def picture(self, name: str) -> bytes:
        """A picture or film by its path in the folder; whatever else, or elsewhere, is not there."""
        parts = name.split("/")
        if Path(name).suffix not in PICTURES or any(part.startswith(".") or not part for part in parts):
            raise RefusedError
        path = self.folder.joinpath(*parts)
        # Resolved, it would lie elsewhere if anything on the way were a link.
        if "\0" in name or path.resolve() != self.folder.resolve().joinpath(*parts):
            raise RefusedError
        return read_plain_file(path, LARGEST_PICTURE, follow_links=False)

    # --- Reading ----------------------------------------------------------------------------------

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _folders(self) -> Iterator[Path]:
        """The folder and those in it, but what runs keep inside of themselves, links, and names with a dot."""
        waiting, count = [(self.folder, 0)], 0
        while waiting and count < MOST_FOLDERS:
            folder, depth = waiting.pop()
            count += 1
            yield folder
            if depth < DEEPEST and not is_run(folder):
                inside = (path for path in _listed(folder) if path.is_dir() and not path.is_symlink())
                waiting += [
                    (path, depth + 1) for path in sorted(inside, reverse=True) if not path.name.startswith(".")
                ]

    def _runs(self) -> list[tuple[Path, Run | UserError]]:
        return [(path, self._opened(path)) for path in self._folders() if is_run(path) or _will_be_run(path)]

    def _opened(self, path: Path) -> Run | UserError:
        if not is_run(path):
            return UserError(f"{self._name(path)} holds no settings.json: it is being made, or was cut off.")
        files = [path / "settings.json", path / "policy.json"]
        return self._unless_changed("run", path, files, lambda: _or_sentence(open_run, path))

    def _rows(self, run: Run) -> list[dict[str, str]]:
        with warnings.catch_warnings(record=True):  # a last row that is being written is no news
            return self._unless_changed("rows", run.path, [run.metrics], lambda: read_rows(run.metrics, COLUMNS))

    def _pictures(self) -> list[Path]:
        inside = (path for folder in self._folders() for path in _listed(folder))
        found = [path for path in inside if path.suffix in PICTURES and not path.is_symlink() and path.is_file()]
        found = [path for path in found if not path.name.startswith(".")]
        return sorted(found, key=lambda path: -path.stat().st_mtime)[:MOST_PICTURES]

    def _unless_changed(self, what: str, path: Path, files: Sequence[Path], read: Callable[[], Seen]) -> Seen:
        now = [_stamp(file) for file in files]
        kept = self._kept.get((what, path))
        if kept is None or kept[0] != now:
            kept = (now, read())
            if not isinstance(kept[1], UserError):  # what was wrong may be put right in another file
                self._kept[what, path] = kept
        return kept[1]


def _or_sentence(read: Callable[[Path], Run], path: Path) -> Run | UserError:
    try:
        return read(path)
    except UserError as error:
        return error


def _state(run: Run) -> str:
    if run.failure is not None:
        return "failed"
    if run.finished is not None:
        return "finished"
    if run.policy_alone:
        return "a policy alone"
    return "training" if is_training(run) else "interrupted"


def _will_be_run(path: Path) -> bool:
    return path.name.startswith("seed_") and path.name[5:].isdecimal()


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # gone meanwhile, or not ours to read


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _number(cell: str | None) -> float | None:
    value = float(cell) if cell else math.nan
    return value if math.isfinite(value) else None


def _binned(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Means of equally many neighbours, where there are more than can be seen; what is no number is left out."""
    finite = [point for point in points if math.isfinite(point[1])]
    width = math.ceil(len(finite) / POINTS) or 1
    bins = [finite[begin : begin + width] for begin in range(0, len(finite), width)]
    return [[sum(axis) / len(each) for axis in zip(*each, strict=True)] for each in bins]
