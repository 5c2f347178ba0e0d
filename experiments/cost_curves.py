"""What training costs: against agents, teams, seeds and width; until a team is good; and with an MLP as the policy.

    python experiments/cost_curves.py curves --seconds 540 --to rows.jsonl      # env-steps/s, each axis by itself
    python experiments/cost_curves.py mlp --to rows.jsonl          # JaxMARL's kind of work, by our PPO
    python experiments/cost_curves.py good --to rows.jsonl         # seconds until the median seed has R >= -60
    python experiments/cost_curves.py seeds --to rows.jsonl        # what one more seed on the same GPU costs
    python experiments/cost_curves.py decisions --to rows.jsonl    # ms a decision on one CPU core
    python experiments/cost_curves.py table rows.jsonl             # the curves, and where each leaves linear

With `--device cpu` the curves are those of `spread-cpu` with fewer teams, and `good` takes `--preset spread-cpu
--seeds 3 --goals -102 -62`. Every finding is a line of JSON, on disk before the next begins. It is no mode of
`diamond bench`, which says what one preset does on the user's machine and needs none of these options.
"""

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from measuring import Lines, side_by_side

from diamond_attention.bench import decisions, training
from diamond_attention.evaluation.conditions import Conditions
from diamond_attention.evaluation.evaluate import play_sizes
from diamond_attention.learning.seeds import split_seeds, stack_seeds
from diamond_attention.policies.flat import FlatSettings
from diamond_attention.runs.assemble import begin_learning
from diamond_attention.runs.presets import PRESETS, with_method
from diamond_attention.runs.settings import Settings

# One axis at a time. Teams and minibatches of the axis of agents are few, so that 64 agents, each with a view of 64
# peers and 64 landmarks, fit beside nothing else being changed.
AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "gpu": {
        "agents": (2, 4, 8, 16, 32, 64),
        "envs": (256, 1024, 4096, 16_384),
        "seeds": (1, 2, 4, 8),
        "width": (16, 32, 64, 128, 256),
    },
    "cpu": {
        "agents": (2, 4, 8, 16, 32, 64),
        "envs": (16, 64, 256, 1024),
        "seeds": (1, 2, 4),
        "width": (16, 32, 64, 128),
    },
}
BASE = {"gpu": "spread-gpu", "cpu": "spread-cpu"}
TEAMS_OF_THE_AXIS_OF_AGENTS = {"gpu": 256, "cpu": 16}
TEAMS_OF_OTHER_AXES = {"gpu": 4096, "cpu": 64}
MINIBATCHES = 16
"""In an epoch, as in spread-gpu. With the number of teams the minibatches grow, too."""
EPISODES, CHECK_EVERY = 256, 5
"""Of greedy play for each seed, each time R is asked for, and after how many updates that is."""
JAXMARL_EPOCHS, JAXMARL_WIDTH = 5, 64
MLP_BATCHES = (8192, 32_768)
AGENTS = (2, 4, 8, 16, 32, 64)


def settings_at(device: str, axis: str, value: int) -> tuple[Settings, int]:
    """Settings with one thing changed, and how many seeds."""
    settings = PRESETS[BASE[device]][1]
    envs = {"envs": value, "agents": TEAMS_OF_THE_AXIS_OF_AGENTS[device]}.get(axis, TEAMS_OF_OTHER_AXES[device])
    method = dataclasses.replace(settings.ppo, envs=envs, batch=envs * settings.ppo.steps // MINIBATCHES)
    if axis == "agents":
        settings = dataclasses.replace(settings, agents=str(value))
    if axis == "width":
        settings = dataclasses.replace(settings, policy=dataclasses.replace(settings.policy, width=value))
    return dataclasses.replace(settings, method=method), value if axis == "seeds" else 1


def point(lines: Lines, device: str, axis: str, value: int) -> None:
    settings, seeds = settings_at(device, axis, value)
    speed = train(lines, settings, seeds)
    lines.say("training", axis=axis, value=value, envs=settings.ppo.envs, batch=settings.ppo.batch, **speed)


def train(lines: Lines, settings: Settings, seeds: int) -> dict[str, Any]:
    """Env-steps a second of all seeds: the best of a few turns."""
    with lines.among_others():
        advance, learning, compile_seconds = training.compiled_training(settings, seeds)
    best = math.inf
    with lines.alone():
        for _ in range(TURNS):
            updates, began = 0, time.perf_counter()
            while not updates or time.perf_counter() - began < SECONDS_A_TURN:
                learning, _ = jax.block_until_ready(advance(learning, jnp.asarray(1)))
                updates += 1
            best = min(best, (time.perf_counter() - began) / updates)
    steps = seeds * settings.method.steps_per_update
    return {
        "seeds": seeds,
        "s_an_update": best,
        "steps_per_second": round(steps / best),
        "compile_s": round(compile_seconds, 1),
        "program_bytes": training.program_bytes(advance),
    }


TURNS, SECONDS_A_TURN = 3, 1.0


def seeds_at_once(lines: Lines, preset: str, seeds: int) -> None:
    lines.say("seeds", preset=preset, **train(lines, PRESETS[preset][1], seeds))


PRESETS_OF_SEEDS, NUMBERS_OF_SEEDS = ("smaclite-gpu", "spread-gpu", "xor-paper"), (1, 2, 4, 8, 16)


def mlp(lines: Lines) -> None:
    """What 8.3e6 env-steps/s of JaxMARL's IPPO were measured on: 4,096 teams, 32 steps, five epochs, two MLPs 64x64.

    How many minibatches its epochs had is not known, so two sizes of ours are measured.
    """
    for batch in MLP_BATCHES:
        ippo = with_method(PRESETS["spread-gpu"][1], "ippo")
        method = dataclasses.replace(ippo.method, epochs=JAXMARL_EPOCHS, batch=batch, precision="float32")
        settings = dataclasses.replace(ippo, method=method, policy=FlatSettings(width=JAXMARL_WIDTH))
        lines.say("mlp", batch=batch, epochs=JAXMARL_EPOCHS, envs=method.envs, **train(lines, settings, 1))


def good(lines: Lines, preset: str, seeds: int, goals: list[float], total_steps: int | None) -> None:
    """Seconds of training until the median over seeds of R, in greedy play of full length, reaches each goal.

    All seeds train in one program. The clock stops while R is measured, as it would not be measured in a training;
    compiling is told apart and added. Seconds count to the end of the update after which R was good enough, at every
    fifth update.
    """
    settings = PRESETS[preset][1]
    if total_steps is not None:
        settings = dataclasses.replace(settings, total_steps=total_steps)
    size = settings.sizes[0]
    with lines.among_others():
        advance, _, compile_seconds = training.compiled_training(settings, seeds)
    learning = stack_seeds([begin_learning(settings, seed) for seed in range(seeds)])
    play = Conditions(settings.world, settings.rank_hold, greedy=True)
    trained, updates, missing = 0.0, 0, sorted(goals)
    setting = {"preset": preset, "seeds": seeds, "total_steps": settings.total_steps, "episodes": EPISODES}
    while updates < settings.total_updates:
        count = min(CHECK_EVERY, settings.total_updates - updates)
        with lines.alone():
            began = time.perf_counter()
            learning, _ = jax.block_until_ready(advance(learning, jnp.asarray(count)))
            trained += time.perf_counter() - began
        updates += count
        scores = []
        for seed, state in enumerate(split_seeds(learning)):
            policy = jax.tree.map(jnp.asarray, state.weights.policy)
            key = jax.random.fold_in(jax.random.key(0), seed)
            (played,) = play_sizes(play, policy, [size], EPISODES, key)
            scores.append(float(played["return"].mean()) / int(size.agents))
        steps = updates * settings.method.steps_per_update
        lines.say("R", **setting, update=updates, steps=steps, trained_s=round(trained, 3), R=scores)
        while missing and median(scores) >= missing[0]:
            seconds = {"s_compiling": compile_seconds, "s_training": trained, "s": compile_seconds + trained}
            lines.say("reached", **setting, goal=missing.pop(0), update=updates, steps=steps, R=scores, **seconds)
    lines.say("trained", **setting, s_compiling=compile_seconds, s_training=trained, R=scores, not_reached=missing)


def decide(lines: Lines, presets: list[str]) -> None:
    """On one core, as `diamond bench` has it, for more sizes of a team."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    decisions.TEAM_SIZES = AGENTS
    for preset in presets:
        for row in decisions.decisions_on_this_core(PRESETS[preset][1]):
            lines.say("decision", preset=preset, **row)


def table(file: str) -> None:
    """The curves of a file, and by what power the time of an update grows from one point to the next: 1 is linear."""
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    curves: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for row in rows:
        if row["what"] == "training":
            curves.setdefault(row["axis"], []).append((row["value"], row))
    print(
        f"{'axis':8} {'value':>7} {'env-steps/s':>12} {'ms an update':>13} {'power':>6} {'compile s':>10} {'MiB':>8}"
    )
    for axis, points in curves.items():
        before: tuple[int, float] | None = None
        for value, row in sorted(points, key=lambda each: each[0]):
            seconds = row["s_an_update"]
            power = "" if before is None else f"{math.log(seconds / before[1]) / math.log(value / before[0]):.2f}"
            memory = "" if row["program_bytes"] is None else f"{row['program_bytes'] / 2**20:.0f}"
            speed, ms = row["steps_per_second"], 1e3 * seconds
            print(f"{axis:8} {value:>7} {speed:>12,} {ms:>13.1f} {power:>6} {row['compile_s']:>10} {memory:>8}")
            before = value, seconds
    for row in rows:
        if row["what"] == "decision":
            print(f"decision {row['preset']} {row['agents']:>4} agents {row['median_milliseconds']:.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["curves", "point", "seeds", "mlp", "good", "decisions", "table"])
    parser.add_argument("file", nargs="?", help="of table; of point AXIS=VALUE; of seeds PRESET=SEEDS")
    parser.add_argument("--to", help="a file that rows are appended to")
    parser.add_argument(
        "--seconds", type=float, default=540, help="of curves and seeds: what is not measured by then is left out"
    )
    parser.add_argument("--workers", type=int, default=8, help="of curves and seeds: how many compile side by side")
    parser.add_argument("--axes", nargs="+", help="of curves, by default all")
    parser.add_argument("--largest", type=int, help="of curves: leave larger values out")
    parser.add_argument("--preset", default="spread-gpu", help="of good")
    parser.add_argument("--seeds", type=int, default=5, help="of good")
    parser.add_argument("--goals", type=float, nargs="+", default=[-60.0], help="of good: values of R")
    parser.add_argument("--total-steps", type=int, help="of good: a shorter or longer training than the preset's")
    parser.add_argument("--device", choices=list(AXES), default=None, help="whose sizes; by default this machine's")
    asked = parser.parse_args()
    if asked.what == "table":
        table(asked.file)
        return
    if asked.what == "curves":
        if asked.to is None or asked.device is None:
            parser.error("curves needs --to FILE and --device, since it leaves the device to the processes it starts")
        points = [
            (axis, value)
            for axis in asked.axes or AXES[asked.device]
            for value in AXES[asked.device][axis]
            if asked.largest is None or value <= asked.largest
        ]
        common = ["--device", asked.device, "--to", asked.to]
        commands = {f"{axis}={value}": [__file__, "point", f"{axis}={value}", *common] for axis, value in points}
        side_by_side(Lines(asked.to), commands, asked.workers, time.monotonic() + asked.seconds)
        table(asked.to)
        return
    if asked.what == "seeds" and asked.file is None:
        if asked.to is None:
            parser.error("seeds needs --to FILE")
        points = [f"{preset}={number}" for number in NUMBERS_OF_SEEDS for preset in PRESETS_OF_SEEDS]
        commands = {each: [__file__, "seeds", each, "--to", asked.to] for each in points}
        side_by_side(Lines(asked.to), commands, asked.workers, time.monotonic() + asked.seconds)
        return
    lines = Lines(asked.to)
    lines.environment()
    device = asked.device or ("cpu" if jax.default_backend() == "cpu" else "gpu")
    if asked.what == "point":
        axis, _, value = (asked.file or "").partition("=")
        if axis not in AXES[device]:
            sys.exit(f"{asked.file} is no point of a curve; say for example agents=8.")
        point(lines, device, axis, int(value))
    elif asked.what == "seeds":
        preset, _, number = asked.file.partition("=")
        seeds_at_once(lines, preset, int(number))
    elif asked.what == "mlp":
        mlp(lines)
    elif asked.what == "decisions":
        decide(lines, ["spread-gpu", "spread-cpu"])
    else:
        good(lines, asked.preset, asked.seeds, asked.goals, asked.total_steps)


if __name__ == "__main__":
    main()
