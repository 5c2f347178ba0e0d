"""A trained policy on the original simulator: VMAS's own Simple Spread instead of ours (extra `vmas`)."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.learning.rollout import RankHold, TeamState, act, see
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.runs.settings import PADDING, Settings, flat
from diamond_attention.worlds import vmas_bridge
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread

MOST_AGENTS = 32
"""VMAS's reward is a triple loop in Python: 400 steps take minutes with 32 agents and an hour with 100."""

EPISODES_AT_ONCE = 1024


def check_referee(settings: Settings, sizes: tuple[TeamSize, ...]) -> None:
    """Refuses what VMAS cannot play: another world, other constants, teams it would take hours for."""
    world = settings.world
    if not isinstance(world, Spread):
        raise UserError(
            f"--simulator is vmas, but the run's world is {world.name}; VMAS has only spread, so use --simulator own."
        )
    usual = dict(flat(dataclasses.asdict(Spread())))
    for name, value in flat(dataclasses.asdict(world)):
        if name not in PADDING and value != usual[name]:
            raise UserError(
                f"--simulator is vmas, but the run's world.{name} is {value} and VMAS has only {usual[name]}; "
                "use --simulator own."
            )
    largest = max(int(size.agents) for size in sizes)
    if largest > MOST_AGENTS:
        raise UserError(
            f"--agents asks for {largest}, and --simulator vmas plays at most {MOST_AGENTS}; "
            "ask for fewer or use --simulator own."
        )
    vmas_bridge.check_installed()


def play_on_vmas(
    policy: DiamondPolicy,
    agents: int,
    episodes: int,
    key: PRNGKeyArray,
    hold: RankHold = 1,
    dropout: bool = False,
    greedy: bool = False,
    *,
    steps: int | None = None,
) -> dict[str, np.ndarray]:
    """Length, return and measures of `episodes` episodes, as `evaluate.play_episodes` gives them.

    VMAS draws the starts of a batch from one stream, so episode e depends on how many are played with it.
    One program is compiled for each number of agents: padding small teams would cost more than compiling.
    """
    world = Spread(max_agents=agents, max_tasks=agents)
    steps = world.time_limit if steps is None else steps
    parts = []
    for first in range(0, episodes, EPISODES_AT_ONCE):
        count = min(EPISODES_AT_ONCE, episodes - first)
        start_key, play_key = jax.random.split(jax.random.fold_in(key, first))
        played = vmas_bridge.roll_out(
            _player(_Conditions(world, hold, dropout), policy, count, play_key, greedy),
            agents=agents,
            episodes=count,
            seed=int(jax.random.bits(start_key)),
            steps=steps,
        )
        parts.append({"length": np.full(count, steps), "return": played.returns, **played.measures})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class _Conditions(NamedTuple):
    """What the compiled program is specialised on."""

    world: Spread
    hold: RankHold
    dropout: bool


def _player(
    conditions: _Conditions, policy: DiamondPolicy, episodes: int, key: PRNGKeyArray, greedy: bool
) -> Callable[[Particles, int], Any]:
    ranks = jnp.zeros((episodes, conditions.world.max_agents), jnp.float32)

    def answer(state: Particles, step_of_episode: int) -> Any:
        nonlocal ranks
        actions, ranks = _decide(conditions, policy, state, ranks, step_of_episode, key, greedy)
        return actions

    return answer


@partial(jax.jit, static_argnums=0)
def _decide(
    conditions: _Conditions,
    policy: DiamondPolicy,
    state: Particles,
    ranks: Float32[Array, "episode agent"],
    step_of_episode: int,
    key: PRNGKeyArray,
    greedy: bool,
) -> tuple[Float[Array, "episode agent 2"], Float32[Array, "episode agent"]]:
    """One step of every team. Greedy or not is a value here: the choice costs nothing, a second program seconds."""
    world, hold, dropout = conditions

    def one_team(state: Particles, ranks: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        see_key, act_key = jax.random.split(key)
        team = TeamState(state, ranks, jnp.asarray(step_of_episode), jnp.asarray(world.time_limit), jnp.zeros(()), {})
        views, ranks = see(world, policy, team, see_key, hold, dropout)
        best, _ = act(policy, views, act_key, greedy=True)
        drawn, _ = act(policy, views, act_key, greedy=False)
        return jnp.where(greedy, best, drawn), ranks

    keys = jax.random.split(jax.random.fold_in(key, step_of_episode), ranks.shape[0])
    return jax.vmap(one_team)(state, ranks, keys)
