"""Where a run starts from: the newest checkpoint that all of its seeds have, or another run's weights."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import LearnerState
from diamond_attention.policies.contract import Policy
from diamond_attention.runs.array_file import CheckpointError
from diamond_attention.runs.assemble import begin_learning, method_of, saved_part, shape_of_learner
from diamond_attention.runs.bundle import choose_checkpoint, newest_good, read_policy
from diamond_attention.runs.checkpoint import (
    CheckpointInfo,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    read_info,
    remove_leftovers,
    step_folders,
)
from diamond_attention.runs.files import remove_folder
from diamond_attention.runs.folder import Run, find_runs
from diamond_attention.runs.progress import Progress
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.registry import WORLDS


def newest_common_states(runs: list[Run], progress: Progress) -> tuple[list[LearnerState], int]:
    """The states of the newest update that every seed still training has a good checkpoint of.

    A crash between two seeds' checkpoints leaves some of them one ahead; those step back.
    """
    settings = runs[0].settings
    load = loader(settings)
    good: list[dict[int, CheckpointInfo]] = []
    for run in runs:
        usable = {}
        remove_leftovers(run.checkpoints)
        for path in step_folders(run.checkpoints):
            try:
                state = load(path)
                usable[int(state.update)] = CheckpointInfo(path, 0, int(state.update), None)
            except CheckpointError as error:
                progress.say(f"skipped a broken checkpoint: {error}")
        good.append(usable)

    alive = [i for i, run in enumerate(runs) if run.failure is None]
    common = set.intersection(*(set(good[i]) for i in alive)) if alive else set()
    done = max(common, default=0)
    if not common:
        if alive and all(len(list_checkpoints(runs[i].checkpoints)) > 1 for i in alive):
            # Several checkpoints each and none of them fits: settings.json was changed, not the disk hit.
            raise UserError(
                f"none of the checkpoints in {runs[0].path.parent} fits its settings.json; put the settings back "
                "as they were, or train anew into another folder."
            )
        if any(runs[i].started_from is not None for i in alive):
            raise UserError(
                f"{runs[0].path.parent} began with the weights of {runs[0].started_from}, and it has no usable "
                "checkpoint; train it anew with --from and --overwrite."
            )
        progress.say("there is no usable checkpoint yet; starting from the beginning.")
    for i in alive:
        for update_number, checkpoint in good[i].items():
            if update_number > done:  # this seed was ahead of the others; it will come by here again
                remove_folder(checkpoint.path)
        prune_checkpoints(runs[i].checkpoints, settings.checkpoint_every)  # in case the kill came before that
    states = []
    for i, run in enumerate(runs):
        at = done if run.failure is None else max(good[i], default=0)
        state = load(good[i][at].path) if at in good[i] else begin_learning(settings, run.seed)
        if run.failure is not None:
            state = state._replace(failure=jnp.ones((), jnp.int32))  # frozen, as when it failed
        states.append(state)
    return states, done


def loader(settings: Settings) -> Callable[[Path], LearnerState]:
    """Reads the learner of a checkpoint folder."""
    shapes = shape_of_learner(settings)
    return partial(load_checkpoint, shapes=shapes, saved=saved_part(settings, shapes))


def load_run(run: Run, which: str = "last") -> tuple[LearnerState, int]:
    """A run's learner at a checkpoint (best, last or a step), and that checkpoint's step."""
    if run.policy_alone:
        raise UserError(f"{run.path} holds a policy alone; it can be played and started from, not trained on.")
    load = loader(run.settings)
    if which != "last":
        chosen = choose_checkpoint(run, which)
        return load(chosen.path), chosen.step
    return newest_good(run, lambda path: (load(path), read_info(path).step))


# --- Another run's weights ------------------------------------------------------------------------


def sources_of(path: Path, settings: Settings, seeds: Sequence[int]) -> list[Run]:
    """The runs that `--from` means: one run for all seeds, or a group's seed for seed."""
    own_world = settings.world.name not in WORLDS
    sources = find_runs([path], settings.world if own_world else None)
    for source in sources:
        if source.settings.world.name != settings.world.name:
            raise UserError(
                f"--from is {path}, which was trained on {source.settings.world.name}, and this run is of "
                f"{settings.world.name}; name a run of the same world."
            )
    if len(sources) == 1:
        return sources * len(seeds)
    by_seed = {run.seed: run for run in sources}
    missing = [seed for seed in seeds if seed not in by_seed]
    if missing:
        raise UserError(
            f"--from is {path}, which has no seed {missing[0]}; name one of its runs, or train its seeds."
        )
    return [by_seed[seed] for seed in seeds]


def with_weights_of(sources: list[Run], states: list[LearnerState], settings: Settings) -> list[LearnerState]:
    """The same learners with those runs' weights."""
    method = method_of(settings)
    if method.start_from is None:
        raise UserError(f"--from was given, but the method {settings.method.name} cannot start from another run.")
    started = []
    for source, fresh in zip(sources, states, strict=True):
        same_method = source.settings.method.name == settings.method.name and not source.policy_alone
        policy = read_policy(source, as_learned=True).policy
        state = method.start_from(fresh, policy, load_run(source)[0] if same_method else None)
        if _shapes(state) != _shapes(fresh):
            raise UserError(
                f"--from is {source.path}, whose weights have other shapes ({_policy_settings(source.settings)}) "
                "than this run's; use the same width, and a mask that learns as many numbers."
            )
        # Only the arrays are taken over: which mask the policy uses is this run's own setting.
        started.append(jax.tree.unflatten(jax.tree.structure(fresh), jax.tree.leaves(state)))
    return started


def _policy_settings(settings: Settings) -> str:
    return ", ".join(f"policy.{name} {value}" for name, value in dataclasses.asdict(settings.policy).items())


def _shapes(state: LearnerState | Policy) -> list[tuple]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)]
