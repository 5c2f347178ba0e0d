"""Reading episodes.csv: which rows count, and how they are grouped, for every table and figure of scores."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from diamond_attention.errors import notice
from diamond_attention.runs.folder import Run
from diamond_attention.runs.rows import Columns, read_rows
from diamond_attention.worlds.contract import World

SIZE_AND_PLAY = ("simulator", "agents", "tasks", "play", "dropout")


class Way(NamedTuple):
    """A size and a way of playing: what rows are grouped by."""

    simulator: str
    agents: str
    tasks: str
    play: str
    broadcast: str
    """What was wrong with the broadcast of ranks; empty: nothing. In a row it stands behind the way of playing."""
    dropout: str
    varied: tuple[tuple[str, str], ...]
    """What some worlds let an evaluation vary, such as the map: names and values."""

    @property
    def size(self) -> tuple[int, int]:
        return int(self.agents), int(self.tasks)


def same_episode(world: World) -> tuple[str, ...]:
    """Columns that say which episode a row is; the others say how it went."""
    return ("checkpoint", *SIZE_AND_PLAY, *world.varies, "seed", "episode")


def by_size_and_play(world: World, rows: Iterable[Mapping[str, Any]]) -> dict[Way, list[dict[str, str]]]:
    groups: dict[Way, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        text = {name: str(value) for name, value in row.items()}
        groups[_way_of(world, text)].append(text)
    return groups


def _way_of(world: World, row: Mapping[str, str]) -> Way:
    varied = tuple((name, row[name]) for name in world.varies if name in row)
    own = {name: row[name] for name in SIZE_AND_PLAY}
    own["play"], _, own["broadcast"] = row["play"].partition(" ")
    return Way(**own, varied=varied)


def rows_played(run: Run, ways: Collection[Way]) -> list[dict[str, str]]:
    """The rows of episodes.csv that were played in one of these ways, as they stand there."""
    return [row for row in _rows_of(run) if _way_of(run.settings.world, row) in ways]


def _rows_of(run: Run) -> list[dict[str, str]]:
    """Rows from before there was a choice of simulator were played on our own."""
    world = run.settings.world
    whole = ("checkpoint", "agents", "tasks", "seed", "episode")
    words = (
        "simulator",
        "play",
        "dropout",
        *(name for name in world.varies if isinstance(getattr(world, name), str)),
    )
    columns = Columns((*whole, "play", "dropout", "return", world.scoring.score), whole, words)
    rows = read_rows(run.episodes, columns)
    return [row if "simulator" in row else {"simulator": "own", **row} for row in rows]


def newest_episodes(run: Run) -> dict[Way, list[dict[str, str]]]:
    """Rows by size and way of playing: the newest checkpoint's, each episode once however often it was played."""
    which = same_episode(run.settings.world)
    once = {tuple(row.get(name) for name in which): row for row in _rows_of(run)}
    newest = {}
    for way, rows in by_size_and_play(run.settings.world, once.values()).items():
        last = max(int(row["checkpoint"]) for row in rows)
        newest[way] = [row for row in rows if int(row["checkpoint"]) == last]
    scores = [float(row[run.settings.world.scoring.score]) for rows in newest.values() for row in rows]
    lost = sum(not math.isfinite(score) for score in scores)
    if lost:
        notice(f"{lost} of {len(scores)} scores in {run.episodes} are not finite, so their mean is no number.")
    return newest
