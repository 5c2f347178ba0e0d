"""Settings: frozen dataclasses, one docstring a field, checked before anything runs.

The command line reads them with tyro, a run folder keeps them as settings.json, and nothing else
describes a run.
"""

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from diamond_attention.errors import LONGEST_SHOWN, UserError, shown
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.kind import Described
from diamond_attention.policies.registry import POLICIES, described
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.ranks import RankHold
from diamond_attention.runs.sizes import PADDING, SAME, padded, team_sizes
from diamond_attention.worlds.contract import TeamSize, World
from diamond_attention.worlds.registry import WORLDS
from diamond_attention.worlds.xor import Xor

MOST_UPDATES = 2**31 - 1
"""A learner counts its updates in an int32."""

FORMAT = 3
"""Of settings.json; 3 is 2 with a checksum. Raise it when a field changes meaning, and add the step from the older
one to `MIGRATIONS`."""


def _with_a_kind_of_policy_and_a_method(values: dict[str, Any]) -> dict[str, Any]:
    """Format 1 knew one kind of policy and one method."""
    settings = values.get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get("policy"), dict):
        return values
    policy = {"kind": "diamond", **settings["policy"]}
    return {**values, "settings": {**settings, "policy": policy, "method": "ppo"}}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _with_a_kind_of_policy_and_a_method,
    2: dict,
}
"""format n -> a function that turns a file of format n into one of format n + 1."""


@dataclass(frozen=True)
class Settings:
    """All of a run. `Settings(ppo=PpoSettings(…))` is short for `Settings(method=PpoSettings(…))`; so is `.ppo`."""

    world: World = field(default_factory=Xor)
    """What the team plays."""
    agents: Annotated[str, tyro.conf.arg(aliases=["--players"])] = "2"
    """Team sizes to train on: 4, or 2:8 (both ends), or 2,4,8. Each episode draws one. "map" where a map decides."""
    tasks: Annotated[str, tyro.conf.arg(aliases=["--actions"])] = SAME
    """Numbers of tasks to train on, likewise; "same" means as many as agents."""
    rank_hold: Annotated[RankHold, Between(1, 1_000_000)] = 1
    """Steps for which a draw of ranks stays in force: 1 is the paper, "episode" draws once an episode."""
    policy: Any = field(default_factory=DiamondSettings)
    """The settings of one of the kinds in `POLICIES`."""
    method: Any = field(default_factory=PpoSettings)
    """The settings of one of the methods in `METHODS`."""
    total_steps: Annotated[int, Between(1, 10**13)] = 50_000
    """Steps of the team to train for, all environments together; rounded up to whole updates."""
    checkpoint_every: Annotated[int, Between(1, 10**9)] = 100
    """Updates between checkpoints. More: less writing, more lost to a power cut."""

    def __post_init__(self) -> None:
        for name in ("agents", "tasks"):  # agents=4 is a natural thing to write in Python
            object.__setattr__(self, name, str(getattr(self, name)))
        check_ranges(self, "")
        # Room for the largest team it trains on; nobody has to say it twice.
        object.__setattr__(self, "world", padded(self.world, self.sizes))
        if not POLICIES[self.policy.kind].any_size and len(self.sizes) > 1:
            raise UserError(
                f"agents is {self.agents!r} and tasks is {self.tasks!r}, but policy.kind {self.policy.kind} plays "
                "teams of one size only; choose one."
            )
        # The command line first holds the method's name here; it makes settings with the method itself after that.
        if not isinstance(self.method, str) and self.total_updates > MOST_UPDATES:
            raise UserError(
                f"total_steps is {self.total_steps}, which makes {self.total_updates} updates of "
                f"{self.method.steps_per_update} steps, and at most {MOST_UPDATES} can be counted; lower it."
            )

    @property
    def sizes(self) -> tuple[TeamSize, ...]:
        return team_sizes(self.world, self.agents, self.tasks)

    @property
    def total_updates(self) -> int:
        return -(-self.total_steps // self.method.steps_per_update)

    @property
    def ppo(self) -> PpoSettings:
        return self.method


def _also_by_the_methods_name(init: Callable[..., None]) -> Callable[..., None]:
    def with_ppo(self: Settings, *values: Any, ppo: PpoSettings | None = None, **named: Any) -> None:
        init(self, *values, **(named if ppo is None else {**named, "method": ppo}))

    return with_ppo


Settings.__init__ = _also_by_the_methods_name(Settings.__init__)  # type: ignore[method-assign]


def described_as(settings: Settings) -> Described:
    """What readers call what is learned: the method, where that has a name for its own policy, or the policy."""
    method = METHODS[settings.method.name]
    if method.described is not None and settings.policy.kind == method.policy.kind:
        return method.described(settings.policy, settings.world)
    return described(settings.policy)


def described_world(world: World) -> dict[str, Any]:
    """A world as JSON values: its name and its settings."""
    own = {k: v for k, v in dataclasses.asdict(world).items() if k not in PADDING}  # type: ignore[call-overload]
    return {"name": world.name, **own}


# --- settings.json --------------------------------------------------------------------------------


def to_json(settings: Settings) -> dict[str, Any]:
    """Plain JSON values; the world's name stands beside its fields, the method's before its own group."""
    values: dict[str, Any] = {}
    for name in (each.name for each in dataclasses.fields(Settings)):
        value = getattr(settings, name)
        if name == "world":
            values[name] = described_world(value)
        elif name == "method":
            values |= {name: value.name, value.name: dataclasses.asdict(value)}
        else:
            values[name] = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return values


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """{"ppo": {"envs": 64}} -> [("ppo.envs", 64)]."""
    lines: list[tuple[str, Any]] = []
    for name, value in values.items():
        lines += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return lines


def from_json(values: Any, world: World | None = None) -> Settings:
    """Settings read back, every name and type checked. Names in the file only ever look things up.

    What is not in the package must be registered before, or its `world` passed in: a file cannot bring code with it.
    """
    if not isinstance(values, dict) or not isinstance(values.get("world"), dict):
        raise UserError("the settings hold no world; this is not a settings.json of this project.")
    kinds = dict(WORLDS) if world is None else {world.name: type(world)}
    described = dict(values["world"])
    world_type = _looked_up(kinds, described.pop("name", None), "world")
    policy, name = values.get("policy", {}), values.get("method", "ppo")
    kind = policy.get("kind", "diamond") if isinstance(policy, dict) else "diamond"
    policy_kind = _looked_up(POLICIES, kind, "policy.kind")
    method = _looked_up(METHODS, name, "method")
    rest = {key: value for key, value in values.items() if key not in ("world", "policy", "method", name)}
    return dataclass_from_json(
        Settings,
        rest,
        "",
        world=dataclass_from_json(world_type, described, "world"),
        policy=dataclass_from_json(policy_kind.settings, policy, "policy"),
        method=dataclass_from_json(method.settings, values.get(str(name), {}), str(name)),
    )


def _looked_up(known: Mapping[str, Any], name: Any, what: str) -> Any:
    if not isinstance(name, str) or name not in known:
        raise UserError(
            f"the run's {what} is {shown(name)}, which is not one of {_listed(known)}; if it is your own, name the "
            "file that registers it: --with FILE.py."
        )
    return known[name]


def dataclass_from_json(kind: type, values: Any, where: str, **known: Any) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{where or 'the settings'} must be a group of settings, not {shown(values)}.")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.name not in known]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean {_join(where, near[0])}?" if near else "."
            raise UserError(f"there is no setting {_join(where, str(name)[:LONGEST_SHOWN])}{hint}")
    converted = {name: _value_from_json(hints[name], value, _join(where, name)) for name, value in values.items()}
    return kind(**known, **converted)


def _value_from_json(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _value_from_json(arguments[0], value, where)
    if dataclasses.is_dataclass(kind):
        return dataclass_from_json(typing.cast(type, kind), value, where)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return _value_from_json(option, value, where)
            except UserError:
                continue
    elif origin is Literal:
        if value in arguments and not isinstance(value, bool):
            return value
    elif kind is type(None):
        if value is None:
            return None
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                return float(value)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise UserError(f"{where} is {shown(value)}, which is not what this setting takes ({_type_name(kind)}).")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _listed(names: typing.Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names)


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + _listed(typing.get_args(kind))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_type_name(option) for option in typing.get_args(kind))
    return "none" if kind is type(None) else getattr(kind, "__name__", str(kind))
