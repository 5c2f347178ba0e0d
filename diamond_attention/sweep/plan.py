"""From combinations to commands: which are done, and how the others would be typed."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from diamond_attention.command_options import SweepOptions
from diamond_attention.extensions import loaded_words
from diamond_attention.jobs.contract import Step
from diamond_attention.reports.episodes import newest_episodes
from diamond_attention.runs.folder import (
    Run,
    check_same_seeds,
    check_same_training,
    has_ended,
    runs_there,
)
from diamond_attention.runs.restore import sources_of
from diamond_attention.runs.trackers.registry import check_trackers
from diamond_attention.sweep.combinations import Combination

PLAYS = ("greedy", "sampled")


def plan(combinations: Sequence[Combination], options: SweepOptions, seeds: Sequence[int]) -> Iterator[Step]:
    """For each combination a training and an evaluation. Whatever is wrong is said before anything runs."""
    check_trackers(sorted({name for each in combinations for name in each.options.track}))
    for each in combinations:
        folder = options.out / each.name
        runs = runs_in(folder, each, seeds)
        if each.options.from_run is not None:
            sources_of(each.options.from_run, each.options.settings, seeds)
        asked = ("--seeds", options.seeds, "--out", str(folder), "--resume")
        trained = bool(runs) and all(map(has_ended, runs))
        work = each.options.settings.total_steps
        yield Step(each.name, ("train", *each.words, *asked), trained, work, folder)
        where = () if each.options.device is None else ("--device", each.options.device)
        played = trained and all(is_played(run, options.episodes) for run in runs)
        words = ("evaluate", str(folder), "--episodes", str(options.episodes), *where)
        yield Step(each.name, words, played, folder=folder)


def runs_in(folder: Path, of: Combination, seeds: Sequence[int]) -> list[Run]:
    """The runs of a combination. Another training in its folder is refused."""
    runs = runs_there(folder)
    for run in runs:
        check_same_training(run, of.options.settings)
        check_same_seeds(run, seeds, "name another folder with --out")
    return runs


def is_played(run: Run, episodes: int) -> bool:
    """Whether its last checkpoint has so many episodes of every size, both ways. A run that failed is not played."""
    if run.failure is not None:
        return True
    if run.finished is None or not run.episodes.exists():
        return False
    number: dict[tuple[tuple[int, int], str], int] = {}
    for way, rows in newest_episodes(run).items():
        if way.simulator == "own" and not way.broadcast and int(rows[0]["checkpoint"]) == run.finished.get("step"):
            number[way.size, way.play] = len(rows)
    sizes = [(int(size.agents), int(size.tasks)) for size in run.settings.sizes]
    return all(number.get((size, play), 0) >= episodes for size in sizes for play in PLAYS)


def as_lines(steps: Sequence[Step]) -> Iterator[str]:
    """One line for each combination that is not done: what anybody could type, in any shell."""
    for group in dict.fromkeys(step.group for step in steps):
        left = [step for step in steps if step.group == group and not step.done]
        if left:
            yield " && ".join(shlex.join(["diamond", *step.words, *loaded_words()]) for step in left)
