"""SMAClite as a world: the agents are the allied units, the tasks are the units they can act upon.

A damage dealer's tasks are the enemies. A healer's target actions mean its own side, so its tasks are its
comrades. Either way, action FIRST_TARGET + k acts upon task k, and a policy that gives one logit for each task plays
any map. Unit types come from one list for all maps, so that what is learned on one map means the same on
another. Who is dead or out of sight is absent.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, Float32, Int, PRNGKeyArray

from diamond_attention.actions import ActOrChooseTask
from diamond_attention.errors import UserError, shown
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.ranks import hear_ranks
from diamond_attention.view import AgentView, TeamView, own_row_first
from diamond_attention.worlds.contract import Feature, Padding, Scoring, TeamSize, Transition, World
from diamond_attention.worlds.smaclite import battle
from diamond_attention.worlds.smaclite.battle import BattleState
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.observe import SIGHT_RANGE
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOOP, NORTH, Scenario, scenario_of
from diamond_attention.worlds.smaclite.terrain import MAP_SIZE
from diamond_attention.worlds.smaclite.units import UNIT_TYPES

UNIT_TYPE_NAMES = tuple(UNIT_TYPES)
MOVES = FIRST_TARGET - NORTH
PER_UNIT = tuple(name for name in BattleState._fields if name not in ("last_actions", "lines_dropped"))
"""The parts of a battle's state that have one entry for each unit."""


WAYS = ("north", "south", "east", "west")
UNIT_FEATURES = (
    Feature("distance", "sight ranges"),
    Feature("x relative to the viewer", "sight ranges"),
    Feature("y relative to the viewer", "sight ranges"),
    Feature("hit points", "share of its most"),
    Feature("shield", "share of its most"),
    *(Feature(f"is a {name}") for name in UNIT_TYPE_NAMES),
)


class SmacliteState(NamedTuple):
    """A battle with its two sides apart, each padded: index k of a side is the k-th unit of that side."""

    agents: dict[str, Array]
    enemies: dict[str, Array]
    last_actions: Int[Array, " agent"]
    lines_dropped: Int[Array, ""]
    map: Int[Array, ""]
    """Which of the world's maps this is."""


@dataclass(frozen=True)
class Smaclite(World):
    """SMAClite's battles on one of twelve maps, or on a mixture of them; agents and tasks follow from the map."""

    map: Annotated[
        str, tyro.conf.arg(help="The map, for example 2s3z; of several, as in 2s3z,3s5z, each episode draws one.")
    ] = "2s3z"
    jitter: Annotated[float, Between(0, 1000)] = 0.0
    """How far each unit may start from its place, each way. Without it every episode starts the same."""
    jitter_share: Annotated[float, Between(0, 1)] = 1.0
    """Share of episodes that jitter applies to; the others start as the map says. Evaluations apply it to all."""
    correct_walls: bool = False
    """Use the true normal of walls where the original's numpy backend does not."""
    max_agents: Padding = 5
    max_tasks: Padding = 5

    name = "smaclite"
    title = "SMAClite"
    task = "enemy"
    scoring = Scoring(score="battle_won", name="Win rate", rate=True)
    varies = {  # noqa: RUF012 - a fact of the class
        "map": "The map to play, or several as in 2s3z,3s5z; by default those it was trained on.",
        "jitter": "How far each unit may start from its place, each way; by default 0, as the map says.",
    }
    agent_features = (*UNIT_FEATURES, *(Feature(f"the viewer could go {way} now") for way in WAYS))
    task_features = (*UNIT_FEATURES, Feature("the viewer could act upon it now"))
    action_kind = ActOrChooseTask(FIRST_TARGET)

    def __post_init__(self) -> None:
        check_ranges(self, "world.")
        for index, name in enumerate(self.maps):
            if name not in MAPS or name in self.maps[:index]:
                raise UserError(f"world.map is {shown(self.map)}; choose from {', '.join(MAPS)}, each once.")

    @property
    def maps(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.map.split(","))

    @property
    def sizes(self) -> tuple[TeamSize, ...]:
        """The one size of each map. No two maps share theirs, so a size also says which map is meant."""
        return tuple(size_of(name) for name in self.maps)

    @property
    def time_limit(self) -> int:
        """Of several maps the longest: an episode is cut by whoever plays, who does not know its map."""
        return max(scenario_of(name).map.time_limit for name in self.maps)

    def as_scored(self) -> "Smaclite":
        """The same maps, with every battle started as the map says."""
        return replace(self, jitter=0.0)

    def apart(self) -> tuple["Smaclite", ...]:
        """As evaluations play it: each map alone, with its own time limit, and jitter in every episode.

        Their rows have the jitter but not its share.
        """
        return tuple(replace(self, map=name, jitter_share=1.0) for name in self.maps)

    def played_at(self, size: TeamSize) -> str:
        return self.map if self.jitter == 0 else f"{self.map} ±{self.jitter:g}"

    def check_size(self, size: TeamSize) -> None:
        if (int(size.agents), int(size.tasks)) not in self.sizes:
            played = " or ".join(f"{own.agents} agents and {own.tasks} tasks" for own in self.sizes)
            raise UserError(
                f"agents is {size.agents} and tasks is {size.tasks}, but {self.map} is always played with {played}; "
                "choose another map or leave the size out."
            )
        if self.max_agents < size.agents or self.max_tasks < size.tasks:
            raise UserError(
                f"{self.map} needs room for {size.agents} agents and {size.tasks} tasks; raise max_agents "
                f"from {self.max_agents} and max_tasks from {self.max_tasks}."
            )

    def reset(self, key: PRNGKeyArray, size: TeamSize) -> SmacliteState:
        which = jnp.argmax(
            jnp.stack([(size.agents == own.agents) & (size.tasks == own.tasks) for own in self.sizes])
        ).astype(jnp.int32)
        return self._on_map(which, lambda field: field.reset(key, which))

    @partial(jax.jit, static_argnames="self")
    def step(self, state: SmacliteState, actions: Int[Array, " agent"], key: PRNGKeyArray) -> Transition:
        return self._on_map(state.map, lambda field: field.step(state, actions, key))

    @partial(jax.jit, static_argnames="self")
    def views(self, state: SmacliteState, ranks: Float32[Array, " agent"]) -> AgentView:
        return self._on_map(state.map, lambda field: field.views(state, ranks))

    @partial(jax.jit, static_argnames="self")
    def team_view(self, state: SmacliteState) -> TeamView:
        return self._on_map(state.map, lambda field: field.team_view(state))

    @partial(jax.jit, static_argnames="self")
    def step_in_ticks(
        self, state: SmacliteState, actions: Int[Array, " agent"], key: PRNGKeyArray
    ) -> tuple[Transition, BattleState]:
        """`step`, and the battle after every tick of it (a leading tick axis); of a world with one map."""
        return self._field(self.map).step_in_ticks(state, actions, key)

    def battle(self, state: SmacliteState) -> BattleState:
        """The battle itself, for those who draw or measure it; of a world with one map."""
        return self._field(self.map).together(state)

    def pictures(self, recording: Any) -> Any:
        from diamond_attention.worlds.smaclite.film import FRAMES_PER_SECOND, draw_frames

        return draw_frames(recording), FRAMES_PER_SECOND

    def _field(self, name: str) -> "Battlefield":
        return Battlefield(
            scenario_of(name), self.jitter, self.jitter_share, self.correct_walls, self.max_agents, self.max_tasks
        )

    def _on_map(self, which: Int[Array, ""], do: Callable[["Battlefield"], Any]) -> Any:
        """What `do` gives on the map in question. In a batch of mixed maps all are computed and one is taken."""
        fields = [self._field(name) for name in self.maps]
        if len(fields) == 1:
            return do(fields[0])
        return jax.lax.switch(which, [partial(do, field) for field in fields])


def size_of(name: str) -> TeamSize:
    scenario = scenario_of(name)
    return TeamSize(scenario.number_of_agents, scenario.number_of_actions - FIRST_TARGET)


@dataclass(frozen=True)
class Battlefield:
    """One map, padded to `max_agents` agents and `max_tasks` tasks."""

    scenario: Scenario
    jitter: float
    jitter_share: float
    correct_walls: bool
    max_agents: int
    max_tasks: int

    def reset(self, key: PRNGKeyArray, which: Int[Array, ""]) -> SmacliteState:
        beginning = battle.start(self.scenario, key, self.jitter)
        if self.jitter_share < 1:
            # Folded rather than split, so that the scattered starts are those of this key without a share.
            scattered = jax.random.bernoulli(jax.random.fold_in(key, 1), self.jitter_share)
            own_place = battle.start(self.scenario).position
            beginning = beginning._replace(position=jnp.where(scattered, beginning.position, own_place))
        return self._apart(beginning, which)

    def step(self, state: SmacliteState, actions: Int[Array, " agent"], key: PRNGKeyArray) -> Transition:
        before, chosen, orders = self._asked(state, actions, key)
        outcome = battle.step(self.scenario, before, chosen, orders, self.correct_walls)
        return self._transition(state, outcome)

    def step_in_ticks(
        self, state: SmacliteState, actions: Int[Array, " agent"], key: PRNGKeyArray
    ) -> tuple[Transition, BattleState]:
        before, chosen, orders = self._asked(state, actions, key)
        outcome, ticks = battle.step_and_record(self.scenario, before, chosen, orders, self.correct_walls)
        return self._transition(state, outcome), ticks.state

    def _asked(self, state: SmacliteState, actions: Array, key: PRNGKeyArray) -> tuple[BattleState, Array, Array]:
        """The battle, the agents' actions in it, and the order of turns."""
        scenario = self.scenario
        # Padding may offer more target actions than the map has; nobody can legally choose them.
        chosen = jnp.minimum(actions[: scenario.number_of_agents], scenario.number_of_actions - 1)
        return self.together(state), chosen, battle.draw_turn_orders(scenario, key)

    def _transition(self, before: SmacliteState, outcome: battle.Outcome) -> Transition:
        dropped = outcome.state.lines_dropped - before.lines_dropped
        return Transition(
            state=self._apart(outcome.state, before.map),
            reward=outcome.reward,
            terminated=outcome.done,
            measures={
                "battle_won": outcome.won.astype(jnp.float32),
                "lines_dropped": dropped.astype(jnp.float32),
            },
        )

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
            agents=own_row_first(jnp.where(agent_present[:, :, None], agents, 0.0)),
            tasks=jnp.where(task_present[:, :, None], tasks, 0.0),
            agent_present=own_row_first(agent_present),
            task_present=task_present,
            ranks=hear_ranks(ranks),
            legal_actions=legal,
        )

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
        legal = battle.legal_actions(self.scenario, self.together(state))
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

    def _apart(self, state: BattleState, which: Int[Array, ""]) -> SmacliteState:
        scenario = self.scenario

        def side(ids: np.ndarray, room: int) -> dict[str, Array]:
            return {name: _resize(getattr(state, name)[ids], room) for name in PER_UNIT}

        return SmacliteState(
            agents=side(scenario.ally_ids, self.max_agents),
            enemies=side(scenario.enemy_ids, self.max_tasks),
            last_actions=_resize(state.last_actions, self.max_agents),
            lines_dropped=state.lines_dropped,
            map=which,
        )

    def together(self, state: SmacliteState) -> BattleState:
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


def _resize(values: Array, room: int) -> Array:
    """Cut or padded with zeros (False) to `room` rows."""
    values = values[:room]
    return jnp.pad(values, [(0, room - values.shape[0])] + [(0, 0)] * (values.ndim - 1))
