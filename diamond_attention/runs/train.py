"""Training: several seeds in one program, each with a folder of its own.

    update                               on the device: `method.update`, see learning/
    → rows → checkpoint                  here

There are no callbacks and no base class; the loop is `_training_loop`. It knows a method only by its contract.
Of several processes the first runs that loop, and the others `_follow` it.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from diamond_attention.errors import UserError, shown
from diamond_attention.learning.contract import LearnerState
from diamond_attention.learning.devices import parts_of
from diamond_attention.learning.seeds import MOST_UPDATES_PER_CALL, name_of_failure
from diamond_attention.runs.arrays import named_arrays
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of, saved_part, shape_of_learner
from diamond_attention.runs.bundle import PolicyAt, bundle_files
from diamond_attention.runs.checkpoint import (
    checkpoint_files,
    list_checkpoints,
    prune_checkpoints,
    save_checkpoint,
    with_zeros,
)
from diamond_attention.runs.files import DiskError, write_json
from diamond_attention.runs.folder import Run, group_folder, open_group
from diamond_attention.runs.group import check_free, create_group, exclusive, settle, was_begun
from diamond_attention.runs.learners import Learners, Log
from diamond_attention.runs.memory import check_training_fits, large_settings
from diamond_attention.runs.metrics import Metrics
from diamond_attention.runs.processes import (
    FAILED,
    Order,
    check_agreement,
    choose_devices,
    hear,
    is_full,
    leading,
    leads,
    sent,
    sent_text,
    tell,
)
from diamond_attention.runs.progress import Progress, Quiet
from diamond_attention.runs.restore import newest_common_states, sources_of, with_weights_of
from diamond_attention.runs.seeds import check_seeds
from diamond_attention.runs.settings import Settings, flat, from_json, to_json
from diamond_attention.runs.signals import Interrupted, signals_noted
from diamond_attention.runs.trackers.registry import check_trackers
from diamond_attention.worlds.contract import World
from diamond_attention.worlds.registry import WORLDS

SECONDS_PER_CALL = 0.5
"""How long the device works before the loop looks up: long enough to cost nothing, short enough for Ctrl-C."""


def train(
    settings: Settings,
    seeds: Sequence[int],
    out: Path | str,
    *,
    preset: str = "",
    from_run: Path | str | None = None,
    overwrite: bool = False,
    devices: int | str | None = None,
    go_on: bool = False,
    track: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Run]:
    """Trains every seed at once and returns their runs. `settings.world` may be a world of your own.

    `devices`: so many of this machine's, or "all". Where `jax.distributed` was begun, of every process's; only the
    first process reads, writes and returns runs. With `go_on`, what was begun in that folder is resumed instead, and
    what is finished there is left as it is. `track` names what follows them besides TensorBoard: `TRACKERS` of
    runs/trackers/registry.py.
    """
    if go_on and overwrite:
        raise UserError("--resume and --overwrite contradict each other; leave one of them out.")
    check_seeds(seeds, f"seeds is {shown(seeds)}")
    check_agreement({**dict(flat(to_json(settings))), "--seeds": list(seeds), "--devices": devices})
    used = choose_devices(devices)
    if not leads():
        _follow(used, settings)
        return []
    with leading():
        check_trackers(track)
        check_training_fits(settings, seeds[: parts_of(len(seeds), used)[0].seeds] if used else seeds)
        folder, started_from = Path(out), None if from_run is None else str(from_run)
        how = _How(used, track, progress or Quiet())
        if go_on and was_begun(folder, settings, seeds, started_from):
            return _resume(folder, settings.world if settings.world.name not in WORLDS else None, how)
        return _train(settings, seeds, folder, preset, started_from, overwrite, how)


class _How(NamedTuple):
    """What has no part in what is learned."""

    used: Sequence[jax.Device]
    track: Sequence[str]
    progress: Progress


def _train(
    settings: Settings,
    seeds: Sequence[int],
    folder: Path,
    preset: str,
    started_from: str | None,
    overwrite: bool,
    how: _How,
) -> list[Run]:
    check_free(folder, overwrite)  # before a minute of compiling
    sources = None if started_from is None else sources_of(Path(started_from), settings, seeds)
    states = [begin_learning(settings, seed) for seed in seeds]
    if sources is not None:
        states = with_weights_of(sources, states, settings)

    def first_checkpoint(run: Run, environment: dict[str, Any]) -> dict[str, bytes]:
        state = jax.device_get(states[seeds.index(run.seed)])
        saved = saved_part(settings, state)
        return checkpoint_files(saved, step=0, score=None, beside=_bundle(run, state, 0, environment))

    with exclusive(folder):
        # A run that begins with another's weights has them from the start: resume never falls back to fresh ones.
        first = {} if sources is None else {"first_checkpoint": first_checkpoint}
        runs = create_group(folder, preset, settings, seeds, overwrite, started_from, **first)
        return _train_while_there_is_room(runs, states, done=0, how=how)


def resume(
    path: Path | str,
    *,
    world: World | None = None,
    devices: int | str | None = None,
    track: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Run]:
    """Continues a group from the newest checkpoint that all of its seeds have; on any number of devices."""
    check_agreement({"--devices": devices})
    used = choose_devices(devices)
    if not leads():
        _follow(used, None, world)
        return []
    with leading():
        check_trackers(track)
        return _resume(Path(path), world, _How(used, track, progress or Quiet()))


def _resume(path: Path, world: World | None, how: _How) -> list[Run]:
    folder = group_folder(path)
    with exclusive(folder):
        settle(folder)
        runs = open_group(path, world)
        if all(run.finished is not None or run.failure is not None for run in runs):
            how.progress.say(f"{folder} is already finished; there is nothing to resume.")
            return runs
        states, done = newest_common_states(runs, how.progress)
        return _train_while_there_is_room(runs, states, done=done, how=how)


def _train_while_there_is_room(runs: list[Run], states: list[LearnerState], *, done: int, how: _How) -> list[Run]:
    try:
        learners = _begin(how.used, runs[0].settings, states)
        return _training_loop(runs, states, learners, done=done, track=how.track, progress=how.progress)
    except DiskError as error:
        again = f"make room and continue with: diamond resume {runs[0].path.parent}"
        raise UserError(f"{error} What was saved before is whole; {again}") from None


def _training_loop(
    runs: list[Run],
    states: list[LearnerState],
    learners: Learners,
    *,
    done: int,
    track: Sequence[str],
    progress: Progress,
) -> list[Run]:
    """`done` updates are behind it; a seed whose state carries a failure is frozen."""
    settings = runs[0].settings
    total = settings.total_updates
    steps_per_update = settings.method.steps_per_update
    method = method_of(settings)
    # A failed seed makes no new rows, so it keeps all it has.
    metrics = [Metrics(run, learners.columns, done if run.failure is None else total, track) for run in runs]
    failed = {i for i, state in enumerate(states) if int(state.failure) != 0}
    # A checkpoint's score is of all updates since the one that was due before, wherever the run was stopped.
    since = done - done % settings.checkpoint_every
    scores = [each.returns_after(since) for each in metrics]
    environments = [run.environment for run in runs]
    updates_per_call = 1

    def save() -> None:
        """A checkpoint of every seed still training. Only when all have their new one are old ones removed."""
        going = [i for i in range(len(runs)) if i not in failed]
        every_state = learners.states()
        for i in going:
            metrics[i].sync()
            step, state = done * steps_per_update, every_state[i]
            score = float(np.mean(scores[i])) if scores[i] else None
            beside = _bundle(runs[i], state, step, environments[i])
            save_checkpoint(runs[i].checkpoints, state, step=step, score=score, beside=beside)
            if done % settings.checkpoint_every == 0:
                scores[i].clear()
        for i in going:
            prune_checkpoints(runs[i].checkpoints, settings.checkpoint_every)

    progress.begin(f"training {_names(runs)}", total * steps_per_update, done * steps_per_update)

    # What other processes noted is kept apart: a first signal to this one must not count as its second.
    with signals_noted() as noted:
        while done < total and len(failed) < len(runs) and not (noted or learners.noted):
            # Update on the device, stopping where a checkpoint is due.
            until_checkpoint = settings.checkpoint_every - done % settings.checkpoint_every
            count = min(updates_per_call, until_checkpoint, total - done)
            started = time.perf_counter()
            log = _on_device(lambda: learners.advance(count), settings)  # noqa: B023 - called at once
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
                        tensor = name_of_failure(method, states[i], int(row["failure"][i]))
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
            for writer in metrics:
                writer.flush()
            done += count
            updates_per_call = _next_count(count, elapsed)

            if done % settings.checkpoint_every == 0 or done == total:
                save()
            progress.advance(done * steps_per_update, _shown(settings.world, log, count, failed))

        signal_number = noted[0] if noted else learners.noted
        interrupted = bool(signal_number) and done < total and len(failed) < len(runs)
        if interrupted and done % settings.checkpoint_every:
            save()

    for writer in metrics:
        writer.close()
    if interrupted:
        progress.end(
            f"stopped and saved at update {done} of {total}; continue with: diamond resume {runs[0].path.parent}"
        )
        raise Interrupted(signal_number)
    for i, run in enumerate(runs):
        if i not in failed:
            write_json(run.path / "finished.json", {"update": done, "step": done * steps_per_update})
    good = len(runs) - len(failed)
    progress.end(f"finished {good} of {len(runs)} seed(s) in {runs[0].path.parent}")
    return runs


def _bundle(run: Run, state: LearnerState, step: int, environment: dict[str, Any]) -> dict[str, bytes]:
    """The policy that plays, to stand beside the training state."""
    return bundle_files(run, PolicyAt(method_of(run.settings).policy_of(state), step, int(state.update)), environment)


def _on_device(work: Callable[[], Log], settings: Settings) -> Log:
    try:
        return work()
    except jax.errors.JaxRuntimeError as error:
        if not is_full(str(error)):
            raise
        lower = f"lower {large_settings(settings)} or the number of seeds"
        raise UserError(f"the device ran out of memory; {lower}.") from None


def _next_count(count: int, elapsed: float) -> int:
    """As many updates as fit the time a call should take, but at most twice as many as just now."""
    fitting = SECONDS_PER_CALL / max(elapsed / count, 1e-9)
    return int(min(MOST_UPDATES_PER_CALL, max(1, fitting), 2 * count))


def _cell(value: np.generic) -> float | int:
    """A number as metrics.csv shows it: the shortest text that reads back as the same float32."""
    return int(value) if np.issubdtype(value.dtype, np.integer) else float(str(np.float32(value)))


def _shown(world: World, log: dict[str, np.ndarray], count: int, failed: set[int]) -> dict[str, float]:
    """What the progress line shows: the latest means over the seeds that still train."""
    shown: dict[str, float] = {}
    for name in dict.fromkeys((world.scoring.score, "return")):
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


# --- Several processes ----------------------------------------------------------------------------


def _begin(used: Sequence[jax.Device], settings: Settings, states: list[LearnerState]) -> Learners:
    """All seeds on their devices, and in all processes what they begin with."""
    tell(Order.BEGIN, len(states))
    if jax.process_count() > 1:
        sent_text(json.dumps(to_json(settings)))
        states = [_sent_by_the_first(settings, jax.device_get(state)) for state in states]
    return Learners(method_of(settings), build_learner(settings), states, used)


def _sent_by_the_first(settings: Settings, state: LearnerState) -> LearnerState:
    """A state to begin with, not made anew: devices that share a seed must begin with the same bits.

    Only what a checkpoint keeps of it, since the rest is zero, and may be gigabytes.
    """
    part = sent(saved_part(settings, state), source=0)
    return with_zeros(named_arrays(part), shape_of_learner(settings))


def _follow(used: Sequence[jax.Device], settings: Settings | None, world: World | None = None) -> None:
    """What every process but the first does: what that one asks for, until it says that it is done."""
    learners: Learners | None = None
    with signals_noted() as noted:
        while True:
            order, number = hear(noted[0] if noted else 0)
            if order is Order.BEGIN:
                described = sent_text("")
                settings = settings or from_json(json.loads(described), world)
                shapes = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape_of_learner(settings))
                states = [_sent_by_the_first(settings, shapes) for _ in range(number)]
                learners = Learners(method_of(settings), build_learner(settings), states, used)
            elif order is Order.END or learners is None:
                break
            elif order is Order.ADVANCE:
                learners.advance_here(number)
            else:
                learners.fetch_here()
    if learners is not None and learners.failure is not None:
        raise learners.failure
    if number == FAILED:
        raise UserError("the first process of this run could not go on; it says why.")
    if number:
        raise Interrupted(number)


def _names(runs: list[Run]) -> str:
    seeds = [run.seed for run in runs]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"{runs[0].preset or runs[0].settings.world.name} ({which})"
