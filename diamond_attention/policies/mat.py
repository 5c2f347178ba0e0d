"""Multi-Agent Transformer (Wen et al. 2022): an encoder over agents, a decoder that decides for one after the other.

Acting is in sequence: agent i is told what agents 1 … i−1 chose, in the order of their indices, and a team of N needs
N passes of the decoder by somebody who sees every observation. An update asks about all of them in one pass with the
actions that were taken (teacher forcing). No weight depends on N; the observation does.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.actions import Actions, Continuous
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.either import Distribution
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.errors import UserError
from diamond_attention.initialise import orthogonal_linear
from diamond_attention.policies.contract import Acted, Memory, Policy
from diamond_attention.policies.flat import allowed_actions, number_of_outputs, observation_of, observation_size
from diamond_attention.policies.kind import Interface
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView

BEFORE_GELU, ELSEWHERE = 2**0.5, 0.01
"""Scales of orthogonal initialisation, as published."""


@dataclass(frozen=True)
class MatSettings:
    """Multi-Agent Transformer: agents decide one after the other; for one team size."""

    kind: Literal["mat"] = "mat"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 64
    """Features of every token. More: more capacity; time grows with its square."""
    blocks: Annotated[int, Between(1, 64)] = 1
    """Of the encoder, and as many of the decoder."""
    heads: Annotated[int, Between(1, 64)] = 1
    """Of every attention; must divide the width."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")
        if self.width % self.heads:
            raise UserError(f"policy.heads is {self.heads}, which does not divide policy.width {self.width}.")


class SelfAttention(eqx.Module):
    """Scaled dot products of queries and keys, with an output layer. A token sees those that `seen` allows."""

    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    out: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        self.query, self.key, self.value, self.out = (
            orthogonal_linear(width, width, scale=ELSEWHERE, key=own) for own in jax.random.split(key, 4)
        )
        self.heads = heads

    def __call__(
        self, asking: Float[Array, "n width"], asked: Float[Array, "n width"], seen: Bool[Array, "n n"]
    ) -> Float[Array, "n width"]:
        def split(layer: eqx.nn.Linear, tokens: Array) -> Array:
            return jax.vmap(layer)(tokens).reshape(len(tokens), self.heads, -1).transpose(1, 0, 2)

        queries, keys, values = split(self.query, asking), split(self.key, asked), split(self.value, asked)
        # Sums of products instead of matrix products: a GPU's library takes far longer for a million tiny matrices.
        scores = jnp.sum(queries[:, :, None] * keys[:, None], axis=-1) / jnp.sqrt(keys.shape[-1])
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        mixed = jnp.sum(weights[..., None] * values[:, None], axis=2)
        return jax.vmap(self.out)(mixed.transpose(1, 0, 2).reshape(asking.shape))


class FeedForward(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = orthogonal_linear(width, width, scale=BEFORE_GELU, key=first_key)
        self.second = orthogonal_linear(width, width, scale=ELSEWHERE, key=second_key)

    def __call__(self, token: Float[Array, " width"]) -> Float[Array, " width"]:
        return self.second(gelu(self.first(token)))


class EncoderBlock(eqx.Module):
    attention: SelfAttention
    forward: FeedForward
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        attention_key, forward_key = jax.random.split(key)
        self.attention = SelfAttention(width, heads, key=attention_key)
        self.forward = FeedForward(width, key=forward_key)
        self.norms = (eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width))

    def __call__(self, x: Float[Array, "n width"], seen: Bool[Array, "n n"]) -> Float[Array, "n width"]:
        x = jax.vmap(self.norms[0])(x + self.attention(x, x, seen))
        return jax.vmap(self.norms[1])(x + jax.vmap(self.forward)(x))


class DecoderBlock(eqx.Module):
    """Both attentions look only at those before; the second asks with the encoder's tokens, and adds to those."""

    own: SelfAttention
    of_encoded: SelfAttention
    forward: FeedForward
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm, eqx.nn.LayerNorm]

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        own_key, encoded_key, forward_key = jax.random.split(key, 3)
        self.own = SelfAttention(width, heads, key=own_key)
        self.of_encoded = SelfAttention(width, heads, key=encoded_key)
        self.forward = FeedForward(width, key=forward_key)
        self.norms = (eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width))

    def __call__(self, y: Array, encoded: Array, before: Bool[Array, "n n"]) -> Float[Array, "n width"]:
        y = jax.vmap(self.norms[0])(y + self.own(y, y, before))
        y = jax.vmap(self.norms[1])(encoded + self.of_encoded(encoded, y, before))
        return jax.vmap(self.norms[2])(y + jax.vmap(self.forward)(y))


class TwoLayers(eqx.Module):
    """What ends the encoder (values) and the decoder (logits or means)."""

    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    second: eqx.nn.Linear

    def __init__(self, width: int, out: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = orthogonal_linear(width, width, scale=BEFORE_GELU, key=first_key)
        self.norm = eqx.nn.LayerNorm(width)
        self.second = orthogonal_linear(width, out, scale=ELSEWHERE, key=second_key)

    def __call__(self, token: Float[Array, " width"]) -> Float[Array, " out"]:
        return self.second(self.norm(gelu(self.first(token))))


class MatPolicy(Policy):
    observed: eqx.nn.LayerNorm
    embed: eqx.nn.Linear
    embed_norm: eqx.nn.LayerNorm
    encoder: tuple[EncoderBlock, ...]
    embed_action: eqx.nn.Linear
    action_norm: eqx.nn.LayerNorm
    decoder: tuple[DecoderBlock, ...]
    head: TwoLayers
    log_scale: Float[Array, " component"] | None  # of a continuous action
    sees_peers: bool = eqx.field(static=True)

    def __init__(
        self,
        observation: int,
        answers: int,
        continuous: bool,
        *,
        width: int = 64,
        blocks: int = 1,
        heads: int = 1,
        sees_peers: bool = True,
        key: PRNGKeyArray,
    ):
        embed_key, action_key, head_key, *block_keys = jax.random.split(key, 3 + 2 * blocks)
        self.observed, self.embed_norm = eqx.nn.LayerNorm(observation), eqx.nn.LayerNorm(width)
        self.embed = orthogonal_linear(observation, width, scale=BEFORE_GELU, key=embed_key)
        self.encoder = tuple(EncoderBlock(width, heads, key=own) for own in block_keys[:blocks])
        # A choice is one number of many, with one more for "nobody has decided yet"; it needs no bias then.
        shown = answers if continuous else answers + 1
        self.embed_action = orthogonal_linear(shown, width, scale=BEFORE_GELU, key=action_key)
        if not continuous:
            self.embed_action = eqx.tree_at(lambda layer: layer.bias, self.embed_action, None)
        self.action_norm = eqx.nn.LayerNorm(width)
        self.decoder = tuple(DecoderBlock(width, heads, key=own) for own in block_keys[blocks:])
        self.head = TwoLayers(width, answers, key=head_key)
        self.log_scale = jnp.ones(answers) if continuous else None
        self.sees_peers = sees_peers

    # --- Encoding ---------------------------------------------------------------------------------

    def encode(self, views: AgentView) -> Float[Array, "agent width"]:
        """One token for each agent, having seen all that are there."""
        observations = jax.vmap(lambda view: observation_of(view, self.sees_peers))(views)
        tokens = jax.vmap(lambda o: self.embed_norm(gelu(self.embed(self.observed(o)))))(observations)
        there = views.agent_present[:, 0]
        seen = there[None, :] | jnp.eye(len(there), dtype=bool)
        for block in self.encoder:
            tokens = block(tokens, seen)
        return tokens

    # --- Deciding ---------------------------------------------------------------------------------

    def answers(self, encoded: Array, actions: Actions, views: AgentView) -> Distribution:
        """Every agent's distribution, given what those before it chose: entry i depends on actions 0 … i−1 only."""
        number = len(encoded)
        if self.log_scale is None:
            size = self.head.second.weight.shape[0]
            chosen = jnp.pad(jax.nn.one_hot(actions, size), ((0, 0), (1, 0)))
            first = jnp.zeros(size + 1).at[0].set(1.0)
        else:
            chosen, first = actions, jnp.zeros(len(self.log_scale))
        there = views.agent_present[:, 0]
        shifted = jnp.concatenate([first[None], jnp.where(there[:, None], chosen, 0.0)[:-1]])
        y = jax.vmap(lambda token: self.action_norm(gelu(self.embed_action(token))))(shifted)
        before = jnp.tril(jnp.ones((number, number), bool))
        # An agent that is gone has decided nothing: nobody looks at the place where its choice would be told.
        told = jnp.concatenate([jnp.ones(1, bool), there[:-1]])
        before = before & (told[None, :] | jnp.eye(number, dtype=bool))
        for block in self.decoder:
            y = block(y, encoded, before)
        answer = jax.vmap(self.head)(y)
        if self.log_scale is not None:
            scale = jnp.log(0.5 * jax.nn.sigmoid(self.log_scale))
            return Gaussian(answer, jnp.broadcast_to(scale, answer.shape))
        return Categorical(jnp.where(jax.vmap(allowed_actions)(views), answer, -jnp.inf))

    def act(self, views: AgentView, memory: Memory, key: PRNGKeyArray, greedy: bool) -> Acted:
        encoded, number = self.encode(views), len(views.ranks)
        none_yet = (
            jnp.zeros((number, len(self.log_scale))) if self.log_scale is not None else jnp.zeros(number, jnp.int32)
        )

        def one_turn(actions: Array, turn: tuple[Array, PRNGKeyArray]) -> tuple[Array, Array]:
            agent, own_key = turn
            own = jax.tree.map(lambda x: x[agent], self.answers(encoded, actions, views))
            action = own.mode() if greedy else own.sample(own_key)
            return actions.at[agent].set(action), own.log_probability(action)

        turns = (jnp.arange(number), jax.random.split(key, number))
        actions, log_probability = jax.lax.scan(one_turn, none_yet, turns)
        return Acted(actions, log_probability, memory)

    def ask_again(self, views: AgentView, memory: Memory, actions: Actions) -> tuple[Array, Array]:
        answers = self.answers(self.encode(views), actions, views)
        return (
            jax.vmap(lambda own, action: own.log_probability(action))(answers, actions),
            jax.vmap(lambda own: own.entropy())(answers),
        )


def gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def build_mat(settings: MatSettings, interface: Interface, key: PRNGKeyArray) -> MatPolicy:
    return MatPolicy(
        observation_size(interface),
        number_of_outputs(interface.action_kind, interface.max_tasks),
        isinstance(interface.action_kind, Continuous),
        width=settings.width,
        blocks=settings.blocks,
        heads=settings.heads,
        sees_peers=interface.sees_peers,
        key=key,
    )
