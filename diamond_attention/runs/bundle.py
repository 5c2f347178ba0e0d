"""The policy bundle: everything that plays, and nothing that trains. docs/policy_format.md describes the files.

    policy.safetensors    the policy's arrays, by name
    policy.json           its kind and settings, what it is given and answers, what it was trained on

It stands beside every training state, and alone in an exported or shipped policy. Evaluating, watching and
exporting read only this.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import jax

from diamond_attention.actions import ActOrChooseTask, ChooseTask, Continuous
from diamond_attention.build import interface_of, plays_too
from diamond_attention.errors import UserError, notice
from diamond_attention.policies.contract import Policy
from diamond_attention.policies.kind import Frame, Interface, KindSettings
from diamond_attention.policies.registry import POLICIES
from diamond_attention.runs.array_file import CheckpointError, digest, read_arrays
from diamond_attention.runs.arrays import as_bytes, named_arrays
from diamond_attention.runs.bundle_format import BUNDLE_FORMAT, MOST, SEALED_BUNDLES
from diamond_attention.runs.checkpoint import (
    CheckpointInfo,
    best_of,
    list_checkpoints,
    read_description,
    step_folders,
)
from diamond_attention.runs.files import is_there, json_bytes, read_json, write_folder
from diamond_attention.runs.folder import Run, describe_run, open_run
from diamond_attention.runs.settings import dataclass_from_json
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.contract import Feature, TeamSize

ACTION_KINDS: dict[str, type] = {
    "choose_task": ChooseTask,
    "continuous": Continuous,
    "act_or_choose_task": ActOrChooseTask,
}


Read = TypeVar("Read")


class PolicyAt(NamedTuple):
    """A policy as it was after so many steps of training."""

    policy: Policy
    step: int
    update: int


# --- Writing --------------------------------------------------------------------------------------


def bundle_files(run: Run, at: PolicyAt, environment: dict[str, Any]) -> dict[str, bytes]:
    """The two files, to be written into a folder that nobody looks into yet."""
    arrays = as_bytes(at.policy)
    world, settings, interface = run.settings.world, run.settings, interface_of(run.settings.world)
    action = interface.action_kind
    larger = padded(world, [TeamSize(interface.max_agents + 1, interface.max_tasks + 1)])
    (action_name,) = (name for name, kind in ACTION_KINDS.items() if isinstance(action, kind))
    described = {
        "format": BUNDLE_FORMAT,
        "kind": settings.policy.kind,
        "settings": dataclasses.asdict(settings.policy),
        "any_team_size": plays_too(settings.policy, world, larger),
        "agent_features": features_of(world.agent_features, interface.agent_features),
        "task_features": features_of(world.task_features, interface.task_features),
        "action": {"kind": action_name, **dataclasses.asdict(action)},
        "largest_team": {"agents": interface.max_agents, "tasks": interface.max_tasks},
        "sees_peers": interface.sees_peers,
        "has_places": interface.has_places,
        "rank_hold": settings.rank_hold,
        "step": at.step,
        "update": at.update,
        "sha256": digest(arrays),
        "trained": {**describe_run(run), "environment": environment},
    }
    return {"policy.safetensors": arrays, "policy.json": json_bytes(described)}


def features_of(named: tuple[Feature, ...], number: int) -> list[dict[str, str]]:
    """The columns of a view in order; numbered where the world does not say what they are."""
    known = named if len(named) == number else tuple(Feature(f"feature {i}") for i in range(number))
    return [feature._asdict() for feature in known]


def export_policy(run: Run, to: Path | str, which: str = "last") -> Run:
    """A folder with the policy bundle alone: small, and everything that plays a policy takes it."""
    return export_policies({"": run}, to, which)[0]


def export_policies(runs: Mapping[str, Run], to: Path | str, which: str = "last") -> list[Run]:
    """Several of them, each in a folder of its own name in a new one, which appears when all are in it."""
    folder = Path(to)
    files: dict[str, bytes] = {}
    if is_there(folder):
        raise UserError(f"--to is {folder}, which already exists; name a new folder.")
    for name, run in runs.items():
        if run.policy_alone:
            raise UserError(f"{run.path} holds a policy alone already; copy the folder.")
        bundle = policy_files(run, which)
        files |= {f"{name}/{file}" if name else file: data for file, data in bundle.items()}
    write_folder(folder, files)
    return [open_run(folder / name, run.settings.world) for name, run in runs.items()]


def policy_files(run: Run, which: str = "last") -> dict[str, bytes]:
    """The two files of a trained run's policy by itself."""
    if run.failure is not None:
        raise UserError(f"{run.path} failed while training, so its policy is not exported.")
    alone = dataclasses.replace(run, group_seeds=(run.seed,))
    return bundle_files(alone, read_policy(run, which, as_learned=True), run.environment)


# --- Reading --------------------------------------------------------------------------------------


def load_policy(run: Run | Path | str, which: str = "last", dropout: bool | None = None) -> tuple[Policy, int]:
    """A policy at a checkpoint (best, last or a step), and that checkpoint's step.

    `run` may be a run, its folder, or the name of a shipped policy. `dropout` is for policies trained with it: on or
    off while playing, by default as their settings say.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    at = read_policy(opened, which, dropout)
    return at.policy, at.step


def read_policy(run: Run, which: str = "last", dropout: bool | None = None, as_learned: bool = False) -> PolicyAt:
    """The policy as it plays or, to be kept, as it was learned."""
    learned = run.settings.policy
    played = learned if as_learned else POLICIES[learned.kind].in_play(learned, dropout)
    if (run.path / "policy.json").exists():
        alone = _read_bundle(run.path, run, played)
        if which not in ("last", "best", str(alone.step)):
            raise UserError(f"--checkpoint is {which!r}; {run.name} holds one policy alone, of step {alone.step}.")
        return alone
    if which != "last":
        return _read_checkpoint(choose_checkpoint(run, which).path, run, played)
    return newest_good(run, lambda path: _read_checkpoint(path, run, played))


def newest_good(run: Run, read: Callable[[Path], Read]) -> Read:
    """The newest checkpoint that can be read. If a newer one is broken, that is said."""
    broken: list[str] = []
    for path in reversed(step_folders(run.checkpoints)):
        try:
            found = read(path)
        except CheckpointError as error:
            broken.append(str(error))
            continue
        if broken:
            notice(f"{path.name} of {run.path} is used, because the newest checkpoint is broken: {broken[0]}")
        return found
    raise UserError(broken[0] if broken else f"{run.path} has no checkpoint yet; train it first.")


def choose_checkpoint(run: Run, which: str) -> CheckpointInfo:
    """The best one, or the one of that step."""
    checkpoints = list_checkpoints(run.checkpoints)
    if which == "best":
        chosen = best_of(checkpoints)
        if chosen is None:
            raise UserError(f"{run.path} has no scored checkpoint; use --checkpoint last.")
        return chosen
    steps = {str(checkpoint.step): checkpoint for checkpoint in checkpoints}
    if which not in steps:
        have = ", ".join(steps) or "none"
        raise UserError(f"--checkpoint is {which!r}; write best, last or one of the steps {run.path} has: {have}.")
    return steps[which]


def _read_checkpoint(path: Path, run: Run, played: KindSettings) -> PolicyAt:
    if (path / "policy.json").exists():
        return _read_bundle(path, run, played)
    # Written before there were bundles: the policy is part of the training state, or all of what was exported.
    described = read_description(path)
    prefix = "policy." if run.policy_alone else "weights.policy."
    policy = _policy_from(
        path / "state.safetensors", described["sha256"], run, played, interface_of(run.settings.world), prefix
    )
    return PolicyAt(policy, described["step"], described["update"])


def _read_bundle(folder: Path, run: Run, played: KindSettings) -> PolicyAt:
    file = folder / "policy.json"
    try:
        values = read_json(file, sealed=SEALED_BUNDLES)
        wanted = {"format": int, "step": int, "update": int, "sha256": str, "kind": str, "action": dict}
        if any(type(values.get(name)) is not kind for name, kind in wanted.items()):
            raise CheckpointError(f"{file} does not describe a policy.")
        if values["format"] > BUNDLE_FORMAT:
            raise CheckpointError(
                f"{file} has format {values['format']}, and this version reads up to {BUNDLE_FORMAT}; upgrade."
            )
        if values["kind"] != run.settings.policy.kind:
            raise CheckpointError(f"{file} holds a policy of another kind than the run's settings.")
        interface = _interface(file, values)
        if interface[:3] != interface_of(run.settings.world)[:3]:  # team sizes aside: most policies play any
            raise CheckpointError(
                f"{file} holds a policy for other views or actions than those of {run.settings.world.name}, the "
                "world in the run's settings."
            )
        policy = _policy_from(folder / "policy.safetensors", values["sha256"], run, played, interface)
    except CheckpointError:
        raise
    except UserError as error:
        raise CheckpointError(str(error)) from None
    return PolicyAt(policy, values["step"], values["update"])


def _interface(file: Path, values: dict[str, Any]) -> Interface:
    agents, tasks, team = (values.get(name) for name in ("agent_features", "task_features", "largest_team"))
    action = dict(values["action"])
    kind = action.pop("kind", None)
    if not isinstance(agents, list) or not isinstance(tasks, list) or not isinstance(team, dict):
        raise CheckpointError(f"{file} does not say what its policy is given.")
    if kind not in ACTION_KINDS:
        raise CheckpointError(f"{file} has actions of the kind {kind!r}, which this version does not know.")
    sizes: list[Any] = [team.get("agents"), team.get("tasks")]
    if not all(isinstance(size, int) and 1 <= size <= MOST for size in [*sizes, len(agents) or 1, len(tasks) or 1]):
        raise CheckpointError(f"{file} names a team that no policy plays: {team}.")
    answers = dataclass_from_json(ACTION_KINDS[kind], action, "action")
    sees_peers, has_places = values.get("sees_peers") is not False, values.get("has_places") is True
    agent_frames, task_frames = (tuple(_frame(feature) for feature in features) for features in (agents, tasks))
    facts = (sees_peers, has_places, agent_frames, task_frames)
    return Interface(len(agents), len(tasks), answers, sizes[0], sizes[1], *facts)


def _frame(feature: Any) -> Frame:
    """What a file says of a column; nothing is known of one from before they said so."""
    told: Any = feature.get("frame") if isinstance(feature, dict) else None
    return told if isinstance(told, str) and told in get_args(Frame) else "own"  # type: ignore[return-value]


def _policy_from(
    file: Path, sha256: str, run: Run, played: KindSettings, interface: Interface, prefix: str = ""
) -> Policy:
    build = POLICIES[played.kind].build
    shapes = jax.eval_shape(lambda: build(played, interface, jax.random.key(0)))
    wanted = named_arrays(shapes, prefix)
    arrays = read_arrays(file, wanted, sha256, among_others=bool(prefix))
    return jax.tree.unflatten(jax.tree.structure(shapes), list(arrays.values()))
