"""Every command, cut off before every single file operation, and with a disk that is full from there on.

Wherever that is, the same command typed again, or `resume`, ends in what a command that was never disturbed leaves,
file for file and bit for bit: nothing wrong, nothing missing, nothing left over, no dead end.
"""

import csv
import hashlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from unreliable_disk import Killed, UnreliableDisk

import diamond_attention.runs.group as group_module
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.reports.figures import draw_learning_curves
from diamond_attention.runs.bundle import export_policies
from diamond_attention.runs.folder import find_runs, open_run, own_copy
from diamond_attention.runs.metrics import TIMING_COLUMNS
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import resume, train
from diamond_attention.worlds.xor import Xor

ALL_POINTS = "DIAMOND_ALL_CRASH_POINTS"
"""Set in the environment: every point; else one of fifty, chosen by its hash."""

SEEDS = (0, 1)
SETTINGS = Settings(
    world=Xor(),
    policy=DiamondSettings(width=4),
    ppo=PpoSettings(envs=4, steps=2, batch=8),
    total_steps=7 * 8,
    checkpoint_every=2,
)


class Scenario(NamedTuple):
    prepare: Callable[[Path], None]
    """What is there before."""
    command: Callable[[Path], object]
    resumable: bool = False
    """Whether `resume` must also get there, or find what was there before."""


@pytest.fixture(autouse=True, scope="module")
def same_environment():
    """The time at which a run began is the one thing that two equal runs do not share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_module, "describe_environment", lambda: {"command": ["diamond"]})
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory, same_environment) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "group"
    train(SETTINGS, SEEDS, folder)
    return folder


class Stop(Exception):  # noqa: N818 - not an error
    pass


class StoppingProgress:
    """Breaks a training off, as a power cut would, when the first checkpoints are there."""

    def begin(self, *_: object) -> None: ...

    def say(self, _: str) -> None: ...

    def end(self, _: str) -> None: ...

    def advance(self, done: int, _: object) -> None:
        if done >= 4 * 8:
            raise Stop


@pytest.fixture(scope="module")
def half_way(tmp_path_factory, same_environment) -> Path:
    folder = tmp_path_factory.mktemp("half_way") / "group"
    with pytest.raises(Stop):
        train(SETTINGS, SEEDS, folder, progress=StoppingProgress())
    return folder


@pytest.fixture(scope="module")
def scenarios(trained, half_way) -> dict[str, Scenario]:
    def nothing(place: Path) -> None:
        pass

    def other_runs(place: Path) -> None:
        """Seeds 0 to 2 of an earlier training, and a note that is nobody's business."""
        shutil.copytree(trained, place / "group")
        shutil.copytree(trained / "seed_1", place / "group" / "seed_2")
        (place / "group" / "notes.txt").write_text("irreplaceable")

    def copy_of(source: Path) -> Callable[[Path], None]:
        return lambda place: shutil.copytree(source, place / "group") and None

    def evaluate_all(place: Path, seed: int = 0) -> None:
        for run in find_runs([place / "group"]):
            evaluate(run, episodes=2, seed=seed)

    def evaluated(place: Path) -> None:
        shutil.copytree(trained, place / "group")
        evaluate_all(place, seed=1)

    def export(place: Path) -> None:
        export_policies({run.path.name: run for run in find_runs([trained])}, place / "exported")

    def draw(place: Path) -> None:
        draw_learning_curves(find_runs([place / "group"]), place / "pictures" / "curves.png")

    def play_shipped(place: Path) -> None:
        before = Path.cwd()
        os.chdir(place)
        try:
            own_copy(open_run("spread"))
        finally:
            os.chdir(before)

    return {
        "train": Scenario(nothing, lambda place: train(SETTINGS, SEEDS, place / "group"), True),
        "train --overwrite": Scenario(
            other_runs, lambda place: train(SETTINGS, SEEDS, place / "group", overwrite=True), True
        ),
        "train --from": Scenario(
            nothing, lambda place: train(SETTINGS, SEEDS, place / "group", from_run=trained), True
        ),
        "resume": Scenario(copy_of(half_way), lambda place: resume(place / "group"), True),
        "evaluate": Scenario(copy_of(trained), evaluate_all),
        "evaluate again": Scenario(evaluated, evaluate_all),
        "export": Scenario(nothing, export),
        "figure": Scenario(copy_of(trained), draw),
        "shipped": Scenario(nothing, play_shipped),
    }


NAMES = ["train", "train --overwrite", "train --from", "resume"]
NAMES += ["evaluate", "evaluate again", "export", "figure", "shipped"]


def contents(place: Path) -> dict[str, bytes]:
    """Every file but TensorBoard's, which has one for every life of a run; metrics without what a clock said."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.is_dir() or "tfevents" in path.name:
            continue
        data = path.read_bytes()
        if path.name == "metrics.csv":
            rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
            data = repr([{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in rows]).encode()
        found[str(path.relative_to(place))] = data
    return found


def differences(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    return sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))


def chosen(name: str, points: int) -> list[int]:
    if os.environ.get(ALL_POINTS):
        return list(range(points))
    digests = [int.from_bytes(hashlib.sha256(f"{name} {point}".encode()).digest()[:4]) for point in range(points)]
    return [point for point, digest in enumerate(digests) if digest % 50 == 0]


def done_again(scenario: Scenario, place: Path) -> None:
    """The same command once more; where it says that its work is there, that is the work, or resume ends it."""
    try:
        scenario.command(place)
    except UserError as error:
        refusal = str(error)
    else:
        return
    if scenario.resumable:
        resume(place / "group")
    else:
        assert "already exists" in refusal


@pytest.mark.timeout(1800 if os.environ.get(ALL_POINTS) else 300)
@pytest.mark.parametrize("mode", ["kill", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_every_file_operation_may_be_the_last(name, mode, scenarios, tmp_path):
    scenario = scenarios[name]
    place = tmp_path / "place"  # always the same one, since a run remembers where its weights came from
    place.mkdir()
    scenario.prepare(place)
    before = contents(place)
    with UnreliableDisk(place) as disk:
        scenario.command(place)
    wanted, operations = contents(place), disk.operations
    assert len(operations) >= 2
    assert wanted != before

    for point in chosen(name, len(operations)):
        where = f"{mode} at operation {point} of {len(operations)}, {operations[point]}"
        shutil.rmtree(place)
        place.mkdir()
        scenario.prepare(place)
        killed, told = False, None
        with UnreliableDisk(place, mode, at=point) as disk:
            try:
                scenario.command(place)
            except Killed:
                killed = True
            except UserError as error:
                told = str(error)
        if mode == "kill":
            assert killed, where
        else:  # a few operations are not needed for the outcome, such as syncing a folder
            assert told is None or ("No space left on device" in told and len(told) < 300 + 2 * len(str(place))), (
                where
            )

        if scenario.resumable:
            aside = tmp_path / "aside"
            shutil.copytree(place, aside, symlinks=True)
            try:
                resume(place / "group")
            except UserError:
                assert not contents(place) or contents(place) == contents(aside), where
            else:
                assert contents(place) in (wanted, before), f"resumed after {where}"
            shutil.rmtree(place)
            aside.rename(place)
        done_again(scenario, place)
        assert differences(contents(place), wanted) == [], where
