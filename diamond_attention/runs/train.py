"""Training: several seeds in one program, each with a folder of its own.

    collect → advantages → update        on the device, `learning.ppo.update`
    → rows → checkpoint                  here

There are no callbacks and no base class; the loop is `_train`.
"""

import dataclasses
import math
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.learning.ppo import Learner, LearnerState, Weights, failed_tensor, update
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.runs.assemble import begin_learning, build_learner, shape_of_learner
from diamond_attention.runs.checkpoint import (
    CheckpointError,
    CheckpointInfo,
    PolicyAlone,
    Saved,
    best_of,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    write_json,
)
from diamond_attention.runs.progress import Progress, Quiet
from diamond_attention.runs.record import Metrics, Run, create_group, exclusive, find_runs, open_group, write_settings
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds import WORLDS
from diamond_attention.worlds.contract import World

MOST_UPDATES_PER_CALL = 100
SECONDS_PER_CALL = 0.5
"""How long the device works before the loop looks up: long enough to cost nothing, short enough for Ctrl-C."""


class Interrupted(Exception):  # noqa: N818 - it is not an error
    """SIGINT or SIGTERM arrived; the run is saved and can be resumed."""

    def __init__(self, signal_number: int):
        self.signal_number = signal_number


def train(
    settings: Settings,
    seeds: Sequence[int],
    out: Path | str,
    *,
    preset: str = "",
    from_run: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Run]:
    """Trains every seed at once and returns their runs. `settings.world` may be a world of your own."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise UserError(f"seeds is {list(seeds)}; give at least one, each once, from 0 to 4294967295.")
    folder = Path(out)
    sources = None if from_run is None else _sources(Path(from_run), settings, seeds)
    states = [begin_learning(settings, seed) for seed in seeds]
    if sources is not None:
        states = _with_weights_of(sources, states)
    with exclusive(folder):
        started_from = None if from_run is None else str(from_run)
        runs = create_group(folder, preset, settings, seeds, overwrite, started_from)
        if from_run is not None:
            for run, state in zip(runs, states, strict=True):  # so that resume never falls back to fresh weights
                save_checkpoint(run.checkpoints, jax.device_get(state), step=0, score=None)
        return _train(runs, states, done=0, progress=progress or Quiet())


def resume(path: Path | str, *, world: World | None = None, progress: Progress | None = None) -> list[Run]:
    """Continues a group from the newest checkpoint that all of its seeds have."""
    progress = progress or Quiet()
    runs = open_group(Path(path), world)
    if all(run.finished is not None or run.failure is not None for run in runs):
        progress.say(f"{runs[0].path.parent} is already finished; there is nothing to resume.")
        return runs
    with exclusive(runs[0].path.parent):
        states, done = _newest_common_states(runs, progress)
        return _train(runs, states, done=done, progress=progress)


def _train(runs: list[Run], states: list[LearnerState], *, done: int, progress: Progress) -> list[Run]:
    """The loop. `done` updates are behind it; a seed whose state carries a failure is frozen."""
    settings = runs[0].settings
    total = settings.total_updates
    steps_per_update = settings.ppo.steps_per_update
    stacked = stack_seeds(states)
    advance = _advance_seeds_once(build_learner(settings))
    columns = [name for name in jax.eval_shape(advance, stacked, 1)[1] if name != "failure"]
    # A failed seed makes no new rows, so it keeps all it has.
    metrics = [Metrics(run, columns, done if run.failure is None else total) for run in runs]
    failed = {i for i, state in enumerate(states) if int(state.failure) > 0}
    scores: list[list[float]] = [[] for _ in runs]
    updates_per_call = 1

    def save() -> None:
        """A checkpoint of every seed still training. Only when all have their new one are old ones removed."""
        going = [i for i in range(len(runs)) if i not in failed]
        every_state = split_seeds(stacked)
        for i in going:
            metrics[i].sync()
            score = float(np.mean(scores[i])) if scores[i] else None
            save_checkpoint(runs[i].checkpoints, every_state[i], step=done * steps_per_update, score=score)
            scores[i].clear()
        for i in going:
            prune_checkpoints(runs[i].checkpoints)

    progress.begin(f"training {_names(runs)}", total * steps_per_update, done * steps_per_update)

    with _signals_noted() as noted:
        while done < total and len(failed) < len(runs) and not noted:
            # Update on the device, stopping where a checkpoint is due.
            until_checkpoint = settings.checkpoint_every - done % settings.checkpoint_every
            count = min(updates_per_call, until_checkpoint, total - done)
            started = time.perf_counter()
            stacked, log = _on_device(advance, stacked, count, settings)
            elapsed = time.perf_counter() - started

            # One row an update and seed.
            for row_number in range(count):
                row = {name: values[row_number] for name, values in log.items()}
                step = (done + row_number + 1) * steps_per_update
                for i, run in enumerate(runs):
                    if i in failed:
                        continue
                    if row["failure"][i]:
                        failed.add(i)
                        tensor = failed_tensor(int(row["failure"][i]), states[i].weights)
                        _mark_failed(run, done + row_number + 1, tensor, progress)
                        continue
                    cells = {name: _cell(values[i]) for name, values in row.items() if name != "failure"}
                    metrics[i].append(
                        {
                            "update": done + row_number + 1,
                            "step": step,
                            **cells,
                            "seconds": round(elapsed / count, 6),
                            "steps_per_second": round(steps_per_update * count / elapsed),
                        }
                    )
                    if math.isfinite(cells["return"]):
                        scores[i].append(cells["return"])
            done += count
            updates_per_call = _next_count(count, elapsed)

            if done % settings.checkpoint_every == 0 or done == total:
                save()
            progress.advance(done * steps_per_update, _shown(log, count, failed))

        interrupted = bool(noted) and done < total and len(failed) < len(runs)
        if interrupted and done % settings.checkpoint_every:
            save()

    for writer in metrics:
        writer.close()
    if interrupted:
        progress.end(
            f"stopped and saved at update {done} of {total}; continue with: diamond resume {runs[0].path.parent}"
        )
        raise Interrupted(noted[0])
    for i, run in enumerate(runs):
        if i not in failed:
            write_json(run.path / "finished.json", {"update": done, "step": done * steps_per_update})
    good = len(runs) - len(failed)
    progress.end(f"finished {good} of {len(runs)} seed(s) in {runs[0].path.parent}")
    return runs


def stack_seeds(states: Sequence[LearnerState]) -> LearnerState:
    """One learner with a leading seed axis. Through NumPy: slicing on the device would compile for every shape."""
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(list(states))))


def split_seeds(stacked: LearnerState) -> list[LearnerState]:
    """The learners of `stack_seeds`, as NumPy arrays."""
    arrays = jax.device_get(stacked)
    return [jax.tree.map(lambda x: x[i], arrays) for i in range(len(arrays.update))]  # noqa: B023 - used at once


Advance = Callable[[LearnerState, Any], tuple[LearnerState, dict[str, jax.Array]]]


def advance_seeds(learner: Learner) -> Advance:
    """`advance(states, count)`: `count` updates of all stacked seeds, and their metrics [update, seed].

    The count is a value, not a shape, so every split of a run into calls runs the same program and gives
    the same bits. That is what makes a resumed run equal to one that was never stopped.
    """

    def update_all(states: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        def one(state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
            state, metrics = update(learner, state)
            return state, {**metrics, "failure": state.failure}

        return jax.vmap(one)(states)

    @partial(jax.jit, donate_argnums=0)
    def advance(states: LearnerState, count: Any) -> tuple[LearnerState, dict[str, jax.Array]]:
        shapes = jax.eval_shape(update_all, states)[1]
        log = jax.tree.map(lambda x: jnp.zeros((MOST_UPDATES_PER_CALL, *x.shape), x.dtype), shapes)

        def one_update(i: Any, carry: Any) -> Any:
            states, log = carry
            states, metrics = update_all(states)
            return states, jax.tree.map(lambda rows, row: rows.at[i].set(row), log, metrics)

        return jax.lax.fori_loop(0, count, one_update, (states, log))

    return advance


# A run that is resumed where it was trained, or trained again, need not be traced again, which takes seconds.
_advance_seeds_once = lru_cache(maxsize=4)(advance_seeds)


def _on_device(
    advance: Advance, states: LearnerState, count: int, settings: Settings
) -> tuple[LearnerState, dict[str, np.ndarray]]:
    try:
        states, log = advance(states, count)
        return states, {name: np.asarray(values[:count]) for name, values in log.items()}
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "Out of memory" not in str(error):
            raise
        raise UserError(
            f"the device ran out of memory; lower ppo.envs ({settings.ppo.envs}), ppo.batch ({settings.ppo.batch}), "
            f"policy.width ({settings.policy.width}) or the number of seeds."
        ) from None


def _next_count(count: int, elapsed: float) -> int:
    """As many updates as fit the time a call should take, but at most twice as many as just now."""
    fitting = SECONDS_PER_CALL / max(elapsed / count, 1e-9)
    return int(min(MOST_UPDATES_PER_CALL, max(1, fitting), 2 * count))


def _cell(value: np.generic) -> float | int:
    """A number as metrics.csv shows it: the shortest text that reads back as the same float32."""
    return int(value) if np.issubdtype(value.dtype, np.integer) else float(str(np.float32(value)))


def _shown(log: dict[str, np.ndarray], count: int, failed: set[int]) -> dict[str, float]:
    """What the progress line shows: the latest means over the seeds that still train."""
    shown: dict[str, float] = {}
    for name in ("success", "battle_won", "return"):
        if name in log:
            values = np.delete(log[name][:count], list(failed), axis=1)
            values = values[np.isfinite(values)]
            if values.size:
                shown[name] = float(np.mean(values))
    return shown


def _mark_failed(run: Run, update: int, tensor: str, progress: Progress) -> None:
    kept = "its last good checkpoint is kept" if list_checkpoints(run.checkpoints) else "it has no checkpoint yet"
    sentence = f"seed {run.seed} failed at update {update}: {tensor} is not finite; {kept}."
    write_json(run.path / "failed.json", {"update": update, "tensor": tensor, "sentence": sentence})
    progress.say(sentence)


# --- Where to start from --------------------------------------------------------------------------


def _newest_common_states(runs: list[Run], progress: Progress) -> tuple[list[LearnerState], int]:
    """The states of the newest update that every seed still training has a good checkpoint of.

    A crash between two seeds' checkpoints leaves some of them one ahead; those step back.
    """
    settings = runs[0].settings
    shapes = shape_of_learner(settings)
    good: list[dict[int, CheckpointInfo]] = []
    for run in runs:
        usable = {}
        for unfinished in run.checkpoints.glob("*.partial"):
            progress.say(f"skipped {unfinished}, which was never finished.")
            shutil.rmtree(unfinished, ignore_errors=True)
        for path in sorted(run.checkpoints.glob("step_*")):
            if path.suffix == ".partial" or path.is_symlink():
                continue
            try:
                state = load_checkpoint(path, shapes)
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
        progress.say("there is no usable checkpoint yet; starting from the beginning.")
    for i in alive:
        for update_number, checkpoint in good[i].items():
            if update_number > done:  # this seed was ahead of the others; it will come by here again
                shutil.rmtree(checkpoint.path)
    states = []
    for i, run in enumerate(runs):
        at = done if run.failure is None else max(good[i], default=0)
        state = load_checkpoint(good[i][at].path, shapes) if at in good[i] else begin_learning(settings, run.seed)
        if run.failure is not None:
            state = state._replace(failure=jnp.ones((), jnp.int32))  # frozen, as when it failed
        states.append(state)
    return states, done


def load_run(run: Run, which: str = "last") -> tuple[LearnerState, int]:
    """A run's learner at a checkpoint (best, last or a step), and that checkpoint's step."""
    if run.policy_alone:
        raise UserError(f"{run.path} holds a policy alone; it can be played and started from, not trained on.")
    return _load(run, which, shape_of_learner(run.settings))


def load_policy(run: Run, which: str = "last") -> tuple[DiamondPolicy, int]:
    """A run's policy at a checkpoint, and that checkpoint's step. An exported run has nothing else."""
    if run.policy_alone:
        shapes = shape_of_learner(run.settings)
        alone, step = _load(run, which, PolicyAlone(shapes.weights.policy, shapes.update))
        return alone.policy, step
    state, step = load_run(run, which)
    return state.weights.policy, step


def export_policy(run: Run, to: Path | str, which: str = "last") -> Run:
    """A run folder with the policy alone: small, and everything that plays a policy takes it."""
    folder = Path(to)
    if folder.exists():
        raise UserError(f"--to is {folder}, which already exists; name a new folder.")
    if run.policy_alone:
        raise UserError(f"{run.path} holds a policy alone already; copy the folder.")
    if run.failure is not None:
        raise UserError(f"{run.path} failed while training, so its policy is not exported.")
    state, step = load_run(run, which)
    exported = dataclasses.replace(run, path=folder, group_seeds=(run.seed,), policy_alone=True)
    try:
        save_checkpoint(exported.checkpoints, PolicyAlone(state.weights.policy, state.update), step=step, score=None)
    except OSError as error:
        raise UserError(f"--to is {folder}, which cannot be written ({error.strerror}).") from None
    write_json(folder / "environment.json", run.environment)
    write_settings(exported)
    return exported


def _load(run: Run, which: str, shapes: Saved) -> tuple[Saved, int]:
    checkpoints = list_checkpoints(run.checkpoints)
    if which == "last":
        broken: list[str] = []
        for checkpoint in reversed(checkpoints):
            try:
                return load_checkpoint(checkpoint.path, shapes), checkpoint.step
            except CheckpointError as error:
                broken.append(str(error))
        raise UserError(broken[0] if broken else f"{run.path} has no checkpoint yet; train it first.")
    if which == "best":
        chosen = best_of(checkpoints)
        if chosen is None:
            raise UserError(f"{run.path} has no scored checkpoint; use --checkpoint last.")
    else:
        steps = {str(checkpoint.step): checkpoint for checkpoint in checkpoints}
        if which not in steps:
            have = ", ".join(steps) or "none"
            raise UserError(
                f"--checkpoint is {which!r}; write best, last or one of the steps {run.path} has: {have}."
            )
        chosen = steps[which]
    return load_checkpoint(chosen.path, shapes), chosen.step


def _sources(path: Path, settings: Settings, seeds: Sequence[int]) -> list[Run]:
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
        sources = sources * len(seeds)
    else:
        by_seed = {run.seed: run for run in sources}
        missing = [seed for seed in seeds if seed not in by_seed]
        if missing:
            raise UserError(
                f"--from is {path}, which has no seed {missing[0]}; name one of its runs, or train its seeds."
            )
        sources = [by_seed[seed] for seed in seeds]
    return sources


def _with_weights_of(sources: list[Run], states: list[LearnerState]) -> list[LearnerState]:
    """The same learners with those runs' weights."""
    started = []
    for source, state in zip(sources, states, strict=True):
        policy, critic, scale = load_policy(source)[0], state.weights.critic, state.value_scale
        if not source.policy_alone:
            theirs, _ = load_run(source)
            # A critic is worth something only with the scale its values are in; otherwise this run's begins fresh.
            if (theirs.value_scale is None) == (scale is None):
                critic, scale = theirs.weights.critic, theirs.value_scale
        weights = Weights(policy, critic)
        if _shapes(weights) != _shapes(state.weights):
            raise UserError(
                f"--from is {source.path}, whose weights have other shapes (policy.width "
                f"{source.settings.policy.width}, policy.mask {source.settings.policy.mask}) than this run's; "
                "use the same width, and a mask that learns as many numbers."
            )
        # Only the arrays are taken over: which mask the policy uses is this run's own setting.
        structure = jax.tree.structure(state.weights)
        weights = jax.tree.unflatten(structure, jax.tree.leaves(weights))
        started.append(state._replace(weights=weights, value_scale=scale))
    return started


def _shapes(weights: Weights) -> list[tuple]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(weights)]


# --- Signals --------------------------------------------------------------------------------------


class _signals_noted:  # noqa: N801 - reads as a phrase where it is used
    """SIGINT and SIGTERM are noted, so that the update under way can finish; a second one stops at once."""

    def __enter__(self) -> list[int]:
        noted: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            noted.append(number)
            for each, handler in self.before.items():
                signal.signal(each, handler)

        self.before: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread: signals are somebody else's business
            self.before = {}
        return noted

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _names(runs: list[Run]) -> str:
    seeds = [run.seed for run in runs]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"{runs[0].preset or runs[0].settings.world.name} ({which})"
