"""A run survives: kills, signals, half-written files and seeds that fail, each of them real."""

import csv
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jaxtyping import Array, Int
from long_xor import LongXor

import diamond_attention
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.ppo import PpoState
from diamond_attention.learning.ppo_method import PPO, failed_part
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.seeds import advance_seeds, split_seeds, stack_seeds
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.reports.tables import table_lines
from diamond_attention.runs.assemble import begin_learning, build_learner
from diamond_attention.runs.folder import find_runs, open_run
from diamond_attention.runs.group import exclusive
from diamond_attention.runs.metrics import TIMING_COLUMNS
from diamond_attention.runs.restore import load_run, sources_of, with_weights_of
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import Interrupted, resume, train
from diamond_attention.worlds.contract import TeamSize, Transition
from diamond_attention.worlds.xor import Xor, XorState

SEEDS = (0, 1)
UPDATES = 100
STEPS = 16  # of an update: 8 teams, 2 steps each
TINY = PpoSettings(envs=8, steps=2, batch=16, learning_rate=2e-4)

# What the `diamond` commands below ask for, so that a run made here and one made there must be equal.
SETTINGS = Settings(
    world=Xor(), policy=DiamondSettings(width=8), ppo=TINY, total_steps=UPDATES * STEPS, checkpoint_every=40
)
OPTIONS = (
    "--policy.width=8 --ppo.envs=8 --ppo.steps=2 --ppo.batch=16 --seeds=0,1 --device=cpu "
    # Many checkpoints, and the waiting for the disk that they bring, give time to kill the run half-way.
    f"--total-steps={UPDATES * STEPS} --checkpoint-every=2"
).split()


class Witness:
    """A progress that remembers what it was told and, if asked, does something at an update."""

    def __init__(self, at_update: int | None = None, act=None):
        self.at_update, self.act = at_update, act
        self.began_at: int | None = None
        self.said: list[str] = []

    def begin(self, what: str, total: int, done: int) -> None:
        self.began_at = done // STEPS

    def advance(self, done: int, shown: dict[str, float]) -> None:
        if self.act is not None and done // STEPS >= self.at_update:
            act, self.act = self.act, None
            act()

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def end(self, sentence: str) -> None:
        self.said.append(sentence)


class PowerCutError(Exception):
    pass


def power_cut() -> None:
    raise PowerCutError


def diamond(*arguments: object) -> subprocess.Popen:
    """The real command in a process of its own."""
    call = "from diamond_attention.command_line import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", call, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def diamond_half_way(folder: Path) -> subprocess.Popen:
    """A training process that is not finished, and whose seeds all have at least one checkpoint."""
    process = diamond("train", "xor-demo", *OPTIONS, "--out", folder)
    until = time.monotonic() + 200
    while not all(checkpoints_of(folder, seed) for seed in SEEDS):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "no checkpoint appeared"
        time.sleep(0.002)
    return process


def checkpoints_of(group: Path, seed: int) -> list[int]:
    """The updates that a seed has a complete checkpoint of, oldest first."""
    names = [path.name for path in (group / f"seed_{seed}" / "checkpoints").glob("step_*")]
    return sorted(int(name.removeprefix("step_")) // STEPS for name in names if not name.endswith(".partial"))


def checkpoint(group: Path, seed: int, update: int) -> Path:
    return group / f"seed_{seed}" / "checkpoints" / f"step_{update * STEPS}"


def arrays_in(folder: Path) -> dict[str, tuple]:
    """Every array of a checkpoint down to its bits."""
    arrays = safetensors.numpy.load_file(folder / "state.safetensors")
    return {name: (array.shape, str(array.dtype), array.tobytes()) for name, array in arrays.items()}


def rows_of(group: Path, seed: int) -> list[dict[str, str]]:
    with open(group / f"seed_{seed}" / "metrics.csv", newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in csv.DictReader(file)]


def assert_ended_like(group: Path, straight: Path) -> None:
    """The same last checkpoint and the same rows, bit for bit and character for character."""
    for seed in SEEDS:
        ours, theirs = (arrays_in(checkpoint(g, seed, UPDATES)) for g in (group, straight))
        # XOR's values are small and not normalised, so there is no scale to keep.
        assert {name.split(".")[0] for name in ours} == set(PpoState._fields) - {"value_scale"}
        assert ours == theirs
        assert rows_of(group, seed) == rows_of(straight, seed)
        assert json.loads((group / f"seed_{seed}" / "finished.json").read_text())["update"] == UPDATES


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """A group that was never disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    train(SETTINGS, SEEDS, folder, preset="xor-demo")
    assert [int(row["update"]) for row in rows_of(folder, 0)] == list(range(1, UPDATES + 1))
    weights = [arrays_in(checkpoint(folder, seed, UPDATES)) for seed in SEEDS]
    assert weights[0] != weights[1]  # or the comparisons below would say little
    return folder


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory) -> Path:
    """A group that lost its power after the checkpoint at update 80 of 100; it has 40 and 80. Copy before use."""
    folder = tmp_path_factory.mktemp("runs") / "cut_off"
    with pytest.raises(PowerCutError):
        train(SETTINGS, SEEDS, folder, preset="xor-demo", progress=Witness(80, power_cut))
    assert [checkpoints_of(folder, seed) for seed in SEEDS] == [[40, 80], [40, 80]]
    return folder


@pytest.fixture
def broken_off(cut_off, tmp_path) -> Path:
    return shutil.copytree(cut_off, tmp_path / "group")


# --- Killed and interrupted -----------------------------------------------------------------------


@pytest.mark.long
def test_a_killed_and_resumed_run_equals_one_that_was_never_stopped(straight, tmp_path):
    process = diamond_half_way(tmp_path / "killed")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(tmp_path.rglob("finished.json"))
    assert max(checkpoints_of(tmp_path / "killed", 0)) < UPDATES

    resumed = diamond("resume", tmp_path / "killed", "--device=cpu")
    out, errors = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, errors
    assert "finished 2 of 2 seed(s)" in out
    assert_ended_like(tmp_path / "killed", straight)


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_go_on_and_costs_no_bit(number, status, straight, tmp_path):
    group = tmp_path / "interrupted"
    process = diamond_half_way(group)
    process.send_signal(number)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == status, errors
    assert errors == ""
    stopped = re.search(rf"stopped and saved at update (\d+) of {UPDATES}; continue with: diamond resume (\S+)", out)
    assert stopped is not None, out
    assert Path(stopped[2]) == group
    update = int(stopped[1])
    assert [checkpoints_of(group, seed)[-1] for seed in SEEDS] == [update, update]
    assert 0 < update < UPDATES
    assert not list(group.rglob("finished.json"))

    witness = Witness()
    resume(group, progress=witness)
    assert witness.began_at == update  # nothing is done twice
    assert_ended_like(group, straight)


def test_a_signal_between_two_updates_is_saved_where_no_checkpoint_was_due(straight, tmp_path):
    witness = Witness(50, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted) as interrupted:
        train(SETTINGS, SEEDS, tmp_path / "group", preset="xor-demo", progress=witness)
    assert interrupted.value.signal_number == signal.SIGINT
    update = int(re.search(r"saved at update (\d+)", witness.said[-1])[1])
    assert 50 <= update < 80
    assert [checkpoints_of(tmp_path / "group", seed)[-1] for seed in SEEDS] == [update, update]


# --- Crashes between and inside checkpoints -------------------------------------------------------


def lose_newest(group: Path) -> None:
    """The crash came between seed 0's checkpoint and seed 1's."""
    shutil.rmtree(checkpoint(group, 1, 80))


def leave_partial(group: Path) -> None:
    """The crash came while seed 1's checkpoint was being written."""
    partial = checkpoint(group, 1, 80).rename(checkpoint(group, 1, 80).with_suffix(".partial"))
    (partial / "state.json").unlink()


def truncate_newest(group: Path) -> None:
    """The disk lost the end of seed 0's newest checkpoint."""
    file = checkpoint(group, 0, 80) / "state.safetensors"
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_newest, None),
        (leave_partial, None),
        (truncate_newest, r"skipped a broken checkpoint: .*seed_0/checkpoints/step_1280/state\.safetensors"),
    ],
)
def test_resume_goes_on_from_the_newest_checkpoint_that_is_good_for_every_seed(damage, said, straight, broken_off):
    damage(broken_off)
    witness = Witness()
    resume(broken_off, progress=witness)
    assert witness.began_at == 40
    sentences = witness.said[:-1]  # the last one says that the run is finished
    assert len(sentences) == (said is not None)
    assert all(re.search(said, sentence) for sentence in sentences)
    assert_ended_like(broken_off, straight)
    assert not list(broken_off.rglob("*.partial"))


@pytest.mark.optimised
def test_rows_after_the_checkpoint_and_half_written_rows_are_dropped(straight, broken_off):
    header, *rows = (straight / "seed_0" / "metrics.csv").read_text().splitlines()
    # Rows 81 and 82 were written and their checkpoint was not; of row 83 only a part reached the disk.
    beyond = [",".join([*row.split(",")[:2], "0.123", *row.split(",")[3:]]) for row in rows[80:83]]
    with open(broken_off / "seed_0" / "metrics.csv", "a", newline="") as file:
        file.write("\r\n".join([*beyond[:2], beyond[2][:20]]))
    # And of seed 1 a part of a row is all there is beyond the checkpoint.
    with open(broken_off / "seed_1" / "metrics.csv", "a") as file:
        file.write("8")
    witness = Witness()
    resume(broken_off, progress=witness)
    assert witness.began_at == 80
    assert_ended_like(broken_off, straight)
    assert (broken_off / "seed_0" / "metrics.csv").read_text().splitlines()[0] == header


def test_a_last_row_cut_inside_its_last_cell_is_not_read(tmp_path):
    # It has all its columns, and would be believed: 4 where 45 was meant.
    (tmp_path / "rows.csv").write_bytes(b"episode,length\r\n0,12\r\n1,4")
    assert read_rows(tmp_path / "rows.csv") == [{"episode": "0", "length": "12"}]


def test_without_any_good_checkpoint_a_run_begins_again_and_says_so(straight, broken_off):
    for path in broken_off.glob("seed_1/checkpoints/*"):
        shutil.rmtree(path)
    witness = Witness()
    resume(broken_off, progress=witness)
    assert witness.began_at == 0
    assert witness.said[0] == "there is no usable checkpoint yet; starting from the beginning."
    assert_ended_like(broken_off, straight)


# --- A seed that fails ----------------------------------------------------------------------------

FINE, REWARD, TASKS, AGENTS, HUGE_REWARD = range(5)
FIRST_BAD_STEP = 6


class FateState(NamedTuple):
    game: XorState
    step: Int[Array, ""]
    breaks: Int[Array, ""]
    """What stops being finite at FIRST_BAD_STEP."""


@dataclass(frozen=True)
class Fate(LongXor):
    """One episode in sixteen is doomed: from its seventh step on the reward is NaN."""

    name = "fate"

    def reset(self, key, size: TeamSize) -> FateState:
        doomed = jax.random.uniform(key) < 1 / 16
        return FateState(self.xor.reset(key, size), jnp.zeros((), jnp.int32), jnp.where(doomed, REWARD, FINE))

    def step(self, state: FateState, actions, key) -> Transition:
        played = super().step(state, actions, key)
        reward = jnp.where(self._broken(state, REWARD), jnp.nan, played.reward)
        # Finite in itself, but its square is not, and so the loss is not.
        reward = jnp.where(self._broken(state, HUGE_REWARD), 1e30, reward)
        return played._replace(reward=reward)

    def views(self, state: FateState, ranks):
        views = super().views(state, ranks)
        return views._replace(
            tasks=jnp.where(self._broken(state, TASKS), jnp.nan, views.tasks),
            agents=jnp.where(self._broken(state, AGENTS), jnp.inf, views.agents),
        )

    def _broken(self, state: FateState, what: int):
        return (state.breaks == what) & (state.step >= FIRST_BAD_STEP)


@dataclass(frozen=True)
class FateWithoutDoom(Fate):
    """The same world to a run's settings; nothing ever breaks in it."""

    def reset(self, key, size: TeamSize) -> FateState:
        return super().reset(key, size)._replace(breaks=jnp.asarray(FINE))


FATE_SETTINGS = Settings(
    world=Fate(), policy=DiamondSettings(width=8), ppo=TINY, total_steps=12 * STEPS, checkpoint_every=2
)


@pytest.fixture(scope="module")
def fates() -> dict[str, tuple[int, PpoState]]:
    """One seed none of whose teams is doomed, and one seed with at least one that is."""
    found: dict[str, tuple[int, PpoState]] = {}
    for seed in range(30):
        state = begin_learning(FATE_SETTINGS, seed)
        doomed = bool(np.any(np.asarray(state.teams.world.breaks) == REWARD))
        found.setdefault("doomed" if doomed else "safe", (seed, state))
    return found


@pytest.fixture(scope="module")
def failing(fates, tmp_path_factory) -> tuple[Path, Witness]:
    """A group of one safe and one doomed seed that lost its power at update 8; the doomed one had failed before."""
    folder = tmp_path_factory.mktemp("runs") / "failing"
    witness = Witness(8, power_cut)
    with pytest.raises(PowerCutError):
        train(FATE_SETTINGS, [fates["safe"][0], fates["doomed"][0]], folder, progress=witness)
    return folder, witness


def test_a_seed_that_fails_is_marked_keeps_its_last_good_checkpoint_and_the_other_one_finishes(failing, fates):
    group, witness = failing
    doomed, safe = fates["doomed"][0], fates["safe"][0]

    # Steps are counted from 0 and an update plays two, so step 6 is played in update 4.
    failed = json.loads((group / f"seed_{doomed}" / "failed.json").read_text())
    assert (failed["update"], failed["tensor"]) == (4, "reward")
    assert witness.said == [failed["sentence"]]
    assert f"seed {doomed} failed at update 4: reward is not finite" in failed["sentence"]
    assert [int(row["update"]) for row in rows_of(group, doomed)] == [1, 2, 3]
    assert checkpoints_of(group, doomed) == [2]
    assert checkpoints_of(group, safe)[-1] == 8

    # Resuming finishes the one and does not touch the other.
    before = files_of(group / f"seed_{doomed}")
    witness = Witness()
    runs = {run.seed: run for run in resume(group, world=Fate(), progress=witness)}
    assert witness.began_at == 8
    assert witness.said == [f"finished 1 of 2 seed(s) in {group}"]
    assert [int(row["update"]) for row in rows_of(group, safe)] == list(range(1, 13))
    assert runs[safe].finished == {"update": 12, "step": 12 * STEPS}
    assert runs[safe].failure is None
    after = files_of(group / f"seed_{doomed}")
    assert all(after[name] == content for name, content in before.items())
    assert all(name.startswith("events.out.tfevents") for name in set(after) - set(before))
    state, step = load_run(runs[doomed])
    assert (int(state.update), step) == (2, 2 * STEPS)

    # Now that everything has ended, there is nothing to resume, and the failure is still counted.
    witness = Witness()
    resume(group, world=Fate(), progress=witness)
    assert witness.said == [f"{group} is already finished; there is nothing to resume."]
    assert witness.began_at is None
    runs_to_play = find_runs([group], FateWithoutDoom())
    safe_run = next(run for run in runs_to_play if run.seed == safe)
    evaluate(safe_run, episodes=4, play=("sampled",))
    (line,) = table_lines(runs_to_play)
    assert (line.seeds_trained, line.seeds_failed, line.seeds_missing) == (2, 1, 0)
    assert len(line.per_seed) == 1


@pytest.fixture(scope="module")
def advance():
    """One compiled program, the one `train` runs for these settings."""
    return advance_seeds(PPO, build_learner(FATE_SETTINGS))


def two_updates(advance, states: list[PpoState]) -> list[PpoState]:
    return split_seeds(advance(stack_seeds(states), 2)[0])


def doomed_to(what: int, state: PpoState) -> PpoState:
    """The learner with teams that break in the very next step."""
    world = state.teams.world
    world = world._replace(step=np.full_like(world.step, FIRST_BAD_STEP), breaks=np.full_like(world.breaks, what))
    return state._replace(teams=state.teams._replace(world=world))


@pytest.mark.parametrize(
    ("what", "tensor"),
    [(REWARD, "reward"), (TASKS, "view.tasks"), (AGENTS, "view.agents"), (HUGE_REWARD, "loss")],
)
def test_the_first_tensor_that_is_not_finite_is_named_and_stops_the_seed_before_the_step(
    what, tensor, advance, fates
):
    state = doomed_to(FINE, fates["safe"][1])
    fine, untouched = two_updates(advance, [state, state])
    beside, failed = two_updates(advance, [state, doomed_to(what, state)])

    assert int(fine.failure) == 0
    assert int(fine.update) == 2
    assert failed_part(state, int(failed.failure)) == tensor
    assert int(failed.update) == 0
    assert_same_arrays(failed._replace(failure=np.zeros_like(failed.failure)), doomed_to(what, state))
    # The seed beside it learns as if nothing had happened.
    assert_same_arrays(beside, fine)
    assert_same_arrays(untouched, fine)


def assert_same_arrays(one: PpoState, other: PpoState) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for mine, yours in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(yours), strict=True)


def test_a_learning_rate_that_is_far_too_large_stops_with_finite_weights(tmp_path):
    ppo = dataclasses.replace(TINY)
    object.__setattr__(ppo, "learning_rate", 1e30)  # far outside the range that settings allow
    settings = dataclasses.replace(SETTINGS, ppo=ppo, total_steps=6 * STEPS, checkpoint_every=1)
    (run,) = train(settings, [0], tmp_path / "group", progress=Witness())
    assert run.finished is None
    # The first step is taken, from finite gradients; with such weights nothing after it can be.
    assert run.failure["update"] == 2
    state, step = load_run(run)
    assert (int(state.update), step) == (1, STEPS)
    names = {"value", "log_probability", "loss"}
    assert run.failure["tensor"] in names or run.failure["tensor"].startswith("gradient.")
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.weights))


# --- Folders that are already in use --------------------------------------------------------------


def test_a_run_is_not_overwritten_unless_asked(straight, broken_off):
    before = files_of(broken_off)
    with pytest.raises(UserError, match=r"already holds 2 run\(s\); .*--overwrite"):
        train(SETTINGS, SEEDS, broken_off)
    assert files_of(broken_off) == before

    (broken_off / "seed_0" / "episodes.csv").write_text("of the run that is replaced\n")
    train(SETTINGS, SEEDS, broken_off, overwrite=True)
    assert_ended_like(broken_off, straight)
    assert not (broken_off / "seed_0" / "episodes.csv").exists()


def test_a_folder_that_is_no_run_of_ours_is_never_overwritten(tmp_path):
    (tmp_path / "group" / "seed_0").mkdir(parents=True)
    (tmp_path / "group" / "seed_0" / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(UserError, match=r"thesis\.txt is not ours, so nothing is overwritten"):
        train(SETTINGS, SEEDS, tmp_path / "group", overwrite=True)
    assert (tmp_path / "group" / "seed_0" / "thesis.txt").read_text() == "irreplaceable"


def test_two_processes_cannot_train_one_group(broken_off):
    before = files_of(broken_off)
    with exclusive(broken_off):
        with pytest.raises(UserError, match="being trained by another process"):
            resume(broken_off)
        with pytest.raises(UserError, match="being trained by another process"):
            train(SETTINGS, SEEDS, broken_off, overwrite=True)
    assert files_of(broken_off) == before
    with exclusive(broken_off):  # the lock was let go
        pass


def test_a_lock_does_not_outlive_the_process_that_held_it(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from diamond_attention.runs.group import exclusive\n"
        "with exclusive(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="being trained by another process"), exclusive(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with exclusive(tmp_path):
        pass


def test_a_finished_group_is_left_alone(straight):
    before = files_of(straight)
    witness = Witness()
    runs = resume(straight / "seed_1", progress=witness)
    assert witness.said == [f"{straight} is already finished; there is nothing to resume."]
    assert [run.seed for run in runs] == [0, 1]
    assert files_of(straight) == before


def test_a_group_resumes_whole_or_not_at_all(broken_off):
    shutil.rmtree(broken_off / "seed_1")
    with pytest.raises(UserError, match=r"trained together with .*seed_1, which is gone"):
        resume(broken_off / "seed_0")


# --- Starting from another run's weights ----------------------------------------------------------


def weights_of(state: PpoState) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.weights)]


def test_training_from_another_run_begins_with_exactly_its_weights(straight):
    fresh = [begin_learning(SETTINGS, seed) for seed in SEEDS]
    sources = [load_run(open_run(straight / f"seed_{seed}"))[0] for seed in SEEDS]

    seed_for_seed = with_weights_of(sources_of(straight, SETTINGS, SEEDS), fresh, SETTINGS)
    from_one = with_weights_of(sources_of(straight / "seed_1", SETTINGS, SEEDS), fresh, SETTINGS)
    for begun, source in zip([*seed_for_seed, *from_one], [*sources, sources[1], sources[1]], strict=True):
        for mine, yours in zip(weights_of(begun), weights_of(source), strict=True):
            np.testing.assert_array_equal(mine, yours, strict=True)
    # Only the weights: the optimiser, the teams and the randomness are the new run's own.
    for begun, own in zip(seed_for_seed, fresh, strict=True):
        assert_same_arrays(begun._replace(weights=own.weights), own)


def test_train_uses_the_weights_it_is_told_to_begin_with(straight, tmp_path):
    settings = dataclasses.replace(SETTINGS, checkpoint_every=1)
    with pytest.raises(PowerCutError):
        train(settings, SEEDS, tmp_path / "group", from_run=straight / "seed_1", progress=Witness(1, power_cut))
    source = weights_of(load_run(open_run(straight / "seed_1"))[0])
    for run in find_runs([tmp_path / "group"]):
        begun, after = (weights_of(load_run(run, str(step))[0]) for step in (0, STEPS))
        for first, second, yours in zip(begun, after, source, strict=True):
            np.testing.assert_array_equal(first, yours, strict=True)
            # Adam's first step is the learning rate for each weight, or less; fresh weights would be elsewhere.
            np.testing.assert_allclose(second, yours, rtol=0, atol=1.01 * TINY.learning_rate)
        assert any((first != second).any() for first, second in zip(begun, after, strict=True))


def test_weights_of_another_shape_or_of_a_seed_that_is_not_there_are_refused(straight, tmp_path):
    wider = dataclasses.replace(SETTINGS, policy=DiamondSettings(width=16))
    with pytest.raises(UserError, match=r"weights have other shapes .*use the same width"):
        train(wider, SEEDS, tmp_path / "group", from_run=straight)
    with pytest.raises(UserError, match=r"which has no seed 5; name one of its runs"):
        train(SETTINGS, [0, 5], tmp_path / "group", from_run=straight)
    with pytest.raises(UserError, match="holds no run"):
        train(SETTINGS, SEEDS, tmp_path / "group", from_run=tmp_path / "nowhere")
    assert not (tmp_path / "group").exists()  # refused before anything was written


def test_a_world_of_ones_own_can_begin_with_a_runs_weights_too(failing, fates):
    seed, state = fates["safe"]
    (begun,) = with_weights_of(sources_of(failing[0] / f"seed_{seed}", FATE_SETTINGS, [seed]), [state], FATE_SETTINGS)
    source = load_run(open_run(failing[0] / f"seed_{seed}", Fate()))[0]
    for mine, yours in zip(weights_of(begun), weights_of(source), strict=True):
        np.testing.assert_array_equal(mine, yours, strict=True)


def test_out_that_is_a_file_is_refused_with_one_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="which is a file; name a folder"):
        train(SETTINGS, SEEDS, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "not a folder"


# --- Nothing that executes ------------------------------------------------------------------------


def test_nothing_in_the_package_reads_files_that_can_execute_code():
    sources = list(Path(diamond_attention.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    forbidden = re.compile(
        r"(?<!allow_)pickle|joblib|\bdill\b|\bmarshal\b|\bshelve\b|torch\.load\(|allow_pickle(?!=False)|\beval\(|\bexec\("
    )
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


def test_weights_taken_over_survive_a_crash_before_the_first_checkpoint(straight, tmp_path, monkeypatch):
    """Killed before it saved anything of its own, the run resumes from the weights it was given."""

    class CutError(Exception):
        pass

    def cut(*_, **__):
        raise CutError

    with monkeypatch.context() as patched:
        patched.setattr("diamond_attention.runs.train._training_loop", cut)
        with pytest.raises(CutError):
            train(SETTINGS, SEEDS, tmp_path / "begun", from_run=straight)
    given, _ = load_run(find_runs([straight])[0])
    kept, step = load_run(find_runs([tmp_path / "begun"])[0])
    assert step == 0
    for ours, theirs in zip(jax.tree.leaves(kept.weights), jax.tree.leaves(given.weights), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert find_runs([tmp_path / "begun"])[0].started_from == str(straight)
