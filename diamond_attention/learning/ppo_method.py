"""PPO as the rest of the project knows it: how it begins, who plays, what failed, what it takes over."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray

from diamond_attention.build import build_policy
from diamond_attention.learning.advantages import generalised_advantages
from diamond_attention.learning.contract import Learner, Method
from diamond_attention.learning.first_teams import first_teams
from diamond_attention.learning.ppo import (
    ROLLOUT_TENSORS,
    PpoState,
    Weights,
    collect_all,
    optimiser,
    ppo_loss,
    update,
)
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.rollout import Experience
from diamond_attention.learning.seeds import name_of_broken
from diamond_attention.learning.value_scale import ValueScale
from diamond_attention.play import TeamState
from diamond_attention.policies.contract import Policy
from diamond_attention.policies.critics import CommonCritic
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.kind import KindSettings
from diamond_attention.worlds.contract import World, example_views

BuildCritic = Callable[[World, KindSettings, PRNGKeyArray], Any]


def common_critic(world: World, policy: KindSettings, key: PRNGKeyArray) -> CommonCritic:
    """As wide as a Diamond Attention policy beside it; as wide as those are by default beside any other."""
    _, view = example_views(world)
    width = policy.width if isinstance(policy, DiamondSettings) else DiamondSettings.width
    return CommonCritic(view.agents.shape[-1], view.tasks.shape[-1], width=width, key=key)


def begin_with(build_critic: BuildCritic) -> Callable[[Learner, PRNGKeyArray], PpoState]:
    def fresh(learner: Learner, key: PRNGKeyArray) -> PpoState:
        policy_key, critic_key, learner_key = jax.random.split(key, 3)
        policy = build_policy(learner.world, learner.policy, policy_key)
        critic = build_critic(learner.world, learner.policy, critic_key)
        return begin(learner, Weights(policy, critic), learner_key)

    return fresh


def begin(learner: Learner, weights: Weights, key: PRNGKeyArray) -> PpoState:
    """A learner that has not yet taken a step."""
    ppo = learner.method
    key, reset_key, phase_key = jax.random.split(key, 3)
    return PpoState(
        weights=weights,
        value_scale=ValueScale(*jnp.zeros(3)) if ppo.normalise_values else None,
        optimiser=optimiser(ppo).init(ravel_pytree(weights)[0]),
        teams=first_teams(learner, weights.policy, reset_key, phase_key),
        key=jax.random.key_data(key),
        update=jnp.zeros((), jnp.int32),
        failure=jnp.zeros((), jnp.int32),
    )


def loss(learner: Learner, state: PpoState, played: tuple[TeamState, Experience], key: PRNGKeyArray) -> Any:
    """(loss, its parts), gradient; all steps that were played in one minibatch, values not normalised."""
    ppo, (_, seen) = learner.method, played
    advantages = jax.vmap(generalised_advantages, in_axes=(0, 0, 0, 0, 0, None, None))(
        seen.reward, seen.value, seen.next_value, seen.terminated, seen.truncated, ppo.gamma, ppo.gae_lambda
    )
    samples = (seen, advantages, advantages + seen.value)
    samples = jax.tree.map(lambda x: x.reshape(ppo.envs * ppo.steps, *x.shape[2:]), samples)
    return jax.value_and_grad(ppo_loss, argnums=1, has_aux=True)(ppo, state.weights, *samples)


def policy_of(state: PpoState) -> Policy:
    return state.weights.policy


def failed_part(state: PpoState, failure: int) -> str:
    return name_of_broken(ROLLOUT_TENSORS, state.weights, failure)


def start_from(fresh: PpoState, policy: Policy, other: PpoState | None) -> PpoState:
    """A critic is worth something only with the scale its values are in; otherwise it begins anew."""
    started = fresh._replace(weights=fresh.weights._replace(policy=policy))
    if other is None or (other.value_scale is None) != (fresh.value_scale is None):
        return started
    return started._replace(weights=Weights(policy, other.weights.critic), value_scale=other.value_scale)


PPO = Method(
    settings=PpoSettings,
    policy=DiamondSettings(),
    begin=begin_with(common_critic),
    update=update,
    policy_of=policy_of,
    failed_part=failed_part,
    collect=collect_all,
    loss=loss,
    start_from=start_from,
)
