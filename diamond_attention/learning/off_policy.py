"""What off-policy methods share, as one pure function: play a little, keep the steps, learn from kept ones.

play → replay → minibatches → metrics. What a method learns by is its `Rules`; the rest is here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.actions import Actions
from diamond_attention.learning.contract import Learner, Method
from diamond_attention.learning.finite import first_non_finite
from diamond_attention.learning.first_teams import first_teams
from diamond_attention.learning.off_policy_settings import OffPolicySettings
from diamond_attention.learning.replay import add_rows, draw_places, empty_replay, rows_at
from diamond_attention.learning.rollout import Experience, collect
from diamond_attention.learning.seeds import name_of_broken
from diamond_attention.play import TeamState
from diamond_attention.policies.contract import Policy
from diamond_attention.policies.kind import Described, KindSettings
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.contract import World

Weights = Any
"""What gradients reach, as a NamedTuple; its `policy` is the one that plays."""
KEPT_TENSORS = ("view.agents", "view.tasks", "team_view", "next_view.agents", "next_view.tasks", "action", "reward")


class Kept(NamedTuple):
    """One step of one team, as it is remembered."""

    views: AgentView  # leading axis: agent
    team_view: TeamView
    actions: Actions
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    next_views: AgentView  # of the state this step led to, before any reset
    next_team_view: TeamView


class OffPolicyState(NamedTuple):
    """Everything one seed's training depends on. Two equal states have equal futures."""

    weights: Weights
    slow: Any  # a copy of some of the weights that follows slowly: what targets are computed with
    optimiser: optax.OptState
    replay: Any  # a Replay; None only while it is made, and in a checkpoint that leaves it out
    teams: TeamState  # leading axis: env
    key: Array  # raw key data, so the state is arrays only
    update: Int[Array, ""]
    failure: Int[Array, ""]


class Rules(NamedTuple):
    """What tells one off-policy method from another."""

    begin: Callable[[Learner, PRNGKeyArray], Weights]
    loss: Callable[[Learner, Weights, Any, Kept, PRNGKeyArray], tuple[Array, dict[str, Array]]]
    """(learner, weights, slow copy, minibatch, key) -> what to lower, and its parts for metrics.csv."""
    followed: Callable[[Weights], Any]
    """The part of the weights that the slow copy follows."""
    before_playing: Callable[[Learner, Weights, Array], Weights] = lambda learner, weights, share: weights
    """The weights to play with when that share of the run is done; an exploring policy explores less and less."""
    step: Callable[[OffPolicySettings, Weights], Weights] = lambda method, step: step
    """Adam's step, with some parts of it made shorter or longer."""


ADAM = optax.scale_by_adam(eps=1e-8)
"""Without its learning rate, which depends on the update."""


def clipped(gradient: Weights, longest: float) -> Weights:
    """Every part by itself: a critic's gradient may be long without making the policy's shorter."""

    def one(part: Any) -> Any:
        length = jnp.linalg.norm(ravel_pytree(part)[0])
        share = jnp.minimum(1.0, longest / jnp.maximum(length, 1e-8))
        return jax.tree.map(lambda x: share * x, part)

    return type(gradient)(*map(one, gradient))


# --- Beginning ------------------------------------------------------------------------------------


def begin_by(rules: Rules) -> Callable[[Learner, PRNGKeyArray], OffPolicyState]:
    def begin(learner: Learner, key: PRNGKeyArray) -> OffPolicyState:
        weights_key, key, reset_key, phase_key = jax.random.split(key, 4)
        weights = rules.begin(learner, weights_key)
        teams = first_teams(learner, weights.policy, reset_key, phase_key)
        state = OffPolicyState(
            weights=weights,
            slow=rules.followed(weights),
            optimiser=ADAM.init(ravel_pytree(weights)[0]),
            replay=None,
            teams=teams,
            key=jax.random.key_data(key),
            update=jnp.zeros((), jnp.int32),
            failure=jnp.zeros((), jnp.int32),
        )
        rows = jax.eval_shape(lambda: kept_of(play_all(learner, state, reset_key)[1]))
        return state._replace(replay=empty_replay(jax.tree.map(one_of, rows), learner.method.replay))

    return begin


def one_of(rows: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)


# --- Playing --------------------------------------------------------------------------------------


class Witness:
    """Stands where a critic would: asked for the value of a state, it says what there is to see."""

    reads_views = True

    def __call__(self, view: TeamView, views: AgentView | None, policy: Policy) -> Any:
        return view, views


def play_all(learner: Learner, state: OffPolicyState, key: PRNGKeyArray) -> tuple[TeamState, Experience]:
    """The next steps of every team, side by side."""
    method, sizes, witness = learner.method, jnp.asarray(learner.sizes), Witness()
    game, rest = (learner.world, sizes, state.weights.policy), (method.steps, learner.hold, learner.episode_steps)
    keys = jax.random.split(key, method.envs)
    side_by_side = learner.share((state.teams, keys))
    return jax.vmap(lambda team, k: collect(*game, witness, team, k, *rest))(*side_by_side)  # type: ignore[arg-type]


def kept_of(seen: Experience) -> Kept:
    """What is remembered of steps; leading axis: step of some team."""
    team_view, views = seen.next_value
    kept = Kept(seen.views, seen.team_view, seen.actions, seen.reward, seen.terminated, views, team_view)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), kept)


# --- Learning -------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """What changes from minibatch to minibatch."""

    weights: Weights
    slow: Any
    optimiser: optax.OptState
    failure: Array


def update_by(rules: Rules) -> Callable[[Learner, OffPolicyState], tuple[OffPolicyState, dict[str, Array]]]:
    def update(learner: Learner, state: OffPolicyState) -> tuple[OffPolicyState, dict[str, Array]]:
        """One update. Where something was not finite, `failure` says what, and the state is not kept."""
        method = learner.method
        key, play_key, draw_key, learn_key = jax.random.split(jax.random.wrap_key_data(state.key), 4)
        share = state.update / learner.total_updates
        state = state._replace(weights=rules.before_playing(learner, state.weights, share))
        teams, seen = play_all(learner, state, play_key)
        kept = learner.whole(kept_of(seen))
        replay = add_rows(state.replay, kept)

        learning_rate = jnp.asarray(method.learning_rate) * (1.0 - share if method.anneal else 1.0)
        enough = replay.filled >= method.warmup

        def minibatch(progress: Progress, drawn: tuple[Array, PRNGKeyArray]) -> tuple[Progress, dict[str, Array]]:
            places, key = drawn
            batch = learner.share(rows_at(replay, places))
            return learn_from(rules, learner, progress, batch, key, learning_rate, enough)

        progress = Progress(state.weights, state.slow, state.optimiser, first_non_finite(kept_tensors(kept)))
        places = draw_places(replay, draw_key, (method.gradient_steps, method.batch))
        keys = jax.random.split(learn_key, method.gradient_steps)
        progress, parts = jax.lax.scan(minibatch, progress, (places, keys))

        learned = state._replace(weights=progress.weights, slow=progress.slow, optimiser=progress.optimiser)
        after = learned._replace(replay=replay, teams=teams, key=jax.random.key_data(key), update=state.update + 1)
        row = {**summarise(seen, parts, enough), "learning_rate": learning_rate, "kept": replay.filled}
        return after._replace(failure=progress.failure), row

    return update


def learn_from(
    rules: Rules,
    learner: Learner,
    progress: Progress,
    batch: Kept,
    key: PRNGKeyArray,
    learning_rate: Array,
    enough: Array,
) -> tuple[Progress, dict[str, Array]]:
    """One gradient step on one minibatch, once enough is kept, unless something is not finite."""
    method = learner.method
    (loss, parts), gradient = jax.value_and_grad(rules.loss, argnums=1, has_aux=True)(
        learner, progress.weights, progress.slow, batch, key
    )
    gradient, as_weights = ravel_pytree(clipped(gradient, method.max_grad_norm))
    finite = jnp.isfinite(jnp.concatenate([loss[None], gradient]))
    found = jnp.where(jnp.all(finite), 0, len(KEPT_TENSORS) + 1 + jnp.argmin(finite))
    failure = jnp.where(progress.failure > 0, progress.failure, jnp.where(enough, found, 0)).astype(jnp.int32)

    step, moments = ADAM.update(gradient, progress.optimiser)
    step = rules.step(method, as_weights(-learning_rate * step))
    weights = optax.apply_updates(progress.weights, step)
    slow = jax.tree.map(lambda old, new: old + method.tau * (new - old), progress.slow, rules.followed(weights))
    unchanged = ~enough | (failure > 0)
    kept, new = (progress.weights, progress.slow, progress.optimiser), (weights, slow, moments)
    weights, slow, moments = jax.tree.map(lambda old, new: jnp.where(unchanged, old, new), kept, new)
    return Progress(weights, slow, moments, failure), parts


def summarise(seen: Experience, parts: dict[str, Array], enough: Array) -> dict[str, Array]:
    """One row of metrics.csv. Means over finished episodes are NaN in an update that finished none."""
    episodes = jnp.sum(seen.finished)
    return {
        "episodes": episodes,
        "return": jnp.sum(seen.finished_return) / episodes,
        **{name: jnp.sum(total) / episodes for name, total in seen.finished_measures.items()},
        **{name: jnp.where(enough, jnp.mean(part), 0.0) for name, part in parts.items()},
    }


def kept_tensors(kept: Kept) -> dict[str, Array]:
    """What is about to be kept, by the names in KEPT_TENSORS: nothing that is not finite may stay there."""
    team = jnp.concatenate([kept.team_view.agents.ravel(), kept.team_view.tasks.ravel()])
    seen, then = kept.views, kept.next_views
    tensors = (seen.agents, seen.tasks, team, then.agents, then.tasks, kept.actions, kept.reward)
    return dict(zip(KEPT_TENSORS, tensors, strict=True))


def loss_by(rules: Rules) -> Callable[[Learner, OffPolicyState, Any, PRNGKeyArray], Any]:
    def loss(learner: Learner, state: OffPolicyState, played: tuple[TeamState, Experience], key: PRNGKeyArray) -> Any:
        """(loss, its parts), gradient; all steps that were played in one minibatch."""
        given = (learner, state.weights, state.slow, kept_of(played[1]), key)
        return jax.value_and_grad(rules.loss, argnums=1, has_aux=True)(*given)

    return loss


# --- As the rest of the project knows it ----------------------------------------------------------


def policy_of(state: OffPolicyState) -> Policy:
    return state.weights.policy


def failed_part(state: OffPolicyState, failure: int) -> str:
    return name_of_broken(KEPT_TENSORS, state.weights, failure)


def saved_part(learner: Learner, state: OffPolicyState) -> OffPolicyState:
    return state if learner.method.keep_replay else state._replace(replay=None)


def start_from(fresh: OffPolicyState, policy: Policy, other: OffPolicyState | None) -> OffPolicyState:
    """Critics, mixers and their slow copies come along where there are any; what was kept does not."""
    if other is None:
        return fresh._replace(weights=fresh.weights._replace(policy=policy))
    return fresh._replace(weights=other.weights, slow=other.slow)


def off_policy_method(
    settings: type[OffPolicySettings],
    policy: KindSettings,
    rules: Rules,
    described: Callable[[KindSettings, World], Described],
) -> Method:
    return Method(
        settings=settings,
        policy=policy,
        begin=begin_by(rules),
        update=update_by(rules),
        policy_of=policy_of,
        failed_part=failed_part,
        collect=play_all,
        loss=loss_by(rules),
        start_from=start_from,
        described=described,
        saved_part=saved_part,
    )
