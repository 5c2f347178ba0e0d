"""Evaluation: a function of a checkpoint file. It never touches training, so the number belongs to the file."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.learning.rollout import RankHold, begin_episode, play_step
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.runs.record import Run, append_rows
from diamond_attention.runs.settings import Settings, check_seed, padded, team_sizes
from diamond_attention.runs.train import load_policy
from diamond_attention.worlds.contract import TeamSize, World, as_scored
from diamond_attention.worlds.smaclite.world import Smaclite

Play = Literal["greedy", "sampled"]
Simulator = Literal["own", "vmas"]
"""The world as this package has it, or the original."""

EPISODES_AT_ONCE = 1024


def evaluate(
    run: Run,
    *,
    sizes: Sequence[TeamSize] | None = None,
    episodes: int = 1000,
    play: Sequence[Play] = ("greedy", "sampled"),
    dropout: bool | None = None,
    seed: int = 0,
    checkpoint: str = "last",
    simulator: str = "own",
    world: World | None = None,
) -> list[dict[str, Any]]:
    """Plays, appends one row an episode to the run's episodes.csv, and returns those rows.

    `sizes` are those it was trained on unless said; `dropout` is the run's own setting unless said. `world` is a
    variant of the run's world to play instead, such as another map. Of several maps each is played by itself, and
    battles start as the map says unless `world` has jitter.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1.")
    check_seed(seed)
    settings = run.settings
    check_simulator(settings, settings.sizes if sizes is None else sizes, simulator)
    if dropout is not None and settings.policy.mask != "dropout":
        raise UserError(f"--dropout was given, but {run.path} was trained with policy.mask {settings.policy.mask}.")
    if sizes is None:
        sizes = settings.sizes if world is None else team_sizes(world, settings.agents, settings.tasks)
    if world is None:
        world = as_scored(settings.world)
    world = padded(world, sizes)
    for size in sizes:
        world.check_size(size)
    if isinstance(world, Smaclite) and world.apart() != (world,):
        on = partial(evaluate, run, episodes=episodes, play=play, dropout=dropout, seed=seed, checkpoint=checkpoint)
        return [row for alone in world.apart() if alone.sizes[0] in sizes for row in on(world=alone)]
    policy, step = load_policy(run, checkpoint)
    dropout_on = dropout_in_force(settings, dropout)
    # Each training seed plays with randomness of its own: were it shared, policies that do the same would win
    # and lose the same episodes, and an interval over seeds would be too narrow.
    key = jax.random.fold_in(jax.random.key(seed), run.seed)
    rows = []
    for way in play:
        conditions = (episodes, key, settings.rank_hold, dropout_on, way == "greedy")
        if simulator == "own":
            played_at = play_sizes(world, policy, sizes, *conditions)
        else:
            from diamond_attention.evaluation.referee import play_on_vmas

            played_at = [play_on_vmas(policy, int(size.agents), *conditions) for size in sizes]
        for size, played in zip(sizes, played_at, strict=True):
            for episode in range(episodes):
                rows.append(
                    {
                        "checkpoint": step,
                        "simulator": simulator,
                        "agents": int(size.agents),
                        "tasks": int(size.tasks),
                        # What some worlds let an evaluation vary, such as the map.
                        **getattr(world, "conditions", {}),
                        "play": way,
                        "dropout": "on" if dropout_on else "off",
                        "seed": seed,
                        "episode": episode,
                        # By name, so that both simulators write the same columns.
                        **{name: _cell(played[name][episode]) for name in sorted(played)},
                    }
                )
    append_rows(run.episodes, rows)
    return rows


def check_simulator(settings: Settings, sizes: Sequence[TeamSize], simulator: str) -> None:
    """Raises UserError with one sentence if that simulator cannot play this run at these sizes."""
    if simulator not in get_args(Simulator):
        raise UserError(f"--simulator is {simulator!r}; it must be one of {', '.join(get_args(Simulator))}.")
    if simulator == "vmas":
        # Only here: where the extra is installed, torch takes seconds to import.
        from diamond_attention.evaluation.referee import check_referee

        check_referee(settings, tuple(sizes))


def dropout_in_force(settings: Settings, asked: bool | None) -> bool:
    """Whether attention is dropped at random while playing: only ever for policies trained that way."""
    if settings.policy.mask != "dropout":
        return False
    return settings.policy.dropout_at_execution if asked is None else asked


def play_episodes(
    world: World,
    policy: DiamondPolicy,
    size: TeamSize,
    episodes: int,
    key: PRNGKeyArray,
    hold: RankHold = 1,
    dropout: bool = False,
    greedy: bool = False,
) -> dict[str, np.ndarray]:
    """Length, return and measures of `episodes` episodes, each played to its own end.

    One episode for each parallel team: were a fixed number of steps shared out instead, short episodes
    would be counted more often than long ones. Episode e is the same whatever `episodes` is.
    """
    return play_sizes(world, policy, [size], episodes, key, hold, dropout, greedy)[0]


def play_sizes(
    world: World,
    policy: DiamondPolicy,
    sizes: Sequence[TeamSize],
    episodes: int,
    key: PRNGKeyArray,
    hold: RankHold = 1,
    dropout: bool = False,
    greedy: bool = False,
) -> list[dict[str, np.ndarray]]:
    """`play_episodes` for each of several sizes, all side by side in one program."""
    numbers = np.repeat(np.asarray([[size.agents, size.tasks] for size in sizes], np.int32), episodes, axis=0)
    indices = np.tile(np.arange(episodes, dtype=np.uint32), len(sizes))
    batch = min(EPISODES_AT_ONCE, len(indices))
    # Whole batches, so that one program does: what is too much at the end is played and left out.
    rounded = -(-len(indices) // batch) * batch
    padding = np.arange(rounded) % len(indices)
    numbers, indices = numbers[padding], indices[padding]
    conditions = _Conditions(world, hold, dropout, greedy)
    parts = [
        _play_batch(conditions, policy, numbers[first : first + batch], key, indices[first : first + batch])
        for first in range(0, rounded, batch)
    ]
    played = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return [
        {name: values[i * episodes : (i + 1) * episodes] for name, values in played.items()}
        for i in range(len(sizes))
    ]


class _Conditions(NamedTuple):
    """What the compiled program is specialised on."""

    world: World
    hold: RankHold
    dropout: bool
    greedy: bool


@partial(jax.jit, static_argnums=0)
def _play_batch(
    conditions: _Conditions, policy: DiamondPolicy, sizes: Array, key: PRNGKeyArray, episodes: Array
) -> dict[str, Array]:
    world, hold, dropout, greedy = conditions

    def one_episode(size: Array, episode: Array) -> dict[str, Array]:
        reset_key, play_key = jax.random.split(jax.random.fold_in(key, episode))
        team = begin_episode(world, size[None], reset_key)

        def one_step(carry: tuple, step_key: PRNGKeyArray) -> tuple[tuple, None]:
            team, over = carry
            played = play_step(world, policy, team, step_key, hold=hold, dropout=dropout, greedy=greedy)
            # Once an episode is over, nothing that happens in its place counts.
            after = jax.tree.map(lambda new, old: jnp.where(over, old, new), played.reached, team)
            return (after, over | played.terminated), None

        keys = jax.random.split(play_key, world.time_limit)
        (team, _), _ = jax.lax.scan(one_step, (team, jnp.asarray(False)), keys)
        return {"length": team.step_of_episode, "return": team.episode_return, **team.episode_measures}

    return jax.vmap(one_episode)(sizes, episodes)


def _cell(value: np.generic) -> float | int:
    number = float(str(value))
    return int(number) if number.is_integer() else number
