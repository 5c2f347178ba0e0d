"""QMIX (Rashid et al. 2018): every agent values its own actions, and a monotone mixer values the team by them."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.actions import Continuous
from diamond_attention.build import build_policy
from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Learner
from diamond_attention.learning.off_policy import Kept, Rules, off_policy_method
from diamond_attention.learning.off_policy_settings import OffPolicySettings
from diamond_attention.policies.flat import state_of, state_size
from diamond_attention.policies.kind import Described, needs_of_flat
from diamond_attention.policies.q_values import Mixer, QPolicy, QSettings
from diamond_attention.ranges import Between
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import World, example_views


@dataclass(frozen=True)
class QmixSettings(OffPolicySettings):
    """QMIX: agents that value their own actions, mixed into a value of the team while training; for one team size."""

    name = "qmix"

    mixer_width: Annotated[int, Between(1, 4096)] = 32
    """Of the mixer's hidden layer."""
    explore_first: Annotated[float, Between(0, 1)] = 1.0
    """The share of random actions to begin with."""
    explore_last: Annotated[float, Between(0, 1)] = 0.05
    """The share of random actions in the end, and in sampled play."""
    explore_until: Annotated[float, Between(0, 1, low_left_out=True)] = 0.3
    """The share of the run after which it is reached."""


class QmixWeights(NamedTuple):
    policy: QPolicy
    mixer: Mixer


def begin(learner: Learner, key: PRNGKeyArray) -> QmixWeights:
    policy_key, mixer_key = jax.random.split(key)
    policy = build_policy(learner.world, learner.policy, policy_key)
    if not isinstance(policy, QPolicy):
        raise UserError(
            f"policy.kind is {learner.policy.kind}, and method qmix learns values of actions; use q-values."
        )
    mixer = Mixer(
        state_size(example_views(learner.world)[1]),
        learner.world.max_agents,
        learner.method.mixer_width,
        key=mixer_key,
    )
    return before_playing(learner, QmixWeights(policy, mixer), jnp.zeros(()))


def before_playing(learner: Learner, weights: QmixWeights, share: Array) -> QmixWeights:
    qmix = learner.method
    done = jnp.minimum(share / qmix.explore_until, 1.0)
    now = qmix.explore_first + done * (qmix.explore_last - qmix.explore_first)
    return weights._replace(policy=eqx.tree_at(lambda policy: policy.exploration, weights.policy, now))


def qmix_loss(
    learner: Learner, weights: QmixWeights, slow: QmixWeights, batch: Kept, key: PRNGKeyArray
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The squared error of the team's value. Agents that are not there are worth nothing.

    Double Q: the weights choose the next actions, the slow copy values them.
    """
    frozen: QmixWeights = jax.lax.stop_gradient(weights)

    def of_team(own: QmixWeights, views: AgentView, view: TeamView, chosen: Array) -> Float[Array, ""]:
        values = jnp.take_along_axis(jax.vmap(own.policy.values)(views), chosen[:, None], axis=1)[:, 0]
        return own.mixer(jnp.where(views.agent_present[:, 0], values, 0.0), state_of(view))

    def best(views: AgentView) -> Array:
        values, allowed = jax.vmap(frozen.policy.values)(views), jax.vmap(frozen.policy.allowed)(views)
        return jnp.argmax(jnp.where(allowed, values, -jnp.inf), axis=1)

    def one(step: Kept) -> tuple[Array, Array]:
        after = of_team(slow, step.next_views, step.next_team_view, best(step.next_views))
        target = learner.method.reward_scale * step.reward + learner.method.gamma * ~step.terminated * after
        value = of_team(weights, step.views, step.team_view, weights.policy.chosen(step.actions))
        return value, jax.lax.stop_gradient(target)

    values, targets = jax.vmap(one)(batch)
    loss = jnp.mean((values - targets) ** 2)
    return loss, {"value_loss": loss, "value": jnp.mean(values), "exploration": weights.policy.exploration}


def described(policy: QSettings, world: World) -> Described:
    """Where actions are continuous it plays another task than the others, and says so."""
    label = "QMIX, nine forces" if isinstance(world.action_kind, Continuous) else "QMIX"
    return Described("qmix", label, colour="#ddaa33", place=23, needs=needs_of_flat(world.sees_peers))


QMIX = off_policy_method(
    QmixSettings,
    QSettings(),
    Rules(begin, qmix_loss, followed=lambda weights: weights, before_playing=before_playing),
    described,
)
