"""One battle as an object that keeps its state: what step-by-step interfaces of other libraries are made of.

It computes in double precision and draws the order of turns as the original does: one shuffle of the living a tick,
from numpy's PCG64. The same seed and the same actions therefore give the original's battle, until contacts between
units have amplified the last bit.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int
from numpy.typing import NDArray

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite import battle, targeting
from diamond_attention.worlds.smaclite.battle import BattleState, Tick
from diamond_attention.worlds.smaclite.scenario import BEST_RETURN, NOBODY, TICKS_PER_STEP, Scenario, scenario_of
from diamond_attention.worlds.smaclite.targeting import Orders


class SteppedBattle:
    """Call `reset`, then `step` until it says that the battle is over."""

    def __init__(self, map_name: str, correct_walls: bool = False):
        self.scenario = scenario_of(map_name)
        self._correct_walls = correct_walls
        self.reset()
        self.obs_size = self.observations().shape[1]
        self.state_size = len(self.state_vector())

    def reset(self) -> None:
        with jax.enable_x64(True):
            self.state: BattleState = battle.start(self.scenario, dtype=np.float64)
        self._legal: NDArray[np.bool_] | None = None

    def step(self, actions: Any, generator: np.random.Generator) -> tuple[float, bool, bool]:
        """Reward, whether the battle is over, and whether it is won. An illegal action is an error."""
        chosen = self._checked(actions)
        reward = 0.0
        with jax.enable_x64(True):
            orders = _orders(self.scenario, self.state, chosen)
            state = self.state._replace(last_actions=jax.numpy.asarray(chosen))
            for _ in range(TICKS_PER_STEP):
                turn_order = np.full(self.scenario.number_of_units, NOBODY, np.int32)
                living = np.flatnonzero(np.asarray(state.alive)).tolist()
                generator.shuffle(living)
                turn_order[: len(living)] = living
                tick = _tick(self.scenario, state, orders, turn_order, self._correct_walls)
                state = tick.state
                reward += float(tick.reward)
        self.state, self._legal = state, None
        reward, over, won = battle.ending(self.scenario, np.asarray(state.alive), reward)
        return float(reward * BEST_RETURN / self.scenario.largest_return), bool(over), bool(won)

    def legal_actions(self) -> NDArray[np.bool_]:
        """[agent, action]"""
        if self._legal is None:
            with jax.enable_x64(True):
                self._legal = np.asarray(battle.legal_actions(self.scenario, self.state))
        return self._legal

    def observations(self) -> NDArray[np.float32]:
        """[agent, feature]"""
        with jax.enable_x64(True):
            return np.asarray(battle.observations(self.scenario, self.state, self.legal_actions()))

    def state_vector(self) -> NDArray[np.float32]:
        with jax.enable_x64(True):
            return np.asarray(battle.state_vector(self.scenario, self.state))

    def _checked(self, actions: Any) -> NDArray[np.int32]:
        count, legal = self.scenario.number_of_agents, self.legal_actions()
        chosen = np.asarray([int(action) for action in actions], np.int32)
        if len(chosen) != count:
            raise UserError(f"{len(chosen)} actions were given for the {count} agents of {self.scenario.map.name}.")
        for agent, action in enumerate(chosen):
            if not 0 <= action < legal.shape[1] or not legal[agent, action]:
                raise UserError(
                    f"agent {agent} chose action {action}, which is not legal now; "
                    f"legal are {', '.join(map(str, np.flatnonzero(legal[agent])))}."
                )
        return chosen


@partial(jax.jit, static_argnums=0)
def _orders(scenario: Scenario, state: BattleState, actions: Int[Array, " agent"]) -> Orders:
    return targeting.orders_from_actions(scenario.cast(state.hp.dtype), battle.where(state), actions)


@partial(jax.jit, static_argnums=(0, 4))
def _tick(
    scenario: Scenario, state: BattleState, orders: Orders, turn_order: Int[Array, " unit"], correct_walls: bool
) -> Tick:
    return battle.play_tick(scenario, state, orders, turn_order, correct_walls)
