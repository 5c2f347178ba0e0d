"""The policy of the paper: three Diamond Attention blocks and a head, for one agent's view.

    1. tasks × agents, masked
    2. agent-weighted tasks × agents, masked again
    3. agent-weighted tasks × the viewer's own token, which leaves one vector of fixed length
       (for a continuous action, where the viewer weighs the tasks against each other) and one vector for
       each task (to choose a task)

Where some actions concern tasks and others do not, two linear layers stand in place of the third block, as in
the paper's SMAClite policy.

Nothing depends on how many agents or tasks there are.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.actions import (
    ActionKind,
    ActOrChooseTask,
    Categorical,
    ChooseTask,
    Distribution,
    Gaussian,
)
from diamond_attention.attention import (
    ChoiceBlock,
    DiamondBlock,
    Projection,
    orthogonal_linear,
    presence_term,
    small_product,
)
from diamond_attention.ranks import MaskKind, rank_mask, rank_sign
from diamond_attention.view import AgentView

BLOCKS = 3

MASKED_BLOCKS = 2
"""A third block attends to the viewer alone, whom no mask hides."""

Attention = tuple[Float[Array, "task agent"], ...]
"""The weights P of each block, in the viewer's order: column 0 is the viewer, the only one in a third block.

Rows sum to one; in the third block of a continuous policy, a choice among tasks, the column does.
"""


class ChooseTaskHead(eqx.Module):
    """One logit for each task: how well that task's vector fits the viewer's."""

    viewer_projection: Projection
    task_projection: Projection

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        viewer_key, task_key = jax.random.split(key)
        self.viewer_projection = Projection(features, width, key=viewer_key)
        self.task_projection = Projection(features, width, key=task_key)

    def __call__(
        self, viewer: Float[Array, " feature"], tasks: Float[Array, "task feature"], view: AgentView
    ) -> Categorical:
        # A product rather than a sum of the two: the rank sits in the viewer's vector, and only a product
        # lets it change which task is preferred from the first update on.
        query = self.viewer_projection(viewer)
        keys = jax.vmap(self.task_projection)(tasks)
        # Divided by the fourth root of the width. By the square root, as in attention, ranks move the logits so
        # little that learning takes twice as long; undivided, the first policies are too peaked to win a sparse
        # game of five.
        logits = small_product(keys, query[:, None])[:, 0].astype(jnp.float32) / query.shape[0] ** 0.25
        allowed = view.task_present if view.legal_actions is None else view.legal_actions
        return Categorical(jnp.where(allowed, logits, -jnp.inf))


class ActOrChooseTaskHead(eqx.Module):
    """One logit for each fixed action, from the viewer; one for each task, from the viewer and that task.

    Both are two linear layers around an activation. The last ones start near zero: the first policy is close to
    uniform over what is legal.
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

    def __call__(
        self, viewer: Float[Array, " width"], tasks: Float[Array, "task width"], view: AgentView
    ) -> Categorical:
        from_viewer = self.choose_viewer(viewer)

        def choose(task: Float[Array, " width"]) -> Float[Array, " 1"]:
            return self.choose(jax.nn.silu(from_viewer + self.choose_task(task)))

        fixed = self.act(jax.nn.silu(self.act_hidden(viewer)))
        logits = jnp.concatenate([fixed, jax.vmap(choose)(tasks)[:, 0]]).astype(jnp.float32)
        always = jnp.ones(fixed.shape[0], bool)
        legal = jnp.concatenate([always, view.task_present]) if view.legal_actions is None else view.legal_actions
        return Categorical(jnp.where(legal, logits, -jnp.inf))


class ContinuousHead(eqx.Module):
    """A normal distribution around a learned mean; its width is a free parameter, as in SB3."""

    hidden: eqx.nn.Linear
    mean: eqx.nn.Linear
    log_std: Float[Array, " component"]

    def __init__(self, features: int, width: int, components: int, *, key: PRNGKeyArray):
        hidden_key, mean_key = jax.random.split(key)
        self.hidden = orthogonal_linear(features, width, scale=2**0.5, key=hidden_key)
        self.mean = orthogonal_linear(width, components, scale=0.01, key=mean_key)
        self.log_std = jnp.zeros(components)

    def __call__(self, viewer: Float[Array, " feature"]) -> Gaussian:
        mean = self.mean(jax.nn.silu(self.hidden(viewer))).astype(jnp.float32)
        return Gaussian(mean, self.log_std)


class DiamondPolicy(eqx.Module):
    """`policy(view)` gives the action distribution and the attention weights behind it."""

    embed_agent: Projection
    embed_task: Projection
    blocks: tuple[DiamondBlock, ...]
    choice: ChoiceBlock | None
    """The third block of a continuous policy."""
    agent_projections: tuple[Projection, Projection]
    task_projections: tuple[Projection, Projection]
    head: ChooseTaskHead | ActOrChooseTaskHead | ContinuousHead
    rank_bias: Float[Array, " block"] | None
    """What a rank is worth in each masked block, where that is learned (signed, floor)."""
    mask: MaskKind = eqx.field(static=True)
    dropout_rate: float = eqx.field(static=True)

    def __init__(
        self,
        agent_features: int,
        task_features: int,
        action_kind: ActionKind,
        *,
        width: int = 64,
        mask: MaskKind = "rank",
        dropout_rate: float = 0.5,
        key: PRNGKeyArray,
    ):
        keys = iter(jax.random.split(key, 10))
        self.embed_agent = Projection(agent_features, width, key=next(keys))
        self.embed_task = Projection(task_features, width, key=next(keys))
        self.blocks = (DiamondBlock(width, key=next(keys)), DiamondBlock(width, key=next(keys)))
        self.choice = None
        third_key = next(keys)
        self.agent_projections = (
            Projection(2 * width, width, key=next(keys)),
            Projection(2 * width, width, key=next(keys)),
        )
        self.task_projections = (
            Projection(2 * width, width, key=next(keys)),
            Projection(2 * width, width, key=next(keys)),
        )
        if isinstance(action_kind, ChooseTask):
            self.blocks = (*self.blocks, DiamondBlock(width, key=third_key))
            self.head = ChooseTaskHead(2 * width, width, key=next(keys))
        elif isinstance(action_kind, ActOrChooseTask):
            self.head = ActOrChooseTaskHead(width, action_kind.fixed_actions, key=next(keys))
        else:
            self.choice = ChoiceBlock(width, key=third_key)
            self.head = ContinuousHead(2 * width, width, action_kind.size, key=next(keys))
        self.rank_bias = {"signed": jnp.full(MASKED_BLOCKS, 1.0), "floor": jnp.full(MASKED_BLOCKS, 2.0)}.get(mask)
        self.mask = mask
        self.dropout_rate = dropout_rate

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        precision = self.embed_agent.first.weight.dtype
        agents = jax.vmap(self.embed_agent)(view.agents.astype(precision))
        tasks = jax.vmap(self.embed_task)(view.tasks.astype(precision))
        present = presence_term(view.task_present, view.agent_present)

        def attend(block: int, tasks: Array, agents: Array, score_terms: Array):
            kept = None if view.kept_attention is None else view.kept_attention[block, :, : agents.shape[0]]
            return self.blocks[block](tasks, agents, score_terms, kept, 1.0 - self.dropout_rate)

        first = attend(0, tasks, agents, present + self.rank_terms(0, view.ranks))
        tasks = jax.vmap(self.task_projections[0])(first.tasks)
        agents = jax.vmap(self.agent_projections[0])(first.agents)

        second = attend(1, tasks, agents, present + self.rank_terms(1, view.ranks))
        tasks = jax.vmap(self.task_projections[1])(second.tasks)
        viewer = self.agent_projections[1](second.agents[0])

        if isinstance(self.head, ActOrChooseTaskHead):
            return self.head(viewer, tasks, view), (first.weights, second.weights)

        # The viewer always sees itself, so no mask changes this last block.
        if isinstance(self.head, ChooseTaskHead):
            third = attend(2, tasks, viewer[None], present[None, :, :1])
            return self.head(third.agents[0], third.tasks, view), (first.weights, second.weights, third.weights)

        assert self.choice is not None
        kept = None if view.kept_attention is None else view.kept_attention[2, :, 0]
        viewer, weights = self.choice(tasks, viewer, view.task_present, kept, 1.0 - self.dropout_rate)
        return self.head(viewer), (first.weights, second.weights, weights[:, None])

    def rank_terms(self, block: int, ranks: Float32[Array, " agent"]) -> Float[Array, "head 1 agent"]:
        """What ranks add to the scores of a block, in each of its heads. The only place where ranks enter."""
        nothing = jnp.zeros_like(ranks)
        if self.mask == "rank" or (self.mask == "first" and block == 0):
            terms = [rank_mask(ranks)]
        elif self.mask == "split":
            terms = [rank_mask(ranks), nothing]
        elif self.mask == "signed" and self.rank_bias is not None:
            terms = [self.rank_bias[block] * rank_sign(ranks)]
        elif self.mask == "floor" and self.rank_bias is not None:
            # Softplus: a lower rank may come to mean nothing, but never an advantage.
            terms = [-jax.nn.softplus(self.rank_bias[block]) * (ranks < ranks[0])]
        else:
            terms = [nothing]
        return jnp.stack(terms)[:, None]
