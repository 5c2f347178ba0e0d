"""Do scripted teams win as often in this engine as in the original? Keeps results/smaclite_statistics.csv.

    python benchmarks/smaclite_statistics.py play [--episodes 4000] [--seed 0]
    python benchmarks/smaclite_statistics.py docs                                the table in docs/smaclite.md

A rule made a little random plays a different battle every time, so its win rate tells two engines apart; the replay
of recordings (`diamond smaclite-replay`) compares single steps only. Battles run freely in single precision, as in
training. The original has two backends for collision avoidance; the engine here follows the one in numpy. The last
row of each takes all others together, so that small differences in one direction add up.
"""

import argparse
import csv
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import result_rows

from diamond_attention.evaluation.statistics import TwoRates, holm, two_rates_p_value
from diamond_attention.reports.tables import markdown_table
from diamond_attention.runs.record import describe_environment
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.scripted import RULES, play_episode

RESULTS = result_rows.ROOT / "results" / "smaclite_statistics.csv"
PAGE = result_rows.ROOT / "docs" / "smaclite.md"
LEVEL = 0.01
"""Engines whose corrected p-value is below it are told apart."""
EPISODES_AT_ONCE = 250

ORIGINAL = {
    # (map, rule, share of random actions): battles won and played in the original, by backend.
    ("2s3z", "nearest", 0.15): {"numpy": (15, 100), "C++": (13, 76)},
    ("2s3z", "in range", 0.15): {"numpy": (20, 100), "C++": (11, 55)},
    ("2s3z", "step back", 0.10): {"numpy": (30, 100), "C++": (15, 50)},
    ("3s5z", "nearest", 0.15): {"numpy": (13, 83), "C++": (4, 59)},
    ("3s5z", "in range", 0.15): {"numpy": (16, 100), "C++": (14, 100)},
    ("3s5z", "step back", 0.10): {"numpy": (34, 94), "C++": (25, 100)},
}
Team = tuple[str, str, float]


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


def compare(
    original: Mapping[Team, Mapping[str, tuple[int, int]]], episodes: int, seed: int
) -> list[dict[str, str | int | float]]:
    environment = describe_environment()
    played = {}
    for team in original:
        played[team] = play(*team, episodes, seed)
        print(team, *played[team], flush=True)
    rows = []
    for backend in ("numpy", "C++"):
        rates = {team: TwoRates(*played[team][:2], *original[team][backend]) for team in original}
        p_values = [two_rates_p_value([rate]) for rate in rates.values()]
        for (team, rate), p_value, corrected in zip(rates.items(), p_values, holm(p_values), strict=True):
            rows.append(row(backend, team, [rate], played[team][2], p_value, corrected))
        together = two_rates_p_value(list(rates.values()))
        dropped = sum(played[team][2] for team in original)
        rows.append(row(backend, ("all", "all", ""), list(rates.values()), dropped, together, together))
    circumstances = {
        "seed": seed,
        "commit": environment["commit"],
        "python": environment["python"],
        "jax": environment["versions"]["jax"],
        "device": environment["device"],
    }
    return [{**each, **circumstances} for each in rows]


def row(
    backend: str, team: tuple, rates: Sequence[TwoRates], dropped: int, p_value: float, corrected: float
) -> dict[str, str | int | float]:
    won, episodes, original_won, original_episodes = (sum(numbers) for numbers in zip(*rates, strict=True))
    return {
        **dict(zip(("map", "rule", "share_random"), team, strict=True)),
        "won": won,
        "episodes": episodes,
        "win_rate": f"{won / episodes:.4f}",
        "lines_dropped": dropped,
        "original_backend": backend,
        "original_won": original_won,
        "original_episodes": original_episodes,
        "original_win_rate": f"{original_won / original_episodes:.4f}",
        "p_value": f"{p_value:.4f}",
        "holm_p_value": f"{corrected:.4f}",
        "verdict": "differs" if corrected < LEVEL else "not told apart",
    }


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A line a team: our win rate, and for each backend of the original its win rate and the corrected p-value."""
    beside: dict[tuple[str, ...], list[str]] = {}
    for each in rows:
        team = ("all, together", "")
        if each["map"] != "all":
            team = (f"{each['rule']}, {float(each['share_random']):.0%} random", each["map"])
        ours = f"{float(each['win_rate']):.3f}"
        theirs = [f"{float(each['original_win_rate']):.3f} of {each['original_episodes']}", each["holm_p_value"]]
        beside.setdefault((*team, ours), []).extend(theirs)
    headings = ["team", "map", "here", "original, numpy", "p", "original, C++", "p"]
    return markdown_table(headings, [[*ours, *theirs] for ours, theirs in beside.items()])


def with_table(page: str) -> str:
    return result_rows.with_blocks(page, {"statistics": markdown(result_rows.read(RESULTS))})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["play", "docs"])
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.what == "play":
        compared = compare(ORIGINAL, arguments.episodes, arguments.seed)
        with open(RESULTS, "w", newline="") as file:
            writer = csv.DictWriter(file, list(compared[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(compared)
    else:
        PAGE.write_text(with_table(PAGE.read_text()))
