"""How fast a world steps with random actions, alone and with what every agent sees; Simple Spread beside VMAS."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.actions import random_actions
from diamond_attention.bench.timing import best_of_turns, steps_for
from diamond_attention.errors import UserError
from diamond_attention.evaluation import vmas_bridge
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.sizes import padded
from diamond_attention.worlds.contract import State, TeamSize, World

AGENTS = 4
ENVS = {"cpu": (64, 1024, 8192), "gpu": (4096, 65_536)}
STEPS_A_CALL = 100
"""Steps in one compiled call: the learner's rollouts are of this order."""
VMAS_WORLDS = ("spread",)


def measure_simulation(settings: Settings, envs: int) -> dict[str, Any]:
    """Steps of the team a second in `envs` worlds at once, ours and, where it can be, VMAS.

    VMAS computes observations with every step, so it is compared with ours that do.
    """
    world, size = with_agents(settings, AGENTS)
    players = {
        "alone": _random_player(world, size, envs, with_views=False),
        "with views": _random_player(world, size, envs, with_views=True),
    }
    if vmas_used(world) == "measured":
        players["vmas"] = vmas_bridge.random_player(AGENTS, envs, seed=0)
    steps = {name: steps_for(play, STEPS_A_CALL) for name, play in players.items()}
    best = best_of_turns({name: partial(play, steps[name]) for name, play in players.items()})
    speeds = {name: envs * steps[name] / best[name] for name in players}
    return {
        "envs": envs,
        "agents": int(size.agents),
        "steps_per_second": speeds["alone"],
        "steps_per_second_with_views": speeds["with views"],
        "vmas_steps_per_second": speeds.get("vmas"),
        "times_vmas": speeds["with views"] / speeds["vmas"] if "vmas" in speeds else None,
    }


def vmas_used(world: World) -> str:
    """Whether VMAS is measured beside this world, or why not."""
    if world.name not in VMAS_WORLDS:
        return f"left out: VMAS has no world {world.name}"
    if jax.default_backend() != "cpu":
        return "left out: measured on the CPU only"
    try:
        vmas_bridge.check_installed()
    except UserError as error:
        return f"left out: {error}"
    return "measured"


def with_agents(settings: Settings, agents: int) -> tuple[World, TeamSize]:
    """The preset's world for so many agents and tasks, or as the preset has it where that cannot be played."""
    size = TeamSize(agents, agents)
    try:
        settings.world.check_size(size)
    except UserError:
        size = settings.sizes[0]
    return padded(settings.world, [size]), size


def random_step(world: World, state: State, key: PRNGKeyArray) -> tuple[State, Array]:
    """Everybody does anything it may; legal actions are found through the agents' views."""
    action_key, step_key = jax.random.split(key)
    views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
    transition = world.step(state, random_actions(world.action_kind, views, action_key), step_key)
    return transition.state, transition.reward


def _random_player(world: World, size: TeamSize, envs: int, with_views: bool) -> Callable[[int], None]:
    def one_team(state: State, key: PRNGKeyArray) -> tuple[State, tuple[Array, Array]]:
        state, reward = random_step(world, state, key)
        if not with_views:
            return state, (reward, jnp.zeros(()))
        views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
        # Summed, or the compiler would leave out what nobody reads.
        return state, (reward, jnp.sum(views.agents) + jnp.sum(views.tasks))

    @jax.jit
    def many_steps(state: State, key: PRNGKeyArray) -> tuple[State, tuple[Array, Array]]:
        return jax.lax.scan(
            lambda state, key: jax.vmap(one_team)(state, jax.random.split(key, envs)),
            state,
            jax.random.split(key, STEPS_A_CALL),
        )

    @jax.jit
    def start(key: PRNGKeyArray) -> State:
        return jax.vmap(lambda key: world.reset(key, size))(jax.random.split(key, envs))

    first = start(jax.random.key(0))

    def play(steps: int) -> None:
        state, seen = first, None
        for call in range(steps // STEPS_A_CALL):
            state, seen = many_steps(state, jax.random.key(call))
        jax.block_until_ready((state, seen))

    return play
