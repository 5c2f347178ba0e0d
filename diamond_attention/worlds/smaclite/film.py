"""A battle as a film, tick by tick."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from diamond_attention.colours import place_by_rank
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.picture import draw_battle, parts_along
from diamond_attention.worlds.smaclite.scenario import TICKS_PER_STEP, scenario_of
from diamond_attention.worlds.smaclite.world import Smaclite

TICKS_PER_FRAME = 3
FRAMES_PER_SECOND = 10
"""Nearly twice as fast as the battle; more frames would make a film of eight against eight larger than a megabyte."""
NUMBERS = "Number: place by rank, 1 is the highest."
HIDING_NUMBERS = "Number: place by rank. A unit sees only allies with smaller ones."


def ticks_of(recording: Any) -> BattleState:
    """Every tick of a recorded battle, the start first: its steps played again from what the world was given."""
    world: Smaclite = recording.world
    steps = recording.frames - 1
    before, actions, keys = jax.tree.map(lambda x: jnp.asarray(x[:steps]), recording[4:7])

    def again(step: tuple) -> BattleState:
        state, chosen, key = step
        return world.step_in_ticks(state, chosen, jax.random.wrap_key_data(key))[1]

    ticks = jax.lax.map(again, (before, actions, keys))
    start = world.battle(jax.tree.map(lambda x: jnp.asarray(x[0]), recording.states))
    # [step, tick, ...] → one long row of ticks.
    return jax.tree.map(
        lambda begin, rest: np.concatenate([np.asarray(begin)[None], np.asarray(rest).reshape(-1, *rest.shape[2:])]),
        start,
        ticks,
    )


def draw_frames(recording: Any, ticks_per_frame: int = TICKS_PER_FRAME) -> list[Image.Image]:
    """Pictures of a battle. Numbers beside agents are their places by rank among the living; 1 sees only itself."""
    scenario = scenario_of(recording.world.map)
    states = ticks_of(recording)
    ticks, agents = len(states.alive), scenario.number_of_agents
    won = bool(recording.measures["battle_won"][-1] > 0)
    sides = (states.alive[-1][scenario.ally_ids], states.alive[-1][scenario.enemy_ids])
    over = recording.frames > recording.world.time_limit or not all(side.any() for side in sides)
    parts = parts_along(scenario, np.asarray(states.position), np.asarray(states.alive))
    note = HIDING_NUMBERS if recording.policy.hides_in else NUMBERS if recording.policy.hears_ranks else ""
    frames = []
    for tick in [*range(0, ticks - 1, ticks_per_frame), ticks - 1]:
        # The ranks of a step are those with which its ticks were decided.
        step = min(max(tick - 1, 0) // TICKS_PER_STEP, recording.frames - 2)
        caption = f"step {-(-tick // TICKS_PER_STEP)}"
        if tick == ticks - 1:
            caption += ", won" if won else ", not won" if over else ", not over yet"
        state = jax.tree.map(lambda values: values[tick], states)  # noqa: B023 - used at once
        places = None
        if recording.policy.hears_ranks:
            ranks, living = recording.ranks[step, :agents], np.asarray(state.alive)[scenario.ally_ids]
            places = place_by_rank(np.where(living, ranks, -1.0)).tolist()  # the dead stand above nobody
        frames.append(draw_battle(scenario, state, caption, places, parts[tick], note))
    return frames
