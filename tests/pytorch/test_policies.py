"""Policies in PyTorch: batches, bundles there and back, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from deployed import CASES, files_of, random_policy

from diamond_attention.deploy import Agent, UserError, spread_view, xor_view
from diamond_attention.deploy.bundle import read_bundle
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.torch import Action, DiamondPolicy, View, Views, as_batch

VIEWS = [
    spread_view((0.1, 0.2), (0, 0.1), [[0.5, 0.5], [-0.5, 0.3]], 0.4, [[1, 0]], [[0, 0]], [0.7]),
    spread_view((0.3, -0.2), (0.1, 0), [[0.9, 0.1]], 0.4, [[1, 0], [0, 1]], [[0, 0], [0, 0.1]], [0.7, 0.1]),
]


def written(name, folder):
    world, settings = CASES[name]
    folder.mkdir()
    for file, data in files_of(world, settings, random_policy(world, settings)).items():
        (folder / file).write_bytes(data)
    return folder


def test_views_of_different_sizes_make_one_batch_and_answer_as_alone():
    policy, agent = DiamondPolicy.load("spread"), Agent.load("spread")
    distribution, _ = policy(as_batch(VIEWS))
    means = distribution.mean.detach().numpy()
    for view, mean in zip(VIEWS, means, strict=True):
        np.testing.assert_allclose(agent.decided(view).answer.mean, mean, atol=1e-5)


def test_rows_of_who_is_not_there_may_hold_anything():
    policy, batch = DiamondPolicy.load("spread-floor"), as_batch(VIEWS)
    spoiled = batch.agents.clone()
    spoiled[0, 2] = torch.nan
    distribution, _ = policy(batch._replace(agents=spoiled))
    torch.testing.assert_close(distribution.mean, policy(batch)[0].mean)
    distribution.mean.sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in policy.parameters() if each.grad is not None)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("diamond")])
def test_a_bundle_that_was_not_changed_comes_back_byte_for_byte(name, tmp_path):
    folder = written(name, tmp_path / "before")
    DiamondPolicy.load(folder).save(tmp_path / "after")
    for file in ("policy.safetensors", "policy.json"):
        assert (tmp_path / "after" / file).read_bytes() == (folder / file).read_bytes()


def test_shipped_weights_come_back_byte_for_byte(tmp_path):
    for name in ("spread", "spread-floor", "food", "smaclite"):
        DiamondPolicy.load(name).save(tmp_path / name)
        assert (tmp_path / name / "policy.safetensors").read_bytes() == (
            SHIPPED / name / "policy.safetensors"
        ).read_bytes()
        before, after = (json.loads((folder / name / "policy.json").read_text()) for folder in (SHIPPED, tmp_path))
        assert {key: value for key, value in after.items() if key not in ("format", "checksum")} == {
            key: value for key, value in before.items() if key != "format"
        }


def test_changed_weights_play_the_same_here_and_there_and_say_where_they_come_from(tmp_path):
    policy = DiamondPolicy.load("spread")
    with torch.no_grad():
        for values in policy.parameters():
            values += 0.01 * torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    policy.save(tmp_path / "changed")
    agent = Agent.load(tmp_path / "changed")
    mean = policy(as_batch(VIEWS[:1]))[0].mean[0].detach().numpy()
    np.testing.assert_allclose(agent.decided(VIEWS[0]).answer.mean, mean, atol=1e-5)
    assert not np.allclose(Agent.load("spread").decided(VIEWS[0]).answer.mean, mean, atol=1e-3)
    described = json.loads((tmp_path / "changed" / "policy.json").read_text())
    assert described["trained"]["started_from"] == "spread"
    assert described["changed_with"] == f"torch {torch.__version__}"
    assert described["step"] == read_bundle("spread").step


def test_a_policy_that_began_anew_is_saved_like_another_and_evaluated(tmp_path, capsys):
    from diamond_attention.command_line import run_command

    policy = DiamondPolicy(5, 2, Action("continuous", 2), width=8, mask="signed")
    with pytest.raises(UserError, match="was not loaded from a bundle; name one for the same world"):
        policy.save(tmp_path / "new")
    policy.save(tmp_path / "new", like="spread")
    again = DiamondPolicy.load(tmp_path / "new")
    assert (again.mask, again.width) == ("signed", 8)
    assert {name: values.shape for name, values in again.state_dict().items()} == {
        name: values.shape for name, values in policy.state_dict().items()
    }
    described = json.loads((tmp_path / "new" / "policy.json").read_text())
    assert (described["step"], described["trained"]["started_from"]) == (0, None)
    words = ["evaluate", str(tmp_path / "new"), "--episodes", "2", "--quiet"]
    assert run_command(words) == 0, capsys.readouterr().err
    with pytest.raises(UserError, match="already exists"):
        policy.save(tmp_path / "new", like="spread")
    with pytest.raises(UserError, match="smaclite reads 18 features of agents and 15 of tasks"):
        policy.save(tmp_path / "other", like="smaclite")


def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    policy = DiamondPolicy.load("spread")
    with torch.no_grad():
        policy.head.mean.bias[0] = torch.nan
    with pytest.raises(UserError, match=r"head\.mean\.bias holds values that are not finite"):
        policy.save(tmp_path / "broken")
    assert not (tmp_path / "broken").exists()


def test_new_policies_begin_near_uniform_and_learn_from_ranks_alone():
    """XOR with two players: the views are the same but for ranks, and so what was learned hangs on them."""
    torch.manual_seed(0)
    policy = DiamondPolicy(1, 12, Action("choose_task"), width=16)
    views = as_batch([xor_view(2, 0.2, [0.8]), xor_view(2, 0.8, [0.2])])
    assert torch.equal(views.agents[0], views.agents[1])
    assert (policy(views)[0].probs - 0.5).abs().max() < 0.45
    optimiser = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(60):
        loss = -policy(views)[0].log_prob(torch.tensor([0, 1])).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert policy(views)[0].probs.diagonal().min() > 0.9


def test_dropout_is_drawn_as_data_and_only_where_it_was_trained_so(tmp_path):
    policy = DiamondPolicy.load(written("diamond dropout, spread", tmp_path / "on"))
    batch = as_batch(VIEWS)
    drawn = policy.draw(batch, torch.Generator().manual_seed(0))
    assert drawn.kept.shape == (2, 3, 2, 3)
    torch.testing.assert_close(policy(drawn)[0].mean, policy(drawn)[0].mean)
    other = policy.draw(batch)
    assert not torch.equal(drawn.kept, other.kept)
    assert not torch.allclose(policy(drawn)[0].mean, policy(other)[0].mean)
    off = DiamondPolicy.load(written("diamond dropout off", tmp_path / "off"))
    assert off.draw(batch).kept is not None
    assert off.eval().draw(batch).kept is None
    assert policy.eval().draw(batch).kept is not None


def test_what_does_not_fit_is_said_in_one_sentence():
    policy, batch = DiamondPolicy.load("spread"), as_batch(VIEWS)
    with pytest.raises(UserError, match=r"kind commitments, and diamond_attention\.torch knows diamond"):
        DiamondPolicy.load("dispatch-commitments")
    with pytest.raises(UserError, match=r"views\.ranks is missing, and the policy's mask is rank"):
        policy(batch._replace(ranks=None))
    with pytest.raises(UserError, match=r"views\.tasks has rows of 5 features, and the policy reads 2"):
        policy(Views(batch.agents, batch.agents, ranks=batch.ranks))
    with pytest.raises(UserError, match="its setting mask is 'ranks', and this version knows rank"):
        DiamondPolicy(5, 2, Action("continuous", 2), mask="ranks")
    with pytest.raises(UserError, match="width is 7; mask split needs an even one"):
        DiamondPolicy(5, 2, Action("continuous", 2), mask="split", width=7)
    with pytest.raises(UserError, match="some views have legal_actions and others none"):
        as_batch(
            [View(np.ones((1, 1)), np.ones((2, 1))), View(np.ones((1, 1)), np.ones((2, 1)), legal_actions=[1, 1])]
        )
    with pytest.raises(UserError, match="no view"):
        as_batch([])


def test_neither_jax_nor_torchrl_is_imported():
    script = """
import sys
from diamond_attention.torch import DiamondPolicy

DiamondPolicy.load("spread")
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    for name in ("jax", "jaxlib", "equinox", "torchrl", "tensordict", "benchmarl", "vmas"):
        assert name not in done.stdout.split()
