"""How units get where they want to go without walking through each other: ORCA, as the original uses it.

Every neighbour and every wall edge nearby forbids one half-plane of velocities; the velocity closest to
the wanted one that none forbids is found by linear programming. When all together forbid everything, the
least forbidden one is taken. The order of the constraints decides close calls and is therefore kept: walls
as the terrain lists them, then units by id.

The method is van den Berg, Guy, Lin and Manocha's "Reciprocal n-body collision avoidance" (2011).

Arrays are [unit, battle] and [constraint, unit, battle]: many battles lie side by side, whatever `jax.vmap` they come
from, because processors work on long rows much faster than on many short ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from diamond_attention.worlds.smaclite.scenario import TICKS_PER_SECOND, Scenario
from diamond_attention.worlds.smaclite.terrain import HEADINGS
from diamond_attention.worlds.smaclite.vectors import Vector, choose, det, dot, length, squared, unit

PARALLEL = 1e-5
"""Below this determinant two lines count as parallel."""
RESCUE_GROUPS, SMALLEST_RESCUE_GROUP = 16, 32
"""Units for which the first linear program fails are solved again in groups: a share of all units, at least some."""
HORIZON = 1.0
"""Seconds ahead for which collisions are avoided. All formulas below are written for one second."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lines:
    """Half-planes of velocities: allowed is what lies to the left of `direction` through `point`."""

    point: Vector
    direction: Vector

    def violation(self, velocity: Vector) -> Float[Array, "constraint unit"]:
        """How far a velocity is inside the forbidden half; negative in the allowed one."""
        return det(self.direction, self.point - velocity)


class Constraints(NamedTuple):
    lines: Lines
    exists: Bool[Array, "constraint unit"]
    is_wall: Bool[Array, "constraint unit"]


class Walkers(NamedTuple):
    """Units as avoidance sees them: all of a battle, or some of them. Constants have a battle axis of one."""

    id: Int[Array, "unit 1"]
    radius: Float[Array, "unit 1"]
    speed: Float[Array, "unit 1"]
    flies: Bool[Array, "unit 1"]
    position: Vector
    velocity: Vector
    alive: Bool[Array, "unit battle"]
    moves: Bool[Array, "unit battle"]


class Avoidance(NamedTuple):
    velocity: Vector
    dropped: Int[Array, ""]
    """Constraints that found no room in the budgets. Zero, or the result is not the original's."""


def avoid(
    scenario: Scenario,
    position: Vector,
    velocity: Vector,
    wanted: Vector,
    capped: Vector,
    alive: Bool[Array, " unit"],
    correct_walls: bool = False,
) -> Avoidance:
    """New velocities of all units, as close to the wanted ones as can be.

    `capped` is the wanted velocity within the speed limit. Who wants to stand still stands still, and is
    never pushed.
    """
    alone = jax.tree.map(lambda values: values[:, None], (position, velocity, wanted, capped, alive))
    found, dropped = jax.tree.map(lambda values: values[:, 0], _side_by_side(scenario, correct_walls)(*alone))
    return Avoidance(found, jnp.sum(dropped, dtype=jnp.int32))


@lru_cache(maxsize=32)
def _side_by_side(scenario: Scenario, correct_walls: bool) -> Callable[..., tuple[Vector, Int[Array, "unit battle"]]]:
    """`avoid` for battles side by side; returns velocities and how many constraints of each unit were dropped."""

    @custom_vmap
    def avoid_many(
        position: Vector, velocity: Vector, wanted: Vector, capped: Vector, alive: Bool[Array, "unit battle"]
    ) -> tuple[Vector, Int[Array, "unit battle"]]:
        everybody = walkers(scenario, position, velocity, wanted, alive)
        return ways(scenario, everybody, everybody, wanted, capped, correct_walls)

    @avoid_many.def_vmap
    def _more(axis_size: int, in_batched: list, *arguments: Any) -> tuple[Any, Any]:
        def join(values: Array, batched: bool) -> Array:
            values = values if batched else jnp.broadcast_to(values, (axis_size, *values.shape))
            return jnp.moveaxis(values, 0, -1).reshape(values.shape[1], -1)

        def split(values: Array) -> Array:
            return jnp.moveaxis(values.reshape(values.shape[0], -1, axis_size), -1, 0)

        found = avoid_many(*lax.optimization_barrier(jax.tree.map(join, arguments, tuple(in_batched))))
        return jax.tree.map(split, found), jax.tree.map(lambda _: True, found)

    return avoid_many


def walkers(
    scenario: Scenario, position: Vector, velocity: Vector, wanted: Vector, alive: Bool[Array, "unit battle"]
) -> Walkers:
    """All units of battles side by side."""
    constants: Any = (scenario.ids, scenario.radius, scenario.speed, scenario.flies)
    own_id, radius, speed, flies = (values[:, None] for values in constants)
    moves = alive & ((wanted.x != 0) | (wanted.y != 0))
    return Walkers(own_id, radius, speed, flies, position, velocity, alive, moves)


def ways(
    scenario: Scenario, everybody: Walkers, own: Walkers, wanted: Vector, capped: Vector, correct_walls: bool
) -> tuple[Vector, Int[Array, "unit battle"]]:
    """The velocities of `own`, some or all of the units, and how many constraints of each were dropped."""
    moves, flies = own.moves, own.flies
    walls, wall_exists, edges_dropped = wall_lines(scenario, own, correct_walls)
    units = unit_lines(everybody, own)
    near = neighbours(scenario, everybody, own)
    # Barriers keep the compiler from computing every line again in each place that reads it.
    walls, units = lax.optimization_barrier((walls, units))
    every = jax.tree.map(lambda wall, other: jnp.concatenate([wall, other]), walls, units)
    exists = jnp.concatenate([wall_exists & ~flies, near]) & moves
    is_wall = exists & (np.arange(len(exists))[:, None, None] < len(wall_exists))
    speed = jnp.broadcast_to(own.speed, moves.shape)
    # From here on every unit is a problem of its own, whichever battle it is in.
    problems = jax.tree.map(
        lambda values: values.reshape(*values.shape[:-2], -1),
        (Constraints(every, exists, is_wall), wanted, capped, speed),
    )
    constraints, *rest = lax.optimization_barrier(problems)
    packed, lines_dropped = _pack(constraints, scenario.map.line_budget)
    chosen = jax.tree.map(lambda values: values.reshape(moves.shape), solve(packed, *rest))
    standing = jnp.zeros_like(wanted.x)
    return (
        choose(moves, chosen, Vector(standing, standing)),
        jnp.where(moves & ~flies, edges_dropped, 0) + lines_dropped.reshape(moves.shape),
    )


# Constraints from units


def neighbours(scenario: Scenario, everybody: Walkers, own: Walkers) -> Bool[Array, "other unit battle"]:
    """Hardly more than who touches whom: the limit is the unit's own radius and the largest on the map."""
    away = squared(everybody.position[:, None] - own.position[None, :])
    limit = scenario.largest_radius + own.radius
    possible = (everybody.flies[:, None] == own.flies[None, :]) & (everybody.id[:, None] != own.id[None, :])
    return possible & (away <= limit * limit) & everybody.alive[:, None]


def unit_lines(everybody: Walkers, own: Walkers) -> Lines:
    """The half-plane each other unit (first axis) forbids each own one (second axis).

    Two that both move take half the trouble each; one that stands leaves all of it to the other.
    """
    velocity = own.velocity
    away = everybody.position[:, None] - own.position[None, :]
    relative = velocity[None, :] - everybody.velocity[:, None]
    apart = everybody.radius[:, None] + own.radius[None, :]
    away_squared = squared(away)
    touching = away_squared <= apart * apart

    # Touching: out of the overlap within one tick. Else: past each other within the horizon.
    hurry = jnp.where(touching, float(TICKS_PER_SECOND), 1.0)
    from_cutoff = relative - away * hurry
    from_cutoff_length = length(from_cutoff)
    # Two units on one spot with one velocity: the original divides by zero; these part east and west, by id.
    lower = everybody.id[:, None] <= own.id[None, :]
    apart_by_id = jnp.where(lower, jnp.ones_like(apart), -1.0)
    normal = unit(from_cutoff)
    normal = Vector(jnp.where(from_cutoff_length > 0, normal.x, apart_by_id), normal.y)
    cutoff = Vector(normal.y, -normal.x)
    inward = dot(from_cutoff, away)
    on_cutoff = touching | ((inward < 0) & (inward * inward > apart * apart * squared(from_cutoff)))

    leg = jnp.sqrt(jnp.maximum(away_squared - apart * apart, 0.0))
    safe_squared = jnp.where(away_squared > 0, away_squared, 1.0)
    left = Vector(away.x * leg - away.y * apart, away.x * apart + away.y * leg)
    right = Vector(-away.x * leg - away.y * apart, away.x * apart - away.y * leg)
    side = choose(det(away, from_cutoff) > 0, left, right) / safe_squared

    change = choose(on_cutoff, normal * (apart * hurry - from_cutoff_length), side * dot(relative, side) - relative)
    share = jnp.where(everybody.moves, 0.5, 1.0)[:, None]
    return Lines(velocity[None, :] + change * share, choose(on_cutoff, cutoff, side))


# Constraints from walls


def wall_lines(
    scenario: Scenario, own: Walkers, correct: bool
) -> tuple[Lines, Bool[Array, "edge unit battle"], Int[Array, "unit battle"]]:
    """The half-planes wall edges forbid, whether each exists, and how many edges found no room.

    An edge counts when its rectangle is within a second's walk and the unit stands on its outer side.
    `correct` uses the wall's true normal; the original's numpy backend does not, and leaves units no
    margin to horizontal walls until they touch.
    """
    table, position, radius = scenario.edges, own.position, own.radius
    headings = HEADINGS[table.heading].astype(table.length.dtype)

    def each(values: np.ndarray) -> np.ndarray:
        return values[:, None, None]

    corner_x = each(table.start[:, 0]) - position.x
    corner_y = each(table.start[:, 1]) - position.y
    outside = corner_x * each(headings[:, 1]) - corner_y * each(headings[:, 0]) < 0
    low_x, low_y, high_x, high_y = (each(table.corners[:, k]) for k in range(4))
    gap_x = jnp.maximum(jnp.maximum(low_x - position.x, position.x - high_x), 0.0)
    gap_y = jnp.maximum(jnp.maximum(low_y - position.y, position.y - high_y), 0.0)
    limit = radius + own.speed * HORIZON
    facing = outside & (gap_x * gap_x + gap_y * gap_y <= limit * limit)

    budget = min(scenario.map.edge_budget, len(table.length))
    index, faces, dropped = _first(facing, budget)
    x, y, size, along_x, along_y = (
        jnp.asarray(values)[index]
        for values in (table.start[:, 0], table.start[:, 1], table.length, headings[:, 0], headings[:, 1])
    )
    first, along = Vector(x, y) - position, Vector(along_x, along_y)
    lines, exists = _edge_lines(first, size, along, own.velocity, radius, correct)
    exists &= faces
    # An edge hidden behind a line that exists already adds nothing. Lines exist one after the other.
    covered = _covers(lines, first, first + along * size, radius)
    for edge in range(1, budget):
        hidden = jnp.any(exists[:edge] & covered[edge, :edge], axis=0)
        exists = exists.at[edge].set(exists[edge] & ~hidden)
    return lines, exists, dropped


def _covers(lines: Lines, first: Vector, last: Vector, radius: Array) -> Bool[Array, "edge earlier unit battle"]:
    earlier = Lines(lines.point[None], lines.direction[None])

    def behind(end: Vector) -> Array:
        return det(end[:, None] - earlier.point, earlier.direction) - radius >= -PARALLEL

    return behind(first) & behind(last)


def _edge_lines(
    first: Vector,
    size: Float[Array, "edge unit battle"],
    along: Vector,
    velocity: Vector,
    radius: Array,
    correct: bool,
) -> tuple[Lines, Bool[Array, "edge unit battle"]]:
    """One line for each edge that runs from `first`, seen from the unit, `along` its wall; and whether it exists."""
    # Rectangles are walked around counter-clockwise.
    following, preceding = Vector(-along.y, along.x), Vector(along.y, -along.x)
    last = first + along * size
    radius_squared = radius * radius
    # Where the unit's foot on the edge's line lies, 0 at its start and 1 at its end, and how far away it is.
    foot = dot(-first, along) / size
    off_line = squared(-first - along * (foot * size))
    close = off_line <= radius_squared

    touches_start = (foot < 0) & (squared(first) < radius_squared)
    touches_end = (foot > 1) & (squared(last) <= radius_squared)
    touches_middle = (foot > 0) & (foot < 1) & close
    touching = touches_start | touches_end | touches_middle
    # The end of this edge is the start of the following one, which speaks for the corner if it faces the unit.
    silent = touches_end & (det(last, following) < 0)
    contact = choose(
        touches_start, unit(Vector(-first.y, first.x)), choose(touches_end, unit(Vector(-last.y, last.x)), -along)
    )

    past_start = (foot < 0) & close
    past_end = (foot > 1) & close
    oblique = past_start | past_end
    left_end = choose(past_end, last, first)
    right_end = choose(past_start, first, last)
    left, right = _left_leg(left_end, radius), _right_leg(right_end, radius)
    beyond = choose(past_start, along, following)
    left_foreign = det(left, -preceding) >= 0
    right_foreign = det(right, beyond) <= 0
    left = choose(left_foreign, -preceding, left)
    right = choose(right_foreign, beyond, right)

    width = right_end - left_end
    width_squared = jnp.where(oblique, 1.0, squared(width))
    across = jnp.where(oblique, 0.5, dot(velocity - left_end, width) / width_squared)
    on_left = dot(velocity - left_end, left)
    on_right = dot(velocity - right_end, right)
    at_left_end = ((across < 0) & (on_left < 0)) | (oblique & (on_left < 0) & (on_right < 0))
    at_right_end = ~at_left_end & (across > 1) & (on_right < 0)
    from_end = unit(velocity - choose(at_left_end, left_end, right_end))
    end_point = choose(at_left_end, left_end, right_end) + from_end * radius

    to_cutoff = jnp.where(
        (across < 0) | (across > 1) | oblique, jnp.inf, squared(velocity - (left_end + width * across))
    )
    to_left = jnp.where(on_left < 0, jnp.inf, squared(velocity - (left_end + left * on_left)))
    to_right = jnp.where(on_right < 0, jnp.inf, squared(velocity - (right_end + right * on_right)))
    cutoff = (to_cutoff <= to_left) & (to_cutoff <= to_right)
    takes_left = ~cutoff & (to_left <= to_right)
    takes_right = ~cutoff & ~takes_left
    direction = choose(cutoff, -along, choose(takes_left, left, -right))
    normal = Vector(-direction.y, direction.x if correct else -direction.y)
    point = choose(takes_right, right_end, left_end) + normal * radius

    at_end = at_left_end | at_right_end
    foreign = ~at_end & ((takes_left & left_foreign) | (takes_right & right_foreign))
    zero = jnp.zeros_like(point.x)
    lines = Lines(
        point=choose(touching, Vector(zero, zero), choose(at_end, end_point, point)),
        direction=choose(touching, contact, choose(at_end, Vector(from_end.y, -from_end.x), direction)),
    )
    return lines, jnp.where(touching, ~silent, ~foreign)


def _left_leg(corner: Vector, radius: Array) -> Vector:
    """The tangent from the unit past a disc around the corner."""
    size = squared(corner)
    leg = jnp.sqrt(jnp.maximum(size - radius * radius, 0.0))
    return Vector(corner.x * leg - corner.y * radius, corner.x * radius + corner.y * leg) / jnp.where(
        size > 0, size, 1.0
    )


def _right_leg(corner: Vector, radius: Array) -> Vector:
    size = squared(corner)
    leg = jnp.sqrt(jnp.maximum(size - radius * radius, 0.0))
    return Vector(corner.x * leg + corner.y * radius, corner.y * leg - corner.x * radius) / jnp.where(
        size > 0, size, 1.0
    )


# Packing


def _first(
    present: Bool[Array, "item unit battle"], budget: int
) -> tuple[Int[Array, "slot unit battle"], Bool[Array, "slot unit battle"], Int[Array, "unit battle"]]:
    """The first `budget` present items of each unit, in order: indices, which slots are used, how many did not fit.

    Slot k holds the item before which exactly k others are present: as many items as have k or fewer present up to
    and including themselves come before it. Counting needs no sort.
    """
    up_to_here = jnp.cumsum(present, axis=0, dtype=jnp.int32)
    total = up_to_here[-1]
    slots = np.arange(budget, dtype=np.int32)[:, None, None]
    index = jnp.sum(up_to_here[None] <= slots[:, None], axis=1, dtype=jnp.int32)
    used = slots < total
    return jnp.where(used, index, 0), jnp.asarray(used), jnp.maximum(total - budget, 0)


def _pack(constraints: Constraints, budget: int) -> tuple[Constraints, Int[Array, " unit"]]:
    """The first `budget` constraints of each unit without gaps, and how many did not fit.

    One row of constraints after the other is put where it belongs. That is faster than to gather them one by
    one, and the programs are faster with few constraints.
    """
    if len(constraints.exists) <= budget:
        return constraints, jnp.zeros(constraints.exists.shape[1:], jnp.int32)
    slots = np.arange(budget, dtype=np.int32)[:, None]

    def put(carry: tuple[Lines, Array, Array], row: Constraints) -> tuple[tuple[Lines, Array, Array], None]:
        lines, is_wall, count = carry
        here = row.exists & (slots == count)
        lines = jax.tree.map(lambda packed, new: jnp.where(here, new, packed), lines, row.lines)
        return (lines, is_wall | (here & row.is_wall), count + row.exists), None

    empty = jax.tree.map(lambda values: jnp.zeros((budget, *values.shape[1:]), values.dtype), constraints.lines)
    no_wall = jnp.zeros(empty.point.x.shape, bool)
    nothing = jnp.zeros(constraints.exists.shape[1:], jnp.int32)
    (lines, is_wall, count), _ = lax.scan(put, (empty, no_wall, nothing), constraints)
    return Constraints(lines, jnp.asarray(slots < count), is_wall), jnp.maximum(count - budget, 0)


# The linear programs. Constraints are [constraint, unit]; each unit is a program of its own.


def solve(constraints: Constraints, wanted: Vector, capped: Vector, max_speed: Float[Array, " unit"]) -> Vector:
    """The allowed velocity closest to the wanted one, or the least forbidden one."""
    velocity, failed_at = _closest(
        constraints.lines, constraints.exists, capped, wanted, max_speed, by_direction=False
    )
    return _rescue_failed(constraints, velocity, failed_at, max_speed)


def _closest(
    lines: Lines,
    exists: Bool[Array, "constraint unit"],
    start: Vector,
    goal: Vector,
    max_speed: Float[Array, " unit"],
    by_direction: bool,
) -> tuple[Vector, Int[Array, " unit"]]:
    """Meets one constraint after the other, each on its own line as well as the earlier ones permit.

    Lines that hold already change nothing, so each unit jumps to its next violated one. Returns the
    velocity and the line at which no velocity was left, or the number of lines.
    """
    budget = exists.shape[0]
    slots = np.arange(budget, dtype=np.int32)[:, None]

    def next_violated(velocity: Vector, from_slot: Array) -> Int[Array, " unit"]:
        violated = exists & (slots >= from_slot) & (lines.violation(velocity) > 0)
        return jnp.min(jnp.where(violated, slots, budget), axis=0)

    def unfinished(carry: tuple[Vector, Array, Array]) -> Bool[Array, ""]:
        return jnp.any(carry[1] < budget)

    def meet(carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
        velocity, slot, failed_at = carry
        on_line, possible = _along(lines, exists & (slots < slot), _pick(lines, slot), goal, max_speed, by_direction)
        pending = slot < budget
        failed_at = jnp.where(pending & ~possible, slot, failed_at)
        velocity = choose(pending & possible, on_line, velocity)
        slot = jnp.where(possible, next_violated(velocity, slot + 1), budget)
        return velocity, slot, failed_at

    first = next_violated(start, jnp.zeros_like(start.x, dtype=jnp.int32))
    velocity, _, failed_at = lax.while_loop(unfinished, meet, (start, first, jnp.full_like(first, budget)))
    return velocity, failed_at


def _pick(lines: Lines, slot: Int[Array, " unit"]) -> Lines:
    """The line in each unit's own slot; any finite line where there is no such slot."""
    is_slot = np.arange(lines.point.x.shape[0])[:, None] == slot
    return jax.tree.map(lambda values: jnp.sum(jnp.where(is_slot, values, 0.0), axis=0), lines)


def _along(
    lines: Lines,
    earlier: Bool[Array, "constraint unit"],
    line: Lines,
    goal: Vector,
    max_speed: Float[Array, " unit"],
    by_direction: bool,
) -> tuple[Vector, Bool[Array, " unit"]]:
    """The best velocity on one line within the speed limit and the earlier constraints, and whether there is one."""
    middle = dot(line.point, line.direction)
    discriminant = middle * middle + max_speed * max_speed - squared(line.point)
    half = jnp.sqrt(jnp.maximum(discriminant, 0.0))
    cross = det(line.direction, lines.direction)
    offset = det(lines.direction, line.point - lines.point)
    parallel = jnp.abs(cross) < PARALLEL
    crossing = offset / jnp.where(parallel, 1.0, cross)
    from_above = earlier & ~parallel & (cross >= 0)
    from_below = earlier & ~parallel & (cross < 0)
    high = jnp.minimum(-middle + half, jnp.min(jnp.where(from_above, crossing, jnp.inf), axis=0))
    low = jnp.maximum(-middle - half, jnp.max(jnp.where(from_below, crossing, -jnp.inf), axis=0))
    blocked = jnp.any(earlier & parallel & (offset < 0), axis=0)
    possible = (discriminant >= 0) & (low <= high) & ~blocked
    if by_direction:
        at = jnp.where(dot(goal, line.direction) > 0, high, low)
    else:
        at = jnp.clip(dot(line.direction, goal - line.point), low, high)
    return line.point + line.direction * at, possible


def _rescue_failed(
    constraints: Constraints, velocity: Vector, failed_at: Int[Array, " unit"], max_speed: Float[Array, " unit"]
) -> Vector:
    """The second program, for the few units that need it: a few at a time, so that the others cost nothing."""
    units = failed_at.shape[0]
    group = max(units // RESCUE_GROUPS, SMALLEST_RESCUE_GROUP)
    if units <= group:
        return _least_forbidden(constraints, velocity, failed_at, max_speed)
    budget = constraints.exists.shape[0]

    def unfinished(carry: tuple[Vector, Array]) -> Bool[Array, ""]:
        return jnp.any(carry[1] < budget)

    def rescue(carry: tuple[Vector, Array]) -> tuple[Vector, Array]:
        velocity, failed_at = carry
        (index,) = jnp.nonzero(failed_at < budget, size=group, fill_value=units)
        few = jax.tree.map(
            lambda values: values.at[..., index].get(mode="fill", fill_value=0),
            (constraints, velocity, failed_at, max_speed),
        )
        # Places left over in the group repeat nobody: they have failed nowhere.
        found = _least_forbidden(few[0], few[1], jnp.where(index < units, few[2], budget), few[3])
        velocity = jax.tree.map(lambda all_, new: all_.at[index].set(new, mode="drop"), velocity, found)
        return velocity, failed_at.at[index].set(budget, mode="drop")

    return lax.while_loop(unfinished, rescue, (velocity, failed_at))[0]


def _least_forbidden(
    constraints: Constraints, velocity: Vector, failed_at: Int[Array, " unit"], max_speed: Float[Array, " unit"]
) -> Vector:
    """From the line that failed on: violate the worst unit line as little as possible, never a wall."""
    lines, exists, is_wall = constraints
    budget = exists.shape[0]
    slots = np.arange(budget, dtype=np.int32)[:, None]

    def next_worse(velocity: Vector, depth: Array, from_slot: Array) -> Int[Array, " unit"]:
        worse = exists & (slots >= from_slot) & (lines.violation(velocity) > depth)
        return jnp.min(jnp.where(worse, slots, budget), axis=0)

    def unfinished(carry: tuple[Vector, Array]) -> Bool[Array, ""]:
        return jnp.any(carry[1] < budget)

    def improve(carry: tuple[Vector, Array]) -> tuple[Vector, Array]:
        velocity, slot = carry
        line = _pick(lines, slot)
        cross = det(line.direction, lines.direction)
        parallel = jnp.abs(cross) <= PARALLEL
        same_way = parallel & (dot(line.direction, lines.direction) > 0)
        meeting = det(lines.direction, line.point - lines.point) / jnp.where(parallel, 1.0, cross)
        between = Lines(
            point=choose(parallel, (line.point + lines.point) * 0.5, line.point + line.direction * meeting),
            direction=unit(lines.direction - line.direction),
        )
        projected = Lines(
            choose(is_wall, lines.point, between.point), choose(is_wall, lines.direction, between.direction)
        )
        used = exists & (is_wall | ((slots < slot) & ~same_way))
        # A unit that has finished has nothing to solve any more.
        used &= slot < budget
        outward = Vector(-line.direction.y, line.direction.x)
        found, failed = _closest(projected, used, outward * max_speed, outward, max_speed, by_direction=True)
        better = (slot < budget) & (failed == budget)
        velocity = choose(better, found, velocity)
        depth = det(line.direction, line.point - velocity)
        slot = jnp.where(slot < budget, next_worse(velocity, depth, slot + 1), budget)
        return velocity, slot

    # The first line to improve on is the one that failed: it is violated, and the depth starts at zero.
    first = jnp.where(
        failed_at < budget,
        next_worse(velocity, jnp.zeros_like(velocity.x), failed_at),
        jnp.full_like(failed_at, budget),
    )
    velocity, _ = lax.while_loop(unfinished, improve, (velocity, first))
    return velocity
