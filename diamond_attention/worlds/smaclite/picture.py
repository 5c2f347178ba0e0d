"""A battle as a picture: who is where, in what state, and who shoots at whom. No display is needed."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image, ImageDraw, ImageFont

from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.scenario import NOBODY, Scenario
from diamond_attention.worlds.smaclite.terrain import MAP_SIZE
from diamond_attention.worlds.smaclite.units import UNIT_TYPES

WIDTH = 760
"""Pixels of a picture, whatever part of the map it shows."""
FINER = 2
"""Drawn this many times larger and then reduced, which smooths all edges."""
MARGIN = 1.0
"""Of wall around what can be walked on, in units of the map."""
ROOM, LEAST_WIDTH = 1.25, 10.0
"""Around a battle that is followed, and the smallest part of the map that is shown of it."""
SHAPES_OF_FILMS = (1.6, 2.0)
"""Width by height: the squarest and the widest, where the map has room for it."""
SHOT, EASE = 48, 6
"""Ticks after which the picture of a followed battle may move on, and over which it does so, before and after."""
TITLE, LEGEND = 40, 30
"""Pixels above and below the map."""
FLASH = 0.2
"""Seconds for which a shot is seen."""

GROUND, WALL, INK = "#e9e6df", "#8d8a84", "#26292e"
ALLY, ENEMY = "#0072b2", "#d55e00"
HEALTH, HURT, SHIELD, ENERGY, EMPTY = "#2f9e44", "#e03131", "#22b8cf", "#9c36b5", "#4b4f56"
SHOTS = {True: "#1c7ed6", False: "#e8590c"}
HEALING = "#2f9e44"

SHAPES: dict[str, tuple[int, str]] = {
    "marine": (0, "m"),
    "marauder": (6, "M"),
    "medivac": (8, "+"),
    "stalker": (5, "S"),
    "zealot": (4, "Z"),
    "zergling": (3, "z"),
    "baneling": (0, "b"),
    "colossus": (6, "C"),
    "spine_crawler": (4, "X"),
}
"""How many corners each type of unit has (0: round), and its letter."""


def draw_battle(
    scenario: Scenario,
    state: BattleState,
    caption: str = "",
    places: Sequence[int] | None = None,
    part: "Part | None" = None,
    note: str = "",
) -> Image.Image:
    """`places` are the agents' by rank, 1 for the highest; they stand beside the agents. `part`: of the map.

    `note` says in the legend what there is to know about them.
    """
    numbers = BattleState(*(np.asarray(values) for values in state))  # type: ignore[arg-type]
    return _Canvas(scenario, part or whole_map(scenario)).draw(numbers, caption, places, note)


class Part(NamedTuple):
    """Of the map, to be shown: west, south, east, north."""

    west: float
    south: float
    east: float
    north: float


def whole_map(scenario: Scenario) -> Part:
    """What can be walked on. Where a map is open at its side, units can leave it; they leave the picture too."""
    walkable = np.argwhere(~scenario.blocked)
    low = np.maximum(walkable.min(axis=0) - MARGIN, 0)
    high = np.minimum(walkable.max(axis=0) + 1 + MARGIN, MAP_SIZE)
    return Part(*map(float, (*low, *high)))


def part_around(scenario: Scenario, position: Float[np.ndarray, "... 2"]) -> Part:
    """The part of the map in which all of these places lie."""
    places = position.reshape(1, -1, 2)
    return parts_along(scenario, places, np.ones(places.shape[:2], bool))[0]


def parts_along(
    scenario: Scenario, positions: Float[np.ndarray, "tick unit 2"], alive: Bool[np.ndarray, "tick unit"]
) -> list[Part]:
    """For each tick of a film, the part of the map that its living units fill.

    All have one shape, so that all frames have one size. The part glides and grows or shrinks with the battle: a part
    of one size would have to be as wide as the way between the two armies at the start, and the fight small in it.
    """
    first, last = np.reshape(whole_map(scenario), (2, 2))
    # When nobody is left, those who fell last stay in the picture.
    somebody = np.maximum.accumulate(np.where(alive.any(axis=1), np.arange(len(alive)), 0))
    shown = alive[somebody][:, :, None]
    # Whole units of the map: the part stands still while the battle moves a little, and a film of it stays small.
    low = np.floor(np.min(positions, axis=1, where=shown, initial=np.inf) - ROOM)
    high = np.ceil(np.max(positions, axis=1, where=shown, initial=-np.inf) + ROOM)
    low, high = _smooth(np.clip(low, first, last), np.min), _smooth(np.clip(high, first, last), np.max)
    width, height = (high - low).T
    shape = min(np.clip(np.median(width / height), *SHAPES_OF_FILMS), MAP_SIZE / height.max())
    # Whole pixels, or two frames could differ in height by rounding.
    shape = WIDTH / round(WIDTH / shape)
    width = np.maximum(np.maximum(width, shape * height), LEAST_WIDTH)
    size = np.stack([width, width / shape], axis=1)
    # A battle at the edge of the map gets its room on the other side.
    beyond = np.maximum(size - (last - first), 0.0) / 2
    middle = np.clip((low + high) / 2, first - beyond + size / 2, last + beyond - size / 2)
    return [Part(*map(float, edges)) for edges in np.concatenate([middle - size / 2, middle + size / 2], axis=1)]


def _smooth(edges: Float[np.ndarray, "tick axis"], outermost: Any) -> Float[np.ndarray, "tick axis"]:
    """The outermost of each shot and of the moves around it, then a moving average: it never lies within `edges`."""
    starts = range(0, len(edges), SHOT)
    shots = [outermost(edges[max(start - EASE, 0) : start + SHOT + EASE], axis=0) for start in starts]
    held = np.pad(np.repeat(shots, SHOT, axis=0)[: len(edges)], ((EASE, EASE), (0, 0)), mode="edge")
    return sliding_window_view(held, 2 * EASE + 1, axis=0).mean(axis=-1)


class _Canvas:
    def __init__(self, scenario: Scenario, part: Part):
        self.scenario = scenario
        low, high = np.array(part[:2]), np.array(part[2:])
        self.low, self.high = low, high
        self.scale = FINER * WIDTH / (high[0] - low[0])
        self.map_height = round((high[1] - low[1]) * self.scale)
        self.size = (FINER * WIDTH, FINER * (TITLE + LEGEND) + self.map_height)

    def at(self, place: Any) -> tuple[float, float]:
        return (
            float((place[0] - self.low[0]) * self.scale),
            float(FINER * TITLE + (self.high[1] - place[1]) * self.scale),
        )

    def draw(self, state: BattleState, caption: str, places: Sequence[int] | None, note: str) -> Image.Image:
        image = Image.new("RGB", self.size, "white")
        pen = ImageDraw.Draw(image)
        self._ground(pen)
        living: list[int] = np.flatnonzero(state.alive).tolist()
        fallen: list[int] = np.flatnonzero(~state.alive).tolist()
        for unit in fallen:
            self._fallen(pen, state, unit)
        for unit in living:
            self._shot(pen, state, unit)
        # Those in the air last: they are above the others.
        for unit in sorted(living, key=lambda unit: bool(self.scenario.flies[unit])):
            self._unit(pen, state, unit)
        for unit in living:
            self._bars(pen, state, unit)
        if places is not None:
            for place, unit in zip(places, self.scenario.ally_ids, strict=False):
                if state.alive[unit]:
                    self._place(pen, state, unit, place)
        # Whatever stands outside of the part that is shown must not reach into the title and the legend.
        top, bottom = FINER * TITLE, FINER * TITLE + self.map_height
        pen.rectangle((0, 0, self.size[0], top - 1), fill="white")
        pen.rectangle((0, bottom + 1, *self.size), fill="white")
        self._title(pen, state, caption)
        self._legend(pen, note)
        return image.resize((self.size[0] // FINER, self.size[1] // FINER), Image.Resampling.LANCZOS)

    def _ground(self, pen: ImageDraw.ImageDraw) -> None:
        top = FINER * TITLE
        pen.rectangle((0, top, self.size[0], top + self.map_height), fill=GROUND)
        for x, y in np.argwhere(self.scenario.blocked):
            if (x + 1 > self.low[0]) and (x < self.high[0]) and (y + 1 > self.low[1]) and (y < self.high[1]):
                left, upper = self.at(np.array([x, min(y + 1, self.high[1])]))
                right, lower = self.at(np.array([x + 1, max(y, self.low[1])]))
                pen.rectangle((left, upper, right, lower), fill=WALL)

    def _fallen(self, pen: ImageDraw.ImageDraw, state: BattleState, unit: int) -> None:
        x, y = self.at(state.position[unit])
        arm = 0.45 * self.scenario.radius[unit] * self.scale
        colour = "#a9c6d9" if self.scenario.is_ally[unit] else "#e3bfa6"
        for sign in (-1, 1):
            pen.line((x - arm, y - sign * arm, x + arm, y + sign * arm), fill=colour, width=round(0.1 * self.scale))

    def _shot(self, pen: ImageDraw.ImageDraw, state: BattleState, unit: int) -> None:
        scenario, target = self.scenario, int(state.target[unit])
        if target == NOBODY:
            return
        way = np.asarray(state.position[target], float) - np.asarray(state.position[unit], float)
        in_reach = float(np.hypot(*way)) <= scenario.reach[unit, target] + 0.5
        heals = bool(scenario.is_healer[unit])
        # A weapon that has just been fired waits for nearly its whole cooldown again.
        fired = heals or state.cooldown[unit] > max(scenario.cooldown[unit] - FLASH, 0)
        if not (in_reach and fired):
            return
        begin, end = self.at(state.position[unit]), self.at(state.position[target])
        colour = HEALING if heals else SHOTS[bool(scenario.is_ally[unit])]
        pen.line((*begin, *end), fill=colour, width=round((0.16 if scenario.beams[unit] else 0.09) * self.scale))
        spark = 0.14 * self.scale
        pen.ellipse((end[0] - spark, end[1] - spark, end[0] + spark, end[1] + spark), fill=colour)

    def _unit(self, pen: ImageDraw.ImageDraw, state: BattleState, unit: int) -> None:
        x, y = self.at(state.position[unit])
        name = self.scenario.unit_types[unit]
        colour = ALLY if self.scenario.is_ally[unit] else ENEMY
        _shape(pen, name, x, y, self.scenario.radius[unit] * self.scale, colour)

    def _bars(self, pen: ImageDraw.ImageDraw, state: BattleState, unit: int) -> None:
        scenario = self.scenario
        x, y = self.at(state.position[unit])
        half, thick = max(scenario.radius[unit], 0.42) * self.scale, min(max(0.13 * self.scale, 3.0), 5.0 * FINER)
        health = float(state.hp[unit] / scenario.max_hp[unit])
        bars = [(health, HEALTH if health > 0.4 else HURT)]
        if scenario.max_shield[unit] > 0:
            bars.append((float(state.shield[unit] / scenario.max_shield[unit]), SHIELD))
        if scenario.max_energy[unit] > 0:
            bars.append((float(state.energy[unit] / scenario.max_energy[unit]), ENERGY))
        upper = y - scenario.radius[unit] * self.scale - thick * (1.15 * len(bars) + 0.3)
        for share, colour in reversed(bars):
            pen.rectangle((x - half, upper, x + half, upper + thick), fill=EMPTY)
            if share > 0:
                right = x - half + 2 * half * min(share, 1.0)
                pen.rectangle((x - half, upper, right, upper + thick), fill=colour)
            upper += 1.15 * thick

    def _place(self, pen: ImageDraw.ImageDraw, state: BattleState, unit: int, place: int) -> None:
        x, y = self.at(state.position[unit])
        away = 0.9 * self.scenario.radius[unit] * self.scale
        font = _font(round(min(max(0.42 * self.scale, 9 * FINER), 18 * FINER)))
        pen.text(
            (x + away, y + away),
            str(place),
            fill=INK,
            font=font,
            anchor="mm",
            stroke_width=FINER,
            stroke_fill="white",
        )

    def _title(self, pen: ImageDraw.ImageDraw, state: BattleState, caption: str) -> None:
        scenario, middle = self.scenario, FINER * TITLE / 2
        font = _font(15 * FINER)
        pen.text((self.size[0] / 2, middle), " · ".join(filter(None, (scenario.map.name, caption))), INK, font, "mm")
        for ids, colour, left in ((scenario.ally_ids, ALLY, True), (scenario.enemy_ids, ENEMY, False)):
            alive = np.asarray(state.alive)[ids]
            strength = float(np.sum(np.where(alive, state.hp[ids] + state.shield[ids], 0.0)))
            share = strength / float(np.sum(scenario.max_hp[ids] + scenario.max_shield[ids]))
            text = f"{alive.sum()} of {len(ids)}, {strength:.0f} hp"
            length, edge = 0.27 * self.size[0], 10 * FINER
            begin = edge if left else self.size[0] - edge - length
            bottom = FINER * (TITLE - 7)
            pen.rectangle((begin, bottom - 6 * FINER, begin + length, bottom), fill="#d8d8d8")
            filled = begin if left else begin + length * (1 - share)
            if share > 0:
                pen.rectangle((filled, bottom - 6 * FINER, filled + length * share, bottom), fill=colour)
            at = (begin, FINER * 13) if left else (begin + length, FINER * 13)
            pen.text(at, text, colour, _font(13 * FINER), "lm" if left else "rm")

    def _legend(self, pen: ImageDraw.ImageDraw, note: str) -> None:
        y = self.size[1] - FINER * LEGEND / 2
        x = 14.0 * FINER
        font = _font(12 * FINER)
        for name in dict.fromkeys(self.scenario.unit_types):
            _shape(pen, name, x, y, 9 * FINER, "#6b7078")
            label = name.replace("_", " ")
            pen.text((x + 14 * FINER, y), label, INK, font, "lm")
            x += 14 * FINER + pen.textlength(label, font) + 22 * FINER
        x += 4 * FINER
        bars = [("health", HEALTH)]
        if (self.scenario.max_shield > 0).any():
            bars.append(("shield", SHIELD))
        if (self.scenario.max_energy > 0).any():
            bars.append(("energy", ENERGY))
        for label, colour in bars:
            pen.rectangle((x, y - 3 * FINER, x + 22 * FINER, y + 3 * FINER), fill=colour)
            pen.text((x + 27 * FINER, y), label, INK, font, "lm")
            x += 27 * FINER + pen.textlength(label, font) + 18 * FINER
        # Many types of units leave no room for it.
        if x + pen.textlength(note, font) < self.size[0]:
            pen.text((self.size[0] - 10 * FINER, y), note, INK, font, "rm")


def _shape(pen: ImageDraw.ImageDraw, name: str, x: float, y: float, radius: float, colour: str) -> None:
    corners, letter = SHAPES[name]
    edge = max(round(0.1 * radius), FINER)
    if corners == 0:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline="white", width=edge)
    else:
        turn = math.pi / 4 if UNIT_TYPES[name].speed == 0 else math.pi / 2
        # A polygon looks smaller than a circle around it.
        reach = (1.35 if corners < 5 else 1.15) * radius
        angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
        points = [(x + reach * math.cos(angle), y - reach * math.sin(angle)) for angle in angles]
        pen.polygon(points, fill=colour, outline="white", width=edge)
    # The middle of a triangle lies low.
    pen.text((x, y + (0.12 * radius if corners == 3 else 0)), letter, "white", _font(round(1.05 * radius)), "mm")


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
