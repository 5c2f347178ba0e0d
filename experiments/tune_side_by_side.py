"""Tries a grid of an off-policy method's numbers in one program, and adds the scores to results/baseline_tuning.csv.

    python experiments/tune_side_by_side.py gsa learning_rate=3e-4,1e-3,3e-3 reward_scale=0.1,1 tau=0.005,0.02 \
        --out ROWS.csv [--steps 4000000] [--option gsa.batch=256]…
    python experiments/tune_side_by_side.py --add ROWS.csv… [--commit C]

A small network's minibatch leaves a GPU idle, so twelve settings side by side take little longer than one. Only
numbers can differ that no shape and no branch depends on. The same for every method, and nothing is reported there:
Simple Spread with three agents (R), or 2s3z from scattered starts only (win rate); 128 greedy episodes.
"""

import argparse
import csv
import itertools
import time
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import result_rows

from diamond_attention.command_words import parse_train
from diamond_attention.evaluation.evaluate import play_episodes
from diamond_attention.learning.off_policy import OffPolicyState
from diamond_attention.learning.seeds import MOST_UPDATES_PER_CALL, advance_seeds
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
from diamond_attention.runs.environment import describe_environment
from diamond_attention.worlds.contract import TeamSize

TUNING = result_rows.RESULTS / "baseline_tuning.csv"
COLUMNS = ("method", "settings", "place", "steps", "seed", "score", "episodes", "seconds", "commit", "device")
EPISODES, SEEDS = 128, (0, 1)


class Place(NamedTuple):
    """Where settings are tried, and what counts there."""

    name: str
    options: tuple[str, ...]
    score: str


PLACES = {
    "spread-gpu": Place("N=3", ("--agents", "3"), "return"),
    "smaclite-cpu": Place("2s3z, scattered", ("--world.jitter", "2", "--world.jitter-share", "1"), "battle_won"),
}
"""By preset."""


Lane: Any = namedtuple("Lane", (*OffPolicyState._fields, "numbers"))
"""The state of one seed, with numbers of its own."""


class Varied:
    """A method's settings with some numbers in other places."""

    def __init__(self, settings: Any, numbers: Mapping[str, Any]):
        self.settings, self.numbers = settings, numbers

    def __getattr__(self, name: str) -> Any:
        return self.numbers[name] if name in self.numbers else getattr(self.settings, name)


def grid(words: Sequence[str]) -> list[dict[str, float]]:
    names = [word.split("=")[0] for word in words]
    values = [list(map(float, word.split("=")[1].split(","))) for word in words]
    return [dict(zip(names, each, strict=True)) for each in itertools.product(*values)]


def tune(
    name: str, words: Sequence[str], preset: str, steps: int, options: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for each setting and seed."""
    place = PLACES[preset]
    told = [word for option in options for word in (f"--{option.split('=')[0]}", option.split("=")[1])]
    size = [*place.options, "--total-steps", str(steps)]
    settings = parse_train(preset, ["--method", name, *size, *told]).settings
    choices, method, learner = grid(words), method_of(settings), build_learner(settings)

    def update(learner: Any, lane: Lane) -> tuple[Lane, dict[str, Any]]:
        own = learner._replace(method=Varied(learner.method, lane.numbers))
        after, metrics = method.update(own, OffPolicyState(*lane[:-1]))
        return Lane(*after, lane.numbers), metrics

    advance = advance_seeds(method._replace(update=update), learner)
    began = time.monotonic()
    states = [begin_learning(settings, seed) for seed in SEEDS]
    lanes = [Lane(*state, jax.tree.map(jnp.asarray, numbers)) for numbers in choices for state in states]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)
    del lanes
    for done in range(0, settings.total_updates, MOST_UPDATES_PER_CALL):
        stacked, log = advance(stacked, min(MOST_UPDATES_PER_CALL, settings.total_updates - done))
        returns = np.asarray(log["return"])[: settings.total_updates - done]
        print(f"{name}: {done} of {settings.total_updates} updates, {time.monotonic() - began:.0f} s,", end=" ")
        print("best mean return", np.nanmax(np.nanmean(returns, axis=0)), flush=True)
    seconds, environment = time.monotonic() - began, describe_environment()
    for i, (numbers, seed) in enumerate(itertools.product(choices, SEEDS)):
        policy = jax.tree.map(lambda leaf: leaf[i], method.policy_of(OffPolicyState(*stacked[:-1])))  # noqa: B023
        key = jax.random.fold_in(jax.random.key(0), seed)
        size_played = TeamSize(*map(int, settings.sizes[0]))
        played = play_episodes(settings.world, policy, size_played, EPISODES, key, settings.rank_hold, greedy=True)
        score = float(np.mean(played[place.score]))
        score = score / size_played.agents if place.score == "return" else score
        failed = int(stacked.failure[i]) != 0
        same = [option.removeprefix(f"{name}.") for option in options]
        own = [f"{number.replace('_', '-')}={value:g}" for number, value in numbers.items()]
        yield {
            "method": name,
            "settings": " ".join([*same, *own]),
            "place": place.name,
            "steps": settings.total_updates * settings.method.steps_per_update,
            "seed": seed,
            "score": "" if failed else f"{score:.4g}",
            "episodes": EPISODES,
            "seconds": round(seconds, 1),
            "commit": environment["commit"],
            "device": environment["device"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="a method, then NUMBER=VALUE,VALUE…")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--preset", default="spread-gpu", choices=PLACES)
    parser.add_argument("--steps", type=int, default=4_000_000)
    parser.add_argument("--option", action="append", default=[], help="the same for all, as NAME=VALUE")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="rows to put into results/")
    parser.add_argument("--commit", help="of the code that made the rows")
    arguments = parser.parse_args()
    for file in arguments.add:
        rows = result_rows.read(file)
        changed = {"commit": arguments.commit} if arguments.commit else {}
        result_rows.add(TUNING, COLUMNS, COLUMNS[:4], [row | changed for row in rows])
    if arguments.words:
        name, *words = arguments.words
        rows = list(tune(name, words, arguments.preset, arguments.steps, arguments.option))
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
