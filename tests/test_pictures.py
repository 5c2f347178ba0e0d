"""What pictures must show: who is hidden from whom, colours that differ where scores do, films people can load."""

from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from diamond_attention.colours import agent_colour
from diamond_attention.evaluation.recording import Recording, record
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import MASKS, DiamondSettings
from diamond_attention.reports import films, panels, scores, sight
from diamond_attention.reports.played import Played
from diamond_attention.runs.folder import open_run
from diamond_attention.worlds.contract import TeamSize, tasks_named
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particle_scene import ParticleScene
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MEGABYTE = 1_000_000
RANKS = [[0.5, 0.9, 0.1], [0.3, 0.2, 0.1]]
"""Of three agents at two moments. First B is the highest and C the lowest; then A sees only itself."""
HIDDEN = [
    [[0, 0, 1], [1, 0, 1], [0, 0, 0]],
    [[0, 1, 1], [0, 0, 1], [0, 0, 0]],
]
"""Rows are viewers, columns those they look for."""


def recorded(mask: str) -> Recording:
    run = SimpleNamespace(settings=SimpleNamespace(policy=DiamondSettings(mask=mask), method=PpoSettings()))
    nothing = dict.fromkeys(Recording._fields)
    return Recording(**{**nothing, "run": run, "size": TeamSize(3, 3), "ranks": np.array(RANKS)})


@pytest.fixture
def panel():
    def make(recording):
        axes = plt.figure().add_axes((0, 0, 1, 1))
        return axes, sight.SightPanel(axes, recording, points=150)

    yield make
    plt.close("all")


# --- who is hidden from whom ----------------------------------------------------------------------


@pytest.mark.parametrize(("mask", "below"), [("rank", sight.HIDDEN_CELL), ("floor", sight.DAMPED_CELL)])
def test_the_table_is_dark_exactly_where_ranks_hide_and_grey_where_they_damp(panel, mask, below):
    axes, shown = panel(recorded(mask))
    for frame, hidden in enumerate(HIDDEN):
        shown.show(frame)
        cells = axes.images[0].get_array()
        for viewer in range(3):
            for agent in range(3):
                colour = below if hidden[viewer][agent] else agent_colour(agent)
                np.testing.assert_allclose(cells[viewer, agent], to_rgb(colour), atol=1e-6)


def test_the_discs_beside_the_table_have_the_numbers_of_those_in_the_world(panel):
    axes, shown = panel(recorded("rank"))
    shown.show(0)
    assert [text.get_text() for text in axes.texts] == ["2", "1", "3"] * 2
    shown.show(1)
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3"] * 2


def test_whom_a_viewer_sees_depends_on_the_block():
    first = recorded("first")
    np.testing.assert_array_equal(first.sees(0, block=0), np.logical_not(HIDDEN[0]))
    assert first.sees(0, block=1).all()
    assert first.visible(0, 1).tolist() == [False, True, False]
    assert recorded("none").sees(0).all()


@pytest.mark.parametrize("mask", MASKS)
def test_there_is_a_table_only_where_ranks_hide_or_damp_and_it_says_which(panel, mask):
    assert sight.ranks_matter(MASKS[mask]) == (mask in ("rank", "first", "floor", "split"))
    assert bool(MASKS[mask].ranks_do) == MASKS[mask].hears_ranks
    if not sight.ranks_matter(MASKS[mask]):
        return
    _, shown = panel(recorded(mask))
    assert ("hidden from it" in shown.legend) == (mask in ("rank", "first"))
    assert ("in block 1" in shown.title) == (mask == "first")


# --- films ----------------------------------------------------------------------------------------


def test_a_film_has_the_promised_size_and_is_wider_where_it_shows_who_sees_whom():
    played = record(open_run("spread"), TeamSize(3, 3), steps=2)
    width, height = (round(side * films.DOTS) for side in films.INCHES)
    assert (width, height) >= (540, 640)
    stage = films._Stage(played)
    picture = stage[1]
    assert picture.size == (width + round(films.BESIDE * films.DOTS), height)
    assert [side % 2 for side in picture.size] == [0, 0]  # or ffmpeg would refuse it
    # The table is beside the world and covers nothing of it.
    world, table = (axes.get_position() for axes in stage.figure.axes)
    assert table.x0 > world.x1
    nobody_hidden = SimpleNamespace(
        settings=SimpleNamespace(policy=DiamondSettings(mask="none"), method=PpoSettings(), sizes=[TeamSize(3, 3)])
    )
    without = films._Stage(played._replace(run=nobody_hidden))
    assert without[1].size == (width, height)
    assert len(without.figure.axes) == 1
    plt.close("all")


def test_a_long_film_shows_every_second_step_and_how_it_ends():
    assert films.frames_to_show(1) == [0]
    assert films.frames_to_show(101) == [*range(101)]
    assert films.frames_to_show(201) == [*range(0, 201, 2)]
    assert len(films.frames_to_show(1000)) <= films.MOST_FRAMES + 1
    assert films.frames_to_show(1000)[-1] == 999


@pytest.mark.parametrize(("film", "least"), [("spread.gif", (540, 640)), ("battle.gif", (540, 400))])
def test_the_films_of_the_pages_are_sharp_and_below_a_megabyte(film, least):
    assert (IMAGES / film).stat().st_size < MEGABYTE
    with Image.open(IMAGES / film) as opened:
        assert all(side >= needed for side, needed in zip(opened.size, least, strict=True))
        assert opened.n_frames > 80


def test_the_film_on_the_front_page_is_of_the_size_its_command_writes():
    policy = open_run("spread-floor").settings.policy
    beside = films.BESIDE * sight.ranks_matter(MASKS[policy.mask])
    with Image.open(IMAGES / "spread.gif") as opened:
        assert opened.size == (round((films.INCHES[0] + beside) * films.DOTS), round(films.INCHES[1] * films.DOTS))
        assert opened.info["duration"] == 1000 / films.FRAMES_PER_SECOND


@pytest.mark.parametrize("picture", sorted(path.name for path in IMAGES.glob("*.png")))
def test_pictures_of_the_pages_keep_their_colours(picture):
    """A palette would save bytes and turn one agent's colour into another's."""
    with Image.open(IMAGES / picture) as opened:
        assert opened.mode in ("RGB", "RGBA")
    assert (IMAGES / picture).stat().st_size < 0.42 * MEGABYTE


# --- scores ---------------------------------------------------------------------------------------


def way(mask, by_size, alike="preset", world=None, twins=0) -> Played:
    """R by size and seed, each the mean of 64 episodes."""
    world = world or Spread()
    made = Played(MASKS[mask].label, MASKS[mask], world, frozenset({4}), alike, "own", "greedy", twins, episodes=64)
    for size, per_seed in by_size.items():
        made.scores[size] = {seed: np.array([score]) for seed, score in enumerate(per_seed)}
    return made


def test_the_colours_of_a_heatmap_ignore_a_column_that_would_swallow_them():
    column, rest = [-1500.0, -1200.0, -900.0, -600.0], [float(x) for x in range(-60, 100, 4)]
    low, high, extend = scores.colour_range(column + rest)
    assert extend == "min"
    assert -60 <= low <= 0
    assert high == max(rest)
    assert scores.colour_range([-x for x in column + rest])[2] == "max"
    assert scores.colour_range(rest) == (min(rest), max(rest), "neither")
    assert scores.colour_range([5.0]) == (5.0, 5.0, "neither")


def test_a_heatmap_of_means_alone_shows_their_interval_and_keeps_the_numbers_of_what_is_off_the_scale(monkeypatch):
    drawn = []
    monkeypatch.setattr(scores, "save", lambda figure, to: drawn.append(figure) or to)
    sizes = {(n, k): [10.0 * n + k - 3, 10.0 * n + k, 10.0 * n + k + 3] for n in range(2, 9) for k in (2, 3)}
    sizes[2, 3] = [-9003.0, -9000.0, -8997.0]
    assert scores.draw_played_heatmap([way("none", sizes, world=Food())], Path("heatmap.png"))
    ours, *_, bar = drawn[0].axes
    assert "3 training seeds, 64 episodes each" in ours.get_title()
    texts = {text.get_position(): text.get_text() for text in ours.texts}
    assert texts[0, 1] == "−9,000\n±7"  # 4.30 (Student's t of two degrees of freedom) · 3 / √3
    assert ours.images[0].norm.vmin > -2000
    assert "95 % interval" in bar.get_ylabel()


def test_a_difference_is_that_of_shared_seeds_to_the_baseline_that_learned_alike():
    at = [(2, 2), (4, 4)]
    none = way("none", {(2, 2): [-10, -20, -90], (4, 4): [-30, -40]})
    careful = way("none", {(2, 2): [0, 0], (4, 4): [0, 0]}, alike="another preset")
    floor = way("floor", {(2, 2): [-8, -16], (4, 4): [-30, -50]})
    found = scores.better_by(floor, [careful, floor, none], at)
    assert {size: interval.mean for size, interval in found.items()} == {(2, 2): 3.0, (4, 4): -5.0}
    assert found[2, 2].low < 2 < found[2, 2].high
    assert scores.better_by(none, [none, floor], at) == {}
    assert scores.better_by(floor, [careful, floor], at) == {}


def test_many_lines_become_few_and_their_differences_a_panel_with_names_at_their_ends(monkeypatch):
    drawn = []
    monkeypatch.setattr(scores, "save", lambda figure, to: drawn.append(figure) or to)
    levels = {"rank": -60, "none": -50, "signed": -49, "floor": -48, "split": -52}
    ways = [way(mask, {(n, n): [level * n, level * n - 4] for n in (2, 4, 8)}) for mask, level in levels.items()]
    scores.draw_played_sizes([ways], Path("team_size.png"))
    above, below = drawn[0].axes
    policies = {MASKS[mask].label for mask in levels}
    assert {line.get_label() for line in above.lines} & policies == {"rank mask", "no mask", "learned floor"}
    assert {text.get_text() for text in below.texts} == policies
    lines = [line for line in below.lines if len(line.get_xdata()) == 3]
    assert len({line.get_marker() for line in lines}) == len(lines) == 4
    np.testing.assert_allclose(lines[0].get_ydata(), [-20, -40, -80])  # the rank mask
    heights = sorted(text.get_position()[1] for text in below.texts)
    assert min(np.diff(heights)) > 0.07 * np.diff(below.get_ylim())[0]
    plt.close("all")


def test_names_at_line_ends_keep_their_order_and_stay_near():
    assert panels.spread_out([0.0, 10.0], gap=1.0) == [0.0, 10.0]
    apart = panels.spread_out([0.0, 0.1, 0.2, 3.0, 3.1], gap=1.0)
    assert apart == sorted(apart)
    assert min(np.diff(apart)) >= 1.0 - 1e-9
    assert np.mean(apart) == pytest.approx(np.mean([0.0, 0.1, 0.2, 3.0, 3.1]))


def test_the_figures_of_the_pages_are_drawn_from_the_rows(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import figures
    import particle_results

    drawn = {}
    monkeypatch.setattr(scores, "save", lambda figure, to: drawn.setdefault(to.name, figure) and to)
    assert figures.draw(tmp_path) == [tmp_path / "team_size.png", tmp_path / "food_heatmap.png"]
    known = particle_results.by_policy("food", "own")["food-gpu", "split", "off"]
    mean = np.mean(list(known[8, 4].values()))
    panel = next(axes for axes in drawn["food_heatmap.png"].axes if axes.get_title().startswith("half the heads"))
    assert f"{mean:.0f}\n" in {text.get_text()[: text.get_text().index("\n") + 1] for text in panel.texts}
    assert panel.images[0].get_array()[2, 6] == pytest.approx(mean)
    spread = drawn["team_size.png"].axes[0]
    found = particle_results.by_policy("spread", "vmas")["spread-gpu", "floor", "off"]
    line = next(line for line in spread.lines if line.get_label() == "learned floor")
    np.testing.assert_allclose(line.get_ydata(), [np.mean(list(found[n, n].values())) for n in range(2, 9)])
    plt.close("all")


def test_tasks_are_named_in_the_plural():
    assert [tasks_named(world) for world in (Spread(), Food())] == ["landmarks", "foods"]
    assert tasks_named(SimpleNamespace(task="enemy")) == "enemies"


def test_agents_that_stand_on_each_other_share_one_label():
    places = np.array([[[0.1, 0.1], [0.1, 0.1], [0.5, 0.5], [0.11, 0.1]]])
    none = np.zeros((1, 4, 2))
    recording = SimpleNamespace(
        world=Spread(start="depot"),
        size=TeamSize(4, 4),
        states=Particles(places, none, none, np.ones((1, 4), bool), np.ones((1, 4), bool)),
        places=np.array([[4, 3, 2, 1]]),
        policy=MASKS["rank"],
        choices=None,
    )
    for policy, labels in (("none", ["C", "A B D"]), ("rank", ["2", "4 3 1"])):
        recording.policy = MASKS[policy]
        figure, axes = plt.subplots()
        ParticleScene(axes, recording, names=False, text_size=8).show(0)
        assert [text.get_text() for text in axes.texts if text.get_text()] == labels
        plt.close(figure)
