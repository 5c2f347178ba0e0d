"""Acting or choosing a task: two linear layers in place of the third block, as in the paper's SMAClite policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.distributions.categorical import Categorical
from diamond_attention.initialise import orthogonal_linear
from diamond_attention.view import AgentView


class ActOrChooseTaskHead(eqx.Module):
    """One logit for each fixed action, from the viewer; one for each task, from the viewer and that task.

    The last layers start near zero: the first policy is close to uniform over what is legal.
    """

    act_hidden: eqx.nn.Linear
    act: eqx.nn.Linear
    choose_viewer: eqx.nn.Linear
    choose_task: eqx.nn.Linear
    choose: eqx.nn.Linear

    def __init__(self, width: int, fixed_actions: int, *, key: PRNGKeyArray):
        keys = iter(jax.random.split(key, 5))
        self.act_hidden = orthogonal_linear(width, width, scale=2**0.5, key=next(keys))
        self.act = orthogonal_linear(width, fixed_actions, scale=0.01, key=next(keys))
        # One linear layer over viewer and task, written as the sum of its halves: the viewer's is computed once, and
        # XLA for GPUs (jax 0.10.2 and 0.11.2) fails to compile the joined rows of five agents and five tasks.
        self.choose_viewer = orthogonal_linear(width, width, scale=1.0, key=next(keys))
        self.choose_task = orthogonal_linear(width, width, scale=1.0, key=next(keys))
        self.choose = orthogonal_linear(width, 1, scale=0.01, key=next(keys))

    def __call__(self, viewer: Float[Array, " f"], tasks: Float[Array, "task f"], view: AgentView) -> Categorical:
        from_viewer = self.choose_viewer(viewer)
        fixed = self.act(jax.nn.silu(self.act_hidden(viewer)))
        chosen = jax.vmap(lambda task: self.choose(jax.nn.silu(from_viewer + self.choose_task(task))))(tasks)[:, 0]
        logits = jnp.concatenate([fixed, chosen]).astype(jnp.float32)
        always = jnp.ones(fixed.shape[0], bool)
        legal = jnp.concatenate([always, view.task_present]) if view.legal_actions is None else view.legal_actions
        return Categorical(jnp.where(legal, logits, -jnp.inf))
