"""PPO with a shared policy, a common critic and the team's reward, as one pure function: `update`.

collect → advantages → minibatch epochs → metrics. The whole learner is one pytree, `PpoState`, so
saving it is saving everything, and `jax.vmap` over it trains several seeds in one program.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from diamond_attention.errors import UserError
from diamond_attention.learning.advantages import generalised_advantages
from diamond_attention.learning.contract import Critic, Learner
from diamond_attention.learning.finite import first_non_finite
from diamond_attention.learning.ppo_settings import PpoSettings, Precision
from diamond_attention.learning.rollout import Experience, collect
from diamond_attention.learning.value_scale import ValueScale, follow_values
from diamond_attention.play import TeamState
from diamond_attention.policies.contract import Policy

ROLLOUT_TENSORS = ("view.agents", "view.tasks", "team_view", "value", "log_probability", "reward")


class Weights(NamedTuple):
    """What gradients reach."""

    policy: Policy
    critic: Critic


class PpoState(NamedTuple):
    """Everything one seed's training depends on. Two equal states have equal futures."""

    weights: Weights
    value_scale: ValueScale | None  # what turns the critic's output into values, where they are normalised
    optimiser: optax.OptState
    teams: TeamState  # leading axis: env
    key: Array  # raw key data, so the state is arrays only
    update: Int[Array, ""]
    failure: Int[Array, ""]  # 0 while all is well; otherwise what `failed_part` turns into a name


def optimiser(ppo: PpoSettings) -> optax.GradientTransformation:
    """Clipped Adam without its learning rate, which depends on the update and is applied in `learn_from`."""
    return optax.chain(optax.clip_by_global_norm(ppo.max_grad_norm), optax.scale_by_adam(eps=1e-5))


def collect_all(learner: Learner, state: PpoState, key: PRNGKeyArray) -> tuple[TeamState, Experience]:
    """The rollout of every team, side by side."""
    ppo, sizes, critic = learner.method, jnp.asarray(learner.sizes), state.weights.critic
    game = (learner.world, sizes, computing_in(ppo.precision, state.weights.policy), critic)
    rest, keys = (ppo.steps, learner.hold, learner.episode_steps), jax.random.split(key, ppo.envs)
    return jax.vmap(lambda team, k: collect(*game, team, k, *rest))(*learner.share((state.teams, keys)))


def update(learner: Learner, state: PpoState) -> tuple[PpoState, dict[str, Array]]:
    """One PPO update. Where something was not finite, `failure` says what, and the state is not kept."""
    ppo = learner.method
    key, rollout_key, shuffle_key = jax.random.split(jax.random.wrap_key_data(state.key), 3)
    teams, seen = collect_all(learner, state, rollout_key)

    # Advantages.
    if state.value_scale is not None:
        centre, deviation = state.value_scale.centre_and_deviation()
        seen = seen._replace(value=centre + deviation * seen.value, next_value=centre + deviation * seen.next_value)
    advantages = jax.vmap(generalised_advantages, in_axes=(0, 0, 0, 0, 0, None, None))(
        seen.reward, seen.value, seen.next_value, seen.terminated, seen.truncated, ppo.gamma, ppo.gae_lambda
    )
    targets = advantages + seen.value
    weights, value_scale, goals = state.weights, state.value_scale, targets
    if value_scale is not None:
        critic, value_scale = follow_values(weights.critic, value_scale, targets)
        weights = Weights(weights.policy, critic)
        centre, deviation = value_scale.centre_and_deviation()
        goals = (targets - centre) / deviation

    # Minibatch epochs.
    learning_rate = jnp.asarray(ppo.learning_rate)
    if ppo.anneal:
        learning_rate = learning_rate * (1.0 - state.update / learner.total_updates)
    steps = ppo.envs * ppo.steps
    samples = learner.whole(jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), (seen, advantages, goals)))
    progress = Progress(weights, state.optimiser, jnp.asarray(False), first_non_finite(rollout_tensors(seen)))

    def minibatch(progress: Progress, rows: Int[Array, " batch"]) -> tuple[Progress, dict[str, Array]]:
        batch, gains, goals = learner.share(jax.tree.map(lambda x: x[rows], samples))
        return learn_from(ppo, progress, batch, gains, goals, learning_rate)

    def epoch(progress: Progress, key: PRNGKeyArray) -> tuple[Progress, dict[str, Array]]:
        return jax.lax.scan(minibatch, progress, jax.random.permutation(key, steps).reshape(-1, ppo.batch))

    progress, learning = jax.lax.scan(epoch, progress, jax.random.split(shuffle_key, ppo.epochs))

    learned = state._replace(weights=progress.weights, value_scale=value_scale, optimiser=progress.optimiser)
    after = learned._replace(teams=teams, key=jax.random.key_data(key), update=state.update + 1)
    return after._replace(failure=progress.failure), summarise(seen, targets, learning, learning_rate)


def computing_in(precision: Precision, policy: Policy) -> Policy:
    """The same policy with its linear layers in that precision; everything else stays float32."""

    def cast(module: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(precision), module) if isinstance(module, eqx.nn.Linear) else module

    if precision == "float32":
        return policy
    return jax.tree.map(cast, policy, is_leaf=lambda x: isinstance(x, eqx.nn.Linear))


class Progress(NamedTuple):
    """What changes from minibatch to minibatch."""

    weights: Weights
    optimiser: optax.OptState
    stopped: Array  # the policy has moved too far in this update; the remaining minibatches change nothing
    failure: Array


def learn_from(
    ppo: PpoSettings, progress: Progress, batch: Experience, advantages: Array, targets: Array, learning_rate: Array
) -> tuple[Progress, dict[str, Array]]:
    """One gradient step on one minibatch, unless the update was stopped or something is not finite."""
    (loss, parts), gradient = jax.value_and_grad(ppo_loss, argnums=1, has_aux=True)(
        ppo, progress.weights, batch, advantages, targets
    )
    # SB3 checks before the step that would take the policy further, and allows half as much again.
    too_far = jnp.asarray(False) if ppo.target_kl is None else parts["kl"] > 1.5 * ppo.target_kl
    stopped = progress.stopped | too_far
    # One flat vector instead of sixty small arrays: a program a third the size, and quicker to compile.
    gradient, as_weights = ravel_pytree(gradient)
    finite = jnp.isfinite(jnp.concatenate([loss[None], gradient]))
    found = jnp.where(jnp.all(finite), 0, len(ROLLOUT_TENSORS) + 1 + jnp.argmin(finite))
    failure = jnp.where((progress.failure > 0) | stopped, progress.failure, found)

    step, moments = optimiser(ppo).update(gradient, progress.optimiser)
    unchanged = stopped | (failure > 0)
    weights = optax.apply_updates(progress.weights, as_weights(jnp.where(unchanged, 0.0, -learning_rate * step)))
    moments = jax.tree.map(lambda new, old: jnp.where(unchanged, old, new), moments, progress.optimiser)
    parts = {**parts, "gradient_norm": jnp.linalg.norm(gradient), "used": ~unchanged}
    return Progress(weights, moments, stopped, failure), parts


def ppo_loss(
    ppo: PpoSettings, weights: Weights, batch: Experience, advantages: Array, targets: Array
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped objective, the critic's squared error and the entropy bonus, for a batch of joint samples."""
    policy = computing_in(ppo.precision, weights.policy)
    log_probability, entropy = jax.vmap(policy.ask_again)(batch.views, batch.memory, batch.actions)
    present = batch.views.agent_present[:, :, 0]  # row 0 of a view is the viewer itself
    log_ratio = jnp.where(present, log_probability - batch.log_probability, 0.0)
    entropy = jnp.where(present, entropy, 0.0)
    if ppo.ratio == "joint":
        if advantages.ndim > 1:
            raise UserError(f"{ppo.name}.ratio is joint, which needs one value for the team; use agent.")
        log_ratio, entropy = jnp.sum(log_ratio, axis=1, keepdims=True), jnp.sum(entropy, axis=1)
        share = jnp.ones_like(log_ratio)
    else:
        share = present / jnp.maximum(jnp.sum(present, axis=1, keepdims=True), 1)
        entropy = jnp.sum(entropy * share, axis=1)
    ratio = jnp.exp(log_ratio)
    # Values may be each agent's own; then those of absent agents count nowhere.
    counted: Any = {"where": present} if advantages.ndim > 1 else {}
    if ppo.normalise_advantages:
        advantages = (advantages - jnp.mean(advantages, **counted)) / (jnp.std(advantages, **counted) + 1e-8)
    gain = advantages.reshape(len(advantages), -1)
    clipped = jnp.clip(ratio, 1.0 - ppo.clip, 1.0 + ppo.clip)
    policy_loss = -jnp.mean(jnp.sum(share * jnp.minimum(gain * ratio, gain * clipped), axis=1))
    value = jax.vmap(lambda view, views: weights.critic(view, views, policy))(batch.team_view, batch.views)
    value_loss = jnp.mean((value - targets) ** 2, **counted)
    mean_entropy = jnp.mean(entropy)
    loss = policy_loss + ppo.value_coefficient * value_loss - ppo.entropy_coefficient * mean_entropy
    return loss, {
        **{"policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy},
        # An estimate of KL that is never negative: joschu.net/blog/kl-approx.html
        "kl": jnp.mean(jnp.sum(share * (jnp.expm1(log_ratio) - log_ratio), axis=1)),
        "clip_fraction": jnp.mean(jnp.sum(share * (jnp.abs(ratio - 1.0) > ppo.clip), axis=1)),
    }


def summarise(seen: Experience, targets: Array, learning: dict[str, Array], learning_rate: Array) -> dict[str, Array]:
    """One row of metrics.csv. Means over finished episodes are NaN in an update that finished none."""
    episodes, used = jnp.sum(seen.finished), learning.pop("used")
    return {
        "episodes": episodes,
        "return": jnp.sum(seen.finished_return) / episodes,
        **{name: jnp.sum(total) / episodes for name, total in seen.finished_measures.items()},
        **{name: jnp.sum(part * used) / jnp.sum(used) for name, part in learning.items()},
        "explained_variance": 1.0 - jnp.var(targets - seen.value) / jnp.maximum(jnp.var(targets), 1e-8),
        "learning_rate": learning_rate,
        "minibatches": jnp.sum(used),
    }


def rollout_tensors(seen: Experience) -> dict[str, Array]:
    """What the update is made from, by the names in ROLLOUT_TENSORS."""
    team = jnp.concatenate([seen.team_view.agents.ravel(), seen.team_view.tasks.ravel()])
    log_probability = jnp.where(seen.views.agent_present[..., 0], seen.log_probability, 0.0)
    tensors = (seen.views.agents, seen.views.tasks, team, seen.value, log_probability, seen.reward)
    return dict(zip(ROLLOUT_TENSORS, tensors, strict=True))
