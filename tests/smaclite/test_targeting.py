"""The enemies' minds, on cases worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.worlds.smaclite import targeting
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOBODY, NORTH, STOP, scenario_of
from diamond_attention.worlds.smaclite.vectors import Vector


class Scene:
    def __init__(self, map_name):
        self.scenario = scenario_of(map_name).cast(np.float32)
        units = self.scenario.number_of_units
        self.position = self.scenario.start.copy()
        self.hp = self.scenario.max_hp.copy()
        self.alive = np.ones(units, bool)
        self.target = np.full(units, NOBODY, np.int32)
        self.actions = np.full(self.scenario.number_of_agents, STOP, np.int32)

    @property
    def where(self):
        return Vector(jnp.asarray(self.position[:, 0]), jnp.asarray(self.position[:, 1]))

    def orders(self):
        return targeting.orders_from_actions(self.scenario, self.where, jnp.asarray(self.actions))

    def drop(self):
        arrays = (jnp.asarray(self.hp), jnp.asarray(self.alive), jnp.asarray(self.target))
        return np.asarray(targeting.drop_targets(self.scenario, self.where, *arrays, self.orders()))

    def acquire(self):
        arrays = (jnp.asarray(self.hp), jnp.asarray(self.alive), jnp.asarray(self.target))
        target, speed = targeting.acquire_targets(self.scenario, self.where, *arrays)
        return np.asarray(target), np.asarray(speed)


def test_orders_say_where_to_and_whom():
    scene = Scene("MMM2")
    scene.actions[:3] = [FIRST_TARGET + 4, FIRST_TARGET + 4, NORTH]
    orders = scene.orders()
    assert orders.victim[0] == 4  # the healer's fifth slot is the fifth ally
    assert orders.victim[1] == 14  # a marine's is the fifth enemy
    assert orders.destination.y[2] == pytest.approx(scene.position[2, 1] + 2.0)
    assert list(np.asarray(orders.walk[:4])) == [False, False, True, False]
    assert (orders.destination.x[10], orders.destination.y[10]) == (9.0, 16.0)


def test_an_enemy_keeps_a_target_in_range_or_one_that_attacks_it():
    scene = Scene("2s3z")
    scene.position[:] = (28.0, 10.0)
    scene.position[0], scene.position[1] = (10.0, 16.0), (10.0, 20.0)
    scene.position[7], scene.position[8] = (11.2, 16.0), (15.0, 20.0)
    scene.position[9] = (15.0, 18.0)
    scene.target[[7, 8, 9]] = [0, 1, 1]
    scene.actions[1] = FIRST_TARGET + 3  # unit 8
    target = scene.drop()
    assert target[7] == 0  # 1.2 apart, within 0.1 and both radii
    assert target[8] == 1  # far, but attacked by it
    assert target[9] == NOBODY
    assert target[1] == 8
    scene.hp[1] = 0.0
    assert scene.drop()[8] == NOBODY


def test_where_enemies_come_first_they_see_the_targets_of_the_tick_before():
    scene = Scene("corridor")  # enemies 0-23, allies 24-29
    scene.position[0] = (20.0, 12.0)
    scene.target[0] = 24
    scene.actions[0] = FIRST_TARGET  # unit 24 is told to attack unit 0 only now
    assert scene.drop()[0] == NOBODY
    scene.target[24] = 0
    assert scene.drop()[0] == 24


def test_enemies_take_the_closest_in_sight_and_of_far_attackers_the_first():
    scene = Scene("2s3z")
    scene.position[:5] = (1.0, 1.0)
    scene.position[5:] = (30.0, 30.0)
    scene.position[5] = (16.0, 16.0)
    scene.position[3], scene.position[4] = (12.0, 16.0), (16.0, 19.0)
    assert scene.acquire()[0][5] == 4
    # A zealot counts up to its hull: 5 + 0.5.
    scene.alive[4] = False
    scene.position[3] = (10.6, 16.0)
    assert scene.acquire()[0][5] == 3
    scene.position[3] = (10.4, 16.0)
    assert scene.acquire()[0][5] == NOBODY
    # Nobody in sight, but three attack it: the lowest id, however far.
    scene.target[[1, 2, 3]] = 5
    scene.position[3] = (9.0, 16.0)
    assert scene.acquire()[0][5] == 1


def test_marines_prefer_the_medivac_marauders_cannot_and_both_retarget_while_it_lives():
    scene = Scene("MMM2")
    scene.position[:10] = (1.0, 1.0)
    scene.position[10:] = (30.0, 30.0)
    scene.position[11], scene.position[19] = (16.0, 16.0), (16.0, 17.0)
    scene.position[0], scene.position[1], scene.position[2] = (12.0, 16.0), (14.0, 16.0), (15.0, 16.0)
    scene.target[[11, 19]] = 1
    target, _ = scene.acquire()
    assert target[11] == 0
    assert target[19] == 2
    scene.alive[0] = False
    target, _ = scene.acquire()
    assert (target[11], target[19]) == (1, 1)


def test_an_enemy_healer_takes_the_weakest_and_keeps_pace():
    scene = Scene("MMM2")
    scene.hp[[12, 13]] = [30.0, 20.0]
    target, speed = scene.acquire()
    assert target[10] == 13
    assert speed[10] == pytest.approx(3.15)
    assert speed[0] == pytest.approx(3.5)
    scene.position[10] = (2.0, 23.0)
    target, speed = scene.acquire()
    assert target[10] == NOBODY
    assert speed[10] == pytest.approx(3.5)
    # Unhurt comrades count when they have a target; equals go to the lowest id.
    scene = Scene("MMM2")
    scene.target[[14, 15]] = 3
    assert scene.acquire()[0][10] == 14
