"""What a Diamond Attention policy learns: which arrays there are, and how they begin."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.actions import ActionKind, ActOrChooseTask, ChooseTask
from diamond_attention.attention import DiamondBlock, Projection
from diamond_attention.policies.contract import PerAgentPolicy
from diamond_attention.policies.diamond_settings import MaskKind, ThirdBlock
from diamond_attention.policies.heads.act_or_choose_task import ActOrChooseTaskHead
from diamond_attention.policies.heads.choose_task import ChooseTaskHead
from diamond_attention.policies.heads.continuous import ChoiceBlock, ContinuousHead

BLOCKS, MASKED_BLOCKS = 3, 2
"""A third block attends to the viewer alone, whom no mask hides."""


class DiamondWeights(PerAgentPolicy):
    """Two masked blocks, a third that depends on the kind of action, projections between them, and a head."""

    embed_agent: Projection
    embed_task: Projection
    blocks: tuple[DiamondBlock, ...]
    choice: ChoiceBlock | None  # the third block of a continuous policy, unless it is the paper's
    agent_projections: tuple[Projection, Projection]
    task_projections: tuple[Projection, Projection]
    head: ChooseTaskHead | ActOrChooseTaskHead | ContinuousHead
    rank_bias: Float[Array, " block"] | None  # what a rank is worth in each masked block, where that is learned
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
        third_block: ThirdBlock = "choice",
        key: PRNGKeyArray,
    ):
        keys = list(jax.random.split(key, 10))
        third_key, head_key = keys[4], keys[9]
        self.embed_agent = Projection(agent_features, width, key=keys[0])
        self.embed_task = Projection(task_features, width, key=keys[1])
        self.blocks = (DiamondBlock(width, key=keys[2]), DiamondBlock(width, key=keys[3]))
        self.choice = None
        self.agent_projections = (
            Projection(2 * width, width, key=keys[5]),
            Projection(2 * width, width, key=keys[6]),
        )
        self.task_projections = (Projection(2 * width, width, key=keys[7]), Projection(2 * width, width, key=keys[8]))
        if isinstance(action_kind, ChooseTask):
            self.blocks = (*self.blocks, DiamondBlock(width, key=third_key))
            self.head = ChooseTaskHead(2 * width, width, key=head_key)
        elif isinstance(action_kind, ActOrChooseTask):
            self.head = ActOrChooseTaskHead(width, action_kind.fixed_actions, key=head_key)
        else:
            if third_block == "choice":
                self.choice = ChoiceBlock(width, key=third_key)
            else:
                self.blocks = (*self.blocks, DiamondBlock(width, key=third_key))
            self.head = ContinuousHead(2 * width, width, action_kind.size, key=head_key)
        self.rank_bias = {"signed": jnp.full(MASKED_BLOCKS, 1.0), "floor": jnp.full(MASKED_BLOCKS, 2.0)}.get(mask)
        self.mask, self.dropout_rate = mask, dropout_rate
