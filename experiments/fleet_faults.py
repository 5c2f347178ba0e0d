"""Fleets on bad networks: what loss, delay, a killed robot and a liar cost each shipped policy.

    python experiments/fleet_faults.py results/fleet.csv --workers 2

Ten robots, five seeds, every fault beside none. Packets are simulated (`Simulated`), the messages, the tables and the
decisions are those of `diamond agent`. Rows that are there are kept, and what is missing is played.
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

from diamond_attention.fleet.command import world_of  # noqa: E402
from diamond_attention.fleet.crew import Orders, Simulated  # noqa: E402
from diamond_attention.fleet.field import Field  # noqa: E402
from diamond_attention.fleet.play import play  # noqa: E402
from diamond_attention.robot.faults import Faults  # noqa: E402
from diamond_attention.robot.message import Said  # noqa: E402
from diamond_attention.robot.robot import PATIENCE, Robot  # noqa: E402
from diamond_attention.runs.progress import Quiet  # noqa: E402

AGENTS, SEEDS = 10, range(5)
POLICIES = {"spread": 400, "spread-floor": 400, "food": 400, "dispatch-commitments": 100}
"""Steps of each: an episode, and of Dispatch 25."""
SUCCESS = {
    "spread": "covered at the end",
    "spread-floor": "covered at the end",
    "food": "collections",
    "dispatch-commitments": "served",
}
"""What stands for success: in Simple Spread the share of the last quarter's steps with as many landmarks covered as
there are robots for; foods collected in the episode; jobs served, as a share of those the best assignment serves."""
KILLED = "one of ten killed"
FIRST, LAST = 1 - 2.0**-23, 0.0
"""The highest and the lowest number that is believed."""
COLUMNS = (
    "policy", "agents", "steps", "fault", "seed", "score", "success", "success is", "covered", "collisions",
    "collections", "served", "wasted", "heard", "lost",
)  # fmt: skip


class Case(NamedTuple):
    policy: str
    fault: str
    seed: int


# --- One that lies --------------------------------------------------------------------------------


class SaysFirst(Robot):
    """Tells everybody the highest number, and acts on the one it has drawn."""

    def saying(self) -> Said:
        return super().saying()._replace(rank=FIRST)


class SaysLast(Robot):
    def saying(self) -> Said:
        return super().saying()._replace(rank=LAST)


class IsFirst(Robot):
    """Always draws the highest number: it acts on what it says."""

    def drawn_rank(self) -> float:
        return FIRST


class SaysElsewhere(Robot):
    """Tells everybody that it is on the other side of the field, and moving the other way."""

    def saying(self) -> Said:
        said = super().saying()
        return said._replace(values=tuple(-value for value in said.values))


LIARS: dict[str, type[Robot]] = {
    "one says first": SaysFirst,
    "one says last": SaysLast,
    "one is always first": IsFirst,
    "one says elsewhere": SaysElsewhere,
}


def with_a_liar(kind: type[Robot]) -> Callable[..., Robot]:
    return lambda agent, number, *rest, **more: (Robot if number else kind)(agent, number, *rest, **more)


# --- What is played -------------------------------------------------------------------------------


def faults() -> Iterator[str]:
    yield "none"
    yield from (f"loss={loss}" for loss in (0.1, 0.3, 0.5, 0.7, 0.9))
    yield from (f"delay={delay}" for delay in range(1, 6))
    yield KILLED
    yield from LIARS


def cases() -> Iterator[Case]:
    for seed in SEEDS:
        yield from (Case(policy, fault, seed) for fault in faults() for policy in POLICIES)


def by_importance(case: Case) -> int:
    """Which to play first, where there is not time for all."""
    return 0 if case.fault in ("none", "loss=0.5", "loss=0.9", "delay=2", "delay=5", KILLED, *LIARS) else 1


def row_of(case: Case) -> dict[str, Any]:
    steps = POLICIES[case.policy]
    name, _, amount = case.fault.partition("=")
    faults = Faults(float(amount) if name == "loss" else 0, int(amount) if name == "delay" else 0, case.seed)
    orders = Orders(case.policy, faults, PATIENCE, case.seed)
    crew = Simulated(orders, with_a_liar(LIARS[case.fault]) if case.fault in LIARS else Robot)
    field = Field(world_of(case.policy), AGENTS, 0, AGENTS, steps, case.seed)
    found = play(field, crew, (), (steps // 4,) if case.fault == KILLED else (), Quiet())
    success = found.get(SUCCESS[case.policy], found.get("success"))
    known = {**case._asdict(), "agents": AGENTS, "steps": steps, **found, **found["messages"]}
    known |= {"success": success, "success is": SUCCESS[case.policy]}
    return {name: round(value, 4) if isinstance(value := known.get(name, ""), float) else value for name in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--first", type=int, help="play so many cases at most")
    arguments = parser.parse_args()
    rows: dict[Case, dict[str, Any]] = {}
    if arguments.file.exists():
        with open(arguments.file, newline="") as opened:
            for row in csv.DictReader(opened):
                rows[Case(row["policy"], row["fault"], int(row["seed"]))] = row
    missing = sorted((case for case in cases() if case not in rows), key=by_importance)[: arguments.first]
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(row_of, case): case for case in missing}
        for number, done in enumerate(as_completed(waiting)):
            rows[waiting[done]] = done.result()
            print(number + 1, len(missing), *waiting[done], rows[waiting[done]]["score"], file=sys.stderr, flush=True)
            with open(arguments.file, "w", newline="") as opened:
                writer = csv.DictWriter(opened, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows[case] for case in cases() if case in rows)


if __name__ == "__main__":
    main()
