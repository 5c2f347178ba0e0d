"""Evaluation: a function of a policy bundle. It never touches training, so the number belongs to the file."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.broadcast import Broadcast, Listening
from diamond_attention.build import plays_too
from diamond_attention.errors import UserError, notice
from diamond_attention.evaluation.conditions import Conditions, check_sizes, variant_to_play
from diamond_attention.play import begin_episode, play_step
from diamond_attention.policies.contract import Policy
from diamond_attention.policies.registry import POLICIES, described
from diamond_attention.ranges import Between, check_number, check_ranges
from diamond_attention.ranks import RankHold
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.folder import Run, own_copy
from diamond_attention.runs.group import is_training
from diamond_attention.runs.memory import check_play_fits
from diamond_attention.runs.progress import Progress, Quiet
from diamond_attention.runs.rows import append_rows, check_columns
from diamond_attention.runs.seeds import check_seed
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.sizes import padded, team_sizes
from diamond_attention.worlds.contract import TeamSize, World, conditions_of

Play = Literal["greedy", "sampled"]
Simulator = Literal["own", "vmas"]
"""The world as this package has it, or the original."""

EPISODES_AT_ONCE = 1024

MOST_ROWS = 1_000_000
"""Of results. They are kept in memory until all are played and written at once, about a kilobyte each."""
EPISODES = Between(1, MOST_ROWS)


def evaluate(
    run: Run,
    *,
    sizes: Sequence[TeamSize] | None = None,
    episodes: int = 1000,
    play: Sequence[Play] = ("greedy", "sampled"),
    dropout: bool | None = None,
    broadcast: Broadcast | None = None,
    seed: int = 0,
    checkpoint: str = "last",
    simulator: str = "own",
    world: World | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Plays, appends one row an episode to the run's episodes.csv, and returns those rows.

    `sizes` are those it was trained on unless said; `dropout` is the run's own setting unless said. `world` is a
    variant of the run's world to play instead, such as another map. Of several maps each is played by itself, and
    battles start as the map says unless `world` has jitter. `broadcast` is what is wrong with the broadcast of ranks.
    """
    broadcast = broadcast or Broadcast()
    check_number("--episodes", episodes, EPISODES)
    check_ranges(broadcast, "--broadcast.")
    check_seed(seed)
    settings, progress = run.settings, progress or Quiet()
    check_simulator(settings, settings.sizes if sizes is None else sizes, simulator)
    in_play = POLICIES[settings.policy.kind].in_play(settings.policy, dropout)
    if sizes is None:
        sizes = settings.sizes if world is None else team_sizes(world, settings.agents, settings.tasks)
    check_rows(episodes, len(sizes), len(play))
    world = padded(variant_to_play(run) if world is None else world, sizes)
    check_sizes(settings, world, sizes)
    where = partial(evaluate, run, seed=seed, checkpoint=checkpoint, simulator=simulator)
    on = partial(where, episodes=episodes, play=play, dropout=dropout, broadcast=broadcast)
    # Side by side, smaller teams are padded, which not every policy allows.
    if len(sizes) > 1 and not plays_too(settings.policy, settings.world, world):
        return [row for size in sizes for row in on(sizes=[size], world=world, progress=progress)]
    if world.apart() != (world,):
        several = [alone for alone in world.apart() if (alone.sizes or sizes)[0] in sizes]
        return [row for alone in several for row in on(world=alone, progress=progress)]
    policy, step = load_policy(run, checkpoint, dropout)
    faults = str(broadcast)
    if faults:
        policy = Listening(policy, broadcast)
    check_play_fits(world, policy, min(EPISODES_AT_ONCE, len(sizes) * episodes))
    run = own_copy(run)
    varied = conditions_of(world)  # what some worlds let an evaluation vary, such as the map
    columns = ["checkpoint", "simulator", "agents", "tasks", *varied, "play", "dropout", "seed", "episode"]
    # A file that rows cannot be added to is found before they are played.
    check_columns(run.episodes, [*columns, *sorted(_played_columns(world))])
    if is_training(run):
        notice(f"{run.path} is being trained by another process; what it has saved until now is played.")
    # Each training seed plays with randomness of its own: were it shared, policies that do the same would win
    # and lose the same episodes, and an interval over seeds would be too narrow.
    key = jax.random.fold_in(jax.random.key(seed), run.seed)
    rows: list[dict[str, Any]] = []
    dropped = "on" if described(in_play).key == "dropout" else "off"
    progress.begin(f"evaluating {run.path}", len(play) * len(sizes) * episodes, 0, "episodes")
    for way in play:

        def played_more(number: int) -> None:
            progress.advance(len(rows) + number, {})

        if simulator == "own":
            conditions = Conditions(world, settings.rank_hold, way == "greedy")
            played_at = play_sizes(conditions, policy, sizes, episodes, key, played_more)
        else:
            from diamond_attention.evaluation.vmas import play_on_vmas

            played_at = []
            for size in sizes:
                played_at.append(
                    play_on_vmas(policy, int(size.agents), episodes, key, settings.rank_hold, way == "greedy")
                )
                played_more(len(played_at) * episodes)
        for size, played in zip(sizes, played_at, strict=True):
            team = int(size.agents), int(size.tasks)
            how = f"{way} {faults}".strip()
            for episode in range(episodes):
                cells = (step, simulator, *team, *varied.values(), how, dropped, seed, episode)
                row = dict(zip(columns, cells, strict=True))
                # By name, so that both simulators write the same columns.
                rows.append(row | {name: _cell(played[name][episode]) for name in sorted(played)})
    lost = sum(not np.isfinite(row["return"]) for row in rows)
    if lost:
        notice(f"{lost} of {len(rows)} returns of {run.path} are not finite, so their mean is no number.")
    append_rows(run.episodes, rows)
    progress.end(f"played {len(rows):,} episodes of {run.path}")
    return rows


def _played_columns(world: World) -> list[str]:
    """What is known of an episode that was played."""
    size = jnp.ones((1, 2), jnp.int32)
    team = jax.eval_shape(lambda: begin_episode(world, size, jax.random.key(0)))
    return ["length", "return", *team.episode_measures]


def check_rows(episodes: int, sizes: int, ways: int) -> None:
    """Raises UserError if so many episodes of so many sizes, each played so many ways, are too many to keep."""
    rows = episodes * sizes * ways
    if rows > MOST_ROWS:
        raise UserError(
            f"--episodes is {episodes}, which makes {rows} rows with {sizes} size(s), all runs together, and {ways} "
            f"way(s) of playing; at most {MOST_ROWS} are kept at once: lower it or evaluate less at a time."
        )


def check_simulator(settings: Settings, sizes: Sequence[TeamSize], simulator: str) -> None:
    """Raises UserError with one sentence if that simulator cannot play this run at these sizes."""
    if simulator not in get_args(Simulator):
        raise UserError(f"--simulator is {simulator!r}; it must be one of {', '.join(get_args(Simulator))}.")
    if simulator == "vmas":
        # Only here: where the extra is installed, torch takes seconds to import.
        from diamond_attention.evaluation.vmas import check_referee

        check_referee(settings, tuple(sizes))


def play_episodes(
    world: World,
    policy: Policy,
    size: TeamSize,
    episodes: int,
    key: PRNGKeyArray,
    hold: RankHold = 1,
    greedy: bool = False,
) -> dict[str, np.ndarray]:
    """Length, return and measures of `episodes` episodes, each played to its own end.

    One episode for each parallel team: were a fixed number of steps shared out instead, short episodes
    would be counted more often than long ones. Episode e is the same whatever `episodes` is.
    """
    return play_sizes(Conditions(world, hold, greedy), policy, [size], episodes, key)[0]


def play_sizes(
    conditions: Conditions,
    policy: Policy,
    sizes: Sequence[TeamSize],
    episodes: int,
    key: PRNGKeyArray,
    played_more: Callable[[int], None] = lambda number: None,
) -> list[dict[str, np.ndarray]]:
    """`play_episodes` for each of several sizes, all side by side in one program. `played_more` hears how many."""
    numbers = np.repeat(np.asarray([[size.agents, size.tasks] for size in sizes], np.int32), episodes, axis=0)
    indices = np.tile(np.arange(episodes, dtype=np.uint32), len(sizes))
    batch = min(EPISODES_AT_ONCE, len(indices))
    # Whole batches, so that one program does: what is too much at the end is played and left out.
    rounded = -(-len(indices) // batch) * batch
    padding = np.arange(rounded) % len(indices)
    padded_numbers, padded_indices = numbers[padding], indices[padding]
    parts = []
    for first in range(0, rounded, batch):
        part = slice(first, first + batch)
        played = _play_batch(conditions, policy, padded_numbers[part], key, padded_indices[part])
        parts.append({name: np.asarray(values) for name, values in played.items()})
        played_more(min(first + batch, len(indices)))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return [
        {name: values[i * episodes : (i + 1) * episodes] for name, values in joined.items()}
        for i in range(len(sizes))
    ]


@partial(jax.jit, static_argnums=0)
def _play_batch(
    conditions: Conditions, policy: Policy, sizes: Array, key: PRNGKeyArray, episodes: Array
) -> dict[str, Array]:
    world, hold, greedy = conditions

    def one_episode(size: Array, episode: Array) -> dict[str, Array]:
        reset_key, play_key = jax.random.split(jax.random.fold_in(key, episode))
        team = begin_episode(world, size[None], reset_key, memory=policy.first_memory(world.max_agents))

        def one_step(carry: tuple, step_key: PRNGKeyArray) -> tuple[tuple, None]:
            team, over = carry
            played = play_step(world, policy, team, step_key, hold=hold, greedy=greedy)
            # Once an episode is over, nothing that happens in its place counts.
            after = jax.tree.map(lambda new, old: jnp.where(over, old, new), played.reached, team)
            return (after, over | played.transition.terminated), None

        keys = jax.random.split(play_key, world.time_limit)
        (team, _), _ = jax.lax.scan(one_step, (team, jnp.asarray(False)), keys)
        return {"length": team.step_of_episode, "return": team.episode_return, **team.episode_measures}

    return jax.vmap(one_episode)(sizes, episodes)


def _cell(value: np.generic) -> float | int:
    number = float(str(value))
    return int(number) if number.is_integer() else number
