"""SMAClite's kernels on a GPU: held against the ordinary code and against recordings of the original, then timed.

    python experiments/battle_kernel_check.py lease --recordings FOLDER --seconds 540 --to rows.jsonl

is all of it in a given time: first, in about a minute and a half, whether 2s3z's kernels compile, are right and are
fast; then, side by side, other maps, recordings, a million random states, and training with kernels and without. Or
one thing at a time:

    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py check 2s3z --states 1000000
    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py rate 2s3z --envs 1024 8192 65536
    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py recordings --recordings FOLDER 2s3z 3s5z
    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py train

Every finding is a line of JSON, also on the way, so that what comes later may fail or be cut off. Processes that run
side by side and write one file compile together and use the GPU one at a time. Without a GPU `recordings --plain`
replays by the ordinary code in single precision, which is what kernels have to be compared with.
"""

import argparse
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measuring import Lines, side_by_side

from diamond_attention.bench.battles import BATTLES, random_battles
from diamond_attention.bench.training import compiled_training
from diamond_attention.runs.presets import PRESETS
from diamond_attention.worlds.smaclite import battle, battle_kernels, kernels, replay, scripted
from diamond_attention.worlds.smaclite.scenario import Scenario, scenario_of

CLOSE = 1e-3
"""Farther apart is a difference. Last bits always differ, and may decide which way around somebody is nearer."""
SHARE_ALLOWED = 0.02
"""Of battles that may differ after a step, other than those that last bits of a position would change, too."""
JITTER = 1.0
TURNS, CALLS = 3, 3
WORKERS = 10
"""Processes that compile side by side on a machine of sixteen cores."""
BY_IMPORTANCE = (
    *("2s3z", "3s5z", "MMM2", "3s_vs_5z", "10m_vs_11m", "MMM", "2s_vs_1sc", "3s5z_vs_3s6z", "27m_vs_30m"),
    *("corridor", "bane_vs_bane", "2c_vs_64zg"),
)
PARTS = 3
"""Of the recordings, each in a process of its own."""
NUDGE = 1e-6
"""Relative: two or three of the last bits of a position in single precision."""
FIRST_SHOWN = 5


def compiled(lines: Lines, what: str, function: Any, *arguments: Any) -> Any:
    began = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    between = time.perf_counter()
    program = lowered.compile()
    lines.say(
        "compiled", of=what, lower_s=round(between - began, 1), compile_s=round(time.perf_counter() - between, 1)
    )
    return program


def used_for(lines: Lines, name: str) -> bool:
    """Whether battles of this map run in kernels here, which the product finds out by compiling them once."""
    began = time.perf_counter()
    used = kernels.are_used(jnp.float32) and battle_kernels.are_used_for(scenario_of(name), False)
    lines.say("asked", map=name, kernels=used, took_s=round(time.perf_counter() - began, 1))
    return used


def need_kernels(lines: Lines, name: str) -> None:
    """Plain against plain would always agree."""
    if not used_for(lines, name):
        asked = f"{kernels.SWITCH}={os.environ.get(kernels.SWITCH, 'not said')}"
        sys.exit(f"{asked} and {jax.devices()[0].device_kind}: there are no kernels of {name} to compare here.")


# --- Against the ordinary code ----------------------------------------------------------------------


def parts_of(outcome: battle.Outcome) -> dict[str, Any]:
    return outcome.state._asdict() | {"reward": outcome.reward, "done": outcome.done, "won": outcome.won}


def apart(one: battle.Outcome, other: battle.Outcome) -> dict[str, Any]:
    """Of every part, how far each battle is from its twin; what is no number is infinitely far."""

    def farthest(a: Any, b: Any) -> Any:
        distance = jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).reshape(len(a), -1)
        return jnp.max(jnp.where(jnp.isnan(distance), jnp.inf, distance), axis=1)

    others = parts_of(other)
    return {part: farthest(values, others[part]) for part, values in parts_of(one).items()}


def which_differ(distances: dict[str, Any]) -> np.ndarray:
    return np.any([np.asarray(values) > CLOSE for values in distances.values()], axis=0)


def check(lines: Lines, name: str, states: int, envs: int) -> bool:
    """Random play goes on from the ordinary code's state, so that one difference is counted once.

    Beside it the ordinary code against itself, after every position was moved by a few last bits: battles in which
    units press against each other answer that with differences, too, and kernels should not have more of them.
    """
    need_kernels(lines, name)
    scenario = scenario_of(name)
    envs = min(envs, states)
    state = fresh = jax.vmap(lambda key: battle.start(scenario, key, JITTER))(
        jax.random.split(jax.random.key(0), envs)
    )

    @jax.jit
    def choose(state: Any, key: Any) -> tuple[Any, Any, Any]:
        action_keys, order_keys, nudge_key = (jax.random.split(each, envs) for each in jax.random.split(key, 3))
        legal = jax.vmap(partial(battle.legal_actions, scenario))(state)
        orders = jax.vmap(partial(battle.draw_turn_orders, scenario))(order_keys)
        nudges = jax.random.uniform(nudge_key[0], state.position.shape, jnp.float32, -NUDGE, NUDGE)
        nudged = state._replace(position=state.position * (1 + nudges))
        return jax.vmap(scripted.choose_at_random)(action_keys, legal), orders, nudged

    actions, orders, _ = choose(state, jax.random.key(0))
    kernel = compiled(lines, f"{name} step", jax.vmap(partial(battle.step, scenario)), state, actions, orders)
    plain = jax.vmap(partial(battle.step_plainly, scenario))
    ordinary = compiled(lines, f"{name} ordinary step", plain, state, actions, orders)
    compare, go_on = jax.jit(apart), jax.jit(begin_anew)
    different = of_nudges = both = done = 0
    worst: dict[str, float] = {}
    steps = -(-states // envs)
    with lines.alone():
        for step in range(steps):
            actions, orders, nudged = choose(state, jax.random.key(step))
            expected, found, moved = (
                ordinary(state, actions, orders),
                kernel(state, actions, orders),
                ordinary(nudged, actions, orders),
            )
            distances = jax.device_get(compare(expected, found))
            differ, sensitive = which_differ(distances), which_differ(jax.device_get(compare(expected, moved)))
            if differ.any() and different < FIRST_SHOWN:
                for env in np.flatnonzero(differ)[:FIRST_SHOWN]:
                    far = {part: float(values[env]) for part, values in distances.items() if values[env] > CLOSE}
                    nudges_too = bool(sensitive[env])
                    lines.say("difference", map=name, step=step, battle=int(env), apart=far, nudged_too=nudges_too)
            different += int(differ.sum())
            of_nudges += int(sensitive.sum())
            both += int((differ & sensitive).sum())
            done += envs
            worst = {part: max(worst.get(part, 0.0), float(values.max())) for part, values in distances.items()}
            state = go_on(expected.done, fresh, expected.state)
            last = step == steps - 1
            if (step + 1) & step == 0 or last:
                counts = {"different": different, "nudged_different": of_nudges, "both": both}
                lines.say("check", map=name, states=done, **counts, worst=worst, last=last)
    return different - both <= SHARE_ALLOWED * done


def begin_anew(over: Any, fresh: Any, state: Any) -> Any:
    def choose(new: Any, old: Any) -> Any:
        return jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, state)


# --- Against recordings of the original -------------------------------------------------------------


def recordings(lines: Lines, folder: str, maps: list[str], plain: bool) -> None:
    """Every recorded step in single precision; the recordings are of double precision."""
    traces: dict[str, list[replay.Trace]] = {}
    for path in sorted(Path(folder).glob("*.npz")):
        trace = replay.load_trace(path)
        traces.setdefault(trace.scenario.map.name, []).append(trace)
    if not traces:
        sys.exit(f"{folder} holds no recorded episodes (.npz).")
    for name in maps or sorted(traces):
        if name not in traces:
            sys.exit(f"{folder} holds no recording of {name}, only of {', '.join(traces)}.")
        if not plain:
            need_kernels(lines, name)
        replay_map(lines, traces[name], plain)


def replay_map(lines: Lines, traces: list[replay.Trace], plain: bool) -> None:
    """All steps of a map's recordings at once, by the ordinary code and, unless `plain`, by kernels."""
    scenario = traces[0].scenario
    name = scenario.map.name
    labels = [(trace.name, step) for trace in traces for step in range(trace.steps)]
    states = [replay.load_state(trace, np.arange(trace.steps), np.float32) for trace in traces]
    state = jax.tree.map(lambda *parts: jnp.concatenate(parts), *states)
    actions, orders = (
        jnp.asarray(np.concatenate([trace.arrays[part] for trace in traces]).astype(np.int32))
        for part in ("actions", "order")
    )
    ways = {"plain": battle.step_plainly} | ({} if plain else {"kernels": battle.step})
    found = {}
    for way, step in ways.items():
        program = compiled(
            lines, f"{name} recordings, {way}", partial(replayed, scenario, step), state, actions, orders
        )
        with lines.alone():
            found[way] = jax.device_get(program(state, actions, orders))
    recorded = {
        part: np.concatenate([trace.arrays[part][-trace.steps :] for trace in traces]) for part in found["plain"]
    }
    pairs = [("plain", "recorded", recorded)]
    if not plain:
        pairs += [("kernels", "recorded", recorded), ("kernels", "plain", found["plain"])]
    for way, against, expected in pairs:
        differences = {part: replay.largest_difference(found[way][part], expected[part]) for part in expected}
        differ = which_differ(differences)
        firsts = [
            {
                "recording": labels[at][0],
                "step": labels[at][1],
                "apart": {part: float(values[at]) for part, values in differences.items() if values[at] > CLOSE},
            }
            for at in np.flatnonzero(differ)[:FIRST_SHOWN]
        ]
        lines.say(
            "recordings",
            map=name,
            way=way,
            against=against,
            steps=len(labels),
            different=int(differ.sum()),
            share_matching=1 - float(differ.mean()),
            worst={part: float(values.max()) for part, values in differences.items()},
            first_differences=firsts,
        )


def replayed(scenario: Scenario, step: Any, state: Any, actions: Any, orders: Any) -> dict[str, Any]:
    def one(state: Any, actions: Any, orders: Any) -> dict[str, Any]:
        return replay.after_step(scenario, step(scenario, state, actions, orders))

    return jax.vmap(one)(state, actions, orders)


# --- Rates ------------------------------------------------------------------------------------------


def rate(lines: Lines, name: str, envs: int) -> None:
    """As `diamond bench` has it: random legal actions, observations and legal actions included."""
    used = used_for(lines, name)
    function, carry = random_battles(name, envs)
    program = compiled(lines, f"{name} {envs} battles", function, carry, jax.random.key(0))
    best = float("inf")
    with lines.alone():
        for turn in range(TURNS + 1):
            began = time.perf_counter()
            for call in range(CALLS):
                carry, (rewards, _) = program(carry, jax.random.key(turn * CALLS + call))
            jax.block_until_ready(carry)
            if turn > 0:
                best = min(best, time.perf_counter() - began)
    played, dropped = envs * rewards.shape[1] * CALLS, int(carry[0].lines_dropped.sum())
    lines.say("rate", map=name, envs=envs, kernels=used, steps_per_second=round(played / best), dropped=dropped)


def train(lines: Lines, preset: str = "smaclite-gpu") -> None:
    settings = PRESETS[preset][1]
    used = used_for(lines, settings.world.map)
    advance, learning, compile_seconds = compiled_training(settings, seeds=1)
    lines.say("compiled", of=f"{preset}, kernels {used}", compile_s=round(compile_seconds, 1))
    best = float("inf")
    with lines.alone():
        for _ in range(TURNS):
            began = time.perf_counter()
            for _ in range(CALLS):
                learning, _ = jax.block_until_ready(advance(learning, jnp.asarray(1)))
            best = min(best, (time.perf_counter() - began) / CALLS)
    steps = settings.method.steps_per_update
    lines.say("train", preset=preset, kernels=used, s_an_update=best, steps_per_second=round(steps / best))


# --- All of it, in a given time ---------------------------------------------------------------------


def lease(lines: Lines, seconds: float, to: str, folder: str | None) -> None:
    until = time.monotonic() + seconds

    def run(switch: str, **words: list[str]) -> dict[str, int | None]:
        commands = {name: [__file__, *each, "--to", to] for name, each in words.items()}
        return side_by_side(lines, commands, WORKERS, until, **{kernels.SWITCH: switch})

    # The first has the machine for itself: whether anything else is worth the time depends on it.
    if run("on", go=["go", "2s3z"])["go"] != 0:
        lines.say("no go", map="2s3z")
        run("off", train=["train"])
        return
    recordings = {}
    if folder:
        # By their names: this process must not ask JAX for the GPU that those it starts will share.
        there = {re.sub(r"_\d\d_.*", "", path.name) for path in Path(folder).glob("*.npz")}
        maps = [name for name in BY_IMPORTANCE if name in there]
        for part in range(PARTS):
            recordings[f"recordings_{part}"] = ["recordings", *maps[part::PARTS], "--recordings", folder]
    run(
        "on",
        train=["train"],
        train_without=["train", "--without"],
        check_2s3z=["check", "2s3z"],
        **recordings,
        **{f"go_{name}": ["go", name] for name in ("3s5z", "MMM2", "27m_vs_30m")},
        **{f"check_{name}": ["check", name] for name in ("3s5z", "MMM2")},
    )


def go(lines: Lines, name: str) -> None:
    """Whether a map's kernels are right on ten thousand states, then how fast they are."""
    if not check(lines, name, 10_240, 1024):
        sys.exit(f"Too many battles of {name} differ.")
    for envs in BATTLES["gpu"][name]:
        rate(lines, name, envs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["lease", "go", "check", "rate", "recordings", "train"])
    parser.add_argument("maps", nargs="*", default=[], help="2s3z by default; of recordings all there are")
    parser.add_argument("--to", help="a file that rows are appended to")
    parser.add_argument("--states", type=int, default=1_000_000, help="of check")
    parser.add_argument("--envs", type=int, nargs="+", default=[8192], help="battles at once, of check and rate")
    parser.add_argument("--recordings", help="a folder of recorded episodes")
    parser.add_argument("--plain", action="store_true", help="recordings by the ordinary code alone")
    parser.add_argument("--without", action="store_true", help="train without kernels, whatever was asked for")
    parser.add_argument("--seconds", type=float, default=540, help="of lease")
    options = parser.parse_args()
    lines = Lines(options.to, mode=options.what)
    if options.what == "lease":
        if options.to is None:
            parser.error("lease needs --to FILE")
        lease(lines, options.seconds, options.to, options.recordings)
        return
    if options.without:
        os.environ[kernels.SWITCH] = "off"
    lines.environment()
    names = options.maps or ["2s3z"]
    if options.what == "recordings":
        if options.recordings is None:
            parser.error("recordings needs --recordings FOLDER")
        recordings(lines, options.recordings, options.maps, options.plain)
    elif options.what == "train":
        train(lines)
    for name in names:
        if options.what == "go":
            go(lines, name)
        elif options.what == "check":
            check(lines, name, options.states, options.envs[0])
        elif options.what == "rate":
            for envs in options.envs:
                rate(lines, name, envs)


if __name__ == "__main__":
    main()
