"""Do scripted teams win as often in this engine as in the original? Writes results/smaclite_statistics.csv.

    python benchmarks/smaclite_statistics.py [--episodes 4000] [--seed 0] [--to results/smaclite_statistics.csv]

A rule made a little random plays a different battle every time, so its win rate tells two engines apart; the replay
of recordings (`diamond smaclite-replay`) compares single steps only. Battles run freely in single precision, as in
training.
"""

import argparse
import csv
from pathlib import Path

import jax
import numpy as np
import result_rows

from diamond_attention.evaluation.statistics import holm, two_proportions_p_value
from diamond_attention.runs.record import describe_environment
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.scripted import RULES, play_episode

RESULTS = result_rows.ROOT / "results" / "smaclite_statistics.csv"
LEVEL = 0.01
"""Engines whose corrected p-value is below it are told apart."""
EPISODES_AT_ONCE = 250

ORIGINAL = {
    # (map, rule, share of random actions): battles won, battles played. The original with its numpy backend.
    ("2s3z", "nearest", 0.15): (15, 100),
    ("2s3z", "in range", 0.15): (20, 100),
    ("2s3z", "step back", 0.10): (30, 100),
    ("3s5z", "nearest", 0.15): (13, 83),
    ("3s5z", "in range", 0.15): (16, 100),
    ("3s5z", "step back", 0.10): (34, 94),
}


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


def compare(episodes: int, seed: int, original: dict[tuple[str, str, float], tuple[int, int]]) -> list[dict]:
    environment = describe_environment()
    rows, p_values = [], []
    for (map_name, rule, share_random), (their_wins, their_episodes) in original.items():
        won, played, dropped = play(map_name, rule, share_random, episodes, seed)
        p_values.append(two_proportions_p_value(won, played, their_wins, their_episodes))
        rows.append(
            {
                "map": map_name,
                "rule": rule,
                "share_random": share_random,
                "won": won,
                "episodes": played,
                "win_rate": f"{won / played:.4f}",
                "original_won": their_wins,
                "original_episodes": their_episodes,
                "original_win_rate": f"{their_wins / their_episodes:.4f}",
                "lines_dropped": dropped,
                "p_value": f"{p_values[-1]:.4f}",
            }
        )
        print(f"{map_name} {rule}: {won / played:.3f}, the original {their_wins / their_episodes:.3f}", flush=True)
    for row, corrected in zip(rows, holm(p_values), strict=True):
        row |= {
            "holm_p_value": f"{corrected:.4f}",
            "verdict": "differs" if corrected < LEVEL else "not told apart",
            "seed": seed,
            "commit": environment["commit"],
            "python": environment["python"],
            "jax": environment["versions"]["jax"],
            "device": environment["device"],
        }
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    compared = compare(arguments.episodes, arguments.seed, ORIGINAL)
    with open(arguments.to, "w", newline="") as file:
        writer = csv.DictWriter(file, list(compared[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(compared)
