"""Tables, computed from the rows in episodes.csv and from nothing else."""

import csv
import dataclasses
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from diamond_attention.broadcast import faults_in_order
from diamond_attention.build import build_policy
from diamond_attention.errors import UserError
from diamond_attention.evaluation.statistics import Interval, score_interval, seed_interval, wilson_interval
from diamond_attention.reports.episodes import by_size_and_play, newest_episodes, same_episode
from diamond_attention.reports.paper import paper_number
from diamond_attention.runs.folder import Run
from diamond_attention.runs.metrics import COLUMNS as METRICS
from diamond_attention.runs.presets import PRESETS, with_method
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.settings import Settings, described_as, flat, to_json
from diamond_attention.worlds.contract import Scoring, TeamSize, World

MOST_SIZES_NAMED = 4
"""Of those that a policy was trained on."""


@dataclass(frozen=True)
class Line:
    """One line of a table: one kind of policy, trained one way, played one way."""

    world: str
    preset: str
    overrides: str
    """Settings that differ from the preset's and have no column of their own."""
    method: str
    tags: tuple[str, ...]
    """Words for settings of the world that deserve one."""
    mask: str
    """The key of the policy's description: the kind of mask where it is Diamond Attention."""
    policy: str
    """The policy as readers know it, and whether dropout was on in play."""
    label: str
    """The same, whether or not dropout was on in play."""
    robot_needs: str
    """What a robot needs to decide, besides its own view."""
    trained_on: str
    played_on: tuple[int, int]
    played_at: str
    """The same for readers: a size, or a map."""
    simulator: str
    varied: dict[str, str]
    """What the world let this evaluation vary: the map, how far units started from their places."""
    play: str
    broadcast: str
    """What was wrong with the broadcast of ranks; empty: nothing."""
    dropout: str
    seeds_trained: int
    seeds_failed: int
    seeds_missing: int
    """Neither failed nor evaluated at this size."""
    episodes: int
    """For each seed; the smallest number if they differ."""
    evaluation_seed: str
    """Of the evaluation's own randomness; several if rows differ."""
    measure: str
    """success, battle_won, return; or R, the return divided by the agents."""
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
    steps: int
    """Of training, each seed's."""
    seconds: float | None
    """Of training, all seeds together."""
    parameters: int
    """Of the policy that plays."""
    chance: float | None
    """What independent play can reach at most, where that is known."""
    paper: float | None
    place: int
    """Of the policy among others."""
    scoring: Scoring
    """The world's."""

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
        played: dict[Any, dict[int, list[dict[str, str]]]] = defaultdict(dict)
        for run in members:
            chosen = (
                newest_episodes(run)
                if episodes is None
                else by_size_and_play(settings.world, episodes.get(run.path, []))
            )
            for way, rows in chosen.items():
                played[way][run.seed] = rows
        failed = {run.seed for run in members if run.failure is not None}
        world, policy = settings.world, described_as(settings)
        scoring = world.scoring
        sizes = [TeamSize(int(s.agents), int(s.tasks)) for s in settings.sizes]
        for way, by_seed in played.items():
            by_seed = {seed: rows for seed, rows in sorted(by_seed.items()) if seed not in failed}
            if not by_seed:
                continue
            columns = next(iter(by_seed.values()))[0]
            share = 1 / way.size[0] if scoring.per_agent else 1.0
            per_seed = {seed: share * _mean_of(scoring.score, rows) for seed, rows in by_seed.items()}
            others = [name for name in columns if name not in (*same_episode(world), scoring.score)]
            each = min(len(rows) for rows in by_seed.values())
            if scoring.rate and len(per_seed) == 1:
                # With one run there is no spread over runs; say how well this one policy is known.
                rate = next(iter(per_seed.values()))
                known = math.isfinite(rate)
                interval = wilson_interval(round(rate * each), each) if known else Interval(rate, rate, rate)
            else:
                interval = (seed_interval if scoring.rate else score_interval)(list(per_seed.values()))
            lines.append(
                Line(
                    world=world.name,
                    preset=preset,
                    overrides=_overrides(preset, settings, started_from),
                    method=settings.method.name,
                    tags=world.tags(),
                    mask=policy.key,
                    policy=policy.in_play(way.dropout),
                    label=policy.label,
                    robot_needs=policy.robot_needs,
                    trained_on=_trained_on(world, sizes),
                    played_on=way.size,
                    played_at=_as_varied(world, way.varied).played_at(TeamSize(*way.size)),
                    simulator=way.simulator,
                    varied=dict(way.varied),
                    play=way.play,
                    broadcast=way.broadcast,
                    dropout=way.dropout,
                    seeds_trained=len(members),
                    seeds_failed=len(failed),
                    seeds_missing=len(members) - len(failed) - len(per_seed),
                    episodes=each,
                    evaluation_seed=" ".join(sorted({row["seed"] for rows in by_seed.values() for row in rows})),
                    measure="R" if scoring.per_agent else scoring.score,
                    **interval._asdict(),
                    seeds=tuple(sorted(per_seed)),
                    per_seed=tuple(per_seed[seed] for seed in sorted(per_seed)),
                    measures={name: _summary([_mean_of(name, rows) for rows in by_seed.values()]) for name in others},
                    commit=_shared(members, "commit"),
                    device=_shared(members, "device"),
                    steps=settings.total_updates * settings.method.steps_per_update,
                    seconds=_seconds(members),
                    parameters=_parameters(settings),
                    chance=None if scoring.chance is None else scoring.chance(*way.size),
                    paper=paper_number(world, policy.key, sizes, way),
                    place=policy.place,
                    scoring=scoring,
                )
            )
    if not lines:
        raise UserError("these runs have no evaluated episodes yet; run `diamond evaluate` on them first.")
    return sorted(
        lines,
        key=lambda x: (
            (x.world, x.played_on, x.varied.get("jitter", ""), faults_in_order(x.broadcast), x.trained_on),
            (x.method, x.place, x.mask, x.preset, x.simulator, x.dropout == "off", x.play),
        ),
    )


def _trained_on(world: World, sizes: Sequence[TeamSize]) -> str:
    """Of a world whose sizes follow from its map, the map alone: how starts were scattered is an override."""
    scored = world.as_scored()
    names = list(dict.fromkeys(scored.played_at(size) for size in sizes))
    if len(names) > MOST_SIZES_NAMED:
        return f"{names[0]} … {names[-1]} ({len(names)} sizes)"
    return " ".join(names)


def _as_varied(world: World, varied: Sequence[tuple[str, str]]) -> World:
    """The world as that evaluation played it."""
    kinds = {name: type(getattr(world, name)) for name, _ in varied}
    return dataclasses.replace(world.as_scored(), **{name: kinds[name](value) for name, value in varied})  # type: ignore[type-var]


def _mean_of(column: str, rows: Sequence[Mapping[str, str]]) -> float:
    return float(np.mean([float(row[column]) for row in rows]))


def _summary(per_seed: Sequence[float]) -> dict[str, Any]:
    return {**score_interval(per_seed)._asdict(), "per_seed": list(per_seed)}


def _shared(runs: Sequence[Run], name: str) -> str:
    return ", ".join(sorted({str(run.environment.get(name, "unknown")) for run in runs}))


def _seconds(runs: Sequence[Run]) -> float | None:
    """How long training took, with compiling; seeds that trained together say the same. None where nobody says."""
    totals = []
    for run in runs:
        try:
            rows = read_rows(run.metrics, METRICS)
            totals += [sum(float(row["seconds"]) for row in rows)] if rows else []
        except (UserError, KeyError, ValueError):  # what training wrote is no reason to hide a score
            continue
    return round(float(np.mean(totals)), 1) if totals else None


@lru_cache(maxsize=64)
def _parameters(settings: Settings) -> int:
    """Numbers that the policy learns; critics are needed only while training."""
    shapes = jax.eval_shape(lambda: build_policy(settings.world, settings.policy, jax.random.key(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


OWN_COLUMNS = ("agents", "tasks", "method", "policy.kind", "policy.mask", "world.map")


def _usual(preset: str, settings: Settings) -> Settings:
    """The preset; where the run has another method or kind of policy, as `--method` and `--policy.kind` begin."""
    usual = PRESETS[preset][1]
    if settings.method.name != usual.method.name:
        usual = with_method(usual, settings.method.name)
    if settings.policy.kind != usual.policy.kind:
        usual = dataclasses.replace(usual, policy=type(settings.policy)())
    return usual


def _overrides(preset: str, settings: Settings, started_from: str | None) -> str:
    usual = dict(flat(to_json(_usual(preset, settings)))) if preset in PRESETS else {}
    own_words = {f"world.{tag}" for tag in settings.world.tags()}
    changed = [
        f"{name}={value}"
        for name, value in flat(to_json(settings))
        if usual and name not in OWN_COLUMNS and name not in own_words and usual.get(name) != value
    ]
    return " ".join([*changed, *([f"from={started_from}"] if started_from else [])])


def print_table(lines: Sequence[Line]) -> None:
    """Prints a table for each measure: never cut, so on a narrow terminal its lines wrap as the terminal does."""
    for part in by_world(lines):
        print_whole(as_rich(part))


def print_whole(table: Table) -> None:
    """However narrow the terminal."""
    console, needed = Console(), Console(width=10_000).measure(table).maximum
    (console if console.width >= needed else Console(width=needed)).print(table)


def as_rich(lines: Sequence[Line]) -> Table:
    """The table a person reads, of lines that share their measure."""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="\n".join(explanations(lines)), title_justify="left"
    )
    for heading in headings(lines):
        table.add_column(heading, justify="left" if heading in TEXT_HEADINGS else "right", no_wrap=True)
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
    for part in by_world(lines):
        parts += [*explanations(part), markdown_table(headings(part), text_rows(part))]
    return "\n\n".join(parts)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page of text; the cells are words already.

    >>> print(markdown_table(["n", "success"], [["2", "1.0"]]))
    | n | success |
    | --- | --- |
    | 2 | 1.0 |
    """
    return "\n".join("| " + " | ".join(row) + " |" for row in [headings, ["---"] * len(headings), *rows])


def by_world(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that can stand in one table: those of one world, whose measures it prints."""
    parts: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        parts[line.world].append(line)
    return list(parts.values())


TEXT_HEADINGS = ("policy", "preset", "trained", "played", "simulator", "a robot needs")
PLAYS = ("greedy", "sampled")

OVER_SEEDS = "mean over training seeds [95 % bootstrap interval over those seeds]"
SCORES_OVER_SEEDS = "mean over training seeds [95 % interval over those seeds, Student's t]"
OVER_EPISODES = "one training seed [95 % Wilson interval over its episodes]"


def explanations(lines: Sequence[Line]) -> list[str]:
    """What the numbers of these lines are, a sentence each."""
    scoring = lines[0].scoring
    if not scoring.rate:
        over = SCORES_OVER_SEEDS
    else:
        over = OVER_EPISODES if all(len(line.seeds) == 1 for line in lines) else OVER_SEEDS
    explained = [f"{name}: {meaning}" for name, meaning in scoring.measures.items()]
    return [f"{scoring.name}: {over}", *explained]


def headings(lines: Sequence[Line]) -> list[str]:
    simulator = ["simulator"] if _several_simulators(lines) else []
    score = "R " if lines[0].measure == "R" else ""
    measures = [f"{name} π*/π" for name in lines[0].scoring.measures]
    results = [f"{score}greedy π*", f"{score}sampled π", *measures, *_beside(lines)]
    return ["policy", "preset", "trained", "played", *simulator, *_needs(lines), "seeds", *results]


def _needs(lines: Sequence[Line]) -> list[str]:
    """Where methods are compared, what each asks of a robot stands beside what it scores."""
    return ["a robot needs"] if len({line.robot_needs for line in lines}) > 1 else []


def _several_simulators(lines: Sequence[Line]) -> bool:
    return any(line.simulator != "own" for line in lines)


def _beside(lines: Sequence[Line]) -> list[str]:
    return ["paper π*/π", "chance"] if lines[0].scoring.chance is not None else []


def policy_and_method(line: Line) -> str:
    """What a line is called. A method's own policies have keys that begin with its name."""
    by = "" if line.method == "ppo" or line.mask.startswith(line.method) else f", {line.method}"
    return line.policy + by


def text_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Greedy and sampled play of the same policies side by side, as the paper's Table 1 has them."""
    pairs: dict[tuple, dict[str, Line]] = defaultdict(dict)
    for line in lines:
        name = " ".join(filter(None, [line.preset, *line.tags, line.overrides]))
        played = ", ".join(filter(None, [line.played_at, line.broadcast]))
        pairs[(policy_and_method(line), name, line.trained_on, played, line.simulator)][line.play] = line
    rows = []
    for (policy, name, trained_on, played, simulator), by_play in pairs.items():
        some = next(iter(by_play.values()))
        cells = [policy, name, trained_on, played]
        if _several_simulators(lines):
            cells.append(simulator)
        cells += [some.robot_needs] * len(_needs(lines))
        cells.append(f"{len(some.per_seed)}/{some.seeds_trained}")
        cells += [value_of(by_play[play]) if play in by_play else "" for play in PLAYS]
        for measure in lines[0].scoring.measures:
            means = [by_play[play].measures[measure]["mean"] if play in by_play else None for play in PLAYS]
            cells.append(_pair(means, lines[0].scoring.decimals))
        if _beside(lines):
            cells.append(_pair([by_play[play].paper if play in by_play else None for play in PLAYS], 2))
            cells.append("" if some.chance is None else f"{some.chance:.3f}")
        rows.append(cells)
    return rows


def value_of(line: Line) -> str:
    if line.scoring.rate:
        return str(line.interval)
    # One run has no spread over runs, and an interval from one number to itself would look like certainty.
    decimals = line.scoring.decimals
    return line.interval.with_decimals(decimals) if len(line.per_seed) > 1 else f"{line.mean:.{decimals}f}"


def _pair(values: Sequence[float | None], decimals: int) -> str:
    """greedy/sampled; nothing where neither is known."""
    if all(value is None for value in values):
        return ""
    return "/".join("–" if value is None else f"{value:.{decimals}f}" for value in values)


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One flat record a line: what was varied, and the words for the world's settings, stand beside the rest."""
    records = []
    for line in lines:
        record = asdict(dataclasses.replace(line, scoring=Scoring()))
        for name in ("scoring", "place", "label", "tags", "varied"):
            del record[name]
        records.append({**record, **line.varied, **dict.fromkeys(line.tags, True)})
    return records


def as_csv(lines: Sequence[tuple[Mapping[str, str], Line]]) -> str:
    """One row for each line and training seed, after whatever a line is called."""
    rows = []
    for (called, _), record in zip(lines, as_json([line for _, line in lines]), strict=True):
        measures, per_seed, seeds = record.pop("measures"), record.pop("per_seed"), record.pop("seeds")
        for i, seed in enumerate(seeds):
            own = {name: values["per_seed"][i] for name, values in measures.items()}
            rows.append({**called, **record, "seed": seed, "score": per_seed[i], **own})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
