"""SMAClite's own Gymnasium interface over this engine, so that code written for the original runs on it unchanged.

    import gymnasium
    import diamond_attention.worlds.smaclite.gymnasium_env  # in place of `import smaclite`

    env = gymnasium.make("smaclite/2s3z-v0")

Observations come as a tuple with one array for each agent, actions go in as a list with one number for each. There
is no time limit, as in the original; Gymnasium's TimeLimit adds one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.stepped import SteppedBattle

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise UserError(
        'Gymnasium is not installed; install it with: pip install "diamond-attention[smaclite]".'
    ) from None

Observations = tuple[NDArray[np.float32], ...]


class SmacliteEnv(gymnasium.Env[Observations, Any]):
    """One battle after the other on one map."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - Gymnasium's own name and type

    def __init__(
        self, map_name: str = "2s3z", seed: int | None = None, render_mode: str | None = None, **ignored: Any
    ):
        """`ignored` are settings of the original that choose between its backends, such as use_cpp_rvo2."""
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; it must be rgb_array, or nothing.")
        self.render_mode = render_mode
        self._battle = SteppedBattle(map_name)
        self._steps = 0
        scenario = self._battle.scenario
        self.n_agents, self.n_enemies = scenario.number_of_agents, scenario.number_of_enemies
        self.n_actions = scenario.number_of_actions
        self.obs_size, self.state_size = self._battle.obs_size, self._battle.state_size
        self.action_space = spaces.Tuple([spaces.Discrete(self.n_actions) for _ in range(self.n_agents)])
        # What is seen lies within sight, and nobody has more than full health.
        box = spaces.Box(-1.0, 1.0, (self.obs_size,), np.float32)
        self.observation_space = spaces.Tuple([box for _ in range(self.n_agents)])
        if seed is not None:
            super().reset(seed=seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        super().reset(seed=seed)
        self._battle.reset()
        self._steps = 0
        return self.get_obs(), {"battle_won": False}

    def step(self, actions: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        reward, done, won = self._battle.step(actions, self.np_random)
        self._steps += 1
        return self.get_obs(), reward, done, False, {"battle_won": won}

    def get_obs(self) -> Observations:
        """One array for each agent; zeros for the dead."""
        return tuple(self._battle.observations())

    def get_state(self) -> NDArray[np.float32]:
        """The whole battle, for critics and mixers that may know it while training."""
        return self._battle.state_vector()

    def get_avail_actions(self) -> list[NDArray[np.int_]]:
        """For each agent, 1 where an action is legal now."""
        return [legal.astype(int) for legal in self._battle.legal_actions()]

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        from diamond_attention.worlds.smaclite.picture import draw_battle

        scenario = self._battle.scenario
        return np.asarray(draw_battle(scenario, self._battle.state, f"step {self._steps}"))


for _name in MAPS:
    _id = f"smaclite/{_name}-v0"
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point=SmacliteEnv, kwargs={"map_name": _name})
