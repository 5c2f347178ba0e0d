"""Under which conditions a trained team plays: which world, at which size, with which ranks, greedy or sampled."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from diamond_attention.build import build_policy
from diamond_attention.errors import UserError
from diamond_attention.policies.registry import POLICIES
from diamond_attention.ranks import RankHold
from diamond_attention.runs.folder import Run
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.contract import TeamSize, World


class Conditions(NamedTuple):
    """What a compiled program that plays is specialised on."""

    world: World
    hold: RankHold = 1
    greedy: bool = True


def variant_to_play(run: Run, **asked: Any) -> World:
    """The run's world as it is scored, with what was asked for of the settings an evaluation may choose."""
    world = run.settings.world
    for name, value in asked.items():
        if value is not None and name not in world.varies:
            raise UserError(f"--{name} is {value}, but {run.path} was trained on {world.name}, which has none.")
    given = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(world.as_scored(), **given)  # type: ignore[type-var]


def check_sizes(settings: Settings, world: World, sizes: Sequence[TeamSize]) -> None:
    """Raises UserError with one sentence if the world or the kind of policy cannot be played at these sizes."""
    for size in sizes:
        world.check_size(size)
    for size in sizes:
        if not fits_size(settings, world, size):
            trained = " ".join(f"{size.agents}x{size.tasks}" for size in settings.sizes)
            raise UserError(
                f"policy.kind {settings.policy.kind} plays only teams of the size it was trained on, {trained}, and "
                f"{size.agents}x{size.tasks} was asked for; leave it out."
            )


def fits_size(settings: Settings, world: World, size: TeamSize) -> bool:
    """Whether a policy can play that size: it plays any, or has the same arrays for it, since views stay alike."""
    if POLICIES[settings.policy.kind].any_size or size in settings.sizes:
        return True

    def shapes(played: World) -> list[tuple[int, ...]]:
        policy = jax.eval_shape(lambda: build_policy(played, settings.policy, jax.random.key(0)))
        return [leaf.shape for leaf in jax.tree.leaves(policy)]

    return shapes(padded(world, [size])) == shapes(settings.world)
