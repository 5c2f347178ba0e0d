"""The policy of the paper, for one agent's view of any number of agents and tasks: three blocks and a head.

1. tasks × agents, masked
2. agent-weighted tasks × agents, masked again
3. agent-weighted tasks × the viewer's own token: one vector for each task (to choose a task), or one of fixed
   length (for a continuous action). Where only some actions concern tasks, two linear layers stand in its place.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from diamond_attention.attention import presence_term
from diamond_attention.distributions.either import Distribution
from diamond_attention.policies.contract import Attention
from diamond_attention.policies.diamond_weights import BLOCKS, DiamondWeights
from diamond_attention.policies.heads.act_or_choose_task import ActOrChooseTaskHead
from diamond_attention.policies.heads.choose_task import ChooseTaskHead
from diamond_attention.policies.heads.continuous import ContinuousHead
from diamond_attention.ranks import rank_mask, rank_sign
from diamond_attention.view import AgentView


class DiamondPolicy(DiamondWeights):
    """`policy(view)` gives the action distribution and the attention weights P behind it.

    Rows of P sum to one; in the third block of a continuous policy, a choice among tasks, its one column does.
    """

    __init__ = DiamondWeights.__init__

    def draw(self, views: AgentView, key: PRNGKeyArray) -> AgentView:
        """Dropout ablation: which attention weights survive this step, for each agent on its own."""
        if self.mask != "dropout":
            return views
        shape = (BLOCKS, views.tasks.shape[1], views.agents.shape[1])
        keys = jax.random.split(key, views.ranks.shape[0])
        return views._replace(noise=jax.vmap(lambda k: jax.random.bernoulli(k, 1.0 - self.dropout_rate, shape))(keys))

    def __call__(self, view: AgentView) -> tuple[Distribution, Attention]:
        precision = self.embed_agent.first.weight.dtype
        agents = self.embed_agent(view.agents.astype(precision))
        tasks = self.embed_task(view.tasks.astype(precision))
        present = presence_term(view.task_present, view.agent_present)

        def attend(block: int, tasks: Array, agents: Array, score_terms: Array):
            kept = None if view.noise is None else view.noise[block, :, : agents.shape[0]]
            return self.blocks[block](tasks, agents, score_terms, kept, 1.0 - self.dropout_rate)

        first = attend(0, tasks, agents, present + self.rank_terms(0, view.ranks))
        tasks = self.task_projections[0](*first.tasks)
        agents = self.agent_projections[0](*first.agents)

        second = attend(1, tasks, agents, present + self.rank_terms(1, view.ranks))
        tasks = self.task_projections[1](*second.tasks)
        viewer = self.agent_projections[1](*(rows[0] for rows in second.agents))

        if isinstance(self.head, ActOrChooseTaskHead):
            return self.head(viewer, tasks, view), (first.weights, second.weights)
        # The viewer always sees itself, so no mask changes this last block.
        if self.choice is None:
            third = attend(2, tasks, viewer[None], present[None, :, :1])
            shown = (first.weights, second.weights, third.weights)
            if isinstance(self.head, ChooseTaskHead):
                return self.head(third.agents, third.tasks, view), shown
            return self.head(*(rows[0] for rows in third.agents)), shown
        assert isinstance(self.head, ContinuousHead)
        kept = None if view.noise is None else view.noise[2, :, 0]
        seen, weights = self.choice(tasks, viewer, view.task_present, kept, 1.0 - self.dropout_rate)
        return self.head(seen, viewer), (first.weights, second.weights, weights[:, None])

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
