"""One minibatch's gradient of `spread-gpu` computed in several ways: which is worth having in the product?

    python experiments/minibatch_variants.py --to rows.jsonl                 # times them on this machine's GPU
    python experiments/minibatch_variants.py --count                     # kernels and bytes on an H200, without one
    python experiments/minibatch_variants.py --teams 64 --width 16           # small, to try it

Each variant is compared with the plain gradient, then timed: the median of many calls, variants taking turns, all in
one process. `--count` needs what gpu_program.py needs. Time is for one joint sample, so that minibatches of other
sizes can be compared; kernels and bytes are of one minibatch.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from statistics import median
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from measuring import Lines

from diamond_attention import attention
from diamond_attention.attention import DiamondBlock, Projection, linear
from diamond_attention.learning import ppo as learning
from diamond_attention.policies import critics, diamond
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.policies.heads import continuous
from diamond_attention.runs.assemble import begin_learning, build_learner
from diamond_attention.runs.presets import PRESETS

CALLS, ROUNDS = 20, 5
PLAIN = "plain"


# --- Variants: the same gradient, computed differently ----------------------------------------------


@contextmanager
def nothing_changed() -> Iterator[None]:
    yield


def forgetting(kind: type) -> Callable[[], Any]:
    """Backward computes again what this part of the policy and the critic went through, and does not read it."""
    plain = kind.__call__
    return partial(mock.patch.object, kind, "__call__", lambda self, *given: jax.checkpoint(plain)(self, *given))


def norm_by_hand(self: Projection, *parts: Any) -> Any:
    """LayerNorm with a backward pass of its own, which reads what went out instead of a copy in float32."""
    return normalised(linear(self.second, jax.nn.silu(linear(self.first, *parts))))


@jax.custom_vjp
def normalised(wide: Any) -> Any:
    return normalised_forward(wide)[0]


def normalised_forward(wide: Any) -> tuple[Any, Any]:
    centred = wide.astype(jnp.float32)
    centred = centred - jnp.mean(centred, axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
    out = (centred * scale).astype(wide.dtype)
    return out, (out, scale)


def normalised_backward(kept: Any, gradient: Any) -> tuple[Any]:
    unit, scale = kept[0].astype(jnp.float32), kept[1]
    wide = gradient.astype(jnp.float32)
    along = jnp.mean(wide * unit, axis=-1, keepdims=True)
    return ((scale * (wide - jnp.mean(wide, axis=-1, keepdims=True) - unit * along)).astype(gradient.dtype),)


normalised.defvjp(normalised_forward, normalised_backward)


def product_of_parts(layer: Any, *parts: Any) -> Any:
    """Parts joined again: one product of twice the depth instead of two and a sum."""
    return jnp.concatenate(parts, axis=-1) @ layer.weight.T + layer.bias


def batched_product(left: Any, right: Any) -> Any:
    """`@`, as on a CPU. XLA of jax 0.11.2 computed wrong numbers with it on an H200: compare before believing."""
    return left @ right


def in_pairs(self: DiamondPolicy, view: Any) -> Any:
    """Agents and tasks, where there are as many, as one array with an axis of two: half as many, larger products."""
    precision = self.embed_agent.first.weight.dtype
    most = max(view.agents.shape[-1], view.tasks.shape[-1])
    widened = [jnp.pad(rows, ((0, 0), (0, most - rows.shape[-1]))) for rows in (view.agents, view.tasks)]
    both = pair_projected(self.embed_agent, self.embed_task, jnp.stack(widened).astype(precision))
    present = attention.presence_term(view.task_present, view.agent_present)
    shown = []
    for block in (0, 1):
        own = self.blocks[block]
        agents, tasks = both
        values, task_values = pair_linear((own.agent_values, own.task_values), both)
        scores = attention.small_product(tasks, agents.T) / jnp.sqrt(tasks.shape[-1])
        weights = attention.softmax_or_zero(scores + (present + self.rank_terms(block, view.ranks))[0]).astype(
            precision
        )
        shown.append(weights)
        seen = jnp.stack([attention.small_product(weights.T, task_values), attention.small_product(weights, values)])
        if block == 0:
            both = pair_projected(self.agent_projections[0], self.task_projections[0], seen, both)
    tasks = self.task_projections[1](seen[1], tasks)
    viewer = self.agent_projections[1](seen[0, 0], agents[0])
    seen, weights = self.choice(tasks, viewer, view.task_present, None, 1.0)
    return self.head(seen, viewer), (*shown, weights[:, None])


def pair_linear(layers: Any, *parts: Any) -> Any:
    widths = [part.shape[-1] for part in parts]
    padded = [jnp.pad(layer.weight, ((0, 0), (0, sum(widths) - layer.weight.shape[1]))).T for layer in layers]
    of_parts = jnp.split(jnp.stack(padded), list(accumulate(widths))[:-1], axis=1)
    return sum(map(jnp.matmul, parts, of_parts)) + jnp.stack([layer.bias for layer in layers])[:, None]


def pair_projected(one: Projection, other: Projection, *parts: Any) -> Any:
    hidden = jax.nn.silu(pair_linear((one.first, other.first), *parts))
    return normalised(pair_linear((one.second, other.second), hidden))


@contextmanager
def linear_replaced(by: Callable[..., Any]) -> Iterator[None]:
    with (
        mock.patch.object(attention, "linear", by),
        mock.patch.object(critics, "linear", by),
        mock.patch.object(continuous, "linear", by),
    ):
        yield


@contextmanager
def small_product_replaced(by: Callable[..., Any]) -> Iterator[None]:
    with mock.patch.object(attention, "small_product", by), mock.patch.object(continuous, "small_product", by):
        yield


@contextmanager
def small_precision_of_critic() -> Iterator[None]:
    """The critic in the policy's precision, too; the product keeps it in float32. Not the same numbers."""
    plain = learning.ppo_loss

    def cast(ppo: Any, weights: Any, *rest: Any) -> Any:
        return plain(ppo, weights._replace(critic=learning.computing_in(ppo.precision, weights.critic)), *rest)

    with mock.patch.object(learning, "ppo_loss", cast):
        yield


VARIANTS: dict[str, Callable[[], Any]] = {
    PLAIN: nothing_changed,
    "forget projections": forgetting(Projection),
    "forget blocks": forgetting(DiamondBlock),
    "forget the policy": forgetting(DiamondPolicy),
    "norm by hand": partial(mock.patch.object, Projection, "__call__", norm_by_hand),
    "joined parts": partial(linear_replaced, product_of_parts),
    "batched products": partial(small_product_replaced, batched_product),
    "agents and tasks in pairs": partial(mock.patch.object, DiamondPolicy, "__call__", in_pairs),
    "critic in bfloat16": small_precision_of_critic,
}
LARGER = (2, 4, 8)
"""Times the plain minibatch."""
assert diamond.DiamondPolicy is DiamondPolicy


# --- What is computed --------------------------------------------------------------------------------


def question(teams: int, width: int, precision: str) -> tuple[Any, Any]:
    """The gradient as a function, and what makes its arguments: a minibatch of a first rollout."""
    settings = PRESETS["spread-gpu"][1]
    method = dataclasses.replace(settings.ppo, envs=teams, steps=1, batch=teams, precision=precision)
    policy = dataclasses.replace(settings.policy, width=width)
    settings = dataclasses.replace(settings, method=method, policy=policy)
    learner = build_learner(settings)

    def arguments() -> Any:
        state = begin_learning(settings, 0)
        _, seen = jax.jit(partial(learning.collect_all, learner))(state, jax.random.key(1))
        seen = jax.tree.map(lambda x: x[:, 0], seen)
        return state.weights, seen, jax.random.normal(jax.random.key(2), seen.value.shape), seen.reward / 10

    def gradient(weights: Any, batch: Any, gains: Any, goals: Any) -> Any:
        # Looked up late, for variants that replace it.
        loss = jax.value_and_grad(lambda weights: learning.ppo_loss(method, weights, batch, gains, goals)[0])
        return loss(weights)

    return gradient, arguments


def apart(one: Any, other: Any) -> float:
    """The largest difference of any array, as a share of its largest number."""
    worst = 0.0
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        most = float(jnp.max(jnp.abs(theirs)))
        worst = max(worst, float(jnp.max(jnp.abs(ours - theirs))) / max(most, 1e-12))
    return worst


def compiled_variants(teams: int, width: int, precision: str, only: list[str], lines: Lines) -> dict[str, Any]:
    """Programs with their arguments, each traced in its own way."""
    programs: dict[str, Any] = {}
    wanted = [(name, how, 1) for name, how in VARIANTS.items()]
    wanted += [(f"{times} times the minibatch", nothing_changed, times) for times in LARGER]
    for name, how, times in wanted:
        if only and name not in (PLAIN, *only):
            continue
        gradient, make = question(teams * times, width, precision)
        arguments = make()
        began = time.perf_counter()
        with how():
            program = jax.jit(gradient).lower(*arguments).compile()
        lines.say("compiled", variant=name, compile_s=round(time.perf_counter() - began, 1))
        programs[name] = program, arguments, teams * times
    return programs


def timed(lines: Lines, programs: dict[str, Any], **setting: Any) -> None:
    right = programs[PLAIN][0](*programs[PLAIN][1])
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, (program, arguments, _) in programs.items():
            jax.block_until_ready(program(*arguments))
            began = time.perf_counter()
            for _ in range(CALLS):
                found = program(*arguments)
            jax.block_until_ready(found)
            times[name].append((time.perf_counter() - began) / CALLS)
    for name, (program, arguments, teams) in programs.items():
        seconds = median(times[name])
        same = teams == programs[PLAIN][2]
        differs = apart(program(*arguments), right) if same else None
        per_sample = 1e9 * seconds / teams
        found = {"ms": 1e3 * seconds, "ns_a_sample": per_sample, "apart_from_plain": differs}
        lines.say("minibatch", variant=name, teams=teams, **setting, **found)


def counted(lines: Lines, teams: int, width: int, precision: str, only: list[str]) -> None:
    """What each variant would start and move on an H200."""
    from gpu_program import BANDWIDTH, computations, h200, loop_of

    place = h200()
    for name, how in VARIANTS.items():
        if only and name not in only:
            continue
        gradient, make = question(teams, width, precision)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), jax.eval_shape(make))
        with how():
            program = jax.jit(gradient).lower(*shapes).compile()
        found = loop_of("a minibatch", computations(program.as_text())["ENTRY"])
        kinds = dict(found.kinds.most_common(6))
        at_least = 1e3 * found.moved / BANDWIDTH
        numbers = {
            "kernels": found.kinds.total(),
            "kinds": kinds,
            "MB": round(found.moved / 1e6),
            "ms_at_least": at_least,
        }
        memory = program.memory_analysis().temp_size_in_bytes
        lines.say(
            "counted", variant=name, teams=teams, width=width, precision=precision, **numbers, temp_bytes=memory
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", help="a file that rows are appended to")
    parser.add_argument("--teams", type=int, default=PRESETS["spread-gpu"][1].ppo.batch, help="in a minibatch")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--only", nargs="+", default=[], help="variants, beside the plain one")
    parser.add_argument("--count", action="store_true")
    asked = parser.parse_args()
    lines = Lines(asked.to)
    if asked.count:
        counted(lines, asked.teams, asked.width, asked.precision, asked.only)
        return
    lines.environment()
    programs = compiled_variants(asked.teams, asked.width, asked.precision, asked.only, lines)
    timed(lines, programs, width=asked.width, precision=asked.precision)


if __name__ == "__main__":
    main()
