"""Where a number may lie: said once beside the field, and checked before anything runs.

    @dataclass(frozen=True)
    class PpoSettings:
        envs: Annotated[int, Between(1, 2**20)] = 64

        def __post_init__(self) -> None:
            check_ranges(self, "ppo.")

The upper ends are generous. They are there for the number nobody meant: a slip of the finger must not fill a
machine's memory, and nothing that is allowed may overflow an int32 or a float32 later.
"""

import dataclasses
import types
import typing
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from diamond_attention.errors import UserError, shown

OPTION = "--"
"""The prefix of a command's option, whose name is written with hyphens."""


@dataclass(frozen=True)
class Between:
    """From `low` to `high`, both allowed unless said."""

    low: float
    high: float
    low_left_out: bool = False

    def holds(self, number: float) -> bool:
        """False for what is not a number."""
        return (self.low < number if self.low_left_out else self.low <= number) and number <= self.high

    def __str__(self) -> str:
        if self.low_left_out:
            return f"be above {self.low} and at most {self.high}"
        return f"lie between {self.low} and {self.high}"


class Ranged(NamedTuple):
    """A field with a range."""

    name: str
    kind: type
    """int or float."""
    between: Between
    besides: tuple[Any, ...]
    """What may stand there instead of a number: None, "episode"."""


def check_ranges(settings: Any, prefix: str) -> None:
    """Raises UserError unless every field with a `Between` lies in it. `prefix` goes before its name: "ppo."."""
    kind: Any = type(settings)
    for field in ranged_fields(kind):
        name = field.name.replace("_", "-") if prefix.startswith(OPTION) else field.name
        check_number(prefix + name, getattr(settings, field.name), field.between, field.kind, field.besides)


def check_number(name: str, value: Any, between: Between, kind: type = int, besides: tuple[Any, ...] = ()) -> None:
    """Raises UserError unless this is a number of that kind, and one that lies there.

    >>> check_number("policy.width", 1_000_000_000, Between(2, 4096))
    Traceback (most recent call last):
    diamond_attention.errors.UserError: policy.width is 1000000000; it must lie between 2 and 4096.
    """
    if any(value is other or (isinstance(value, str) and value == other) for other in besides):
        return
    right_kind = isinstance(value, kind if kind is int else (int, float)) and not isinstance(value, bool)
    if right_kind and between.holds(value):
        return
    number = "" if right_kind else f"be {'a whole number' if kind is int else 'a number'} and "
    # Of an option nobody writes None: it is left out.
    others = [other for other in besides if other is not None or not name.startswith(OPTION)]
    instead = "".join(f', or be "{other}"' if isinstance(other, str) else f", or be {other}" for other in others)
    raise UserError(f"{name} is {shown(value)}; it must {number}{between}{instead}.")


@lru_cache
def ranged_fields(kind: type) -> tuple[Ranged, ...]:
    """The fields of a dataclass that say where they may lie."""
    fields = dataclasses.fields(kind)
    if any(isinstance(field.type, str) for field in fields):  # `from __future__ import annotations`
        hints = typing.get_type_hints(kind, include_extras=True)
    else:
        hints = {field.name: field.type for field in fields}
    found = []
    for field in fields:
        hint = hints[field.name]
        ranges = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Between)]
        if typing.get_origin(hint) is Annotated and ranges:
            number, besides = _apart(typing.get_args(hint)[0])
            found.append(Ranged(field.name, number, ranges[-1], besides))
    return tuple(found)


def _apart(kind: Any) -> tuple[type, tuple[Any, ...]]:
    """int | None -> int and (None,)."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    numbers = [option for option in options if option in (int, float)]
    besides: list[Any] = [None] if type(None) in options else []
    for option in options:
        besides += typing.get_args(option) if typing.get_origin(option) is Literal else ()
    return numbers[0], tuple(besides)
