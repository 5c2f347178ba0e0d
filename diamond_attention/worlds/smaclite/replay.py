"""The referee: recorded episodes of the original engine, replayed one step at a time.

For each recorded step the recorded situation is loaded, the recorded actions are given in the recorded order
of turns, and everything the recording holds about what follows is compared. One step at a time, because
contacts between units amplify rounding: two correct engines drift apart when they run freely.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diamond_attention.errors import UserError, shown
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.scenario import NOBODY, TICKS_PER_STEP, Scenario, scenario_of
from diamond_attention.worlds.smaclite.trace_file import read_arrays

SHARE_REQUIRED = 0.998
"""Of all steps. Contacts at exactly the limit of two rules can fall either way; those steps have to be explained."""

CHUNK = 16
"""Steps replayed at once. One size for all recordings of a map, so that they share one compiled program."""

EXACT, FINE, COARSE = 0.0, 1e-9, 1e-4
TOLERANCES: dict[str, float] = {
    "pos": COARSE,
    "vel": COARSE,
    "hp": FINE,
    "shield": FINE,
    "cooldown": FINE,
    "shield_cd": FINE,
    "energy": FINE,
    "heal_pool": FINE,
    "target": EXACT,
    "alive": EXACT,
    "avail": EXACT,
    "obs": COARSE,
    "state": COARSE,
    "reward": FINE,
    "done": EXACT,
    "won": EXACT,
    "tick_pos": COARSE,
    "tick_hp": COARSE,
    "tick_shield": COARSE,
    "tick_target": EXACT,
    "tick_alive": EXACT,
    "tick_reward": FINE,
}
"""The arrays compared. Hit points within a step are recorded in float32 only, hence coarse."""

EXPLAINED = {
    ("3s5z_02_random", 33): "Three zealots press against each other; the last bit of one position differs in the "
    "second tick, and every tick in contact multiplies that by up to sixteen. At the end of the step positions still "
    "agree to 6e-6, one velocity to 2e-4 only.",
}
"""Why recorded steps (recording, step) are known not to match: one of 1,492, in 36 episodes on all twelve maps."""

AFTER_RESET = ("avail", "obs", "state")
"""Compared for the first situation too, where they are computed; the other arrays would be the loaded ones."""


@dataclass(frozen=True)
class Trace:
    name: str
    scenario: Scenario
    arrays: dict[str, np.ndarray]

    @property
    def steps(self) -> int:
        return len(self.arrays["actions"])


@dataclass
class Comparison:
    """One recording against this engine."""

    name: str
    map_name: str
    differences: dict[str, np.ndarray] = field(default_factory=dict)
    """For each array, the largest difference in every step."""
    lines_dropped: int = 0

    @property
    def mismatches(self) -> dict[int, list[str]]:
        """The steps that do not match, and the arrays in which they do not."""
        steps: dict[int, list[str]] = {}
        for array, difference in self.differences.items():
            for step in np.flatnonzero(~(difference <= TOLERANCES[array])):
                steps.setdefault(int(step), []).append(array)
        return steps

    @property
    def steps(self) -> int:
        return len(self.differences["pos"])


def load_trace(path: str | Path) -> Trace:
    """Raises UserError if the file is no recording of one of the twelve maps."""
    arrays = read_arrays(path)
    try:
        meta = json.loads(str(arrays.pop("meta")))
        map_name, unit_types = str(meta["map"]), tuple(meta["unit_type"])
    except (KeyError, ValueError, TypeError, RecursionError):
        raise UserError(f"{path} is not a SMAClite trace: it holds no description of an episode.") from None
    if map_name not in MAPS:
        raise UserError(f"{path} is a trace of {shown(map_name)}, which is none of {', '.join(MAPS)}.")
    scenario = scenario_of(map_name)
    if unit_types != scenario.unit_types:
        raise UserError(f"{path} is a trace of {map_name} with other units than the map has.")
    for array, shape in _expected_shapes(scenario, arrays).items():
        if array not in arrays or arrays[array].shape != shape:
            found = f"has shape {arrays[array].shape}" if array in arrays else "is missing"
            raise UserError(f"{path} is a trace in another format: {array} {found} where {shape} is expected.")
        if arrays[array].dtype.kind not in "biuf":
            raise UserError(f"{path} is a trace in another format: {array} does not hold numbers.")
    if not len(arrays["reward"]):
        raise UserError(f"{path} is a trace of no steps; there is nothing to replay.")
    return Trace(Path(path).stem, scenario, arrays)


def _expected_shapes(scenario: Scenario, arrays: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    steps = len(arrays["reward"]) if "reward" in arrays and arrays["reward"].ndim == 1 else 0
    units, agents = scenario.number_of_units, scenario.number_of_agents
    state = battle.start(scenario)
    legal = battle.legal_actions(scenario, state)
    observation = jax.eval_shape(lambda: battle.observations(scenario, state, legal)).shape[-1]
    state_size = jax.eval_shape(lambda: battle.state_vector(scenario, state)).shape[-1]
    per_unit = ("hp", "shield", "cooldown", "shield_cd", "energy", "heal_pool", "target", "alive")
    shapes: dict[str, tuple[int, ...]] = {
        "reward": (steps,),
        "done": (steps,),
        "won": (steps,),
        "actions": (steps, agents),
        "order": (steps, TICKS_PER_STEP, units),
        "pos": (steps + 1, units, 2),
        "vel": (steps + 1, units, 2),
        "avail": (steps + 1, agents, scenario.number_of_actions),
        "obs": (steps + 1, agents, observation),
        "state": (steps + 1, state_size),
        "tick_pos": (steps, TICKS_PER_STEP, units, 2),
        "tick_reward": (steps, TICKS_PER_STEP),
    }
    shapes |= dict.fromkeys(per_unit, (steps + 1, units))
    shapes |= {f"tick_{name}": (steps, TICKS_PER_STEP, units) for name in ("hp", "shield", "target", "alive")}
    return shapes


def load_state(trace: Trace, at: Any, dtype: Any = np.float64) -> BattleState:
    """The recorded situation(s) before step(s) `at`. What is not recorded is False, or follows from the actions."""
    arrays = trace.arrays
    before = np.asarray(at)
    last_actions = np.where((before > 0)[..., None], arrays["actions"][np.maximum(before - 1, 0)], NOBODY)
    loaded = BattleState(
        position=arrays["pos"][at],
        velocity=arrays["vel"][at].astype(dtype),
        hp=arrays["hp"][at].astype(dtype),
        shield=arrays["shield"][at].astype(dtype),
        cooldown=arrays["cooldown"][at].astype(dtype),
        shield_timer=arrays["shield_cd"][at].astype(dtype),
        energy=arrays["energy"][at].astype(dtype),
        heal_pool=arrays["heal_pool"][at].astype(dtype),
        target=arrays["target"][at].astype(np.int32),
        attacking=jnp.zeros(arrays["alive"][at].shape, bool),
        alive=arrays["alive"][at].astype(bool),
        last_actions=jnp.asarray(last_actions, jnp.int32),
        lines_dropped=jnp.zeros(before.shape, jnp.int32),
    )
    return jax.tree.map(jnp.asarray, loaded)


def shown_hp(state: BattleState) -> Any:
    return jnp.where(state.alive, state.hp, 0.0)


def describe(scenario: Scenario, state: BattleState) -> dict[str, Any]:
    legal = battle.legal_actions(scenario, state)
    return {
        "avail": legal,
        "obs": battle.observations(scenario, state, legal),
        "state": battle.state_vector(scenario, state),
    }


def after_step(scenario: Scenario, outcome: battle.Outcome) -> dict[str, Any]:
    """What a recording holds of the situation after a step, by the same names; what happened within is left out."""
    after = outcome.state
    return describe(scenario, after) | {
        "pos": after.position,
        "vel": after.velocity,
        "hp": shown_hp(after),
        "shield": after.shield,
        "cooldown": after.cooldown,
        "shield_cd": after.shield_timer,
        "energy": after.energy,
        "heal_pool": after.heal_pool,
        "target": after.target,
        "alive": after.alive,
        "reward": outcome.reward,
        "done": outcome.done,
        "won": outcome.won,
    }


@lru_cache(maxsize=16)
def _programs(map_name: str, correct_walls: bool) -> tuple[Any, Any]:
    """Describing and stepping many situations of a map, compiled."""
    scenario = scenario_of(map_name)

    def replay_step(state: BattleState, actions: Any, order: Any) -> dict[str, Any]:
        outcome, ticks = battle.step_and_record(scenario, state, actions, order, correct_walls)
        return after_step(scenario, outcome) | {
            "tick_pos": ticks.state.position,
            "tick_hp": shown_hp(ticks.state),
            "tick_shield": ticks.state.shield,
            "tick_target": ticks.state.target,
            "tick_alive": ticks.state.alive,
            "tick_reward": ticks.reward,
            "lines_dropped": outcome.state.lines_dropped,
        }

    return jax.jit(jax.vmap(partial(describe, scenario))), jax.jit(jax.vmap(replay_step))


def compare(trace: Trace, correct_walls: bool = False) -> Comparison:
    """Replays every step of a recording, in float64."""
    with jax.enable_x64(True):
        described_by, replay_step = _programs(trace.scenario.map.name, correct_walls)
        comparison = Comparison(trace.name, trace.scenario.map.name)
        arrays, steps = trace.arrays, trace.steps
        chunks: list[dict[str, np.ndarray]] = []
        for first in range(0, steps, CHUNK):
            # The last chunk is filled up with its last step again.
            at = np.minimum(np.arange(first, first + CHUNK), steps - 1)
            actions, order = arrays["actions"][at].astype(np.int32), arrays["order"][at].astype(np.int32)
            result = jax.device_get(replay_step(load_state(trace, at), actions, order))
            used = min(CHUNK, steps - first)
            chunks.append({name: values[:used] for name, values in result.items()})
        replayed = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
        comparison.lines_dropped = int(replayed.pop("lines_dropped").sum())
        for name, values in replayed.items():
            recorded = arrays[name]
            expected = recorded[1:] if len(recorded) == steps + 1 else recorded
            comparison.differences[name] = largest_difference(values, expected)
        described = jax.device_get(described_by(load_state(trace, np.zeros(CHUNK, int))))
        for name in AFTER_RESET:
            at_reset = largest_difference(described[name][:1], arrays[name][:1])
            comparison.differences[name][0] = np.fmax(comparison.differences[name][0], at_reset[0])
        return comparison


def largest_difference(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Per step. Not-a-number is a difference without bound."""
    difference = np.abs(values.astype(np.float64) - expected.astype(np.float64)).reshape(len(values), -1).max(axis=1)
    return np.where(np.isnan(difference), np.inf, difference)


def report(comparisons: Sequence[Comparison]) -> str:
    """A plain table of the recordings, the largest differences of each array, and every step that does not match."""
    width = max(len(comparison.name) for comparison in comparisons)
    lines = [f"{'recording':{width}}  steps  match  share    worst pos  lines dropped"]
    for comparison in comparisons:
        matching = comparison.steps - len(comparison.mismatches)
        lines.append(
            f"{comparison.name:{width}}  {comparison.steps:5d}  {matching:5d}  {matching / comparison.steps:7.2%}"
            f"  {comparison.differences['pos'].max():9.1e}  {comparison.lines_dropped:13d}"
        )
    lines += ["", "array        tolerance  largest difference  largest where it matches"]
    for array, tolerance in TOLERANCES.items():
        every = np.concatenate([comparison.differences[array] for comparison in comparisons])
        within = every[every <= tolerance]
        largest_within = f"{within.max():.1e}" if len(within) else "-"
        lines.append(f"{array:11}  {tolerance:9.0e}  {every.max():18.1e}  {largest_within:>24}")
    lines.append("")
    for comparison in comparisons:
        for step, arrays in sorted(comparison.mismatches.items()):
            worst = ", ".join(f"{array} {comparison.differences[array][step]:.1e}" for array in arrays)
            lines.append(f"{comparison.name} step {step} differs: {worst}")
            if (comparison.name, step) in EXPLAINED:
                lines.append(f"    {EXPLAINED[comparison.name, step]}")
    steps, matching = _counts(comparisons)
    lines.append(f"{matching} of {steps} steps match ({matching / steps:.2%}; {SHARE_REQUIRED:.1%} required).")
    return "\n".join(lines)


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What `report` prints, and the largest difference of each array in each recording."""
    steps, matching = _counts(comparisons)
    return {
        "steps": steps,
        "steps_matching": matching,
        "share_matching": matching / steps,
        "share_required": SHARE_REQUIRED,
        "lines_dropped": sum(comparison.lines_dropped for comparison in comparisons),
        "tolerances": TOLERANCES,
        "largest_difference": {
            array: max(_largest(comparison, array) for comparison in comparisons) for array in TOLERANCES
        },
        "exceptions": [
            {
                "recording": comparison.name,
                "step": step,
                "differences": {array: float(comparison.differences[array][step]) for array in arrays},
                "why": EXPLAINED.get((comparison.name, step)),
            }
            for comparison in comparisons
            for step, arrays in sorted(comparison.mismatches.items())
        ],
        "recordings": [
            {
                "recording": comparison.name,
                "map": comparison.map_name,
                "steps": comparison.steps,
                "share_matching": 1.0 - len(comparison.mismatches) / comparison.steps,
                "lines_dropped": comparison.lines_dropped,
                "largest_difference": {array: _largest(comparison, array) for array in TOLERANCES},
            }
            for comparison in comparisons
        ],
    }


def _largest(comparison: Comparison, array: str) -> float:
    return float(comparison.differences[array].max())


def _counts(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    """Steps, and how many of them match."""
    steps = sum(comparison.steps for comparison in comparisons)
    return steps, steps - sum(len(comparison.mismatches) for comparison in comparisons)


def compare_all(paths: Sequence[str | Path]) -> list[Comparison]:
    if not paths:
        raise UserError("Name at least one recorded episode (a .npz file) to replay.")
    return [compare(load_trace(path)) for path in paths]


def enough_match(comparisons: Sequence[Comparison]) -> bool:
    steps, matching = _counts(comparisons)
    return steps - matching <= (1.0 - SHARE_REQUIRED) * steps
