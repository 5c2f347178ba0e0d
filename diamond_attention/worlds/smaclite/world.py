"""SMAClite as a world: the agents are the allied units, the tasks are the units they can act upon.

A damage dealer's tasks are the enemies. A healer's target actions mean its own side, so its tasks are its
comrades. Either way, action FIRST_TARGET + k acts upon task k, and a policy that gives one logit for each task plays
any map. Unit types come from one list for all maps, so that what is learned on one map means the same on
another. Who is dead or out of sight is absent.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActionKind, ChooseTask
from diamond_attention.errors import UserError
from diamond_attention.ranks import hear_ranks
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.contract import TeamSize, Transition
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.observe import SIGHT_RANGE
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOOP, NORTH, Scenario, scenario_of
from diamond_attention.worlds.smaclite.terrain import MAP_SIZE
from diamond_attention.worlds.smaclite.units import UNIT_TYPES

UNIT_TYPE_NAMES = tuple(UNIT_TYPES)
MOVES = FIRST_TARGET - NORTH
PER_UNIT = tuple(name for name in BattleState._fields if name not in ("last_actions", "lines_dropped"))
"""The parts of a battle's state that have one entry for each unit."""


@dataclass(frozen=True)
class ActOrChooseTask(ChooseTask):
    """First some actions that concern no task (nothing, stop, four moves), then one for each task.

    `legal_actions` has `own_actions` entries more than there are tasks.
    """

    own_actions: int = FIRST_TARGET


class SmacliteState(NamedTuple):
    """A battle with its two sides apart, each padded: index k of a side is the k-th unit of that side."""

    agents: dict[str, Array]
    enemies: dict[str, Array]
    last_actions: Int[Array, " agent"]
    lines_dropped: Int[Array, ""]


@dataclass(frozen=True)
class Smaclite:
    """One SMAClite map, padded to `max_agents` agents and `max_tasks` tasks."""

    map: Annotated[str, tyro.conf.arg(help="The map, for example 2s3z.")] = "2s3z"
    jitter: float = 0.0
    """How far each unit may start from its place, each way. Without it every episode starts the same."""
    correct_walls: bool = False
    """Use the true normal of walls where the original's numpy backend does not."""
    max_agents: tyro.conf.Suppress[int] = 5
    max_tasks: tyro.conf.Suppress[int] = 5

    name = "smaclite"

    @property
    def scenario(self) -> Scenario:
        return scenario_of(self.map)

    @property
    def time_limit(self) -> int:
        return self.scenario.map.time_limit

    @property
    def action_kind(self) -> ActionKind:
        return ActOrChooseTask()

    @property
    def size(self) -> TeamSize:
        """The one size this map is played at."""
        return TeamSize(self.scenario.number_of_agents, self.scenario.number_of_actions - FIRST_TARGET)

    def check_size(self, size: TeamSize) -> None:
        if (int(size.agents), int(size.tasks)) != tuple(self.size):
            raise UserError(
                f"agents is {size.agents} and tasks is {size.tasks}, but {self.map} is always played with "
                f"{self.size.agents} agents and {self.size.tasks} tasks; choose another map or leave the size out."
            )
        if self.max_agents < self.size.agents or self.max_tasks < self.size.tasks:
            raise UserError(
                f"{self.map} needs room for {self.size.agents} agents and {self.size.tasks} tasks; raise max_agents "
                f"from {self.max_agents} and max_tasks from {self.max_tasks}."
            )

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> SmacliteState:
        return self._apart(battle.start(self.scenario, key, self.jitter))

    @partial(jax.jit, static_argnames="self")
    def step(self, state: SmacliteState, actions: Int[Array, " agent"], key: PRNGKeyArray) -> Transition:
        scenario = self.scenario
        before = self._together(state)
        # Padding may offer more target actions than the map has; nobody can legally choose them.
        chosen = jnp.minimum(actions[: scenario.number_of_agents], scenario.number_of_actions - 1)
        outcome = battle.step(scenario, before, chosen, battle.draw_turn_orders(scenario, key), self.correct_walls)
        dropped = outcome.state.lines_dropped - before.lines_dropped
        return Transition(
            state=self._apart(outcome.state),
            reward=outcome.reward,
            terminated=outcome.done,
            measures={
                "battle_won": outcome.won.astype(jnp.float32),
                "lines_dropped": dropped.astype(jnp.float32),
            },
        )

    @partial(jax.jit, static_argnames="self")
    def views(self, state: SmacliteState, ranks: Float32[Array, " agent"]) -> AgentView:
        legal = self._legal_actions(state)
        alive = state.agents["alive"]
        allies, peers_seen = self._as_seen(state, state.agents, self._constants(of_agents=True))
        moves = jnp.zeros((self.max_agents, self.max_agents, MOVES))
        own = np.arange(self.max_agents)
        # Where an agent itself could go now; of its peers it does not know that.
        moves = moves.at[own, own].set(legal[:, NORTH:FIRST_TARGET].astype(jnp.float32))
        agents = jnp.concatenate([allies, moves], axis=-1)
        agent_present = peers_seen & alive[:, None]
        tasks, task_seen = self._tasks_as_seen(state, allies, peers_seen)
        targetable = legal[:, FIRST_TARGET:].astype(jnp.float32)
        tasks = jnp.concatenate([tasks, targetable[:, :, None]], axis=-1)
        task_present = task_seen & alive[:, None]
        return AgentView(
            agents=_own_row_first(jnp.where(agent_present[:, :, None], agents, 0.0)),
            tasks=jnp.where(task_present[:, :, None], tasks, 0.0),
            agent_present=_own_row_first(agent_present),
            task_present=task_present,
            ranks=hear_ranks(ranks),
            legal_actions=legal,
        )

    @partial(jax.jit, static_argnames="self")
    def team_view(self, state: SmacliteState) -> TeamView:
        """Everybody alive, seen or not, on the map's own coordinates, with cooldown and energy."""

        def side(units: dict[str, Array], constants: dict[str, np.ndarray]) -> Float[Array, "unit feature"]:
            place = (units["position"] - MAP_SIZE / 2) / MAP_SIZE
            wait = units["cooldown"] / constants["cooldown"]
            charge = units["energy"] / constants["max_energy"]
            features = jnp.concatenate(
                [place, jnp.stack([wait, charge], axis=-1), _condition(units, constants), constants["types"]], axis=-1
            )
            return jnp.where(units["alive"][:, None], features, 0.0)

        return TeamView(
            agents=side(state.agents, self._constants(of_agents=True)),
            tasks=side(state.enemies, self._constants(of_agents=False)),
            agent_present=state.agents["alive"],
            task_present=state.enemies["alive"],
        )

    def _legal_actions(self, state: SmacliteState) -> Bool[Array, "agent action"]:
        legal = battle.legal_actions(self.scenario, self._together(state))
        rows, columns = self.max_agents - legal.shape[0], FIRST_TARGET + self.max_tasks - legal.shape[1]
        padded = jnp.pad(legal, ((0, rows), (0, columns)))
        nobody = np.arange(self.max_agents) >= legal.shape[0]
        return padded.at[:, NOOP].set(padded[:, NOOP] | nobody)

    def _as_seen(
        self, state: SmacliteState, others: dict[str, Array], constants: dict[str, np.ndarray]
    ) -> tuple[Float[Array, "agent other feature"], Bool[Array, "agent other"]]:
        """Distance, way, condition and type of others as every agent sees them, and whom it sees."""
        way = others["position"][None, :] - state.agents["position"][:, None]
        distance = jnp.sqrt(jnp.sum(way**2, axis=-1, keepdims=True))
        same_for_all = jnp.concatenate([_condition(others, constants), jnp.asarray(constants["types"])], axis=-1)
        features = [
            distance / SIGHT_RANGE,
            way / SIGHT_RANGE,
            jnp.broadcast_to(same_for_all, (*way.shape[:2], same_for_all.shape[-1])),
        ]
        return jnp.concatenate(features, axis=-1), (distance[..., 0] < SIGHT_RANGE) & others["alive"]

    def _tasks_as_seen(
        self, state: SmacliteState, allies: Array, peers_seen: Array
    ) -> tuple[Float[Array, "agent task feature"], Bool[Array, "agent task"]]:
        scenario = self.scenario
        tasks, seen = self._as_seen(state, state.enemies, self._constants(of_agents=False))
        for healer in np.flatnonzero(scenario.is_healer[scenario.ally_ids]):
            # Only comrades a healer could ever heal; they have as many slots as the map has target actions.
            patients = np.zeros(self.max_agents, bool)
            patients[: scenario.number_of_agents] = ~scenario.is_healer[scenario.ally_ids]
            tasks = tasks.at[healer].set(_resize(allies[healer], self.max_tasks))
            seen = seen.at[healer].set(_resize(peers_seen[healer] & patients, self.max_tasks))
        return tasks, seen

    def _constants(self, of_agents: bool) -> dict[str, np.ndarray]:
        """What is always true of a side's units, padded. Divisors are one where there is nothing to divide."""
        scenario = self.scenario
        ids = scenario.ally_ids if of_agents else scenario.enemy_ids
        room = self.max_agents if of_agents else self.max_tasks

        def divisor(values: np.ndarray) -> np.ndarray:
            padded = np.ones(room, np.float32)
            padded[: len(ids)] = np.where(values[ids] > 0, values[ids], 1.0)
            return padded

        types = np.zeros((room, len(UNIT_TYPE_NAMES)), np.float32)
        for index, unit in enumerate(ids):
            types[index, UNIT_TYPE_NAMES.index(scenario.unit_types[unit])] = 1.0
        return {
            "types": types,
            "max_hp": divisor(scenario.max_hp),
            "max_shield": divisor(scenario.max_shield),
            "max_energy": divisor(scenario.max_energy),
            "cooldown": divisor(scenario.cooldown),
        }

    def _apart(self, state: BattleState) -> SmacliteState:
        scenario = self.scenario

        def side(ids: np.ndarray, room: int) -> dict[str, Array]:
            return {name: _resize(getattr(state, name)[ids], room) for name in PER_UNIT}

        return SmacliteState(
            agents=side(scenario.ally_ids, self.max_agents),
            enemies=side(scenario.enemy_ids, self.max_tasks),
            last_actions=_resize(state.last_actions, self.max_agents),
            lines_dropped=state.lines_dropped,
        )

    def _together(self, state: SmacliteState) -> BattleState:
        scenario = self.scenario
        agents, enemies = scenario.number_of_agents, scenario.number_of_enemies
        allies_first = not scenario.map.enemies_first

        def join(name: str) -> Array:
            sides = [state.agents[name][:agents], state.enemies[name][:enemies]]
            return jnp.concatenate(sides if allies_first else sides[::-1])

        parts: dict[str, Any] = {name: join(name) for name in PER_UNIT}
        return BattleState(**parts, last_actions=state.last_actions[:agents], lines_dropped=state.lines_dropped)


def _condition(units: dict[str, Array], constants: dict[str, np.ndarray]) -> Float[Array, "unit 2"]:
    """Hit points and shield, each as a share of its most."""
    return jnp.stack([units["hp"] / constants["max_hp"], units["shield"] / constants["max_shield"]], axis=-1)


def _own_row_first(values: Array) -> Array:
    """[viewer, agent by index, ...] → [viewer, agent as the viewer lists them, ...]."""
    order = as_each_viewer_lists(jnp.arange(values.shape[0]))
    return jax.vmap(lambda row, listed: row[listed])(values, order)


def _resize(values: Array, room: int) -> Array:
    """Cut or padded with zeros (False) to `room` rows."""
    values = values[:room]
    return jnp.pad(values, [(0, room - values.shape[0])] + [(0, 0)] * (values.ndim - 1))
