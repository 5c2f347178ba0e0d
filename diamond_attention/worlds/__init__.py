"""The worlds in the package, by name."""

from diamond_attention.worlds.xor import Xor

WORLDS: dict[str, type] = {"xor": Xor}
