"""From settings to a learner: what `update` is a function of, and the state before the first one."""

import equinox as eqx
import jax
import jax.numpy as jnp

from diamond_attention.learning.contract import Learner, LearnerState, Method
from diamond_attention.learning.registry import METHODS
from diamond_attention.runs.settings import Settings


def method_of(settings: Settings) -> Method:
    return METHODS[settings.method.name]


def build_learner(settings: Settings) -> Learner:
    """Everything `update` is a function of, besides the learner's state."""
    return Learner(
        world=settings.world,
        sizes=tuple((int(size.agents), int(size.tasks)) for size in settings.sizes),
        hold=settings.rank_hold,
        policy=settings.policy,
        method=settings.method,
        episode_steps=settings.method.episode_steps(settings.world),
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
    return method_of(frozen.settings).begin(build_learner(frozen.settings), jax.random.key(seed))


def shape_of_learner(settings: Settings) -> LearnerState:
    """What a learner with these settings looks like: shapes and dtypes, nothing computed."""
    return jax.eval_shape(lambda: begin_learning(settings, 0))


def saved_part(settings: Settings, state: LearnerState) -> LearnerState:
    """What of a learner, or of its shapes, a checkpoint holds."""
    part = method_of(settings).saved_part
    return state if part is None else part(build_learner(settings), state)
