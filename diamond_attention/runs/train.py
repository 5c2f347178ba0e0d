"""Training: several seeds in one program, each with a folder of its own.

    update                               on the device: `method.update`, see learning/
    → rows → checkpoint                  here

There are no callbacks and no base class; the loop is `_training_loop`. It knows a method only by its contract.
"""

import math
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from diamond_attention.errors import UserError, shown
from diamond_attention.learning.contract import LearnerState
from diamond_attention.learning.seeds import (
    MOST_UPDATES_PER_CALL,
    Advance,
    advance_seeds_once,
    name_of_failure,
    split_seeds,
    stack_seeds,
)
from diamond_attention.runs.assemble import begin_learning, build_learner, method_of, saved_part
from diamond_attention.runs.bundle import PolicyAt, bundle_files
from diamond_attention.runs.checkpoint import checkpoint_files, list_checkpoints, prune_checkpoints, save_checkpoint
from diamond_attention.runs.files import DiskError, write_json
from diamond_attention.runs.folder import Run, group_folder, open_group
from diamond_attention.runs.group import check_free, create_group, exclusive, settle
from diamond_attention.runs.memory import check_training_fits, large_settings
from diamond_attention.runs.metrics import Metrics
from diamond_attention.runs.progress import Progress, Quiet
from diamond_attention.runs.restore import newest_common_states, sources_of, with_weights_of
from diamond_attention.runs.seeds import check_seeds
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import World

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
    check_seeds(seeds, f"seeds is {shown(seeds)}")
    check_training_fits(settings, seeds)
    folder, started_from = Path(out), None if from_run is None else str(from_run)
    check_free(folder, overwrite)  # before a minute of compiling
    sources = None if from_run is None else sources_of(Path(from_run), settings, seeds)
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
        return _train_while_there_is_room(runs, states, done=0, progress=progress or Quiet())


def resume(path: Path | str, *, world: World | None = None, progress: Progress | None = None) -> list[Run]:
    """Continues a group from the newest checkpoint that all of its seeds have."""
    progress = progress or Quiet()
    folder = group_folder(Path(path))
    with exclusive(folder):
        settle(folder)
        runs = open_group(Path(path), world)
        if all(run.finished is not None or run.failure is not None for run in runs):
            progress.say(f"{folder} is already finished; there is nothing to resume.")
            return runs
        states, done = newest_common_states(runs, progress)
        return _train_while_there_is_room(runs, states, done=done, progress=progress)


def _train_while_there_is_room(
    runs: list[Run], states: list[LearnerState], *, done: int, progress: Progress
) -> list[Run]:
    try:
        return _training_loop(runs, states, done=done, progress=progress)
    except DiskError as error:
        again = f"make room and continue with: diamond resume {runs[0].path.parent}"
        raise UserError(f"{error} What was saved before is whole; {again}") from None


def _training_loop(runs: list[Run], states: list[LearnerState], *, done: int, progress: Progress) -> list[Run]:
    """`done` updates are behind it; a seed whose state carries a failure is frozen."""
    settings = runs[0].settings
    total = settings.total_updates
    steps_per_update = settings.method.steps_per_update
    method = method_of(settings)
    stacked = stack_seeds(states)
    advance = advance_seeds_once(method, build_learner(settings))
    columns = [name for name in jax.eval_shape(advance, stacked, 1)[1] if name != "failure"]
    # A failed seed makes no new rows, so it keeps all it has.
    metrics = [Metrics(run, columns, done if run.failure is None else total) for run in runs]
    failed = {i for i, state in enumerate(states) if int(state.failure) != 0}
    # A checkpoint's score is of all updates since the one that was due before, wherever the run was stopped.
    since = done - done % settings.checkpoint_every
    scores = [each.returns_after(since) for each in metrics]
    environments = [run.environment for run in runs]
    updates_per_call = 1

    def save() -> None:
        """A checkpoint of every seed still training. Only when all have their new one are old ones removed."""
        going = [i for i in range(len(runs)) if i not in failed]
        every_state = split_seeds(stacked)
        for i in going:
            metrics[i].sync()
            step, state = done * steps_per_update, every_state[i]
            score = float(np.mean(scores[i])) if scores[i] else None
            beside = _bundle(runs[i], state, step, environments[i])
            saved = saved_part(settings, state)
            save_checkpoint(runs[i].checkpoints, saved, step=step, score=score, beside=beside)
            if done % settings.checkpoint_every == 0:
                scores[i].clear()
        for i in going:
            prune_checkpoints(runs[i].checkpoints, settings.checkpoint_every)

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


def _bundle(run: Run, state: LearnerState, step: int, environment: dict[str, Any]) -> dict[str, bytes]:
    """The policy that plays, to stand beside the training state."""
    return bundle_files(run, PolicyAt(method_of(run.settings).policy_of(state), step, int(state.update)), environment)


def _on_device(
    advance: Advance, states: LearnerState, count: int, settings: Settings
) -> tuple[LearnerState, dict[str, np.ndarray]]:
    try:
        states, log = advance(states, count)
        return states, {name: np.asarray(values[:count]) for name, values in log.items()}
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "Out of memory" not in str(error):
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
