"""The policy of the paper: three Diamond Attention blocks and a head, for one agent's view.

    1. tasks × agents, masked
    2. agent-weighted tasks × agents, masked again
    3. agent-weighted tasks × the viewer's own token, which leaves one vector of fixed length
       (for a continuous action) and one vector for each task (to choose a task)

Where some actions concern tasks and others do not, two linear layers stand in place of the third block, as in
the paper's SMAClite policy.

Nothing depends on how many agents or tasks there are.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.actions import (
    ActionKind,
    ActOrChooseTask,
    Categorical,
    ChooseTask,
    Distribution,
    Gaussian,
)
from diamond_attention.attention import (
    DiamondBlock,
    Projection,
    orthogonal_linear,
    presence_term,
    small_product,
)
from diamond_attention.ranks import MaskKind, rank_mask
from diamond_attention.view import AgentView

BLOCKS = 3

Attention = tuple[Float[Array, "task agent"], ...]
"""The weights P of each block, in the viewer's order: column 0 is the viewer, the only one in a third block."""


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
        logits = small_product(keys, query[:, None])[:, 0] / query.shape[0] ** 0.25
        allowed = view.task_present if view.legal_actions is None else view.legal_actions
        return Categorical(jnp.where(allowed, logits, -jnp.inf))


class ActOrChooseTaskHead(eqx.Module):
    """One logit for each fixed action, from the viewer; one for each task, from the viewer and that task.

    Both are two linear layers around an activation. The last ones start near zero: the first policy is close to
    uniform over what is legal.
    """

    act_hidden: eqx.nn.Linear
    act: eqx.nn.Linear
    choose_hidden: eqx.nn.Linear
    choose: eqx.nn.Linear

    def __init__(self, width: int, fixed_actions: int, *, key: PRNGKeyArray):
        keys = iter(jax.random.split(key, 4))
        self.act_hidden = orthogonal_linear(width, width, scale=2**0.5, key=next(keys))
        self.act = orthogonal_linear(width, fixed_actions, scale=0.01, key=next(keys))
        self.choose_hidden = orthogonal_linear(2 * width, width, scale=2**0.5, key=next(keys))
        self.choose = orthogonal_linear(width, 1, scale=0.01, key=next(keys))

    def __call__(
        self, viewer: Float[Array, " width"], tasks: Float[Array, "task width"], view: AgentView
    ) -> Categorical:
        def choose(task: Float[Array, " width"]) -> Float[Array, " 1"]:
            return self.choose(jax.nn.silu(self.choose_hidden(jnp.concatenate([viewer, task]))))

        fixed = self.act(jax.nn.silu(self.act_hidden(viewer)))
        logits = jnp.concatenate([fixed, jax.vmap(choose)(tasks)[:, 0]])
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
        return Gaussian(self.mean(jax.nn.silu(self.hidden(viewer))), self.log_std)


class DiamondPolicy(eqx.Module):
    """`policy(view)` gives the action distribution and the attention weights behind it."""

    embed_agent: Projection
    embed_task: Projection
    blocks: tuple[DiamondBlock, ...]
    agent_projections: tuple[Projection, Projection]
    task_projections: tuple[Projection, Projection]
    head: ChooseTaskHead | ActOrChooseTaskHead | ContinuousHead
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
        self.blocks = (
            DiamondBlock(width, key=next(keys)),
            DiamondBlock(width, key=next(keys)),
            DiamondBlock(width, key=next(keys)),
        )
        self.agent_projections = (
            Projection(2 * width, width, key=next(keys)),
            Projection(2 * width, width, key=next(keys)),
        )
        self.task_projections = (
            Projection(2 * width, width, key=next(keys)),
            Projection(2 * width, width, key=next(keys)),
        )
        if isinstance(action_kind, ChooseTask):
            self.head = ChooseTaskHead(2 * width, width, key=next(keys))
        elif isinstance(action_kind, ActOrChooseTask):
            self.blocks = self.blocks[:2]
            self.head = ActOrChooseTaskHead(width, action_kind.fixed_actions, key=next(keys))
        else:
            self.head = ContinuousHead(2 * width, width, action_kind.size, key=next(keys))
        self.mask = mask
        self.dropout_rate = dropout_rate

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        agents = jax.vmap(self.embed_agent)(view.agents)
        tasks = jax.vmap(self.embed_task)(view.tasks)
        score_term = presence_term(view.task_present, view.agent_present)
        if self.mask == "rank":
            score_term = score_term + rank_mask(view.ranks)

        def attend(block: int, tasks: Array, agents: Array, score_term: Array):
            kept = None if view.kept_attention is None else view.kept_attention[block, :, : agents.shape[0]]
            return self.blocks[block](tasks, agents, score_term, kept, 1.0 - self.dropout_rate)

        first = attend(0, tasks, agents, score_term)
        tasks = jax.vmap(self.task_projections[0])(first.tasks)
        agents = jax.vmap(self.agent_projections[0])(first.agents)

        second = attend(1, tasks, agents, score_term)
        tasks = jax.vmap(self.task_projections[1])(second.tasks)
        viewer = self.agent_projections[1](second.agents[0])

        if isinstance(self.head, ActOrChooseTaskHead):
            return self.head(viewer, tasks, view), (first.weights, second.weights)

        # The viewer always sees itself, so the mask leaves this last block as it is.
        third = attend(2, tasks, viewer[None], score_term[:, :1])
        distribution: Distribution
        if isinstance(self.head, ChooseTaskHead):
            distribution = self.head(third.agents[0], third.tasks, view)
        else:
            distribution = self.head(third.agents[0])
        return distribution, (first.weights, second.weights, third.weights)
