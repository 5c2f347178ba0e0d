"""What every table of the paper needs: which settings, how many seeds, how they are played. The one list of it."""

from collections.abc import Iterator
from dataclasses import dataclass

# The methods of Table 1: what `diamond train` is told besides the preset.
OURS = {
    "rank": ("--policy.mask", "rank"),
    "none": ("--policy.mask", "none"),
    "dropout": ("--policy.mask", "dropout"),
}
BASELINES = {
    "mappo": (),
    "ippo": (),
    # Published for its particle worlds. With the preset's own numbers it stays at chance on some seeds.
    "mat": ("--mat.learning-rate", "7e-4", "--mat.entropy-coefficient", "0.01"),
    "qmix": (),
    "masac": (),
    "gsa": (),
    "ph-marl": (),
}
XOR_SIZES = ((2, 2), (2, 3), (3, 3))


@dataclass(frozen=True)
class Group:
    """Seeds of one setting, trained together, and how they are played."""

    name: str
    train: tuple[str, ...]
    """What `diamond train` is told: a preset, then options."""
    plays: tuple[tuple[str, ...], ...]
    """What `diamond evaluate` is told, one evaluation each; the last two words are how many episodes."""


@dataclass(frozen=True)
class Entry:
    """A table of the paper."""

    title: str
    seeds: int
    """In full; fewer than these are shown as missing."""
    groups: tuple[Group, ...]


def _table_1() -> Iterator[Group]:
    for preset in ("xor-paper", "xor"):
        for key, options in (OURS | BASELINES).items():
            method = () if key in OURS else ("--method", key)
            for n, k in XOR_SIZES:
                # Trained with two players and three actions, played with three of each: the paper's middle column.
                play = ("--players", str(k), "--episodes", "10000")
                ways = [("--dropout", way, *play) for way in ("on", "off")] if key == "dropout" else [play]
                size = ("--players", str(n), "--actions", str(k))
                yield Group(f"{preset}_{key}_{n}x{k}", (preset, *size, *method, *options), tuple(ways))


ENTRIES: dict[str, Entry] = {
    "table1": Entry("Table 1: success in the XOR game", seeds=10, groups=tuple(_table_1())),
}
