"""Every world in the package keeps the contract, and the check notices one that does not."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.worlds.conformance import ConformanceError, check_world
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.registry import WORLDS
from diamond_attention.worlds.xor import Xor, action_features, chance_level


# Where a map decides the sizes, tests/smaclite checks it on several.
@pytest.mark.parametrize("name", [name for name, kind in WORLDS.items() if kind().sizes is None])
@pytest.mark.parametrize("size", [TeamSize(2, 2), TeamSize(3, 3), TeamSize(3, 4)])
def test_worlds_keep_the_contract(name, size):
    world = WORLDS[name](max_agents=4, max_tasks=5)
    try:
        world.check_size(size)
    except UserError:
        size = TeamSize(size.agents, size.agents)
    check_world(world, size)


@pytest.mark.parametrize("name", ["spread", "food"])
def test_worlds_keep_the_contract_where_all_start_from_one_point(name):
    check_world(WORLDS[name](start="depot", max_agents=4, max_tasks=5), TeamSize(3, 3))


@dataclasses.dataclass(frozen=True)
class NamedPlayers(Xor):
    """Writes each player's number into its features."""

    def views(self, state, ranks):
        views = super().views(state, ranks)
        return views._replace(agents=views.agents + jnp.arange(self.max_agents)[:, None, None])


@dataclasses.dataclass(frozen=True)
class ReadableRanks(Xor):
    def views(self, state, ranks):
        views = super().views(state, ranks)
        return views._replace(agents=views.agents + views.ranks[:, :, None])


@dataclasses.dataclass(frozen=True)
class OwnRandomness(Xor):
    def step(self, state, actions, key):
        transition = super().step(state, actions, key)
        return transition._replace(reward=transition.reward + next(COUNTER))


@dataclasses.dataclass(frozen=True)
class GhostsMatter(Xor):
    def step(self, state, actions, key):
        transition = super().step(state, actions, key)
        return transition._replace(reward=transition.reward + jnp.sum(actions))


@dataclasses.dataclass(frozen=True)
class HalfPrecisionRanks(Xor):
    def views(self, state, ranks):
        views = super().views(state, ranks)
        return views._replace(ranks=views.ranks.astype(jnp.bfloat16))


@dataclasses.dataclass(frozen=True)
class NotFinite(Xor):
    def step(self, state, actions, key):
        return super().step(state, actions, key)._replace(reward=jnp.asarray(jnp.nan))


@dataclasses.dataclass(frozen=True)
class ScoredElsewhere(Xor):
    def as_scored(self):
        return dataclasses.replace(self, max_agents=self.max_agents + 1)


COUNTER = itertools.count()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (NamedPlayers, "tells agents apart"),
        (ReadableRanks, "depends on the ranks"),
        (OwnRandomness, "same arguments|absent agents"),
        (GhostsMatter, "absent agents"),
        (HalfPrecisionRanks, "float32"),
        (NotFinite, "not finite"),
        (ScoredElsewhere, "as_scored"),
    ],
)
def test_the_check_notices(broken, sentence):
    with pytest.raises(ConformanceError, match=sentence):
        check_world(broken(max_agents=4, max_tasks=5), TeamSize(2, 3))


def play(players: int, actions: int, chosen: list[int], shaped: bool = False, padding: int = 0):
    world = Xor(shaped=shaped, max_agents=players + padding, max_tasks=actions + padding)
    state = world.reset(jax.random.key(0), TeamSize(players, actions))
    everyone = jnp.array(chosen + [0] * padding)
    return world.step(state, everyone, jax.random.key(0))


def test_xor_rewards_only_all_different():
    assert float(play(2, 2, [0, 1]).reward) == 1
    assert float(play(2, 2, [1, 1]).reward) == 0
    assert float(play(3, 5, [4, 0, 2]).reward) == 1
    assert float(play(3, 5, [4, 0, 4]).reward) == 0
    assert bool(play(2, 2, [0, 1]).terminated)


def test_shaping_changes_the_reward_and_not_the_score():
    shaped = play(4, 4, [0, 0, 1, 2], shaped=True)
    assert float(shaped.reward) == pytest.approx(3 / 4)
    assert float(shaped.measures["success"]) == 0
    assert float(play(4, 4, [3, 0, 1, 2], shaped=True).measures["success"]) == 1


def test_absent_players_do_not_play():
    assert float(play(2, 2, [0, 1], padding=3).reward) == 1


def test_floor_is_the_success_of_uniform_play():
    assert chance_level(2, 2) == pytest.approx(0.5)
    assert chance_level(3, 3) == pytest.approx(6 / 27)
    assert chance_level(2, 3) == pytest.approx(2 / 3)
    world = Xor(max_agents=3, max_tasks=3)
    state = world.reset(jax.random.key(0), TeamSize(3, 3))
    actions = jax.random.randint(jax.random.key(1), (20_000, 3), 0, 3)
    rate = jax.vmap(lambda a: world.step(state, a, jax.random.key(0)).reward)(actions).mean()
    assert float(rate) == pytest.approx(chance_level(3, 3), abs=0.01)


def test_every_player_sees_the_same():
    world = Xor(max_agents=3, max_tasks=3)
    views = world.views(world.reset(jax.random.key(0), TeamSize(3, 3)), jnp.float32([0.1, 0.2, 0.3]))
    for name in ("agents", "tasks", "agent_present", "task_present"):
        first, *others = np.asarray(getattr(views, name))
        assert all(np.array_equal(first, other) for other in others)


def test_action_features_tell_any_number_of_actions_apart():
    features = np.asarray(action_features(64))
    distances = np.linalg.norm(features[:, None] - features[None], axis=-1) + np.eye(64) * 9
    assert distances.min() > 0.05
    np.testing.assert_array_equal(features[:5], action_features(5))
