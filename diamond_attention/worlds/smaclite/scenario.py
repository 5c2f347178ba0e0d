"""One map laid out as arrays: every number the rules need, one entry for each unit.

A scenario is constant data. Functions of the engine take it first and close over it when they are
compiled, so what a map does not have (healers, area weapons, shields) costs nothing there.
"""

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import ceil, sqrt
from typing import Any

import numpy as np

from diamond_attention.worlds.smaclite.maps import BattleMap, Group, find_map
from diamond_attention.worlds.smaclite.terrain import Edges, blocked_cells, edges_of
from diamond_attention.worlds.smaclite.units import UNIT_TYPES, UnitType, Weapon

TICKS_PER_SECOND = 16
TICKS_PER_STEP = 8
TICK = 1.0 / TICKS_PER_SECOND
NOBODY = -1
"""Stands for a unit where there is none."""
FORMATION_GAP = 0.05
WIN_REWARD = 200.0
KILL_REWARD = 10.0
BEST_RETURN = 20.0
"""What a clean win sums to: rewards are scaled to it."""
NOOP, STOP, NORTH, SOUTH, EAST, WEST, FIRST_TARGET = range(7)
"""Actions; from FIRST_TARGET on, one for each unit that can be targeted."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Arrays have one entry for each unit, by global id. Two-dimensional ones are [who, to whom]."""

    map: BattleMap
    unit_types: tuple[str, ...]
    is_ally: np.ndarray
    ally_ids: np.ndarray
    """Global ids of the agents, in the order of the agent axis."""
    enemy_ids: np.ndarray
    start: np.ndarray
    """[unit, 2], float32"""
    max_hp: np.ndarray
    max_shield: np.ndarray
    armor: np.ndarray
    damage: np.ndarray
    """[unit, unit]: of one hit, bonus included."""
    hits: np.ndarray
    cooldown: np.ndarray
    reach: np.ndarray
    """[unit, unit]: the largest distance of centres at which the first can fire at the second."""
    scan: np.ndarray
    speed: np.ndarray
    radius: np.ndarray
    hp_regeneration: np.ndarray
    flies: np.ndarray
    can_attack: np.ndarray
    """[unit, unit]: whether the weapon reaches the other's plane. Says nothing about sides."""
    is_healer: np.ndarray
    blasts: np.ndarray
    beams: np.ndarray
    first_energy: np.ndarray
    max_energy: np.ndarray
    type_one_hot: np.ndarray
    """[unit, type]; no types where the map does not tell them apart."""
    largest_radius: float
    """Of any unit that starts on the map, alive or not. Neighbourhoods are measured with it."""
    attack_point: np.ndarray
    edges: Edges
    blocked: np.ndarray
    """[x, y]"""
    allies_have_shields: bool
    enemies_have_shields: bool

    @property
    def number_of_units(self) -> int:
        return len(self.unit_types)

    @property
    def number_of_agents(self) -> int:
        return len(self.ally_ids)

    @property
    def number_of_enemies(self) -> int:
        return len(self.enemy_ids)

    @property
    def number_of_actions(self) -> int:
        targets = self.number_of_enemies
        allied_healers = int(self.is_healer[self.ally_ids].sum())
        if allied_healers:
            targets = max(targets, self.number_of_agents - allied_healers)
        return FIRST_TARGET + targets

    @property
    def largest_return(self) -> float:
        """Unscaled: all enemies shot once from full strength, and the battle won."""
        strength = self.max_hp[self.enemy_ids].sum() + self.max_shield[self.enemy_ids].sum()
        return float(KILL_REWARD * self.number_of_enemies + WIN_REWARD + strength)

    @property
    def ids(self) -> np.ndarray:
        return np.arange(self.number_of_units, dtype=np.int32)

    def cast(self, dtype: Any) -> "Scenario":
        """The same numbers in another precision, so that a battle in float32 never computes in float64."""
        return _cast(self, np.dtype(dtype).name)


@lru_cache(maxsize=64)
def _cast(scenario: Scenario, dtype: str) -> Scenario:
    def convert(value: Any) -> Any:
        if isinstance(value, Edges):
            return Edges(**{field.name: convert(getattr(value, field.name)) for field in fields(value)})
        return value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value

    return replace(scenario, **{field.name: convert(getattr(scenario, field.name)) for field in fields(scenario)})


def formation(group: Group, direction: int) -> list[tuple[float, float]]:
    """Where the units of a group start: rows of a square grid around its center.

    Allies fill it from the lower left (direction 1), enemies from the upper right (-1). Widths leave the
    gaps out, as the original does, so formations stand slightly off their center.
    """
    radii = [UNIT_TYPES[name].radius for name in group.unit_types]
    side = ceil(sqrt(len(radii)))
    rows = [radii[row * side : (row + 1) * side] for row in range(side)]
    row_radii = [max(row, default=0.0) for row in rows]
    height = 2 * sum(row_radii) + (side - 1) * FORMATION_GAP
    width = max(2 * sum(row) for row in rows)
    positions = []
    y = group.center[1] - direction * height / 2
    previous_row = 0.0
    for row, row_radius in zip(rows, row_radii, strict=True):
        y += direction * (previous_row + row_radius)
        previous_row = row_radius
        x = group.center[0] - direction * width / 2
        previous = 0.0
        for radius in row:
            x += direction * (previous + radius)
            previous = radius
            positions.append((x, y))
            x += direction * FORMATION_GAP
        y += direction * FORMATION_GAP
    return positions


@lru_cache(maxsize=16)
def scenario_of(map_name: str) -> Scenario:
    """The scenario of a map; raises UserError for a name that is none."""
    battle_map = find_map(map_name)
    sides = [(battle_map.allies, 1), (battle_map.enemies, -1)]
    if battle_map.enemies_first:
        sides.reverse()
    names: list[str] = []
    positions: list[tuple[float, float]] = []
    ally: list[bool] = []
    for groups, direction in sides:
        for group in groups:
            names += group.unit_types
            positions += formation(group, direction)
            ally += [direction == 1] * len(group.unit_types)
    types = [UNIT_TYPES[name] for name in names]
    is_ally = np.array(ally)

    def per_unit(attribute: str) -> np.ndarray:
        return np.array([getattr(unit, attribute) for unit in types], np.float64)

    radius = per_unit("radius")
    max_shield = per_unit("shield")
    return Scenario(
        map=battle_map,
        unit_types=tuple(names),
        is_ally=is_ally,
        ally_ids=np.flatnonzero(is_ally).astype(np.int32),
        enemy_ids=np.flatnonzero(~is_ally).astype(np.int32),
        start=np.array(positions, np.float32),
        max_hp=per_unit("hp"),
        max_shield=max_shield,
        armor=per_unit("armor"),
        damage=np.array([[_damage(shooter, victim) for victim in types] for shooter in types]),
        hits=np.array([unit.hits for unit in types], np.int32),
        cooldown=per_unit("cooldown"),
        reach=per_unit("range")[:, None] + radius[:, None] + radius[None, :],
        scan=per_unit("scan"),
        speed=per_unit("speed"),
        radius=radius,
        hp_regeneration=per_unit("hp_regeneration"),
        flies=np.array([unit.plane.value == "air" for unit in types]),
        can_attack=np.array([[victim.plane in shooter.attacks for victim in types] for shooter in types]),
        is_healer=np.array([unit.weapon is Weapon.HEAL for unit in types]),
        blasts=np.array([unit.weapon is Weapon.BLAST for unit in types]),
        beams=np.array([unit.weapon is Weapon.BEAM for unit in types]),
        first_energy=per_unit("first_energy"),
        max_energy=per_unit("max_energy"),
        type_one_hot=np.array([[name == other for other in battle_map.type_features] for name in names], np.float64),
        largest_radius=float(radius.max()),
        attack_point=np.array(battle_map.attack_point),
        edges=edges_of(battle_map.rectangles),
        blocked=blocked_cells(battle_map.rectangles),
        allies_have_shields=bool(max_shield[is_ally].any()),
        enemies_have_shields=bool(max_shield[~is_ally].any()),
    )


def _damage(shooter: UnitType, victim: UnitType) -> float:
    return shooter.damage + (shooter.bonus if shooter.bonus_against in victim.attributes else 0.0)
