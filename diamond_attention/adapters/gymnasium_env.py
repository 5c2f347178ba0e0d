"""A team as one agent of Gymnasium: everybody's observations as rows, everybody's actions at once, one reward.

    import gymnasium
    import diamond_attention.adapters.gymnasium_env

    env = gymnasium.make("diamond/spread-v0", agents=4)
    envs = gymnasium.make_vec("diamond/spread-v0", num_envs=64, vectorization_mode="vector_entry_point", agents=4)

The vector environment is one compiled program for all its teams. It begins new episodes as Gymnasium's own vector
environments do (`AutoresetMode.NEXT_STEP`): a step that ends an episode still returns its last observation, and the
step after it, whatever its actions, returns the first of the next, with reward 0. So a value is never bootstrapped
from another episode, and nothing has to be looked up in infos; of every episode one step is no step of the game.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from diamond_attention.actions import Actions
from diamond_attention.adapters.game import Episode, Game, begin_numbered, game_of, seed_given
from diamond_attention.errors import UserError
from diamond_attention.ranges import Between, check_number
from diamond_attention.runs.seeds import SEED
from diamond_attention.worlds.contract import World
from diamond_attention.worlds.registry import WORLDS

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError:
    raise UserError(
        'Gymnasium is not installed; install it with: pip install "diamond-attention[adapters]".'
    ) from None

ENVS = Between(1, 2**20)


class Shown(NamedTuple):
    """What one team is shown after a step or a reset."""

    observation: Float[Array, "agent feature"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    told: dict[str, Array]
    """The step's measures, and which choices are legal for each agent where some are not."""


class TeamEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One team."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own name and type

    def __init__(
        self,
        world: World | str,
        agents: int | str | None = None,
        tasks: int | str | None = None,
        *,
        time_limit: int | None = None,
        discrete_actions: bool = False,
    ):
        """World, sizes and time limit as `game_of` takes them."""
        self._game = game_of(world, agents, tasks, time_limit, discrete_actions)
        self.observation_space, self.action_space = _spaces(self._game)
        self._episode: Episode | None = None
        self._over = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A seed's first episode; without one the next episode. There are no options."""
        goes_on = seed is None and self._episode is not None
        given = None if goes_on else seed_given(seed)
        super().reset(seed=seed)
        which: tuple[Any, Any] = (given, np.int32(0))
        if goes_on and self._episode is not None:
            which = self._episode.seed, self._episode.number + 1
        self._episode, first = _begin(self._game, *which)
        self._over = False
        shown = _as_numpy(first)
        return shown.observation, shown.told

    def step(self, actions: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._episode is None or self._over:
            raise UserError("there is no running episode; call reset() first.")
        chosen = self._game.checked(actions, (self._game.agents,), "the team's action")
        self._episode, reached = _step(self._game, self._episode, chosen)
        shown = _as_numpy(reached)
        terminated, truncated = bool(shown.terminated), bool(shown.truncated)
        self._over = terminated or truncated
        return shown.observation, float(shown.reward), terminated, truncated, shown.told


class TeamVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` teams, each in a world of its own, stepped by one compiled program."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as above

    def __init__(
        self,
        world: World | str,
        agents: int | str | None = None,
        tasks: int | str | None = None,
        *,
        num_envs: int = 1,
        time_limit: int | None = None,
        discrete_actions: bool = False,
    ):
        """As `TeamEnv`."""
        check_number("num_envs", num_envs, ENVS)
        self._game = game_of(world, agents, tasks, time_limit, discrete_actions)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(self._game)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes: Episode | None = None
        self._over: Any = None

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Seeds as Gymnasium's vector environments take them: a number is the first team's, and counts up."""
        seeds = self._seeds(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seeds is None and self._episodes is not None:
            which: tuple[Any, Any] = (self._episodes.seed, self._episodes.number + 1)
        else:
            which = (seeds, np.zeros(self.num_envs, np.int32))
        self._episodes, first = _begin_all(self._game, *which)
        self._over = np.zeros(self.num_envs, bool)
        shown = _as_numpy(first)
        return shown.observation, _for_all(shown.told)

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._episodes is None:
            raise UserError("there is no running episode; call reset() first.")
        chosen = self._game.checked(actions, (self.num_envs, self._game.agents), "the teams' actions")
        self._episodes, reached = _step_all(self._game, self._episodes, self._over, chosen)
        shown = _as_numpy(reached)
        self._over = shown.terminated | shown.truncated
        rewards = shown.reward.astype(np.float64)
        return shown.observation, rewards, shown.terminated, shown.truncated, _for_all(shown.told)

    def _seeds(self, seed: int | Sequence[int] | None) -> np.ndarray | None:
        """One for each team; None where the episodes that run decide what follows."""
        if seed is None and self._episodes is not None:
            return None
        if seed is None or isinstance(seed, int):
            first = int(seed_given(seed))
            return (np.arange(self.num_envs, dtype=np.uint64) + first).astype(np.uint32)
        if len(seed) != self.num_envs:
            raise UserError(
                f"{len(seed)} seeds were given for {self.num_envs} teams; give one for each, or a number."
            )
        for one in seed:
            check_number("seed", one, SEED)
        return np.asarray(seed, np.uint32)


def _spaces(game: Game) -> tuple[spaces.Space, spaces.Space]:
    """Of one team's observations and actions."""
    rows = jax.eval_shape(lambda: game.flat(game.begin(jax.random.key(0))))
    actions: spaces.Space = spaces.Box(-1.0, 1.0, (game.agents, game.components), np.float32)
    if game.chooses:
        actions = spaces.MultiDiscrete([game.choices] * game.agents, dtype=np.int32)
    return spaces.Box(-np.inf, np.inf, rows.shape, np.float32), actions


@partial(jax.jit, static_argnums=0)
def _begin(game: Game, seed: Any, number: Any) -> tuple[Episode, Shown]:
    episode = begin_numbered(game, seed, number)
    nothing_yet = dict.fromkeys(episode.team.episode_measures, jnp.zeros(()))
    told = {**nothing_yet, **_masks(game, episode)}
    shown = Shown(game.flat(episode.team), jnp.zeros(()), jnp.asarray(False), jnp.asarray(False), told)
    return episode, shown


@partial(jax.jit, static_argnums=0)
def _step(game: Game, episode: Episode, actions: Actions) -> tuple[Episode, Shown]:
    turn = game.step(episode.team, game.as_world_takes(actions), episode.step_key)
    episode = episode._replace(team=turn.team)
    measures = {name: jnp.asarray(value, jnp.float32) for name, value in turn.measures.items()}
    told = {**measures, **_masks(game, episode)}
    return episode, Shown(game.flat(turn.team), turn.reward, turn.terminated, turn.truncated, told)


def _masks(game: Game, episode: Episode) -> dict[str, Array]:
    return {"action_mask": game.legal(episode.team).astype(jnp.int8)} if game.forbids else {}


@partial(jax.jit, static_argnums=0)
def _begin_all(game: Game, seeds: Any, numbers: Any) -> tuple[Episode, Shown]:
    return jax.vmap(partial(_begin, game))(seeds, numbers)


@partial(jax.jit, static_argnums=0)
def _step_all(game: Game, episodes: Episode, over: Any, actions: Actions) -> tuple[Episode, Shown]:
    def one(episode: Episode, over: Array, actions: Actions) -> tuple[Episode, Shown]:
        went_on, began = _step(game, episode, actions), _begin(game, episode.seed, episode.number + 1)
        return jax.tree.map(lambda new, same: jnp.where(over, new, same), began, went_on)

    return jax.vmap(one)(episodes, over, actions)


def _as_numpy(shown: Shown) -> Any:
    """Copies of one's own, since what JAX gives cannot be written to."""
    return jax.tree.map(np.array, shown)


def _for_all(told: dict[str, np.ndarray]) -> dict[str, Any]:
    """With Gymnasium's word for whom a value is of: everybody."""
    return {**told, **{f"_{name}": np.ones(len(value), bool) for name, value in told.items()}}


for _name in WORLDS:
    _id = f"diamond/{_name}-v0"
    if _id not in gymnasium.registry:
        gymnasium.register(
            _id,
            entry_point=f"{__name__}:TeamEnv",
            vector_entry_point=f"{__name__}:TeamVectorEnv",
            kwargs={"world": _name},
        )
