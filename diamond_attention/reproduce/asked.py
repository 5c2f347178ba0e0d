"""What an entry has played: the ways of playing that its words mean. Rows of other entries' games are not its own."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from diamond_attention.command_options import EvaluateOptions
from diamond_attention.command_words import parse_with_variations
from diamond_attention.evaluation.conditions import variant_to_play
from diamond_attention.jobs.contract import Words
from diamond_attention.reports.episodes import Way, rows_played
from diamond_attention.runs.files import remove
from diamond_attention.runs.folder import Run
from diamond_attention.runs.rows import append_rows
from diamond_attention.runs.settings import described_as
from diamond_attention.runs.sizes import team_sizes
from diamond_attention.worlds.contract import conditions_of


def keep_asked(runs: Sequence[Run], plays: Sequence[Words]) -> None:
    """Of the episodes of these runs, which share their settings, keeps those that were played in these ways."""
    ways = {way for run in runs[:1] for play in plays for way in _ways(run, play)}
    for run in runs:
        rows = rows_played(run, ways)
        remove(run.episodes)
        append_rows(run.episodes, rows)


def _ways(run: Run, play: Words) -> Iterator[Way]:
    options, varied = _parsed(play)
    settings = run.settings
    dropout = options.dropout or ("on" if described_as(settings).key == "dropout" else "off")
    # Of several maps each is played by itself.
    for world in variant_to_play(run, **varied).apart():
        conditions = tuple((name, str(value)) for name, value in conditions_of(world).items())
        for size in team_sizes(world, options.agents or settings.agents, options.tasks or settings.tasks):
            for how in options.plays:
                agents, tasks = (str(int(number)) for number in size)
                yield Way(options.simulator, agents, tasks, how, str(options.broadcast), dropout, conditions)


@cache
def _parsed(play: Words) -> tuple[EvaluateOptions, dict[str, Any]]:
    return parse_with_variations(EvaluateOptions, ("GROUP", *play), "evaluate")
