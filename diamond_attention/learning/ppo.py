"""PPO with a shared policy, a common critic and the team's reward, as one pure function: `update`.

collect → advantages → minibatch epochs → metrics. The whole learner is one pytree, `LearnerState`, so
saving it is saving everything, and `jax.vmap` over it trains several seeds in one program.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from diamond_attention.critics import CommonCritic
from diamond_attention.errors import UserError
from diamond_attention.learning.advantages import generalised_advantages
from diamond_attention.learning.rollout import (
    Experience,
    RankHold,
    TeamState,
    begin_episode,
    collect,
    episode_length,
)
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.worlds.contract import World

Ratio = Literal["joint", "agent"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class PpoSettings:
    """What each number does when you raise it."""

    envs: int = 64
    """Teams that play side by side. More: a steadier gradient and a better-used device, fewer updates a step."""
    steps: int = 2
    """Steps each team plays before an update. More: longer-sighted advantages, staler data."""
    batch: int = 128
    """Joint samples (one step of one team) in a minibatch; must divide envs × steps."""
    epochs: int = 1
    """Passes over the collected steps. More: more learning from each step, further from the policy that took it."""
    learning_rate: float = 1e-4
    """Adam's step size."""
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run. The last policy is then also a calm one."""
    gamma: float = 0.99
    """Discount. Nearer 1: rewards further away count."""
    gae_lambda: float = 0.95
    """Nearer 1: advantages lean on observed rewards; nearer 0: on the critic."""
    clip: float = 0.2
    """How far the probability ratio may move in one update before its gradient stops."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss."""
    entropy_coefficient: float = 0.0
    """Reward for staying random. More: slower to commit."""
    max_grad_norm: float = 10.0
    """Gradients longer than this are scaled down to it."""
    target_kl: float | None = 0.25
    """Stop this update's epochs once the policy has moved 1.5 times this far (as SB3 does). None: never stop."""
    ratio: Ratio = "joint"
    """Clip the team's joint probability ratio (the paper, through SB3) or each agent's own."""
    normalise_advantages: bool = True
    """Subtract the mean and divide by the deviation, in each minibatch."""
    precision: Precision = "float32"
    """What the policy's layers compute in while training. bfloat16: faster on a GPU, slower on a CPU. Weights, the
    critic, ranks, the softmax and log-probabilities are float32 always."""
    normalise_values: bool = False
    """Let the critic predict values less their running mean, over their running deviation. For large rewards."""
    cut_after: int | None = None
    """Cut training episodes after this many steps; what follows is still in the critic's value. None: at the
    world's time limit. Fewer: more beginnings among the steps, where most of the coordinating is done."""

    def __post_init__(self) -> None:
        for name in ("envs", "steps", "batch", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"ppo.{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("learning_rate", "clip", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"ppo.{name} is {getattr(self, name)}; it must be above 0 and finite.")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"ppo.{name} is {getattr(self, name)}; it must lie between 0 and 1.")
        for name in ("value_coefficient", "entropy_coefficient"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"ppo.{name} is {getattr(self, name)}; it must be finite and not negative.")
        if self.ratio not in get_args(Ratio):
            raise UserError(f"ppo.ratio is {self.ratio!r}; it must be one of {', '.join(get_args(Ratio))}.")
        if self.precision not in get_args(Precision):
            raise UserError(
                f"ppo.precision is {self.precision!r}; it must be one of {', '.join(get_args(Precision))}."
            )
        if self.target_kl is not None and not self.target_kl > 0:
            raise UserError(f"ppo.target_kl is {self.target_kl}; it must be above 0, or None to switch it off.")
        if self.steps_per_update % self.batch:
            raise UserError(
                f"ppo.batch is {self.batch}, which does not divide the {self.steps_per_update} steps of a rollout "
                f"(ppo.envs {self.envs} × ppo.steps {self.steps}); choose a divisor."
            )
        if self.cut_after is not None and self.cut_after < 1:
            raise UserError(f"ppo.cut_after is {self.cut_after}; it must be at least 1, or None to switch it off.")
        if self.normalise_advantages and self.batch < 2:
            raise UserError("ppo.batch is 1, and advantages cannot be normalised over one sample; use 2 or more.")

    @property
    def steps_per_update(self) -> int:
        return self.envs * self.steps


class Weights(NamedTuple):
    """What gradients reach."""

    policy: DiamondPolicy
    critic: CommonCritic


class ValueScale(NamedTuple):
    """Running moments of the values to be predicted: a debiased exponential average over updates."""

    mean: Float[Array, ""]
    mean_square: Float[Array, ""]
    weight: Float[Array, ""]

    def centre_and_deviation(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """0 and 1 before anything was seen.

        The deviation is at least a tenth of the values' size. Where all values are nearly the same, so that it is
        nearly nothing, one step of the critic would be nearly nothing too.
        """
        weight = jnp.where(self.weight > 0, self.weight, 1.0)
        centre, square = self.mean / weight, self.mean_square / weight
        deviation = jnp.sqrt(jnp.maximum(square - centre**2, jnp.maximum(0.01 * square, 1e-6)))
        return centre, jnp.where(self.weight > 0, deviation, 1.0)


VALUE_SCALE_RATE = 0.1
"""Share of each new update in the running moments: they must follow as the team improves."""


class LearnerState(NamedTuple):
    """Everything one seed's training depends on. Two equal states have equal futures."""

    weights: Weights
    value_scale: ValueScale | None
    """What turns the critic's output into values, where they are normalised."""
    optimiser: optax.OptState
    teams: TeamState
    """Leading axis: env."""
    key: Array
    """Raw key data, so the state is arrays only."""
    update: Int[Array, ""]
    failure: Int[Array, ""]
    """0 while all is well; otherwise 1 + what `failed_tensor` turns into the name of the first non-finite tensor."""


class Learner(NamedTuple):
    """The world and settings that `update` is a function of; fixed for a run."""

    world: World
    sizes: tuple[tuple[int, int], ...]
    """(agents, tasks) pairs; each episode draws one."""
    hold: RankHold
    ppo: PpoSettings
    total_updates: int


def optimiser(ppo: PpoSettings) -> optax.GradientTransformation:
    """Clipped Adam without its learning rate, which depends on the update and is applied in `update`."""
    return optax.chain(optax.clip_by_global_norm(ppo.max_grad_norm), optax.scale_by_adam(eps=1e-5))


def begin(learner: Learner, weights: Weights, key: PRNGKeyArray) -> LearnerState:
    """A learner that has not yet taken a step."""
    key, reset_key, phase_key = jax.random.split(key, 3)
    sizes = jnp.asarray(learner.sizes)
    # The first episodes are cut anywhere, so that teams are out of phase from then on. Otherwise all of them
    # would begin together, and an update would see nothing but beginnings, the next nothing but ends.
    full_length = episode_length(learner.world, learner.ppo.cut_after)
    cut_at = jax.random.randint(phase_key, (learner.ppo.envs,), 1, full_length + 1)
    teams = jax.vmap(lambda k, cut: begin_episode(learner.world, sizes, k, cut))(
        jax.random.split(reset_key, learner.ppo.envs), cut_at
    )
    return LearnerState(
        weights=weights,
        value_scale=ValueScale(*jnp.zeros(3)) if learner.ppo.normalise_values else None,
        optimiser=optimiser(learner.ppo).init(ravel_pytree(weights)[0]),
        teams=teams,
        key=jax.random.key_data(key),
        update=jnp.zeros((), jnp.int32),
        failure=jnp.zeros((), jnp.int32),
    )


def update(learner: Learner, state: LearnerState) -> tuple[LearnerState, dict[str, Array]]:
    """One PPO update. A state that has failed stays exactly as it was at its last good update."""
    ppo = learner.ppo
    key, rollout_key, shuffle_key = jax.random.split(jax.random.wrap_key_data(state.key), 3)

    # Collect.
    teams, experience = jax.vmap(
        lambda team, k: collect(
            learner.world,
            jnp.asarray(learner.sizes),
            computing_in(ppo.precision, state.weights.policy),
            state.weights.critic,
            team,
            k,
            ppo.steps,
            learner.hold,
            ppo.cut_after,
        )
    )(state.teams, jax.random.split(rollout_key, ppo.envs))

    # Advantages.
    if state.value_scale is not None:
        centre, deviation = state.value_scale.centre_and_deviation()
        experience = experience._replace(
            value=centre + deviation * experience.value, next_value=centre + deviation * experience.next_value
        )
    advantages = jax.vmap(generalised_advantages, in_axes=(0, 0, 0, 0, 0, None, None))(
        experience.reward,
        experience.value,
        experience.next_value,
        experience.terminated,
        experience.truncated,
        ppo.gamma,
        ppo.gae_lambda,
    )
    targets = advantages + experience.value
    weights, value_scale, goals = state.weights, state.value_scale, targets
    if value_scale is not None:
        weights, value_scale = follow_values(weights, value_scale, targets)
        centre, deviation = value_scale.centre_and_deviation()
        goals = (targets - centre) / deviation

    # Minibatch epochs.
    learning_rate = jnp.asarray(ppo.learning_rate)
    if ppo.anneal:
        learning_rate = learning_rate * (1.0 - state.update / learner.total_updates)
    samples = jax.tree.map(lambda x: x.reshape(ppo.steps_per_update, *x.shape[2:]), (experience, advantages, goals))
    progress = Progress(
        weights=weights,
        optimiser=state.optimiser,
        stopped=jnp.asarray(False),
        failure=first_non_finite(rollout_tensors(experience)),
    )

    def minibatch(progress: Progress, rows: Int[Array, " batch"]) -> tuple[Progress, dict[str, Array]]:
        batch, gains, goals = jax.tree.map(lambda x: x[rows], samples)
        return learn_from(ppo, progress, batch, gains, goals, learning_rate)

    def epoch(progress: Progress, key: PRNGKeyArray) -> tuple[Progress, dict[str, Array]]:
        rows = jax.random.permutation(key, ppo.steps_per_update).reshape(-1, ppo.batch)
        return jax.lax.scan(minibatch, progress, rows)

    progress, learning = jax.lax.scan(epoch, progress, jax.random.split(shuffle_key, ppo.epochs))

    # A seed that fails now, or failed before, keeps the last state in which everything was finite.
    # The barrier keeps XLA from computing `failed` anew inside every one of the selections below.
    failed = jax.lax.optimization_barrier((state.failure > 0) | (progress.failure > 0))
    after = LearnerState(
        progress.weights,
        value_scale,
        progress.optimiser,
        teams,
        jax.random.key_data(key),
        state.update + 1,
        state.failure,
    )
    after = jax.tree.map(lambda new, old: jnp.where(failed, old, new), after, state)
    after = after._replace(failure=jnp.where(state.failure > 0, state.failure, progress.failure))
    return after, summarise(experience, advantages, targets, learning, learning_rate)


def computing_in(precision: Precision, policy: DiamondPolicy) -> DiamondPolicy:
    """The same policy with its linear layers in that precision; everything else stays float32."""
    if precision == "float32":
        return policy

    def cast(module: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(precision), module) if isinstance(module, eqx.nn.Linear) else module

    return jax.tree.map(cast, policy, is_leaf=lambda module: isinstance(module, eqx.nn.Linear))


def follow_values(weights: Weights, scale: ValueScale, targets: Float[Array, "..."]) -> tuple[Weights, ValueScale]:
    """Moves the scale towards these targets, and the critic's last layer so that every value stays what it was."""
    moved = ValueScale(
        mean=(1 - VALUE_SCALE_RATE) * scale.mean + VALUE_SCALE_RATE * jnp.mean(targets),
        mean_square=(1 - VALUE_SCALE_RATE) * scale.mean_square + VALUE_SCALE_RATE * jnp.mean(targets**2),
        weight=(1 - VALUE_SCALE_RATE) * scale.weight + VALUE_SCALE_RATE,
    )
    (old_centre, old_deviation), (centre, deviation) = scale.centre_and_deviation(), moved.centre_and_deviation()
    last = weights.critic.value
    assert last.bias is not None
    corrected = (
        last.weight * old_deviation / deviation,
        (last.bias * old_deviation + old_centre - centre) / deviation,
    )
    critic = eqx.tree_at(lambda critic: (critic.value.weight, critic.value.bias), weights.critic, corrected)
    return weights._replace(critic=critic), moved


class Progress(NamedTuple):
    """What changes from minibatch to minibatch."""

    weights: Weights
    optimiser: optax.OptState
    stopped: Array
    """The policy has moved too far in this update; the remaining minibatches change nothing."""
    failure: Array


def learn_from(
    ppo: PpoSettings,
    progress: Progress,
    experience: Experience,
    advantages: Float[Array, " sample"],
    targets: Float[Array, " sample"],
    learning_rate: Float[Array, ""],
) -> tuple[Progress, dict[str, Array]]:
    """One gradient step on one minibatch, unless the update was stopped or something is not finite."""
    (loss, parts), gradient = jax.value_and_grad(ppo_loss, argnums=1, has_aux=True)(
        ppo, progress.weights, experience, advantages, targets
    )
    # SB3 checks before the step that would take the policy further, and allows half as much again.
    too_far = jnp.asarray(False) if ppo.target_kl is None else parts["kl"] > 1.5 * ppo.target_kl
    stopped = progress.stopped | too_far
    # One flat vector instead of sixty small arrays: a program a third the size, and quicker to compile.
    gradient, as_weights = ravel_pytree(gradient)
    finite = jnp.isfinite(jnp.concatenate([loss[None], gradient]))
    found = jnp.where(jnp.all(finite), 0, len(ROLLOUT_TENSORS) + 1 + jnp.argmin(finite))
    failure = jnp.where((progress.failure > 0) | stopped, progress.failure, found)

    step, optimiser_state = optimiser(ppo).update(gradient, progress.optimiser)
    unchanged = stopped | (failure > 0)
    step = jnp.where(unchanged, 0.0, -learning_rate * step)
    weights = optax.apply_updates(progress.weights, as_weights(step))
    optimiser_state = jax.tree.map(
        lambda new, old: jnp.where(unchanged, old, new), optimiser_state, progress.optimiser
    )
    parts = {**parts, "gradient_norm": jnp.linalg.norm(gradient), "used": ~unchanged}
    return Progress(weights, optimiser_state, stopped, failure), parts


def ppo_loss(
    ppo: PpoSettings,
    weights: Weights,
    experience: Experience,
    advantages: Float[Array, " sample"],
    targets: Float[Array, " sample"],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped objective, the critic's squared error and the entropy bonus."""
    policy = computing_in(ppo.precision, weights.policy)

    def ask_again(view, action):
        distribution, _ = policy(view)
        return distribution.log_probability(action), distribution.entropy()

    log_probability, entropy = jax.vmap(jax.vmap(ask_again))(experience.views, experience.actions)
    present = experience.views.agent_present[:, :, 0]  # row 0 of a view is the viewer itself
    log_ratio = jnp.where(present, log_probability - experience.log_probability, 0.0)
    entropy = jnp.where(present, entropy, 0.0)
    team_size = jnp.maximum(jnp.sum(present, axis=1, keepdims=True), 1)
    if ppo.ratio == "joint":
        log_ratio = jnp.sum(log_ratio, axis=1, keepdims=True)
        share = jnp.ones_like(log_ratio)
        entropy = jnp.sum(entropy, axis=1)
    else:
        share = present / team_size
        entropy = jnp.sum(entropy * share, axis=1)
    ratio = jnp.exp(log_ratio)

    if ppo.normalise_advantages:
        advantages = (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)
    gain = advantages[:, None]
    clipped = jnp.clip(ratio, 1.0 - ppo.clip, 1.0 + ppo.clip)
    policy_loss = -jnp.mean(jnp.sum(share * jnp.minimum(gain * ratio, gain * clipped), axis=1))
    value = jax.vmap(weights.critic)(experience.team_view)
    value_loss = jnp.mean((value - targets) ** 2)
    mean_entropy = jnp.mean(entropy)
    loss = policy_loss + ppo.value_coefficient * value_loss - ppo.entropy_coefficient * mean_entropy
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
        # An estimate of KL that is never negative: joschu.net/blog/kl-approx.html
        "kl": jnp.mean(jnp.sum(share * (jnp.expm1(log_ratio) - log_ratio), axis=1)),
        "clip_fraction": jnp.mean(jnp.sum(share * (jnp.abs(ratio - 1.0) > ppo.clip), axis=1)),
    }


def summarise(
    experience: Experience,
    advantages: Array,
    targets: Array,
    learning: dict[str, Array],
    learning_rate: Array,
) -> dict[str, Array]:
    """One row of metrics.csv. Means over finished episodes are NaN in an update that finished none."""
    episodes = jnp.sum(experience.finished)
    used = learning.pop("used")
    unexplained = jnp.var(targets - experience.value) / jnp.maximum(jnp.var(targets), 1e-8)
    return {
        "episodes": episodes,
        "return": jnp.sum(experience.finished_return) / episodes,
        **{name: jnp.sum(total) / episodes for name, total in experience.finished_measures.items()},
        **{name: jnp.sum(part * used) / jnp.sum(used) for name, part in learning.items()},
        "explained_variance": 1.0 - unexplained,
        "learning_rate": learning_rate,
        "minibatches": jnp.sum(used),
    }


# --- Which tensor stopped being finite ------------------------------------------------------------

ROLLOUT_TENSORS = ("view.agents", "view.tasks", "team_view", "value", "log_probability", "reward")


def rollout_tensors(experience: Experience) -> list[tuple[str, Array]]:
    tensors = (
        experience.views.agents,
        experience.views.tasks,
        jnp.concatenate([experience.team_view.agents.ravel(), experience.team_view.tasks.ravel()]),
        experience.value,
        jnp.where(experience.views.agent_present[..., 0], experience.log_probability, 0.0),
        experience.reward,
    )
    return list(zip(ROLLOUT_TENSORS, tensors, strict=True))


def first_non_finite(tensors: list[tuple[str, Array]]) -> Int[Array, ""]:
    """1 + the index of the first tensor that holds NaN or infinity; 0 if all are finite."""
    broken = jnp.stack([~jnp.all(jnp.isfinite(tensor)) for _, tensor in tensors])
    return jnp.where(jnp.any(broken), 1 + jnp.argmax(broken), 0).astype(jnp.int32)


def failed_tensor(failure: int, weights: Weights) -> str:
    """The name behind a failure number: rollout tensors, then the loss, then every entry of the gradient."""
    names = [*ROLLOUT_TENSORS, "loss"]
    if failure <= len(names):
        return names[failure - 1]
    entry = failure - len(names) - 1
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights):
        if entry < leaf.size:
            return f"gradient.{jax.tree_util.keystr(path, simple=True, separator='.')}"
        entry -= leaf.size
    raise ValueError(f"no tensor has failure number {failure}")
