"""Reading episodes.csv: which rows count, and how they are grouped, for every table and figure of scores."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from diamond_attention.runs.record import Run, read_rows

SIZE_AND_PLAY = ("simulator", "agents", "tasks", "play", "dropout")
CONDITIONS = ("map", "jitter")
"""Columns that only some worlds write."""
SAME_EPISODE = ("checkpoint", *SIZE_AND_PLAY, *CONDITIONS, "seed", "episode")


def by_size_and_play(rows: Iterable[Mapping[str, Any]]) -> dict[tuple, list[dict[str, str]]]:
    groups: dict[tuple, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        text = {name: str(value) for name, value in row.items()}
        key = (*(text[name] for name in SIZE_AND_PLAY), *(text.get(name, "") for name in CONDITIONS))
        groups[key].append(text)
    return groups


def _rows_of(run: Run) -> list[dict[str, str]]:
    """Rows from before there was a choice of simulator were played on our own."""
    return [{"simulator": "own", **row} for row in read_rows(run.episodes)]


def newest_episodes(run: Run) -> dict[tuple, list[dict[str, str]]]:
    """Rows by size and way of playing: the newest checkpoint's, each episode once however often it was played."""
    once = {tuple(row.get(name) for name in SAME_EPISODE): row for row in _rows_of(run)}
    newest = {}
    for key, rows in by_size_and_play(once.values()).items():
        last = max(int(row["checkpoint"]) for row in rows)
        newest[key] = [row for row in rows if int(row["checkpoint"]) == last]
    return newest
