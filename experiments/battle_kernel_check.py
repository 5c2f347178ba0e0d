"""SMAClite's kernels on a GPU: held against the ordinary code battle by battle, then timed.

    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py check 2s3z --envs 8192 --steps 128  # 1e6 states
    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py rate 2s3z --envs 65536
    DIAMOND_KERNELS=on python experiments/battle_kernel_check.py train

One line of JSON for each thing found, also on the way, so that what comes later may fail. Run several at once to let
them compile side by side: `--lock FILE` lets one at a time use the GPU.
"""

import argparse
import fcntl
import json
import time
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.bench.battles import random_battles
from diamond_attention.learning.seeds import advance_seeds, stack_seeds
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
from diamond_attention.runs.presets import PRESETS
from diamond_attention.worlds.smaclite import battle, kernels, scripted
from diamond_attention.worlds.smaclite.scenario import scenario_of

CLOSE = 1e-3
"""Farther apart is a difference. Last bits always differ, and may decide which way around somebody is nearer."""
JITTER = 1.0
TURNS, CALLS = 3, 3


def say(**found: Any) -> None:
    print(json.dumps(found | {"kernels": kernels.are_used(np.float32)}), flush=True)


@contextmanager
def alone(lock: str):
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compiled(what: str, function: Any, *arguments: Any) -> Any:
    began = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    between = time.perf_counter()
    program = lowered.compile()
    say(compiled=what, lower_s=round(between - began, 1), compile_s=round(time.perf_counter() - between, 1))
    return program


def check(name: str, envs: int, steps: int) -> None:
    """Random play goes on from the ordinary code's state, so that one difference is counted once."""
    scenario = scenario_of(name)
    fresh = jax.vmap(lambda key: battle.start(scenario, key, JITTER))(jax.random.split(jax.random.key(0), envs))

    @jax.jit
    def choose(state: Any, key: Any) -> tuple[Any, Any]:
        action_keys, order_keys = (jax.random.split(each, envs) for each in jax.random.split(key))
        legal = jax.vmap(partial(battle.legal_actions, scenario))(state)
        orders = jax.vmap(partial(battle.draw_turn_orders, scenario))(order_keys)
        return jax.vmap(scripted.choose_at_random)(action_keys, legal), orders

    @jax.jit
    def apart(one: Any, other: Any) -> Any:
        """Of every part, how far each battle is from its twin."""

        def farthest(a: Any, b: Any) -> Any:
            return jnp.max(jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).reshape(envs, -1), axis=1)

        parts = one.state._asdict() | {"reward": one.reward, "done": one.done, "won": one.won}
        others = other.state._asdict() | {"reward": other.reward, "done": other.done, "won": other.won}
        return {part: farthest(parts[part], others[part]) for part in parts}

    state = fresh
    arguments = (state, *choose(state, jax.random.key(0)))
    kernel = compiled(f"{name} step", jax.vmap(partial(battle.step, scenario)), *arguments)
    ordinary = compiled(f"{name} ordinary step", jax.vmap(partial(battle.step_plainly, scenario)), *arguments)
    different, worst = 0, dict.fromkeys(apart(*[ordinary(*arguments)] * 2), 0.0)
    for step in range(steps):
        arguments = (state, *choose(state, jax.random.key(step)))
        expected, found = ordinary(*arguments), kernel(*arguments)
        distances = {part: np.asarray(values) for part, values in apart(expected, found).items()}
        # Not finite counts as different, too.
        different += int(np.any([~(values <= CLOSE) for values in distances.values()], axis=0).sum())
        worst = {part: max(worst[part], float(values.max())) for part, values in distances.items()}
        state = begin_anew(expected.done, fresh, expected.state)
        if (step + 1) & step == 0 or step == steps - 1:
            say(check=name, states=envs * (step + 1), different=different, worst=worst)


def begin_anew(over: Any, fresh: Any, state: Any) -> Any:
    def choose(new: Any, old: Any) -> Any:
        return jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, state)


def rate(name: str, envs: int, lock: str) -> None:
    """As `diamond bench` has it: random legal actions, observations and legal actions included."""
    function, carry = random_battles(name, envs)
    program = compiled(f"{name} {envs} battles", function, carry, jax.random.key(0))
    best = float("inf")
    with alone(lock):
        for turn in range(TURNS + 1):
            began = time.perf_counter()
            for call in range(CALLS):
                carry, (rewards, _) = program(carry, jax.random.key(turn * CALLS + call))
            jax.block_until_ready(carry)
            if turn > 0:
                best = min(best, time.perf_counter() - began)
    played = envs * rewards.shape[1] * CALLS
    say(rate=name, envs=envs, steps_per_second=round(played / best), dropped=int(carry[0].lines_dropped.sum()))


def train(lock: str) -> None:
    settings = PRESETS["smaclite-gpu"][1]
    advance = advance_seeds(method_of(settings), build_learner(settings))
    learning = stack_seeds([begin_learning(settings, 0)])
    program = compiled("training", advance, learning, jnp.asarray(1))
    with alone(lock):
        jax.block_until_ready(program(learning, jnp.asarray(1)))
        began = time.perf_counter()
        for _ in range(CALLS):
            jax.block_until_ready(program(learning, jnp.asarray(1)))
        say(train="smaclite-gpu", seconds_an_update=(time.perf_counter() - began) / CALLS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "rate", "train"])
    parser.add_argument("map", nargs="?", default="2s3z")
    parser.add_argument("--envs", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--lock", default="/dev/null")
    options = parser.parse_args()
    if options.what == "check":
        check(options.map, options.envs, options.steps)
    elif options.what == "rate":
        rate(options.map, options.envs, options.lock)
    else:
        train(options.lock)


if __name__ == "__main__":
    main()
