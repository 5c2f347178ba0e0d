"""What follows a training: every tracker is told the rows of metrics.csv, and a wrong one is refused first."""

import csv
import sys

import pytest

from diamond_attention.command_words import parse_train
from diamond_attention.errors import UserError
from diamond_attention.runs.trackers.registry import TRACKERS, check_trackers, trackers
from diamond_attention.runs.trackers.tensorboard import TensorBoard
from diamond_attention.runs.train import resume, train

SMALL = ["--policy.width", "8", "--ppo.envs", "4", "--ppo.batch", "4", "--ppo.epochs", "1", "--total-steps", "12"]
SETTINGS = parse_train("xor", SMALL).settings


class Own:
    """A tracker of somebody's own, which writes down what it is told."""

    told: list = []  # noqa: RUF012 - of all runs

    @staticmethod
    def check():
        Own.told.append("check")

    def __init__(self, run, resumed_at_update):
        self.seed = run.seed
        self.told.append((run.seed, "begin", resumed_at_update))

    def append(self, row):
        self.told.append((self.seed, dict(row)))

    def flush(self):
        pass

    def close(self):
        self.told.append((self.seed, "close"))


def test_a_tracker_of_your_own_is_told_every_row_of_every_seed(tmp_path, monkeypatch):
    monkeypatch.setitem(TRACKERS, "own", Own)
    monkeypatch.setattr(Own, "told", [])
    runs = train(SETTINGS, [3, 5], tmp_path / "run", track=["own"])
    assert Own.told[:3] == ["check", (3, "begin", 0), (5, "begin", 0)]
    assert Own.told[-2:] == [(3, "close"), (5, "close")]
    for run in runs:
        rows = list(csv.DictReader(run.metrics.open()))
        told = [each[1] for each in Own.told if each[0] == run.seed and isinstance(each[1], dict)]
        assert len(told) == len(rows) == 3
        for row, own in zip(rows, told, strict=True):
            assert list(row) == list(own)
            assert {name: float(value) for name, value in row.items() if value} == {
                name: value for name, value in own.items() if value == value
            }
        assert list(run.path.glob("events.out.tfevents.*"))  # TensorBoard stays
    Own.told.clear()
    resume(tmp_path / "run", track=["own"])  # there is nothing to resume, and nothing to follow
    assert Own.told == ["check"]


def test_tensorboard_follows_every_run_and_each_tracker_only_once():
    assert trackers([]) == trackers(["tensorboard"]) == [TensorBoard]
    assert trackers(["wandb", "wandb"]) == [TensorBoard, TRACKERS["wandb"]]


def test_a_tracker_that_is_not_there_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="--track is 'mlflow'; it must be one of tensorboard, wandb"):
        train(SETTINGS, [0], tmp_path / "run", track=["mlflow"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--track is wandb, which is not installed; .*'diamond-attention\[wandb\]'"):
        check_trackers(["tensorboard", "wandb"])
    assert not (tmp_path / "run").exists()
