"""The score against what is wrong with the broadcast of ranks: a row a game, a column a fault, a line a policy."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from diamond_attention.broadcast import DRAWN_BITS, Broadcast, faults_named
from diamond_attention.policies.kind import Described
from diamond_attention.reports.panels import draw_means, save
from diamond_attention.reports.tables import Line, table_lines
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import described_as
from diamond_attention.worlds.contract import title_of
from diamond_attention.worlds.registry import WORLDS

FAULTS = {
    "lost": "share of numbers lost",
    "late": "share of numbers a step late",
    "bits": "random bits of a number",
    "always_first": "agents that claim to be first",
}
"""What the axis of each says. Its value where nothing is wrong is the one of `Broadcast()`."""
RULES = {"guessed": "-", "lowest": "--", "highest": ":"}
"""How a line is drawn, by the rule for a number that was not heard."""


def draw_faults(runs: Sequence[Run], to: Path) -> Path | None:
    """None if nothing was played with an imperfect broadcast."""
    lines = [line for line in table_lines(runs) if line.play == "greedy" and line.simulator == "own"]
    known = {described_as(run.settings).key: described_as(run.settings) for run in runs}
    faults = [name for name in FAULTS if any(f"{name}=" in line.broadcast for line in lines)]
    if not faults:
        return None
    games: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        games[line.world, line.played_at].append(line)
    games = {game: own for game, own in games.items() if any(line.broadcast for line in own)}
    figure, axes = plt.subplots(
        len(games),
        len(faults),
        figsize=(3.1 * len(faults), 2.5 * len(games)),
        squeeze=False,
        sharey="row",
        sharex="col",
        layout="constrained",
    )
    for row, ((world, played_at), own) in zip(axes, games.items(), strict=True):
        for panel, fault in zip(row, faults, strict=True):
            draw_panel(panel, own, fault, known)
        measure = "R, return per agent" if own[0].measure == "R" else own[0].scoring.name
        row[0].set_ylabel(f"{title_of(WORLDS[world]())} {played_at}\n{measure}", fontsize=8)
    for panel, fault in zip(axes[-1], faults, strict=True):
        panel.set_xlabel(FAULTS[fault], fontsize=8)
    labels = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    figure.legend(labels.values(), labels.keys(), fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    return save(figure, to)


def draw_panel(axes: Axes, lines: Sequence[Line], fault: str, policies: dict[str, Described]) -> None:
    """The mean over training seeds of each policy and rule, with its interval; all begin at a perfect broadcast."""
    usual = getattr(Broadcast(), fault)
    scores: dict[tuple[str, str], dict[float, Line]] = defaultdict(dict)
    for line in lines:
        told = faults_named(line.broadcast)
        rule = told.pop("unheard", Broadcast().unheard)
        if list(told) == [fault]:
            scores[line.mask, rule][float(told[fault])] = line
    for (mask, rule), by_value in scores.items():
        perfect = {float(usual): line for line in lines if line.mask == mask and not line.broadcast}
        intervals = {value: line.interval for value, line in (by_value | perfect).items()}
        policy = policies[mask]
        label = policy.label + (f", unheard {rule}" if rule != Broadcast().unheard else "")
        draw_means(axes, intervals, policy.colour, RULES[rule], label)
    if fault == "bits":
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8, DRAWN_BITS], ["1", "2", "4", "8", str(DRAWN_BITS)])
    elif fault == "always_first" and scores:
        axes.set_xticks(sorted({int(value) for by_value in scores.values() for value in by_value} | {0}))
    axes.tick_params(labelsize=8)
