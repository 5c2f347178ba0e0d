"""Plays trained XOR policies with ranks rounded to few bits, and writes diamond_attention/theory/marks.csv.

diamond train xor --players 2 --seeds 0 --out RUNS/n2        (and 3, and 5)
python experiments/rounded_ranks.py RUNS/n2 RUNS/n3 RUNS/n5
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array

from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.folder import find_runs
from diamond_attention.theory.report import MARKS
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.xor import Xor

EPISODES = 10_000
WAYS = ("1", "2", "3", "4", "6", "8", "12", "bfloat16", "float32")


def rounded(ranks: Array, way: str) -> Array:
    """As few bits would tell them: even steps, or the numbers that a type has."""
    if way.isdigit():
        return jnp.floor(ranks * 2 ** int(way)) / 2 ** int(way)
    return ranks.astype(way).astype(jnp.float32)


def success(run, players: int, way: str) -> float:
    policy, _ = load_policy(run)
    world = Xor(max_agents=players, max_tasks=players)

    @jax.jit
    @partial(jax.vmap, in_axes=0)
    def one(key: Array) -> Array:
        reset_key, rank_key, act_key = jax.random.split(key, 3)
        state = world.reset(reset_key, TeamSize(players, players))
        views = world.views(state, rounded(draw_ranks(rank_key, players), way))
        actions = policy.act(views, None, act_key, greedy=True).actions
        return world.step(state, actions, act_key).measures["success"]

    return float(jnp.mean(one(jax.random.split(jax.random.key(0), EPISODES))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    rows = []
    for run in find_runs(parser.parse_args().runs):
        players = int(run.settings.sizes[0].agents)
        rows += [(players, way, round(success(run, players, way), 4), EPISODES) for way in WAYS]
        print(*rows[-len(WAYS) :], sep="\n", flush=True)
    with MARKS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["players", "ranks", "success", "episodes"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
