"""The twelve maps: who fights whom, where they start, and how long an episode may last."""

from dataclasses import dataclass

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite import terrain
from diamond_attention.worlds.smaclite.terrain import Rectangle


@dataclass(frozen=True)
class Group:
    """Units that start in one formation around a point."""

    units: tuple[tuple[str, int], ...]
    """Types and how many of each, in the order of their ids."""
    center: tuple[float, float]

    @property
    def unit_types(self) -> list[str]:
        return [name for name, count in self.units for _ in range(count)]


@dataclass(frozen=True)
class BattleMap:
    name: str
    allies: tuple[Group, ...]
    """The learning side."""
    enemies: tuple[Group, ...]
    """The scripted side."""
    rectangles: tuple[Rectangle, ...]
    attack_point: tuple[float, float]
    """Where enemies walk when they have no target."""
    time_limit: int
    """Steps; SMAC's own limit for the map of this name. The engine itself would let a stand-off last for ever."""
    enemies_first: bool = False
    """Whether enemies have the lower ids. It matters: ids decide ties, and who reacts to whom in a tick."""
    type_features: tuple[str, ...] = ()
    """The types told apart in observations; empty where the original does not tell."""
    line_budget: int = 8
    """How many constraints one unit's way may have in one tick; more are dropped, and counted.

    The recordings need 7 at most, 12 on 2c_vs_64zg; random play needs more on bane_vs_bane and corridor, where crowds
    press into corners. The time a step takes grows with this number.
    """
    edge_budget: int = 2
    """How many wall edges one unit can face at once, wherever it stands. More would be dropped, and counted."""


WEST, EAST = (9.0, 16.0), (23.0, 16.0)
STALKERS_AND_ZEALOTS = ("stalker", "zealot")
BARRACKS = ("marauder", "marine", "medivac")


def _lane(
    name: str,
    allies: tuple[tuple[str, int], ...],
    enemies: tuple[tuple[str, int], ...],
    time_limit: int,
    type_features: tuple[str, ...] = (),
    rectangles: tuple[Rectangle, ...] = terrain.SIMPLE,
    edge_budget: int = 2,
    line_budget: int = 8,
) -> BattleMap:
    """Two groups that face each other, west against east."""
    return BattleMap(
        name=name,
        allies=(Group(allies, WEST),),
        enemies=(Group(enemies, EAST),),
        rectangles=rectangles,
        attack_point=WEST,
        time_limit=time_limit,
        type_features=type_features,
        edge_budget=edge_budget,
        line_budget=line_budget,
    )


_ALL = (
    _lane("2s3z", (("stalker", 2), ("zealot", 3)), (("stalker", 2), ("zealot", 3)), 120, STALKERS_AND_ZEALOTS),
    _lane("3s5z", (("stalker", 3), ("zealot", 5)), (("stalker", 3), ("zealot", 5)), 150, STALKERS_AND_ZEALOTS),
    _lane(
        "3s5z_vs_3s6z", (("stalker", 3), ("zealot", 5)), (("stalker", 3), ("zealot", 6)), 170, STALKERS_AND_ZEALOTS
    ),
    _lane("3s_vs_5z", (("stalker", 3),), (("zealot", 5),), 250, rectangles=terrain.FRAME, edge_budget=4),
    _lane("10m_vs_11m", (("marine", 10),), (("marine", 11),), 150),
    _lane("27m_vs_30m", (("marine", 27),), (("marine", 30),), 180),
    _lane(
        "MMM",
        (("medivac", 1), ("marine", 7), ("marauder", 2)),
        (("medivac", 1), ("marine", 7), ("marauder", 2)),
        150,
        BARRACKS,
        line_budget=10,
    ),
    _lane(
        "MMM2",
        (("medivac", 1), ("marine", 7), ("marauder", 2)),
        (("medivac", 1), ("marine", 8), ("marauder", 3)),
        180,
        BARRACKS,
        line_budget=10,
    ),
    BattleMap(
        name="2s_vs_1sc",
        allies=(Group((("stalker", 1),), (11.12, 10.34)), Group((("stalker", 1),), (16.98, 10.37))),
        enemies=(Group((("spine_crawler", 1),), (13.92, 20.04)),),
        rectangles=terrain.PENTAGON,
        attack_point=(13.92, 20.04),
        time_limit=300,
        edge_budget=16,
        line_budget=10,
        enemies_first=True,
    ),
    BattleMap(
        name="bane_vs_bane",
        allies=(Group((("zergling", 20),), (16.0, 11.0)), Group((("baneling", 4),), (16.0, 8.0))),
        enemies=(Group((("baneling", 4),), (16.0, 24.0)), Group((("zergling", 20),), (16.0, 21.0))),
        rectangles=terrain.OCTAGON,
        attack_point=(16.0, 8.0),
        time_limit=200,
        edge_budget=16,
        line_budget=12,
        enemies_first=True,
        type_features=("baneling", "zergling"),
    ),
    BattleMap(
        name="corridor",
        allies=(Group((("zealot", 6),), (19.04, 19.12)),),
        enemies=(Group((("zergling", 24),), (27.91, 28.24)),),
        rectangles=terrain.CORRIDOR,
        attack_point=(4.47, 4.33),
        time_limit=400,
        edge_budget=20,
        line_budget=16,
        enemies_first=True,
    ),
    BattleMap(
        name="2c_vs_64zg",
        allies=(Group((("colossus", 2),), (16.0, 16.0)),),
        enemies=(Group((("zergling", 64),), (16.0, 9.0)),),
        rectangles=terrain.RAVINE,
        attack_point=(16.0, 16.0),
        time_limit=400,
        line_budget=16,
        edge_budget=12,
    ),
)

MAPS: dict[str, BattleMap] = {battle_map.name: battle_map for battle_map in _ALL}


def find_map(name: str) -> BattleMap:
    if name not in MAPS:
        raise UserError(f"There is no SMAClite map {name!r}; choose one of {', '.join(MAPS)}.")
    return MAPS[name]
