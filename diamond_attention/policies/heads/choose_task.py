"""Choosing a task: one logit for each, from the vectors of a third Diamond Attention block."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from diamond_attention.attention import Projection, small_product
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.view import AgentView

Parts = tuple[Float[Array, "row width"], Float[Array, "row width"]]


class ChooseTaskHead(eqx.Module):
    """One logit for each task: how well that task's vector fits the viewer's."""

    viewer_projection: Projection
    task_projection: Projection

    def __init__(self, features: int, width: int, *, key: PRNGKeyArray):
        viewer_key, task_key = jax.random.split(key)
        self.viewer_projection = Projection(features, width, key=viewer_key)
        self.task_projection = Projection(features, width, key=task_key)

    def __call__(self, viewer: Parts, tasks: Parts, view: AgentView) -> Categorical:
        # A product rather than a sum of the two: the rank sits in the viewer's vector, and only a product
        # lets it change which task is preferred from the first update on.
        query = self.viewer_projection(*viewer)[0]
        keys = self.task_projection(*tasks)
        # Divided by the fourth root of the width. By the square root, as in attention, ranks move the logits so
        # little that learning takes twice as long; undivided, the first policies are too peaked for sparse n=k=5.
        logits = small_product(keys, query[:, None])[:, 0].astype(jnp.float32) / query.shape[0] ** 0.25
        allowed = view.task_present if view.legal_actions is None else view.legal_actions
        return Categorical(jnp.where(allowed, logits, -jnp.inf))
