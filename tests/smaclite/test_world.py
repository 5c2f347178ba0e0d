"""SMAClite through the contract of worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.runs.settings import Settings, from_json, to_json
from diamond_attention.worlds.conformance import check_world
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.smaclite.maps import MAPS
from diamond_attention.worlds.smaclite.scenario import FIRST_TARGET, NOOP, STOP
from diamond_attention.worlds.smaclite.world import UNIT_TYPE_NAMES, Smaclite, size_of

PADDED = Smaclite("2s3z", max_agents=8, max_tasks=9)
RANKS = jnp.arange(8, dtype=jnp.float32)


def test_views_show_who_is_near_and_alive():
    state = PADDED.reset(jax.random.key(0), PADDED.sizes[0])
    state.enemies["position"] = state.enemies["position"].at[0].set(jnp.array([7.875, 17.45]))
    state.agents["alive"] = state.agents["alive"].at[4].set(False)
    views = PADDED.views(state, RANKS)
    assert views.agents.shape[:2] == (8, 8)
    assert views.tasks.shape[:2] == (8, 9)
    assert views.legal_actions.shape == (8, FIRST_TARGET + 9)
    np.testing.assert_array_equal(views.agent_present[0], [True] * 4 + [False] * 4)
    np.testing.assert_array_equal(views.task_present[0], [True] + [False] * 8)
    # Enemy 0 from agent 0: two away to the north, unhurt, a stalker, and a legal target.
    types = [name == "stalker" for name in UNIT_TYPE_NAMES]
    np.testing.assert_allclose(views.tasks[0, 0], [2 / 9, 0, 2 / 9, 1, 1, *types, 1], atol=1e-6)
    # The dead and the padding see nobody, and can do nothing but nothing.
    for absent in (4, 7):
        assert not np.asarray(views.agent_present[absent]).any()
        assert not np.asarray(views.task_present[absent]).any()
        np.testing.assert_array_equal(np.flatnonzero(views.legal_actions[absent]), [NOOP])
    team = PADDED.team_view(state)
    assert np.asarray(team.agent_present).sum() == 4
    assert np.asarray(team.task_present).sum() == 5


def test_a_step_moves_the_battle_and_leaves_the_padding_alone():
    key = jax.random.key(5)
    state = PADDED.reset(key, PADDED.sizes[0])
    actions = jnp.array([STOP] * 5 + [NOOP] * 3)
    transition = PADDED.step(state, actions, key)
    # The enemies come closer, those who were told to stop stand, the padding stays what it is.
    way = np.asarray(transition.state.enemies["position"] - state.enemies["position"])
    assert (way[:5, 0] < -1).all()
    assert not way[5:].any()
    np.testing.assert_array_equal(transition.state.agents["position"], state.agents["position"])
    np.testing.assert_array_equal(transition.state.last_actions[:5], [STOP] * 5)
    assert not np.asarray(transition.state.agents["alive"][5:]).any()
    assert transition.measures["battle_won"] == 0.0
    assert not transition.terminated


def test_a_healer_s_tasks_are_its_patients():
    world = Smaclite("MMM2", max_agents=10, max_tasks=12)
    views = world.views(world.reset(jax.random.key(0), world.sizes[0]), jnp.zeros(10, jnp.float32))
    # The medivac is agent 0: it sees its nine comrades, never itself; the others see no enemy yet.
    np.testing.assert_array_equal(views.task_present[0], [False] + [True] * 9 + [False] * 2)
    np.testing.assert_array_equal(views.legal_actions[0, FIRST_TARGET:], views.task_present[0])
    assert not np.asarray(views.task_present[1:]).any()


def test_sizes_are_the_map_s():
    with pytest.raises(UserError, match="always played with 5 agents and 5 tasks"):
        PADDED.check_size(TeamSize(4, 5))
    with pytest.raises(UserError, match="needs room for 8 agents"):
        Smaclite("3s5z").check_size(TeamSize(8, 8))
    PADDED.check_size(PADDED.sizes[0])
    # A size says which map is meant, so no two maps may share one.
    assert len({size_of(name) for name in MAPS}) == len(MAPS) == 12


@pytest.mark.parametrize("wrong", ["8m", "2s3z,8m", "2s3z,2s3z", ""])
def test_an_unknown_map_names_the_twelve(wrong):
    with pytest.raises(UserError, match=r"world\.map is .*2s3z, 3s5z, .*2c_vs_64zg"):
        Smaclite(wrong)
    with pytest.raises(UserError, match=r"world\.jitter is -1"):
        Smaclite("2s3z", jitter=-1)
    with pytest.raises(UserError, match=r"world\.jitter_share is 1\.5; it must lie between 0 and 1"):
        Smaclite("2s3z", jitter_share=1.5)


def test_jitter_applies_to_its_share_of_the_episodes():
    world = Smaclite("2s3z", jitter=0.5, jitter_share=0.25)
    keys = jax.random.split(jax.random.key(0), 1024)
    starts = jax.jit(jax.vmap(lambda key: world.reset(key, world.sizes[0])))(keys)
    own_place = Smaclite("2s3z").reset(keys[0], world.sizes[0])
    apart = np.asarray(jnp.abs(starts.agents["position"] - own_place.agents["position"]).max(axis=(1, 2)))
    scattered = apart > 0
    assert abs(scattered.mean() - 0.25) < 4 * (0.25 * 0.75 / 1024) ** 0.5
    assert apart[scattered].min() > 0.1
    assert apart.max() <= 0.5 + 1e-5
    # The scattered ones are those that jitter alone would give.
    alone = jax.vmap(lambda key: Smaclite("2s3z", jitter=0.5).reset(key, world.sizes[0]))(keys)
    np.testing.assert_array_equal(starts.enemies["position"][scattered], alone.enemies["position"][scattered])


@pytest.mark.parametrize(
    "world",
    [
        Smaclite("2s3z", jitter=0.3),
        Smaclite("3s_vs_5z", max_agents=7, max_tasks=8),
        Smaclite("2s3z", jitter=2.0, jitter_share=0.5),
    ],
    ids=lambda world: f"{world.map} {world.jitter}",
)
def test_it_keeps_the_contract(world):
    check_world(world)


def test_each_episode_of_a_mixture_is_played_on_the_map_of_its_size():
    mixture = Smaclite("3s_vs_5z,2s3z", max_agents=5, max_tasks=5)
    key = jax.random.key(3)
    sizes = jnp.asarray([size_of("2s3z"), size_of("3s_vs_5z")])

    def begin_and_step(size):
        state = mixture.reset(key, TeamSize(size[0], size[1]))
        transition = mixture.step(state, jnp.full(5, STOP), key)
        return transition, mixture.views(transition.state, RANKS[:5])

    together = jax.jit(jax.vmap(begin_and_step))(sizes)
    for index, name in enumerate(["2s3z", "3s_vs_5z"]):
        alone = Smaclite(name, max_agents=5, max_tasks=5)
        transition = alone.step(alone.reset(key, alone.sizes[0]), jnp.full(5, STOP), key)
        views = alone.views(transition.state, RANKS[:5])
        mixed_transition, mixed_views = jax.tree.map(lambda x: x[index], together)  # noqa: B023 - used at once
        np.testing.assert_array_equal(mixed_transition.state.map, 1 - index)
        for mixed, own in zip(
            jax.tree.leaves((mixed_transition._replace(state=mixed_transition.state._replace(map=0)), mixed_views)),
            jax.tree.leaves((transition._replace(state=transition.state._replace(map=0)), views)),
            strict=True,
        ):
            np.testing.assert_allclose(mixed, own, atol=1e-5)


def test_settings_take_the_sizes_from_the_maps():
    settings = Settings(world=Smaclite("2s3z,MMM2"), agents="map", tasks="map")
    assert settings.sizes == (TeamSize(5, 5), TeamSize(10, 12))
    assert (settings.world.max_agents, settings.world.max_tasks) == (10, 12)
    assert from_json(to_json(settings)) == settings
    with pytest.raises(UserError, match=r"the map decides.*5x5, 10x12"):
        Settings(world=Smaclite("2s3z,MMM2"), agents="4", tasks="map")
    with pytest.raises(UserError, match="agents is 'map'"):
        Settings(agents="map")
