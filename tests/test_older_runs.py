"""Runs that older versions wrote still load, score what they scored then, and resume to where they were going."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from diamond_attention import PolicySettings, TeamSize, evaluate, export_policy, find_runs, load_policy, open_run
from diamond_attention.command_line import run_command
from diamond_attention.runs.group import create_group
from diamond_attention.runs.settings import FORMAT
from diamond_attention.runs.train import resume

OLDER = Path(__file__).with_name("older_runs") / "format_1"
PLAYED = {"xor": [TeamSize(2, 3), TeamSize(3, 3)], "spread": None, "food": None, "smaclite": None}


@pytest.fixture
def older(tmp_path) -> Path:
    return shutil.copytree(OLDER, tmp_path / "older")


def rows_of(run) -> list[dict[str, str]]:
    with open(run.episodes, newline="") as file:
        return list(csv.DictReader(file))


def assert_same_rows(found, recorded) -> None:
    assert len(found) == len(recorded)
    for mine, theirs in zip(found, recorded, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            try:
                assert float(mine[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-5), name
            except ValueError:
                assert mine[name] == value, name


@pytest.mark.parametrize("world", PLAYED)
def test_an_older_run_scores_what_it_scored_then(older, world):
    for run in find_runs([older / world]):
        recorded = rows_of(run)
        run.episodes.rename(run.path / "recorded.csv")
        # Food Collection was played without dropout first, then with.
        for dropout in (False, None) if world == "food" else (None,):
            evaluate(run, sizes=PLAYED[world], episodes=4, seed=5, dropout=dropout)
        assert_same_rows(rows_of(run), recorded)


def test_older_settings_are_read_as_what_they_meant(older):
    (run,) = find_runs([older / "food"])
    assert run.settings.policy == PolicySettings(width=4, mask="dropout")
    assert (run.settings.method.name, run.settings.rank_hold, run.settings.world.caution) == ("ppo", 3, 5.0)
    assert json.loads((run.path / "settings.json").read_text())["format"] == 1  # read, not rewritten


def test_an_older_exported_policy_plays_like_the_run_it_came_from(older):
    (run,) = find_runs([older / "smaclite"])
    alone = open_run(older / "exported")
    assert alone.policy_alone
    recorded = rows_of(run)
    evaluate(alone, episodes=4, seed=5)
    assert_same_rows(rows_of(alone), recorded)


def test_an_older_run_can_be_exported_and_the_bundle_holds_the_same_policy(older):
    (run,) = find_runs([older / "spread"])
    exported = export_policy(run, older / "new")
    assert {path.name for path in exported.path.iterdir()} == {"policy.json", "policy.safetensors"}
    before = safetensors.numpy.load_file(run.checkpoints / "step_128" / "state.safetensors")
    after = safetensors.numpy.load_file(exported.path / "policy.safetensors")
    prefix = "weights.policy."
    assert {prefix + name for name in after} == {name for name in before if name.startswith(prefix)}
    for name, array in after.items():
        np.testing.assert_array_equal(array, before[prefix + name], strict=True)
    assert exported.settings == run.settings
    assert load_policy(exported)[1] == 128


def test_an_older_run_that_was_interrupted_ends_where_it_would_have_ended(older):
    runs = resume(older / "interrupted")
    assert [run.finished["update"] for run in runs] == [8, 8]
    for run in runs:
        undisturbed = older / "never_interrupted" / run.path.name
        mine, theirs = (
            safetensors.numpy.load_file(path / "checkpoints" / "step_128" / "state.safetensors")
            for path in (run.path, undisturbed)
        )
        assert mine.keys() == theirs.keys()
        for name, array in theirs.items():
            np.testing.assert_allclose(mine[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
        # Written by this version, so with a bundle beside it.
        assert (run.path / "checkpoints" / "step_128" / "policy.json").exists()


def test_new_runs_are_written_in_the_new_format_and_an_unknown_one_is_refused(older, tmp_path, capsys):
    (run,) = find_runs([older / "spread"])
    (new,) = create_group(tmp_path / "new", "spread-cpu", run.settings, [0], overwrite=False)
    described = json.loads((new.path / "settings.json").read_text())
    assert described["format"] == FORMAT == 3
    assert described["settings"]["method"] == "ppo"
    assert described["settings"]["policy"]["kind"] == "diamond"
    assert open_run(new.path).settings == run.settings
    (new.path / "settings.json").write_text(json.dumps({**described, "format": 4}))
    assert run_command(["evaluate", str(new.path)]) == 2
    assert "upgrade diamond-attention" in capsys.readouterr().err
