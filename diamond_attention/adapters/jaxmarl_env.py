"""Any world as a JaxMARL environment: a `MultiAgentEnv`, which its scripts compile together with their learners.

JaxMARL's wrappers and scripts know what an environment can do by its name: those with "smax" in it are asked for
legal actions, for one vector of all there is to know (`obs["world_state"]`) and for one reward of the team. All of
that is true of every world here, so the name of each says so.

JaxMARL has no truncation: an episode that the clock ends is done like any other. `info["truncated"]` tells it apart.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from diamond_attention.adapters.game import game_of
from diamond_attention.errors import UserError
from diamond_attention.play import TeamState
from diamond_attention.worlds.contract import World

try:
    from jaxmarl.environments import spaces
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
except ImportError:
    raise UserError('JaxMARL is not installed; install it with: pip install "diamond-attention[jaxmarl]".') from None

Each = dict[str, Any]
"""One value for each agent, by its name."""


class WorldMultiAgentEnv(MultiAgentEnv):
    """One world, one flat observation and the team's reward for each agent."""

    def __init__(
        self,
        world: World | str,
        agents: int | str | None = None,
        tasks: int | str | None = None,
        *,
        time_limit: int | None = None,
        discrete_actions: bool = False,
    ):
        """World, sizes and time limit as `game_of` takes them. JaxMARL's own learners want discrete actions."""
        self.game = game_of(world, agents, tasks, time_limit, discrete_actions)
        super().__init__(self.game.agents)
        seen = jax.eval_shape(lambda: self._seen(self.game.begin(jax.random.key(0))))
        self.world_state_size = seen["world_state"].shape[0]
        self.observation_spaces = {
            name: spaces.Box(-jnp.inf, jnp.inf, seen[name].shape, jnp.float32) for name in self.agents
        }
        self.action_spaces = dict.fromkeys(
            self.agents,
            spaces.Discrete(self.game.choices)
            if self.game.chooses
            else spaces.Box(-1.0, 1.0, (self.game.components,), jnp.float32),
        )

    @property
    def name(self) -> str:
        return f"{self.game.world.name}, with what SMAX has"

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """All agents are alike."""
        return {"agent": self.agents}

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: PRNGKeyArray) -> tuple[dict[str, Array], TeamState]:
        team = self.game.begin(key)
        return self._seen(team), team

    def step_env(
        self, key: PRNGKeyArray, state: TeamState, actions: Mapping[str, Array]
    ) -> tuple[dict[str, Array], TeamState, Each, Each, dict[str, Array]]:
        """`info` has the step's measures, once for each agent as JaxMARL's scripts want it."""
        chosen = jnp.stack([self._one(name, actions) for name in self.agents])
        turn = self.game.step(state, self.game.as_world_takes(chosen), key)
        over = turn.terminated | turn.truncated
        gone = ~self.game.present(turn.team) | over
        done = {**dict(zip(self.agents, gone, strict=True)), "__all__": over}
        told = {**turn.measures, "truncated": turn.truncated.astype(jnp.float32)}
        info = {name: jnp.broadcast_to(value, (self.num_agents,)) for name, value in told.items()}
        return self._seen(turn.team), turn.team, dict.fromkeys(self.agents, turn.reward), done, info

    def get_obs(self, state: TeamState) -> dict[str, Array]:
        return self._seen(state)

    @partial(jax.jit, static_argnums=0)
    def get_avail_actions(self, state: TeamState) -> dict[str, Bool[Array, " choice"]]:
        if not self.game.chooses:
            raise UserError("actions are continuous, so none is illegal; set discrete_actions=True for a choice.")
        return dict(zip(self.agents, self.game.legal(state), strict=True))

    def get_world_state(self, state: TeamState) -> Float[Array, " feature"]:
        """All there is to know."""
        return self.game.state(state)

    def _seen(self, team: TeamState) -> dict[str, Array]:
        return {**dict(zip(self.agents, self.game.flat(team), strict=True)), "world_state": self.game.state(team)}

    def _one(self, name: str, actions: Mapping[str, Array]) -> Array:
        """One agent's action; JaxMARL's scripts give a number also as an array with one number in it."""
        if name not in actions:
            raise UserError(f"there is no action for {name}; give one for each of {', '.join(self.agents)}.")
        action = jnp.asarray(actions[name])
        shape = () if self.game.chooses else (self.game.components,)
        if action.size != math.prod(shape):
            raise UserError(f"the action of {name} has shape {action.shape}; it must have shape {shape}.")
        return action.reshape(shape)
