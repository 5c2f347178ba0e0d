"""Steps per second through JaxMARL's interface: worlds of this project beside JaxMARL's own of the same kind.

    python experiments/jaxmarl_speed.py results/jaxmarl_speed.csv --envs 64

Random legal actions, observations of every agent, episodes that begin anew, all in one compiled program. What is
counted is seconds of the processor, all threads together, so that what else the machine does counts little; the two
of a pair take turns all the same, and of each the best turn counts. On a GPU this says nothing.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxmarl
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.environments.smax import map_name_to_scenario

from diamond_attention.adapters.jaxmarl_env import WorldMultiAgentEnv

PAIRS = {
    "Simple Spread, 4 agents": (
        lambda: WorldMultiAgentEnv("spread", 4, discrete_actions=True),
        lambda: jaxmarl.make("MPE_simple_spread_v3", num_agents=4, num_landmarks=4),
    ),
    "2s3z": (
        lambda: WorldMultiAgentEnv("smaclite"),
        lambda: jaxmarl.make("HeuristicEnemySMAX", scenario=map_name_to_scenario("2s3z")),
    ),
}
TURNS = 5


def player(env: MultiAgentEnv, envs: int, steps: int) -> Callable[[], float]:
    """Plays `steps` steps in every environment; gives the processor's seconds that took."""

    def masks(state):
        try:
            return env.get_avail_actions(state)
        except NotImplementedError:  # of MPE, where everything is legal
            return {name: jnp.ones(env.action_space(name).n) for name in env.agents}

    def step(state, key):
        keys = jax.random.split(key, env.num_agents + 1)
        legal = masks(state)
        actions = {
            name: jax.random.categorical(own, jnp.where(legal[name] > 0, 0.0, -jnp.inf))
            for name, own in zip(env.agents, keys[1:], strict=True)
        }
        seen, state, reward, _, _ = env.step(keys[0], state, actions)
        return state, reward[env.agents[0]] + sum(jnp.sum(seen[name]) for name in env.agents)

    @jax.jit
    def play(states, key):
        keys = jax.random.split(key, (steps, envs))
        return jax.lax.scan(lambda states, keys: jax.vmap(step)(states, keys), states, keys)

    _, states = jax.vmap(env.reset)(jax.random.split(jax.random.PRNGKey(0), envs))
    states, _ = jax.block_until_ready(play(states, jax.random.PRNGKey(1)))

    def timed() -> float:
        begun = time.process_time()
        jax.block_until_ready(play(states, jax.random.PRNGKey(2)))
        return time.process_time() - begun

    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("to", type=Path)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    rows = []
    for what, makers in PAIRS.items():
        players = [player(make(), asked.envs, asked.steps) for make in makers]
        best = [min(seconds) for seconds in zip(*([play() for play in players] for _ in range(TURNS)), strict=True)]
        for of, seconds in zip(("this project", "JaxMARL"), best, strict=True):
            speed = round(asked.envs * asked.steps / seconds)
            rows.append({"game": what, "of": of, "envs": asked.envs, "env_steps_per_processor_second": speed})
            print(rows[-1], flush=True)
    with asked.to.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
