"""Commitments: an agent plays the turns of those ranked above it in its own head, then its own.

policies/commitments.py, which trains it, says why. Here it is always one agent that decides on its own view.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Categorical
from diamond_attention.deploy.interface import Decided, Deployed, Interface, allowed_actions, choices, whole
from diamond_attention.deploy.layers import (
    Linear,
    Take,
    by_parts,
    numbered,
    repeated,
    take_linear,
    take_projection,
)
from diamond_attention.deploy.threefry import noise_of_ranks
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError

CLAIM_UNIT = 30.0
SMALLEST_DEMAND = 1e-6


class Ordered(NamedTuple):
    """Everybody in the order of their turns, as far as the viewer's; then all others."""

    scores: Any
    """[agent, option]"""
    there: Any
    ranks: Any


class Commitments(Deployed):
    ranks_may_be_missing = True

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        self.action = interface.action
        if self.action.kind == "continuous":
            raise UserError("its actions are continuous, and commitments choose among tasks.")
        width = whole("width", settings.get("width"))
        self.rounds, self.rounds_each_turn = (
            whole(name, settings.get(name)) for name in ("rounds", "rounds_each_turn")
        )
        sides = (interface.agent_features, interface.task_features)
        self.places, self.common = (
            [[column for column, each in enumerate(side) if each.get("frame") == frame] for side in sides]
            for frame in ("place", "common")
        )
        features = sum(map(len, self.common)) + bool(self.places[0])
        hidden, out = take_projection(take, "embed", features, width)
        score = take_linear(take, "score", width, 1)
        self.hidden = Linear(hidden.weight / 2, hidden.bias / 2)  # as silu(2 x) = x (tanh(x) + 1) wants it
        # What is normalised loses its mean first: an output layer whose outputs have none saves looking for it.
        self.out = Linear(*(each - each.mean(axis=-1, keepdims=True) for each in out))
        self.score, self.offset = score.weight[:, 0], score.bias[0]
        self.evenly = np.full(width, 1 / max(width, 1), np.float32)
        self.claim, self.step, self.sharpness = (float(take(name)) for name in ("claim", "step", "sharpness"))
        self.fixed = take("fixed", self.action.number)

    # --- What there is to decide on ---------------------------------------------------------------

    def scores(self, view: View) -> Any:
        """[agent, option]: what everybody makes of everything, as the viewer works it out; −∞ of what may not be."""
        of_tasks = by_parts(self.of_tasks, view.agents, view.tasks, len(self.score))
        allowed, some = allowed_actions(view, self.action), self.action.number
        fixed = choices(self.fixed, allowed[:some])
        fixed = np.where(view.agent_present[:, None], fixed, fixed)  # one row for each agent
        of_tasks = choices(of_tasks, allowed[some:])
        return np.concatenate([fixed, of_tasks], axis=1) if some else of_tasks

    def of_tasks(self, agents: Any, tasks: Any) -> Any:
        """[agent, task]: what these agents make of the tasks."""
        (agent_places, task_places), (agent_common, task_common) = self.places, self.common
        # The first layer of a pair's features, taken apart: what an agent adds, what a task adds, what both do.
        weight, bias = self.hidden
        one, both = len(agent_common), len(agent_common) + len(task_common)
        hidden = (bias + agents[:, agent_common] @ weight[:one])[:, None]
        hidden = hidden + (tasks[:, task_common] @ weight[one:both])[None]
        if agent_places:
            way = tasks[None, :, task_places] - agents[:, None, agent_places]
            distance = np.sqrt(np.add.reduce(way * way, axis=-1, keepdims=True))
            hidden = hidden + distance @ weight[both:]
        apart = self.out(hidden * (np.tanh(hidden) + 1.0))
        variance = (apart * apart) @ self.evenly
        return (apart @ self.score) / np.sqrt(variance + 1e-5) + self.offset

    # --- A turn -----------------------------------------------------------------------------------

    def prices(self, scores: Any, bidding: Any, prices: Any, rounds: int) -> Any:
        """Every bidder spreads one bid over the options it likes; a task with more than one bid becomes dearer.

        `prices` and what is returned are those of all options; what concerns no task costs nothing.
        """
        bidders, step = bidding.astype(np.float32), float(np.exp(self.step))
        dear = (numbered(prices) >= self.action.number).astype(np.float32)

        def one_round(_: Any, prices: Any) -> tuple[Any]:
            options = scores - prices
            peak = np.maximum.reduce(options, axis=-1, keepdims=True)
            bids = np.exp(options - np.maximum(peak, -3e38))  # of −∞ less −∞ there is no exponential
            demand = (bidders / np.maximum(np.add.reduce(bids, axis=-1), SMALLEST_DEMAND)) @ bids
            risen = prices + step * np.log(np.maximum(demand, SMALLEST_DEMAND))
            return (dear * np.maximum(risen, 0.0),)

        return repeated(rounds, one_round, (prices,))[0]

    def turn(self, ordered: Ordered, turn: Any, chosen: Any, first_prices: Any) -> Any:
        """The logits of the agent whose turn it is, given the options that those ranked above it have chosen."""
        higher = ordered.there & (ordered.ranks > ordered.ranks[turn])
        # They stand first. Below them bid who has yet to choose, so the rows that matter become fewer every turn.
        above = np.add.reduce(higher.astype(np.int64))
        options = numbered(first_prices)
        claimed = np.logical_or.reduce(np.where(higher, chosen, -1)[:, None] == options[None, :], axis=0)
        worth = np.where(options < self.action.number, np.float32(0), np.float32(CLAIM_UNIT * self.claim))
        scores = ordered.scores[above:] + np.where(claimed, worth, np.float32(0))
        prices = self.prices(scores, ordered.there[above:], first_prices, self.rounds_each_turn)
        return (scores[turn - above] - prices) * float(np.exp(self.sharpness))

    def decide(self, view: View, number: Any = None, noise: Any = None) -> Decided:
        """`noise`, [agent, option], is that of everybody, the viewer's first; without it play is greedy."""
        scores, there = self.scores(view), view.agent_present
        free = np.where(scores[0] < 0, np.float32(0), np.float32(0))
        first_prices = self.prices(scores, there, free, self.rounds)
        higher = there & (view.ranks > view.ranks[0])
        # First those before the viewer, then the viewer, which stands first among the others.
        order = np.argsort(np.where(higher, -view.ranks, np.float32(np.inf)), kind="stable")
        ordered = Ordered(scores[order], there[order], view.ranks[order])
        places = numbered(view.ranks)

        def one_turn(turn: Any, chosen: Any) -> tuple[Any]:
            logits = self.turn(ordered, turn, chosen, first_prices)
            action = Categorical(logits).act(np.float32(0) if noise is None else noise[order[turn]])
            return (np.where(places == turn, action, chosen),)

        before = np.add.reduce(higher.astype(np.int64))
        (chosen,) = repeated(before, one_turn, (places * 0 - 1,))
        answer = Categorical(self.turn(ordered, before, chosen, first_prices))
        return Decided(answer.act(np.float32(0) if noise is None else noise[0]), answer)

    def noise_axes(self, agents: Any, options: Any) -> list[Any]:
        return [agents, options]  # an agent replays the choices of its peers, with their noise

    def sample(self, view: View, number: Any, generator: np.random.Generator) -> Decided:
        """Nothing is drawn: what is random follows from the numbers that were broadcast."""
        return self.decide(view, number, noise_of_ranks(view.ranks, self.action.options(len(view.tasks))))
