"""GSA and pH-MARL: what they are told, their matrices, their energies, and how many parameters the originals have."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.build import build_policy
from diamond_attention.errors import UserError
from diamond_attention.evaluation.conditions import check_sizes
from diamond_attention.policies.gsa import GsaSettings
from diamond_attention.policies.neighbours import ChannelNetwork, Space, neighbourhoods
from diamond_attention.policies.port_hamiltonian import (
    DRAG,
    PortHamiltonianSettings,
    dissipation_matrix,
    exchange_strengths,
)
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Particles
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

SPREAD = Spread(max_agents=3, max_tasks=3)
XOR = Xor(max_agents=3, max_tasks=3)
PLANE = Space(2, real=True)
KINDS = [GsaSettings(), GsaSettings(one_sided=True, goal="nearest"), PortHamiltonianSettings()]


def seen_in(world, seed: int = 0, size: TeamSize | None = None):
    state = world.reset(jax.random.key(seed), size or TeamSize(world.max_agents, world.max_tasks))
    return world.views(state, jnp.zeros(world.max_agents, jnp.float32)), state


def parameters(tree) -> int:
    return sum(x.size for x in jax.tree.leaves(tree))


# --- What an agent hears --------------------------------------------------------------------------


def test_neighbours_tell_place_velocity_and_goal_weighted_by_distance():
    state = Particles(
        positions=jnp.asarray([[0.0, 0.0], [0.3, 0.0], [2.0, 0.0]]),
        velocities=jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        tasks=jnp.asarray([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        agent_present=jnp.ones(3, bool),
        task_present=jnp.ones(3, bool),
    )
    views = SPREAD.views(state, jnp.zeros(3))
    own = neighbourhoods(views, PLANE, "own", 0.45)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    # Agent 1 lists itself, agent 0 at a distance of 0.3, and agent 2, which is out of reach.
    np.testing.assert_allclose(own.own[1], [0.3, 0.0, 3.0, 4.0, -0.3, 1.0], atol=1e-6)
    np.testing.assert_allclose(own.heard[1, 0], sigmoid(0.9) * np.asarray(own.own[1]), rtol=1e-5)
    np.testing.assert_allclose(own.heard[1, 1], sigmoid(0.3) * np.array([0, 0, 1, 2, 0.5, 0]), atol=1e-5)
    np.testing.assert_array_equal(own.heard[1, 2], 0.0)
    # The nearest landmark of agent 1 is number 0; by its number it was told 1.
    nearest = neighbourhoods(views, PLANE, "nearest", 0.45)
    np.testing.assert_allclose(nearest.own[1, 4:], [0.2, 0.0], atol=1e-6)


def test_only_by_their_numbers_are_agents_told_apart():
    """Agents that change places change answers where goals are the nearest; by number they do not simply do so."""
    views, state = seen_in(SPREAD)
    order = jnp.asarray([2, 0, 1])
    moved = state._replace(positions=state.positions[order], velocities=state.velocities[order])
    swapped = SPREAD.views(moved, jnp.zeros(3))
    for goal, same in (("nearest", True), ("own", False)):
        policy = build_policy(SPREAD, GsaSettings(goal=goal, radius=5.0), jax.random.key(0))
        before, after = policy.answers(views).mean, policy.answers(swapped).mean
        assert np.allclose(before[order], after, atol=1e-4) == same


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: s.kind)
def test_places_that_nobody_takes_change_nothing(settings):
    """The same three agents in a world with room for five answer the same."""
    policy = build_policy(SPREAD, settings, jax.random.key(1))
    wide = replace(SPREAD, max_agents=5, max_tasks=5)
    _, state = seen_in(SPREAD)
    pad = lambda x: jnp.concatenate([x, jnp.zeros((2, *x.shape[1:]), x.dtype)])  # noqa: E731
    padded = jax.tree.map(pad, state)
    small, large = SPREAD.views(state, jnp.zeros(3)), wide.views(padded, jnp.zeros(5))
    answers = jax.jit(lambda policy, views: policy.answers(views).mean)
    np.testing.assert_allclose(answers(policy, small), answers(policy, large)[:3], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: s.kind)
def test_in_xor_equal_players_answer_equally(settings):
    policy = build_policy(XOR, settings, jax.random.key(0))
    views, _ = seen_in(XOR)
    logits = np.asarray(policy.answers(views).logits)
    np.testing.assert_allclose(logits, np.broadcast_to(logits[0], logits.shape), atol=1e-6)
    assert np.ptp(logits[0]) > 0  # and not only because all answers are equal


def test_a_world_without_places_is_refused_in_a_sentence():
    battle = Smaclite("2s_vs_1sc")
    with pytest.raises(UserError, match=r"policy\.kind gsa needs agents with places and velocities"):
        build_policy(replace(battle, max_agents=2, max_tasks=1), GsaSettings(), jax.random.key(0))
    with pytest.raises(UserError, match=r"policy\.goal is 'other'; it must be one of own, nearest"):
        PortHamiltonianSettings(goal="other")


# --- Networks -------------------------------------------------------------------------------------


def test_there_are_as_many_parameters_as_in_the_originals():
    assert parameters(build_policy(SPREAD, GsaSettings(), jax.random.key(0))) == 1_564
    assert parameters(build_policy(SPREAD, PortHamiltonianSettings(), jax.random.key(0))) == 5_147


def test_attention_over_channels_by_hand():
    """softmax(Q Kᵀ) V with channels as rows, over the agents that are there."""
    network = ChannelNetwork(3, 2, 1, key=jax.random.key(0))
    layer, tokens = network.first, jax.random.normal(jax.random.key(1), (3, 4))
    present = np.array([True, True, False])
    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    q, k, v = (
        silu(np.asarray(w) @ np.asarray(tokens)[present].T + np.asarray(b))
        for w, b in zip(layer.weights, layer.biases, strict=True)
    )
    scores = np.exp(q @ k.T - (q @ k.T).max(axis=1, keepdims=True))
    expected = silu((scores / scores.sum(axis=1, keepdims=True) @ v).T)
    np.testing.assert_allclose(
        np.asarray(layer(tokens, jnp.asarray(present)))[present], expected, rtol=1e-4, atol=1e-5
    )


def test_as_released_gsa_hardly_ever_pushes_backwards():
    views, _ = seen_in(SPREAD)
    for one_sided in (True, False):
        lowest = min(
            float(
                jnp.min(build_policy(SPREAD, GsaSettings(one_sided=one_sided), jax.random.key(i)).answers(views).mean)
            )
            for i in range(20)
        )
        assert (lowest >= -0.2785) == one_sided


# --- Port-Hamiltonian systems ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0, 1, 2])
def system(request):
    policy = build_policy(SPREAD, PortHamiltonianSettings(radius=5.0), jax.random.key(request.param))
    views, _ = seen_in(SPREAD, seed=request.param)
    return policy, views, neighbourhoods(views, PLANE, "own", 5.0)


def test_what_is_lost_is_never_negative(system):
    """R is symmetric and positive semi-definite."""
    policy, _, near = system
    lost, _ = policy.said_of_neighbours(near.heard, near.present)
    matrix = np.asarray(dissipation_matrix(lost, near.present)).reshape(6, 6)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-5, atol=1e-6)
    assert np.linalg.eigvalsh(matrix.astype(np.float64)).min() >= -1e-5 * np.abs(matrix).max()
    # A row's own entry is at least the sum of the others, which is why.
    others = np.abs(matrix).sum(axis=1) - np.diag(matrix)
    assert np.all(np.diag(matrix) >= others * (1 - 1e-5))
    assert np.all(np.diag(matrix) > 0)


def test_the_gradient_of_the_energy_is_that_of_finite_differences(system):
    policy, _, near = system
    own = near.own[0]
    gradient = jax.grad(policy.hamiltonian)(own)
    assert float(policy.hamiltonian(own)) >= 0
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: x.astype(jnp.float64), policy)
        x = own.astype(jnp.float64)
        for i in range(6):
            step = jnp.zeros(6, jnp.float64).at[i].set(1e-5)
            slope = (exact.hamiltonian(x + step) - exact.hamiltonian(x - step)) / 2e-5
            assert float(gradient[i]) == pytest.approx(float(slope), rel=2e-3, abs=1e-4)


def test_forces_are_those_of_the_equations(system):
    """u = ẋ_velocity + 0.25 ẋ_place with ẋ = (J − R) ∇H, J skew-symmetric, all as whole matrices."""
    policy, views, near = system
    lost, exchange = policy.said_of_neighbours(near.heard, near.present)
    r = np.asarray(dissipation_matrix(lost, near.present)).reshape(6, 6)  # agent, then part
    j = np.zeros((6, 6))
    for i, strength in enumerate(np.asarray(exchange_strengths(exchange))):
        j[2 * i, 2 * i + 1], j[2 * i + 1, 2 * i] = strength, -strength
    np.testing.assert_array_equal(j, -j.T)
    slopes = np.asarray(jax.vmap(jax.grad(policy.hamiltonian))(near.own))[:, :4].reshape(6, 2)
    motion = (j - r) @ slopes
    forces = motion[1::2] + DRAG * motion[0::2]
    np.testing.assert_allclose(policy.answers(views).mean, forces, rtol=1e-3, atol=1e-3)
    # So energy never grows: dH/dt = −∇Hᵀ R ∇H.
    assert np.sum(slopes * motion) <= 1e-4 * np.sum(slopes**2)


# --- Any team size --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gsa", "ph-marl"])
def test_trained_at_one_size_they_may_play_every_other(name):
    settings = with_method(Settings(world=Food(), agents="4", tasks="4"), name)
    check_sizes(settings, settings.world, [TeamSize(2, 4), TeamSize(8, 8), TeamSize(3, 2)])
    xor = with_method(Settings(agents="2", tasks="3"), name)
    check_sizes(xor, xor.world, [TeamSize(3, 3)])
    with pytest.raises(UserError, match=rf"policy\.kind {name} plays only teams of the size it was trained on, 2x3"):
        check_sizes(xor, xor.world, [TeamSize(4, 4)])  # another number of actions: another space
