"""GSA: the ablation of pH-MARL (Sebastian et al.) that keeps its attention and drops its physics."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from diamond_attention.distributions.either import Distribution
from diamond_attention.policies.contract import IndependentPolicy
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.neighbours import (
    ChannelNetwork,
    Goal,
    Neighbourhood,
    NeighbourSettings,
    Space,
    answer_with,
    neighbourhoods,
    space_of,
)
from diamond_attention.view import AgentView

HIDDEN = 6


@dataclass(frozen=True)
class GsaSettings(NeighbourSettings):
    """Attention over channels on what neighbours tell; plays any team size."""

    kind: Literal["gsa"] = "gsa"
    """Which kind of policy this is; every kind has settings of its own."""
    one_sided: bool = False
    """Whether the last layer ends in SiLU, as in the released code. Its mean force is then never below -0.27."""


class GsaPolicy(IndependentPolicy):
    decides_alone = True

    force: ChannelNetwork
    width: ChannelNetwork
    space: Space = eqx.field(static=True)
    goal: Goal = eqx.field(static=True)
    radius: float = eqx.field(static=True)
    one_sided: bool = eqx.field(static=True)

    def answers(self, views: AgentView) -> Distribution:
        def one(view: AgentView, near: Neighbourhood) -> Distribution:
            force = self.last(self.force.about_all(near.heard, near.present))
            told = jnp.concatenate([near.heard, jnp.broadcast_to(force, (len(near.heard), len(force)))], axis=1)
            return answer_with(self.space, view, force, self.last(self.width.about_all(told, near.present)))

        return jax.vmap(one)(views, neighbourhoods(views, self.space, self.goal, self.radius))

    def last(self, answer: Array) -> Array:
        return jax.nn.silu(answer) if self.one_sided else answer


def build_gsa(settings: GsaSettings, interface: Interface, key: PRNGKeyArray) -> GsaPolicy:
    space = space_of(interface, settings.kind)
    force_key, width_key = jax.random.split(key)
    return GsaPolicy(
        ChannelNetwork(3 * space.axes, HIDDEN, space.axes, key=force_key),
        ChannelNetwork(4 * space.axes, HIDDEN, space.axes, key=width_key),
        space,
        settings.goal,
        settings.radius,
        settings.one_sided,
    )
