"""Commitments: joint turns equal agents that decide alone, claims by hand, replayable noise, and every command."""

import dataclasses
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention.broadcast import Broadcast, Listening
from diamond_attention.build import build_policy, interface_of
from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import play_episodes
from diamond_attention.policies.commitments import (
    CLAIM_UNIT,
    CommitmentsPolicy,
    CommitmentsSettings,
    Table,
    build_commitments,
)
from diamond_attention.ranks import draw_ranks
from diamond_attention.runs.bundle import load_policy
from diamond_attention.view import AgentView
from diamond_attention.worlds.conformance import ConformanceError, check_world
from diamond_attention.worlds.contract import Feature, TeamSize
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

KEY = jax.random.key(0)


def policy_for(world, claim=-10.0, **settings) -> CommitmentsPolicy:
    """Fresh, but with opinions: scores that differ, and a claim worth so much."""
    policy = build_policy(world, CommitmentsSettings(width=8, **settings), KEY)
    return dataclasses.replace(
        policy,
        score=jax.tree.map(lambda weights: 200.0 * weights, policy.score),
        claim=jnp.asarray(claim / CLAIM_UNIT),
        fixed=policy.fixed - 1.0,
    )


def views_at(world, size, key=KEY, ranks=None) -> AgentView:
    state_key, rank_key = jax.random.split(key)
    ranks = draw_ranks(rank_key, world.max_agents) if ranks is None else jnp.asarray(ranks, jnp.float32)
    return world.views(world.reset(state_key, size), ranks)


@eqx.filter_jit
def together(policy, views, greedy):
    return policy.act(views, None, KEY, greedy)


@eqx.filter_jit
def alone(policy, views, greedy):
    """Every agent by itself: what `act` does with one view at a time."""

    def one(view):
        acted = policy.act(jax.tree.map(lambda x: x[None], view), None, KEY, greedy)
        return acted.actions[0], acted.log_probability[0]

    return jax.vmap(one)(views)


# --- The joint evaluation is N separate agents ----------------------------------------------------

TEAMS = [
    (Xor(max_agents=5, max_tasks=6), TeamSize(4, 5)),
    (Dispatch(max_agents=6, max_tasks=5, depots=6), TeamSize(6, 5)),
    (Dispatch(max_agents=6, max_tasks=5, depots=2), TeamSize(4, 3)),
]


@pytest.mark.parametrize(("world", "size"), TEAMS)
@pytest.mark.parametrize("greedy", [True, False])
def test_joint_turns_are_what_each_agent_does_alone_from_its_own_view(world, size, greedy):
    policy, there = policy_for(world), slice(int(size.agents))
    distinct = 0
    for key in jax.random.split(KEY, 20):
        views = views_at(world, size, key)
        joint, separate = together(policy, views, greedy), alone(policy, views, greedy)
        np.testing.assert_array_equal(separate[0][there], joint.actions[there])
        np.testing.assert_allclose(separate[1][there], joint.log_probability[there], atol=1e-4)
        distinct += len(set(np.asarray(joint.actions[there]).tolist()))
    assert distinct > 20 * 2  # they are not all doing the same, so there was something to replay


def test_a_table_is_the_same_to_all_and_its_rows_are_the_peers_own():
    world, size = Dispatch(max_agents=5, max_tasks=4, depots=5), TeamSize(4, 3)
    policy, views = policy_for(world), views_at(world, size)
    joint, every = eqx.filter_jit(lambda: (policy.joint_table(views), jax.vmap(policy.table)(views)))()
    for viewer in range(int(size.agents)):
        order = np.asarray([viewer, *(agent for agent in range(5) if agent != viewer)])
        scores = np.asarray(every.scores)[viewer]
        np.testing.assert_allclose(scores[:4, :3], np.asarray(joint.scores)[order][:4, :3], atol=1e-4)
        assert np.all(scores[:, 3] == -np.inf)  # there is no fourth job
        np.testing.assert_array_equal(every.ranks[viewer], np.asarray(joint.ranks)[order])


@pytest.mark.parametrize(("world", "size"), TEAMS[:2])
def test_asking_again_says_what_acting_in_turn_said_and_its_gradient_is_finite(world, size):
    policy, views = policy_for(world), views_at(world, size)
    acted = together(policy, views, False)
    turn = eqx.filter_jit(lambda policy, table, *now: policy.turn(table, policy.first_prices(table), *now))
    table = eqx.filter_jit(lambda policy: policy.joint_table(views))(policy)
    chosen = jnp.zeros(table.scores.shape, bool)
    for agent in np.argsort(-np.asarray(table.ranks)):  # by the definition
        if bool(table.there[agent]):
            own = turn(policy, table, chosen, jnp.asarray(agent))
            said = jax.nn.log_softmax(own.logits)[acted.actions[agent]]
            assert float(acted.log_probability[agent]) == pytest.approx(float(said), abs=1e-4)
            chosen = chosen.at[agent].set(policy.tasks_of(acted.actions, table)[agent])

    def said_of_all(policy):
        return jnp.sum(policy.ask_again(views, None, acted.actions)[0][: int(size.agents)])

    gradient = eqx.filter_jit(jax.grad(said_of_all))(policy)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    assert float(gradient.claim) != 0.0


# --- Turns by hand --------------------------------------------------------------------------------


def bare(rounds=0, claim=-100.0, **world) -> CommitmentsPolicy:
    """Scores are whatever a test says; without rounds prices are zero."""
    policy = policy_for(Dispatch(**world), claim, rounds=rounds, rounds_each_turn=rounds)
    return dataclasses.replace(policy, fixed=jnp.zeros(1), sharpness=jnp.zeros(()), step=jnp.zeros(()))


@eqx.filter_jit
def _replayed(policy, table, turns, greedy):
    return policy.replay(table, policy.first_prices(table), turns, greedy)[0]


def replayed(policy, table, turns=None, greedy=True) -> list[int]:
    return _replayed(policy, table, jnp.asarray(len(table.ranks) if turns is None else turns), greedy).tolist()


@eqx.filter_jit
def first_prices(policy, table):
    return policy.first_prices(table)


def table_of(scores, ranks, there=None) -> Table:
    scores = jnp.asarray(scores, jnp.float32)
    there = jnp.ones(len(scores), bool) if there is None else jnp.asarray(there)
    return Table(scores, jnp.zeros((len(scores), 1)), there, jnp.asarray(ranks, jnp.float32))


def test_agents_choose_the_best_of_what_is_left_in_the_order_of_their_ranks():
    policy, same = bare(), [[3.0, 2.0, 1.0]] * 3
    assert replayed(policy, table_of(same, [0.1, 0.9, 0.5])) == [3, 1, 2]
    assert replayed(policy, table_of(same, [0.9, 0.5, 0.1])) == [1, 2, 3]
    own = [[3.0, 2.0, 1.0], [1.0, 5.0, 4.0], [2.0, 9.0, 1.0]]
    assert replayed(policy, table_of(own, [0.3, 0.2, 0.1])) == [1, 2, 3]  # 9 and 2 are gone
    assert replayed(policy, table_of(own, [0.3, 0.2, 0.1]), turns=2) == [1, 2, -1]
    own[2][2] = -1.0  # staying, at 0, is better
    assert replayed(policy, table_of(own, [0.3, 0.2, 0.1])) == [1, 2, 0]


def test_what_a_claim_is_worth_is_learned_and_may_attract():
    same = [[3.0, 2.0, 1.0]] * 3
    assert replayed(bare(claim=0.0), table_of(same, [0.1, 0.9, 0.5])) == [1, 1, 1]
    follow = [[3.0, 2.0, 1.0], [2.5, 3.0, 1.0], [1.0, 2.0, 3.0]]
    assert replayed(bare(claim=5.0), table_of(follow, [0.9, 0.1, 0.5])) == [1, 1, 1]


def test_equal_ranks_claim_nothing_from_each_other_and_draw_alike():
    same = table_of([[3.0, 2.0, 1.0]] * 3, [0.5, 0.5, 0.1])
    assert replayed(bare(), same) == [1, 1, 2]
    first, second, third = replayed(bare(), same, greedy=False)
    assert first == second != third


def test_a_peer_that_was_not_heard_claims_nothing():
    policy = bare()
    scores = [[3.0, 2.0, 1.0]] * 3
    assert replayed(policy, table_of(scores, [0.5, 0.9, 0.1])) == [2, 1, 3]
    assert replayed(policy, table_of(scores, [0.5, np.nan, 0.1]), turns=2) == [1, -1, 2]
    world = Dispatch(max_agents=3, max_tasks=3)
    learned, views = policy_for(world, -1000.0), views_at(world, TeamSize(3, 3), ranks=[0.5, 0.9, 0.1])
    taken = int(together(learned, views, True).actions[1])
    lost = views._replace(ranks=jnp.where(views.ranks == jnp.float32(0.9), jnp.nan, views.ranks))
    # From one depot all like the same job best; who has not heard the one above it takes that job too.
    assert int(alone(learned, views, True)[0][0]) != taken
    assert int(alone(learned, lost, True)[0][0]) == taken


def test_with_a_broadcast_that_is_lost_everybody_goes_by_what_it_has_heard_itself():
    """From one depot all like the same job best; who hears nobody above it takes it, and so all do."""
    world, size = Dispatch(max_agents=4, max_tasks=4), TeamSize(4, 4)
    policy = policy_for(world, -1000.0, rounds=0, rounds_each_turn=0)

    def distinct(**faults) -> int:
        team = Listening(policy, Broadcast(**faults))
        views = team.draw(views_at(world, size), KEY)
        acted = eqx.filter_jit(lambda: team.act(views, team.first_memory(4), KEY, True))()
        return len(set(acted.actions.tolist()))

    assert distinct() == 4
    assert distinct(lost=1.0, unheard="lowest") == 1


def test_absent_agents_claim_nothing_and_bid_nothing():
    scores = [[3.0, 2.0, -9.0], [3.0, 2.0, -9.0], [9.0, 9.0, 9.0]]
    here = table_of(scores, [0.1, 0.5, 0.9], there=[True, True, False])
    silent = table_of([*scores[:2], [-np.inf] * 3], [0.1, 0.5, 0.9], there=[True, True, False])
    policy = bare(rounds=4)
    np.testing.assert_array_equal(first_prices(policy, here), first_prices(policy, silent))
    assert float(first_prices(policy, here)[0]) > 0  # both that are there want the first
    assert replayed(policy, here)[:2] == replayed(policy, silent)[:2] == [2, 1]


def test_prices_rise_to_where_equal_bidders_are_indifferent():
    """Two bidders score one job 2 and the other 0: each bids half for either once the price between them is 2."""
    nowhere_else = table_of([[2.0, 0.0]] * 2, [0.1, 0.5])._replace(fixed=jnp.full((2, 1), -jnp.inf))
    prices = first_prices(bare(rounds=200), nowhere_else)
    assert float(prices[0] - prices[1]) == pytest.approx(2.0, abs=1e-3)
    np.testing.assert_array_equal(first_prices(bare(rounds=200), table_of([[2.0, 0.0]], [0.1])), 0.0)  # no rival


def test_prices_leave_a_job_to_the_peer_that_needs_it_more():
    """The first could do either of two; the second only the one that the first likes a little better."""
    scores = table_of([[5.0, 4.5, -9.0], [5.0, -5.0, -9.0], [-9.0, -9.0, -9.0]], [0.9, 0.5, 0.1])
    assert replayed(bare(), scores) == [1, 0, 0]
    assert replayed(bare(rounds=16), scores) == [2, 1, 0]


# --- Noise ----------------------------------------------------------------------------------------


def test_the_noise_of_a_number_is_its_own_and_makes_samples_of_the_distribution():
    policy = policy_for(Xor(max_agents=2, max_tasks=3))
    ranks = draw_ranks(KEY, 20_000)
    noise = jax.jit(jax.vmap(lambda rank: policy.noise(rank, 3)))(ranks)
    np.testing.assert_array_equal(noise[7], policy.noise(ranks[7], 3))
    logits = jnp.log(jnp.asarray([0.5, 0.3, 0.2]))
    drawn = np.bincount(np.asarray(jnp.argmax(logits + noise, axis=1)), minlength=3) / len(ranks)
    np.testing.assert_allclose(drawn, [0.5, 0.3, 0.2], atol=4 * 0.5 / len(ranks) ** 0.5)
    # The same bits decide the order; who ranks high must not draw otherwise than who ranks low.
    high = np.asarray(ranks) > 0.5
    for half in (high, ~high):
        of_half = np.bincount(np.asarray(jnp.argmax(logits + noise, axis=1))[half], minlength=3) / half.sum()
        np.testing.assert_allclose(of_half, [0.5, 0.3, 0.2], atol=4 * 0.5 / half.sum() ** 0.5)


def test_ranks_act_through_claims_only():
    """Numbers in the same order make the same greedy choices; where a claim is worth nothing, any order does."""
    world, size = TEAMS[1]
    policy = policy_for(world)
    numbers = [[0.1, 0.4, 0.2, 0.3, 0.0, 0.9], [0.01, 0.98, 0.02, 0.5, 0.0, 0.99], [0.4, 0.1, 0.3, 0.2, 0.9, 0.0]]
    some, same_order, other_order = (views_at(world, size, ranks=ranks) for ranks in numbers)
    np.testing.assert_array_equal(together(policy, some, True).actions, together(policy, same_order, True).actions)
    assert np.any(together(policy, some, True).actions != together(policy, other_order, True).actions)
    silent = policy_for(world, claim=0.0, rounds_each_turn=0)
    np.testing.assert_array_equal(together(silent, some, True).actions, together(silent, other_order, True).actions)


# --- Worlds ---------------------------------------------------------------------------------------


def test_a_claim_that_outweighs_all_solves_xor_at_any_size():
    """Without any training: what is learned is one number."""
    policy = policy_for(Xor(max_agents=2, max_tasks=2), claim=-1000.0)
    world = Xor(max_agents=16, max_tasks=20)
    for size in (TeamSize(2, 3), TeamSize(16, 16), TeamSize(12, 20)):
        for greedy in (True, False):
            assert play_episodes(world, policy, size, 20, KEY, greedy=greedy)["success"].mean() == 1.0


@dataclasses.dataclass(frozen=True)
class Boastful(Dispatch):
    """Says of its features what is not so."""

    task_features = (*Dispatch.task_features[:2], Feature("distance", frame="common"), *Dispatch.task_features[3:])


@dataclasses.dataclass(frozen=True)
class Elsewhere(Dispatch):
    """Says of two features that they are places, which they are not."""

    task_features = tuple(Feature("?", frame="place" if column in (2, 3) else "own") for column in range(5))


@dataclasses.dataclass(frozen=True)
class ShortWays(Dispatch):
    """A vehicle may only take a job within one unit of its own depot, and the world says nothing of that."""

    same_legal_actions = False

    def views(self, state, ranks):
        views = super().views(state, ranks)
        near = views.tasks[:, :, 2] < 1.0
        return views._replace(legal_actions=views.legal_actions.at[:, 1:].set(views.legal_actions[:, 1:] & near))


@dataclasses.dataclass(frozen=True)
class SaidToBeTheSame(ShortWays):
    same_legal_actions = True


def test_a_world_where_one_agent_may_what_another_may_not_is_refused():
    """A viewer would replay a peer's turn with its own legal actions, and the peer play another."""
    size = {"max_agents": 4, "max_tasks": 3, "depots": 4}
    check_world(ShortWays(**size))
    with pytest.raises(UserError, match="what is legal for one agent is legal for all"):
        build_commitments(CommitmentsSettings(), interface_of(ShortWays(**size)), KEY)
    with pytest.raises(ConformanceError, match="same_legal_actions is True"):
        check_world(SaidToBeTheSame(**size))
    policy, differ = policy_for(SaidToBeTheSame(**size)), 0
    for key in jax.random.split(KEY, 20):
        views = views_at(SaidToBeTheSame(**size), TeamSize(4, 3), key)
        differ += int(jnp.sum(together(policy, views, True).actions != alone(policy, views, True)[0]))
    assert differ > 0  # so the refusal is needed


def test_the_check_of_worlds_reads_what_features_say():
    with pytest.raises(ConformanceError, match="frame common"):
        check_world(Boastful(max_agents=4, max_tasks=3, depots=4))
    with pytest.raises(ConformanceError, match="as that peer sees it"):
        check_world(Elsewhere(max_agents=4, max_tasks=3, depots=4))


@pytest.mark.parametrize(
    ("world", "sentence"),
    [(Spread(), "there is nothing to claim"), (Smaclite("2s3z"), "must know how their peers see the tasks")],
)
def test_worlds_it_cannot_play_are_refused_in_one_sentence(world, sentence):
    with pytest.raises(UserError, match=sentence):
        build_commitments(CommitmentsSettings(), interface_of(world), KEY)


def test_the_command_line_refuses_them_before_anything_is_written(tmp_path, capsys):
    words = ["train", "spread-cpu", "--policy.kind", "commitments", "--out", str(tmp_path / "run")]
    assert run_command(words) == 2
    assert "nothing to claim" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- Every command --------------------------------------------------------------------------------

SMALL = ("--policy.kind", "commitments", "--policy.width", "4", "--ppo.envs", "8", "--ppo.steps", "2", "--quiet")
TRAINED = {
    "xor": ("--players", "2:3", "--actions", "3:4", "--ppo.batch", "16"),
    "dispatch": ("--agents", "2:3", "--tasks", "3:4", "--ppo.batch", "16", "--world.depots", "3"),
}


@pytest.mark.long
@pytest.mark.parametrize("preset", TRAINED)
def test_it_is_trained_stopped_resumed_played_exported_and_watched(preset, tmp_path, capsys):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train = ["train", preset, *TRAINED[preset], *SMALL, "--total-steps", "96", "--checkpoint-every", "1"]
    assert run_command([*train, "--out", str(whole)]) == 0
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / "seed_0" / "checkpoints" / "step_96")  # as if it had been killed before its last update
    (parts / "seed_0" / "finished.json").unlink()
    assert run_command(["resume", str(parts), "--quiet"]) == 0
    assert_same_policies(whole / "seed_0", parts / "seed_0")

    size = ["--agents", "16", "--tasks", "20", "--episodes", "2", "--greedy", "--quiet"]
    assert run_command(["evaluate", str(whole), *size]) == 0
    assert "commitments" in capsys.readouterr().out
    assert run_command(["export", str(whole / "seed_0"), "--to", str(tmp_path / "alone")]) == 0
    assert_same_policies(whole / "seed_0", tmp_path / "alone")
    assert run_command(["watch", str(tmp_path / "alone"), "--to", str(tmp_path / "film.gif"), "--quiet"]) == 0
    assert (tmp_path / "film.gif").stat().st_size > 1000


def assert_same_policies(first, second):
    policies = [jax.tree.leaves(load_policy(each)[0]) for each in (first, second)]
    for one_array, other in zip(*policies, strict=True):
        np.testing.assert_array_equal(one_array, other)
