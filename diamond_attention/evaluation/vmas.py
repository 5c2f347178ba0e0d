"""A trained policy on the original simulator: VMAS's own Simple Spread instead of ours (extra `vmas`)."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.evaluation import vmas_bridge
from diamond_attention.play import TeamState, see
from diamond_attention.policies.contract import Memory, Policy
from diamond_attention.ranks import RankHold
from diamond_attention.runs.settings import Settings, flat
from diamond_attention.runs.sizes import PADDING
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
    policy: Policy,
    agents: int,
    episodes: int,
    key: PRNGKeyArray,
    hold: RankHold = 1,
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
            _player(world, hold, policy, count, play_key, greedy),
            agents=agents,
            episodes=count,
            seed=int(jax.random.bits(start_key)),
            steps=steps,
        )
        parts.append({"length": np.full(count, steps), "return": played.returns, **played.measures})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _player(
    world: Spread, hold: RankHold, policy: Policy, episodes: int, key: PRNGKeyArray, greedy: bool
) -> Callable[[Particles, int], Any]:
    agents = world.max_agents
    ranks, memory = jax.vmap(lambda _: (jnp.zeros(agents, jnp.float32), policy.first_memory(agents)))(
        jnp.arange(episodes)
    )

    def answer(state: Particles, step_of_episode: int) -> Any:
        nonlocal ranks, memory
        actions, ranks, memory = _decide(world, hold, policy, state, ranks, memory, step_of_episode, key, greedy)
        return actions

    return answer


@partial(jax.jit, static_argnums=(0, 1))
def _decide(
    world: Spread,
    hold: RankHold,
    policy: Policy,
    state: Particles,
    ranks: Float32[Array, "episode agent"],
    memory: Memory,
    step_of_episode: int,
    key: PRNGKeyArray,
    greedy: bool,
) -> tuple[Float[Array, "episode agent 2"], Float32[Array, "episode agent"], Memory]:
    """One step of every team. Greedy or not is a value here: the choice costs nothing, a second program seconds."""

    def one_team(state: Particles, ranks: Array, memory: Memory, key: PRNGKeyArray) -> tuple[Array, Array, Memory]:
        see_key, act_key = jax.random.split(key)
        limit = jnp.asarray(world.time_limit)
        team = TeamState(state, ranks, jnp.asarray(step_of_episode), limit, jnp.zeros(()), {}, memory)
        views, ranks = see(world, policy, team, see_key, hold)
        best, drawn = (policy.act(views, memory, act_key, way) for way in (True, False))
        acted = jax.tree.map(lambda one, other: jnp.where(greedy, one, other), best, drawn)
        return acted.actions, ranks, acted.memory

    keys = jax.random.split(jax.random.fold_in(key, step_of_episode), ranks.shape[0])
    return jax.vmap(one_team)(state, ranks, memory, keys)
