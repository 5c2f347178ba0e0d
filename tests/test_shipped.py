"""Policies without their learner: exporting one, and those that ship with the package."""

import dataclasses
import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.evaluation.dispatch_rules import shares_by_rule
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.reports.anchors import anchors
from diamond_attention.runs.bundle import export_policy, load_policy
from diamond_attention.runs.bundle_format import SHIPPED, shipped_policies
from diamond_attention.runs.folder import find_runs, open_run, own_copy
from diamond_attention.runs.restore import load_run
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import resume, train
from diamond_attention.worlds.contract import TeamSize

TINY = Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16), total_steps=32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(TINY, [3], tmp_path_factory.mktemp("trained") / "xor", preset="xor")[0]


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_exported_policy_plays_as_the_run_does(trained, tmp_path):
    exported = export_policy(trained, tmp_path / "policy")
    assert exported == open_run(tmp_path / "policy")
    assert exported.policy_alone
    assert exported.environment == trained.environment
    ours, theirs = (evaluate(run, episodes=20, play=["sampled"]) for run in (exported, trained))
    assert ours == theirs
    assert {file.name for file in exported.path.iterdir()} == {"policy.json", "policy.safetensors", "episodes.csv"}
    size = sum(file.stat().st_size for file in exported.path.glob("policy.*"))
    assert size < 0.5 * sum(file.stat().st_size for file in trained.checkpoints.glob("*32/*"))


def test_an_exported_policy_is_not_trained_on_but_started_from(trained, tmp_path):
    exported = export_policy(trained, tmp_path / "policy")
    with pytest.raises(UserError, match="holds a policy alone, which cannot be resumed"):
        resume(exported.path)
    with pytest.raises(UserError, match="holds a policy alone"):
        load_run(exported)
    begun = train(TINY, [0], tmp_path / "begun", from_run=exported.path)[0]
    first = load_policy(begun, "0")[0]
    np.testing.assert_array_equal(first.embed_agent.first.weight, load_policy(trained)[0].embed_agent.first.weight)


def test_exporting_overwrites_nothing(trained, tmp_path, capsys):
    assert run_command(["export", str(trained.path), "--to", str(tmp_path)]) == 2
    assert "already exists; name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", shipped_policies())
def test_every_shipped_policy_is_small_and_says_where_it_comes_from(name, working_folder):
    run = own_copy(find_runs([name])[0])
    assert run.path.parts[-3:] == ("runs", "shipped", name)
    assert {file.name for file in run.path.iterdir()} == {"policy.json", "policy.safetensors"}
    assert sum(file.stat().st_size for file in run.path.iterdir()) < 1_000_000
    environment = json.loads((run.path / "policy.json").read_text())["trained"]["environment"]
    assert environment == run.environment
    assert environment["commit"]
    assert not any(word.startswith("/") for word in environment["command"])  # nobody else has that folder


@pytest.mark.parametrize(
    "name", [name for name in shipped_policies() if anchors(open_run(name).settings.world, "assigned")]
)
def test_a_shipped_policy_is_better_than_the_hand_written_one(name, working_folder):
    run = find_runs([name])[0]
    rows = evaluate(run, episodes=32, play=["greedy"])
    agents, tasks = map(int, run.settings.sizes[0])
    programmed = anchors(run.settings.world, "assigned")[(agents, tasks)]
    assert np.mean([row["return"] for row in rows]) / agents > programmed.mean


def test_the_shipped_vehicles_are_better_than_the_nearest_job_at_a_size_they_never_saw(working_folder):
    run = find_runs(["dispatch-commitments"])[0]
    size = TeamSize(16, 16)
    world = dataclasses.replace(run.settings.world, depots=16, max_agents=16, max_tasks=16)
    rows = evaluate(run, episodes=32, play=["greedy"], sizes=[size], world=world)
    programmed = shares_by_rule(world, size, "nearest", episodes=32, seed=0)
    assert np.mean([row["share"] for row in rows]) > programmed.mean()


@pytest.mark.long
def test_the_shipped_team_wins_battles_it_never_trained_on(working_folder):
    """3s5z, of which it knows only the unit types; a scripted team that attacks the nearest never wins there."""
    run = find_runs(["smaclite"])[0]
    assert run.settings.world.map == "2s3z"
    world = dataclasses.replace(run.settings.world, map="3s5z", jitter=0.0)
    rows = evaluate(run, episodes=32, play=["sampled"], world=world)
    assert np.mean([row["battle_won"] for row in rows]) > 0.5


def test_a_shipped_policy_can_be_watched_right_away(working_folder, capsys):
    assert run_command(["watch", "spread", "--agents", "3", "--steps", "4", "--to", "three.gif"]) == 0
    assert os.path.getsize("three.gif") > 1000


@pytest.mark.parametrize("name", shipped_policies())
def test_a_shipped_policy_is_opened_by_its_name(name, working_folder):
    run = open_run(name)
    assert (run.path, run.name, run.policy_alone) == (SHIPPED / name, name, True)
    assert list(working_folder.iterdir()) == []  # only an evaluation needs a folder to write to
    copy = own_copy(run)
    assert copy.path == Path("runs/shipped") / name
    assert open_run(name) == own_copy(copy) == copy
    policy, step = load_policy(name)
    assert step >= run.settings.total_steps
    assert getattr(policy, "mask", None) == getattr(run.settings.policy, "mask", None)
    for ours, again in zip(jax.tree.leaves(policy), jax.tree.leaves(load_policy(run.path)[0]), strict=True):
        np.testing.assert_array_equal(ours, again)


def test_a_name_that_does_not_ship_is_one_sentence(working_folder):
    with pytest.raises(UserError, match="spreads is not a run"):
        load_policy("spreads")


def test_another_versions_copy_is_not_mixed_up_with_this_ones(working_folder):
    run = own_copy(find_runs(["spread"])[0])
    description = run.path / "policy.json"
    description.write_text(description.read_text().replace("format", "other"))
    with pytest.raises(UserError, match="holds the policy of another version; move it away"):
        find_runs(["spread"])


def test_a_folder_of_that_name_comes_first(working_folder, trained):
    os.symlink(trained.path, "spread")
    assert find_runs(["spread"])[0].settings == trained.settings
