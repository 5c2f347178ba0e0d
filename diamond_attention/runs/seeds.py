"""Seeds as people write them, and which numbers can be one."""

from collections.abc import Sequence

from diamond_attention.errors import UserError, shown
from diamond_attention.ranges import Between, check_number

MOST_SEEDS = 1000
"""Trained together; more than any device holds, and a slip of the finger should not allocate a billion."""

SEED = Between(0, 2**32 - 1)


def is_seed(number: int) -> bool:
    return SEED.holds(number)


def check_seed(seed: int) -> None:
    """Raises UserError unless it can be the seed of an evaluation or of a picture."""
    check_number("--seed", seed, SEED)


def check_seeds(seeds: Sequence[int], written: str) -> None:
    """Raises UserError unless these can train together; `written` is the setting as it was written."""
    if not 0 < len(seeds) <= MOST_SEEDS or len(set(seeds)) != len(seeds) or not all(map(is_seed, seeds)):
        raise UserError(f"{written}; give 1 to {MOST_SEEDS} seeds, each once, from {SEED.low} to {SEED.high}.")


def parse_seeds(text: str) -> list[int]:
    """3 -> [3]; 0:10 -> ten seeds, 0 to 9; 0,5,7 -> those three.

    >>> parse_seeds("0:3")
    [0, 1, 2]
    """
    seeds: list[int] = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        try:
            first, last = int(low), int(high) if colon else int(low) + 1
            seeds.extend(range(first, min(last, first + MOST_SEEDS + 1)))
        except ValueError:
            raise UserError(
                f"--seeds is {shown(text)}; write a seed, a range such as 0:10, or a list such as 0,5,7."
            ) from None
    check_seeds(seeds, f"--seeds is {shown(text)}")
    return seeds
