"""Settings: frozen dataclasses, one docstring a field, checked before anything runs.

The command line reads them with tyro, a run folder keeps them as settings.json, and nothing else
describes a run.
"""

import contextlib
import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from diamond_attention.errors import UserError
from diamond_attention.learning.ppo import PpoSettings
from diamond_attention.ranks import MaskKind
from diamond_attention.worlds import WORLDS
from diamond_attention.worlds.contract import TeamSize, World, sizes_of
from diamond_attention.worlds.xor import Xor

FORMAT = 1
"""Of settings.json. Raise it when a field changes meaning, and add the step from the older one to `MIGRATIONS`."""

MIGRATIONS: dict[int, typing.Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""format n -> a function that turns a file of format n into one of format n + 1."""


@dataclass(frozen=True)
class PolicySettings:
    width: int = 64
    """Features of every token. More: more capacity; time grows with its square."""
    mask: MaskKind = "rank"
    """What ranks do to attention: rank hides lower-ranked peers (the paper), none and dropout are the ablations;
    signed, floor, first and split break symmetry without blinding anybody (see ranks.py)."""
    dropout_rate: float = 0.5
    """Share of attention weights that mask=dropout hides; the paper does not state it, a half is torch's default."""
    dropout_at_execution: bool = True
    """Whether mask=dropout also hides while a trained policy is evaluated. SB3, and so the paper, says no."""

    def __post_init__(self) -> None:
        if self.width < 2:
            raise UserError(f"policy.width is {self.width}; it must be at least 2.")
        if self.mask not in typing.get_args(MaskKind):
            raise UserError(f"policy.mask is {self.mask!r}; it must be one of {_listed(typing.get_args(MaskKind))}.")
        if self.mask == "split" and self.width % 2:
            raise UserError(f"policy.width is {self.width}; policy.mask split needs an even one.")
        if not 0 <= self.dropout_rate < 1:
            raise UserError(f"policy.dropout_rate is {self.dropout_rate}; it must be at least 0 and below 1.")
        if self.mask == "dropout" and self.dropout_rate == 0:
            raise UserError(
                "policy.mask is dropout and policy.dropout_rate is 0, which hides nothing; "
                "raise the rate or use policy.mask none."
            )


@dataclass(frozen=True)
class Settings:
    world: World = field(default_factory=Xor)  # any frozen dataclass that fulfils the contract
    """What the team plays."""
    agents: Annotated[str, tyro.conf.arg(aliases=["--players"])] = "2"
    """Team sizes to train on: 4, or 2:8 (both ends), or 2,4,8. Each episode draws one. "map" where a map decides."""
    tasks: Annotated[str, tyro.conf.arg(aliases=["--actions"])] = "same"
    """Numbers of tasks to train on, likewise; "same" means as many as agents."""
    rank_hold: int | Literal["episode"] = 1
    """Steps for which a draw of ranks stays in force: 1 is the paper, "episode" draws once an episode."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    ppo: PpoSettings = field(default_factory=PpoSettings)
    total_steps: int = 50_000
    """Steps of the team to train for, all environments together; rounded up to whole updates."""
    checkpoint_every: int = 100
    """Updates between checkpoints. More: less writing, more lost to a power cut."""

    def __post_init__(self) -> None:
        for name in ("agents", "tasks"):  # agents=4 is a natural thing to write in Python
            object.__setattr__(self, name, str(getattr(self, name)))
        if self.total_steps < 1:
            raise UserError(f"total_steps is {self.total_steps}; it must be at least 1.")
        if self.checkpoint_every < 1:
            raise UserError(f"checkpoint_every is {self.checkpoint_every}; it must be at least 1.")
        if self.rank_hold != "episode" and (not isinstance(self.rank_hold, int) or self.rank_hold < 1):
            raise UserError(f'rank_hold is {self.rank_hold!r}; it must be at least 1, or "episode".')
        # Room for the largest team it trains on; nobody has to say it twice.
        object.__setattr__(self, "world", padded(self.world, self.sizes))

    @property
    def sizes(self) -> tuple[TeamSize, ...]:
        return team_sizes(self.world, self.agents, self.tasks)

    @property
    def total_updates(self) -> int:
        return -(-self.total_steps // self.ppo.steps_per_update)


SAME, MAP = "same", "map"
"""As many tasks as agents; as many agents and tasks as the world's map has."""


def parse_sizes(text: str, setting: str) -> tuple[int, ...]:
    """4 -> (4,); 2:5 -> (2, 3, 4, 5); 2,4,8 -> (2, 4, 8).

    >>> parse_sizes("2:4,8", "agents")
    (2, 3, 4, 8)
    """
    numbers: list[int] = []
    for part in str(text).split(","):
        low, colon, high = part.partition(":")
        try:
            first, last = int(low), int(high if colon else low)
        except ValueError:
            raise UserError(
                f"{setting} is {text!r}; write a number, a range such as 2:8, or a list such as 2,4,8."
            ) from None
        if first < 1 or last < first:
            raise UserError(f"{setting} is {text!r}; sizes must be at least 1 and ranges must not run backwards.")
        if last > 4096:
            raise UserError(f"{setting} is {text!r}; sizes above 4096 are not supported.")
        numbers.extend(range(first, last + 1))
    return tuple(dict.fromkeys(numbers))


def team_sizes(world: World, agents: str, tasks: str) -> tuple[TeamSize, ...]:
    """Every pair the two settings allow and the world can play; refused if they allow none.

    A single pair that the world refuses is an error, so a typo is not silently dropped; of a range, the
    pairs that cannot be played (three players, two actions) are left out. Where a map decides, both settings say so.
    """
    own_sizes = sizes_of(world)
    if own_sizes is not None:
        if agents != MAP or tasks not in (MAP, SAME):
            played = _listed(f"{size.agents}x{size.tasks}" for size in own_sizes)
            raise UserError(
                f"agents is {agents!r} and tasks is {tasks!r}, but in {world.name} the map decides (agents x tasks: "
                f"{played}); leave them out, or write {MAP}."
            )
        return own_sizes
    agent_sizes = parse_sizes(agents, "agents")
    pairs = (
        [TeamSize(n, n) for n in agent_sizes]
        if tasks == SAME
        else [TeamSize(n, k) for n in agent_sizes for k in parse_sizes(tasks, "tasks")]
    )
    playable, refusal = [], None
    for pair in pairs:
        try:
            world.check_size(pair)
            playable.append(pair)
        except UserError as error:
            refusal = error
    if not playable and refusal is not None:
        raise refusal
    return tuple(playable)


def check_seed(seed: int) -> None:
    """Raises UserError unless it can be the seed of an evaluation or of a picture."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}; it must lie between 0 and 4294967295.")


PADDING = ("max_agents", "max_tasks")
"""Fields of every world that follow from the sizes it is played at, so no file keeps them."""


def padded(world: World, sizes: typing.Sequence[TeamSize]) -> World:
    """The same world with room for the largest of these sizes."""
    room = {
        "max_agents": max(int(size.agents) for size in sizes),
        "max_tasks": max(int(size.tasks) for size in sizes),
    }
    return dataclasses.replace(world, **room)  # type: ignore[type-var]


# --- settings.json --------------------------------------------------------------------------------


def to_json(settings: Settings) -> dict[str, Any]:
    """Plain JSON values; the world's name stands beside its fields."""
    values = dataclasses.asdict(settings)
    own = {name: value for name, value in values["world"].items() if name not in PADDING}
    values["world"] = {"name": settings.world.name, **own}
    return values


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """{"ppo": {"envs": 64}} -> [("ppo.envs", 64)]."""
    lines: list[tuple[str, Any]] = []
    for name, value in values.items():
        lines += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return lines


def from_json(values: Any, world: World | None = None) -> Settings:
    """Settings read back, every name and type checked. Names in the file only ever look things up.

    A run on a world of your own needs that `world` passed in: the file alone cannot bring code with it.
    """
    if not isinstance(values, dict) or not isinstance(values.get("world"), dict):
        raise UserError("the settings hold no world; this is not a settings.json of this project.")
    described = dict(values["world"])
    name = described.pop("name", None)
    if world is None:
        if not isinstance(name, str) or name not in WORLDS:
            raise UserError(
                f"the run's world is {name!r}, which is not one of {_listed(WORLDS)}; "
                "a run on your own world is opened from Python, with world=…"
            )
        world = typing.cast(World, _dataclass_from_json(WORLDS[name], described, "world"))
    elif name != world.name:
        raise UserError(f"the run was trained on the world {name!r}, not on {world.name!r}.")
    else:  # the kind of world is given; its settings are the run's own
        world = typing.cast(World, _dataclass_from_json(type(world), described, "world"))
    rest = {key: value for key, value in values.items() if key != "world"}
    return _dataclass_from_json(Settings, rest, "", world=world)


def _dataclass_from_json(kind: type, values: Any, where: str, **known: Any) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{where or 'the settings'} must be a group of settings, not {values!r}.")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.name not in known]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean {_join(where, near[0])}?" if near else "."
            raise UserError(f"there is no setting {_join(where, str(name))}{hint}")
    converted = {name: _value_from_json(hints[name], value, _join(where, name)) for name, value in values.items()}
    return kind(**known, **converted)


def _value_from_json(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _value_from_json(arguments[0], value, where)
    if dataclasses.is_dataclass(kind):
        return _dataclass_from_json(typing.cast(type, kind), value, where)
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
    raise UserError(f"{where} is {value!r}, which is not what this setting takes ({_type_name(kind)}).")


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
