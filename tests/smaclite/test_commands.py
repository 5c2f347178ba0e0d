"""SMAClite from the command line: train, evaluate on other maps, watch, replay, bench."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from diamond_attention.bench import peers, report, timing
from diamond_attention.command_line import run_command
from diamond_attention.evaluation import evaluate as evaluation
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.evaluation.recording import Recording, record
from diamond_attention.reports import figures, films, gif
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.sizes import MAP
from diamond_attention.worlds.smaclite import battle, film
from diamond_attention.worlds.smaclite.picture import draw_battle, part_around
from diamond_attention.worlds.smaclite.scenario import TICKS_PER_STEP, scenario_of
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

    def play(conditions, policy, sizes, episodes, *_):
        world = conditions.world
        played.append((world.map, world.time_limit, tuple(sizes)))
        ended = {"length": np.ones(episodes), "return": np.zeros(episodes), "battle_won": np.zeros(episodes)}
        return [ended for _ in sizes]

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
    assert "name one to watch" in sentence(capsys, "watch", str(group), "--map", "2s3z,3s5z")
    assert ".gif, .mp4, .png" in sentence(capsys, "watch", str(group), "--to", "battle.avi")


@pytest.fixture(scope="module")
def recording(group) -> Recording:
    """A whole battle of two stalkers against a spine crawler."""
    return record(open_run(group / "seed_0"), size_of("2s_vs_1sc"), seed=2)


@pytest.mark.long
def test_a_battle_is_filmed(group, recording, tmp_path, capsys):
    movie, still = tmp_path / "films" / "battle.gif", tmp_path / "battle.png"
    assert run_command(["watch", str(group), "--to", str(movie), "--seed", "2", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(movie)
    pictures = film.draw_frames(recording)
    with Image.open(movie) as opened:
        assert 10 < opened.n_frames <= len(pictures)  # pictures of which nothing changes are one that stays longer
        first = np.asarray(opened.convert("RGB")).astype(int)
        assert (first[0, 0] == 255).all()  # the title stands on white
        durations = []
        for frame in range(opened.n_frames):
            opened.seek(frame)
            durations.append(opened.info["duration"])
        each = round(1000 / film.FRAMES_PER_SECOND, -1)
        assert min(durations) == each
        assert sum(durations) - gif.END == pytest.approx(each * (len(pictures) - 1), rel=0.05)
        last = np.asarray(opened.convert("RGB")).astype(int)
    apart = [np.abs(np.asarray(picture).astype(int) - last).mean() for picture in (pictures[-1], pictures[0])]
    assert apart[0] < 0.2 * apart[1]  # up to the palette, the film ends as the battle did
    assert run_command(["watch", str(group), "--to", str(still), "--steps", "3", "--quiet"]) == 0
    with Image.open(still) as sheet:  # four moments
        assert all(side > 2 * of_one for side, of_one in zip(sheet.size, pictures[0].size, strict=True))


@pytest.mark.parametrize(("asked", "filmed"), [(None, None), (7, 7)])
def test_a_battle_is_filmed_whole_unless_asked_for_less(asked, filmed, recording, monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(films, "record", lambda *_, steps, **__: given.append(steps) or recording)
    monkeypatch.setattr(film, "draw_frames", lambda recording: [Image.new("RGB", (4, 4))] * 2)
    films.draw_film(recording.run, recording.size, tmp_path / "film.gif", steps=asked)
    assert given == [filmed]


def test_a_battle_replayed_tick_by_tick_ends_as_it_was_recorded(recording):
    ticks = film.ticks_of(recording)
    steps = recording.frames - 1
    assert len(ticks.alive) == 1 + steps * TICKS_PER_STEP
    for step in range(steps + 1):  # not only the last state: a step's last tick is where the next one begins
        kept = recording.world.battle(jax.tree.map(lambda values: values[step], recording.states))  # noqa: B023
        for name, there, here in zip(kept._fields, kept, ticks, strict=True):
            np.testing.assert_allclose(here[step * TICKS_PER_STEP], there, atol=1e-5, err_msg=f"{name}, {step}")


def test_a_film_shows_what_an_evaluation_plays(group, recording, monkeypatch):
    """An evaluation's first episode, filmed with its key: the same length, return, measures and winner."""
    run = open_run(group / "seed_0")
    (row,) = evaluate(run, episodes=1, play=["greedy"], seed=5)
    of_the_episode = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), run.seed), 0)
    monkeypatch.setattr(jax.random, "key", lambda seed: of_the_episode)
    filmed = record(run, recording.size)
    monkeypatch.undo()
    assert filmed.frames - 1 == row["length"]
    assert filmed.returns[-1] == pytest.approx(row["return"], rel=1e-4)
    assert {name: float(values[-1]) for name, values in filmed.measures.items()} == {
        name: row[name] for name in ("battle_won", "lines_dropped")
    }


def test_a_battle_that_is_cut_short_has_no_winner_yet(recording, monkeypatch):
    captions = []
    monkeypatch.setattr(film, "draw_battle", lambda scenario, state, caption, *_: captions.append(caption))
    film.draw_frames(recording)
    assert captions[-1] == f"step {recording.frames - 1}, not won"
    cut = recording._replace(
        **{
            name: jax.tree.map(lambda values: values[:4], getattr(recording, name))
            for name in ("states", "actions", "step_keys", "ranks", "measures")
        }
    )
    film.draw_frames(cut)
    assert captions[-1] == "step 3, not over yet"


@pytest.mark.parametrize(("mask", "shown"), [("rank", True), ("none", False), ("dropout", False)])
def test_places_by_rank_are_shown_only_where_ranks_mean_something(mask, shown, recording, monkeypatch):
    settings = recording.run.settings
    policy = dataclasses.replace(settings.policy, mask=mask)
    run = dataclasses.replace(recording.run, settings=dataclasses.replace(settings, policy=policy))
    given = []
    monkeypatch.setattr(film, "draw_battle", lambda *drawn: given.append(drawn[3]))
    film.draw_frames(recording._replace(run=run))
    first, second = recording.ranks[0]
    assert given[0] == (None if not shown else [1, 2] if first > second else [2, 1])
    assert all((places is not None) == shown for places in given)


def test_a_place_by_rank_can_be_seen():
    scenario = scenario_of("2s_vs_1sc")
    state = battle.start(scenario)
    with_places, without = (np.asarray(draw_battle(scenario, state, "start", places)) for places in ([2, 1], None))
    assert (with_places != without).any()


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
    inside = part_around(scenario, np.array([[15.0, 12.0], [16.0, 13.0]]))
    assert part.east - part.west == pytest.approx(inside.east - inside.west)


@pytest.mark.optimised
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
    training |= {"steps_per_update": 8}
    parts = dict.fromkeys(("update_seconds", "rollout_seconds", "epochs_seconds", "simulation_seconds"), 1.0)
    monkeypatch.setattr(report, "measure_training", lambda settings, seeds: training | {"program_bytes": 5 * 2**20})
    monkeypatch.setattr(report, "measure_parts", lambda settings: parts)
    monkeypatch.setattr(report, "measure_decisions", lambda settings: [])
    monkeypatch.setattr(report, "BATTLES", {"cpu": {"2s_vs_1sc": (3,)}})
    monkeypatch.setattr(timing, "SECONDS_A_TURN", 0.01)
    assert run_command(["bench", "smaclite", "--to", str(tmp_path / "b.json")]) == 0
    measured = json.loads((tmp_path / "b.json").read_text())
    (row,) = measured["simulation"]
    assert (row["map"], row["envs"], row["agents"], row["enemies"]) == ("2s_vs_1sc", 3, 2, 1)
    # 64 steps first, two calls of 16 to see how long one takes, then three turns.
    assert row["steps_played"] >= 3 * (64 + 5 * 16)
    assert row["lines_dropped"] == 0
    one_battle = sum(values.nbytes for values in jax.tree.leaves(battle.start(scenario_of("2s_vs_1sc"))))
    assert row["program_bytes"] >= 2 * 3 * one_battle  # three battles go in and come out
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
    beside = {(row["device"], row["steps_per_second"]) for row in peers.recorded_beside("smaclite", "gpu")}
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


def test_of_several_maps_the_one_with_that_size_is_filmed_and_drawn(group, tmp_path, capsys):
    run = open_run(group / "seed_0")
    both = dataclasses.replace(run.settings, world=Smaclite("2s_vs_1sc,3s_vs_5z", jitter=1.0, jitter_share=0.5))
    trained_so = dataclasses.replace(run, settings=both)
    for name in ("2s_vs_1sc", "3s_vs_5z"):
        world = record(trained_so, size_of(name), steps=1).world
        assert (world.map, world.jitter, world.time_limit) == (name, 0.0, Smaclite(name).time_limit)
    drawn = list(figures.draw_figures([trained_so], tmp_path))
    assert [Path(name).name for name in drawn] == ["attention_snapshots.png", "learning_curves.png"]
    assert all(Path(name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_a_movie_starts_as_the_map_says(group):
    run = open_run(group / "seed_0")
    trained_so = dataclasses.replace(
        run, settings=dataclasses.replace(run.settings, world=Smaclite("2s_vs_1sc", jitter=2.0))
    )
    recorded = record(trained_so, size_of("2s_vs_1sc"), steps=1)
    np.testing.assert_allclose(film.ticks_of(recorded).position[0], scenario_of("2s_vs_1sc").start)
