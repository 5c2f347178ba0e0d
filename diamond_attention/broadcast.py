"""The broadcast of ranks as it may be in the field: numbers lost, late, of few bits, or claimed rather than drawn.

An agent always knows its own number. What it hears of its peers' is altered for each receiver on its own, so two
agents may hear different things of a third. Nothing but `view.ranks` changes: it holds a number for everybody still,
whoever reads it, and however a policy uses it.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, PRNGKeyArray

from diamond_attention.actions import Actions
from diamond_attention.policies.contract import Acted, IndependentPolicy, Memory, Policy
from diamond_attention.ranges import Between
from diamond_attention.ranks import draw_ranks
from diamond_attention.view import AgentView, as_each_viewer_lists
from diamond_attention.worlds.contract import LARGEST_TEAM

DRAWN_BITS = 23
"""Random bits of a number as `draw_ranks` draws it."""
LOWEST, CLAIMED, HIGHEST = -1.0, 1.0, 2.0
"""Numbers nobody draws. A claim is above all that are drawn."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("lost", "late", "bits", "always_first"),  # values, so that one program serves all of them
    meta_fields=("unheard",),
)
@dataclass(frozen=True)
class Broadcast:
    """What is wrong with the broadcast while a trained policy plays; by default nothing."""

    lost: Annotated[float, Between(0, 1)] = 0.0
    """Share of the numbers that never arrive, drawn anew for each receiver, peer and step."""
    late: Annotated[float, Between(0, 1)] = 0.0
    """Share of the numbers that arrive a step late, drawn likewise. Until then a receiver has the number which that
    peer sent the step before; at the first step it has none."""
    bits: Annotated[int, Between(1, DRAWN_BITS)] = DRAWN_BITS
    """Random bits of a number. Two agents that draw the same one do the same."""
    always_first: Annotated[int, Between(0, LARGEST_TEAM)] = 0
    """How many agents claim a number above all others, at every step."""
    unheard: Literal["guessed", "lowest", "highest"] = "guessed"
    """What a receiver takes for a number that it has not heard: one it draws itself, or one below or above all."""

    def __str__(self) -> str:
        """What differs from a perfect one, as rows of results say it: "lost=0.5 bits=4". Nothing: it is perfect."""
        usual = Broadcast()
        if dataclasses.replace(self, unheard=usual.unheard) == usual:
            return ""
        names = (field.name for field in dataclasses.fields(self))
        told = ((name, getattr(self, name)) for name in names if getattr(self, name) != getattr(usual, name))
        return " ".join(f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in told)


def faults_named(broadcast: str) -> dict[str, str]:
    """What `str` says of a broadcast, taken apart.

    >>> faults_named("lost=0.5 unheard=lowest")
    {'lost': '0.5', 'unheard': 'lowest'}
    """
    return dict(word.split("=") for word in broadcast.split())


def faults_in_order(broadcast: str) -> list[tuple[str, bool, float, str]]:
    """For sorting what `str` says: a perfect one first, then each fault from little to much.

    >>> sorted(["bits=12", "", "bits=4"], key=faults_in_order)
    ['', 'bits=4', 'bits=12']
    """
    parts = ((name, value, value.replace(".", "", 1).isdigit()) for name, value in faults_named(broadcast).items())
    return [(name, number, float(value) if number else 0.0, value) for name, value, number in parts]


class Remembered(NamedTuple):
    """From the step before."""

    own: Memory  # the policy's
    numbers: Float32[Array, "viewer agent"]
    spoken: Bool[Array, " viewer"]  # whether there was a step before


class Listening(Policy):
    """A team that hears an imperfect broadcast. In all else it is the team of `policy`."""

    policy: Policy
    broadcast: Broadcast

    def draw(self, views: AgentView, key: PRNGKeyArray) -> AgentView:
        return views._replace(noise=key)  # all that is random in hearing, and in what the policy draws having heard

    def first_memory(self, agents: int) -> Remembered:
        return Remembered(self.policy.first_memory(agents), jnp.zeros((agents, agents)), jnp.zeros(agents, bool))

    def listen(self, views: AgentView, memory: Remembered) -> AgentView:
        """The views of the policy: with the numbers that were heard."""
        keys = jax.random.split(views.noise, 1 + len(views.ranks))
        numbers = spoken(self.broadcast, views.ranks)
        heard = jax.vmap(partial(hear, self.broadcast))(numbers, memory.numbers, memory.spoken, keys[1:])
        return self.policy.draw(views._replace(ranks=heard, noise=None), keys[0])

    def act(self, views: AgentView, memory: Remembered, key: PRNGKeyArray, greedy: bool) -> Acted:
        acted = act_apart(self.policy, self.listen(views, memory), memory.own, key, greedy)
        said = Remembered(acted.memory, spoken(self.broadcast, views.ranks), jnp.ones_like(memory.spoken))
        return acted._replace(memory=said)

    def ask_again(self, views: AgentView, memory: Remembered, actions: Actions) -> tuple[Array, Array]:
        return self.policy.ask_again(self.listen(views, memory), memory.own, actions)


def act_apart(policy: Policy, views: AgentView, memory: Memory, key: PRNGKeyArray, greedy: bool) -> Acted:
    """As `act`, but nobody's choice rests on what another one has heard, if the policy can decide on one view."""
    if isinstance(policy, IndependentPolicy) or not policy.decides_alone:
        return policy.act(views, memory, key, greedy)

    def alone(view: AgentView, memory: Memory, key: PRNGKeyArray) -> Acted:
        own_view, own_memory = jax.tree.map(lambda x: x[None], (view, memory))
        acted = policy.act(own_view, own_memory, key, greedy)
        return jax.tree.map(lambda x: x[0], acted)

    return jax.vmap(alone)(views, memory, jax.random.split(key, len(views.ranks)))


def spoken(broadcast: Broadcast, ranks: Float32[Array, "viewer agent"]) -> Float32[Array, "viewer agent"]:
    """What agents say, and know of themselves: numbers of so many bits, and claims."""
    claims = as_each_viewer_lists(jnp.arange(len(ranks)) < broadcast.always_first)
    return jnp.where(claims, CLAIMED, of_few_bits(broadcast, ranks))


def of_few_bits(broadcast: Broadcast, ranks: Float32[Array, "*any"]) -> Float32[Array, "*any"]:
    levels = 2.0**broadcast.bits
    return jnp.floor(ranks * levels) / levels


def hear(
    broadcast: Broadcast,
    numbers: Float32[Array, " agent"],
    before: Float32[Array, " agent"],
    was_before: Bool[Array, ""],
    key: PRNGKeyArray,
) -> Float32[Array, " agent"]:
    """What one agent (row 0) makes of everybody's numbers, and of those of the step before if there was one."""
    lost_key, late_key, guess_key = jax.random.split(key, 3)
    lost = jax.random.bernoulli(lost_key, broadcast.lost, numbers.shape)
    late = jax.random.bernoulli(late_key, broadcast.late, numbers.shape)
    guesses = of_few_bits(broadcast, draw_ranks(guess_key, len(numbers)))
    instead: Any = {"guessed": guesses, "lowest": LOWEST, "highest": HIGHEST}[broadcast.unheard]
    heard = jnp.where(late, before, numbers)
    heard = jnp.where(lost | (late & ~was_before), instead, heard)
    return heard.at[0].set(numbers[0])
