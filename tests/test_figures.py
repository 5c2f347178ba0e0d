"""Figures and movies of Simple Spread and Food Collection, from very small runs; numbers are checked, not pixels."""

import json
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from PIL import Image

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.evaluation.recording import record, size_to_show
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.reports import figures, films, gif, scores, snapshots
from diamond_attention.reports.anchors import anchors, programmed_team
from diamond_attention.reports.scenes import TokenScene, scene_of
from diamond_attention.runs.assemble import begin_learning
from diamond_attention.runs.checkpoint import save_checkpoint
from diamond_attention.runs.files import json_bytes
from diamond_attention.runs.folder import find_runs, open_run
from diamond_attention.runs.group import create_group
from diamond_attention.runs.rows import append_rows
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

CURVES = {0: (-900, -600), 1: (-1200, -300)}
"""Returns of each seed's two updates."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two seeds of every world with weights as they begin: nothing here depends on what was learned."""
    folder = tmp_path_factory.mktemp("runs")
    for world in (Spread(), Food(), Xor()):
        settings = Settings(world=world, agents="3", policy=DiamondSettings(width=8))
        for run in create_group(folder / world.name, "", settings, [0, 1], overwrite=False):
            save_checkpoint(run.checkpoints, begin_learning(settings, run.seed), step=0, score=None)
            rows = [{"update": i, "step": 128 * i, "return": value} for i, value in enumerate(CURVES[run.seed], 1)]
            append_rows(run.metrics, rows)
    return folder


@pytest.fixture
def copies(folder, tmp_path):
    """The same runs, for a test to write rows into."""
    return Path(shutil.copytree(folder, tmp_path / "runs"))


@pytest.fixture(scope="module")
def recording(folder):
    run = find_runs([folder / "spread"])[0]
    return record(run, size_to_show(run, run.settings.world, agents=4), steps=12, seed=3)


@pytest.fixture
def drawn(monkeypatch):
    """The figures themselves instead of files, by file name."""
    kept = {}

    def keep(figure, to):
        kept[to.name] = figure
        return to

    for module in (figures, scores, snapshots):
        monkeypatch.setattr(module, "save", keep)
    return kept


def row(agents, tasks, score, **others):
    """One row of episodes.csv in which everybody's R is `score`."""
    usual = {"checkpoint": 800, "agents": agents, "tasks": tasks, "play": "greedy", "dropout": "off", "seed": 0}
    return {**usual, "episode": 0, "length": 400, "return": score * agents, **others}


def with_other_mask(run_folder: Path, mask: str) -> None:
    for file in run_folder.glob("seed_*/settings.json"):
        values = json.loads(file.read_text())
        values["settings"]["policy"]["mask"] = mask
        file.write_bytes(json_bytes(values))


# --- recording ------------------------------------------------------------------------------------


def test_hidden_peers_have_no_weight_and_rows_sum_to_one(recording):
    for frame in range(recording.frames):
        for viewer in range(4):
            for block, of_block in enumerate(recording.weights):
                weights, visible = of_block[frame, viewer], recording.visible(frame, viewer, block)
                assert (weights[:, ~visible] == 0).all()
                assert (weights[:, visible] > 0).all()
                assert visible.sum() == recording.places[frame, viewer]
                np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    assert len(recording.weights) == 2  # the third block weighs tasks against each other
    np.testing.assert_allclose(recording.choices.sum(axis=-1), 1, atol=1e-5)


def test_frames_run_from_the_start_to_the_end_and_ranks_are_drawn_anew(recording):
    assert recording.frames == 13
    assert recording.returns[0] == 0
    assert (recording.states.velocities[0] == 0).all()
    rewards = jax.vmap(recording.world.judge)(recording.states)[0]
    np.testing.assert_allclose(recording.returns[1:], np.cumsum(rewards[1:]), rtol=1e-4)
    assert len(np.unique(recording.ranks)) == 13 * 4


def test_without_a_mask_nobody_is_hidden(copies):
    with_other_mask(copies / "spread", "none")
    run = find_runs([copies / "spread"])[0]
    watched = record(run, size_to_show(run, run.settings.world), steps=2)
    assert all((weights > 0).all() for weights in watched.weights)
    assert watched.visible(0, 0).all()


@pytest.mark.parametrize(
    ("trained", "asked", "shown"),
    [
        (("3", "same"), (None, None), (3, 3)),
        (("2:5", "same"), (None, None), (5, 5)),
        (("3", "same"), (8, None), (8, 8)),
        (("3", "same"), (None, 6), (6, 6)),
        (("3", "5"), (8, None), (8, 5)),
        (("3", "5"), (None, 2), (3, 2)),
        (("3", "same"), (8, 2), (8, 2)),
    ],
)
def test_the_size_shown_is_the_one_meant(folder, trained, asked, shown):
    run = find_runs([folder / "food"])[0]
    agents, tasks = trained
    run = replace(run, settings=replace(run.settings, agents=agents, tasks=tasks))
    assert size_to_show(run, run.settings.world, *asked) == TeamSize(*shown)


# --- scores ---------------------------------------------------------------------------------------


def test_a_score_is_the_return_divided_by_agents_of_the_newest_checkpoint_each_episode_once(copies):
    run = find_runs([copies / "spread"])[0]
    rows = [row(2, 2, -9, checkpoint=400), row(2, 2, -10), row(2, 2, -10), row(2, 2, -20, episode=1)]
    append_rows(run.episodes, [*rows, row(4, 4, -30), row(4, 4, -99, play="sampled")])
    (played,) = scores.played_by([run])
    assert (played.name, played.simulator, played.play, played.seeds) == ("rank mask", "own", "greedy", 1)
    assert sorted(played.scores) == [(2, 2), (4, 4)]
    np.testing.assert_allclose(played.scores[2, 2][run.seed], [-10, -20])
    np.testing.assert_allclose(played.scores[4, 4][run.seed], [-30])


def test_sampled_play_is_shown_where_there_is_no_other_and_says_so(copies):
    run = find_runs([copies / "spread"])[0]
    append_rows(run.episodes, [row(2, 2, -10, play="sampled")])
    (played,) = scores.played_by([run])
    assert played.name == "rank mask, sampled"


def test_policies_of_one_kind_are_told_apart_by_what_differs(copies):
    shutil.copytree(copies / "spread", copies / "wider")
    for file in (copies / "wider").glob("seed_*/settings.json"):
        file.write_bytes(json_bytes(json.loads(file.read_text().replace('"rank_hold": 1', '"rank_hold": 5'))))
    runs = find_runs([copies / "spread", copies / "wider"])
    for run in runs:
        append_rows(run.episodes, [row(2, 2, -10)])
    assert [way.name for way in scores.played_by(runs)] == ["rank mask, rank_hold=1", "rank mask, rank_hold=5"]


def test_team_size_shows_means_over_seeds_both_simulators_and_the_oracles(copies, drawn):
    for run in find_runs([copies / "spread"]):
        rows = [row(n, n, -50 * n * (1 + run.seed), simulator=s) for n in (2, 3, 8) for s in ("own", "vmas")]
        append_rows(run.episodes, rows)
    assert scores.draw_team_sizes(find_runs([copies / "spread"]), Path("team_size.png"))
    (axes,) = drawn["team_size.png"].axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["rank mask"], [-150, -225, -600])
    label, oracle = programmed_team(Spread())
    assert oracle in (anchors(Spread(), "assigned"), anchors(Spread(), "avoiding"))
    np.testing.assert_allclose(lines[label], [oracle[n, n].mean for n in (2, 3, 8)])
    np.testing.assert_allclose(
        lines["bound (nobody brakes or collides)"], [anchors(Spread(), "bound")[n, n].mean for n in (2, 3, 8)]
    )
    assert {line.get_linestyle() for line in axes.lines} >= {"-", "--"}
    assert "dashed: our own physics" in axes.get_title()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "3\ntrained", "8"]
    assert axes.get_ylim()[0] < -800  # the worse seed at eight


def test_a_policy_played_on_our_own_physics_alone_still_has_its_name(copies, drawn):
    shutil.rmtree(copies / "spread" / "seed_1")
    shutil.copytree(copies / "spread", copies / "other")
    with_other_mask(copies / "other", "none")
    runs = find_runs([copies / "spread", copies / "other"])
    for run, simulator in zip(runs, ("vmas", "own"), strict=True):
        append_rows(run.episodes, [row(n, n, -5, simulator=simulator) for n in (2, 3)])
    scores.draw_team_sizes(runs, Path("team_size.png"))
    (axes,) = drawn["team_size.png"].axes
    assert {"rank mask", "no mask"} <= {text.get_text() for text in axes.get_legend().get_texts()}


def test_large_teams_have_a_panel_of_their_own(copies, drawn):
    for run in find_runs([copies / "spread"]):
        append_rows(run.episodes, [row(n, n, -(n**2) * n) for n in (2, 8, 16, 64)])
    scores.draw_team_sizes(find_runs([copies / "spread"]), Path("team_size.png"))
    small, large = drawn["team_size.png"].axes
    assert [axes.get_xticks().tolist() for axes in (small, large)] == [[2, 8], [16, 64]]
    assert small.get_ylim()[0] > -1500
    assert large.get_ylim()[0] < -4000


def test_one_large_team_shares_the_panel(copies, drawn):
    for run in find_runs([copies / "spread"]):
        append_rows(run.episodes, [row(n, n, -(n**2) * n) for n in (2, 3, 16)])
    scores.draw_team_sizes(find_runs([copies / "spread"]), Path("team_size.png"))
    (axes,) = drawn["team_size.png"].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "3\ntrained", "16"]


def test_lines_of_one_colour_have_markers_of_their_own(copies):
    with_other_mask(copies / "spread", "dropout")
    one, other = find_runs([copies / "spread"])[:2]
    other = replace(other, settings=replace(other.settings, total_steps=2 * other.settings.total_steps))
    append_rows(one.episodes, [row(2, 2, -5, dropout="on"), row(2, 2, -9)])
    append_rows(other.episodes, [row(2, 2, -7)])  # off only
    assert sorted(way.twins for way in scores.played_by([one, other])) == [0, 1, 2]


def test_random_play_does_not_flatten_the_good_ones(copies, drawn):
    for run in find_runs([copies / "spread"]):
        append_rows(run.episodes, [row(n, n, -40 * n) for n in (2, 8)])
    scores.draw_team_sizes(find_runs([copies / "spread"]), Path("team_size.png"))
    (axes,) = drawn["team_size.png"].axes
    assert axes.get_ylim()[0] > anchors(Spread(), "random")[8, 8].mean
    assert any("off the scale" in line.get_label() for line in axes.lines)


def test_the_heatmap_has_mean_and_spread_over_episodes_and_the_oracle_beside_it(copies, drawn):
    for run in find_runs([copies / "food"]):
        sizes = [(2, 2), (2, 4), (4, 2), (4, 4)]
        append_rows(run.episodes, [row(n, k, -10 * n * k - 8 * e, episode=e) for n, k in sizes for e in (0, 1)])
    assert scores.draw_heatmap(find_runs([copies / "food"]), Path("heatmap.png"))
    ours, oracle, _ = drawn["heatmap.png"].axes
    assert "2 training seeds, 2 episodes each" in ours.get_title()
    assert [text.get_text() for text in ours.texts] == ["−44\n±4", "−84\n±4", "−84\n±4", "−164\n±4"]
    assert len(oracle.texts) == 4
    assert oracle.images[0].get_array()[1, 0] == pytest.approx(programmed_team(Food())[1][2, 4].mean)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.long
def test_figures_of_both_worlds_say_what_is_missing_and_draw_it_once_it_is_there(copies, tmp_path, capsys):
    both = [str(copies / "spread"), str(copies / "food")]
    assert run_command(["figure", *both, "--to", str(tmp_path / "first")]) == 0
    said = capsys.readouterr()
    assert "team_size.png is left out" in said.err
    assert "heatmap.png is left out" in said.err
    assert [Path(line).name for line in said.out.splitlines()] == [
        "attention_snapshots_spread.png",
        "attention_snapshots_food.png",
        "learning_curves.png",
    ]
    for run in find_runs(both):
        more = [row(2, 3, -5), row(3, 2, -5)] if run.settings.world.name == "food" else []
        append_rows(run.episodes, [row(2, 2, -5), row(3, 3, -7), *more])
    assert run_command(["figure", *both, "--to", str(tmp_path / "second")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert {"team_size.png", "heatmap.png"} <= {Path(line).name for line in said.out.splitlines()}
    for line in said.out.splitlines():
        assert Path(line).read_bytes().startswith(b"\x89PNG")
    silent = find_runs(both)[0]
    silent.episodes.unlink()
    assert run_command(["figure", *both, "--to", str(tmp_path / "third")]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"{silent.path} ")
    assert "diamond evaluate" in said


def test_a_larger_team_can_be_shown(folder, drawn):
    run = find_runs([folder / "spread"])[0]
    list(figures.draw_figures([run], Path("here"), agents=5))
    axes = drawn["attention_snapshots.png"].axes
    assert len(axes) == 5 * (1 + 5) + 1  # five moments of a world and five viewers, and the scale of the weights


def test_the_learning_curve_is_the_return_divided_by_agents(folder, drawn):
    runs = find_runs([folder / "spread"])
    figures.draw_learning_curves(runs, Path("curves.png"))
    (axes,) = drawn["curves.png"].axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [-350, -150])
    assert axes.get_ylabel().startswith("return per agent\nof training episodes of 400 steps")


def test_runs_with_other_settings_have_learning_curves_of_their_own(folder, drawn):
    one, other = find_runs([folder / "food"])[:2]
    careful = replace(other, settings=replace(other.settings, world=replace(other.settings.world, caution=5.0)))
    figures.draw_learning_curves([one, careful], Path("curves.png"))
    (axes,) = drawn["curves.png"].axes
    labels = [line.get_label() for line in axes.lines]
    assert [label.split(", ", 1)[1] for label in labels] == ["world.caution=1.0, 1 seed", "world.caution=5.0, 1 seed"]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]


# --- movies ---------------------------------------------------------------------------------------


def test_a_movie_has_a_frame_a_step_and_stays_small(folder, tmp_path, capsys):
    to = tmp_path / "new" / "food.gif"
    options = ["--agents", "5", "--tasks", "2", "--steps", "20", "--to", str(to), "--frames-per-second", "10"]
    options += ["--quiet"]
    assert run_command(["watch", str(folder / "food"), *options]) == 0
    assert capsys.readouterr().out.strip() == str(to)
    with Image.open(to) as film:
        assert film.n_frames == 21
        assert film.info["duration"] == 100
        assert film.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
        film.seek(20)
        assert film.info["duration"] == gif.END  # time to see how it ended
        last = np.asarray(film.convert("RGB")).astype(int)
    assert to.stat().st_size < 21 * 20_000
    run = find_runs([folder / "food"])[0]
    stage = films._Stage(record(run, TeamSize(5, 2), steps=20))
    apart = [np.abs(np.asarray(stage[frame]).astype(int) - last).mean() for frame in range(21)]
    assert apart[20] < min(0.5, *apart[:20])  # put together from differences, the last frame is the last and no other
    still = tmp_path / "food.png"
    assert run_command(["watch", str(folder / "food"), *options[:6], "--to", str(still)]) == 0
    with Image.open(still) as picture:
        assert picture.size == (round(1.6 * last.shape[1]), round(1.6 * last.shape[0]))


def test_a_world_without_a_scene_of_its_own_is_drawn_as_agents_tasks_and_lines(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(["watch", str(folder / "xor"), "--agents", "4", "--quiet"]) == 0
    with Image.open("xor.gif") as film:
        assert film.n_frames == 2  # a game of one step: before it, and after
    assert run_command(["watch", str(folder / "xor"), "--to", "xor.png", "--sampled", "--quiet"]) == 0
    run = find_runs([folder / "xor"])[0]
    watched = record(run, TeamSize(4, 5))
    assert scene_of(run.settings.world) is TokenScene
    axes = figures.plt.figure().add_axes((0, 0, 1, 1))
    scene = scene_of(run.settings.world)(axes, watched, names=False, text_size=9)
    scene.show(0)
    (lines,) = (collection for collection in axes.collections if isinstance(collection, LineCollection))
    # Every agent to every task, as dark as its weight.
    np.testing.assert_allclose(lines.get_colors()[:, 3], watched.choices[0].ravel(), atol=1e-6)
    np.testing.assert_allclose(watched.choices.sum(axis=-1), 1, atol=1e-5)
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.isdigit()][-4:] == [str(place) for place in watched.places[0]]
    assert {"agents", "actions"} <= set(texts)
    assert "action" in scene.legend


@pytest.mark.parametrize(
    ("world", "options", "sentence"),
    [
        ("spread", ["--to", "film.avi"], ".gif, .mp4, .png"),
        ("spread", ["--to", "film"], ".gif, .mp4, .png"),
        ("spread", ["--agents", "3", "--tasks", "2"], "one landmark for each agent"),
        ("spread", ["--agents", "0"], "--agents is 0; it must lie between 1 and 100."),
        ("spread", ["--steps", "0"], "--steps is 0"),
        ("spread", ["--frames-per-second", "0"], "--frames-per-second is 0"),
        ("spread", ["--seed", "-1"], "--seed is -1"),
        ("nowhere", [], "holds no run"),
    ],
)
def test_what_cannot_be_filmed_is_one_sentence_and_status_2(
    folder, tmp_path, monkeypatch, capsys, world, options, sentence
):
    monkeypatch.chdir(tmp_path)
    assert run_command(["watch", str(folder / world), *options]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_mp4_needs_ffmpeg_and_then_hands_it_every_frame(folder, tmp_path, monkeypatch, capsys):
    to = tmp_path / "film.mp4"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if the extra were not installed
    assert run_command(["watch", str(folder / "spread"), "--to", str(to)]) == 2
    assert "write a .gif instead" in capsys.readouterr().err
    ffmpeg = tmp_path / "ffmpeg"
    # The file to write is its last argument.
    ffmpeg.write_text('#!/bin/sh\nfor to; do :; done\n/bin/cat > "$to"\n')
    ffmpeg.chmod(ffmpeg.stat().st_mode | stat.S_IXUSR)
    assert run_command(["watch", str(folder / "spread"), "--to", str(to), "--steps", "3"]) == 0
    width, height = films._Stage(record(find_runs([folder / "spread"])[0], TeamSize(3, 3), steps=1))[0].size
    assert width % 2 == height % 2 == 0
    assert to.stat().st_size == 4 * width * height * 3  # four frames of three bytes a pixel
    ffmpeg.write_text("#!/bin/sh\nexit 1\n")
    assert run_command(["watch", str(folder / "spread"), "--to", str(to), "--steps", "3"]) == 2


def test_the_extra_brings_an_ffmpeg_of_its_own(folder, tmp_path, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("PATH", str(tmp_path))
    to = tmp_path / "film.mp4"
    assert run_command(["watch", str(folder / "spread"), "--to", str(to), "--steps", "3", "--quiet"]) == 0
    assert to.read_bytes()[4:8] == b"ftyp"


def test_an_unwritable_place_is_named(folder, tmp_path):
    run = open_run(folder / "spread" / "seed_0")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        films.draw_film(run, TeamSize(3, 3), tmp_path / "file" / "film.gif", steps=1)
