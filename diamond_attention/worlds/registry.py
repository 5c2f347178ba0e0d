"""The worlds, by name; another is one file and one line here."""

import dataclasses

from diamond_attention.errors import UserError
from diamond_attention.worlds.contract import World
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

WORLDS: dict[str, type[World]] = {
    "xor": Xor,
    "spread": Spread,
    "food": Food,
    "dispatch": Dispatch,
    "smaclite": Smaclite,
}


def register_world(world: type[World]) -> None:
    """Makes a world of your own known, under its name."""
    if not (isinstance(world, type) and World in world.__mro__ and dataclasses.is_dataclass(world)):
        raise UserError(f"{world!r} is not a world: it must be a frozen dataclass that inherits from World.")
    if WORLDS.get(world.name, world) is not world:
        raise UserError(f"there is already a world called {world.name!r}; choose another name.")
    WORLDS[world.name] = world
