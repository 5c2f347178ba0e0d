"""What there is to see in a folder of runs, read anew whenever a file has changed, and never written to.

Whatever cannot be read becomes a sentence beside the rest: a run that is being made, damaged, or of a later version,
a folder that is somebody else's. Links are not followed, neither by this module nor by the readers of `runs`.
"""

import math
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from diamond_attention.errors import Notice, UserError, printable
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
Point = tuple[float, float]
"""Step and value."""


class Picture(NamedTuple):
    path: Path
    changed: int
    """Nanoseconds of the clock; in its address, so that a browser asks for a new one."""


class Looked(NamedTuple):
    """What lies in the folder."""

    runs: list[Path]
    pictures: list[Picture]
    """Newest first."""
    left_out: list[str]
    """Sentences about what was not looked at."""


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
        looked = self._look()
        for path in looked.runs:
            try:
                entries.append(self._described(self._opened(path)))
            except (UserError, OSError) as error:
                entries.append({"path": self._name(path), "state": "broken", "sentence": self._said(error, path)})
            columns |= dict.fromkeys(entries[-1].get("columns", ()))
        return {
            "folder": printable(str(self.folder)),
            "runs": entries,
            "columns": [name for name in columns if name not in ("update", "step")],
            "pictures": [
                {
                    "name": self._name(picture.path),
                    "address": f"pictures/{self._quoted(picture.path)}?{picture.changed}",
                }
                for picture in looked.pictures
            ],
            "left_out": looked.left_out,
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
        """For each group of runs that has that column, or by default its world's score: its seeds and their mean."""
        groups: dict[Any, list[Run]] = defaultdict(list)
        for run in self._good_runs():
            groups[run.settings, run.started_from].append(run)
        apart, found = names_apart(groups), []
        for group, members in groups.items():
            policy, world = described_as(group[0]), group[0].world
            name = column or world.scoring.score
            sizes = ", ".join(f"{size.agents}x{size.tasks}" for size in group[0].sizes)
            failed, read = {}, {}
            for run in members:
                try:
                    rows = [row for row in self._rows(run) if row.get(name)]
                    failed[run.path] = run.failure is not None
                except (UserError, OSError):
                    continue  # the overview says it
                points = [(float(row["step"]), float(row[name])) for row in rows]
                read[run.path] = [point for point in points if math.isfinite(point[1])]
            curves = dict(zip(read, _side_by_side(list(read.values())), strict=True))
            if not any(curves.values()):
                continue
            found.append(
                {
                    "panel": f"{world.title or world.name}, {sizes}: {name}",
                    "line": policy.label + apart[group],
                    "colour": policy.colour,
                    "mean": _mean([points for path, points in curves.items() if not failed[path]]),
                    "seeds": [
                        {"path": self._name(path), "failed": failed[path], "points": points}
                        for path, points in curves.items()
                        if points
                    ],
                }
            )
        return found

    def scores(self) -> dict[str, Any]:
        """The tables of `diamond table`, one for each world, and what they leave out."""
        good: list[Run] = []
        left_out: list[str] = []
        parts: list[list[tables.Line]] = []
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always", Notice)
            for run in self._good_runs():
                try:
                    # What tables read besides, so that they fail for nobody else's fault.
                    if (
                        run.failure is None
                        and run.episodes.exists()
                        and newest_episodes(run)
                        and run.environment is not None
                    ):
                        good.append(run)
                except (UserError, OSError) as error:
                    left_out.append(self._said(error, run.path))
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
        return printable(path.relative_to(self.folder).as_posix())

    def _quoted(self, path: Path) -> str:
        """As it stands in an address; a name may hold bytes that are no text."""
        return quote(os.fsencode(path.relative_to(self.folder)))

    def _said(self, error: UserError | OSError, path: Path) -> str:
        if isinstance(error, UserError):
            return str(error)
        name = printable(str(self.folder)) if path == self.folder else self._name(path)
        return f"{name} cannot be read ({error.strerror})."

    def _look(self) -> Looked:
        """Through the folder and those in it; not into runs, links, or names with a dot."""
        looked = Looked([], [], [])
        waiting, count, too_deep = [(self.folder, 0)], 0, False
        while waiting:
            if count == MOST_FOLDERS:
                looked.left_out.append(
                    f"Only {MOST_FOLDERS:,} folders were looked into; start it with one further down to see the rest."
                )
                break
            (folder, depth), count = waiting.pop(), count + 1
            try:
                inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
                holds_run = is_run(folder)
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or folder == self.folder:  # else gone meanwhile
                    looked.left_out.append(self._said(error, folder))
                continue
            if holds_run or _will_be_run(folder):
                looked.runs.append(folder)
            seen = [entry for entry in inside if not entry.name.startswith(".")]
            looked.pictures.extend(filter(None, map(_as_picture, seen)))
            further = [Path(entry.path) for entry in seen if entry.is_dir(follow_symlinks=False)]
            if holds_run:
                continue
            if depth < DEEPEST:
                waiting += [(path, depth + 1) for path in reversed(further)]
            else:
                too_deep = too_deep or bool(further)
        if too_deep:
            looked.left_out.append(f"Folders more than {DEEPEST} levels down were not looked into.")
        looked.pictures.sort(key=lambda picture: -picture.changed)
        if len(looked.pictures) > MOST_PICTURES:
            looked.left_out.append(
                f"Of {len(looked.pictures):,} films and figures the newest {MOST_PICTURES} are shown."
            )
            del looked.pictures[MOST_PICTURES:]
        return looked

    def _good_runs(self) -> list[Run]:
        """Those that can be opened; of the others the overview speaks."""
        found = []
        for path in self._look().runs:
            try:
                found.append(self._opened(path))
            except (UserError, OSError):
                continue
        return found

    def _opened(self, path: Path) -> Run:
        if not is_run(path):
            raise UserError(f"{self._name(path)} holds no settings.json: it is being made, or was cut off.")
        return self._unless_changed(
            "run", path, [path / "settings.json", path / "policy.json"], lambda: open_run(path)
        )

    def _rows(self, run: Run) -> list[dict[str, str]]:
        with warnings.catch_warnings(record=True):  # a last row that is being written is no news
            return self._unless_changed("rows", run.path, [run.metrics], lambda: read_rows(run.metrics, COLUMNS))

    def _unless_changed(self, what: str, path: Path, files: Sequence[Path], read: Callable[[], Seen]) -> Seen:
        """What was wrong is read again: it may be put right in another file."""
        now = [_stamp(file) for file in files]
        kept = self._kept.get((what, path))
        if kept is None or kept[0] != now:
            self._kept[what, path] = kept = (now, read())
        return kept[1]


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


def _as_picture(entry: os.DirEntry) -> Picture | None:
    path = Path(entry.path)
    try:
        if path.suffix in PICTURES and entry.is_file(follow_symlinks=False):
            return Picture(path, entry.stat(follow_symlinks=False).st_mtime_ns)
    except OSError:  # gone meanwhile
        pass
    return None


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _number(cell: str | None) -> float | None:
    value = float(cell) if cell else math.nan
    return value if math.isfinite(value) else None


def _side_by_side(seeds: Sequence[Sequence[tuple[float, float]]]) -> list[list[Point]]:
    """Each seed's curve at steps that all of them share: where there are more than can be seen, means of neighbours.

    A last stretch that a seed has not gone through to its end is left out of its curve.
    """
    steps = sorted({step for points in seeds for step, _ in points})
    width = math.ceil(len(steps) / POINTS) or 1
    stretches = [steps[begin : begin + width] for begin in range(0, len(steps), width)]
    place = {step: number for number, stretch in enumerate(stretches) for step in stretch}
    curves = []
    for points in seeds:
        values: dict[int, list[float]] = defaultdict(list)
        for step, value in points:
            values[place[step]].append(value)
        last = max((step for step, _ in points), default=0.0)
        curves.append(
            [
                (sum(stretches[number]) / len(stretches[number]), sum(each) / len(each))
                for number, each in sorted(values.items())
                if stretches[number][-1] <= last
            ]
        )
    return curves


def _mean(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Over seeds, at the steps where each of them has a value; nothing where there is a single one."""
    if len(curves) < 2:
        return []
    values = [dict(points) for points in curves]
    common = sorted(set(values[0]).intersection(*values[1:]))
    return [(step, sum(each[step] for each in values) / len(values)) for step in common]
