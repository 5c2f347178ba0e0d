"""What was played, for figures of scores: R of each policy by team size and training seed."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from diamond_attention.policies.kind import Described
from diamond_attention.reports.episodes import newest_episodes
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import Settings, described_as, flat, to_json
from diamond_attention.worlds.contract import World

Size = tuple[int, int]
"""Agents and tasks."""

Group = tuple[Settings, str | None]
"""What training seeds of one policy share: their settings, and the run whose weights they began with."""

MOST_DIFFERENCES = 2
"""Settings named in a legend before it says "…"."""


@dataclass
class Played:
    """One kind of policy played one way, its training seeds side by side."""

    name: str
    policy: Described
    world: World
    trained_on: frozenset[int]
    """Agents in the teams it learned with."""
    alike: Hashable
    """The same for policies that learned under the same settings, so that only they themselves differ."""
    simulator: str
    play: str
    twins: int
    """How many lines of the same kind of mask, and so of the same colour, came before it in the figure."""
    scores: dict[Size, dict[int, Float[np.ndarray, " episode"]]] = field(default_factory=lambda: defaultdict(dict))
    """R of every episode, by size and training seed."""
    episodes: int | None = None
    """Where each seed's mean is all that was kept, one score in place of its episodes: over how many."""

    @property
    def seeds(self) -> int:
        return len({seed for by_seed in self.scores.values() for seed in by_seed})

    def means(self, size: Size) -> dict[int, float]:
        """Of each training seed, over its episodes."""
        return {seed: float(np.mean(scores)) for seed, scores in self.scores.get(size, {}).items()}


def played_by(runs: Sequence[Run]) -> list[Played]:
    """What these runs, all of one world, have in episodes.csv; greedy play where there is some."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        if run.failure is None:
            groups[(run.settings, run.started_from)].append(run)
    names = names_apart(groups)
    found: list[Played] = []
    twins: dict[str, int] = defaultdict(int)
    for group in sorted(groups, key=place_of):
        settings = group[0]
        policy = described_as(settings)
        ways: dict[tuple[str, str], Played] = {}
        by_run = {run.seed: _newest_scores(run) for run in groups[group]}
        keys = sorted({key for scores in by_run.values() for key in scores}, reverse=True)
        greedy = any(play == "greedy" for _, _, play in keys)
        dropouts = sorted({dropout for _, dropout, _ in keys}, reverse=True)  # on, off: a line each
        for simulator, dropout, play in keys:
            if greedy and play != "greedy":
                continue
            name = policy.in_play(dropout) + names[group] + ("" if greedy else ", sampled")
            before = twins[policy.key] + dropouts.index(dropout)
            trained_on = frozenset(int(size.agents) for size in settings.sizes)
            way = Played(
                name, policy, settings.world, trained_on, _all_but_the_policy(group), simulator, play, before
            )
            for seed, scores in by_run.items():
                for size, values in scores.get((simulator, dropout, play), {}).items():
                    way.scores[size][seed] = values
            ways[simulator, dropout] = way
        found += ways.values()
        twins[policy.key] += len(dropouts)
    return found


def _all_but_the_policy(group: Group) -> Hashable:
    settings, started_from = group
    told = [(name, str(value)) for name, value in flat(to_json(settings)) if not name.startswith("policy.")]
    return (*told, started_from)


def _newest_scores(run: Run) -> dict[tuple[str, str, str], dict[Size, Float[np.ndarray, " episode"]]]:
    """R by (simulator, dropout, play) and size: the newest checkpoint's, each episode once."""
    scores: dict[tuple[str, str, str], dict[Size, np.ndarray]] = defaultdict(dict)
    scoring = run.settings.world.scoring
    for way, rows in newest_episodes(run).items():
        if way.broadcast:  # not to be mixed with what a team scores that hears everything
            continue
        values = np.asarray([float(row[scoring.score]) for row in rows])
        share = way.size[0] if scoring.per_agent else 1
        scores[way.simulator, way.dropout, way.play][way.size] = values / share
    return scores


def place_of(group: Group) -> tuple[int, str]:
    """For sorting: the paper's policy first, then its ablations, then others."""
    policy = described_as(group[0])
    return policy.place, policy.key


def names_apart(groups: Mapping[Group, Sequence[Run]]) -> dict[Group, str]:
    """What tells policies with the same kind of mask apart: the preset, or else the settings that differ."""
    names = {}
    for group, runs in groups.items():
        alike = [other for other in groups if described_as(other[0]) == described_as(group[0])]
        presets = {groups[other][0].preset for other in alike}
        if len(presets) == len(alike) > 1:
            names[group] = f" ({runs[0].preset})"
            continue
        told = [{**dict(flat(to_json(settings))), "from": source} for settings, source in alike]
        own = told[alike.index(group)]
        changed = [f"{name}={own[name]}" for name in own if len({str(other.get(name)) for other in told}) > 1]
        more = ", …" if len(changed) > MOST_DIFFERENCES else ""
        names[group] = "".join(f", {change}" for change in changed[:MOST_DIFFERENCES]) + more
    return names
