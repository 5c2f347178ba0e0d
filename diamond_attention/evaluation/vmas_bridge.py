"""The original simulator as referee: VMAS's own Simple Spread, stepped from our states or played to the end.

VMAS is an optional extra, and nothing subclasses it. Whoever acts is handed VMAS's positions and velocities as
a state of `worlds.spread`, so agents see through the same views; VMAS's flat observation leaves out peers'
velocities and changes its width with the team. `evaluation/referee.py` plays trained policies here.

VMAS keeps one random stream for all environments of a process, swaps it with the global ones of torch,
NumPy and Python in every call, and leaves them swapped after an exception. `private_random_stream` puts all
of them back, so that scoring a policy changes nothing for anybody else.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diamond_attention.errors import UserError
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


def check_installed() -> None:
    if Environment is None:
        raise UserError('VMAS is not installed; install it with: pip install "diamond-attention[vmas]".')


@contextlib.contextmanager
def private_random_stream(seed: int) -> Iterator[None]:
    """Inside, VMAS draws from a stream of its own begun at `seed`; afterwards every stream is as before.

    The seed sets states of generators made for the purpose and never reaches `torch.manual_seed`, which
    would reseed the GPUs as well. torch works on one thread meanwhile: on tensors this small more are slower,
    fifty times so where other work shares the cores.
    """
    check_installed()
    # VMAS's methods hold on to this very list, so its entries are replaced, never the list.
    shared = Environment.vmas_random_state
    shared_before = list(shared)
    torch_before, numpy_before, python_before = torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    threads_before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
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
        torch.set_num_threads(threads_before)


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
    returns = np.zeros(episodes)
    measures: dict[str, np.ndarray] = {}
    with private_random_stream(seed):
        environment = _make(agents, episodes)
        for step_of_episode in range(world.time_limit if steps is None else steps):
            reached = _step(environment, np.asarray(act(state_of(environment), step_of_episode)))
            returns += reached.reward
            for name, value in _measures(world, state_of(environment)).items():
                measures[name] = measures.get(name, np.zeros(episodes)) + np.asarray(value)
    return VmasEpisodes(returns, measures)


@partial(jax.jit, static_argnums=0)
def _measures(world: Spread, state: Particles) -> dict[str, Float[Array, " episode"]]:
    return jax.vmap(world.judge)(state)[2]


def random_player(agents: int, episodes: int, seed: int) -> Callable[[int], None]:
    """A function that plays so many steps with random actions, VMAS's own: what a bench times."""
    with private_random_stream(seed):
        environment = _make(agents, episodes)

    def play(steps: int) -> None:
        with private_random_stream(seed):
            environment.reset()
            for _ in range(steps):
                environment.step(environment.get_random_actions())

    return play


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
