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
from diamond_attention.evaluation.statistics import Interval, score_interval, seed_interval, wilson_interval
from diamond_attention.reports.episodes import SAME_EPISODE, by_size_and_play, newest_episodes
from diamond_attention.reports.names import place_of, policy_name
from diamond_attention.reports.paper import PAPER_XOR
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.record import Run
from diamond_attention.runs.settings import Settings, flat, to_json
from diamond_attention.worlds.xor import floor

PARTICLE_MEASURES = {"spread": ("collisions", "covered"), "food": ("collections", "collisions")}
"""Worlds whose tables show the paper's R, the return divided by the agents, and what they print beside it."""


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
    simulator: str
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
    """success; R, the return divided by the agents; or return."""
    mean: float
    low: float
    high: float
    seeds: tuple[int, ...]
    per_seed: tuple[float, ...]
    """The mean over episodes of each of those seeds."""
    measures: dict[str, dict[str, Any]]
    """Everything else that was measured: mean, low and high over seeds, and per_seed, each of an episode's sum."""
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
            chosen = newest_episodes(run) if episodes is None else by_size_and_play(episodes.get(run.path, []))
            for key, rows in chosen.items():
                played[key][run.seed] = rows
        failed = {run.seed for run in members if run.failure is not None}
        for (simulator, agents, tasks, play, dropout, map_name, jitter), by_seed in played.items():
            by_seed = {seed: rows for seed, rows in sorted(by_seed.items()) if seed not in failed}
            if not by_seed:
                continue
            columns = next(iter(by_seed.values()))[0]
            is_particles = settings.world.name in PARTICLE_MEASURES
            measure = "R" if is_particles else next(m for m in (*RATES, "return") if m in columns)
            column, share = ("return", 1 / int(agents)) if measure == "R" else (measure, 1.0)
            per_seed = {seed: share * _mean_of(column, rows) for seed, rows in by_seed.items()}
            others = [name for name in columns if name not in (*SAME_EPISODE, column)]
            each = min(len(rows) for rows in by_seed.values())
            outcomes = {float(row[column]) for rows in by_seed.values() for row in rows}
            if measure != "R" and len(per_seed) == 1 and outcomes <= {0.0, 1.0}:
                # With one run there is no spread over runs; say how well this one policy is known.
                rate = next(iter(per_seed.values()))
                interval = wilson_interval(round(rate * each), each)
            else:
                interval = (seed_interval if measure in RATES else score_interval)(list(per_seed.values()))
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
                    simulator=simulator,
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
                    measures={name: _summary([_mean_of(name, rows) for rows in by_seed.values()]) for name in others},
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
    return sorted(
        lines,
        key=lambda x: (
            (x.world, x.played_on, x.jitter, x.trained_on),
            (place_of(x.mask), x.preset, x.simulator, x.dropout == "off", x.play),
        ),
    )


def _mean_of(column: str, rows: Sequence[Mapping[str, str]]) -> float:
    return float(np.mean([float(row[column]) for row in rows]))


def _summary(per_seed: Sequence[float]) -> dict[str, Any]:
    return {**score_interval(per_seed)._asdict(), "per_seed": list(per_seed)}


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


def print_table(lines: Sequence[Line]) -> None:
    """Prints a table for each measure, as wide as the terminal, or as wide as it needs where there is none."""
    console = Console()
    for part in _by_kind(lines):
        (console if console.is_terminal else Console(width=130)).print(as_rich(part))


def as_rich(lines: Sequence[Line]) -> Table:
    """The table a person reads, of lines that share their measure."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=_title(lines), title_justify="left")
    for heading in _headings(lines):
        table.add_column(heading, justify="left" if heading in TEXT_HEADINGS else "right")
    before = None
    for row in text_rows(lines):
        if before not in (None, row[2:4]):
            table.add_section()
        before = row[2:4]
        table.add_row(*row)
    return table


def as_markdown(lines: Sequence[Line]) -> str:
    """The same tables, each under the same sentences."""
    parts = []
    for part in _by_kind(lines):
        parts += [*_title(part).splitlines(), markdown_table(_headings(part), text_rows(part))]
    return "\n\n".join(parts)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page of text; the cells are words already.

    >>> print(markdown_table(["n", "success"], [["2", "1.0"]]))
    | n | success |
    | --- | --- |
    | 2 | 1.0 |
    """
    return "\n".join("| " + " | ".join(row) + " |" for row in [headings, ["---"] * len(headings), *rows])


def _by_kind(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that can stand in one table: the same measure, and for R the same world, whose measures it prints."""
    parts: dict[tuple, list[Line]] = defaultdict(list)
    for line in lines:
        parts[(line.measure, line.world if line.measure == "R" else "")].append(line)
    return list(parts.values())


TEXT_HEADINGS = ("policy", "preset", "trained", "played", "simulator")
PLAYS = ("greedy", "sampled")

TITLES = {
    "success": "Success rate",
    "R": "R, the return divided by the agents",
    "battle_won": "Win rate",
    "return": "Return of the team",
}
RATES = ("success", "battle_won")
"""Measures between 0 and 1. Others have no bounds that an interval must respect."""
OVER_SEEDS = "mean over training seeds [95 % bootstrap interval over those seeds]"
SCORES_OVER_SEEDS = "mean over training seeds [95 % interval over those seeds, Student's t]"
OVER_EPISODES = "one training seed [95 % Wilson interval over its episodes]"
MEASURE_TITLES = {
    "collisions": "collisions: ordered pairs of overlapping agents, summed over an episode's steps",
    "covered": "covered: the share of landmarks under an agent, summed likewise",
    "collections": "collections: foods collected in an episode",
}


def _title(lines: Sequence[Line]) -> str:
    measure = lines[0].measure
    if measure not in RATES:
        over = SCORES_OVER_SEEDS
    else:
        over = OVER_EPISODES if all(len(line.seeds) == 1 for line in lines) else OVER_SEEDS
    title = f"{TITLES[measure]}: {over}"
    return "\n".join([title, *(MEASURE_TITLES[name] for name in _shown_measures(lines))])


def _headings(lines: Sequence[Line]) -> list[str]:
    simulator = ["simulator"] if _several_simulators(lines) else []
    if lines[0].measure == "R":
        results = ["R greedy π*", "R sampled π", *(f"{name} π*/π" for name in _shown_measures(lines))]
    else:
        results = ["greedy π*", "sampled π"]
    return ["policy", "preset", "trained", "played", *simulator, "seeds", *results, *_beside(lines)]


def _shown_measures(lines: Sequence[Line]) -> tuple[str, ...]:
    return PARTICLE_MEASURES[lines[0].world] if lines[0].measure == "R" else ()


def _several_simulators(lines: Sequence[Line]) -> bool:
    return any(line.simulator != "own" for line in lines)


def _beside(lines: Sequence[Line]) -> list[str]:
    return ["paper π*/π", "floor"] if lines[0].measure == "success" else []


def text_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Greedy and sampled play of the same policies side by side, as the paper's Table 1 has them."""
    pairs: dict[tuple, dict[str, Line]] = defaultdict(dict)
    for line in lines:
        name = " ".join(filter(None, [line.preset, "shaped" if line.shaped else "", line.overrides]))
        played_on = "x".join(map(str, line.played_on))
        if line.map:
            played_on = line.map if float(line.jitter) == 0 else f"{line.map} ±{float(line.jitter):g}"
        pairs[(name, line.mask, line.dropout, line.trained_on, played_on, line.simulator)][line.play] = line
    rows = []
    for (name, mask, dropout, trained_on, played_on, simulator), by_play in pairs.items():
        some = next(iter(by_play.values()))
        cells = [policy_name(mask, dropout), name, trained_on, played_on]
        if _several_simulators(lines):
            cells.append(simulator)
        cells.append(f"{len(some.per_seed)}/{some.seeds_trained}")
        cells += [_value(by_play[play]) if play in by_play else "" for play in PLAYS]
        for measure in _shown_measures(lines):
            means = [by_play[play].measures[measure]["mean"] if play in by_play else None for play in PLAYS]
            cells.append(_pair(means, 1))
        if _beside(lines):
            cells.append(_pair([by_play[play].paper if play in by_play else None for play in PLAYS], 2))
            cells.append("" if some.floor is None else f"{some.floor:.3f}")
        rows.append(cells)
    return rows


def _value(line: Line) -> str:
    if line.measure in ("success", "battle_won"):  # rates
        return str(line.interval)
    # One run has no spread over runs, and an interval from one number to itself would look like certainty.
    return line.interval.with_decimals(1) if len(line.per_seed) > 1 else f"{line.mean:.1f}"


def _pair(values: Sequence[float | None], decimals: int) -> str:
    """greedy/sampled; nothing where neither is known."""
    if all(value is None for value in values):
        return ""
    return "/".join("–" if value is None else f"{value:.{decimals}f}" for value in values)


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(line) for line in lines]
