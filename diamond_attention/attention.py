"""The Diamond Attention block (Eq. 4), for one agent's view.

Both directions of one cross-attention come from a single score matrix between tasks and agents:

    P = softmax over agents ( T Aᵀ / sqrt(d) + M )
    tasks having seen agents = P  (W_A A) ⊕ T
    agents having seen tasks = Pᵀ (W_T T) ⊕ A

The paper writes the two ⊕ terms the other way round, which joins rows of different sets; see
docs/how_it_works.md. Every row of P sums to one over the agents that task can see. A column, what one
agent gives to all tasks, does not; a hidden peer's column is zero.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray


class Projection(eqx.Module):
    """Two linear layers around a SiLU, then LayerNorm.

    The normalisation is not decoration. With identical agents the rank reaches the logits only through
    the *scale* of one summand; without LayerNorm that signal is about 1e-5 at initialisation and the XOR
    game stays on its saddle for ever.
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


def orthogonal_linear(features: int, out: int, *, scale: float, key: PRNGKeyArray) -> eqx.nn.Linear:
    """A linear layer with orthogonal weights and zero bias.

    Never build one inside `jax.vmap`: a batched QR deadlocks XLA's CPU runtime. Build one module for each
    seed and stack them.
    """
    layer = eqx.nn.Linear(features, out, key=key)
    weight = jax.nn.initializers.orthogonal(scale)(key, (out, features), jnp.float32)
    return eqx.tree_at(lambda linear: (linear.weight, linear.bias), layer, (weight, jnp.zeros(out)))


class BlockOutput(NamedTuple):
    tasks: Float[Array, "task 2*width"]
    """Tasks having seen agents."""
    agents: Float[Array, "agent 2*width"]
    """Agents having seen tasks."""
    weights: Float[Array, "task agent"]
    """P: what acted, returned so that figures need no hooks and cannot drift from it. The mean over heads."""


class DiamondBlock(eqx.Module):
    """Eq. 4: one score matrix, read in both directions.

    The paper's block has one head. With several, each is a slice of the channels with scores and a term M of
    its own.
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
        heads = score_terms.shape[0]
        agent_values = jax.vmap(self.agent_values)(agents)
        task_values = jax.vmap(self.task_values)(tasks)
        to_tasks, to_agents, every_weights = [], [], []
        size = tasks.shape[-1] // heads
        for head in range(heads):
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


class ChoiceBlock(eqx.Module):
    """What stands in place of a Diamond Attention block where one agent alone reads the tasks.

    Over one agent the softmax of Eq. 4 is 1 for every task, and their sum grows with their number: a team that
    learned on four landmarks stops beside its two or eight. So here it runs over the tasks.
    """

    task_values: eqx.nn.Linear  # W_T

    def __init__(self, width: int, *, key: PRNGKeyArray):
        self.task_values = orthogonal_linear(width, width, scale=1.0, key=key)

    def __call__(
        self,
        tasks: Float[Array, "task width"],
        viewer: Float[Array, " width"],
        task_present: Bool[Array, " task"],
        kept: Bool[Array, " task"] | None = None,
        keep_probability: float = 1.0,
    ) -> tuple[Float[Array, " 2*width"], Float[Array, " task"]]:
        """The viewer having seen the tasks, and what it gave to each."""
        scores = small_product(tasks, viewer[:, None])[:, 0] / jnp.sqrt(tasks.shape[-1])
        scores = scores + jnp.where(task_present, 0.0, -jnp.inf)  # float32, and so is the softmax
        weights = softmax_or_zero(scores[None])[0].astype(tasks.dtype)
        if kept is not None:
            weights = jnp.where(kept, weights / keep_probability, 0.0)
        seen = small_product(weights[None], jax.vmap(self.task_values)(tasks))[0]
        return jnp.concatenate([seen, viewer]), weights


def small_product(left: Float[Array, "row inner"], right: Float[Array, "inner column"]) -> Float[Array, "row column"]:
    """left @ right; off the CPU, one multiplication and one sum instead.

    With tens of thousands of views stacked by `jax.vmap`, `@` becomes a batched product of tiny matrices.
    XLA for GPUs (jax 0.11.2, H200) then returned wrong numbers: half of the logits were off by more than
    5 % at 4 seeds × 512 teams × 12 agents. The plain sum is right there, and faster; on a CPU it is up to
    fifteen times slower.
    """
    return jax.lax.platform_dependent(
        left,
        right,
        cpu=lambda left, right: left @ right,
        default=lambda left, right: jnp.sum(left[:, :, None] * right[None, :, :], axis=1),
    )


def softmax_or_zero(scores: Float[Array, "row column"]) -> Float[Array, "row column"]:
    """Softmax over columns; a row in which everything is hidden gives zeros, not NaN, also in gradients."""
    visible = scores > -jnp.inf
    peak = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0.0))
    # The inner where keeps exp away from -inf, whose gradient would be 0 * inf.
    exponentials = jnp.where(visible, jnp.exp(jnp.where(visible, scores, peak) - peak), 0.0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0.0, total, 1.0)


def presence_term(
    task_present: Bool[Array, " task"], agent_present: Bool[Array, " agent"]
) -> Float[Array, "task agent"]:
    """-inf wherever the task or the agent is absent: padding neither attends nor is attended to."""
    return jnp.where(task_present[:, None] & agent_present[None, :], 0.0, -jnp.inf)
