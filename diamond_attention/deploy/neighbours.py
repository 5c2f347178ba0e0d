"""GSA and pH-MARL: attention over channels on what neighbours tell each other.

An agent's state is its place, its velocity and its goal relative to it. With `goal` "own" the goal is the task with
the agent's own number, so an agent must know its number. GSA decides on one view; pH-MARL on everybody's, since an
agent must be told two things by its neighbours each step, the second of which needs an answer to the first.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diamond_attention.deploy.answers import Answer, Categorical, Squashed
from diamond_attention.deploy.flat import within
from diamond_attention.deploy.interface import (
    Action,
    Decided,
    Deployed,
    Interface,
    allowed_actions,
    choices,
    one_of,
)
from diamond_attention.deploy.layers import (
    Linear,
    Take,
    numbered,
    sigmoid,
    silu,
    softmax,
    take_linear,
)
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError

GOALS = ("own", "nearest")
DRAG = 0.25
"""Of the agents whose own physics pH-MARL's force makes up for."""


class ChannelAttention(NamedTuple):
    """Attention of channels to channels, summed over agents, so that it takes any number of them."""

    weights: np.ndarray
    """[3, width, width], of queries, keys and values."""
    biases: np.ndarray
    """[3, width, 1]"""

    def __call__(self, tokens: Any, present: Any) -> Any:
        """Tokens are [agent, width], or with any number of axes before."""
        channels = silu(self.weights @ np.swapaxes(tokens, -1, -2)[..., None, :, :] + self.biases)
        channels = np.where(present[..., None, None, :], channels, np.float32(0))
        queries, keys, values = channels[..., 0, :, :], channels[..., 1, :, :], channels[..., 2, :, :]
        return np.swapaxes(silu(softmax(queries @ np.swapaxes(keys, -1, -2)) @ values), -1, -2)

    def with_slope(self, token: Any) -> tuple[Any, Any]:
        """The same for tokens that are alone, [agent, width], and how a slope of it becomes one of the token."""
        before = np.swapaxes(self.weights, -1, -2)
        raw = [token @ before[i] + self.biases[i, :, 0] for i in range(3)]
        queries, keys, values = (silu(each) for each in raw)
        weights = softmax(queries[:, :, None] * keys[:, None, :])
        mixed = np.add.reduce(weights * values[:, None, :], axis=-1)

        def back(slope: Any) -> Any:
            slope = slope * silu_slope(mixed)
            of_values = np.add.reduce(weights * slope[:, :, None], axis=1)
            of_weights = slope[:, :, None] * values[:, None, :]
            of_scores = weights * (of_weights - np.add.reduce(weights * of_weights, axis=-1, keepdims=True))
            of_queries = np.add.reduce(of_scores * keys[:, None, :], axis=2)
            of_keys = np.add.reduce(of_scores * queries[:, :, None], axis=1)
            parts = zip((of_queries, of_keys, of_values), raw, self.weights, strict=True)
            slopes = [own * silu_slope(each) @ weight for own, each, weight in parts]
            return slopes[0] + slopes[1] + slopes[2]

        return silu(mixed), back


class ChannelNetwork(NamedTuple):
    """Two such layers, the second half as wide, between linear ones."""

    embed: Linear
    first: ChannelAttention
    narrow: Linear
    second: ChannelAttention
    out: Linear

    def tokens(self, heard: Any, present: Any) -> Any:
        tokens = self.first(silu(self.embed(heard)), present)
        return self.second(silu(self.narrow(tokens)), present)

    def about_each(self, heard: Any, present: Any) -> Any:
        answers = silu(self.out(self.tokens(heard, present)))
        return np.where(present[..., None], answers, np.float32(0))

    def about_all(self, heard: Any, present: Any) -> Any:
        tokens = np.where(present[..., None], self.tokens(heard, present), np.float32(0))
        there = np.add.reduce(present.astype(np.float32), axis=-1, keepdims=True)
        return self.out(np.add.reduce(tokens, axis=-2) / np.maximum(there, 1.0))

    def with_slope(self, own: Any) -> tuple[Any, Any]:
        """`about_each` of agents that are alone, [agent, state], and how a slope of it becomes one of the state."""
        embedded = self.embed(own)
        tokens, back_first = self.first.with_slope(silu(embedded))
        narrowed = self.narrow(tokens)
        tokens, back_second = self.second.with_slope(silu(narrowed))
        last = self.out(tokens)

        def back(slope: Any) -> Any:
            slope = back_second(slope * silu_slope(last) @ self.out.weight.T)
            slope = back_first(slope * silu_slope(narrowed) @ self.narrow.weight.T)
            return slope * silu_slope(embedded) @ self.embed.weight.T

        return silu(last), back


def silu_slope(x: Any) -> Any:
    share = sigmoid(x)
    return share * (1.0 + x * (1.0 - share))


def take_network(take: Take, name: str, features: int, hidden: int, outputs: int) -> ChannelNetwork:
    def attention(part: str, width: int) -> ChannelAttention:
        weights = take(f"{name}.{part}.weights", 3, width, width)
        return ChannelAttention(weights, take(f"{name}.{part}.biases", 3, width, 1))

    return ChannelNetwork(
        take_linear(take, f"{name}.embed", features, 2 * hidden),
        attention("first", 2 * hidden),
        take_linear(take, f"{name}.narrow", 2 * hidden, hidden),
        attention("second", hidden),
        take_linear(take, f"{name}.out", hidden, outputs),
    )


def take_pair(take: Take, name: str, features: int, hidden: int, outputs: int) -> list[ChannelNetwork]:
    """Two networks of one shape, whose arrays stand stacked in the bundle."""
    return [
        take_network(lambda array, *shape: take(array, 2, *shape)[i], name, features, hidden, outputs)  # noqa: B023
        for i in range(2)
    ]


class Neighbourly(Deployed):
    """What both kinds have in common."""

    needs_task = True  # to make for

    def __init__(self, settings: Mapping[str, Any], interface: Interface):
        self.action: Action = interface.action
        self.real = interface.has_places and self.action.kind == "continuous"
        if not self.real and (self.action.kind != "choose_task" or interface.sees_peers):
            raise UserError("its world has no places and velocities, which this kind needs.")
        self.axes = self.action.number if self.real else interface.tasks
        self.goal = one_of("goal", settings.get("goal", "own"), GOALS)
        self.radius = settings.get("radius", 0.45)
        if type(self.radius) not in (int, float) or not 0 < self.radius <= 1e6:
            raise UserError(f"its setting radius is {self.radius!r}, and must be a length.")
        self.asks_number = self.real and self.goal == "own"
        self.fixed_team = (None, None if self.real else interface.tasks)

    def heard(self, view: View, number: Any) -> tuple[Any, Any]:
        """The viewer's state, and everybody's as it hears them; of views with axes before likewise, numbers too."""
        if not self.real:
            nothing = 0.0 * view.agents[..., :1] * np.zeros(3 * self.axes, np.float32)
            return nothing[..., 0, :], nothing
        moving, own = view.agents[..., : 2 * self.axes], view.agents[..., :1, : 2 * self.axes]
        index, numbers = numbered(view.agent_present), numbered(view.task_present)
        # A view has the viewer in the world's frame, and everything else relative to it.
        states = np.where((index == 0)[:, None], moving, own + moving)
        places = states[..., : self.axes]
        tasks = places[..., :1, :] + view.tasks[..., : self.axes]
        goals = tasks[..., None, :, :] - places[..., :, None, :]  # [agent, task, axis]
        if self.goal == "own":
            tasks_there = np.add.reduce(view.task_present.astype(np.int64), axis=-1, keepdims=True)
            chosen = listed(number, index) % np.maximum(tasks_there, 1)
        else:
            far = np.where(view.task_present[..., None, :], np.add.reduce(goals * goals, axis=-1), np.float32(np.inf))
            chosen = np.argmin(far, axis=-1)
        is_goal = numbers == chosen[..., None]
        goal = np.add.reduce(np.where(is_goal[..., None], goals, np.float32(0)), axis=-2)
        states = np.concatenate([states, goal], axis=-1)
        way = places - places[..., :1, :]
        apart = np.sqrt(np.add.reduce(way * way, axis=-1, keepdims=True))
        weights = np.where(apart <= self.radius, sigmoid(-2.0 * (apart - self.radius)), np.float32(0))
        return states[..., 0, :], weights * states

    def answer_with(self, view: View, force: Any, width: Any) -> Answer:
        if self.real:
            return Squashed(force, within(width))
        return Categorical(choices(force, allowed_actions(view, self.action)))


def listed(number: Any, index: Any) -> Any:
    """The numbers of the agents in the list of agent `number`: itself, then everybody else in order."""
    return np.where(index == 0, number, np.where(index <= number, index - 1, index))


def with_force(heard: Any, force: Any) -> Any:
    """What was heard of each agent, and the same force beside all of it."""
    return np.concatenate([heard, 0.0 * heard[..., :1] + force[..., None, :]], axis=-1)


class Gsa(Neighbourly):
    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(settings, interface)
        self.one_sided = settings.get("one_sided") is True
        self.force = take_network(take, "force", 3 * self.axes, 6, self.axes)
        self.width = take_network(take, "width", 4 * self.axes, 6, self.axes)

    def answer(self, view: View, number: Any = None) -> Answer:
        _, heard = self.heard(view, number)
        force = self.last(self.force.about_all(heard, view.agent_present))
        width = self.last(self.width.about_all(with_force(heard, force), view.agent_present))
        return self.answer_with(view, force, width)

    def last(self, answer: Any) -> Any:
        return silu(answer) if self.one_sided else answer


class PortHamiltonian(Neighbourly):
    together = True

    def __init__(self, settings: Mapping[str, Any], interface: Interface, take: Take):
        super().__init__(settings, interface)
        self.asks_number = False  # the views of a team stand in the order of their numbers
        self.pairs = take_pair(take, "pairs", 3 * self.axes, 8, 16)
        self.energy = take_network(take, "energy", 3 * self.axes, 8, 25)
        self.width = take_network(take, "width", 4 * self.axes, 6, self.axes)

    def decide_team(self, views: View, noise: Any = None) -> Decided:
        index = numbered(views.agent_present)
        own, heard = self.heard(views, index[:, None])
        gradients = self.gradients(own)[:, : 2 * self.axes]
        of_place, of_velocity = gradients[:, : self.axes], gradients[:, self.axes :]
        lost, exchange = (network.about_each(heard, views.agent_present) for network in self.pairs)
        strength = np.add.reduce(np.add.reduce(exchange, axis=-1), axis=-1)[:, None]
        dissipated = self.dissipated(lost, views.agent_present[:, 0], index, (of_place, of_velocity))
        place, velocity = strength * of_velocity - dissipated[0], -(strength * of_place) - dissipated[1]
        force = velocity + DRAG * place
        width = silu(self.width.about_all(with_force(heard, force), views.agent_present))
        answer = self.answer_with(views, force, width)
        return Decided(answer.act(np.float32(0) if noise is None else noise), answer)

    def gradients(self, own: Any) -> Any:
        """Of every agent's energy, a quadratic form in four outputs of a network and a potential, by its state."""
        z, back = self.energy.with_slope(own)
        x = [z[:, i : i + 1] for i in range(4)]  # two rows of two
        parts = [z[:, 5 * i : 5 * i + 5] for i in range(4)]  # each entry of the form is the sum of five squares
        form = [np.add.reduce(part * part, axis=-1, keepdims=True) for part in parts]
        products = [x[2 * a] * x[2 * b] + x[2 * a + 1] * x[2 * b + 1] for a in range(2) for b in range(2)]
        slope = np.concatenate(
            [*(2.0 * part * product for part, product in zip(parts, products, strict=True))], axis=-1
        )
        off = form[1] + form[2]
        of_x = [2.0 * form[0] * x[0] + off * x[2], 2.0 * form[0] * x[1] + off * x[3]]
        of_x += [2.0 * form[3] * x[2] + off * x[0], 2.0 * form[3] * x[3] + off * x[1]]
        first = slope[:, :4] + np.concatenate(of_x, axis=-1)
        return back(np.concatenate([first, slope[:, 4:], 2.0 * z[:, 20:]], axis=-1))

    def dissipated(self, said: Any, there: Any, index: Any, gradients: tuple[Any, Any]) -> list[Any]:
        """What R takes away, of place and of velocity.

        R has a number for every two parts of two agents: what each says of the other, squared and added. A row's own
        entry is what it says of itself and the sum of the whole row, all others are negative; so R times the
        gradients is each entry times the difference of two gradients.
        """
        # As listed by the viewer, itself first -> by number.
        stands = np.where(
            index[None, :] == index[:, None], 0, np.where(index[None, :] < index[:, None], index + 1, index)
        )
        by_number = (stands[:, :, None] == index).astype(np.float32) @ said
        both = there[:, None] & there[None, :]
        itself = index[:, None] == index[None, :]
        squares = []
        for part in range(4):
            total = np.add.reduce(by_number[:, :, 4 * part : 4 * part + 4], axis=-1)
            squares.append(total * total)
        taken = []
        for a in range(2):
            row, other = np.float32(0), np.float32(0)
            for b in range(2):
                pairs = np.where(both, squares[2 * a + b] + squares[2 * b + a].T, np.float32(0))
                row = row + np.add.reduce(pairs, axis=1)[:, None]
                other = other + pairs @ gradients[b]
                if a == b:
                    row = row + np.add.reduce(np.where(itself, pairs, np.float32(0)), axis=1)[:, None]
            taken.append(row * gradients[a] - other)
        return taken

    def team_noise(self, views: View, generator: np.random.Generator) -> Any:
        shape = np.zeros((len(views.agents), self.axes), np.float32)
        return (Squashed(shape, shape) if self.real else Categorical(shape)).noise(generator)
