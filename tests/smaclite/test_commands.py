"""SMAClite from the command line: train, evaluate on other maps, watch, replay, bench."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from diamond_attention import speed
from diamond_attention.command_line import run_command
from diamond_attention.evaluation import evaluate as evaluation
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.reports import battle_movie
from diamond_attention.reports.battle_movie import FRAMES_PER_SECOND, RecordedBattle, draw_frames
from diamond_attention.runs.assemble import build_policy
from diamond_attention.runs.record import open_run, read_rows
from diamond_attention.runs.settings import MAP, PolicySettings
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.picture import draw_battle, part_around
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.world import Smaclite, size_of

SMALL_POLICY = ["--policy.width", "8", "--ppo.envs", "4", "--ppo.steps", "8", "--ppo.batch", "16"]
TINY = [*SMALL_POLICY, "--ppo.epochs", "1", "--total-steps", "32", "--quiet"]


def sentence(capsys, *words: str) -> str:
    assert run_command(words) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    return said


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Path:
    """Trained for one update on the map with the fewest units, which compiles fastest."""
    out = tmp_path_factory.mktemp("smaclite") / "runs"
    assert run_command(["train", "smaclite", "--world.map", "2s_vs_1sc", *TINY, "--out", str(out)]) == 0
    return out


def test_training_takes_its_sizes_from_the_map(group):
    settings = json.loads((group / "seed_0" / "settings.json").read_text())["settings"]
    assert (settings["agents"], settings["tasks"]) == (MAP, MAP)
    assert settings["world"]["map"] == "2s_vs_1sc"
    (row,) = read_rows(group / "seed_0" / "metrics.csv")
    assert "battle_won" in row


def test_a_policy_is_evaluated_on_a_map_it_has_never_seen(group, capsys):
    file = group / "seed_0" / "episodes.csv"
    assert run_command(["evaluate", str(group), "--episodes", "3"]) == 0
    assert "2s_vs_1sc" in capsys.readouterr().out
    words = ["--map", "3s_vs_5z", "--jitter", "0.5", "--episodes", "2", "--sampled", "--json"]
    assert run_command(["evaluate", str(group), *words]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["map"], line["jitter"], line["measure"], line["played_on"]) == (
        "3s_vs_5z",
        "0.5",
        "battle_won",
        [3, 5],
    )
    assert line["trained_on"] == "2s_vs_1sc"
    rows = read_rows(file)
    assert [row["map"] for row in rows] == ["2s_vs_1sc"] * 6 + ["3s_vs_5z"] * 2
    assert [row["jitter"] for row in rows] == ["0.0"] * 6 + ["0.5"] * 2
    # Other starts are another condition, kept apart in the table.
    assert run_command(["table", str(group)]) == 0
    printed = capsys.readouterr().out
    assert "Win rate" in printed
    assert "3s_vs_5z ±0.5" in printed


def test_of_several_maps_each_is_played_by_itself(group, monkeypatch):
    played = []

    def play(world, policy, sizes, episodes, *_):
        played.append((world.map, world.time_limit, tuple(sizes)))
        return [{"length": np.ones(episodes), "battle_won": np.zeros(episodes)} for _ in sizes]

    monkeypatch.setattr(evaluation, "play_sizes", play)
    monkeypatch.setattr(evaluation, "append_rows", lambda *_: None)
    run, maps = open_run(group / "seed_0"), ("2s_vs_1sc", "3s_vs_5z")
    both = Smaclite(",".join(maps))
    rows = evaluate(run, episodes=2, play=["greedy"], world=both)
    assert played == [(name, Smaclite(name).time_limit, (size_of(name),)) for name in maps]
    assert [row["map"] for row in rows] == ["2s_vs_1sc"] * 2 + ["3s_vs_5z"] * 2
    # A size says which map is meant.
    rows = evaluate(run, episodes=1, play=["greedy"], world=both, sizes=[size_of("3s_vs_5z")])
    assert [row["map"] for row in rows] == ["3s_vs_5z"]


def test_what_cannot_be_played_is_one_sentence(group, capsys):
    assert "27m_vs_30m" in sentence(capsys, "evaluate", str(group), "--map", "8m")
    assert "the map decides" in sentence(capsys, "evaluate", str(group), "--agents", "4")
    assert "world.jitter is -1" in sentence(capsys, "evaluate", str(group), "--jitter", "-1")
    assert "the map decides" in sentence(capsys, "train", "smaclite", "--agents", "4")
    assert "one map" in sentence(capsys, "watch", str(group), "--map", "2s3z,3s5z")
    assert ".gif or .png" in sentence(capsys, "watch", str(group), "--to", "battle.avi")


def test_a_battle_is_filmed(group, tmp_path, capsys):
    movie = tmp_path / "films" / "battle.gif"
    assert run_command(["watch", str(group), "--to", str(movie)]) == 0
    assert capsys.readouterr().out.strip() == str(movie)
    with Image.open(movie) as film:
        assert film.n_frames > 10
        assert film.info["duration"] == round(1000 / FRAMES_PER_SECOND, -1)
        first = np.asarray(film.convert("RGB"))
        assert (first[0, 0] == 255).all()  # the title stands on white
        film.seek(film.n_frames - 1)
        assert (first != np.asarray(film.convert("RGB"))).any()


def test_places_by_rank_are_shown_only_where_ranks_mean_something():
    world = Smaclite("2s_vs_1sc", max_agents=2, max_tasks=1)
    states = jax.tree.map(lambda values: np.asarray(values)[None], battle.start(scenario_of(world.map)))
    ranks = np.array([[0.2, 0.7]])
    with_ranks, without = (RecordedBattle(world.map, states, heard, won=False, steps=1) for heard in (ranks, None))
    (one,), (other,) = draw_frames(with_ranks), draw_frames(without)
    assert (np.asarray(one) != np.asarray(other)).any()


@pytest.mark.parametrize(("mask", "shown"), [("rank", True), ("none", False), ("dropout", False)])
def test_a_policy_without_ranks_leaves_none_in_a_recorded_battle(mask, shown, monkeypatch):
    """The battle itself is not played: what is recorded of ranks depends on the policy alone."""
    world = Smaclite("2s_vs_1sc", max_agents=2, max_tasks=1)
    policy = build_policy(world, PolicySettings(width=8, mask=mask), jax.random.key(0))
    state = jax.tree.map(np.asarray, battle.start(scenario_of(world.map)))
    tick = jax.tree.map(lambda values: values[None, None], state)
    played = (state, tick, np.array([[0.2, 0.7]]), np.array([True]), np.array([False]))
    monkeypatch.setattr(battle_movie, "_play", lambda *_: played)
    recorded = battle_movie.play_battle(battle_movie._Conditions(world), policy, jax.random.key(0))
    assert (recorded.ranks is not None) == shown


def test_pictures_show_who_lives_and_who_does_not():
    scenario = scenario_of("MMM2")
    state = battle.start(scenario)
    full = np.asarray(draw_battle(scenario, state, "start", places=range(1, 11)))
    without = np.asarray(draw_battle(scenario, state._replace(alive=state.alive.at[3].set(False)), "start"))
    assert full.shape == without.shape
    assert (full != without).any()
    part = part_around(scenario, np.array([[30.0, 12.0], [31.0, 13.0]]))
    # At the edge of the map the picture keeps its size.
    assert part.east <= 32
    assert part.east - part.west == pytest.approx(16)


def test_replay_says_what_it_found(tmp_path, capsys):
    trace = Path(__file__).parent / "traces" / "2s_vs_1sc_01_inrange_eps.npz"
    assert run_command(["smaclite-replay", str(trace)]) == 0
    assert "32 of 32 steps match" in capsys.readouterr().out
    other = tmp_path / "other.npz"
    np.savez(other, hp=np.zeros(3))
    assert "not a SMAClite trace" in sentence(capsys, "smaclite-replay", str(other))
    assert "at least one" in sentence(capsys, "smaclite-replay")


def test_bench_of_battles_stands_beside_the_original(tmp_path, monkeypatch, capsys):
    """Training, parts and decisions are measured as for every world, and compile for a minute, so not here."""
    training = {"seeds": 1, "compile_seconds": 2.0, "updates_per_second": 3.0, "steps_per_second": 4.0}
    parts = dict.fromkeys(("update_seconds", "rollout_seconds", "epochs_seconds", "simulation_seconds"), 1.0)
    monkeypatch.setattr(speed, "measure_training", lambda settings, seeds: training | {"program_bytes": 5 * 2**20})
    monkeypatch.setattr(speed, "measure_parts", lambda settings: parts)
    monkeypatch.setattr(speed, "measure_decisions", lambda settings: [])
    monkeypatch.setattr(speed, "BATTLES", {"cpu": {"2s_vs_1sc": (3,)}})
    monkeypatch.setattr(speed, "SECONDS_A_TURN", 0.01)
    assert run_command(["bench", "smaclite", "--to", str(tmp_path / "b.json")]) == 0
    measured = json.loads((tmp_path / "b.json").read_text())
    (row,) = measured["simulation"]
    assert (row["map"], row["envs"], row["agents"], row["enemies"]) == ("2s_vs_1sc", 3, 2, 1)
    assert row["steps_per_second"] > 0
    # 64 steps first, two calls of 16 to see how long one takes, then three turns.
    assert row["steps_played"] >= 3 * (64 + 5 * 16)
    assert row["lines_dropped"] == 0
    assert row["program_bytes"] > 0
    assert measured["device_memory_peak_bytes"] is None  # nobody counts it on the CPU
    assert "vmas" not in measured["environment"]["versions"]
    assert measured["preset"] == "smaclite"
    assert {row["device"] for row in measured["recorded_elsewhere"]} == {"cpu"}
    printed = capsys.readouterr().out
    assert "2s_vs_1sc, 3 battles" in printed
    assert "SMAClite, numpy, recorded elsewhere" in printed
    assert "5 MiB" in printed
    assert "VMAS" not in printed


def test_the_original_stands_beside_a_gpu_too():
    """It has no version for one."""
    beside = {(row["device"], row["steps_per_second"]) for row in speed.recorded_beside("smaclite", "gpu")}
    assert {("cpu", 56.0), ("gpu", 2.2e7)} <= beside
    assert ("cpu", 3.1e4) not in beside


def test_an_evaluation_moves_the_units_of_every_battle(group):
    run = open_run(group / "seed_0")
    seldom = Smaclite("2s_vs_1sc", jitter=2.0, jitter_share=0.0)
    always = Smaclite("2s_vs_1sc", jitter=2.0)
    rows = [evaluate(run, episodes=2, play=["sampled"], world=world) for world in (seldom, always)]
    assert rows[0] == rows[1]
    # Unless asked to, none: whatever it was trained on, battles start as the map says.
    trained_so = dataclasses.replace(run, settings=dataclasses.replace(run.settings, world=always))
    as_the_map_says = evaluate(trained_so, episodes=2, play=["sampled"])
    assert {row["jitter"] for row in as_the_map_says} == {0.0}
    assert [row["return"] for row in as_the_map_says] != [row["return"] for row in rows[1]]


def test_a_movie_starts_as_the_map_says(group):
    run = open_run(group / "seed_0")
    trained_so = dataclasses.replace(
        run, settings=dataclasses.replace(run.settings, world=Smaclite("2s_vs_1sc", jitter=2.0))
    )
    recorded = battle_movie.record_battle(trained_so)
    np.testing.assert_allclose(recorded.states.position[0], scenario_of("2s_vs_1sc").start)
