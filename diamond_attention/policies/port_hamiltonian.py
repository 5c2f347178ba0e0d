"""pH-MARL (Sebastian et al.): forces that make the team a port-Hamiltonian system, whatever the networks say.

    ẋ = (J − R) ∇H        x = places and velocities of all agents
    u = ẋ_velocity + 0.25 ẋ_place

J is skew-symmetric and R positive semi-definite by construction. H is a sum of one energy for each agent, of its own
state alone. An agent needs two rounds of messages with its neighbours each step: states, then gradients and what each
says of the other, which R must know from both sides.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.distributions.either import Distribution
from diamond_attention.policies.contract import IndependentPolicy
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.neighbours import (
    ChannelNetwork,
    Goal,
    NeighbourSettings,
    Space,
    answer_with,
    neighbourhoods,
    space_of,
)
from diamond_attention.view import AgentView, as_each_viewer_lists

HIDDEN, WIDTH_HIDDEN = 8, 6
DRAG = 0.25
"""Of VMAS's agents, whose own physics the force makes up for."""
Blocks = Float[Array, "agent part agent part"]
"""A matrix over the parts, place and velocity, of every agent."""
Said = Float[Array, "viewer agent 16"]


@dataclass(frozen=True)
class PortHamiltonianSettings(NeighbourSettings):
    """Forces that keep the team a port-Hamiltonian system, from what neighbours tell; plays any team size."""

    kind: Literal["ph-marl"] = "ph-marl"
    """Which kind of policy this is; every kind has settings of its own."""


class PortHamiltonianPolicy(IndependentPolicy):
    pairs: ChannelNetwork  # two networks of one shape, stacked: what is lost to a neighbour, and what is exchanged
    energy: ChannelNetwork
    width: ChannelNetwork
    space: Space = eqx.field(static=True)
    goal: Goal = eqx.field(static=True)
    radius: float = eqx.field(static=True)

    def answers(self, views: AgentView) -> Distribution:
        near = neighbourhoods(views, self.space, self.goal, self.radius)
        there = near.present[:, 0]
        gradients = jax.vmap(jax.grad(self.hamiltonian))(near.own)[:, : 2 * self.space.axes]
        gradients = gradients.reshape(len(there), 2, self.space.axes)  # of place and velocity
        lost, exchange = self.said_of_neighbours(near.heard, near.present)
        dissipated = jnp.einsum("iajb,jbx->iax", dissipation_matrix(lost, near.present), gradients)
        strength = exchange_strengths(exchange)[:, None]
        exchanged = jnp.stack([strength * gradients[:, 1], -strength * gradients[:, 0]], axis=1)
        motion = exchanged - dissipated
        forces = motion[:, 1] + DRAG * motion[:, 0]

        def one(view: AgentView, heard: Array, present: Array, force: Array) -> Distribution:
            told = jnp.concatenate([heard, jnp.broadcast_to(force, (len(heard), len(force)))], axis=1)
            return answer_with(self.space, view, force, jax.nn.silu(self.width.about_all(told, present)))

        return jax.vmap(one)(views, near.heard, near.present, forces)

    def hamiltonian(self, own: Float[Array, " state"]) -> Float[Array, ""]:
        """The energy of one agent: a quadratic form in four of its network's outputs, and a potential."""
        z = self.energy.about_each(own[None], jnp.ones(1, bool))[0]
        form = jnp.sum(z[:20].reshape(2, 2, 5) ** 2, axis=-1)  # each entry a multiple of the identity
        x = z[:4].reshape(2, 2)
        return jnp.einsum("ai,ab,bi->", x, form, x) + jnp.sum(z[20:25] ** 2)

    def said_of_neighbours(self, heard: Array, present: Bool[Array, "viewer agent"]) -> tuple[Said, Said]:
        """What every viewer says of each agent, as it lists them, for R and for J."""
        return jax.vmap(lambda network: jax.vmap(network.about_each)(heard, present))(self.pairs)


def exchange_strengths(said: Said) -> Float[Array, " viewer"]:
    """J, which turns place into velocity and back without loss: one number for each agent."""
    return jnp.sum(said, axis=(1, 2))


def dissipation_matrix(said: Said, present: Bool[Array, "viewer agent"]) -> Blocks:
    """R: what every pair loses, so that a row's own entry is at least the sum of the others."""
    sums = said.reshape(*said.shape[:2], 4, 4).sum(axis=-1)
    agents = len(present)
    # As listed by the viewer, itself first -> by number.
    numbers = as_each_viewer_lists(jnp.arange(agents))
    sums = jnp.zeros_like(sums).at[jnp.arange(agents)[:, None], numbers].set(sums)
    one_way = jnp.moveaxis(sums.reshape(agents, agents, 2, 2) ** 2, 1, 2)  # [agent, part, agent, part]
    both_ways = one_way + jnp.transpose(one_way, (2, 3, 0, 1))
    there = present[:, 0]
    both_ways = jnp.where(there[:, None, None, None] & there[None, None, :, None], both_ways, 0.0)
    flat = both_ways.reshape(2 * agents, 2 * agents)
    own = jnp.diag(jnp.diag(flat))
    return (own + jnp.diag(jnp.sum(flat - own, axis=1)) - (flat - own)).reshape(both_ways.shape)


def build_port_hamiltonian(
    settings: PortHamiltonianSettings, interface: Interface, key: PRNGKeyArray
) -> PortHamiltonianPolicy:
    space, keys = space_of(interface, settings.kind), jax.random.split(key, 4)
    state = 3 * space.axes
    return PortHamiltonianPolicy(
        eqx.filter_vmap(lambda key: ChannelNetwork(state, HIDDEN, 16, key=key))(keys[:2]),
        ChannelNetwork(state, HIDDEN, 25, key=keys[2]),
        ChannelNetwork(state + space.axes, WIDTH_HIDDEN, space.axes, key=keys[3]),
        space,
        settings.goal,
        settings.radius,
    )
