"""Soft actor-critic for a team: a stochastic policy, two critics of everything, and a price of randomness it learns.

Where actions are continuous, a critic values what all agents see and do. Where they are choices, it gives a value for
every action of every agent from what all see, and expectations are taken over all actions instead of sampling one.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.actions import Continuous
from diamond_attention.build import build_policy, interface_of
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.squashed import Squashed
from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Learner
from diamond_attention.learning.off_policy import Kept, Rules
from diamond_attention.learning.off_policy_settings import OffPolicySettings
from diamond_attention.policies.contract import IndependentPolicy, Policy
from diamond_attention.policies.flat import allowed_actions
from diamond_attention.policies.joint_critics import HiddenSizes, Twins, build_twins
from diamond_attention.policies.q_values import QPolicy
from diamond_attention.ranges import Between
from diamond_attention.view import AgentView
from diamond_attention.worlds.contract import TeamSize

Team = Literal["mean", "sum"]


@dataclass(frozen=True)
class SacSettings(OffPolicySettings):
    """Soft actor-critic with a shared policy and two critics that see everything."""

    alpha: Annotated[float, Between(0, 1_000_000, low_left_out=True)] = 1.0
    """The price of a nat of randomness to begin with; it is learned."""
    alpha_learning_rate: Annotated[float, Between(0, 1000)] = 3e-4
    """Adam's step size for its logarithm; 0 keeps it."""
    target_entropy: Annotated[float, Between(-1000, 1000)] = -1.0
    """The randomness to keep, for each component of a continuous action, in nats."""
    target_share: Annotated[float, Between(0, 1)] = 0.2
    """The same where actions are choices, as a share of the most possible."""
    team: Team = "mean"
    """Whether the randomness that is priced is the mean of the agents' or their sum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.team not in get_args(Team):
            raise UserError(f"{self.name}.team is {self.team!r}; it must be one of {', '.join(get_args(Team))}.")


class SacWeights(NamedTuple):
    policy: IndependentPolicy
    critics: Twins
    log_alpha: Float[Array, ""]


def sac_rules(hidden: HiddenSizes) -> Rules:
    """`hidden`: the layers of a critic."""

    def begin(learner: Learner, key: PRNGKeyArray) -> SacWeights:
        policy_key, critic_key = jax.random.split(key)
        policy = learnable(learner, build_policy(learner.world, learner.policy, policy_key))
        critics = build_twins(interface_of(learner.world), hidden, critic_key)
        return SacWeights(policy, critics, jnp.log(jnp.asarray(learner.method.alpha)))

    return Rules(begin, sac_loss, followed=lambda weights: weights.critics, step=with_alphas_own_rate)  # type: ignore[arg-type]


def learnable(learner: Learner, policy: Policy) -> IndependentPolicy:
    """The policy; raises UserError unless it answers with a distribution that this method can learn."""
    world = learner.world

    def answers(policy: IndependentPolicy) -> Distribution:
        state = world.reset(jax.random.key(0), TeamSize(world.max_agents, world.max_tasks))
        return policy.answers(world.views(state, jnp.zeros(world.max_agents)))

    if isinstance(policy, IndependentPolicy):
        kind = jax.eval_shape(answers, policy)
        # Choices of QMIX's agents are a ranking of values, not logits that a gradient could move.
        if isinstance(kind, Squashed | Categorical) and not isinstance(policy, QPolicy):
            return policy
    raise UserError(
        f"policy.kind is {learner.policy.kind}, and method {learner.method.name} learns kinds whose agents each "
        "answer with choices, or with actions squashed into [-1, 1]: soft, gsa and ph-marl."
    )


def with_alphas_own_rate(method: SacSettings, step: SacWeights) -> SacWeights:
    return step._replace(log_alpha=step.log_alpha * (method.alpha_learning_rate / method.learning_rate))


def sac_loss(
    learner: Learner, weights: SacWeights, slow: Twins, batch: Kept, key: PRNGKeyArray
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The critics' squared error, the policy's loss and that of the price, each blind to the others' weights."""
    losses = continuous_losses if isinstance(learner.world.action_kind, Continuous) else choice_losses
    critic, actor, lacking, value = losses(learner.method, weights, slow, batch, key)
    price = weights.log_alpha * jax.lax.stop_gradient(-lacking)
    parts = {"critic_loss": critic, "policy_loss": actor, "lacking_entropy": lacking, "value": value}
    return critic + actor + price, {**parts, "alpha": jnp.exp(weights.log_alpha)}


# --- Continuous actions ---------------------------------------------------------------------------


def continuous_losses(
    method: SacSettings, weights: SacWeights, slow: Twins, batch: Kept, key: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    """(critics' loss, policy's loss, how much randomness is lacking, mean value)."""
    now_key, then_key = jax.random.split(key)
    frozen, alpha = jax.lax.stop_gradient((weights.policy, weights.critics)), jnp.exp(weights.log_alpha)
    alpha = jax.lax.stop_gradient(alpha)

    def drawn(policy: IndependentPolicy, views: AgentView, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Every agent's new action, and the team's log-probability of it."""

        def one(views: AgentView, key: PRNGKeyArray) -> tuple[Array, Array]:
            answers, keys = policy.answers(views), jax.random.split(key, views.ranks.shape[0])
            actions, log_probability = jax.vmap(lambda own, k: own.sample_with_log_probability(k))(answers, keys)
            return actions, over_team(method.team, log_probability, views.agent_present[:, 0])

        return jax.vmap(one)(views, jax.random.split(key, len(batch.reward)))

    then, then_log_probability = drawn(frozen[0], batch.next_views, then_key)
    after = jax.vmap(slow.lower)(batch.next_views, then) - alpha * then_log_probability
    target = soft_target(method, batch, after)
    values = jax.vmap(weights.critics.both)(batch.views, batch.actions)
    critic_loss = jnp.mean(jnp.sum((values - target[:, None]) ** 2, axis=1))

    actions, log_probability = drawn(weights.policy, batch.views, now_key)
    policy_loss = jnp.mean(alpha * log_probability - jax.vmap(frozen[1].lower)(batch.views, actions))
    lacking = method.target_entropy * actions.shape[-1] + jnp.mean(log_probability)
    return critic_loss, policy_loss, lacking, jnp.mean(values)


def over_team(team: Team, numbers: Float[Array, " agent"], present: Bool[Array, " agent"]) -> Float[Array, ""]:
    total = jnp.sum(jnp.where(present, numbers, 0.0))
    return total if team == "sum" else total / jnp.maximum(jnp.sum(present), 1)


def soft_target(method: SacSettings, batch: Kept, after: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """The reward now, and what comes after it unless that was the end. Nothing learns through a target."""
    going, reward = ~batch.terminated, method.reward_scale * batch.reward
    shape = (-1, *[1] * (after.ndim - 1))
    return jax.lax.stop_gradient(reward.reshape(shape) + method.gamma * going.reshape(shape) * after)


# --- Choices --------------------------------------------------------------------------------------


def choice_losses(
    method: SacSettings, weights: SacWeights, slow: Twins, batch: Kept, key: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    """The same, in expectation over every agent's choices: nothing is drawn."""
    policy, critics = jax.lax.stop_gradient((weights.policy, weights.critics))
    alpha = jax.lax.stop_gradient(jnp.exp(weights.log_alpha))

    _, then, then_entropy = choices(policy, batch.next_views)
    after = jnp.sum(then * jax.vmap(slow.lower)(batch.next_views), axis=-1) + alpha * then_entropy
    target = soft_target(method, batch, after)
    values = jax.vmap(weights.critics.both)(batch.views)  # [batch, twin, agent, action]
    taken = jnp.take_along_axis(values, batch.actions[:, None, :, None], axis=-1)[..., 0]
    critic_loss = jnp.mean(jnp.sum(jnp.mean((taken - target[:, None]) ** 2, axis=-1), axis=1))

    allowed, now, entropy = choices(weights.policy, batch.views)
    # One who has a single choice has nothing to learn, and is no measure of randomness: the dead, for one.
    deciding = jnp.sum(allowed, axis=-1) > 1
    gain = jnp.sum(now * jax.vmap(critics.lower)(batch.views), axis=-1) + alpha * entropy
    count = jnp.maximum(jnp.sum(deciding), 1)
    policy_loss = -jnp.sum(jnp.where(deciding, gain, 0.0)) / count
    wanted = method.target_share * jnp.log(jnp.maximum(jnp.sum(allowed, axis=-1), 1))
    lacking = jnp.sum(jnp.where(deciding, wanted - entropy, 0.0)) / count
    return critic_loss, policy_loss, lacking, jnp.mean(taken)


def choices(policy: IndependentPolicy, views: AgentView) -> tuple[Array, Array, Array]:
    """(allowed, probability, entropy) of every action, or agent."""
    allowed = jax.vmap(jax.vmap(allowed_actions))(views)
    answers: Any = jax.vmap(policy.answers)(views)
    return allowed, jax.nn.softmax(answers.logits), jax.vmap(jax.vmap(lambda own: own.entropy()))(answers)
