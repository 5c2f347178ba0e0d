"""Under which conditions a trained team plays: which world, at which size, with which ranks, greedy or sampled."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from diamond_attention.build import plays_too
from diamond_attention.errors import UserError
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
        if not plays_too(settings.policy, settings.world, padded(world, [size])):
            trained = " ".join(f"{size.agents}x{size.tasks}" for size in settings.sizes)
            raise UserError(
                f"policy.kind {settings.policy.kind} plays only teams of the size it was trained on, {trained}, and "
                f"{size.agents}x{size.tasks} was asked for; leave it out."
            )
