"""A policy bundle (docs/policy_format.md) as a policy that plays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.interface import Action, Deployed, Interface
from diamond_attention.deploy.kinds import KINDS
from diamond_attention.errors import UserError
from diamond_attention.runs.array_file import arrays_in, read_arrays
from diamond_attention.runs.bundle_format import BUNDLE_FORMAT, MOST, SEALED_BUNDLES, SHIPPED, shipped_policies
from diamond_attention.runs.files import read_json

ACTIONS = {"choose_task": None, "continuous": "size", "act_or_choose_task": "fixed_actions"}
"""Every kind of action, and what its number is called in a bundle."""


class Bundle(NamedTuple):
    name: str
    kind: str
    policy: Deployed
    interface: Interface
    rank_hold: int | str
    step: int
    world: Mapping[str, Any]
    """Settings of the world that it was trained in, its name among them; empty where the bundle does not say."""
    described: Mapping[str, Any]
    """policy.json"""
    arrays: Mapping[str, np.ndarray]
    """policy.safetensors"""


def read_bundle(named: Path | str) -> Bundle:
    """Of a folder or, where there is no such folder, of the policy that ships with the package under that name."""
    folder = Path(named)
    if not (folder / "policy.json").exists():
        if str(named) in shipped_policies():
            folder = SHIPPED / named
        elif (folder / "settings.json").exists() or (folder / "checkpoints").exists():
            raise UserError(
                f"{named} is a training run; `diamond export {named} --to FOLDER` makes the bundle that is read here."
            )
        else:
            raise UserError(
                f"{named} holds no policy.json, and no policy of that name ships with the package; those are "
                f"{', '.join(shipped_policies())}."
            )
    values = read_json(folder / "policy.json", sealed=SEALED_BUNDLES)
    return _bundle(values, folder / "policy.json", folder / "policy.safetensors", None)


def bundle_of(values: Mapping[str, Any], arrays: bytes, name: str) -> Bundle:
    """Of the two files' contents."""
    return _bundle(values, Path(name), Path(name), arrays)


def _bundle(values: Mapping[str, Any], file: Path, arrays_file: Path, data: bytes | None) -> Bundle:
    if type(values.get("format")) is not int:
        raise UserError(f"{file} has no format number; it is not a policy bundle.")
    if values["format"] > BUNDLE_FORMAT:
        raise UserError(
            f"{file} has format {values['format']}, and this version reads up to {BUNDLE_FORMAT}; upgrade."
        )
    kind, settings, sha256 = values.get("kind"), values.get("settings"), values.get("sha256")
    if not isinstance(kind, str) or not isinstance(settings, dict) or not isinstance(sha256, str):
        raise UserError(f"{file} does not describe a policy.")
    if kind not in KINDS:
        raise UserError(
            f"{file} holds a policy of the kind {kind!r}, which plays only where it was trained; deploy knows "
            f"{', '.join(KINDS)}."
        )
    hold, step = values.get("rank_hold", 1), values.get("step")
    if hold != "episode" and (type(hold) is not int or hold < 1):
        raise UserError(f"{file} has rank_hold {hold!r}; it must be a number of steps, or episode.")
    try:
        interface = _interface(values)
        # Built twice: once to learn which arrays it wants, so that a file is checked before it is believed.
        wanted: dict[str, np.ndarray] = {}
        KINDS[kind](settings, interface, lambda name, *shape: wanted.setdefault(name, _nothing(shape)))
    except UserError as error:
        raise UserError(f"{file} cannot be played: {error}") from None
    arrays = read_arrays(arrays_file, wanted, sha256) if data is None else arrays_in(data, file, wanted, sha256)
    policy = KINDS[kind](settings, interface, lambda name, *shape: arrays[name])
    name = file.parent.name if data is None else str(file)
    step = step if isinstance(step, int) else 0
    return Bundle(name, kind, policy, interface, hold, step, _world(values), values, arrays)


def _world(values: Any) -> Mapping[str, Any]:
    for name in ("trained", "settings", "world"):
        values = values.get(name) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _nothing(shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.float32(0), shape)  # takes no memory, whatever a damaged file asks for


def _interface(values: Mapping[str, Any]) -> Interface:
    action, team = values.get("action"), values.get("largest_team")
    if not isinstance(action, dict) or action.get("kind") not in ACTIONS:
        raise UserError("its actions are of a kind that this version does not know.")
    number_named = ACTIONS[action["kind"]]
    number = action.get(number_named) if number_named else 0
    sizes: list[Any] = [team.get("agents"), team.get("tasks")] if isinstance(team, dict) else [None, None]
    if not all(type(size) is int and 1 <= size <= MOST for size in sizes):
        raise UserError("it does not name the largest team it was trained with.")
    if type(number) is not int or not 0 <= number <= MOST or (number_named == "size" and number > 16):
        raise UserError(f"its actions have {number!r} parts.")
    return Interface(
        agent_features=_features(values.get("agent_features")),
        task_features=_features(values.get("task_features")),
        action=Action(action["kind"], number),
        agents=sizes[0],
        tasks=sizes[1],
        sees_peers=values.get("sees_peers") is not False,
        has_places=values.get("has_places") is True,
    )


def _features(listed: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(listed, list) or len(listed) > MOST or not all(isinstance(each, dict) for each in listed):
        raise UserError("it does not say what it is given.")
    return tuple(listed)
