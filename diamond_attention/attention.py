"""The Diamond Attention block (Eq. 4), for one agent's view.

Both directions of one cross-attention come from a single score matrix between tasks and agents:

    P = softmax over agents ( T Aᵀ / sqrt(d) + M )
    tasks having seen agents = P  (W_A A) ⊕ T
    agents having seen tasks = Pᵀ (W_T T) ⊕ A

The paper writes the two ⊕ terms the other way round, which joins rows of different sets; see docs/how_it_works.md.
Every row of P sums to one over the agents that task can see; a column does not, and a hidden peer's is zero.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.initialise import orthogonal_linear


class Projection(eqx.Module):
    """Two linear layers around a SiLU, then LayerNorm.

    The normalisation is not decoration. With identical agents the rank reaches the logits only through the
    *scale* of one summand; without it that signal is about 1e-5 at first, and XOR stays on its saddle for ever.
    """

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = orthogonal_linear(features, width, scale=2**0.5, key=first_key)
        self.second = orthogonal_linear(width, width, scale=1.0, key=second_key)
        # The linear layer that reads the result has its own scale and offset; two sets of them would only be slower.
        self.norm = eqx.nn.LayerNorm(width, use_weight=False, use_bias=False)

    def __call__(self, token: Float[Array, " feature"]) -> Float[Array, " width"]:
        return self.norm(self.second(jax.nn.silu(self.first(token))))


class BlockOutput(NamedTuple):
    tasks: Float[Array, "task 2*width"]  # having seen agents
    agents: Float[Array, "agent 2*width"]  # having seen tasks
    weights: Float[Array, "task agent"]  # P, the mean over heads: what acted, so figures cannot drift from it


class DiamondBlock(eqx.Module):
    """Eq. 4: one score matrix, read in both directions.

    The paper's block has one head. With several, each is a slice of the channels with scores and an M of its own.
    """

    agent_values: eqx.nn.Linear  # W_A
    task_values: eqx.nn.Linear  # W_T

    def __init__(self, width: int, *, key: PRNGKeyArray):
        agent_key, task_key = jax.random.split(key)
        self.agent_values = orthogonal_linear(width, width, scale=1.0, key=agent_key)
        self.task_values = orthogonal_linear(width, width, scale=1.0, key=task_key)

    def __call__(
        self,
        tasks: Float[Array, "task width"],
        agents: Float[Array, "agent width"],
        score_terms: Float[Array, "head task agent"],
        kept: Bool[Array, "task agent"] | None = None,
        keep_probability: float = 1.0,
    ) -> BlockOutput:
        """`score_terms` is M, one for each head. `kept` is the dropout ablation's mask on the weights."""
        agent_values, task_values = jax.vmap(self.agent_values)(agents), jax.vmap(self.task_values)(tasks)
        to_tasks, to_agents, every_weights = [], [], []
        size = tasks.shape[-1] // score_terms.shape[0]
        for head in range(score_terms.shape[0]):
            own = slice(head * size, (head + 1) * size)
            scores = small_product(tasks[:, own], agents[:, own].T) / jnp.sqrt(size) + score_terms[head]
            weights = softmax_or_zero(scores).astype(tasks.dtype)  # M is float32, so the softmax was too
            if kept is not None:
                weights = jnp.where(kept, weights / keep_probability, 0.0)
            to_tasks.append(small_product(weights, agent_values[:, own]))
            to_agents.append(small_product(weights.T, task_values[:, own]))
            every_weights.append(weights)
        return BlockOutput(
            tasks=jnp.concatenate([*to_tasks, tasks], axis=-1),
            agents=jnp.concatenate([*to_agents, agents], axis=-1),
            weights=jnp.mean(jnp.stack(every_weights), axis=0),
        )


def small_product(left: Float[Array, "row inner"], right: Float[Array, "inner column"]) -> Float[Array, "row column"]:
    """left @ right; off the CPU, one multiplication and one sum instead.

    Stacked by `jax.vmap`, `@` becomes a batched product of tiny matrices. For tens of thousands of views XLA for
    GPUs (jax 0.11.2, H200) returned wrong numbers; the plain sum is right there, and faster, but slow on a CPU.
    """
    summed = lambda left, right: jnp.sum(left[:, :, None] * right[None, :, :], axis=1)  # noqa: E731
    return jax.lax.platform_dependent(left, right, cpu=lambda left, right: left @ right, default=summed)


def softmax_or_zero(scores: Float[Array, "row column"]) -> Float[Array, "row column"]:
    """Softmax over columns; a row in which everything is hidden gives zeros, not NaN, also in gradients."""
    visible = scores > -jnp.inf
    peak = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0.0))
    # The inner where keeps exp away from -inf, whose gradient would be 0 * inf.
    exponentials = jnp.where(visible, jnp.exp(jnp.where(visible, scores, peak) - peak), 0.0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0.0, total, 1.0)


def presence_term(present: Bool[Array, " task"], agent_present: Bool[Array, " agent"]) -> Float[Array, "task agent"]:
    """-inf wherever the task or the agent is absent: padding neither attends nor is attended to."""
    return jnp.where(present[:, None] & agent_present[None, :], 0.0, -jnp.inf)
