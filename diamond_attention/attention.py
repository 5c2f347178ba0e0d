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
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.initialise import orthogonal_linear


def linear(layer: eqx.nn.Linear, *parts: Float[Array, "*row _"]) -> Float[Array, "*row out"]:
    """W x + b of every row, whose features come in parts: each meets its own columns of W, and nothing is joined."""
    rows_of_weights = jnp.split(layer.weight.T, np.cumsum([part.shape[-1] for part in parts])[:-1])
    return sum(map(jnp.matmul, parts, rows_of_weights)) + layer.bias  # type: ignore[operator, return-value]


class Projection(eqx.Module):
    """Two linear layers around a SiLU, then LayerNorm; of every row by itself.

    The normalisation is not decoration. With identical agents the rank reaches the logits only through the
    *scale* of one summand; without it that signal is about 1e-5 at first, and XOR stays on its saddle for ever.
    """

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = orthogonal_linear(features, width, scale=2**0.5, key=first_key)
        self.second = orthogonal_linear(width, width, scale=1.0, key=second_key)

    def __call__(self, *parts: Float[Array, "*row _"]) -> Float[Array, "*row width"]:
        # LayerNorm, in float32. The layer that reads it has its own scale and offset; two sets would only be slower.
        wide = linear(self.second, jax.nn.silu(linear(self.first, *parts))).astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-5)).astype(parts[0].dtype)


class BlockOutput(NamedTuple):
    tasks: tuple[Float[Array, "task width"], Float[Array, "task width"]]  # what they saw of agents ⊕ themselves
    agents: tuple[Float[Array, "agent width"], Float[Array, "agent width"]]  # what they saw of tasks ⊕ themselves
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
        agent_values, task_values = linear(self.agent_values, agents), linear(self.task_values, tasks)
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
        seen = (jnp.concatenate(to_tasks, axis=-1), tasks), (jnp.concatenate(to_agents, axis=-1), agents)
        return BlockOutput(*seen, jnp.mean(jnp.stack(every_weights), axis=0))


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
    peak = jnp.max(jax.lax.stop_gradient(scores), axis=-1, keepdims=True, initial=-jnp.inf)
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    # The inner where keeps exp away from -inf, whose gradient would be 0 * inf.
    exponentials = jnp.where(visible, jnp.exp(jnp.where(visible, scores, peak) - peak), 0.0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0.0, total, 1.0)


def presence_term(present: Bool[Array, " task"], agent_present: Bool[Array, " agent"]) -> Float[Array, "task agent"]:
    """-inf wherever the task or the agent is absent: padding neither attends nor is attended to."""
    return jnp.where(present[:, None] & agent_present[None, :], jnp.float32(0.0), -jnp.inf)
