"""What GSA and pH-MARL are made of: what neighbours tell each other, and attention over channels.

An agent's state is its place, its velocity and its goal relative to it. The goal is told from outside: on Simple
Spread the published policies get the landmark with the agent's own number, which settles who goes where before
anybody decides. With `nearest` the goal is the task nearest to the agent, and nobody needs a number.

XOR has no places. There a player stands at the origin of a space with one axis for each action, at rest and without a
goal, and what would be its force along an axis is the logit of that action. How the paper let these two play XOR is
not published; under any such mapping equal players answer equally.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from diamond_attention.actions import ChooseTask, Continuous
from diamond_attention.attention import small_product
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.squashed import Squashed
from diamond_attention.errors import UserError
from diamond_attention.policies.flat import allowed_actions
from diamond_attention.policies.kind import Interface
from diamond_attention.policies.soft import within
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView, as_each_viewer_lists

Goal = Literal["own", "nearest"]


@dataclass(frozen=True)
class NeighbourSettings:
    """What both kinds let one choose."""

    goal: Goal = "own"
    """What an agent is told to make for: the task with its own number, as published for Simple Spread, or the nearest
    one, which needs no number."""
    radius: Annotated[float, Between(0, 1_000_000, low_left_out=True)] = 0.45
    """Neighbours further away than this are not heard."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")
        if self.goal not in get_args(Goal):
            raise UserError(f"policy.goal is {self.goal!r}; it must be one of {', '.join(get_args(Goal))}.")


class Space(NamedTuple):
    """Where agents are: how many axes, and whether they are in places at all."""

    axes: int
    real: bool


def space_of(interface: Interface, kind: str) -> Space:
    if interface.has_places and isinstance(interface.action_kind, Continuous):
        return Space(interface.action_kind.size, real=True)
    if isinstance(interface.action_kind, ChooseTask) and not interface.sees_peers:
        return Space(interface.max_tasks, real=False)
    raise UserError(
        f"policy.kind {kind} needs agents with places and velocities, which this world does not show; use it on "
        "spread, food or xor."
    )


class Neighbourhood(NamedTuple):
    """What an agent hears, itself first; leading axis in a team: viewer."""

    own: Float[Array, " state"]
    heard: Float[Array, "agent state"]  # weighted: less the further away, nothing from beyond the radius
    present: Bool[Array, " agent"]


def neighbourhoods(views: AgentView, space: Space, goal: Goal, radius: float) -> Neighbourhood:
    """Of every viewer. Only here does an agent have a number: its place in the team's list."""
    viewers, agents = views.agent_present.shape
    numbers = as_each_viewer_lists(jnp.arange(agents))[:viewers]

    def one(view: AgentView, numbers: Int[Array, " agent"]) -> Neighbourhood:
        if not space.real:
            nothing = jnp.zeros((agents, 3 * space.axes))
            return Neighbourhood(nothing[0], nothing, view.agent_present)
        # A view has the viewer in the world's frame, and everything else relative to it.
        own, peers = view.agents[0, : 2 * space.axes], view.agents[1:, : 2 * space.axes]
        states = jnp.concatenate([own[None], own + peers])
        places = states[:, : space.axes]
        goals = (places[0] + view.tasks[:, : space.axes])[None] - places[:, None]  # [agent, task, axis]
        if goal == "own":
            chosen = numbers % jnp.maximum(jnp.sum(view.task_present), 1)
        else:
            chosen = jnp.argmin(jnp.where(view.task_present, jnp.sum(goals**2, axis=-1), jnp.inf), axis=1)
        states = jnp.concatenate([states, goals[jnp.arange(agents), chosen]], axis=1)
        apart = jnp.sqrt(jnp.sum((places - places[0]) ** 2, axis=1))
        weights = jnp.where(apart <= radius, jax.nn.sigmoid(-2.0 * (apart - radius)), 0.0)
        return Neighbourhood(states[0], weights[:, None] * states, view.agent_present)

    return jax.vmap(one)(views, numbers)


# --- Networks -------------------------------------------------------------------------------------


class ChannelAttention(eqx.Module):
    """Attention of channels to channels, summed over agents and unscaled, as published: so it takes any number."""

    weights: Float[Array, "3 width width"]  # of queries, keys and values
    biases: Float[Array, "3 width 1"]

    def __init__(self, width: int, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        self.weights = jax.random.normal(weight_key, (3, width, width))
        self.biases = jax.random.normal(bias_key, (3, width, 1))

    def __call__(self, tokens: Float[Array, "agent width"], present: Bool[Array, " agent"]) -> Array:
        channels = jax.nn.silu(self.weights @ tokens.T + self.biases)
        queries, keys, values = jnp.where(present, channels, 0.0)
        return jax.nn.silu(small_product(jax.nn.softmax(small_product(queries, keys.T)), values).T)


class ChannelNetwork(eqx.Module):
    """Two such layers, the second half as wide, between linear ones."""

    embed: eqx.nn.Linear
    first: ChannelAttention
    narrow: eqx.nn.Linear
    second: ChannelAttention
    out: eqx.nn.Linear

    def __init__(self, features: int, hidden: int, outputs: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 5)
        self.embed = eqx.nn.Linear(features, 2 * hidden, key=keys[0])
        self.first = ChannelAttention(2 * hidden, key=keys[1])
        self.narrow = eqx.nn.Linear(2 * hidden, hidden, key=keys[2])
        self.second = ChannelAttention(hidden, key=keys[3])
        self.out = eqx.nn.Linear(hidden, outputs, key=keys[4])

    def tokens(self, heard: Float[Array, "agent state"], present: Bool[Array, " agent"]) -> Float[Array, "agent h"]:
        tokens = self.first(jax.nn.silu(jax.vmap(self.embed)(heard)), present)
        return self.second(jax.nn.silu(jax.vmap(self.narrow)(tokens)), present)

    def about_each(self, heard: Float[Array, "agent state"], present: Bool[Array, " agent"]) -> Array:
        """An answer about every agent that is there; zeros about the others."""
        answers = jax.nn.silu(jax.vmap(self.out)(self.tokens(heard, present)))
        return jnp.where(present[:, None], answers, 0.0)

    def about_all(self, heard: Float[Array, "agent state"], present: Bool[Array, " agent"]) -> Array:
        """One answer, from the mean over those that are there; not yet through the last SiLU."""
        tokens = jnp.where(present[:, None], self.tokens(heard, present), 0.0)
        return self.out(jnp.sum(tokens, axis=0) / jnp.maximum(jnp.sum(present), 1))


def answer_with(
    space: Space, view: AgentView, force: Float[Array, " axis"], width: Float[Array, " axis"]
) -> Distribution:
    """Forces squashed into the box; in XOR, logits."""
    if space.real:
        return Squashed(force, within(width))
    return Categorical(jnp.where(allowed_actions(view), force, -jnp.inf))
