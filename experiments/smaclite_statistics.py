"""Do scripted teams win as often in this engine as in the original? Keeps results/smaclite_statistics.csv.

    python experiments/smaclite_statistics.py [--episodes 4000] [--seed 0]

A rule made a little random plays a different battle every time, so its win rate tells two engines apart; the replay
of recordings (`diamond smaclite-replay`) compares single steps only. Battles run freely in single precision, as in
training. What the original won is in results/smaclite_original.csv; battles that both engines played with the same
seeds, orders of turns and actions are in results/smaclite_paired.csv. The original has two backends for collision
avoidance; the engine here follows the one in numpy. The table's last line takes all others together, so that small
differences in one direction add up.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np
import result_rows
from scipy.stats import binomtest

from diamond_attention.evaluation.statistics import TwoRates, holm, two_rates_p_value
from diamond_attention.reports.tables import markdown_table
from diamond_attention.runs.environment import describe_environment
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.scripted import RULES, play_episode

RESULTS = result_rows.RESULTS / "smaclite_statistics.csv"
ORIGINAL = result_rows.RESULTS / "smaclite_original.csv"
PAIRED = result_rows.RESULTS / "smaclite_paired.csv"
SAMPLES = {("numpy", "first"): "numpy", ("numpy", "second"): "numpy, new seeds", ("C++", "first"): "C++"}
"""Backend and sample of the original, and what the table calls them."""
EPISODES_AT_ONCE = 250

Team = tuple[str, str, str]
"""Map, rule, share of random actions."""


def team_of(row: Mapping[str, str]) -> Team:
    return row["map"], row["rule"], row["share_random"]


def play(map_name: str, rule: str, share_random: float, episodes: int, seed: int) -> tuple[int, int, int]:
    """Battles won, battles played (`episodes` rounded up to whole batches), avoidance lines dropped."""
    scenario = scenario_of(map_name)
    batch = min(EPISODES_AT_ONCE, episodes)
    one = jax.jit(jax.vmap(lambda key: play_episode(scenario, RULES[rule], share_random, key)))
    won = dropped = 0
    batches = -(-episodes // batch)
    for key in jax.random.split(jax.random.key(seed), batches):
        wins, _, _, lines = one(jax.random.split(key, batch))
        won, dropped = won + int(np.sum(wins)), dropped + int(np.sum(lines))
    return won, batch * batches, dropped


def played_rows(teams: Iterable[Team], episodes: int, seed: int) -> list[dict[str, object]]:
    environment = describe_environment()
    circumstances = {
        "seed": seed,
        "commit": environment["commit"],
        "python": environment["python"],
        "jax": environment["versions"]["jax"],
        "device": environment["device"],
    }
    rows = []
    for map_name, rule, share_random in teams:
        won, played, dropped = play(map_name, rule, float(share_random), episodes, seed)
        print(map_name, rule, won, played, dropped, flush=True)
        team = {"map": map_name, "rule": rule, "share_random": share_random}
        rows.append({**team, "won": won, "episodes": played, "lines_dropped": dropped, **circumstances})
    return rows


def markdown(ours: Sequence[Mapping[str, str]], original: Sequence[Mapping[str, str]]) -> str:
    """A line for each team: our win rate, and each sample of the original's with the corrected p-value."""
    played = {team_of(row): (int(row["won"]), int(row["episodes"])) for row in ours}
    columns = []
    for backend, sample in SAMPLES:
        theirs = {
            team_of(row): (int(row["won"]), int(row["episodes"]))
            for row in original
            if (row["backend"], row["sample"]) == (backend, sample)
        }
        rates = [TwoRates(*played[team], *theirs[team]) for team in played]
        p_values = [*holm([two_rates_p_value([rate]) for rate in rates]), two_rates_p_value(rates)]
        cells = [f"{won / episodes:.3f} of {episodes:,}" for won, episodes in (theirs[team] for team in played)]
        cells.append(f"{sum(theirs[team][1] for team in played):,} battles")
        columns.append([[rate, f"{p_value:.3f}"] for rate, p_value in zip(cells, p_values, strict=True)])
    names = [[f"{rule}, {float(share):.0%} random", map_name] for map_name, rule, share in played]
    here = [f"{won / episodes:.3f}" for won, episodes in played.values()]
    names.append(["all, together", ""])
    here.append(f"{sum(episodes for _, episodes in played.values()):,} battles")
    lines = [
        [*name, rate, *(cell for column in columns for cell in column[place])]
        for place, (name, rate) in enumerate(zip(names, here, strict=True))
    ]
    samples = [heading for name in SAMPLES.values() for heading in (f"original, {name}", "p")]
    return markdown_table(["team", "map", "here", *samples], lines)


def paired(rows: Sequence[Mapping[str, str]]) -> str:
    """The same battles in both engines: who won how many, and how often only one of them did."""
    lines = []
    for row in rows:
        cells = [row["precision"], row["battles"], row["original_won"], row["here_won"]]
        cells += [row["original_only"], row["here_only"]]
        p_value = ""
        if row["original_only"]:
            apart = int(row["original_only"]), int(row["here_only"])
            p_value = f"{binomtest(apart[0], sum(apart)).pvalue:.2f}"  # McNemar's, exact
        lines.append([row["teams"], *(f"{int(cell):,}" if cell.isdigit() else cell for cell in cells), p_value])
    headings = ["team and map", "precision", "battles", "won there", "won here", "only there", "only here", "p"]
    return markdown_table(headings, lines)


TABLES: dict[str, result_rows.Table] = {
    "statistics": lambda: markdown(result_rows.read(RESULTS), result_rows.read(ORIGINAL)),
    "paired": lambda: paired(result_rows.read(PAIRED)),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    teams = dict.fromkeys(team_of(row) for row in result_rows.read(ORIGINAL))
    rows = played_rows(teams, arguments.episodes, arguments.seed)
    result_rows.write(RESULTS, list(rows[0]), rows)
