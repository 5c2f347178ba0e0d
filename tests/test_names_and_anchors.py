"""What figures and tables take from elsewhere: the names of mask kinds and the oracles' scores."""

import typing
from pathlib import Path
from types import SimpleNamespace

import pytest

from diamond_attention.policies.diamond_settings import MASKS, DiamondSettings, MaskKind
from diamond_attention.policies.kind import PolicyKind
from diamond_attention.policies.registry import POLICIES, described
from diamond_attention.reports.anchors import anchors
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor


def test_every_kind_of_mask_has_a_name_and_a_colour_of_its_own():
    assert set(typing.get_args(MaskKind)) <= MASKS.keys()
    for attribute in ("label", "colour"):
        assert len({getattr(kind, attribute) for kind in MASKS.values()}) == len(MASKS)
    assert all(kind == described(DiamondSettings(mask=mask)) for mask, kind in MASKS.items())
    assert described(DiamondSettings(mask="rank")).label == "rank mask"
    assert described(DiamondSettings(mask="dropout")).in_play("off") == "dropout, off in play"


def test_an_unknown_kind_goes_by_its_own_name_and_comes_last(monkeypatch):
    monkeypatch.setitem(POLICIES, "whisper", PolicyKind(SimpleNamespace, build=None))
    whisper, none, rank = described(SimpleNamespace(kind="whisper")), MASKS["none"], MASKS["rank"]
    assert whisper.key == whisper.label == whisper.in_play("off") == "whisper"
    assert whisper.hides_in == ()
    assert sorted([whisper, none, rank], key=lambda kind: kind.place) == [rank, none, whisper]


def test_there_is_an_anchor_for_every_size_a_figure_shows():
    teams = range(2, 9)
    for oracle in ("random", "assigned", "bound"):
        assert anchors(Spread(max_agents=8, max_tasks=8), oracle).keys() == {(n, n) for n in teams}
    for oracle in ("random", "assigned"):
        assert anchors(Food(), oracle).keys() == {(n, k) for n in teams for k in teams}


def test_no_anchor_stands_beside_a_world_with_other_rules():
    assert anchors(Spread(half_width=2.0), "random") == {}
    assert anchors(Food(collection_reward=1.0), "assigned") == {}
    assert anchors(Xor(), "random") == {}


def test_the_anchors_stand_beside_a_team_that_learned_on_a_harder_game():
    assert anchors(Food(caution=5.0), "assigned") == anchors(Food(), "assigned") != {}


@pytest.mark.parametrize(
    ("kind", "oracle", "size"),
    [(Spread, "bound", (2, 2)), (Spread, "assigned", (2, 2)), (Spread, "random", (3, 3)), (Food, "assigned", (3, 2))],
)
def test_the_anchors_are_what_the_oracles_score(kind, oracle, size, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    import oracle_anchors

    kept = anchors(kind(), oracle)[size]
    row = oracle_anchors.score(kind, TeamSize(*size), oracle, episodes=kept.episodes, seed=0)
    # Collisions magnify the last bit of a float, so another machine plays other episodes after a while.
    assert row["mean"] == pytest.approx(kept.mean, abs=0.25 * kept.sd)
    assert row["sd"] == pytest.approx(kept.sd, rel=0.25)
