"""XOR in long episodes, for worlds in which something breaks after a few steps."""

from dataclasses import dataclass

import jax.numpy as jnp

from diamond_attention.worlds.contract import TeamSize, Transition, World
from diamond_attention.worlds.xor import Xor


@dataclass(frozen=True)
class LongXor(World):
    """Its state holds `game`, an XOR game that never ends, and `step`, the steps since the episode began."""

    max_agents: int = 2
    max_tasks: int = 2

    time_limit = 64

    @property
    def xor(self) -> Xor:
        return Xor(max_agents=self.max_agents, max_tasks=self.max_tasks)

    @property
    def action_kind(self):
        return self.xor.action_kind

    def check_size(self, size: TeamSize) -> None:
        self.xor.check_size(size)

    def step(self, state, actions, key) -> Transition:
        played = self.xor.step(state.game, actions, key)
        return Transition(
            state=state._replace(step=state.step + 1),
            reward=played.reward,
            terminated=jnp.asarray(False),
            measures={"distinct": played.measures["distinct"]},
        )

    def views(self, state, ranks):
        return self.xor.views(state.game, ranks)

    def team_view(self, state):
        return self.xor.team_view(state.game)
