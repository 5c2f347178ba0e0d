"""Dispatch: its rules by hand, its optimum by another method, and what private randomness reaches in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.evaluation.dispatch_rules import decide_by_rule, shares_by_rule
from diamond_attention.reports.depots import draw_depots
from diamond_attention.runs.folder import find_runs
from diamond_attention.theory.theorem import best_private_dispatch
from diamond_attention.worlds.conformance import check_world
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import Dispatch, DispatchState
from diamond_attention.worlds.dispatch_scene import AROUND, around

KEY = jax.random.key(0)


def at(depots, jobs, values, agents=None, wave=0) -> DispatchState:
    depots, jobs, values = (jnp.asarray(each, jnp.float32) for each in (depots, jobs, values))
    present = jnp.ones(len(depots), bool) if agents is None else jnp.arange(len(depots)) < agents
    return DispatchState(depots, jobs, values, present, jnp.ones(len(jobs), bool), jnp.asarray(wave))


def on_a_circle(vehicles: int, jobs: int, agents=None) -> DispatchState:
    """One depot in the middle, equal jobs one unit away."""
    angles = 2 * np.pi * np.arange(jobs) / jobs
    return at(np.zeros((vehicles, 2)), np.stack([np.cos(angles), np.sin(angles)], 1), np.ones(jobs), agents)


@pytest.mark.parametrize(
    ("world", "size"),
    [
        (Dispatch(max_agents=4, max_tasks=5), TeamSize(4, 5)),
        (Dispatch(max_agents=5, max_tasks=3, depots=5, waves=1), TeamSize(4, 2)),
        (Dispatch(max_agents=3, max_tasks=6, depots=2, travel_weight=1.0, value_spread=0.0), TeamSize(3, 6)),
    ],
)
def test_it_keeps_the_contract(world, size):
    check_world(world, size)


# --- Rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "reward", "served", "wasted"),
    [
        ([1, 2, 3], 3 - 3 * 0.3, 1.0, 0.0),
        ([1, 1, 2], 2 - 3 * 0.3, 2 / 3, 1 / 3),  # served once, and everybody pays
        ([1, 1, 1], 1 - 3 * 0.3, 1 / 3, 2 / 3),
        ([0, 1, 0], 1 - 0.3, 1 / 3, 0.0),  # who stays pays nothing
        ([0, 0, 0], 0.0, 0.0, 0.0),
    ],
)
def test_a_wave_by_hand(actions, reward, served, wasted):
    world = Dispatch(max_agents=3, max_tasks=3, waves=2)
    found = world.step(on_a_circle(3, 3), jnp.asarray(actions), KEY)
    assert float(found.reward) == pytest.approx(reward, abs=1e-6)
    optimum = 3 * 0.7
    measured = {name: 2 * float(value) for name, value in found.measures.items()}  # two waves: each is half
    assert measured == pytest.approx({"share": reward / optimum, "served": served, "wasted": wasted}, abs=1e-6)


def test_distances_and_values_count():
    state = at([[0, 0], [1, 1]], [[0.6, 0.8], [-1, 1]], [0.5, 1.5])
    world = Dispatch(max_agents=2, max_tasks=2, travel_weight=0.5)
    found = world.step(state, jnp.asarray([1, 2]), KEY)
    assert float(found.reward) == pytest.approx(0.5 + 1.5 - 0.5 * (1.0 + 2.0))


def test_jobs_that_are_served_are_replaced_and_the_others_wait():
    world, state = Dispatch(max_agents=2, max_tasks=3, waves=2), on_a_circle(2, 3)
    after = world.step(state, jnp.asarray([2, 0]), KEY)
    same = np.asarray(jnp.all(after.state.jobs == state.jobs, axis=1))
    assert same.tolist() == [True, False, True]
    assert not bool(after.terminated)
    assert bool(world.step(after.state, jnp.asarray([0, 0]), KEY).terminated)
    assert np.array_equal(after.state.depots, state.depots)


def test_vehicles_that_are_not_there_serve_and_pay_nothing():
    world = Dispatch(max_agents=3, max_tasks=3)
    found = world.step(on_a_circle(3, 3, agents=1), jnp.asarray([1, 2, 3]), KEY)
    assert float(found.reward) == pytest.approx(0.7)


# --- The optimum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("vehicles", "jobs"), [(4, 4), (2, 5), (5, 2), (1, 1), (7, 7)])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_optimum_is_scipys_and_only_the_optimum_scores_one(vehicles, jobs, weight):
    world = Dispatch(max_agents=vehicles, max_tasks=jobs, depots=vehicles, travel_weight=weight, waves=1)
    step = jax.jit(lambda state, actions: world.step(state, actions, KEY))
    for seed in range(5):
        state = world.reset(jax.random.key(seed), TeamSize(vehicles, jobs))
        gains = np.asarray(world.gains(state), np.float64)
        best_of = linear_sum_assignment(-np.maximum(gains, 0))
        best = np.maximum(gains, 0)[best_of].sum()
        assert float(world.optimum(state)[0]) == pytest.approx(best, abs=1e-5)
        actions = np.zeros(vehicles, int)
        for vehicle, job in zip(*best_of, strict=True):
            actions[vehicle] = job + 1 if gains[vehicle, job] > 0 else 0
        found = step(state, jnp.asarray(actions, jnp.int32))
        assert float(found.reward) == pytest.approx(best, abs=1e-5)
        assert float(found.measures["share"]) == pytest.approx(1.0, abs=1e-4)
        others = np.random.default_rng(seed).integers(0, jobs + 1, (20, vehicles), dtype=np.int32)
        shares = [float(step(state, jnp.asarray(each)).measures["share"]) for each in others]
        assert max(shares) <= 1 + 1e-4


def test_where_nothing_is_worth_the_way_staying_scores_one():
    state = at([[0, 0]], [[1, 0]], [0.5])
    world = Dispatch(max_agents=1, max_tasks=1, travel_weight=1.0, waves=1)
    assert float(world.step(state, jnp.asarray([0]), KEY).measures["share"]) == 1.0
    assert float(world.step(state, jnp.asarray([1]), KEY).measures["share"]) < 0


# --- Symmetry -------------------------------------------------------------------------------------


def test_with_one_depot_all_see_the_same_and_with_as_many_as_vehicles_nobody_does():
    for depots, groups in ((1, 1), (2, 2), (4, 4)):
        world = Dispatch(max_agents=4, max_tasks=3, depots=depots)
        views = world.views(world.reset(KEY, TeamSize(4, 3)), jnp.zeros(4, jnp.float32))
        seen = {(np.asarray(views.tasks[i]).tobytes()) for i in range(4)}
        assert len(seen) == groups


@pytest.mark.parametrize(("vehicles", "jobs", "weight"), [(4, 4, 0.0), (4, 4, 0.3), (6, 3, 0.3), (3, 6, 0.2)])
def test_private_randomness_reaches_its_closed_form(vehicles, jobs, weight):
    go, share = best_private_dispatch(vehicles, jobs, weight)
    world, state = Dispatch(max_agents=vehicles, max_tasks=jobs, travel_weight=weight, waves=1), None
    state = on_a_circle(vehicles, jobs)
    drawn = np.random.default_rng(0)
    drives = drawn.random((20_000, vehicles)) < go
    actions = np.where(drives, drawn.integers(1, jobs + 1, drives.shape), 0)
    shares = jax.jit(jax.vmap(lambda each: world.step(state, each, KEY).measures["share"]))(jnp.asarray(actions))
    assert float(jnp.mean(shares)) == pytest.approx(share, abs=4 * float(jnp.std(shares)) / 20_000**0.5)


# --- Programmed rules -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "ranks", "actions"),
    [
        ("nearest", [0.9, 0.5, 0.1], [1, 2, 3]),
        ("nearest", [0.1, 0.5, 0.9], [3, 2, 1]),  # the highest rank first, also to a job that is not worth the way
        ("best", [0.9, 0.5, 0.1], [2, 1, 0]),  # 2.0 − 0.3 · 2 is most, then 1 − 0.3; the last would lose by driving
        ("best", [0.5, 0.9, 0.1], [1, 2, 0]),
    ],
)
def test_rules_decide_in_the_order_of_ranks(rule, ranks, actions):
    state = at(np.zeros((3, 2)), [[0, 1], [0, 2], [0, 3]], [1.0, 2.0, 0.5])
    world = Dispatch(max_agents=3, max_tasks=3)
    assert decide_by_rule(world, state, jnp.asarray(ranks, jnp.float32), rule).tolist() == actions


def test_the_best_job_first_is_the_optimum_from_one_depot_and_absent_vehicles_take_none():
    world = Dispatch(max_agents=5, max_tasks=4, depots=1)
    for size in (TeamSize(5, 4), TeamSize(2, 4)):
        shares = shares_by_rule(world, size, "best", episodes=20, seed=0)
        np.testing.assert_allclose(shares, 1.0, atol=1e-4)
    assert shares_by_rule(world, TeamSize(2, 4), "nearest", episodes=20, seed=0).mean() < 0.99


# --- Commands -------------------------------------------------------------------------------------


def test_no_job_at_all_is_refused():
    with pytest.raises(UserError, match="at least one job"):
        Dispatch().check_size(TeamSize(2, 0))
    with pytest.raises(UserError, match=r"world\.depots"):
        Dispatch(depots=0)


@pytest.mark.long
def test_it_is_trained_and_played_with_other_depots(tmp_path, capsys):
    small = ["--ppo.envs", "4", "--ppo.steps", "4", "--ppo.batch", "16", "--policy.width", "4", "--total-steps", "16"]
    assert run_command(["train", "dispatch", *small, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    played = ["evaluate", str(tmp_path / "run"), "--agents", "3", "--tasks", "5", "--depots", "3", "--episodes", "2"]
    capsys.readouterr()
    assert run_command([*played, "--quiet"]) == 0
    assert "3x5, 3 depots" in capsys.readouterr().out
    assert draw_depots(find_runs([tmp_path / "run"]), tmp_path / "depots.png") is None
    assert run_command([*played, "--depots", "1", "--quiet"]) == 0
    assert draw_depots(find_runs([tmp_path / "run"]), tmp_path / "depots.png") == tmp_path / "depots.png"
    film = tmp_path / "film.gif"
    assert run_command(["watch", str(tmp_path / "run" / "seed_0"), "--depots", "2", "--to", str(film)]) == 0
    assert film.stat().st_size > 1000


def test_vehicles_of_one_depot_stand_around_it_and_one_alone_in_its_middle():
    places = around(np.asarray([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    assert places[1].tolist() == [1.0, 1.0]
    assert np.allclose(np.linalg.norm(places[[0, 2]], axis=1), AROUND)
    assert np.allclose(places[0] + places[2], 0.0)
