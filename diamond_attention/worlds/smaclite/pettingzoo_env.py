"""SMAClite as a PettingZoo parallel environment: agents by name, the dead leave, legal actions in `action_mask`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite.scenario import NOOP
from diamond_attention.worlds.smaclite.stepped import SteppedBattle

try:
    from gymnasium import spaces
    from gymnasium.utils import seeding
    from pettingzoo import ParallelEnv
except ImportError:
    raise UserError(
        'PettingZoo is not installed; install it with: pip install "diamond-attention[smaclite]".'
    ) from None


class SmacliteParallelEnv(ParallelEnv):
    """One battle after the other on one map, cut at SMAC's time limit for it or at `time_limit`."""

    metadata = {"name": "smaclite_v0", "render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - as above

    def __init__(self, map_name: str = "2s3z", time_limit: int | None = None, render_mode: str | None = None):
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; it must be rgb_array, or nothing.")
        self.render_mode = render_mode
        self._battle = SteppedBattle(map_name)
        scenario = self._battle.scenario
        self._time_limit = scenario.map.time_limit if time_limit is None else time_limit
        self._steps = 0
        self._generator, _ = seeding.np_random()
        self.possible_agents = [f"agent_{index}" for index in range(scenario.number_of_agents)]
        self.agents: list[str] = []
        actions = scenario.number_of_actions
        self._action_spaces = {name: spaces.Discrete(actions) for name in self.possible_agents}
        self._observation_spaces = {
            name: spaces.Dict(
                {
                    "observation": spaces.Box(-1.0, 1.0, (self._battle.obs_size,), np.float32),
                    "action_mask": spaces.Box(0, 1, (actions,), np.int8),
                }
            )
            for name in self.possible_agents
        }
        self.state_space = spaces.Box(-np.inf, np.inf, (self._battle.state_size,), np.float32)

    def observation_space(self, agent: str) -> spaces.Space:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict | None = None
    ) -> tuple[dict[str, dict[str, NDArray]], dict[str, dict]]:
        if seed is not None:
            self._generator, _ = seeding.np_random(seed)
        self._battle.reset()
        self._steps = 0
        self.agents = list(self.possible_agents)
        return self._seen_by(self.agents), {name: {"battle_won": False} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        acting = self.agents
        if set(actions) != set(acting):
            raise UserError(f"actions were given for {sorted(actions)}, but {sorted(acting)} are alive.")
        chosen = [actions.get(name, NOOP) for name in self.possible_agents]
        reward, done, won = self._battle.step(chosen, self._generator)
        self._steps += 1
        cut = not done and self._steps >= self._time_limit
        alive = dict(zip(self.possible_agents, self._battle.agents_alive.tolist(), strict=True))
        self.agents = [name for name in acting if alive[name] and not done and not cut]
        return (
            self._seen_by(acting),
            dict.fromkeys(acting, reward),
            {name: done or not alive[name] for name in acting},
            {name: cut and alive[name] for name in acting},
            {name: {"battle_won": won} for name in acting},
        )

    def state(self) -> NDArray[np.float32]:
        """The whole battle, for critics and mixers that may know it while training."""
        return self._battle.state_vector()

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        from diamond_attention.worlds.smaclite.picture import draw_battle

        return np.asarray(draw_battle(self._battle.scenario, self._battle.state, f"step {self._steps}"))

    def close(self) -> None:
        pass

    def _seen_by(self, names: list[str]) -> dict[str, dict[str, NDArray]]:
        seen, legal = self._battle.observations(), self._battle.legal_actions()
        rows = {name: index for index, name in enumerate(self.possible_agents)}
        return {
            name: {"observation": seen[rows[name]], "action_mask": legal[rows[name]].astype(np.int8)}
            for name in names
        }
