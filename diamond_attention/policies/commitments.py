"""Commitments: everybody works out what higher-ranked peers will choose, and chooses among what is left.

Ranks are broadcast, so all agents know in which order they would decide if they decided one after the other. Nobody
waits for it: each agent plays the turns of those ranked above it in its own head, then its own. A turn is

    1. claims    the tasks that higher-ranked agents have chosen; what that is worth is learned, one number
    2. prices    what those who have not decided bid for each task: a few rounds of attention from agents to tasks, in
                 which a task that more than one of them wants becomes dearer
    3. choice    score less price, of the agent whose turn it is, and a noise that everybody knows

For this an agent must know how each peer sees the tasks. Worlds say so column by column (`Frame`): a feature that is
the same to all, or a place relative to the viewer, which is a place relative to any peer after a subtraction. A place
enters by its distance only.

The noise of sampled play is derived from the number that was broadcast, so it can be replayed like everything else.
Ranks themselves are compared and never read: all that a policy learns of them is who has claimed what.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActOrChooseTask, Continuous
from diamond_attention.attention import Projection, softmax_or_zero
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.errors import UserError
from diamond_attention.initialise import orthogonal_linear
from diamond_attention.policies.contract import Acted, Memory, Policy
from diamond_attention.policies.flat import allowed_actions
from diamond_attention.policies.kind import Described, Interface
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.view import AgentView

CLAIM_UNIT = 30.0
"""What a claim is worth is one number, which must come to outweigh every difference between scores, also of tasks
never seen in training. Without a unit of its own it would move by no more than the learning rate an update."""
SMALLEST_DEMAND = 1e-6
"""Below it a task is wanted by nobody; its logarithm must stay finite."""


@dataclass(frozen=True)
class CommitmentsSettings:
    """Agents that replay the choices of higher-ranked peers and choose among what is left; plays any team size."""

    kind: Literal["commitments"] = "commitments"
    """Which kind of policy this is; every kind has settings of its own."""
    width: Annotated[int, Between(1, 4096)] = 32
    """Of the network that scores a task for an agent. More: more capacity; time grows with its square."""
    rounds: Annotated[int, Between(0, 1000)] = 16
    """Of prices before anybody has decided. More: agents leave more to peers that need it more."""
    rounds_each_turn: Annotated[int, Between(0, 1000)] = 2
    """Of prices between two choices. More: the same, for more of each decision's time."""

    def __post_init__(self) -> None:
        check_ranges(self, "policy.")


def describe(settings: CommitmentsSettings) -> Described:
    return Described(
        "commitments",
        "commitments",
        "#882255",
        ranks_do="An agent works out what those ranked above it choose, and chooses among what is left.",
        hears_ranks=True,
        place=10,
    )


class Table(NamedTuple):
    """What every agent makes of every task, listed in any order: by index, or as one viewer lists its peers."""

    scores: Float[Array, "agent task"]
    """Of tasks that nobody has claimed; −∞ of what is not there or not allowed."""
    fixed: Float[Array, "agent fixed_action"]
    """Of what concerns no task."""
    there: Bool[Array, " agent"]
    ranks: Float32[Array, " agent"]


class CommitmentsPolicy(Policy):
    embed: Projection
    score: eqx.nn.Linear
    claim: Float[Array, ""]  # what it is worth that somebody has claimed a task, in units of CLAIM_UNIT
    fixed: Float[Array, " fixed_action"]  # scores of actions that concern no task
    step: Float[Array, ""]  # how far a price follows demand in a round, by its logarithm
    sharpness: Float[Array, ""]  # of a choice, against the bids, by its logarithm
    places: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    common: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    """Columns of agents and of tasks."""
    rounds: int = eqx.field(static=True)
    rounds_each_turn: int = eqx.field(static=True)

    decides_alone = True

    # --- What there is to decide on ---------------------------------------------------------------

    def table(self, view: AgentView, listed: int | None = None) -> Table:
        """How the first `listed` agents of one view see the tasks, as its viewer works it out.

        What the viewer may do its peers may do: `build_commitments` refuses worlds that do not say so.
        """
        agents, present, ranks = view.agents[:listed], view.agent_present[:listed], view.ranks[:listed]
        (agent_places, task_places), (agent_common, task_common) = self.places, self.common
        pairs = (len(agents), len(view.tasks))
        known = [
            jnp.broadcast_to(agents[:, None, list(agent_common)], (*pairs, len(agent_common))),
            jnp.broadcast_to(view.tasks[None, :, list(task_common)], (*pairs, len(task_common))),
        ]
        if agent_places:
            way = view.tasks[None, :, list(task_places)] - agents[:, None, list(agent_places)]
            known.append(jnp.sqrt(jnp.sum(way**2, axis=-1, keepdims=True)))
        features = jnp.concatenate(known, axis=-1).astype(self.embed.first.weight.dtype)
        scores = jax.vmap(jax.vmap(lambda pair: self.score(self.embed(pair))[0]))(features).astype(jnp.float32)
        allowed, some = allowed_actions(view), len(self.fixed)
        fixed = jnp.broadcast_to(jnp.where(allowed[:some], self.fixed, -jnp.inf), (len(agents), some))
        return Table(jnp.where(allowed[some:], scores, -jnp.inf), fixed, present, ranks)

    def joint_table(self, views: AgentView) -> Table:
        """A team's table by index, every row from that agent's own view: nobody is told what another one sees."""
        return jax.tree.map(lambda rows: rows[:, 0], jax.vmap(lambda view: self.table(view, listed=1))(views))

    # --- A turn -----------------------------------------------------------------------------------

    def prices(
        self,
        scores: Float[Array, "agent task"],
        table: Table,
        bidding: Bool[Array, " agent"],
        prices: Float[Array, " task"],
        rounds: int,
    ) -> Float[Array, " task"]:
        """Every bidder spreads one bid over the options it likes; a task with more than one bid becomes dearer."""

        def one_round(prices: Array, _: None) -> tuple[Array, None]:
            bids = softmax_or_zero(jnp.concatenate([table.fixed, scores - prices], axis=1))[:, -len(prices) :]
            demand = jnp.sum(jnp.where(bidding[:, None], bids, 0.0), axis=0)
            follow = jnp.exp(self.step) * jnp.log(jnp.maximum(demand, SMALLEST_DEMAND))
            return jnp.maximum(prices + follow, 0.0), None  # what fewer want than there is costs nothing

        return jax.lax.scan(one_round, prices, None, length=rounds)[0]

    def first_prices(self, table: Table) -> Float[Array, " task"]:
        """Before anybody has decided. All bid, so it is the same for all, and worked out once."""
        free = jnp.zeros(table.scores.shape[1])
        return self.prices(table.scores, table, table.there, free, self.rounds)

    def turn(
        self,
        table: Table,
        first_prices: Float[Array, " task"],
        chosen: Bool[Array, "agent task"],
        agent: Int[Array, ""] | int,
    ) -> Categorical:
        """What one agent does, given what those ranked above it have chosen.

        Only a higher rank counts: equal ranks claim nothing from each other, and a peer that was not heard (its rank
        is no number) claims nothing from anybody.
        """
        higher = table.there & (table.ranks > table.ranks[agent])
        claimed = jnp.any(chosen & higher[:, None], axis=0)
        scores = table.scores + CLAIM_UNIT * self.claim * claimed
        prices = self.prices(scores, table, table.there & ~higher, first_prices, self.rounds_each_turn)
        options = jnp.concatenate([table.fixed[agent], scores[agent] - prices])
        possible = options > -jnp.inf
        # The inner where keeps the sharpness's gradient from 0 · ∞.
        return Categorical(jnp.where(possible, jnp.exp(self.sharpness) * jnp.where(possible, options, 0.0), -jnp.inf))

    def tasks_of(self, actions: Int[Array, " agent"], table: Table) -> Bool[Array, "agent task"]:
        """Which task each agent has chosen; none for fixed actions and for who is not there."""
        numbers = jnp.arange(table.scores.shape[1]) + len(self.fixed)
        return (actions[:, None] == numbers) & table.there[:, None]

    # --- All turns --------------------------------------------------------------------------------

    def replay(
        self, table: Table, first_prices: Float[Array, " task"], turns: Int[Array, ""] | int, greedy: bool
    ) -> tuple[Int[Array, " agent"], Float[Array, " agent"]]:
        """The choices of the so many highest-ranked agents, and their log-probabilities; −1 and 0 of the others."""
        # Last who is not there, and then a rank that is no number.
        order = jnp.argsort(jnp.where(table.there, -table.ranks, jnp.inf))

        def one_turn(number: Int[Array, ""], so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            actions, log_probability = so_far
            agent = order[number]
            action, said = self.choice(table, first_prices, actions, agent, greedy)
            return actions.at[agent].set(action), log_probability.at[agent].set(said)

        return jax.lax.fori_loop(0, turns, one_turn, (jnp.full(len(order), -1, jnp.int32), jnp.zeros(len(order))))

    def choice(
        self,
        table: Table,
        first_prices: Float[Array, " task"],
        actions: Int[Array, " agent"],
        agent: Int[Array, ""] | int,
        greedy: bool,
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """What one agent chooses after these actions, and its log-probability."""
        own = self.turn(table, first_prices, self.tasks_of(actions, table), agent)
        noise = 0.0 if greedy else self.noise(table.ranks[agent], table.scores.shape[1])
        action = jnp.argmax(own.logits + noise).astype(jnp.int32)
        return action, own.log_probability(action)

    def noise(self, rank: Float32[Array, ""], tasks: int) -> Float[Array, " action"]:
        """What turns the best option into a sample (Gumbel), the same to everybody who heard this rank."""
        bits = jax.lax.bitcast_convert_type(rank, jnp.uint32)
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(0), bits), (len(self.fixed) + tasks,))

    def act(self, views: AgentView, memory: Memory, key: PRNGKeyArray, greedy: bool) -> Acted:
        """All turns once if all views are here; one agent by itself works the turns before its own out."""
        if views.ranks.shape[0] != views.ranks.shape[1]:
            actions, log_probability = jax.vmap(lambda view: self.decide_alone(view, greedy))(views)
            return Acted(actions, log_probability, memory)
        table = self.joint_table(views)
        return Acted(*self.replay(table, self.first_prices(table), len(table.ranks), greedy), memory)

    def decide_alone(self, view: AgentView, greedy: bool) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """One agent's action and its log-probability, from its own view and the ranks it has heard."""
        table = self.table(view)
        first_prices, before = self.first_prices(table), jnp.sum(table.there & (table.ranks > table.ranks[0]))
        actions, _ = self.replay(table, first_prices, before, greedy)
        return self.choice(table, first_prices, actions, 0, greedy)

    def ask_again(self, views: AgentView, memory: Memory, actions: Array) -> tuple[Array, Array]:
        """All turns side by side: who has claimed what is known from the ranks and the actions."""
        table = self.joint_table(views)
        first_prices, chosen = self.first_prices(table), self.tasks_of(actions, table)

        def one(agent: Int[Array, ""], action: Int[Array, ""]) -> tuple[Array, Array]:
            own = self.turn(table, first_prices, chosen, agent)
            return own.log_probability(action), own.entropy()

        return jax.vmap(one)(jnp.arange(len(actions)), actions)


def build_commitments(settings: CommitmentsSettings, interface: Interface, key: PRNGKeyArray) -> CommitmentsPolicy:
    kind = interface.action_kind
    if isinstance(kind, Continuous):
        raise UserError(
            f"policy.kind is {settings.kind}, which chooses among tasks, and this world's actions are continuous: "
            "there is nothing to claim; use policy.kind diamond."
        )
    frames = (interface.agent_frames, interface.task_frames)
    places = tuple(columns_of(each, "place") for each in frames)
    common = tuple(columns_of(each, "common") for each in frames)
    if not common[1] and not places[1]:
        raise UserError(
            f"policy.kind is {settings.kind}, whose agents must know how their peers see the tasks, and this world's "
            "views do not say (docs/commitments.md); use policy.kind diamond."
        )
    if interface.own_legal_actions:
        raise UserError(
            f"policy.kind is {settings.kind}, whose agents must know what their peers may do, and this world does "
            "not say that what is legal for one agent is legal for all (same_legal_actions, "
            "docs/your_own_world.md); use policy.kind diamond."
        )
    embed_key, score_key = jax.random.split(key)
    features = sum(map(len, common)) + bool(places[0])
    return CommitmentsPolicy(
        embed=Projection(features, settings.width, key=embed_key),
        score=orthogonal_linear(settings.width, 1, scale=0.01, key=score_key),
        claim=jnp.zeros(()),
        fixed=jnp.zeros(kind.fixed_actions if isinstance(kind, ActOrChooseTask) else 0),
        step=jnp.zeros(()),
        sharpness=jnp.zeros(()),
        places=places,  # type: ignore[arg-type]
        common=common,  # type: ignore[arg-type]
        rounds=settings.rounds,
        rounds_each_turn=settings.rounds_each_turn,
    )


def columns_of(frames: tuple[str, ...], frame: str) -> tuple[int, ...]:
    return tuple(column for column, each in enumerate(frames) if each == frame)
