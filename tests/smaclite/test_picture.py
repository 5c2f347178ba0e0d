"""Which part of the map is shown of a battle, and that nothing is drawn outside of it."""

import numpy as np
import pytest

from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.picture import EASE, SHOT, TITLE, Part, draw_battle, part_around, parts_along
from diamond_attention.worlds.smaclite.scenario import scenario_of

LANE = scenario_of("2s3z")
"""The walkable part reaches from x = 0 to 32 and from y = 8 to 24; a unit's breadth of wall is shown around it."""
TICKS = 4 * SHOT


def test_the_part_around_two_places_worked_by_hand():
    # 1.25 of room, to whole units: x from 8 to 22, y from 13 to 18; then no wider than twice its height.
    assert part_around(LANE, np.array([[10.0, 15.0], [20.0, 16.0]])) == Part(8, 12, 22, 19)


def test_at_the_edge_of_the_map_the_room_is_on_the_other_side():
    part = part_around(LANE, np.array([[30.0, 12.0], [31.0, 13.0]]))
    # The least width, 10, and the squarest shape, 1.6.
    assert part == pytest.approx((22, 9.375, 32, 15.625))


def test_a_high_battle_is_shown_whole():
    part = part_around(scenario_of("corridor"), np.array([[10.0, 2.0], [11.0, 30.0]]))
    assert part.south <= 0.75
    assert part.north >= 31.25
    assert part.west <= 8.75
    assert part.east >= 12.25


def two_armies(ticks=TICKS):
    """Four units in two armies, 16 apart for two shots, then 3 apart."""
    positions = np.tile(np.array([[8.0, 15.0], [8.0, 16.0], [24.0, 15.0], [24.0, 16.0]]), (ticks, 1, 1))
    positions[2 * SHOT :, 2:, 0] = 11.0
    return positions, np.ones((ticks, 4), bool)


def test_the_part_follows_the_living_and_never_cuts_them_off():
    positions, alive = two_armies()
    parts = np.array(parts_along(LANE, positions, alive))
    assert (positions >= parts[:, None, :2] + 1).all()
    assert (positions <= parts[:, None, 2:] - 1).all()
    width, height = (parts[:, 2:] - parts[:, :2]).T
    np.testing.assert_allclose(width / height, width[0] / height[0])
    # From 6 to 26 while they are apart; then from 6 to 13, which is less than the least width.
    assert width[0] == pytest.approx(20)
    assert width[-1] == pytest.approx(10)
    # It moves once, in even steps; while the last of the armies are apart it does not move at all.
    moves = np.flatnonzero(np.diff(width))
    assert moves.min() >= 2 * SHOT
    assert len(moves) <= 2 * (EASE + 1) + 1
    assert np.abs(np.diff(parts, axis=0)).max() <= 20 / (2 * EASE + 1)


def test_the_fallen_leave_the_part_unless_nobody_is_left():
    positions, alive = two_armies()
    positions[:, 2:, 0] = 24.0
    alive[SHOT:, 2:] = False
    parts = parts_along(LANE, positions, alive)
    assert parts[0].east == pytest.approx(26)
    assert parts[-1].east < 16
    alive[-1] = False
    np.testing.assert_allclose(parts_along(LANE, positions, alive), parts)


def test_what_stands_outside_of_the_part_does_not_reach_into_the_title():
    state = battle.start(LANE)
    state = state._replace(alive=state.alive.at[0].set(False))
    part = Part(8, 12, 22, 19)
    inside, above = (
        np.asarray(draw_battle(LANE, state._replace(position=state.position.at[0].set(place)), part=part))
        for place in (np.array([15.0, 15.0]), np.array([15.0, 19.2]))
    )
    assert (inside != above).any()
    np.testing.assert_array_equal(inside[: TITLE - 1], above[: TITLE - 1])
