"""The table at the end of a sweep: a line for each combination, the best first."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from diamond_attention.reports.tables import (
    Line,
    as_csv,
    explanations,
    markdown_table,
    print_whole,
    table_lines,
    value_of,
)
from diamond_attention.runs.files import write_file
from diamond_attention.runs.folder import Run
from diamond_attention.sweep.combinations import Combination

BEST_FIRST = "Best first, by the mean of sampled play over all sizes."


class Part(NamedTuple):
    """The table of one world."""

    above: list[str]
    headings: list[str]
    rows: list[list[str]]


def show_table(found: Sequence[tuple[Combination, Sequence[Run]]], out: Path) -> None:
    """Prints it, and writes table.md and table.csv."""
    named = [(each, line) for each, runs in found if any(run.episodes.exists() for run in runs) for line in own(runs)]
    worlds: dict[str, list[tuple[Combination, Line]]] = defaultdict(list)
    for each, line in named:
        worlds[line.world].append((each, line))
    parts = [part_of(lines) for lines in worlds.values()]
    for part in parts:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="\n".join(part.above), title_justify="left")
        for heading in part.headings:
            table.add_column(heading, no_wrap=True)
        for row in part.rows:
            table.add_row(*row)
        print_whole(table)
    if parts:
        text = [text for part in parts for text in (*part.above, markdown_table(part.headings, part.rows))]
        write_file(out / "table.md", ("\n\n".join(text) + "\n").encode())
        write_file(
            out / "table.csv", as_csv([({"run": each.name, **each.varied}, line) for each, line in named]).encode()
        )
        print(f"wrote {out / 'table.md'} and {out / 'table.csv'}")


def own(runs: Sequence[Run]) -> list[Line]:
    """What was played on our own worlds with nothing wrong; somebody may have played more since."""
    return [line for line in table_lines(runs) if line.simulator == "own" and not line.broadcast]


def part_of(lines: Sequence[tuple[Combination, Line]]) -> Part:
    by_run: dict[str, dict[str, dict[str, Line]]] = defaultdict(lambda: defaultdict(dict))
    varied: dict[str, Mapping[str, str]] = {}
    for each, line in lines:
        by_run[each.name][line.played_at][line.play] = line
        varied[each.name] = each.varied
    several = len({line.played_at for _, line in lines}) > 1
    some = lines[0][1]
    score = "R " if some.measure == "R" else ""
    labels = list(dict.fromkeys(label for each in varied.values() for label in each))
    rows = []
    for name in sorted(by_run, key=lambda name: -_mean(by_run[name])):
        for played_at, by_play in by_run[name].items():
            line = next(iter(by_play.values()))
            seconds = "" if line.seconds is None else f"{line.seconds:,.0f}"
            rows.append(
                [
                    *(varied[name].get(label, "") for label in labels),
                    *([played_at] if several else []),
                    f"{len(line.per_seed)}/{line.seeds_trained}",
                    *(value_of(by_play[play]) if play in by_play else "" for play in ("greedy", "sampled")),
                    seconds,
                ]
            )
    heads = [*labels, *(["played"] if several else []), "seeds", f"{score}greedy π*", f"{score}sampled π", "train s"]
    return Part([explanations([line for _, line in lines])[0], BEST_FIRST], heads, rows)


def _mean(played: Mapping[str, Mapping[str, Line]]) -> float:
    """Of sampled play; what is not a number counts as worst."""
    means = [by_play["sampled"].mean for by_play in played.values() if "sampled" in by_play]
    mean = sum(means) / len(means) if means else math.nan
    return mean if math.isfinite(mean) else -math.inf
