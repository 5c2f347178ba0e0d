"""The maps as data: sizes, starts, terrains, budgets."""

import jax
import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.terrain import HEADINGS

# agents, enemies, actions, observation, state vector, largest return, largest radius, time limit
SIZES = {
    "2s3z": (5, 5, 11, 80, 120, 1020, 0.625, 120),
    "3s5z": (8, 8, 14, 128, 216, 1510, 0.625, 150),
    "3s5z_vs_3s6z": (8, 9, 15, 136, 230, 1670, 0.625, 170),
    "3s_vs_5z": (3, 5, 11, 48, 68, 1000, 0.625, 250),
    "10m_vs_11m": (10, 11, 17, 105, 243, 805, 0.375, 150),
    "27m_vs_30m": (27, 30, 36, 285, 1170, 1850, 0.375, 180),
    "MMM": (10, 10, 16, 160, 290, 1015, 0.75, 150),
    "MMM2": (10, 12, 18, 176, 322, 1205, 0.75, 180),
    "2s_vs_1sc": (2, 1, 7, 17, 27, 510, 0.625, 300),
    "bane_vs_bane": (24, 24, 30, 336, 984, 1260, 0.375, 200),
    "corridor": (6, 24, 30, 156, 282, 1280, 0.5, 400),
    "2c_vs_64zg": (2, 64, 70, 332, 342, 3080, 1.0, 400),
}


@pytest.mark.parametrize("name", MAPS)
def test_sizes(name):
    scenario = scenario_of(name)

    def describe():
        state = battle.start(scenario)
        legal = battle.legal_actions(scenario, state)
        return battle.observations(scenario, state, legal), battle.state_vector(scenario, state)

    observation, vector = jax.eval_shape(describe)
    assert (
        scenario.number_of_agents,
        scenario.number_of_enemies,
        scenario.number_of_actions,
        observation.shape[1],
        vector.shape[0],
        scenario.largest_return,
        scenario.largest_radius,
        scenario.map.time_limit,
    ) == SIZES[name]


def test_formations_stand_where_the_original_puts_them():
    start = scenario_of("2s3z").start
    allies = [(7.875, 15.45), (9.175, 15.45), (10.35, 15.45), (7.75, 16.625), (8.8, 16.625)]
    enemies = [(24.125, 16.55), (22.825, 16.55), (21.65, 16.55), (24.25, 15.375), (23.2, 15.375)]
    np.testing.assert_array_equal(start, np.array(allies + enemies, np.float32))
    start = scenario_of("MMM2").start
    np.testing.assert_allclose(
        start[[0, 9, 10, 21]], [(7.875, 14.9875), (8.8625, 17.15), (24.3125, 17.0125), (21.35, 14.85)]
    )


@pytest.mark.parametrize("name", ["2s3z", "3s_vs_5z", "2s_vs_1sc", "bane_vs_bane", "corridor", "2c_vs_64zg"])
def test_no_place_faces_more_edges_than_there_is_room_for(name):
    scenario = scenario_of(name)
    edges = scenario.edges
    limit = (scenario.radius + scenario.speed).max()
    across = np.arange(-6.0, 38.0, 0.11)
    x, y = (values.ravel() for values in np.meshgrid(across, across))
    faced = np.zeros(len(x), int)
    for start, heading, corners in zip(edges.start, HEADINGS[edges.heading], edges.corners, strict=True):
        outside = (start[0] - x) * heading[1] - (start[1] - y) * heading[0] < 0
        gap_x = np.maximum(np.maximum(corners[0] - x, x - corners[2]), 0)
        gap_y = np.maximum(np.maximum(corners[1] - y, y - corners[3]), 0)
        faced += outside & (gap_x**2 + gap_y**2 <= limit**2)
    assert faced.max() <= scenario.map.edge_budget


def test_an_unknown_map_is_named():
    with pytest.raises(UserError, match="'8m'"):
        scenario_of("8m")
