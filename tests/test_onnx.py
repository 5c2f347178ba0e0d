"""The ONNX file answers as the policy that it was made from, at any number of agents and tasks."""

import dataclasses
import json

import numpy as np
import pytest
from deployed import CASES, each_view, made, team_views

from diamond_attention.command_line import run_command
from diamond_attention.deploy import Agent
from diamond_attention.deploy.agent import stacked
from diamond_attention.deploy.bundle import read_bundle
from diamond_attention.deploy.interface import allowed_actions
from diamond_attention.deploy.onnx_export import inputs_of, onnx_model
from diamond_attention.deploy.threefry import noise_of_ranks
from diamond_attention.runs.bundle_format import SHIPPED, shipped_policies

runtime = pytest.importorskip("onnxruntime", reason="the extra onnx brings it")
onnx = pytest.importorskip("onnx")

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SIZES = ((1, 1), (2, 5), (7, 3), (64, 64))


def session_of(model: bytes):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # more are slower on arrays this small
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def fed(bundle, view, number=None, noise=None):
    """The inputs of the graph for a view, or for those of a team; without noise play is greedy."""
    lengths = {
        "agents": view.agents.shape[-2],
        "tasks": view.tasks.shape[-2],
        "actions": bundle.interface.action.options(view.tasks.shape[-2]),
    }
    given = {}
    for name, dtype, axes in inputs_of(bundle):
        shape = [lengths.get(axis, axis) for axis in axes]
        if name == "noise":
            given[name] = np.zeros(shape, np.float32) if noise is None else noise
        elif name == "legal_actions":
            given[name] = allowed_actions(view, bundle.interface.action)
        else:
            given[name] = {"kept": view.noise, "number": np.int64(number or 0)}.get(name, getattr(view, name, None))
        given[name] = np.asarray(given[name], dtype).reshape(shape)
    return given


def assert_answers_alike(session, bundle, views, noise=None):
    """Every agent's action and distribution, from the file and from numpy."""
    policy, agent = bundle.policy, Agent(bundle)
    seen = [agent._checked(view) for view in each_view(views)]
    names = [each.name for each in session.get_outputs()]
    if policy.together:
        team = stacked(seen)
        questions = [(fed(bundle, team, noise=noise), policy.decide_team(team, noise))]
    else:
        questions = []
        for number, view in enumerate(seen):
            own = noise if noise is None or noise.ndim == 1 else np.roll(noise, -number, axis=0)
            decided = policy.decide(view, number) if own is None else policy.decide(view, number, own)
            questions.append((fed(bundle, view, number, own), decided))
    for given, decided in questions:
        told = dict(zip(names, session.run(None, given), strict=True))
        np.testing.assert_allclose(told["action"], decided.action, **CLOSE)
        for name, ours in decided.answer._asdict().items():
            if name in told:
                np.testing.assert_allclose(told[name], np.broadcast_to(ours, told[name].shape), **CLOSE)
    assert {"action"} < set(names)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_answers_alike(name):
    """Kinds that play any team size up to 64 agents; the others at theirs."""
    world, _ = CASES[name]
    bundle = made(name)[1]
    session = session_of(onnx_model(bundle))
    fixed = bundle.policy.fixed_team
    sizes = (
        SIZES if fixed == (None, None) else [(fixed[0] or agents, fixed[1] or world.max_tasks) for agents, _ in SIZES]
    )
    for agents, tasks in dict.fromkeys(sizes):
        shown = min(agents, 3) if not bundle.policy.together else agents  # of a large team three agents will do
        views = team_views(bundle, agents, tasks, seed=agents)
        if shown < agents:
            views = type(views)(*(None if part is None else part[:shown] for part in views))
        assert_answers_alike(session, bundle, views)
        noise = next(axes for each, _, axes in inputs_of(bundle) if each == "noise")
        lengths = {"agents": agents, "tasks": tasks, "actions": bundle.interface.action.options(tasks)}
        drawn = np.random.default_rng(0).normal(size=[lengths.get(axis, axis) for axis in noise]).astype(np.float32)
        assert_answers_alike(session, bundle, views, drawn)


@pytest.mark.parametrize("name", shipped_policies())
def test_every_shipped_policy_is_exported_by_the_command(name, tmp_path, capsys):
    file = tmp_path / "policy.onnx"
    assert run_command(["export", name, "--to", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    bundle, session = read_bundle(name), session_of(file.read_bytes())
    for agents, tasks in ((1, 3), (8, 8)):
        assert_answers_alike(session, bundle, team_views(bundle, agents, tasks, seed=1))
    about = session.get_modelmeta().custom_metadata_map
    told = [(each["name"], each["unit"]) for each in json.loads(about["agent_features"])]
    assert told == [(each["name"], each["unit"]) for each in bundle.interface.agent_features]
    assert about["kind"] == bundle.kind
    assert onnx.load(file).opset_import[0].version == 18


def test_sampled_commitments_take_the_noise_that_everybody_derives():
    bundle = read_bundle("dispatch-commitments")
    session, agent = session_of(onnx_model(bundle)), Agent(bundle)
    for seed in range(5):
        for view in each_view(team_views(bundle, 6, 7, seed)):
            checked = agent._checked(view)
            told = session.run(["action"], fed(bundle, checked, noise=noise_of_ranks(checked.ranks, 8)))[0]
            assert told == agent.decide(view, sampled=True)


def test_what_stands_in_the_rows_of_who_is_not_there_means_nothing():
    bundle = read_bundle("spread")
    session, agent = session_of(onnx_model(bundle)), Agent(bundle)
    view = agent._checked(next(each_view(team_views(bundle, 5, 5, seed=3))))
    assert not view.agent_present.all()
    given = fed(bundle, view)
    action = session.run(["action"], given)[0]
    given["agents"] = np.where(view.agent_present[:, None], given["agents"], np.float32(np.nan))
    np.testing.assert_array_equal(session.run(["action"], given)[0], action)


# --- The command ----------------------------------------------------------------------------------


def test_one_file_is_of_one_seed_and_replaces_nothing(tmp_path, capsys):
    for seed in (0, 1):
        folder = tmp_path / "group" / f"seed_{seed}"
        folder.mkdir(parents=True)
        for file in (SHIPPED / "spread").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "policy.onnx"
    assert run_command(["export", str(tmp_path / "group"), "--to", str(file)]) == 2
    assert "one file, and there are 2 seeds; name the folder of one of them" in capsys.readouterr().err
    file.write_bytes(b"mine")
    assert run_command(["export", "spread", "--to", str(file)]) == 2
    assert "which already exists; name a new file" in capsys.readouterr().err
    assert file.read_bytes() == b"mine"


def test_without_the_extra_it_is_said_what_to_install(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "diamond_attention.deploy.tracing", raising=False)
    assert run_command(["export", "spread", "--to", str(tmp_path / "policy.onnx")]) == 2
    assert "pip install 'diamond-attention[onnx]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_learned_with_dropout_asks_for_what_is_kept():
    bundle = made("diamond dropout, spread")[1]
    assert "kept" in {each.name for each in session_of(onnx_model(bundle)).get_inputs()}
    off = made("diamond dropout off")[1]
    assert "kept" not in {name for name, _, _ in inputs_of(off)}
    assert dataclasses.asdict(CASES["diamond dropout off"][1])["dropout_at_execution"] is False
