"""Evaluating particle worlds: one program for all sizes, R in the tables, and sentences for what cannot be played."""

import csv
import json
import shutil
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention import PolicySettings, Settings, TeamSize, evaluate, train
from diamond_attention.actions import random_actions
from diamond_attention.bench import report, simulation, timing, training
from diamond_attention.command_line import run_command
from diamond_attention.evaluation import evaluate as evaluation
from diamond_attention.evaluation import vmas_bridge
from diamond_attention.evaluation.statistics import score_interval
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import MASKS
from diamond_attention.policies.kind import described_by_its_name
from diamond_attention.policies.registry import POLICIES
from diamond_attention.reports import tables
from diamond_attention.runs import presets
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.group import create_group
from diamond_attention.runs.restore import load_run
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Physics
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

SMALL = Settings(
    world=Spread(),
    agents="2",
    policy=PolicySettings(width=4),
    ppo=PpoSettings(envs=4, steps=2, batch=8),
    total_steps=16,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def spread(folder):
    return train(SMALL, [0, 1], folder / "spread")


@pytest.fixture(scope="module")
def food(folder):
    return train(replace(SMALL, world=Food(caution=5.0)), [0], folder / "food")


def test_all_sizes_and_seeds_share_one_program_for_each_way_of_playing(spread):
    before = evaluation._play_batch._cache_size()
    for run in spread:
        evaluate(run, sizes=[TeamSize(n, n) for n in (2, 3, 5)], episodes=3)
    assert evaluation._play_batch._cache_size() - before == 2


def test_rows_say_which_simulator_played(spread):
    rows = evaluate(spread[0], episodes=2)
    assert list(rows[0])[:3] == ["checkpoint", "simulator", "agents"]
    assert {row["simulator"] for row in rows} == {"own"}


def test_the_table_reports_the_return_of_an_agent_and_the_measures(spread, capsys):
    for run in spread:
        evaluate(run, sizes=[TeamSize(3, 3)], episodes=4, seed=9)
    lines = tables.table_lines(spread)
    line = next(line for line in lines if line.played_on == (3, 3) and line.play == "greedy")
    # By hand, from the file; episodes of other tests are in it too.
    per_seed, collisions = [], []
    for run in spread:
        rows = {
            (row["seed"], row["episode"]): row
            for row in read_rows(run.episodes)
            if (row["agents"], row["play"]) == ("3", "greedy")
        }
        per_seed.append(np.mean([float(row["return"]) / 3 for row in rows.values()]))
        collisions.append(np.mean([float(row["collisions"]) for row in rows.values()]))
    assert line.measure == "R"
    assert line.per_seed == pytest.approx(per_seed)
    assert line.interval == pytest.approx(score_interval(per_seed))
    assert line.measures["collisions"]["per_seed"] == pytest.approx(collisions)
    assert set(line.measures) == {"collisions", "covered", "distance", "length"}

    tables.print_table(lines)
    printed = capsys.readouterr().out
    assert "R, the return divided by the agents" in printed
    assert "Success" not in printed
    assert line.interval.with_decimals(1) in printed
    *sentences, table = tables.as_markdown(lines).split("\n\n")
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "R, the return divided by the agents",
        "collisions",
        "covered",
    ]
    headings = table.splitlines()[0]
    for heading in ("R greedy π*", "R sampled π", "collisions π*/π", "covered π*/π"):
        assert heading in headings
    assert "simulator" not in headings
    assert "chance" not in headings
    json.dumps(tables.as_json(lines))


def test_food_prints_its_collections_and_stands_in_a_table_of_its_own(spread, food, capsys):
    for run in (*spread, *food):
        evaluate(run, episodes=2)
    text = tables.as_markdown(tables.table_lines([*spread, *food]))
    of_food, of_spread = (part for part in text.split("\n\n") if part.startswith("|"))
    assert "collections π*/π" in of_food
    assert "covered" not in of_food
    assert "covered π*/π" in of_spread
    cells = [cell.strip() for cell in of_food.splitlines()[2].split("|")]
    assert "[" not in cells[6]  # one seed has no interval over seeds


def test_what_a_team_learned_with_does_not_change_its_score(food):
    # Ten agents on a square of side two touch each other soon.
    rows = evaluate(food[0], sizes=[TeamSize(10, 2)], episodes=4)
    assert all(row["collisions"] > 0 for row in rows)
    for row in rows:
        by_rule = -10 * row["distance"] + 20 * row["collections"] - row["collisions"]
        assert row["return"] == pytest.approx(by_rule, rel=1e-4)


def test_a_simulator_is_named_where_it_matters_and_kept_apart(spread):
    rows = evaluate(spread[0], sizes=[TeamSize(2, 2)], episodes=2)
    elsewhere = [{**row, "simulator": "vmas", "return": 2 * row["return"]} for row in rows]
    lines = tables.table_lines(spread[:1], {spread[0].path: [*rows, *elsewhere]})
    means = {(line.simulator, line.play): line.mean for line in lines}
    for play in ("greedy", "sampled"):
        assert means["vmas", play] == pytest.approx(2 * means["own", play])
    assert "| simulator |" in tables.as_markdown(lines)


@dataclass(frozen=True)
class Strange:
    kind: str = "strange"


def test_a_kind_of_policy_the_tables_do_not_know_is_listed_last_under_its_name(spread, monkeypatch):
    rows = evaluate(spread[0], episodes=1)
    diamond = POLICIES["diamond"]
    build = lambda settings, interface, key: diamond.build(PolicySettings(width=4), interface, key)  # noqa: E731
    monkeypatch.setitem(POLICIES, "strange", diamond._replace(describe=described_by_its_name, build=build))
    strange, known = (
        replace(spread[0], settings=replace(spread[0].settings, policy=policy))
        for policy in (Strange(), PolicySettings(width=4, mask="none"))
    )
    lines = tables.table_lines([strange, known], {spread[0].path: rows})
    assert [row[0] for row in tables.text_rows(lines)] == ["no mask", "strange"]
    assert MASKS["none"].place < MASKS["signed"].place < lines[-1].place


def test_rows_from_before_there_were_simulators_are_read_but_not_mixed(spread, tmp_path, capsys):
    shutil.copytree(spread[0].path, tmp_path / "older")
    run = open_run(tmp_path / "older")
    evaluate(run, episodes=2)
    rows = read_rows(run.episodes)
    new = tables.table_lines([run])
    with open(run.episodes, "w", newline="") as file:
        writer = csv.DictWriter(file, [name for name in rows[0] if name != "simulator"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    assert tables.table_lines([run]) == new
    assert run_command(["evaluate", str(run.path), "--episodes", "1"]) == 2
    assert "other columns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("world", "arguments", "sentence"),
    [
        (Spread(), ["--simulator", "mujoco"], "--simulator is 'mujoco'; it must be one of own, vmas."),
        (Spread(), ["--agents", "0"], "--agents is '0'"),
        (Spread(), ["--agents", "5000"], "sizes above 4096"),
        (Spread(), ["--agents", "3", "--tasks", "4"], "one landmark for each agent"),
        (Spread(), ["--agents", "2,40", "--simulator", "vmas"], "at most 32"),
        (Spread(), ["--simulator", "vmas"], 'pip install "diamond-attention[vmas]"'),
        (Food(), ["--simulator", "vmas"], "the run's world is food"),
        (Xor(), ["--simulator", "vmas"], "the run's world is xor"),
        (Spread(physics=Physics(mass=2.0)), ["--simulator", "vmas"], "world.physics.mass is 2.0"),
        (Spread(collision_penalty=0.5), ["--simulator", "vmas"], "world.collision_penalty is 0.5"),
        (Spread(start="depot"), ["--simulator", "vmas"], "world.start is depot and VMAS has only scattered"),
    ],
)
def test_what_cannot_be_played_is_one_sentence_and_status_2(
    tmp_path, monkeypatch, capsys, world, arguments, sentence
):
    monkeypatch.setattr(vmas_bridge, "Environment", None)
    (run,) = create_group(tmp_path / "group", "", replace(SMALL, world=world), [0], overwrite=False)
    assert run_command(["evaluate", str(run.path), *arguments]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not run.episodes.exists()


def test_weights_of_another_world_are_refused(spread, tmp_path, capsys):
    arguments = ["--policy.width", "4", "--from", str(spread[0].path), "--out", str(tmp_path / "xor"), "--quiet"]
    for other in ("xor", "food"):  # food's weights would even fit
        assert run_command(["train", other, *arguments]) == 2
        message = capsys.readouterr().err
        assert f"which was trained on spread, and this run is of {other}; name a run of the same world." in message
        assert message.count("\n") == 1


def test_a_checkpoint_of_another_world_is_refused(spread, tmp_path, capsys):
    (run,) = create_group(tmp_path / "xor", "", replace(SMALL, world=Xor()), [0], overwrite=False)
    shutil.copytree(spread[0].checkpoints, run.checkpoints)
    assert run_command(["evaluate", str(run.path), "--episodes", "1"]) == 2
    message = capsys.readouterr().err
    assert "settings" in message
    assert message.count("\n") == 1


# --- diamond bench --------------------------------------------------------------------------------


@pytest.mark.long
def test_bench_of_a_particle_world_measures_all_four(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(presets.PRESETS, "small", ("small", SMALL))
    monkeypatch.setattr(vmas_bridge, "Environment", None)
    monkeypatch.setattr(report, "ENVS", {"cpu": (8, 16)})
    monkeypatch.setattr(timing, "SECONDS_A_TURN", 0.01)
    monkeypatch.setattr(training, "SECONDS_OF_UPDATES", 0.01)
    assert run_command(["bench", "small", "--to", str(tmp_path / "b.json")]) == 0
    measured = json.loads((tmp_path / "b.json").read_text())
    assert [row["envs"] for row in measured["simulation"]] == [8, 16]
    assert all(row["vmas_steps_per_second"] is row["times_vmas"] is None for row in measured["simulation"])
    assert measured["vmas"].startswith("left out")
    assert [row["seeds"] for row in measured["training"]] == [1]
    trained, parts = measured["training"][0], measured["parts"]
    assert trained["updates_timed"] >= 3
    assert trained["steps_per_second"] == pytest.approx(4 * 2 * trained["updates_per_second"])
    assert parts["epochs_seconds"] == pytest.approx(max(0.0, parts["update_seconds"] - parts["rollout_seconds"]))
    assert [row["agents"] for row in measured["decisions"]] == [4, 16, 64]
    assert all(0 < row["median_milliseconds"] < 10 for row in measured["decisions"])
    printed = capsys.readouterr().out
    assert "left out" in printed
    assert "recorded elsewhere" in printed
    assert {row["device"] for row in measured["recorded_elsewhere"]} == {"cpu"}


def test_vmas_is_left_out_of_a_bench_with_a_reason(monkeypatch):
    assert "no world food" in simulation.vmas_used(Food())
    monkeypatch.setattr(vmas_bridge, "Environment", None)
    assert "not installed" in simulation.vmas_used(Spread())


def test_a_world_of_choices_is_given_only_legal_ones():
    """Three players of three actions in room for five: nobody picks a task that is not there."""
    world = Xor(max_agents=5, max_tasks=5)
    state = world.reset(jax.random.key(0), TeamSize(3, 3))
    views = world.views(state, jnp.zeros(5))
    actions = jax.vmap(lambda key: random_actions(world.action_kind, views, key))(
        jax.random.split(jax.random.key(1), 200)
    )
    assert set(np.unique(actions)) == {0, 1, 2}


def test_sizes_played_side_by_side_are_the_episodes_played_alone(spread, monkeypatch):
    policy = load_policy(spread[0])[0]
    world = padded(spread[0].settings.world, [TeamSize(5, 5)])
    sizes = [TeamSize(2, 2), TeamSize(5, 5)]
    conditions = evaluation.Conditions(world, greedy=False)
    together = evaluation.play_sizes(conditions, policy, sizes, 3, jax.random.key(0))
    for size, played in zip(sizes, together, strict=True):
        alone = evaluation.play_episodes(world, policy, size, 3, jax.random.key(0))
        np.testing.assert_allclose(played["return"], alone["return"], rtol=1e-3)
    # More episodes than fit a batch: the rest of the last batch is left out.
    monkeypatch.setattr(evaluation, "EPISODES_AT_ONCE", 4)
    split = evaluation.play_sizes(conditions, policy, sizes, 3, jax.random.key(0))
    for one, other in zip(split, together, strict=True):
        np.testing.assert_allclose(one["return"], other["return"], rtol=1e-3)


def test_a_failed_seed_is_not_exported(spread, tmp_path, capsys):
    shutil.copytree(spread[0].path, tmp_path / "failed")
    (tmp_path / "failed" / "failed.json").write_text(json.dumps({"sentence": "loss is not finite"}))
    assert run_command(["export", str(tmp_path / "failed"), "--to", str(tmp_path / "policy")]) == 1
    assert "loss is not finite" in capsys.readouterr().err
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("setting", ["half-width", "collision-penalty", "physics.mass"])
def test_numbers_that_are_none_are_refused(setting, capsys):
    assert run_command(["show", "spread", f"--world.{setting}", "nan"]) == 2
    assert f"world.{setting.replace('-', '_')} is nan; it must lie between" in capsys.readouterr().err


def test_a_crowd_is_not_drawn(spread, capsys):
    assert run_command(["watch", str(spread[0].path), "--agents", "5000"]) == 2
    assert "--agents is 5000; it must lie between 1 and 100." in capsys.readouterr().err


def test_a_critic_comes_with_the_scale_of_its_values(tmp_path):
    normalised = replace(SMALL, ppo=replace(SMALL.ppo, normalise_values=True))
    (source,) = train(normalised, [0], tmp_path / "source")
    theirs = load_run(source)[0]
    assert float(theirs.value_scale.weight) == pytest.approx(1 - 0.9**2)  # two updates, a tenth of it new in each
    (same,) = train(normalised, [0], tmp_path / "same", from_run=source.path)
    begun = load_run(same, "0")[0]
    assert float(begun.value_scale.mean) == float(theirs.value_scale.mean)
    np.testing.assert_array_equal(begun.weights.critic.value.weight, theirs.weights.critic.value.weight)
    (plain,) = train(SMALL, [0], tmp_path / "plain", from_run=source.path)
    begun = load_run(plain, "0")[0]
    np.testing.assert_array_equal(begun.weights.policy.head.mean.weight, theirs.weights.policy.head.mean.weight)
    assert not np.array_equal(begun.weights.critic.value.weight, theirs.weights.critic.value.weight)


def test_many_sizes_of_training_are_not_all_named():
    sizes = [TeamSize(n, n) for n in range(2, 8)]
    assert tables._trained_on(Spread(), sizes[:3]) == "2x2 3x3 4x4"
    assert tables._trained_on(Spread(), sizes) == "2x2 … 7x7 (6 sizes)"
