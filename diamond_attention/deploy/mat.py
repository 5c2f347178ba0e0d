"""The Multi-Agent Transformer: one who sees everybody's view decides for one agent after the other."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Categorical, Gaussian
from diamond_attention.deploy.flat import Flat, observation
from diamond_attention.deploy.interface import Decided, Interface, allowed_actions, choices, whole
from diamond_attention.deploy.layers import (
    HIDDEN,
    Linear,
    Norm,
    Take,
    gelu,
    numbered,
    repeated,
    sigmoid,
    softmax,
    take_linear,
    take_norm,
)
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError


class SelfAttention(NamedTuple):
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int

    def __call__(self, asking: Any, asked: Any, seen: Any) -> Any:
        queries, keys, values = self.query(asking), self.key(asked), self.value(asked)
        size, mixed = queries.shape[-1] // self.heads, []
        for head in range(self.heads):
            own = slice(head * size, (head + 1) * size)
            scores = queries[:, own] @ keys[:, own].T * (1.0 / math.sqrt(size))
            mixed.append(softmax(np.where(seen, scores, np.float32(HIDDEN))) @ values[:, own])
        return self.out(np.concatenate(mixed, axis=-1))


class Forward(NamedTuple):
    first: Linear
    second: Linear

    def __call__(self, x: Any) -> Any:
        return self.second(gelu(self.first(x)))


class Encoder(NamedTuple):
    attention: SelfAttention
    forward: Forward
    norms: list[Norm]

    def __call__(self, x: Any, seen: Any) -> Any:
        x = self.norms[0](x + self.attention(x, x, seen))
        return self.norms[1](x + self.forward(x))


class Decoder(NamedTuple):
    """Both attentions look only at those before; the second asks with the encoder's tokens, and adds to those."""

    own: SelfAttention
    of_encoded: SelfAttention
    forward: Forward
    norms: list[Norm]

    def __call__(self, y: Any, encoded: Any, before: Any) -> Any:
        y = self.norms[0](y + self.own(y, y, before))
        y = self.norms[1](encoded + self.of_encoded(encoded, y, before))
        return self.norms[2](y + self.forward(y))


class Mat(Flat):
    together = True

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(interface)
        width, blocks, heads = (whole(name, settings.get(name)) for name in ("width", "blocks", "heads"))
        if not heads or width % heads:
            raise UserError(f"its setting heads is {heads}, which does not divide its width {width}.")
        self.continuous = self.action.kind == "continuous"

        def linear(name: str, into: int = width, out: int = width) -> Linear:
            return take_linear(take, name, into, out)

        def attention(name: str) -> SelfAttention:
            query, key, value, out = (linear(f"{name}.{part}") for part in ("query", "key", "value", "out"))
            return SelfAttention(query, key, value, out, heads)

        def forward(name: str) -> Forward:
            return Forward(linear(f"{name}.first"), linear(f"{name}.second"))

        def norms(name: str, number: int) -> list[Norm]:
            return [take_norm(take, f"{name}.norms.{i}", width) for i in range(number)]

        self.observed = take_norm(take, "observed", self.inputs)
        self.embed, self.embed_norm = linear("embed", self.inputs), take_norm(take, "embed_norm", width)
        self.encoder, self.decoder = [], []
        for i in range(blocks):
            name = f"encoder.{i}"
            self.encoder.append(Encoder(attention(f"{name}.attention"), forward(f"{name}.forward"), norms(name, 2)))
        # A choice is one number of many, with one more for "nobody has decided yet"; it has no bias then.
        if self.continuous:
            self.embed_action = linear("embed_action", self.outputs)
            self.log_scale = take("log_scale", self.outputs)
        else:
            weight = take("embed_action.weight", width, self.outputs + 1)
            self.embed_action = Linear(np.ascontiguousarray(weight.T), np.zeros(width, np.float32))
        self.action_norm = take_norm(take, "action_norm", width)
        for i in range(blocks):
            name = f"decoder.{i}"
            own, of_encoded = attention(f"{name}.own"), attention(f"{name}.of_encoded")
            self.decoder.append(Decoder(own, of_encoded, forward(f"{name}.forward"), norms(name, 3)))
        self.head_first, self.head_norm = linear("head.first"), take_norm(take, "head.norm", width)
        self.head_second = linear("head.second", out=self.outputs)

    def decide_team(self, views: View, noise: Any = None) -> Decided:
        there = views.agent_present[:, 0]
        index, allowed = numbered(there), allowed_actions(views, self.action)
        itself = index[:, None] == index[None, :]
        tokens = self.embed_norm(gelu(self.embed(self.observed(observation(views, self.sees_peers)))))
        for encoder in self.encoder:
            tokens = encoder(tokens, there[None, :] | itself)
        # An agent that is gone has decided nothing: nobody looks at the place where its choice would be told.
        told = np.concatenate([np.ones(1, bool), there[:-1]])
        before = (index[:, None] >= index[None, :]) & (told[None, :] | itself)
        first = np.zeros((1, self.outputs + (not self.continuous)), np.float32)
        first[0, 0] = not self.continuous
        noise = np.float32(0) if noise is None else noise

        def one_turn(turn: Any, shown: Any, _: Any) -> tuple[Any, Any]:
            """What was shown so far, with the action of the agent whose turn it is; and everybody's answer."""
            y = self.action_norm(gelu(self.embed_action(np.concatenate([first, shown[:-1]]))))
            for decoder in self.decoder:
                y = decoder(y, tokens, before)
            answer = self.head_second(self.head_norm(gelu(self.head_first(y))))
            if self.continuous:
                chosen = self.gaussian(answer).unclipped(noise)
            else:
                answer = choices(answer, allowed)
                actions = Categorical(answer).act(noise)[:, None]
                chosen = (np.arange(-1, self.outputs) == actions).astype(np.float32)
            own_turn = (index == turn) & there
            return np.where(own_turn[:, None], chosen, shown), answer

        nothing = np.where(there[:, None], np.zeros_like(first), np.zeros_like(first))
        none_yet = np.where(there[:, None], np.zeros(self.outputs, np.float32), np.zeros(self.outputs, np.float32))
        _, answer = repeated(index[-1] + 1, one_turn, (nothing, none_yet))
        answers = self.gaussian(answer) if self.continuous else Categorical(answer)
        return Decided(answers.act(noise), answers)

    def gaussian(self, mean: Any) -> Gaussian:
        return Gaussian(mean, np.log(0.5 * sigmoid(self.log_scale)))

    def team_noise(self, views: View, generator: np.random.Generator) -> Any:
        shape = np.zeros((len(views.agents), self.outputs), np.float32)
        return (Gaussian(shape, shape) if self.continuous else Categorical(shape)).noise(generator)
