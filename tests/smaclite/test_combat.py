"""Turns worked by hand: shields, armor, cooldowns, healing, rescue, area weapons, rewards."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.worlds.smaclite import combat
from diamond_attention.worlds.smaclite.combat import Condition
from diamond_attention.worlds.smaclite.scenario import NOBODY, scenario_of
from diamond_attention.worlds.smaclite.targeting import Intention
from diamond_attention.worlds.smaclite.vectors import Vector


@lru_cache
def program(map_name):
    scenario = scenario_of(map_name).cast(np.float32)

    def turns(condition, alive, cooldown, position, next_position, attacking, victim, previous_target, order):
        standing = jnp.zeros(scenario.number_of_units)
        velocity = Vector(standing, standing)
        intention = Intention(velocity, velocity, attacking, victim)
        return combat.take_turns(
            scenario, condition, alive, cooldown, position, next_position, intention, previous_target, order
        )

    return jax.jit(turns)


class Scene:
    """A tick's worth of turns on a map, with everything at its beginning unless the test says otherwise."""

    def __init__(self, map_name):
        self.map_name = map_name
        self.scenario = scenario = scenario_of(map_name)
        units = scenario.number_of_units
        self.hp, self.shield = scenario.max_hp.copy(), scenario.max_shield.copy()
        self.timer, self.energy, self.pool = np.zeros(units), scenario.first_energy.copy(), np.zeros(units)
        self.target = np.full(units, NOBODY, np.int32)
        self.previous_target = self.target.copy()
        self.victim = self.target.copy()
        self.alive = np.ones(units, bool)
        self.cooldown = np.zeros(units)
        self.position = scenario.start.copy()
        self.next_position = self.position.copy()

    def shoot(self, shooter, victim):
        self.victim[shooter] = self.target[shooter] = self.previous_target[shooter] = victim

    def play(self, *first):
        """Turns: the named units first, then all others by id."""
        rest = [unit for unit in range(len(self.hp)) if unit not in first]
        condition = Condition(self.hp, self.shield, self.timer, self.energy, self.pool, self.target)
        condition = jax.tree.map(
            lambda values: jnp.asarray(values, values.dtype if values.dtype == np.int32 else jnp.float32), condition
        )
        return program(self.map_name)(
            condition,
            jnp.asarray(self.alive),
            jnp.asarray(self.cooldown, jnp.float32),
            self.position,
            self.next_position,
            self.victim != NOBODY,
            self.victim,
            self.previous_target,
            np.array([*first, *rest], np.int32),
        )


# 2s3z: allies 0, 1 stalkers, 2-4 zealots; enemies 5, 6 stalkers, 7-9 zealots.


def test_a_shield_takes_the_hit_first_and_armor_counts_against_the_rest():
    scene = Scene("2s3z")
    scene.shield[5], scene.hp[5] = 10.0, 80.0
    scene.shoot(0, 5)
    turns = scene.play(5, 0)
    # 13 + 5 against armored. The shield has its turn first and grows by 0.125.
    assert turns.condition.shield[5] == 0.0
    assert turns.condition.hp[5] == pytest.approx(80.0 - (18.0 - 10.125 - 1.0))
    assert turns.condition.shield_timer[5] == 10.0
    assert turns.reward == pytest.approx(10.125 + 6.875)
    assert turns.fired[0]


def test_losses_of_allies_give_no_reward_and_every_hit_meets_armor():
    scene = Scene("2s3z")
    scene.shield[2] = 0.0
    scene.timer[2] = 5.0
    scene.shoot(7, 2)
    turns = scene.play(2, 7)
    # A zealot strikes twice for 8, each less 1 armor. The timer starts again.
    assert turns.condition.hp[2] == 100.0 - 2 * 7.0
    assert turns.condition.shield_timer[2] == 10.0
    assert turns.reward == 0.0


def test_shields_grow_only_after_ten_quiet_seconds():
    scene = Scene("2s3z")
    scene.shield[:] = 10.0
    scene.timer[:3] = [1 / 16, 2 / 16, 0.0]
    turns = scene.play()
    np.testing.assert_allclose(turns.condition.shield[:3], [10.125, 10.0, 10.125])
    np.testing.assert_allclose(turns.condition.shield_timer[:3], [0.0, 1 / 16, 0.0])


def test_a_kill_is_rewarded_once_and_the_dead_lose_their_turn():
    scene = Scene("2s3z")
    scene.hp[7], scene.shield[7], scene.timer[7] = 3.0, 0.0, 10.0
    for shooter in (0, 1):
        scene.shoot(shooter, 7)
    scene.shoot(7, 2)
    turns = scene.play(0, 7, 1)
    assert turns.condition.hp[7] == 0.0
    assert turns.reward == pytest.approx(3.0 + 10.0)
    assert not turns.acted[7]
    assert turns.condition.hp[2] == 100.0
    # The second shot is wasted but fired.
    assert turns.fired[1]
    assert turns.condition.shield_timer[7] == 10.0


def test_a_weapon_that_is_not_ready_waits():
    scene = Scene("2s3z")
    scene.shoot(0, 7)
    scene.cooldown[0] = 1 / 16
    turns = scene.play()
    assert not turns.fired[0]
    assert turns.reward == 0.0


# MMM2: ally 0 is the medivac, 1-7 marines; enemies 10 medivac, 11-18 marines.


def test_healing_costs_energy_in_advance():
    scene = Scene("MMM2")
    scene.hp[1] = 20.0
    scene.shoot(0, 1)
    turns = scene.play()
    assert turns.condition.hp[1] == pytest.approx(20.5625)
    assert turns.condition.energy[0] == pytest.approx(50.0 + 0.5625 / 16 - 1.0)
    assert turns.condition.heal_pool[0] == pytest.approx(3.0 - 0.5625)


def test_a_healer_leaves_the_healthy_and_needs_energy_to_begin():
    scene = Scene("MMM2")
    scene.shoot(0, 1)
    assert scene.play().condition.target[0] == NOBODY
    scene = Scene("MMM2")
    scene.hp[1], scene.energy[0] = 20.0, 4.0
    scene.shoot(0, 1)
    assert scene.play().condition.hp[1] > 20.0
    scene.previous_target[0] = 2
    turns = scene.play()
    assert turns.condition.hp[1] == 20.0
    assert turns.condition.target[0] == NOBODY


def test_the_fallen_can_be_rescued_in_the_same_tick_and_pay_twice():
    scene = Scene("MMM2")
    scene.hp[11] = 6.0
    scene.shoot(1, 11)
    scene.shoot(2, 11)
    scene.shoot(10, 11)
    turns = scene.play(1, 10, 2)
    # Killed (6 + 10), healed to 0.5625, killed again (0.5625 + 10).
    assert turns.reward == pytest.approx(16.0 + 10.5625)
    assert turns.condition.hp[11] == 0.0
    turns = scene.play(1, 2, 11, 10)
    assert turns.reward == pytest.approx(16.0)
    assert turns.condition.hp[11] == pytest.approx(0.5625)
    assert not turns.acted[11]  # its turn came while it lay on the ground


def test_a_corpse_is_healed_at_the_healer_s_expense_and_stays_dead():
    scene = Scene("MMM2")
    scene.alive[1], scene.hp[1] = False, 0.0
    scene.shoot(0, 1)
    turns = scene.play()
    assert turns.condition.hp[1] == pytest.approx(0.5625)
    assert turns.condition.energy[0] < 50.0
    assert not turns.acted[1]


# bane_vs_bane: enemies 0-3 banelings, 4-23 zerglings; allies 24-43 zerglings, 44-47 banelings.


def test_a_blast_hurts_opponents_around_and_costs_the_bomber_its_life():
    scene = Scene("bane_vs_bane")
    scene.position[:] = (30.0, 30.0)
    scene.position[0] = scene.next_position[0] = (16.0, 16.0)
    scene.position[24], scene.position[25], scene.position[26] = (18.5, 16.0), (18.6, 16.0), (16.0, 15.0)
    scene.position[4] = (16.5, 16.0)
    # Unit 26 has its turn before and runs out of the circle.
    scene.next_position[:] = scene.position
    scene.next_position[26] = (16.0, 13.0)
    scene.hp[0] = 20.0
    scene.shoot(0, 24)
    turns = scene.play(26, 0)
    assert turns.condition.hp[0] == 0.0
    assert turns.condition.hp[24] == 0.0  # 2.5 away: within 2.2 and its radius
    assert turns.condition.hp[25] == 35.0  # 2.6 away
    assert turns.condition.hp[26] == 35.0
    assert turns.condition.hp[4] == 35.0  # a comrade
    # The bomber's own hit points (one tick grown) are a reward, its death and its victims are not.
    assert turns.reward == pytest.approx(20.0 + 0.38 / 16)


# 2c_vs_64zg: allies 0, 1 colossi; enemies 2-65 zerglings.


def colossus_scene():
    scene = Scene("2c_vs_64zg")
    scene.position[:] = (30.0, 30.0)
    scene.position[0] = (10.0, 16.0)
    scene.position[2] = (15.0, 16.0)
    return scene


def test_a_beam_lies_across_the_line_of_fire():
    scene = colossus_scene()
    scene.position[3], scene.position[4] = (15.0, 17.4), (16.0, 16.0)
    scene.next_position[:] = scene.position
    scene.shoot(0, 2)
    turns = scene.play(0)
    # Two hits of 10 + 5 against light units; who has its turn later grows a little again.
    np.testing.assert_allclose(turns.condition.hp[2:5], [5.0 + 0.38 / 16, 5.0 + 0.38 / 16, 35.0], rtol=1e-6)
    assert turns.reward == pytest.approx(60.0)


def test_a_beam_at_a_corpse_alone_hurts_nobody():
    scene = colossus_scene()
    scene.alive[2], scene.hp[2] = False, 0.0
    scene.next_position[:] = scene.position
    scene.shoot(0, 2)
    turns = scene.play(0)
    assert turns.reward == 0.0
    assert turns.fired[0]
    assert np.isfinite(turns.condition.hp).all()
    # Living units next to the corpse are hit all the same.
    scene.position[3] = scene.next_position[3] = (15.0, 16.5)
    assert scene.play(0).reward == pytest.approx(30.0)
