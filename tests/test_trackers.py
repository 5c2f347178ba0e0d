"""What follows a training: every tracker is told the rows of metrics.csv, and a wrong one is refused first."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from diamond_attention import extensions
from diamond_attention.command_line import run_command
from diamond_attention.command_words import parse_train
from diamond_attention.errors import UserError
from diamond_attention.runs.folder import find_runs
from diamond_attention.runs.trackers.registry import TRACKERS, check_trackers, trackers
from diamond_attention.runs.trackers.tensorboard import TensorBoard
from diamond_attention.runs.train import resume, train

# Of two seeds the very program that tests/test_sweep.py compiles too.
SMALL = ["--policy.width", "8", "--ppo.envs", "4", "--ppo.batch", "4", "--ppo.epochs", "1", "--total-steps", "8"]
SETTINGS = parse_train("xor", SMALL).settings
PAGE = (Path(__file__).parents[1] / "docs" / "scale.md").read_text()


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


def test_a_tracker_of_your_own_is_told_every_row_of_every_seed(tmp_path, monkeypatch, capsys):
    """One that is there, and the one that docs/scale.md writes into a file."""
    monkeypatch.setitem(TRACKERS, "own", Own)
    monkeypatch.setitem(TRACKERS, "lines", None)  # and taken out again
    monkeypatch.setattr(Own, "told", [])
    monkeypatch.setattr(extensions, "LOADED", [])
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "lines.py").write_text(block)
    words = ["train", "xor", *SMALL, "--seeds", "3,5", "--out", str(tmp_path / "run"), "--quiet"]
    assert run_command([*words, "--with", str(tmp_path / "lines.py"), "--track", "own", "--track", "lines"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert Own.told[0] == "check"
    assert [each for each in Own.told if "begin" in each] == [(3, "begin", 0), (5, "begin", 0)]
    assert Own.told[-2:] == [(3, "close"), (5, "close")]
    for run in find_runs([tmp_path / "run"]):
        rows = list(csv.DictReader(run.metrics.open()))
        told = [each[1] for each in Own.told if each[0] == run.seed and isinstance(each[1], dict)]
        assert len(told) == len(rows) == 2
        for row, own in zip(rows, told, strict=True):
            assert list(row) == list(own)
            assert {name: float(value) for name, value in row.items() if value} == {
                name: value for name, value in own.items() if value == value
            }
        lines = [row for row in printed if row["seed"] == run.seed]
        assert [(row["update"], row["step"], row["return"]) for row in lines] == [
            tuple(float(row[name]) for name in ("update", "step", "return")) for row in rows
        ]
        assert list(run.path.glob("events.out.tfevents.*"))  # TensorBoard stays
    Own.told.clear()
    resume(tmp_path / "run", track=["own"])  # there is nothing to resume, and nothing to follow
    assert Own.told == ["check"]


def test_tensorboard_follows_every_run_and_each_tracker_only_once():
    assert trackers([]) == trackers(["tensorboard"]) == [TensorBoard]
    assert trackers(["wandb", "wandb"]) == [TensorBoard, TRACKERS["wandb"]]


def test_a_tracker_that_is_not_there_is_refused_before_anything_is_made(tmp_path, monkeypatch, capsys):
    with pytest.raises(UserError, match="--track is 'mlflow'; it must be one of tensorboard, wandb"):
        train(SETTINGS, [0], tmp_path / "run", track=["mlflow"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--track is wandb, which is not installed; .*'diamond-attention\[wandb\]'"):
        check_trackers(["tensorboard", "wandb"])
    assert run_command(["train", "xor-demo", "--out", str(tmp_path / "run"), "--track", "wandb"]) == 2
    assert capsys.readouterr().err.startswith("diamond: --track is wandb, which is not installed; ")
    assert not (tmp_path / "run").exists()
