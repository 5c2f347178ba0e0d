"""The methods we compare with: known answers of their parts, and their whole way through the commands."""

import os
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.bench import decisions
from diamond_attention.build import build_policy, interface_of
from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.off_policy_settings import OffPolicySettings
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.registry import METHODS, settings_like
from diamond_attention.play import begin_episode, see
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.flat import FlatSettings, observation_of, observation_size, state_of
from diamond_attention.policies.gsa import GsaSettings
from diamond_attention.policies.mat import MatPolicy, MatSettings, TwoLayers
from diamond_attention.policies.port_hamiltonian import PortHamiltonianSettings
from diamond_attention.policies.registry import POLICIES
from diamond_attention.reports.paper import PAPER_XOR
from diamond_attention.reports.tables import as_markdown, table_lines
from diamond_attention.runs.assemble import begin_learning
from diamond_attention.runs.bundle import export_policy, load_policy
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.presets import PRESETS, with_method
from diamond_attention.runs.settings import Settings, described_as
from diamond_attention.runs.train import resume, train
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

LABELS = {
    "mappo": "MAPPO",
    "ippo": "IPPO",
    "mat": "MAT",
    "qmix": "QMIX",
    "masac": "MASAC",
    "gsa": "GSA",
    "ph-marl": "pH-MARL",
}
XOR = Xor(max_agents=3, max_tasks=3)
SPREAD = Spread(max_agents=3, max_tasks=3)
BATTLE = Smaclite("2s_vs_1sc")
BATTLE = replace(BATTLE, max_agents=BATTLE.sizes[0].agents, max_tasks=BATTLE.sizes[0].tasks)


def views_of(world, policy, seed: int = 0):
    """What a team sees at the start of an episode."""
    size = jnp.asarray([[world.max_agents, world.max_tasks]])
    team = begin_episode(world, size, jax.random.key(seed), memory=policy.first_memory(world.max_agents))
    return see(world, policy, team, jax.random.key(seed + 1), 1)[0]


def without(views, agent: int):
    """The same views after that agent died: nobody sees it, itself included."""
    number = len(views.ranks)
    # In agent i's list row 0 is i, then the others by index.
    rows = [[i, *[j for j in range(number) if j != i]] for i in range(number)]
    gone = jnp.asarray([[j == agent for j in row] for row in rows])
    return views._replace(agent_present=views.agent_present & ~gone)


# --- Flat observations ----------------------------------------------------------------------------


def test_an_observation_lists_who_is_there_and_then_what_is_known():
    policy = build_policy(SPREAD, FlatSettings(width=8), jax.random.key(0))
    views = views_of(SPREAD, policy)
    first = jax.tree.map(lambda x: x[0], views)
    seen = observation_of(first)
    assert len(seen) == observation_size(interface_of(SPREAD)) == 3 * (5 + 1) + 3 * (2 + 1)
    np.testing.assert_array_equal(seen[:6], 1.0)
    np.testing.assert_array_equal(seen[6 : 6 + 15], np.asarray(first.agents).reshape(-1))
    np.testing.assert_array_equal(seen[21:], np.asarray(first.tasks).reshape(-1))
    gone = observation_of(first._replace(agent_present=jnp.asarray([True, False, True])))
    np.testing.assert_array_equal(gone[:6], [1, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(gone[11:16], 0.0)


def test_a_team_is_one_vector_for_a_central_critic():
    size = jnp.asarray([[3, 3]])
    view = SPREAD.team_view(begin_episode(SPREAD, size, jax.random.key(0)).world)
    assert len(state_of(view)) == 3 * (4 + 1) + 3 * (2 + 1)


def test_in_xor_an_observation_does_not_depend_on_the_number_of_players():
    """The paper's Table 1 plays at 3x3 what was trained at 2x3."""
    sizes = {observation_size(interface_of(Xor(max_agents=n, max_tasks=3))) for n in (2, 3, 8)}
    assert len(sizes) == 1
    shapes = [
        [
            leaf.shape
            for leaf in jax.tree.leaves(build_policy(Xor(max_agents=n, max_tasks=3), kind, jax.random.key(0)))
        ]
        for kind in (FlatSettings(), MatSettings())
        for n in (2, 3)
    ]
    assert shapes[0] == shapes[1]
    assert shapes[2] == shapes[3]


def test_players_with_equal_views_play_equally_so_greedy_play_never_wins():
    policy = build_policy(XOR, FlatSettings(width=8), jax.random.key(1))
    acted = policy.act(views_of(XOR, policy), None, jax.random.key(0), greedy=True)
    assert len(set(np.asarray(acted.actions).tolist())) == 1


def test_one_critic_sees_everything_and_the_other_what_its_agent_sees():
    for name, own in (("mappo", False), ("ippo", True)):
        settings = with_method(Settings(world=SPREAD, agents="3", ppo=PpoSettings(envs=2, steps=2, batch=2)), name)
        weights = begin_learning(settings, 0).weights
        team = begin_episode(SPREAD, jnp.asarray([[3, 3]]), jax.random.key(0))
        views = views_of(SPREAD, weights.policy)
        view = SPREAD.team_view(team.world)
        value = weights.critic(view, views, weights.policy)
        assert value.shape == ((3,) if own else ())
        # A peer's view changes nobody's value but its own; the critic of the team reads no views at all.
        other = views._replace(tasks=views.tasks.at[1].add(1.0))
        changed = np.asarray(weights.critic(view, other, weights.policy) != value)
        np.testing.assert_array_equal(changed, [False, True, False] if own else False)


# --- The Multi-Agent Transformer ------------------------------------------------------------------


def lively(policy: MatPolicy) -> MatPolicy:
    """Published weights begin so small that nobody looks at anybody; these do not."""
    return jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), policy)


@pytest.fixture(scope="module", params=[XOR, SPREAD, BATTLE], ids=lambda world: world.name)
def transformer(request):
    world = request.param
    policy = lively(build_policy(world, MatSettings(width=8, blocks=2, heads=2), jax.random.key(0)))
    return policy, views_of(world, policy)


@pytest.mark.parametrize("died", [None, 0, 1])
@pytest.mark.parametrize("greedy", [False, True])
def test_asked_again_it_says_what_it_said_when_it_acted(transformer, greedy, died):
    policy, views = transformer
    views = views if died is None else without(views, died)
    acted = policy.act(views, None, jax.random.key(3), greedy)
    log_probability, _ = policy.ask_again(views, None, acted.actions)
    np.testing.assert_allclose(log_probability, acted.log_probability, rtol=1e-5, atol=1e-5)


def test_nobody_hears_what_is_decided_after_it(transformer):
    """Entry i depends on the actions of 0 … i−1 and on no others."""
    policy, views = transformer
    number = len(views.ranks)
    actions = policy.act(views, None, jax.random.key(3), greedy=False).actions
    encoded = policy.encode(views)
    before = policy.answers(encoded, actions, views)
    for agent in range(number):
        other = actions.at[agent].set((actions[agent] + 1) % 2 if actions.ndim == 1 else actions[agent] + 1.0)
        after = policy.answers(encoded, other, views)
        same = [
            bool(jnp.all(a == b)) for a, b in zip(jax.tree.leaves(before)[0], jax.tree.leaves(after)[0], strict=True)
        ]
        assert same[: agent + 1] == [True] * (agent + 1)
        assert not any(same[agent + 1 :])


def test_what_the_dead_chose_is_heard_by_nobody(transformer):
    policy, views = transformer
    views = without(views, 0)
    actions = policy.act(views, None, jax.random.key(3), greedy=False).actions
    other = actions.at[0].set((actions[0] + 1) % 2 if actions.ndim == 1 else actions[0] + 1.0)
    encoded = policy.encode(views)
    for a, b in zip(
        jax.tree.leaves(policy.answers(encoded, actions, views)),
        jax.tree.leaves(policy.answers(encoded, other, views)),
        strict=True,
    ):
        np.testing.assert_array_equal(a[1:], b[1:])


@pytest.mark.parametrize(
    ("observation", "answers", "continuous", "parameters"),
    [(18, 2, True, 77_673), (80, 11, False, 82_924), (128, 14, False, 86_479), (1, 2, False, 76_549)],
    ids=["VMAS", "2s3z", "3s5z", "XOR"],
)
def test_it_has_as_many_parameters_as_the_original_uses(observation, answers, continuous, parameters):
    policy = MatPolicy(observation, answers, continuous, key=jax.random.key(0))
    value = TwoLayers(64, 1, key=jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves((policy, value)) if eqx.is_array(leaf)) == parameters
    deeper = MatPolicy(observation, answers, continuous, blocks=2, key=jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(deeper)) - sum(x.size for x in jax.tree.leaves(policy)) == 67_200


def test_its_values_reach_the_encoder():
    settings = with_method(Settings(world=SPREAD, agents="3", ppo=PpoSettings(envs=2, steps=2, batch=2)), "mat")
    weights = begin_learning(settings, 0).weights
    views = views_of(SPREAD, weights.policy)

    def total(policy):
        return jnp.sum(weights.critic(None, views, policy))

    gradient = jax.grad(total)(weights.policy)
    assert float(jnp.abs(gradient.embed.weight).sum()) > 0
    assert float(jnp.abs(gradient.head.first.weight).sum()) == 0
    with pytest.raises(UserError, match=r"policy\.kind is flat, and method mat learns policy\.kind mat only"):
        begin_learning(replace(settings, policy=FlatSettings()), 0)


# --- Through the commands -------------------------------------------------------------------------

TINY = PpoSettings(envs=4, steps=2, batch=8)


def tiny(name: str, **changes) -> Settings:
    """Updates of 4 × 2 steps."""
    settings = with_method(Settings(ppo=TINY, total_steps=6 * 8, checkpoint_every=2, **changes), name)
    if not isinstance(settings.method, OffPolicySettings):
        return settings
    small = {"envs": 4, "steps": 2, "batch": 4, "replay": 16, "warmup": 8}
    return replace(settings, method=replace(settings.method, **small))


# `make test` takes two of them, `make test-methods` all.
SOME = list(LABELS) if os.environ.get("DIAMOND_ALL_METHODS") else ["mat", "qmix"]


@pytest.mark.parametrize("name", SOME)
def test_a_baseline_trains_resumes_evaluates_and_is_exported_like_any_method(name, tmp_path):
    settings = tiny(name, world=Xor())
    (straight,) = train(settings, [0], tmp_path / "straight")
    (run,) = train(replace(settings, checkpoint_every=2), [0], tmp_path / "group")
    (run.path / "finished.json").unlink()
    for path in run.checkpoints.iterdir():
        if path.name == "step_48":
            path.rename(tmp_path / "gone")
    (again,) = resume(tmp_path / "group")
    ours, theirs = (r.checkpoints / "step_48" / "state.safetensors" for r in (again, straight))
    assert ours.read_bytes() == theirs.read_bytes()
    film = tmp_path / "film.gif"
    assert run_command(["watch", str(again.path), "--to", str(film), "--steps", "1"]) == 0
    assert film.stat().st_size > 0
    rows = evaluate(again, episodes=2)
    assert [row["play"] for row in rows] == ["greedy", "greedy", "sampled", "sampled"]
    exported = export_policy(again, tmp_path / "exported")
    for mine, kept in zip(
        jax.tree.leaves(load_policy(exported)[0]), jax.tree.leaves(load_policy(again)[0]), strict=True
    ):
        np.testing.assert_array_equal(mine, kept)
    assert described_as(open_run(again.path).settings).label == LABELS[name]


def test_a_fixed_size_is_refused_before_anything_runs_except_where_views_do_not_depend_on_it(tmp_path, capsys):
    small = ["--mappo.envs", "4", "--mappo.steps", "2", "--mappo.batch", "8", "--total-steps", "8", "--quiet"]
    xor = ["train", "xor-demo", "--method", "mappo", "--players", "2", "--actions", "3", *small]
    assert run_command([*xor, "--out", str(tmp_path / "xor")]) == 0
    assert (
        run_command(["evaluate", str(tmp_path / "xor"), "--players", "3", "--actions", "3", "--episodes", "2"]) == 0
    )
    assert (
        run_command(["evaluate", str(tmp_path / "xor"), "--players", "2:3", "--actions", "3", "--episodes", "2"]) == 0
    )
    capsys.readouterr()
    assert (
        run_command(["evaluate", str(tmp_path / "xor"), "--players", "3", "--actions", "4", "--episodes", "2"]) == 2
    )
    assert "plays only teams of the size it was trained on, 2x3, and 3x4 was asked for" in capsys.readouterr().err
    assert (
        run_command(["train", "xor-demo", "--method", "mat", "--players", "2:3", "--out", str(tmp_path / "n")]) == 2
    )
    assert "plays teams of one size only" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


def test_a_relative_of_ppo_begins_with_the_presets_numbers():
    preset = PRESETS["spread-gpu"][1]
    mappo = settings_like(METHODS["mappo"], preset.method)
    assert (mappo.envs, mappo.learning_rate, mappo.ratio) == (
        preset.method.envs,
        preset.method.learning_rate,
        "agent",
    )
    paper = settings_like(METHODS["mat"], PRESETS["xor-paper"][1].method)
    assert paper.ratio == "agent"  # its own, where the preset says joint
    assert described_as(with_method(PRESETS["spread"][1], "mat")).label == "MAT"


def test_the_papers_numbers_of_the_baselines_stand_beside_ours():
    assert PAPER_XOR["mat", (2, 3), (3, 3), "sampled"] == 0.44
    assert PAPER_XOR["qmix", (3, 3), (3, 3), "sampled"] == 0.22
    assert PAPER_XOR["gsa", (2, 2), (2, 2), "greedy"] == 0.0
    assert len(PAPER_XOR) == 10 * 3 * 2


def test_what_each_asks_of_a_robot_stands_beside_what_it_scores(tmp_path):
    runs = []
    for name, policy in (("ppo", DiamondSettings(width=8)), ("mappo", FlatSettings(width=8))):
        settings = replace(tiny(name, world=Xor()), policy=policy, total_steps=8)
        (run,) = train(settings, [0], tmp_path / name)
        evaluate(run, episodes=2)
        runs.append(open_run(run.path))
    said = as_markdown(table_lines(runs))
    assert "| a robot needs |" in said
    for needs in ("a number from each peer", "nothing; one team size"):
        assert f"| {needs} |" in said
    assert "a robot needs" not in as_markdown(table_lines(runs[:1]))
    line = next(line for line in table_lines(runs) if line.method == "mappo")
    # Two layers of eight on two actions with twelve features and who is there, and the viewer's own row; two answers.
    inputs = observation_size(interface_of(runs[1].settings.world))
    assert line.parameters == 8 * inputs + 8 + 8 * 8 + 8 + 2 * 8 + 2
    assert line.steps == 8
    assert line.seconds > 0


def test_labels_say_what_a_method_was_told_and_what_it_plays():
    spread = PRESETS["spread"][1]
    labels = [
        described_as(replace(with_method(spread, "gsa"), policy=GsaSettings(**changes))).label
        for changes in ({}, {"one_sided": True}, {"goal": "nearest"})
    ]
    assert labels == ["GSA", "GSA, as released", "GSA, nearest goal"]
    assert described_as(with_method(spread, "qmix")).label == "QMIX, nine forces"
    assert described_as(with_method(PRESETS["xor"][1], "qmix")).label == "QMIX"
    told, not_told = (
        described_as(replace(with_method(spread, "ph-marl"), policy=PortHamiltonianSettings(goal=goal))).robot_needs
        for goal in ("own", "nearest")
    )
    assert told == "two rounds with neighbours, a task of its own"
    assert not_told == "two rounds with neighbours"
    # In XOR a player is told nothing of its peers, so that it need not tell them apart.
    flat = [described_as(with_method(world, "mappo")).robot_needs for world in (spread, PRESETS["xor"][1])]
    assert flat == ["peers in a fixed order; one team size", "nothing; one team size"]


@pytest.mark.parametrize("kind", ["flat", "mat", "gsa", "ph-marl"])
def test_decisions_are_timed_at_every_team_size(kind, monkeypatch):
    monkeypatch.setattr(decisions, "TEAM_SIZES", (2, 3))
    monkeypatch.setattr(decisions, "DECISIONS", 3)
    rows = decisions.decisions_on_this_core(Settings(world=Spread(), policy=POLICIES[kind].settings()))
    assert [(row["agents"], row["median_milliseconds"] > 0) for row in rows] == [(2, True), (3, True)]


# --- The paper's own form -------------------------------------------------------------------------


@pytest.mark.parametrize("world", [Spread, Food])
def test_views_without_the_mark_have_one_feature_less_and_the_same_others(world):
    marked, bare = world(max_agents=3, max_tasks=3), world(max_agents=3, max_tasks=3, mark_viewer=False)
    state = marked.reset(jax.random.key(0), TeamSize(3, 3))
    ranks = jnp.arange(3, dtype=jnp.float32)
    with_mark, without_mark = marked.views(state, ranks), bare.views(state, ranks)
    np.testing.assert_array_equal(with_mark.agents[..., :-1], without_mark.agents)
    assert len(bare.agent_features) == len(marked.agent_features) - 1 == without_mark.agents.shape[-1]


def test_the_papers_third_block_gives_every_task_weight_one():
    """Over one agent the softmax of Eq. 4 is 1, so the viewer has seen the sum of the tasks' values."""
    ours, paper = (
        build_policy(SPREAD, DiamondSettings(width=8, third_block=block), jax.random.key(0))
        for block in ("choice", "paper")
    )
    assert (ours.choice is None, paper.choice is None) == (False, True)
    assert (len(ours.blocks), len(paper.blocks)) == (2, 3)
    view = jax.tree.map(lambda x: x[0], views_of(SPREAD, paper))
    _, weights = paper(view)
    np.testing.assert_allclose(weights[2], np.ones((3, 1)), rtol=1e-6)
    _, weights = ours(view)
    assert float(jnp.sum(weights[2])) == pytest.approx(1.0)


def test_the_papers_third_block_can_be_chosen_and_a_wrong_one_is_one_sentence(capsys):
    assert run_command(["show", "spread", "--policy.third-block", "paper", "--world.no-mark-viewer"]) == 0
    said = capsys.readouterr().out
    assert 'policy.third_block = "paper"' in said
    assert "world.mark_viewer = false" in said
    with pytest.raises(UserError, match=r"policy\.third_block is 'other'; it must be one of choice, paper"):
        DiamondSettings(third_block="other")
