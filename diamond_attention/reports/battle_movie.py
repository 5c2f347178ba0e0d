"""A movie of one SMAClite battle, tick by tick."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from PIL import Image

from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import dropout_in_force
from diamond_attention.learning.rollout import RankHold, TeamState, act, begin_episode, see
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.reports.gif import write_gif
from diamond_attention.reports.names import naming
from diamond_attention.runs.record import Run
from diamond_attention.runs.settings import check_seed, padded
from diamond_attention.runs.train import load_policy
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.picture import draw_battle, part_around
from diamond_attention.worlds.smaclite.scenario import TICKS_PER_STEP, scenario_of
from diamond_attention.worlds.smaclite.world import Smaclite

TICKS_PER_FRAME = 2
FRAMES_PER_SECOND = 16
"""Twice as fast as the battle."""


class RecordedBattle(NamedTuple):
    """One battle, every tick of it; the first situation is the start."""

    map_name: str
    states: BattleState
    """With a leading tick axis."""
    ranks: Float[np.ndarray, "step agent"] | None
    """None where they mean nothing to the policy that played."""
    won: bool
    steps: int


def watch_battle(run: Run, map_name: str | None, to: Path, *, seed: int = 0, greedy: bool = True) -> Path:
    """Plays one battle and films it; the ending of `to` says how: gif, or png for four moments of it."""
    if to.suffix.lower() not in (".gif", ".png"):
        raise UserError(f"--to is {str(to)!r}; the file must end in .gif or .png.")
    check_seed(seed)
    if not isinstance(run.settings.world, Smaclite):
        raise UserError(f"{run.path} was trained on {run.settings.world.name}, which has no battles to watch.")
    recorded = record_battle(run, map_name, seed=seed, greedy=greedy)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        frames = draw_frames(recorded)
        if to.suffix.lower() == ".gif":
            write_gif(frames, [frames[0], frames[len(frames) // 2], frames[-1]], to, FRAMES_PER_SECOND)
        else:
            write_moments(frames, to)
    except OSError as error:
        raise UserError(f"--to is {str(to)!r}, which cannot be written ({error.strerror}).") from None
    return to


def record_battle(run: Run, map_name: str | None = None, *, seed: int = 0, greedy: bool = True) -> RecordedBattle:
    """Plays the newest checkpoint on a map, by default the first it was trained on."""
    trained_on = run.settings.world
    assert isinstance(trained_on, Smaclite)
    # Starts as the map says, also where the team was trained on scattered ones: that is the battle people know.
    one = replace(trained_on.as_scored(), map=map_name or trained_on.maps[0])
    if len(one.maps) > 1:
        raise UserError(f"--map is {one.map!r}; name one map to watch.")
    world = padded(one, one.sizes)
    assert isinstance(world, Smaclite)
    policy, _ = load_policy(run)
    conditions = _Conditions(world, run.settings.rank_hold, dropout_in_force(run.settings, None), greedy)
    return play_battle(conditions, policy, jax.random.key(seed))


class _Conditions(NamedTuple):
    """What the compiled program is specialised on."""

    world: Smaclite
    hold: RankHold = 1
    dropout: bool = False
    greedy: bool = True


def play_battle(conditions: _Conditions, policy: DiamondPolicy, key: PRNGKeyArray) -> RecordedBattle:
    world = conditions.world
    first, ticks, ranks, over, won = jax.tree.map(np.asarray, _play(conditions, policy, key))
    steps = int(np.argmax(over)) + 1 if over.any() else len(over)
    agents = world.sizes[0].agents
    # [step, tick, ...] → one long row of ticks, cut where the battle ends.
    flat = jax.tree.map(lambda values: values[:steps].reshape(-1, *values.shape[2:]), ticks)
    states = jax.tree.map(lambda begin, rest: np.concatenate([begin[None], rest]), first, flat)
    heard = ranks[:steps, : int(agents)] if naming(policy.mask).hears_ranks else None
    return RecordedBattle(world.map, states, heard, bool(won[steps - 1]), steps)


@partial(jax.jit, static_argnums=0)
def _play(conditions: _Conditions, policy: DiamondPolicy, key: PRNGKeyArray) -> tuple:
    world, hold, dropout, greedy = conditions
    reset_key, play_key = jax.random.split(key)
    team = begin_episode(world, jnp.asarray(world.sizes), reset_key)

    def one_step(team: TeamState, key: PRNGKeyArray) -> tuple[TeamState, tuple[BattleState, Array, Array, Array]]:
        see_key, act_key, step_key = jax.random.split(key, 3)
        views, ranks = see(world, policy, team, see_key, hold, dropout)
        actions, _ = act(policy, views, act_key, greedy)
        transition, ticks = world.step_in_ticks(team.world, actions, step_key)
        team = team._replace(world=transition.state, ranks=ranks, step_of_episode=team.step_of_episode + 1)
        return team, (ticks, ranks, transition.terminated, transition.measures["battle_won"] > 0)

    _, played = jax.lax.scan(one_step, team, jax.random.split(play_key, world.time_limit))
    return world.battle(team.world), *played


def draw_frames(recorded: RecordedBattle, ticks_per_frame: int = TICKS_PER_FRAME) -> list[Image.Image]:
    """Pictures of a battle. Numbers beside agents are their places by rank among the living; 1 sees only itself."""
    scenario = scenario_of(recorded.map_name)
    ticks = len(recorded.states.alive)
    shown = [*range(0, ticks - 1, ticks_per_frame), ticks - 1]
    part = part_around(scenario, np.asarray(recorded.states.position))
    frames = []
    for tick in shown:
        # The ranks of a step are those with which its ticks were decided.
        step = min(max(tick - 1, 0) // TICKS_PER_STEP, recorded.steps - 1)
        caption = f"step {-(-tick // TICKS_PER_STEP)}"
        if tick == ticks - 1:
            caption += ", won" if recorded.won else ", not won"
        state = jax.tree.map(lambda values: values[tick], recorded.states)  # noqa: B023 - used at once
        places = None
        if recorded.ranks is not None:
            ranks, living = recorded.ranks[step], np.asarray(state.alive)[scenario.ally_ids]
            places = (1 + np.sum((ranks[None, :] > ranks[:, None]) & living, axis=1)).tolist()
        frames.append(draw_battle(scenario, state, caption, places, part))
    return frames


def write_moments(frames: list[Image.Image], to: Path) -> None:
    """Four pictures on one sheet: a quarter of the way in, half, three quarters, and the end."""
    last = len(frames) - 1
    moments = [frames[last // 4], frames[last // 2], frames[3 * last // 4], frames[last]]
    width, height = moments[0].size
    sheet = Image.new("RGB", (2 * width + 10, 2 * height + 10), "white")
    for index, moment in enumerate(moments):
        sheet.paste(moment, ((index % 2) * (width + 10), (index // 2) * (height + 10)))
    sheet.save(to)
