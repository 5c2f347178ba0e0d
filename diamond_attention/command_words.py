"""From the words somebody typed to a command's options."""

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diamond_attention.command_options import TrainOptions
from diamond_attention.errors import UserError, shown
from diamond_attention.extensions import load_extension
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.registry import POLICIES
from diamond_attention.ranges import OPTION, check_ranges
from diamond_attention.refusals import check_words, read_options
from diamond_attention.runs.presets import PRESETS, with_method
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.registry import WORLDS


def without_extensions(arguments: Sequence[str]) -> list[str]:
    """Loads every `--with FILE.py` and gives back the other words. A word nobody can have meant is refused first."""
    check_words(arguments)
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--with":
            rest.append(word)
            continue
        file = value if equals else next(words, None)
        if not file:
            raise UserError("--with needs a Python file that registers something, such as a world.")
        load_extension(Path(file))
    return rest


def parse_options(kind: type, arguments: Sequence[str], command: str) -> Any:
    """A command's options, its numbers in their ranges."""
    options = read_options(kind, arguments, f"diamond {command}")
    check_ranges(options, OPTION)
    return options


def parse_with_variations(kind: type, arguments: Sequence[str], command: str) -> tuple[Any, dict[str, Any]]:
    """The options of a command, and what it is asked to vary of a world: what worlds declare in `varies`."""
    varied: dict[str, Any] = {}
    for world in WORLDS.values():
        hints = typing.get_type_hints(world, include_extras=False)
        for name, sentence in world.varies.items():
            option: Any = Annotated[hints[name] | None, tyro.conf.arg(help=f"{world.name}: {sentence}")]
            varied.setdefault(name, (name, option, dataclasses.field(default=None)))
    with_them = dataclasses.make_dataclass(
        kind.__name__, varied.values(), bases=(kind,), frozen=True, namespace={"__doc__": kind.__doc__}
    )
    parsed = parse_options(with_them, arguments, command)
    return parsed, {name: getattr(parsed, name) for name in varied}


def parse_train(preset: str, arguments: Sequence[str], command: str = "train") -> TrainOptions:
    """TrainOptions for a preset. The world, the policy and the method have options of their own, known only here."""
    settings = PRESETS[preset][1]
    chosen = _word_after("--method", arguments)
    if chosen is not None:
        name = known(f"--method is {shown(chosen)}, which does not exist", chosen, METHODS)
        settings = settings if name == settings.method.name else with_method(settings, name)
    kind = _word_after("--policy.kind", arguments)
    if kind is not None and kind != settings.policy.kind:
        known(f"--policy.kind is {shown(kind)}, which does not exist", kind, POLICIES)
        settings = dataclasses.replace(settings, policy=POLICIES[kind].settings())
    own = settings.method.name.replace("-", "_")  # tyro writes it with - again
    classes: list[Any] = [type(part) for part in (settings.world, settings.policy, settings.method)]
    typed, options = _typed(own, tuple(METHODS), *classes)
    default = typed(**{**_fields(settings), "method": settings.method.name, own: settings.method})
    parsed = read_options(options, arguments, f"diamond {command} {preset}", options(settings=default))
    values = _fields(parsed.settings)
    values["method"] = values.pop(own)
    return TrainOptions(**{**_fields(parsed), "settings": Settings(**values)})


@cache
def _typed(own: str, methods: tuple[str, ...], world: type, policy: type, method: type) -> tuple[type, type]:
    """Settings and TrainOptions of a world, a policy and a method; the same ones each time, for tyro to read once."""
    method_names = Literal[methods]  # type: ignore[valid-type]
    typed = dataclasses.make_dataclass(
        "Settings",
        [
            ("world", world),
            ("policy", policy),
            (
                "method",
                Annotated[method_names, tyro.conf.arg(help="How to learn; each has its own settings.")],
            ),
            # Given every time; without a default here, `ppo` of Settings would be taken for one.
            (own, method, dataclasses.field(default=None)),
        ],
        bases=(Settings,),
        frozen=True,
        kw_only=True,
    )
    options = dataclasses.make_dataclass(
        "TrainOptions",
        [("settings", Annotated[typed, tyro.conf.arg(name="")])],
        bases=(TrainOptions,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": TrainOptions.__doc__},
    )
    return typed, options


def _word_after(option: str, arguments: Sequence[str]) -> str | None:
    """What was typed for an option that decides which other options there are."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == option:
            if not following:
                raise UserError(f"{option} needs a value after it.")
            return following
        if word.startswith(option + "="):
            return word.removeprefix(option + "=")
    return None


def _fields(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def preset_name(command: str, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: diamond {command} PRESET [OPTIONS]; a preset first, then its options (--help lists them):\n")
        for name, (description, _) in PRESETS.items():
            print(f"  {name:20s} {description}")
        raise SystemExit(0)
    if not arguments or arguments[0].startswith("-"):
        raise UserError(f"`diamond {command}` needs a preset first: {', '.join(PRESETS)}.")
    return known_preset(command, arguments[0]), arguments[1:]


def known_preset(command: str, name: str) -> str:
    return known(f"`diamond {command}`: there is no preset {shown(name)}", name, PRESETS)


def known(sentence: str, name: str, names: Any) -> str:
    if name not in names:
        raise UserError(sentence + suggestion(name, names))
    return name


def suggestion(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}."
