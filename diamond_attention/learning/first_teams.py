"""The teams that a method begins to learn from."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from diamond_attention.learning.contract import Learner
from diamond_attention.play import TeamState, begin_episode
from diamond_attention.policies.contract import Policy


def first_teams(learner: Learner, policy: Policy, reset_key: PRNGKeyArray, phase_key: PRNGKeyArray) -> TeamState:
    """Every team at the first step of its first episode; leading axis: env.

    The first episodes are cut anywhere, so that teams are out of phase from then on. Otherwise all of them would
    begin together, and an update would see nothing but beginnings, the next nothing but ends.
    """
    envs, world = learner.method.envs, learner.world
    cut_at = jax.random.randint(phase_key, (envs,), 1, learner.episode_steps + 1)
    sizes, memory = jnp.asarray(learner.sizes), policy.first_memory(world.max_agents)
    keys = jax.random.split(reset_key, envs)
    return jax.vmap(lambda key, cut: begin_episode(world, sizes, key, cut, memory))(keys, cut_at)
