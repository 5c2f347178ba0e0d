"""From the words of `diamond sweep` to the trainings that they mean.

    diamond sweep xor spread --policy.mask rank none --agents 2,4 8 --ppo.anneal yes no --sample 5

Every option of `diamond train` may have several values, with spaces between them, since a value may hold commas.
"""

import dataclasses
import hashlib
import itertools
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from diamond_attention.command_options import MOST_RUNS, SweepOptions, TrainOptions
from diamond_attention.command_words import known_preset, parse_options, parse_train
from diamond_attention.errors import UserError, shown
from diamond_attention.jobs.contract import Words
from diamond_attention.process_group import devices_asked
from diamond_attention.runs.settings import flat, to_json

PRESET = "preset"
"""The axis of the words before the first option."""
OWN = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(SweepOptions) if field.name != "presets"}
OF_PROCESSES = ("--coordinator", "--processes", "--process", "--wait")
YES_AND_NO = ("yes", "no")
MANY_RUNS = 100
"""Combinations that take more than a few seconds to check."""
SECONDS_TO_CHECK = 0.03
TRIES_TO_DRAW = 1000
"""Combinations that were drawn already, in a row, after which there are taken to be no others."""
LONGEST_NAME = 120
RANGE = re.compile(r"(?P<kind>log|uniform|whole):(?P<low>[^:]+):(?P<high>[^:]+)")


class Axis(NamedTuple):
    """An option with what it is to be."""

    option: str
    values: tuple[str, ...]

    @property
    def varies(self) -> bool:
        return len(self.values) > 1 or any(map(is_range, self.values))


class Combination(NamedTuple):
    """One training of a sweep."""

    name: str
    """Of its folder."""
    varied: dict[str, str]
    """What sets it apart from the others: options and values."""
    words: Words
    """What `diamond train` is told, without seeds and folder."""
    options: TrainOptions


# --- Words ----------------------------------------------------------------------------------------


def parse_sweep(arguments: Sequence[str]) -> tuple[SweepOptions, list[Axis]]:
    """A sweep's own options, and an axis for every other option, the presets' first."""
    presets = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    own: list[str] = []
    axes: dict[str, list[str]] = {}
    for option, values in _options_in(arguments[len(presets) :]):
        if option in OWN or option in ("-h", "--help"):
            own += [option, *values]
        elif option == "--overwrite":
            raise UserError("`diamond sweep` replaces nothing, so it has no --overwrite; name another --out.")
        elif option in OF_PROCESSES:
            raise UserError(
                f"`diamond sweep` starts each training as one process, so it has no {option}; "
                "`diamond train` takes it, and --on ray has several machines."
            )
        else:
            axes.setdefault(option, []).extend(values)
    options = parse_options(SweepOptions, [*presets, *own], "sweep")
    if not options.presets:
        raise UserError("`diamond sweep` needs a preset first, or several; `diamond list` shows them.")
    for preset in options.presets:
        known_preset("sweep", preset)
    found = [Axis(PRESET, options.presets), *(Axis(option, tuple(values)) for option, values in axes.items())]
    for axis in found:
        twice = [value for value, count in Counter(axis.values).items() if count > 1]
        if twice:
            raise UserError(f"{axis.option} is to be {shown(twice[0])} twice; name each value once.")
    return options, found


def _options_in(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each option with the words up to the next one. A number may begin with a minus."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if re.match(r"--|-[a-zA-Z]", word):
            name, equals, value = word.partition("=")
            found.append((name.replace("_", "-"), [value] if equals else []))
        elif not found:
            raise UserError(f"`diamond sweep` has no use for {shown(word)}; presets come first, then options.")
        else:
            found[-1][1].append(word)
    return found


# --- Which combinations ---------------------------------------------------------------------------


def combinations_of(options: SweepOptions, axes: Sequence[Axis]) -> list[Combination]:
    """All of them, or those that are drawn, each checked as `diamond train` would check it."""
    ranges = [(axis, value) for axis in axes for value in axis.values if is_range(value)]
    for axis, value in ranges:
        _check_range(axis.option, value)
    if ranges and options.sample is None:
        axis, value = ranges[0]
        raise UserError(f"{axis.option} is {value}, a range to draw from; add --sample N, or list its values.")
    # An option without a value is a flag, the same in all of them.
    number = math.prod(len(axis.values) or 1 for axis in axes)
    if options.sample is None and number > MOST_RUNS:
        raise UserError(
            f"that makes {number} combinations, and at most {MOST_RUNS} are run; name fewer values, or draw some of "
            "them with --sample."
        )
    chosen = grid(axes) if options.sample is None else drawn(axes, options.sample, options.sample_seed)
    if len(chosen) > MANY_RUNS:
        seconds = SECONDS_TO_CHECK * len(chosen)
        print(f"checking {len(chosen)} combinations: about {seconds:.0f} s", file=sys.stderr, flush=True)
    labels = _labels(axes)
    found = [_combination(axes, values, labels) for values in chosen]
    _check_different(found)
    return found


Values = tuple[str | None, ...]
"""One for each axis; None for a flag."""


def grid(axes: Sequence[Axis]) -> list[Values]:
    """Every combination; the last axis changes fastest.

    >>> grid([Axis("preset", ("xor",)), Axis("--agents", ("2", "3"))])
    [('xor', '2'), ('xor', '3')]
    """
    return list(itertools.product(*(axis.values or (None,) for axis in axes)))


def drawn(axes: Sequence[Axis], number: int, seed: int) -> list[Values]:
    """So many different combinations. Of a larger number the first are the same, so that a sweep can be enlarged."""
    source = random.Random(seed)
    found: dict[Values, None] = {}
    in_vain = 0
    while len(found) < number:
        values = tuple(_drawn_value(source, axis) for axis in axes)
        in_vain = in_vain + 1 if values in found else 0
        if in_vain > TRIES_TO_DRAW:
            raise UserError(
                f"--sample is {number}, and there seem to be no more than {len(found)} combinations; ask for fewer, "
                "or leave --sample out and have all of them."
            )
        found[values] = None
    return list(found)


def _drawn_value(source: random.Random, axis: Axis) -> str | None:
    if not axis.values:
        return None
    value = source.choice(axis.values)
    found = RANGE.fullmatch(value)
    if found is None:
        return value
    low, high = float(found["low"]), float(found["high"])
    if found["kind"] == "whole":
        return str(source.randint(int(low), int(high)))
    if found["kind"] == "log":
        return f"{math.exp(source.uniform(math.log(low), math.log(high))):.4g}"
    return f"{source.uniform(low, high):.4g}"


def is_range(value: str) -> bool:
    return value.startswith(("log:", "uniform:", "whole:"))


def _check_range(option: str, value: str) -> None:
    kind = value.partition(":")[0]
    above = {"log": "numbers above zero", "uniform": "numbers", "whole": "whole numbers"}[kind]
    refusal = UserError(f"{option} is {shown(value)}; write {kind}:LOW:HIGH with {above}, the lower one first.")
    found = RANGE.fullmatch(value)
    if found is None:
        raise refusal
    try:
        low, high = ((int if kind == "whole" else float)(found[end]) for end in ("low", "high"))
    except ValueError:
        raise refusal from None
    if not (-math.inf < low < high < math.inf) or (kind == "log" and low <= 0):
        raise refusal


# --- One combination ------------------------------------------------------------------------------


def _combination(axes: Sequence[Axis], values: Values, labels: Sequence[str]) -> Combination:
    preset, *rest = values
    assert preset is not None
    words: list[str] = []
    answers: list[tuple[str, str]] = []  # of flags, perhaps
    for axis, value in zip(axes[1:], rest, strict=True):
        if value in YES_AND_NO:
            answers.append((axis.option, value))
        else:
            words += [axis.option] if value is None else [axis.option, value]
    words += _flags(preset, words, answers)
    varied = {
        label: "" if value is None else value
        for axis, value, label in zip(axes, values, labels, strict=True)
        if axis.varies
    }
    name = _name(varied) or preset
    options = parse_train(preset, words, "sweep")
    devices_asked(options.devices)
    return Combination(name, varied, (preset, *words), options)


def _flags(preset: str, words: Sequence[str], answers: Sequence[tuple[str, str]]) -> list[str]:
    """`--ppo.anneal no` as `diamond train` has it: --ppo.no-anneal, or nothing where it is off anyway."""
    if not answers:
        return []
    usual = {
        name.replace("_", "-"): value for name, value in flat(to_json(parse_train(preset, words, "sweep").settings))
    }
    found = []
    for option, answer in answers:
        name = option.removeprefix("--")
        if not isinstance(usual.get(name), bool):
            found += [option, answer]  # which `diamond train` takes, or refuses
        elif usual[name] != (answer == "yes"):
            room, _, own = name.rpartition(".")
            found.append(option if answer == "yes" else f"--{room}{'.' if room else ''}no-{own}")
    return found


def _labels(axes: Sequence[Axis]) -> list[str]:
    """What a table calls an axis: the last part of its option, unless two share it."""
    last = [axis.option.rpartition(".")[2].removeprefix("--") for axis in axes]
    return [
        own if last.count(own) == 1 else axis.option.removeprefix("--") for axis, own in zip(axes, last, strict=True)
    ]


def _name(varied: dict[str, str]) -> str:
    """mask=rank_learning-rate=1e-3; what no file should be called is left out, and a number stands for it.

    >>> _name({"preset": "xor", "agents": "2,4"}), _name({"from": "a/b"})
    ('xor_agents=2,4', 'from=a-b.5552dd')
    """
    whole = "_".join(value if label == PRESET else f"{label}={value}" for label, value in varied.items())
    name = re.sub(r"[^\w.,:=+-]", "-", whole)[:LONGEST_NAME]
    return name if name == whole else f"{name}.{hashlib.sha256(whole.encode()).hexdigest()[:6]}"


def _check_different(found: Sequence[Combination]) -> None:
    """Raises UserError if two are one training in two spellings: 1e-3 and 0.001."""
    seen: dict[tuple, Combination] = {}
    for each in found:
        what = (each.words[0], each.options.settings, each.options.from_run)
        if what in seen:
            raise UserError(f"{seen[what].name} and {each.name} are the same training; name each value once.")
        seen[what] = each
