"""The XOR game: n players, k actions, one step; reward 1 when all players choose different actions.

Every player sees exactly the same, so a shared deterministic policy gives all of them the same action
and never scores. Without randomness that the players share, no policy can do better than
n!/n^n (n = k): the chance level.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActionKind, ChooseTask
from diamond_attention.errors import UserError
from diamond_attention.ranges import check_ranges
from diamond_attention.ranks import hear_ranks
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.contract import Feature, Padding, Scoring, TeamSize, Transition, World

ACTION_FREQUENCIES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)


def chance_level(players: int, actions: int) -> float:
    """The best success rate without shared randomness: independent uniform play, k!/((k-n)! k^n)."""
    probability = 1.0
    for already_chosen in range(players):
        probability *= (actions - already_chosen) / actions
    return probability


class XorState(NamedTuple):
    players: Int[Array, ""]
    actions: Int[Array, ""]


@dataclass(frozen=True)
class Xor(World):
    """The XOR game for up to `max_agents` players and `max_tasks` actions."""

    shaped: bool = False
    """Reward the fraction of distinct actions instead of all-or-nothing. Success is scored on the true reward."""
    max_agents: Padding = 2
    max_tasks: Padding = 2

    name = "xor"
    title = "XOR"
    task = "action"
    scoring = Scoring(score="success", name="Success rate", rate=True, solved=0.99, chance=chance_level)
    agent_features = (Feature("is there", frame="common"),)
    task_features = tuple(
        Feature(f"{wave} of {frequency:g} π times the action's number", frame="common")
        for wave in ("sine", "cosine")
        for frequency in ACTION_FREQUENCIES
    )
    time_limit = 1
    sees_peers = False

    def __post_init__(self) -> None:
        check_ranges(self, "world.")

    @property
    def action_kind(self) -> ActionKind:
        return ChooseTask()

    def check_size(self, size: TeamSize) -> None:
        if size.agents > size.tasks:
            raise UserError(
                f"players is {size.agents} and actions is {size.tasks}: XOR needs at least as many actions as "
                "players, or nobody could ever win; raise actions or lower players."
            )

    def tags(self) -> tuple[str, ...]:
        return ("shaped",) if self.shaped else ()

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> XorState:
        return XorState(jnp.asarray(size.agents, jnp.int32), jnp.asarray(size.tasks, jnp.int32))

    def step(self, state: XorState, actions: Int[Array, " agent"], key: PRNGKeyArray) -> Transition:
        present = self._players_present(state)
        chosen_by = jnp.sum((actions[:, None] == jnp.arange(self.max_tasks)[None, :]) & present[:, None], axis=0)
        distinct = jnp.sum((chosen_by > 0) & self._actions_present(state))
        success = (distinct == state.players).astype(jnp.float32)
        reward = distinct / state.players if self.shaped else success
        return Transition(
            state=state,
            reward=reward.astype(jnp.float32),
            terminated=jnp.asarray(True),
            measures={"success": success, "distinct": distinct / state.players},
        )

    def views(self, state: XorState, ranks: Float32[Array, " agent"]) -> AgentView:
        def for_everyone(x: Array) -> Array:
            return jnp.broadcast_to(x, (self.max_agents, *x.shape))

        return AgentView(
            agents=for_everyone(jnp.ones((self.max_agents, 1))),
            tasks=for_everyone(action_features(self.max_tasks)),
            agent_present=as_each_viewer_lists(self._players_present(state)),
            task_present=for_everyone(self._actions_present(state)),
            ranks=hear_ranks(ranks),
        )

    def team_view(self, state: XorState) -> TeamView:
        return TeamView(
            agents=jnp.ones((self.max_agents, 1)),
            tasks=action_features(self.max_tasks),
            agent_present=self._players_present(state),
            task_present=self._actions_present(state),
        )

    def _players_present(self, state: XorState) -> Bool[Array, " agent"]:
        return jnp.arange(self.max_agents) < state.players

    def _actions_present(self, state: XorState) -> Bool[Array, " task"]:
        return jnp.arange(self.max_tasks) < state.actions


def action_features(number_of_actions: int) -> Float[Array, "task task_feature"]:
    """Features that tell actions apart for any k, and stay the same for one action whatever k is.

    Sines and cosines of the action's number at several frequencies, as positions are told apart in
    sequence models.
    """
    number = jnp.arange(number_of_actions, dtype=jnp.float32)[:, None]
    angles = jnp.pi * number * jnp.asarray(ACTION_FREQUENCIES)[None, :]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
