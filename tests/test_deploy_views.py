"""Views from plain positions are those of the worlds; what does not fit a policy is one sentence."""

import json
import random
import re
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from deployed import CASES, files_of, made, random_policy

from diamond_attention.deploy import (
    Agent,
    Unit,
    UserError,
    View,
    dispatch_view,
    food_view,
    next_velocity,
    smaclite_view,
    spread_view,
    xor_view,
)
from diamond_attention.deploy.views import SIGHT_RANGE, UNIT_TYPES
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.files import json_bytes
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite import observe, units
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

FIELDS = ("agents", "tasks", "agent_present", "task_present", "ranks", "legal_actions")


def begun(world, agents, tasks):
    key = jax.random.key(agents)
    state, ranks = world.reset(key, TeamSize(agents, tasks)), draw_ranks(key, world.max_agents)
    return state, np.asarray(ranks), jax.tree.map(np.asarray, world.views(state, ranks))


def assert_as_seen(view, views, agent):
    for name in FIELDS:
        ours, theirs = getattr(view, name), getattr(views, name)
        if theirs is None:
            assert ours is None
        else:
            np.testing.assert_allclose(ours, theirs[agent], atol=2e-6, err_msg=name)


def others(values, agent):
    return np.delete(np.asarray(values), agent, axis=0)


# --- Every world ----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 2.5])
def test_views_of_spread_and_food_are_those_of_the_worlds(unit):
    """In any unit of length; a peer that is absent leaves a row that nobody reads."""
    for world, made_by in (
        (Spread(max_agents=3, max_tasks=3), spread_view),
        (Food(max_agents=3, max_tasks=4), food_view),
    ):
        state, ranks, views = begun(world, 3, world.max_tasks)
        state = state._replace(velocities=jnp.asarray([[0.1, 0.2], [0.0, -0.3], [0.4, 0.0]]))
        views = jax.tree.map(np.asarray, world.views(state, ranks))
        places, velocities = unit * np.asarray(state.positions), unit * np.asarray(state.velocities)
        for agent in range(3):
            view = made_by(
                places[agent],
                velocities[agent],
                unit * np.asarray(state.tasks),
                ranks[agent],
                others(places, agent),
                others(velocities, agent),
                others(ranks, agent),
                unit=unit,
            )
            assert_as_seen(view, views, agent)


def test_views_as_the_paper_has_them_do_not_mark_the_viewer():
    world = Spread(max_agents=2, max_tasks=2, mark_viewer=False)
    state, ranks, views = begun(world, 2, 2)
    places = np.asarray(state.positions)
    still = np.zeros((1, 2))
    view = spread_view(places[0], still[0], state.tasks, ranks[0], places[1:], still, ranks[1:], mark_viewer=False)
    assert_as_seen(view, views, 0)


def test_who_is_left_out_and_who_is_absent_are_the_same_to_a_policy():
    agent = Agent.load("spread")
    place, still, tasks = [0.1, 0.2], [0.0, 0.0], [[0.5, 0.5], [-0.5, 0.1]]
    peers, ranks = [[1.0, 0.0], [0.3, 0.3]], [0.2, 0.9]
    out = spread_view(place, still, tasks, 0.5, peers[:1], [still], ranks[:1])
    absent = spread_view(
        place, still, tasks, 0.5, [peers[0], [np.nan, 7]], [still] * 2, ranks, peer_present=[True, False]
    )
    np.testing.assert_allclose(agent.decide(out), agent.decide(absent), atol=1e-6)
    fewer = spread_view(
        place, still, [*tasks, [9, 9]], 0.5, peers[:1], [still], ranks[:1], landmark_present=[1, 1, 0]
    )
    np.testing.assert_allclose(agent.decide(out), agent.decide(fewer), atol=1e-6)


def test_the_next_velocity_is_that_of_the_world():
    world = Spread(max_agents=1, max_tasks=1)
    state = begun(world, 1, 1)[0]._replace(velocities=jnp.asarray([[0.3, -0.2]]))
    after = world.step(state, jnp.asarray([[0.5, -7.0]]), jax.random.key(0)).state
    np.testing.assert_allclose(next_velocity([0.3, -0.2], [0.5, -7.0]), after.velocities[0], atol=1e-6)
    np.testing.assert_allclose(next_velocity([0.6, -0.4], [0.5, -7.0], unit=2), 2 * after.velocities[0], atol=1e-6)
    np.testing.assert_allclose(state.positions + 0.1 * after.velocities, after.positions, atol=1e-6)  # for 0.1 s


def test_views_of_xor_are_those_of_the_world():
    _, ranks, views = begun(Xor(max_agents=3, max_tasks=4), 3, 4)
    for agent in range(3):
        assert_as_seen(xor_view(4, ranks[agent], others(ranks, agent)), views, agent)


def test_views_of_dispatch_are_those_of_the_world():
    world = Dispatch(max_agents=3, max_tasks=4, depots=2, travel_weight=0.4)
    state, ranks, views = begun(world, 3, 3)
    for agent in range(3):
        view = dispatch_view(
            10 * np.asarray(state.depots[agent]),
            10 * np.asarray(state.jobs),
            state.values,
            ranks[agent],
            10 * others(state.depots, agent),
            others(ranks, agent),
            unit=10,
            travel_weight=0.4,
            job_present=state.task_present,
        )
        view = view._replace(tasks=np.where(view.task_present[:, None], view.tasks, 0))
        assert_as_seen(view, views, agent)


def test_views_of_smaclite_are_those_of_the_world():
    """Also of somebody dead and of somebody out of sight."""
    assert tuple(units.UNIT_TYPES) == UNIT_TYPES
    assert observe.SIGHT_RANGE == SIGHT_RANGE
    world = Smaclite("2s3z", jitter=1.0)
    state, ranks, _ = begun(world, 5, 5)
    agents, enemies = dict(state.agents), dict(state.enemies)
    agents["alive"] = agents["alive"].at[3].set(False)
    agents["hp"] = agents["hp"].at[1].mul(0.5)
    enemies["position"] = agents["position"].at[4].add(20.0) + 2.0
    state = state._replace(agents=agents, enemies=enemies)
    views = jax.tree.map(np.asarray, world.views(state, ranks))
    field = world._field("2s3z")

    def listed(side, constants):
        names = [UNIT_TYPES[int(each)] for each in np.argmax(constants["types"], axis=1)]
        condition = [np.asarray(side[name]) / constants[f"max_{name}"] for name in ("hp", "shield")]
        return [
            Unit(np.asarray(place), hp, shield, name) if there else None
            for place, hp, shield, name, there in zip(side["position"], *condition, names, side["alive"], strict=True)
        ]

    ours, theirs = listed(agents, field._constants(True)), listed(enemies, field._constants(False))
    for agent in (0, 1, 4):
        legal = views.legal_actions[agent]
        peers = [unit for number, unit in enumerate(ours) if number != agent]
        view = smaclite_view(ours[agent], theirs, legal[6:], legal[2:6], ranks[agent], peers, others(ranks, agent))
        present = [np.where(there[:, None], rows, 0) for rows, there in zip(view[:2], view[2:4], strict=True)]
        assert_as_seen(view._replace(agents=present[0], tasks=present[1]), views, agent)
    assert not views.task_present[0].all()
    assert not views.agent_present[0].all()


# --- What does not fit ----------------------------------------------------------------------------


def seen(**changes):
    return View(np.zeros((3, 5)), np.zeros((2, 2)), ranks=[0.1, 0.2, 0.3])._replace(**changes)


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (
            seen(agents=np.zeros((3, 4))),
            r"view.agents has the shape \(3, 4\), and this policy was trained on rows of 5",
        ),
        (seen(agents=np.zeros(5)), "view.agents has the shape"),
        (seen(tasks=np.zeros((2, 7))), r"rows of 2 features; agent.task_features names them"),
        (seen(agents=[]), "view.agents has no rows"),
        (seen(agents=[["far"] * 5] * 3), "view.agents does not hold numbers"),
        (seen(ranks=None), "view.ranks is missing; it holds the numbers of all 3 agents"),
        (seen(ranks=[0.5]), r"view.ranks has the shape \(1,\), and there are 3 rows of agents"),
        (seen(ranks=[0.5, np.nan, 0.1]), "view.ranks holds something that is no number; mark a peer"),
        (seen(agent_present=[True]), r"view.agent_present has the shape \(1,\), and there are 3 rows"),
        (seen(tasks=np.full((2, 2), np.inf)), "view.tasks holds a value that is not a finite number"),
    ],
)
def test_a_view_that_does_not_fit_is_one_sentence(view, sentence):
    with pytest.raises(UserError, match=sentence) as refused:
        Agent.load("spread").decide(view)
    assert "\n" not in str(refused.value)


def test_a_peer_that_commitments_have_not_heard_may_have_no_number():
    agent = Agent.load("dispatch-commitments")
    view = dispatch_view([0, 0], [[1, 1], [0, 1]], [1.0, 0.9], 0.5, [[0, 0]], [np.nan])
    assert agent.decide(view) in (0, 1, 2)
    with pytest.raises(UserError, match=r"view\.ranks holds something that is no number"):
        agent.decide(view._replace(ranks=[np.nan, 0.5]))
    with pytest.raises(UserError, match=r"view.legal_actions has the shape \(5,\), and there are 3 actions"):
        agent.decide(view._replace(legal_actions=[True] * 5))


def test_a_team_that_a_policy_cannot_play_is_one_sentence():
    agent = Agent(made("flat, spread")[1])
    with pytest.raises(
        UserError, match="the view lists 3 agents, and made, a policy of the kind flat, plays only with 5"
    ):
        agent.decide(seen())
    together = Agent(made("mat, spread")[1])
    with pytest.raises(UserError, match="mat, which decides for all agents at once; call decide_team"):
        together.decide(seen())
    with pytest.raises(UserError, match="there are 1 views, and each must list all 1 agents"):
        together.decide_team([View(np.zeros((5, 5)), np.zeros((5, 2)), ranks=np.zeros(5))])
    numbered = Agent(made("gsa, spread")[1])
    with pytest.raises(UserError, match=r"call decide\(view, number=…\), counted from 0"):
        numbered.decide(seen())
    with pytest.raises(UserError, match="number is 3, and the view lists 3 agents"):
        numbered.decide(seen(), number=3)
    assert numbered.decide(seen(), number=2).shape == (2,)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: spread_view([0, 0, 0], [0, 0], [], 0.5), "position has the shape"),
        (lambda: spread_view([0, 0], [0, 0], [1, 2, 3], 0.5), "landmarks has the shape"),
        (lambda: spread_view([0, 0], [0, 0], [], 0.5, [[0, 0]]), "there are 1 peer_positions and 0 peer_velocities"),
        (lambda: spread_view([0, 0], [0, 0], [], 0.5, [[0, 0]], [[0, 0]]), "there are 1 peers and 0 peer_ranks"),
        (lambda: spread_view([0, 0], [0, 0], [], 0.5, unit=0), "unit is 0; it must be the length of one world unit"),
        (lambda: dispatch_view([0, 0], [[0, 0]], [], 0.5), "there are 1 jobs and 0 values"),
        (lambda: smaclite_view(Unit([0, 0], 1, 0, "tank"), [], [], [1] * 4, 0.5), "a unit's type is 'tank'"),
        (lambda: smaclite_view(Unit([0, 0], 1, 0, "marine"), [], [], [1], 0.5), "can_go has four entries"),
    ],
)
def test_plain_positions_that_do_not_fit_are_one_sentence(wrong, sentence):
    with pytest.raises(UserError, match=sentence):
        wrong()


# --- Bundles --------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path):
    return shutil.copytree(SHIPPED / "spread", tmp_path / "bundle")


def rewrite(folder, **changes):
    file = folder / "policy.json"
    values = {**json.loads(file.read_text()), "format": 2, **changes}
    values.pop("checksum", None)
    file.write_bytes(json_bytes(values))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": 3}, "has format 3, and this version reads up to 2; upgrade"),
        ({"format": "2"}, "has no format number"),
        ({"kind": "linear"}, "holds a policy of the kind 'linear', which plays only where it was trained"),
        ({"settings": {}}, "cannot be played: its setting width is None"),
        (
            {"settings": {"width": 64, "mask": "veil"}},
            "its setting mask is 'veil', and this version knows rank, none",
        ),
        ({"settings": {"width": 10**9, "mask": "rank"}}, "its setting width is 1000000000, and must be"),
        ({"settings": {"width": 32, "mask": "rank"}}, "bytes where its settings call for"),
        ({"action": {"kind": "dance"}}, "its actions are of a kind that this version does not know"),
        ({"action": {"kind": "continuous", "size": -1}}, "its actions have -1 parts"),
        ({"agent_features": 5}, "it does not say what it is given"),
        ({"largest_team": {"agents": 0, "tasks": 4}}, "it does not name the largest team"),
        ({"rank_hold": 0}, "has rank_hold 0; it must be a number of steps, or episode"),
        ({"sha256": "0" * 64}, "is damaged: its contents do not match the digest"),
        ({"kind": None}, "does not describe a policy"),
    ],
)
def test_a_bundle_that_does_not_fit_is_one_sentence(bundle, changes, sentence):
    rewrite(bundle, **changes)
    with pytest.raises(UserError, match=re.escape(sentence)) as refused:
        Agent.load(bundle)
    assert "\n" not in str(refused.value)


def test_a_bundle_that_was_damaged_or_is_not_there_is_one_sentence(bundle, tmp_path):
    assert Agent.load(bundle).name == "bundle"
    whole = (bundle / "policy.safetensors").read_bytes()
    for data, sentence in (
        (whole[:-1], "it is cut short"),
        (whole[:99] + b"x" + whole[100:], "is not a safetensors file|is damaged|does not fit|holds"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged"),
        (b"", "is not a safetensors file"),
    ):
        (bundle / "policy.safetensors").write_bytes(data)
        with pytest.raises(UserError, match=sentence):
            Agent.load(bundle)
    rewrite(bundle)
    (bundle / "policy.json").write_text((bundle / "policy.json").read_text().replace("rank", "none"))
    with pytest.raises(UserError, match="was changed after it was written"):
        Agent.load(bundle)
    with pytest.raises(UserError, match=r"holds no policy\.json, and no policy of that name ships with the package"):
        Agent.load("spreads")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(UserError, match="is a training run; `diamond export"):
        Agent.load(tmp_path / "run")


@pytest.mark.parametrize("name", ["spread", "dispatch-commitments"])  # without a checksum, and with one
def test_damaged_files_are_refused_or_play(name, tmp_path):
    """Three hundred files with a few bytes changed: one sentence, or a policy that still decides."""
    chance, sentences = random.Random(0), []
    folder = shutil.copytree(SHIPPED / name, tmp_path / "bundle")
    for number in range(300):
        file = folder / ("policy.safetensors" if number % 3 == 0 else "policy.json")
        whole = file.read_bytes()
        # In the header of arrays, and in what is said before what it was trained on.
        place = chance.randrange(min(len(whole), 2500))
        file.write_bytes(whole[:place] + chance.randbytes(chance.randrange(3)) + whole[place + chance.randrange(3) :])
        try:
            agent = Agent.load(folder)
            rows = [np.zeros((2, len(each))) for each in (agent.agent_features, agent.task_features)]
            agent.decide(View(*rows, ranks=[0.1, 0.2]))
        except UserError as error:
            sentences.append(str(error))
        file.write_bytes(whole)
    assert len(sentences) > 150
    assert not any("\n" in each for each in sentences)


def test_arrays_of_another_shape_are_refused(tmp_path):
    world, settings = CASES["flat, xor"]
    files = files_of(world, replace(settings, width=4), random_policy(world, replace(settings, width=4)))
    values = json.loads(files["policy.json"])
    values["settings"]["width"] = 8
    del values["checksum"]
    (tmp_path / "policy.json").write_bytes(json_bytes(values))
    (tmp_path / "policy.safetensors").write_bytes(files["policy.safetensors"])
    with pytest.raises(UserError, match="bytes where its settings call for"):
        Agent.load(tmp_path)
