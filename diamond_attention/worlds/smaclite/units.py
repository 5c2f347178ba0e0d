"""The nine unit types, as numbers.

Speeds are per second, ranges are between hulls: a unit fires when the distance of the centres is at
most its range plus both radii.
"""

from dataclasses import dataclass
from enum import Enum


class Plane(Enum):
    """Units of different planes neither collide nor, unless their weapon says so, hurt each other."""

    GROUND = "ground"
    AIR = "air"


class Weapon(Enum):
    DIRECT = "direct"
    """Hits its target and nobody else."""
    BLAST = "blast"
    """The shooter dies and hurts every opponent around itself."""
    BEAM = "beam"
    """Hurts every opponent in a thin rectangle across the line of fire."""
    HEAL = "heal"
    """Gives hit points to a unit of its own side."""


@dataclass(frozen=True)
class UnitType:
    hp: float
    speed: float
    radius: float
    cooldown: float
    """Seconds between two shots."""
    range: float
    damage: float = 0.0
    hits: int = 1
    """How often the damage is dealt in one shot; armor counts against every hit."""
    bonus: float = 0.0
    bonus_against: str = ""
    """The attribute of a target that adds `bonus` to every hit."""
    shield: float = 0.0
    armor: float = 0.0
    scan: float = 5.0
    """How far a scripted unit looks for targets, from its centre to the other's hull."""
    hp_regeneration: float = 0.0
    plane: Plane = Plane.GROUND
    attacks: tuple[Plane, ...] = (Plane.GROUND,)
    """For a healer: the planes it heals."""
    weapon: Weapon = Weapon.DIRECT
    attributes: tuple[str, ...] = ()
    first_energy: float = 0.0
    max_energy: float = 0.0


MELEE_RANGE = 0.1
SHIELD_PER_SECOND = 2.0
SHIELD_DELAY = 10.0
"""Seconds without a hit before shields grow again."""
ENERGY_PER_SECOND = 0.5625
HEALING_PER_SECOND = 9.0
HEALING_PER_ENERGY = 3.0
ENERGY_TO_START_HEALING = 5.0
"""A healer with less does not begin with a new patient."""
BLAST_RADIUS = 2.2
BEAM_ACROSS = 2.8
BEAM_ALONG = 0.3

UNIT_TYPES: dict[str, UnitType] = {
    "marine": UnitType(
        hp=45.0,
        damage=6.0,
        cooldown=0.61,
        range=5.0,
        speed=3.15,
        radius=0.375,
        attacks=(Plane.GROUND, Plane.AIR),
        attributes=("light", "biological"),
    ),
    "marauder": UnitType(
        hp=125.0,
        armor=1.0,
        damage=10.0,
        bonus=10.0,
        bonus_against="armored",
        cooldown=1.07,
        range=6.0,
        speed=3.15,
        radius=0.5625,
        attributes=("armored", "biological"),
    ),
    "medivac": UnitType(
        hp=150.0,
        armor=1.0,
        cooldown=0.0,
        range=4.0,
        speed=3.5,
        radius=0.75,
        plane=Plane.AIR,
        weapon=Weapon.HEAL,
        attributes=("armored", "mechanical"),
        first_energy=50.0,
        max_energy=200.0,
    ),
    "stalker": UnitType(
        hp=80.0,
        shield=80.0,
        armor=1.0,
        damage=13.0,
        bonus=5.0,
        bonus_against="armored",
        cooldown=1.34,
        range=6.0,
        speed=4.13,
        radius=0.625,
        attacks=(Plane.GROUND, Plane.AIR),
        attributes=("armored", "mechanical"),
    ),
    "zealot": UnitType(
        hp=100.0,
        shield=50.0,
        armor=1.0,
        damage=8.0,
        hits=2,
        cooldown=0.86,
        range=MELEE_RANGE,
        speed=3.15,
        radius=0.5,
        attributes=("light", "biological"),
    ),
    "zergling": UnitType(
        hp=35.0,
        damage=5.0,
        cooldown=0.497,
        range=MELEE_RANGE,
        speed=4.13,
        radius=0.375,
        hp_regeneration=0.38,
        attributes=("light", "biological"),
    ),
    "baneling": UnitType(
        hp=30.0,
        damage=80.0,
        cooldown=1.0,
        range=0.25,
        speed=3.15,
        radius=0.375,
        hp_regeneration=0.38,
        weapon=Weapon.BLAST,
        attributes=("biological",),
    ),
    "colossus": UnitType(
        hp=200.0,
        shield=150.0,
        armor=1.0,
        damage=10.0,
        hits=2,
        bonus=5.0,
        bonus_against="light",
        cooldown=1.07,
        range=7.0,
        speed=3.15,
        radius=1.0,
        weapon=Weapon.BEAM,
        attributes=("armored", "mechanical", "massive"),
    ),
    "spine_crawler": UnitType(
        hp=300.0,
        armor=2.0,
        damage=25.0,
        bonus=5.0,
        bonus_against="armored",
        cooldown=1.32,
        range=7.0,
        scan=10.0,
        speed=0.0,
        radius=0.5,
        hp_regeneration=0.38,
        attributes=("armored", "biological", "structure"),
    ),
}
