"""The worlds of the live page step by step beside those of the package, and what its players hear."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import ask, needs_node

from diamond_attention.ranks import draw_ranks
from diamond_attention.view import viewer_first
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor, chance_level

pytestmark = needs_node

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
KEY = jax.random.key(3)


def spread_agents(state):
    return [
        {"x": x, "y": y, "vx": vx, "vy": vy}
        for (x, y), (vx, vy) in zip(state.positions.tolist(), state.velocities.tolist(), strict=True)
    ]


def places(rows):
    return [{"x": x, "y": y} for x, y in rows.tolist()]


def page_state(world, state):
    if isinstance(world, Spread):
        return {"agents": spread_agents(state), "tasks": places(state.tasks)}
    if isinstance(world, Dispatch):
        values = state.values.tolist()
        jobs = [{**place, "value": value} for place, value in zip(places(state.jobs), values, strict=True)]
        return {"agents": places(state.depots), "tasks": jobs}
    return {"agents": [{}] * world.max_agents, "tasks": [{}] * world.max_tasks}


@pytest.mark.parametrize(
    "world",
    [
        Spread(max_agents=5, max_tasks=5),
        Dispatch(max_agents=5, max_tasks=7, depots=3),
        Xor(max_agents=5, max_tasks=6),
    ],
    ids=lambda world: world.name,
)
def test_what_an_agent_sees_is_what_it_sees_in_the_package(world, tmp_path):
    state, ranks = world.reset(KEY, TeamSize(5, world.max_tasks)), draw_ranks(KEY, 5)
    if isinstance(world, Spread):
        state = state._replace(velocities=jax.random.normal(KEY, (5, 2)))
    views = world.views(state, ranks)
    orders = [viewer_first(agent, 5).tolist() for agent in range(5)]
    questions = [
        {"ask": "view", "world": world.name, "state": page_state(world, state), "order": order, "ranks": []}
        for order in orders
    ]
    seen = ask(tmp_path, *questions)
    np.testing.assert_allclose([view["agents"] for view in seen], views.agents, **CLOSE)
    np.testing.assert_allclose([view["tasks"] for view in seen], views.tasks, **CLOSE)


@pytest.mark.parametrize("start", ["scattered", "depot"])
def test_agents_move_and_push_each_other_as_in_the_package(start, tmp_path):
    """Twelve agents where four would fit, so that most overlap; each of 30 steps from the same state."""
    world = Spread(max_agents=12, max_tasks=12, half_width=0.4, start=start)
    state = world.reset(KEY, TeamSize(12, 12))
    state = state._replace(positions=state.positions.at[1].set(state.positions[0]))  # no direction between these two
    questions, expected = [], []
    for step in range(30):
        actions = 2.0 * jax.random.normal(jax.random.fold_in(KEY, step), (12, 2))  # many beyond the box
        moved = world.step(state, actions, KEY)
        questions += [
            {
                "ask": "advance",
                "agents": spread_agents(state),
                "actions": actions.tolist(),
                "solid": start == "scattered",
            },
            {"ask": "judge", "world": "spread", "state": page_state(world, moved.state), "actions": None},
        ]
        expected.append(moved)
        state = moved.state
    answers = ask(tmp_path, *questions)
    touched = 0.0
    for moved, agents, judged in zip(expected, answers[::2], answers[1::2], strict=True):
        np.testing.assert_allclose([[a["x"], a["y"]] for a in agents], moved.state.positions, **CLOSE)
        np.testing.assert_allclose([[a["vx"], a["vy"]] for a in agents], moved.state.velocities, **CLOSE)
        np.testing.assert_allclose(judged["reward"], moved.reward, **CLOSE)
        np.testing.assert_allclose(judged["collisions"], moved.measures["collisions"])
        np.testing.assert_allclose(np.mean(judged["covered"]), moved.measures["covered"], **CLOSE)
        touched += judged["collisions"]
    assert touched > 20


@pytest.mark.parametrize("size", [(4, 4), (2, 9), (9, 3), (16, 16), (1, 1)])
def test_a_wave_earns_what_it_earns_in_the_package_and_the_best_plan_too(size, tmp_path):
    agents, tasks = size
    world = Dispatch(max_agents=agents, max_tasks=tasks, depots=agents, waves=1)
    questions, expected = [], []
    for trial in range(10):
        state = world.reset(jax.random.key(trial), TeamSize(agents, tasks))
        actions = jax.random.randint(jax.random.key(trial), (agents,), 0, tasks + 1)
        stepped = world.step(state, actions, KEY)
        questions.append(
            {"ask": "judge", "world": "dispatch", "state": page_state(world, state), "actions": actions.tolist()}
        )
        expected.append(
            (stepped.reward, stepped.measures["share"], world.optimum(state)[0], stepped.measures["wasted"])
        )
    for judged, (reward, share, best, wasted) in zip(ask(tmp_path, *questions), expected, strict=True):
        np.testing.assert_allclose(judged["reward"], reward, **CLOSE)
        np.testing.assert_allclose(judged["best"], best, **CLOSE)
        np.testing.assert_allclose(judged["share"], share, atol=1e-4, rtol=1e-5)
        np.testing.assert_allclose(judged["wasted"] / agents, wasted, **CLOSE)


def test_a_game_of_xor_is_won_when_all_doors_differ(tmp_path):
    world = Xor(max_agents=3, max_tasks=3)
    state = world.reset(KEY, TeamSize(3, 3))
    choices = [[a, b, c] for a in range(3) for b in range(3) for c in range(3)]
    questions = [
        {"ask": "judge", "world": "xor", "state": page_state(world, state), "actions": chosen} for chosen in choices
    ]
    answers = ask(tmp_path, *questions)
    for chosen, judged in zip(choices, answers, strict=True):
        measures = world.step(state, jnp.asarray(chosen), KEY).measures
        assert judged["won"] == bool(measures["success"])
        assert judged["distinct"] == pytest.approx(float(measures["distinct"]))
    assert sum(judged["won"] for judged in answers) == math.factorial(3)
    [chance] = ask(tmp_path, {"ask": "chance", "players": 3, "actions": 5})
    assert chance == pytest.approx(chance_level(3, 5))


def test_numbers_are_heard_as_often_as_packets_arrive_and_ones_own_always(tmp_path):
    numbers = [0.25, 0.5, 0.75]
    half, none, all_lost = ask(
        tmp_path, *({"ask": "hear", "numbers": numbers, "lost": lost, "times": 2000} for lost in (0.5, 0, 1))
    )
    for heard in (half, none, all_lost):
        assert all(each["order"] == [1, 0, 2] and each["ranks"][0] == 0.5 and each["heard"][0] for each in heard)
    assert all(each["ranks"] == [0.5, 0.25, 0.75] for each in none)
    assert not any(any(each["heard"][1:]) for each in all_lost)
    guesses = np.array([each["ranks"][1:] for each in all_lost])
    assert abs(guesses.mean() - 0.5) < 0.02
    assert abs(np.mean([each["heard"][1:] for each in half]) - 0.5) < 0.04
