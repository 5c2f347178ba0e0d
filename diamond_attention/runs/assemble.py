"""From settings to the things they describe: world, weights, learner."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from diamond_attention.critics import CommonCritic
from diamond_attention.learning.ppo import Learner, LearnerState, Weights, begin
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.runs.settings import PolicySettings, Settings
from diamond_attention.worlds.contract import TeamSize, World


def build_policy(world: World, settings: PolicySettings, key: PRNGKeyArray) -> DiamondPolicy:
    """A policy for this world's views and actions, with fresh weights."""
    view, _ = _example_views(world)
    return DiamondPolicy(
        view.agents.shape[-1],
        view.tasks.shape[-1],
        world.action_kind,
        width=settings.width,
        mask=settings.mask,
        dropout_rate=settings.dropout_rate,
        key=key,
    )


def build_critic(world: World, settings: PolicySettings, key: PRNGKeyArray) -> CommonCritic:
    _, team_view = _example_views(world)
    return CommonCritic(team_view.agents.shape[-1], team_view.tasks.shape[-1], width=settings.width, key=key)


def build_learner(settings: Settings) -> Learner:
    """Everything `update` is a function of, besides the learner's state."""
    return Learner(
        world=settings.world,
        sizes=tuple((int(size.agents), int(size.tasks)) for size in settings.sizes),
        hold=settings.rank_hold,
        ppo=settings.ppo,
        total_updates=settings.total_updates,
    )


def begin_learning(settings: Settings, seed: int) -> LearnerState:
    """The learner before its first update: a function of the settings and the seed alone."""
    return _begin_learning(_Frozen(settings), jnp.asarray(seed, jnp.uint32))


class _Frozen(eqx.Module):
    settings: Settings = eqx.field(static=True)


# One compiled program for each settings, called once a seed: orthogonal initialisation must not be vmapped.
@eqx.filter_jit
def _begin_learning(frozen: _Frozen, seed) -> LearnerState:
    learner = build_learner(frozen.settings)
    policy_key, critic_key, learner_key = jax.random.split(jax.random.key(seed), 3)
    weights = Weights(
        build_policy(learner.world, frozen.settings.policy, policy_key),
        build_critic(learner.world, frozen.settings.policy, critic_key),
    )
    return begin(learner, weights, learner_key)


def shape_of_learner(settings: Settings) -> LearnerState:
    """What a checkpoint of these settings must look like: shapes and dtypes, nothing computed."""
    return jax.eval_shape(lambda: begin_learning(settings, 0))


def _example_views(world: World):
    """The shapes of one agent's view and of the team view."""

    def look():
        size = TeamSize(world.max_agents, world.max_tasks)
        state = world.reset(jax.random.key(0), size)
        views = world.views(state, jnp.zeros(world.max_agents, jnp.float32))
        return jax.tree.map(lambda x: x[0], views), world.team_view(state)

    return jax.eval_shape(look)
