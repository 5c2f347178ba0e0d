"""The worlds in the package, by name."""

from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

WORLDS: dict[str, type] = {"xor": Xor, "spread": Spread, "food": Food, "smaclite": Smaclite}
