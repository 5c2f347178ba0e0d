"""Diamond Attention as a model of BenchMARL: shapes, what reaches whom, ratios of one, bundles, refusals."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from benchmarl.algorithms import IppoConfig, IqlConfig, IsacConfig, MaddpgConfig, MappoConfig
from benchmarl.environments import VmasTask
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models import MlpConfig, SequenceModelConfig
from benchmarl.models.common import output_has_agent_dim
from torchrl.data import Composite, Unbounded

from diamond_attention.deploy import Agent, UserError, spread_view
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.torch.benchmarl import DiamondConfig, policies_of, with_ranks

AGENTS, COLUMNS, OUT = 3, 10, 4
LAYOUT = {"task_columns": (4, 10), "task_features": 2}
KINDS = [
    (centralised, has_agents, shared)
    for centralised, has_agents, shared in itertools.product([True, False], repeat=3)
    if centralised or has_agents
]


def model_of(config, *, centralised=False, has_agents=True, shared=True, columns=COLUMNS):
    rows = {"observation": Unbounded((columns,)), "more": Unbounded((2,))}
    if has_agents:
        rows = {name: Unbounded((AGENTS, *spec.shape)) for name, spec in rows.items()}
        rows["rank"] = Unbounded((AGENTS, 1))
        given = Composite(agents=Composite(rows, shape=(AGENTS,)))
    else:
        given = Composite(rows)
    if output_has_agent_dim(shared, centralised):
        answer = Composite(agents=Composite(out=Unbounded((AGENTS, OUT)), shape=(AGENTS,)))
    else:
        answer = Composite(out=Unbounded((OUT,)))
    config.is_critic = centralised
    model = config.get_model(
        input_spec=given,
        output_spec=answer,
        agent_group="agents",
        input_has_agent_dim=has_agents,
        n_agents=AGENTS,
        centralised=centralised,
        share_params=shared,
        device="cpu",
        action_spec=None,
    )
    return model, given, answer


def experiment_of(tmp_path, algorithm=MappoConfig, model=None, agents=AGENTS, minibatch=20, **changes):
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames, config.evaluation, config.create_json, config.loggers = 40, False, False, []
    config.on_policy_n_envs_per_worker, config.on_policy_collected_frames_per_batch = 4, 40
    config.off_policy_n_envs_per_worker, config.off_policy_collected_frames_per_batch = 4, 40
    config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters = minibatch, 1
    config.off_policy_train_batch_size, config.off_policy_n_optimizer_steps = 20, 2
    config.save_folder = str(tmp_path)
    for name, value in changes.items():
        setattr(config, name, value)
    model = model or DiamondConfig(width=8, task_columns=(4, 4 + 2 * agents), task_features=2)
    described = algorithm.get_from_yaml()
    if algorithm is MappoConfig:
        described.use_tanh_normal, described.scale_mapping = False, "exp"
    task = VmasTask.SIMPLE_SPREAD.get_task({"max_steps": 10, "n_agents": agents, "obs_agents": False})
    return Experiment(with_ranks(task), described, model, seed=0, config=config, critic_model_config=None)


# --- The model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("centralised", "has_agents", "shared"), KINDS)
@pytest.mark.parametrize("layout", [{}, LAYOUT])
def test_answers_have_the_shape_that_is_asked_for(centralised, has_agents, shared, layout):
    model, given, answer = model_of(
        DiamondConfig(width=8, **layout), centralised=centralised, has_agents=has_agents, shared=shared
    )
    for batch in ((), (2,), (3, 2)):
        assert answer.expand(batch).is_in(model(given.expand(batch).rand()))
    other = model_of(DiamondConfig(width=8, **layout), centralised=centralised, has_agents=has_agents, shared=shared)[
        0
    ]
    assert any(not torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))
    model.share_params_with(other)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("shared", [True, False])
def test_of_a_peer_a_policy_hears_what_it_broadcasts_and_nothing_else(shared):
    model, given, _ = model_of(DiamondConfig(width=8, mask="none", **LAYOUT), shared=shared)
    seen = given.rand()
    answers = model(seen.clone())["agents", "out"]
    for columns, heard in (((0, 4), True), ((4, 10), False)):
        changed = seen.clone()
        changed["agents", "observation"][0, columns[0] : columns[1]] += 1.0
        moved = (model(changed)["agents", "out"] - answers).abs().amax(-1) > 1e-6
        assert moved.tolist() == [True, heard, heard]


def test_agents_that_see_the_same_differ_by_their_ranks_alone():
    model, given, _ = model_of(DiamondConfig(width=8, **LAYOUT))
    same = given.zero().expand(4).clone()
    same["agents", "observation"] += 0.5
    same["agents", "rank"] = torch.tensor([[0.1, 0.5, 0.9], [0.9, 0.1, 0.5], [0.2, 0.3, 0.4], [0.7, 0.7, 0.7]])[
        ..., None
    ]
    answers = model(same)["agents", "out"]
    torch.testing.assert_close(answers[0], answers[1][[1, 2, 0]])  # who is third answers as who is third
    torch.testing.assert_close(answers[0], answers[2])  # only the order counts, not the numbers
    assert (answers[0][0] - answers[0][1]).abs().max() > 1e-6
    torch.testing.assert_close(answers[3], answers[3][[1, 2, 0]])


def test_peers_may_be_listed_in_any_order():
    model, given, _ = model_of(DiamondConfig(width=8, **LAYOUT))
    seen = given.rand()
    order = [2, 0, 1]
    answers = model(seen.clone())["agents", "out"]
    turned = seen.clone()
    for name in ("observation", "more", "rank"):
        turned["agents", name] = seen["agents", name][order]
    torch.testing.assert_close(model(turned)["agents", "out"], answers[order])


def test_critics_hide_nobody_and_read_no_ranks():
    model, given, _ = model_of(DiamondConfig(width=8, **LAYOUT), centralised=True)
    seen = given.rand()
    value = model(seen.clone())["out"]
    seen["agents", "rank"] = torch.rand(AGENTS, 1)
    assert torch.equal(model(seen)["out"], value)


def test_it_can_be_a_part_of_a_sequence():
    model = SequenceModelConfig(
        model_configs=[DiamondConfig(width=8, **LAYOUT), MlpConfig.get_from_yaml()], intermediate_sizes=[6]
    )
    model, given, answer = model_of(model)
    assert answer.is_in(model(given.rand()))


def test_what_does_not_fit_is_said_in_one_sentence(tmp_path):
    with pytest.raises(
        UserError, match="nothing that agents observe is called 'number'; give the experiment with_ranks"
    ):
        model_of(DiamondConfig(rank_key="number"))
    model_of(DiamondConfig(rank_key="number", mask="none"))
    with pytest.raises(
        UserError, match=r"task_columns are \(4, 9\) and task_features 2; an observation has 12 columns"
    ):
        model_of(DiamondConfig(task_columns=(4, 9), task_features=2))
    with pytest.raises(UserError, match="mask is dropout, whose masks are not stored here"):
        model_of(DiamondConfig(mask="dropout"))
    wrong = DiamondConfig(task_columns=(2, 8), task_features=2, start_from="smaclite")
    with pytest.raises(UserError, match=r"start_from is 'smaclite', a policy for 18 features of agents, 15 of tasks"):
        experiment_of(tmp_path, model=wrong)


# --- Experiments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [MappoConfig, IppoConfig, MaddpgConfig, IsacConfig, IqlConfig])
@pytest.mark.parametrize("shared", [True, False])
def test_algorithms_learn_with_it(algorithm, shared, tmp_path):
    experiment = experiment_of(tmp_path, algorithm, share_policy_params=shared)
    before = [each.detach().clone() for each in experiment.policy.parameters()]
    experiment.run()
    after = list(experiment.policy.parameters())
    assert all(torch.isfinite(each).all() for each in after)
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert len(policies_of(experiment)) == (0 if algorithm in (MaddpgConfig, IqlConfig) else 1 if shared else AGENTS)


def test_the_ratio_of_an_unchanged_policy_is_one_because_ranks_are_replayed(tmp_path):
    experiment = experiment_of(tmp_path, minibatch=40)
    loss = experiment.losses["agents"]
    with torch.no_grad():
        for policy in policies_of(experiment):
            policy.head.mean.weight *= 100.0  # a first policy hardly listens to anything
    batch = next(iter(experiment.collector))
    assert batch["agents", "rank"].shape == (4, 10, AGENTS, 1)

    def ratios(played):
        loss_of = loss.actor_network.get_dist(played.clone())
        return (loss_of.log_prob(played["agents", "action"]) - played["agents", "log_prob"]).exp()

    torch.testing.assert_close(ratios(batch), torch.ones(4, 10, AGENTS), rtol=0, atol=1e-5)
    redrawn = batch.clone()
    redrawn["agents", "rank"] = torch.rand(4, 10, AGENTS, 1)
    assert (ratios(redrawn) - 1).abs().max() > 0.1


def test_a_shipped_policy_sees_vmas_as_it_saw_our_world(tmp_path):
    """And comes back byte for byte."""
    experiment = experiment_of(
        tmp_path, model=DiamondConfig(task_columns=(4, 12), task_features=2, start_from="spread"), agents=4
    )
    (policy,) = policies_of(experiment)
    policy.save(tmp_path / "back")
    assert (tmp_path / "back" / "policy.safetensors").read_bytes() == (
        SHIPPED / "spread" / "policy.safetensors"
    ).read_bytes()
    seen = experiment.test_env.reset()
    answer = experiment.policy(seen.clone())
    agent = Agent.load("spread")
    observed, ranks = seen["agents", "observation"].numpy(), seen["agents", "rank"].numpy()[..., 0]
    for viewer in range(4):
        peers = [peer for peer in range(4) if peer != viewer]
        own, others = observed[0, viewer, :4], observed[0, peers, :4]
        view = spread_view(
            own[:2],
            own[2:],
            own[:2] + observed[0, viewer, 4:].reshape(4, 2),
            ranks[0, viewer],
            others[:, :2],
            others[:, 2:],
            ranks[0, peers],
        )
        decided = agent.decided(view).answer
        np.testing.assert_allclose(answer["agents", "loc"][0, viewer].detach(), decided.mean, atol=1e-5)
        np.testing.assert_allclose(answer["agents", "scale"][0, viewer].detach().log(), decided.log_std, atol=1e-5)


def test_a_task_with_ranks_can_be_pickled_as_benchmarl_does():
    task = with_ranks(VmasTask.SIMPLE_SPREAD.get_task({"max_steps": 10, "n_agents": 2, "obs_agents": False}), hold=3)
    again = pickle.loads(pickle.dumps(task))
    world = again.get_env_fun(2, True, 0, "cpu")()
    assert [type(each).__name__ for each in again.get_env_transforms(world)] == ["DrawRanks"]
    assert again.get_env_transforms(world)[0].hold == 3
