"""How much memory a training or a game needs at least, told from shapes alone, before anything is allocated."""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from diamond_attention.errors import UserError
from diamond_attention.policies.contract import PerAgentPolicy, Policy
from diamond_attention.policies.registry import POLICIES
from diamond_attention.runs.assemble import build_learner, method_of, shape_of_learner
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import TeamSize, World

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def check_training_fits(settings: Settings, seeds: Sequence[int]) -> None:
    """Raises UserError if so many seeds cannot fit the device: their states, a rollout each, and who plays in it."""
    world = settings.world
    check_fits(
        len(seeds) * training_bytes(settings),
        "this training",
        f"{world.max_agents} agents, {world.max_tasks} tasks, {large_settings(settings)} and {len(seeds)} seed(s)",
    )


def check_play_fits(world: World, policy: Policy, at_once: int) -> None:
    """Raises UserError if so many episodes of a padded world cannot be played side by side."""
    check_fits(
        at_once * play_bytes(world, policy),
        "this game",
        f"{world.max_agents} agents (--agents), {world.max_tasks} tasks (--tasks) and {at_once} episode(s) at once",
    )


def check_fits(needed: int, what: str, made_of: str) -> None:
    """Raises UserError unless the device has that many bytes; `made_of` names what could be lowered."""
    has = device_bytes()
    if needed > has:
        raise UserError(
            f"{what} needs at least {readable(needed)} for {made_of}, and the device has {readable(has)}; lower them."
        )


def large_settings(settings: Settings) -> str:
    """The settings that memory grows with, and their values: "ppo.envs 512, policy.width 64"."""
    method, policy = settings.method, settings.policy
    large = [(method.name, method, name) for name in method.memory_settings]
    large += [("policy", policy, name) for name in POLICIES[policy.kind].memory_settings]
    return ", ".join(f"{group}.{name} {getattr(own, name)}" for group, own, name in large)


# --- What is needed -------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # tracing takes the better part of a second
def training_bytes(settings: Settings) -> int:
    """Of one seed."""
    method, learner, state = method_of(settings), build_learner(settings), shape_of_learner(settings)
    needed = bytes_of(state) + settings.method.envs * play_bytes(settings.world, method.policy_of(state))
    if method.collect is not None:
        collect = method.collect
        needed += bytes_of(jax.eval_shape(lambda state: collect(learner, state, jax.random.key(0)), state))
    return needed


def play_bytes(world: World, policy: Policy) -> int:
    """Of one team: what every agent sees and, where a policy tells, the attention with which it answers.

    A real step takes two or three times as much: there are also the tokens between the blocks.
    """

    def one_step(policy: Policy) -> Any:
        state = world.reset(jax.random.key(0), TeamSize(world.max_agents, world.max_tasks))
        views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
        views = policy.draw(views, jax.random.key(0))
        return views, jax.vmap(policy)(views)[1] if isinstance(policy, PerAgentPolicy) else ()

    return bytes_of(jax.eval_shape(one_step, policy))


def bytes_of(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


# --- What there is --------------------------------------------------------------------------------


def device_bytes() -> int:
    """Memory of the device that JAX computes on; of a CPU, what this process may use of the machine's."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    device = chosen if isinstance(chosen, jax.Device) else jax.devices(chosen)[0]
    own = (device.memory_stats() or {}).get("bytes_limit")
    return host_bytes() if own is None else int(own)


def host_bytes(root: Path = Path("/")) -> int:
    """The smaller of the machine's memory and the limits of the control groups that this process is in."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_group_limits(root)])


def _group_limits(root: Path) -> Iterator[int]:
    """Of Linux's two versions of control groups; a limit binds everything in the groups below it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / "sys/fs/cgroup" / controllers
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            own = top / group.lstrip("/")
            for folder in (own, *own.parents):
                try:
                    limit = (folder / name).read_text().strip()
                except OSError:
                    continue  # in a container, the groups above are not shown
                if limit.isdecimal():  # else "max"
                    yield int(limit)
                if folder == top:
                    break


def readable(number: float) -> str:
    """Three figures or so of it.

    >>> readable(4_600_000_000_000), readable(512)
    ('4.6 TB', '512 bytes')
    """
    size, unit = float(number), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit else f"{number} {UNITS[0]}"
