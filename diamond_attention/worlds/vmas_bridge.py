"""The original simulator as referee: step VMAS's own Simple Spread, and score a policy on it.

VMAS is an optional extra. Nothing here is imported by anything else in the package, and nothing subclasses
VMAS. Agents see through the same views as in `worlds.spread`, built from VMAS's positions and velocities;
its flat observation leaves out peers' velocities and changes its width with the team.

VMAS keeps one random stream for all environments of a process, swaps it with the global ones of torch,
NumPy and Python in every call, and leaves them swapped after an exception. `private_random_stream` puts all
of them back, so that scoring a policy changes nothing for anybody else.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.actions import Distribution
from diamond_attention.errors import UserError
from diamond_attention.ranks import draw_ranks, hold_ranks
from diamond_attention.view import AgentView
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.spread import Spread

try:
    import torch
    import vmas
    from vmas.simulator.environment import Environment
except ImportError:
    Environment = None

Act = Callable[[Particles, int], Float[Array, "episode agent 2"]]
"""Actions for a batch of episodes, from their states and the number of the step."""


class VmasStep(NamedTuple):
    """What one step of VMAS leads to, for a batch of states."""

    positions: Float[np.ndarray, "episode agent 2"]
    velocities: Float[np.ndarray, "episode agent 2"]
    reward: Float[np.ndarray, " episode"]


class VmasEpisodes(NamedTuple):
    """Episodes played on VMAS, one entry an episode."""

    returns: Float[np.ndarray, " episode"]
    """The sum of VMAS's shared reward. The paper's R is this divided by the number of agents."""
    measures: dict[str, Float[np.ndarray, " episode"]]
    """As `worlds.spread` measures them, on VMAS's positions."""


@contextlib.contextmanager
def private_random_stream(seed: int) -> Iterator[None]:
    """Inside, VMAS draws from a stream of its own begun at `seed`; afterwards every stream is as before.

    The seed sets states of generators made for the purpose and never reaches `torch.manual_seed`, which
    would reseed the GPUs as well.
    """
    if Environment is None:
        raise UserError('VMAS is not installed; install it with: pip install "diamond-attention[vmas]".')
    # VMAS's methods hold on to this very list, so its entries are replaced, never the list.
    shared = Environment.vmas_random_state
    shared_before = list(shared)
    torch_before, numpy_before, python_before = torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        shared[:] = [
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed % 2**32).get_state(),
            random.Random(seed).getstate(),
        ]
        yield
    finally:
        shared[:] = shared_before
        torch.random.set_rng_state(torch_before)
        np.random.set_state(numpy_before)
        random.setstate(python_before)


def step(
    positions: Float[np.ndarray, "episode agent 2"],
    velocities: Float[np.ndarray, "episode agent 2"],
    landmarks: Float[np.ndarray, "episode agent 2"],
    actions: Float[np.ndarray, "episode agent 2"],
) -> VmasStep:
    """One step of VMAS's Simple Spread from these states."""
    episodes, agents, _ = np.shape(positions)
    with private_random_stream(seed=0):
        environment = _make(agents, episodes)
        _place(environment, positions, velocities, landmarks)
        return _step(environment, actions)


def roll_out(act: Act, *, agents: int, episodes: int, seed: int, steps: int | None = None) -> VmasEpisodes:
    """Episodes of VMAS's Simple Spread, begun by VMAS's own reset, with whatever `act` answers."""
    world = Spread(max_agents=agents, max_tasks=agents)
    judge = jax.jit(jax.vmap(world.judge))
    returns = np.zeros(episodes)
    measures: dict[str, np.ndarray] = {}
    with private_random_stream(seed):
        environment = _make(agents, episodes)
        for step_of_episode in range(world.time_limit if steps is None else steps):
            reached = _step(environment, np.asarray(act(state_of(environment), step_of_episode)))
            returns += reached.reward
            for name, value in judge(state_of(environment))[2].items():
                measures[name] = measures.get(name, np.zeros(episodes)) + np.asarray(value)
    return VmasEpisodes(returns, measures)


def play(
    policy: Callable[[AgentView], tuple[Distribution, Any]],
    *,
    agents: int,
    episodes: int,
    seed: int,
    greedy: bool = True,
    hold: int | Literal["episode"] = 1,
    steps: int | None = None,
) -> VmasEpisodes:
    """A policy scored on VMAS's Simple Spread. The same seed gives the same starts and the same ranks."""
    world = Spread(max_agents=agents, max_tasks=agents)
    ranks = jnp.zeros((episodes, agents), jnp.float32)
    play_key = jax.random.key(seed)

    def act(state: Particles, step_of_episode: int) -> Float[Array, "episode agent 2"]:
        nonlocal ranks
        key = jax.random.fold_in(play_key, step_of_episode)
        actions, ranks = _decide(policy, world, state, ranks, jnp.asarray(step_of_episode), key, greedy, hold)
        return actions

    return roll_out(act, agents=agents, episodes=episodes, seed=seed, steps=steps)


@eqx.filter_jit
def _decide(
    policy: Callable[[AgentView], tuple[Distribution, Any]],
    world: Spread,
    state: Particles,
    ranks: Float32[Array, "episode agent"],
    step_of_episode: Array,
    key: PRNGKeyArray,
    greedy: bool,
    hold: int | Literal["episode"],
) -> tuple[Float[Array, "episode agent 2"], Float32[Array, "episode agent"]]:
    def one_team(state: Particles, ranks: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        rank_key, act_key = jax.random.split(key)
        ranks = hold_ranks(ranks, draw_ranks(rank_key, world.max_agents), step_of_episode, hold)

        def one_agent(view: AgentView, agent_key: PRNGKeyArray) -> Array:
            distribution, _ = policy(view)
            return distribution.mode() if greedy else distribution.sample(agent_key)

        views = world.views(state, ranks)
        return jax.vmap(one_agent)(views, jax.random.split(act_key, world.max_agents)), ranks

    return jax.vmap(one_team)(state, ranks, jax.random.split(key, ranks.shape[0]))


# --- VMAS's objects -------------------------------------------------------------------------------


def state_of(environment: Any) -> Particles:
    """The state of every episode of a VMAS Simple Spread, as our world holds it."""
    world = environment.world
    episodes, agents, landmarks = environment.num_envs, len(world.agents), len(world.landmarks)
    return Particles(
        positions=jnp.asarray(_stack([agent.state.pos for agent in world.agents])),
        velocities=jnp.asarray(_stack([agent.state.vel for agent in world.agents])),
        tasks=jnp.asarray(_stack([landmark.state.pos for landmark in world.landmarks])),
        agent_present=jnp.ones((episodes, agents), bool),
        task_present=jnp.ones((episodes, landmarks), bool),
    )


def _make(agents: int, episodes: int) -> Any:
    return vmas.make_env(
        "simple_spread",
        num_envs=episodes,
        device="cpu",
        continuous_actions=True,
        clamp_actions=True,  # as our worlds do; otherwise VMAS refuses what a Gaussian samples
        n_agents=agents,
    )


def _place(environment: Any, positions: np.ndarray, velocities: np.ndarray, landmarks: np.ndarray) -> None:
    for index, agent in enumerate(environment.world.agents):
        agent.set_pos(_tensor(positions[:, index]), batch_index=None)
        agent.set_vel(_tensor(velocities[:, index]), batch_index=None)
    for index, landmark in enumerate(environment.world.landmarks):
        landmark.set_pos(_tensor(landmarks[:, index]), batch_index=None)


def _step(environment: Any, actions: np.ndarray) -> VmasStep:
    _, rewards, _, _ = environment.step([_tensor(actions[:, index]) for index in range(actions.shape[1])])
    agents = environment.world.agents
    return VmasStep(
        positions=_stack([agent.state.pos for agent in agents]),
        velocities=_stack([agent.state.vel for agent in agents]),
        # Shared: every agent is given the same number.
        reward=rewards[0].numpy().copy(),
    )


def _tensor(values: np.ndarray) -> Any:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def _stack(columns: list[Any]) -> np.ndarray:
    return torch.stack(columns, dim=1).numpy().copy()
