"""Tables, computed from the rows in episodes.csv and from nothing else."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from diamond_attention.errors import UserError
from diamond_attention.evaluation.statistics import Interval, seed_interval, wilson_interval
from diamond_attention.reports.paper import PAPER_XOR
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.record import Run, read_rows
from diamond_attention.runs.settings import Settings, flat, to_json
from diamond_attention.worlds.xor import floor

SIZE_AND_PLAY = ("agents", "tasks", "play", "dropout")
CONDITIONS = ("map", "jitter")
"""Columns that only some worlds write."""
SAME_EPISODE = ("checkpoint", *SIZE_AND_PLAY, *CONDITIONS, "seed", "episode")


@dataclass(frozen=True)
class Line:
    """One line of a table: one kind of policy, trained one way, played one way."""

    world: str
    preset: str
    overrides: str
    """Settings that differ from the preset's and have no column of their own."""
    shaped: bool
    mask: str
    trained_on: str
    played_on: tuple[int, int]
    map: str
    """SMAClite: the map played; empty elsewhere."""
    jitter: str
    """SMAClite: how far units started from their places."""
    play: str
    dropout: str
    seeds_trained: int
    seeds_failed: int
    seeds_missing: int
    """Neither failed nor evaluated at this size."""
    episodes: int
    """For each seed; the smallest number if they differ."""
    measure: str
    mean: float
    low: float
    high: float
    seeds: tuple[int, ...]
    per_seed: tuple[float, ...]
    """The mean over episodes of each of those seeds."""
    commit: str
    device: str
    """What it was trained on; several if the runs differ."""
    floor: float | None
    """XOR: what independent play can reach at most."""
    paper: float | None

    @property
    def interval(self) -> Interval:
        return Interval(self.mean, self.low, self.high)


def table_lines(runs: Sequence[Run], episodes: Mapping[Path, Sequence[Mapping]] | None = None) -> list[Line]:
    """Groups runs that differ in nothing but the seed, and their episodes by size and way of playing.

    `episodes` are rows by run folder; by default those of the newest checkpoint in each episodes.csv.
    """
    groups: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        groups[(run.preset, run.settings, run.started_from)].append(run)
    lines = []
    for (preset, settings, started_from), members in groups.items():
        played: dict[tuple, dict[int, list[dict[str, str]]]] = defaultdict(dict)
        for run in members:
            chosen = _newest_episodes(run) if episodes is None else _by_size_and_play(episodes.get(run.path, []))
            for key, rows in chosen.items():
                played[key][run.seed] = rows
        failed = {run.seed for run in members if run.failure is not None}
        for (agents, tasks, play, dropout, map_name, jitter), by_seed in played.items():
            measured = next(iter(by_seed.values()))[0]
            measure = next(name for name in MEASURES if name in measured)
            per_seed = {
                seed: float(np.mean([float(row[measure]) for row in rows]))
                for seed, rows in by_seed.items()
                if seed not in failed
            }
            if not per_seed:
                continue
            each = min(len(rows) for rows in by_seed.values())
            outcomes = {float(row[measure]) for rows in by_seed.values() for row in rows}
            if len(per_seed) == 1 and outcomes <= {0.0, 1.0}:
                # With one run there is no spread over runs; say how well this one policy is known.
                rate = next(iter(per_seed.values()))
                interval = wilson_interval(round(rate * each), each)
            else:
                interval = seed_interval(list(per_seed.values()))
            size = (int(agents), int(tasks))
            is_xor = settings.world.name == "xor"
            trained = [(int(s.agents), int(s.tasks)) for s in settings.sizes]
            lines.append(
                Line(
                    world=settings.world.name,
                    preset=preset,
                    overrides=_overrides(preset, settings, started_from),
                    shaped=bool(getattr(settings.world, "shaped", False)),
                    mask=settings.policy.mask,
                    trained_on=getattr(settings.world, "map", " ".join(f"{n}x{k}" for n, k in trained)),
                    played_on=size,
                    map=map_name,
                    jitter=jitter,
                    play=play,
                    dropout=dropout,
                    seeds_trained=len(members),
                    seeds_failed=len(failed),
                    seeds_missing=len(members) - len(failed) - len(per_seed),
                    episodes=each,
                    measure=measure,
                    **interval._asdict(),
                    seeds=tuple(sorted(per_seed)),
                    per_seed=tuple(per_seed[seed] for seed in sorted(per_seed)),
                    commit=_shared(members, "commit"),
                    device=_shared(members, "device"),
                    floor=floor(*size) if is_xor else None,
                    paper=PAPER_XOR.get((settings.policy.mask, trained[0], size, play))
                    if is_xor and len(trained) == 1
                    else None,
                )
            )
    if not lines:
        raise UserError("these runs have no evaluated episodes yet; run `diamond evaluate` on them first.")
    order = {"rank": 0, "none": 1, "dropout": 2}
    return sorted(
        lines,
        key=lambda x: (
            (x.world, x.played_on, x.jitter, x.trained_on),
            (order[x.mask], x.preset, x.dropout == "off", x.play),
        ),
    )


def _shared(runs: Sequence[Run], name: str) -> str:
    return ", ".join(sorted({str(run.environment.get(name, "unknown")) for run in runs}))


OWN_COLUMNS = ("agents", "tasks", "policy.mask", "world.shaped", "world.map")


def _overrides(preset: str, settings: Settings, started_from: str | None) -> str:
    usual = dict(flat(to_json(PRESETS[preset][1]))) if preset in PRESETS else {}
    changed = [
        f"{name}={value}"
        for name, value in flat(to_json(settings))
        if usual and name not in OWN_COLUMNS and usual.get(name) != value
    ]
    return " ".join([*changed, *([f"from={started_from}"] if started_from else [])])


def _by_size_and_play(rows: Iterable[Mapping[str, Any]]) -> dict[tuple, list[dict[str, str]]]:
    groups: dict[tuple, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        text = {name: str(value) for name, value in row.items()}
        key = (*(text[name] for name in SIZE_AND_PLAY), *(text.get(name, "") for name in CONDITIONS))
        groups[key].append(text)
    return groups


def _newest_episodes(run: Run) -> dict[tuple, list[dict[str, str]]]:
    """Rows by size and way of playing: the newest checkpoint's, each episode once however often it was played."""
    once = {tuple(row.get(name) for name in SAME_EPISODE): row for row in read_rows(run.episodes)}
    newest = {}
    for key, rows in _by_size_and_play(once.values()).items():
        last = max(int(row["checkpoint"]) for row in rows)
        newest[key] = [row for row in rows if int(row["checkpoint"]) == last]
    return newest


HEADINGS = ("policy", "preset", "trained", "played", "seeds", "greedy π*", "sampled π", "paper π*/π", "floor")


def print_table(lines: Sequence[Line]) -> None:
    """Prints the table as wide as the terminal, or as wide as it needs where there is none."""
    console = Console()
    (console if console.is_terminal else Console(width=130)).print(as_rich(lines))


def as_rich(lines: Sequence[Line]) -> Table:
    """The table a person reads."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title(lines), title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:4] else "right")
    before = None
    for row in text_rows(lines):
        if before not in (None, row[2:4]):
            table.add_section()
        before = row[2:4]
        table.add_row(*row)
    return table


MEASURES = {"success": "Success rate", "battle_won": "Win rate", "return": "Return"}
"""What a table shows of an episode: the first of these that its world measures."""


def title(lines: Sequence[Line]) -> str:
    shown = " or ".join(name for measure, name in MEASURES.items() if measure in {line.measure for line in lines})
    return f"{shown}: mean over training seeds [95 % bootstrap interval over those seeds]"


def as_markdown(lines: Sequence[Line]) -> str:
    rows = [list(HEADINGS), ["---"] * len(HEADINGS), *text_rows(lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def text_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Greedy and sampled play of the same policies side by side, as the paper's Table 1 has them."""
    pairs: dict[tuple, dict[str, Line]] = defaultdict(dict)
    for line in lines:
        name = " ".join(filter(None, [line.preset, "shaped" if line.shaped else "", line.overrides]))
        played_on = "x".join(map(str, line.played_on))
        if line.map:
            played_on = line.map if float(line.jitter) == 0 else f"{line.map} ±{float(line.jitter):g}"
        pairs[(name, line.mask, line.dropout, line.trained_on, played_on)][line.play] = line
    rows = []
    for (name, mask, dropout, trained_on, played_on), by_play in pairs.items():
        some = next(iter(by_play.values()))
        papers = [by_play[play].paper if play in by_play else None for play in ("greedy", "sampled")]
        rows.append(
            [
                {"rank": "rank mask", "none": "no mask", "dropout": f"dropout, {dropout} in play"}[mask],
                name,
                trained_on,
                played_on,
                f"{len(some.per_seed)}/{some.seeds_trained}",
                *(str(by_play[play].interval) if play in by_play else "" for play in ("greedy", "sampled")),
                "/".join("–" if p is None else f"{p:.2f}" for p in papers)
                if any(p is not None for p in papers)
                else "",
                "" if some.floor is None else f"{some.floor:.3f}",
            ]
        )
    return rows


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(line) for line in lines]
