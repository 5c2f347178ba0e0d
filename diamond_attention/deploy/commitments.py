"""Commitments: an agent plays the turns of those ranked above it in its own head, then its own.

policies/commitments.py, which trains it, says why. Here it is always one agent that decides on its own view.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Categorical
from diamond_attention.deploy.interface import Decided, Deployed, Interface, allowed_actions, choices, whole
from diamond_attention.deploy.layers import (
    Take,
    normalised,
    numbered,
    repeated,
    silu,
    softmax_or_zero,
    take_linear,
    take_projection,
)
from diamond_attention.deploy.threefry import noise_of_ranks
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError

CLAIM_UNIT = 30.0
SMALLEST_DEMAND = 1e-6


class Table(NamedTuple):
    """What every agent makes of every task."""

    scores: Any
    """[agent, task]; −∞ of what is not there or not allowed."""
    fixed: Any
    """[agent, fixed action]: of what concerns no task."""
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
        self.embed = take_projection(take, "embed", features, width)
        self.score = take_linear(take, "score", width, 1)
        self.claim, self.step, self.sharpness = (float(take(name)) for name in ("claim", "step", "sharpness"))
        self.fixed = take("fixed", self.action.number)

    # --- What there is to decide on ---------------------------------------------------------------

    def table(self, view: View) -> Table:
        """How everybody sees the tasks, as the viewer works it out."""
        (agent_places, task_places), (agent_common, task_common) = self.places, self.common
        # The first layer of a pair's features, taken apart: what an agent adds, what a task adds, what both do.
        weight, bias = self.embed.first
        of_agents, of_tasks = len(agent_common), len(agent_common) + len(task_common)
        hidden = bias + view.agents[:, agent_common] @ weight[:of_agents]
        hidden = hidden[:, None] + (view.tasks[:, task_common] @ weight[of_agents:of_tasks])[None]
        if agent_places:
            way = view.tasks[None, :, task_places] - view.agents[:, None, agent_places]
            distance = np.sqrt(np.add.reduce(way * way, axis=-1, keepdims=True))
            hidden = hidden + distance * weight[of_tasks]
        scores = self.score(normalised(self.embed.second(silu(hidden))))[:, :, 0]
        allowed, some = allowed_actions(view, self.action), self.action.number
        fixed = choices(self.fixed, allowed[:some])
        fixed = np.where(view.agent_present[:, None], fixed, fixed)  # one row for each agent
        return Table(choices(scores, allowed[some:]), fixed, view.agent_present, view.ranks)

    # --- A turn -----------------------------------------------------------------------------------

    def prices(self, scores: Any, fixed: Any, bidding: Any, prices: Any, rounds: int) -> Any:
        """Every bidder spreads one bid over the options it likes; a task with more than one bid becomes dearer."""
        bidders, some, step = bidding.astype(np.float32), self.action.number, float(np.exp(self.step))

        def one_round(_: Any, prices: Any) -> tuple[Any]:
            options = scores - prices if not some else np.concatenate([fixed, scores - prices], axis=1)
            demand = (bidders @ softmax_or_zero(options))[some:]
            return (np.maximum(prices + step * np.log(np.maximum(demand, SMALLEST_DEMAND)), 0.0),)

        return repeated(rounds, one_round, (prices,))[0]

    def turn(self, table: Table, first_prices: Any, chosen: Any, agent: Any) -> Any:
        """The logits of one agent, given what those ranked above it have chosen."""
        higher = table.there & (table.ranks > table.ranks[agent])
        claimed = np.logical_or.reduce(chosen & higher[:, None], axis=0)
        scores = table.scores + np.where(claimed, np.float32(CLAIM_UNIT * self.claim), np.float32(0))
        left = table.there & ~higher
        prices = self.prices(scores, table.fixed, left, first_prices, self.rounds_each_turn)
        return np.concatenate([table.fixed[agent], scores[agent] - prices]) * float(np.exp(self.sharpness))

    def decide(self, view: View, number: Any = None, noise: Any = None) -> Decided:
        """`noise`, [agent, option], is that of everybody, the viewer's first; without it play is greedy."""
        table, some = self.table(view), self.action.number
        free = np.where(view.task_present, np.float32(0), np.float32(0))
        first_prices = self.prices(table.scores, table.fixed, table.there, free, self.rounds)
        agents, tasks = numbered(table.ranks), numbered(view.task_present)
        higher = table.there & (table.ranks > table.ranks[0])
        order = np.argsort(np.where(higher, -table.ranks, np.float32(np.inf)), kind="stable")

        def one_turn(turn: Any, chosen: Any) -> tuple[Any]:
            agent = order[turn]
            logits = self.turn(table, first_prices, chosen, agent)
            action = Categorical(logits).act(np.float32(0) if noise is None else noise[agent])
            own = (agents == agent)[:, None] & (tasks == action - some)[None, :]
            return (chosen | own,)

        nothing = table.there[:, None] & (tasks < 0)[None, :]
        before = np.add.reduce(higher.astype(np.int64))
        (chosen,) = repeated(before, one_turn, (nothing,))
        answer = Categorical(self.turn(table, first_prices, chosen, 0))
        return Decided(answer.act(np.float32(0) if noise is None else noise[0]), answer)

    def noise_axes(self, agents: Any, options: Any) -> list[Any]:
        return [agents, options]  # an agent replays the choices of its peers, with their noise

    def sample(self, view: View, number: Any, generator: np.random.Generator) -> Decided:
        """Nothing is drawn: what is random follows from the numbers that were broadcast."""
        return self.decide(view, number, noise_of_ranks(view.ranks, self.action.options(len(view.tasks))))
