"""An imperfect broadcast of ranks: closed forms for players that know what to do, and what rows say of it."""

import math
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond_attention import (
    Broadcast,
    Categorical,
    DiamondSettings,
    PerAgentPolicy,
    Settings,
    Spread,
    TeamSize,
    Xor,
    build_policy,
    evaluate,
    open_run,
)
from diamond_attention.broadcast import CLAIMED, Listening, hear
from diamond_attention.command_line import run_command
from diamond_attention.evaluation import evaluate as evaluation
from diamond_attention.evaluation.evaluate import play_episodes
from diamond_attention.reports import tables
from diamond_attention.reports.faults import draw_faults
from diamond_attention.reports.played import played_by
from diamond_attention.reproduce.entries import ENTRIES
from diamond_attention.reproduce.pages import by_fault
from diamond_attention.runs.bundle import PolicyAt, bundle_files
from diamond_attention.runs.files import write_folder
from diamond_attention.runs.folder import Run
from diamond_attention.runs.rows import read_rows
from diamond_attention.theory.theorem import order_probability
from diamond_attention.worlds.xor import chance_level

KEY = jax.random.key(0)
EPISODES = 20_000
RULES = ("guessed", "lowest", "highest")


class InOrder(PerAgentPolicy):
    """Plays XOR exactly: the highest rank takes the first action, the next the second."""

    def __call__(self, view):
        above = jnp.sum((view.ranks > view.ranks[0]) & view.agent_present)
        tasks = jnp.arange(len(view.task_present))
        return Categorical(jnp.where(tasks == above, 0.0, -jnp.inf)), ()


def successes(players, broadcast):
    world = Xor(max_agents=players, max_tasks=players)
    policy = Listening(InOrder(), broadcast)
    played = play_episodes(world, policy, TeamSize(players, players), EPISODES, KEY, greedy=True)
    return int(played["success"].sum())


def assert_rate(successes, expected):
    """Within an interval that a right program leaves once in 15,000 times."""
    error = 4 * math.sqrt(expected * (1 - expected) / EPISODES)
    assert abs(successes / EPISODES - expected) <= error + 1e-9


# --- Players that know what to do -----------------------------------------------------------------


@pytest.mark.parametrize("players", [2, 3])
def test_with_nothing_heard_guessing_is_the_chance_level_and_the_other_rules_never_win(players):
    """Who takes all others to be below, or above, takes the same place as they. Guesses make all places as likely."""
    assert_rate(successes(players, Broadcast(lost=1.0)), chance_level(players, players))
    for rule in ("lowest", "highest"):
        assert successes(players, Broadcast(lost=1.0, unheard=rule)) == 0


@pytest.mark.parametrize("lost", [0.1, 0.5, 0.9])
def test_two_players_of_whom_some_numbers_are_lost(lost):
    """Both hear with (1−p)²: they win. One hears, 2p(1−p): the deaf one is right in a half of the cases if it always
    takes itself to be first, and in ∫ r² + (1−r)² dr = 2/3 if it guesses. Neither, p²: 0, or 1/2 if both guess.
    """
    for rule, one, neither in (("lowest", 1 / 2, 0), ("highest", 1 / 2, 0), ("guessed", 2 / 3, 1 / 2)):
        expected = (1 - lost) ** 2 + 2 * lost * (1 - lost) * one + lost**2 * neither
        assert_rate(successes(2, Broadcast(lost=lost, unheard=rule)), expected)


def test_late_at_the_first_step_is_unheard():
    for rule in RULES:
        assert_rate(successes(2, Broadcast(late=1.0, unheard=rule)), 0.5 if rule == "guessed" else 0.0)


@pytest.mark.parametrize(("players", "bits"), [(2, 1), (2, 3), (3, 2), (4, 2), (3, 1)])
def test_few_bits_win_as_often_as_the_theorem_says(players, bits):
    assert_rate(successes(players, Broadcast(bits=bits)), float(order_probability(players, bits)))


def test_one_that_always_goes_first_leaves_the_others_their_order_and_two_are_in_each_others_way():
    for players in (2, 3):
        assert successes(players, Broadcast(always_first=1)) == EPISODES
        assert successes(players, Broadcast(always_first=2)) == 0


# --- What one agent hears -------------------------------------------------------------------------

NUMBERS, BEFORE = jnp.array([0.5, 0.1, 0.9, 0.4]), jnp.array([0.2, 0.8, 0.3, 0.6])


def heard(broadcast, was_before=True, key=KEY):
    return hear(broadcast, NUMBERS, BEFORE, jnp.asarray(was_before), key)


def test_an_agent_always_knows_its_own_number():
    for broadcast in (Broadcast(lost=1.0), Broadcast(late=1.0), Broadcast(lost=1.0, unheard="highest")):
        assert heard(broadcast)[0] == NUMBERS[0]


def test_what_is_heard_instead():
    np.testing.assert_array_equal(heard(Broadcast()), NUMBERS)
    np.testing.assert_array_equal(heard(Broadcast(late=1.0)), BEFORE.at[0].set(NUMBERS[0]))
    for rule in ("lowest", "highest"):
        for broadcast, was_before in ((Broadcast(lost=1.0), True), (Broadcast(late=1.0), False)):
            peers = heard(replace(broadcast, unheard=rule), was_before)[1:]
            assert (peers < 0).all() if rule == "lowest" else (peers > CLAIMED).all()
    guesses = heard(Broadcast(lost=1.0, bits=2))[1:]
    assert jnp.isin(guesses, jnp.array([0.0, 0.25, 0.5, 0.75])).all()


def test_receivers_miss_numbers_on_their_own_and_anew_at_every_step():
    keys = jax.random.split(KEY, 4000)
    arrived = np.asarray(
        jax.vmap(lambda key: heard(Broadcast(lost=0.5, unheard="lowest"), key=key))(keys)[:, 1:] >= 0
    )
    together = np.cov(arrived.T)
    np.testing.assert_allclose(together, np.eye(3) / 4, atol=4 * 0.25 / math.sqrt(4000))


def heard_in_turn(broadcast, ranks, room):
    """What every agent hears at each of several steps, given everybody's numbers of those steps."""
    heard = []

    class Noting(InOrder):
        def act(self, views, memory, key, greedy):
            heard.append(views.ranks)
            return super().act(views, memory, key, greedy)

    world, policy = Xor(max_agents=room, max_tasks=room), Listening(Noting(), broadcast)
    state, memory = world.reset(KEY, TeamSize(3, 3)), policy.first_memory(room)
    for step, numbers in enumerate(ranks):
        padded = jnp.zeros(room).at[: len(numbers)].set(numbers)
        views = policy.draw(world.views(state, padded), jax.random.fold_in(KEY, step))
        memory = policy.act(views, memory, KEY, greedy=True).memory
    return np.stack(heard)


RANKS = np.asarray(jax.random.uniform(KEY, (3, 3)))


def test_a_number_that_is_late_is_the_one_of_the_step_before():
    heard = heard_in_turn(Broadcast(late=1.0, unheard="lowest"), RANKS, room=3)
    assert (heard[0][:, 1:] < 0).all()
    for step in (1, 2):
        now, before = RANKS[step], RANKS[step - 1]
        np.testing.assert_array_equal(heard[step][1], [now[1], before[0], before[2]])
    # Those of ranks that are held are late only once.
    heard = heard_in_turn(Broadcast(late=1.0), RANKS[[0, 0]], room=3)
    np.testing.assert_array_equal(heard[1][1], RANKS[0][[1, 0, 2]])


def test_room_for_more_agents_changes_nothing():
    broadcast = Broadcast(lost=0.5, late=0.3, bits=8, always_first=1)
    tight, roomy = (heard_in_turn(broadcast, RANKS, room) for room in (3, 5))
    np.testing.assert_array_equal(roomy[:, :3, :3], tight)


# --- Trained policies -----------------------------------------------------------------------------


def test_the_mask_hides_whom_it_did_not_hear_and_the_floor_damps_them():
    """Lowest is what a lower rank is: no weight under the paper's mask, less weight under the learned floor."""
    world = Spread(max_agents=3, max_tasks=3)
    lowest = Broadcast(lost=1.0, unheard="lowest")
    views = world.views(world.reset(KEY, TeamSize(3, 3)), jnp.array([0.1, 0.5, 0.9]))
    deaf = jax.vmap(partial(hear, lowest))(views.ranks, views.ranks, jnp.ones(3, bool), jax.random.split(KEY, 3))
    deaf = views._replace(ranks=deaf)
    for mask in ("rank", "floor"):
        policy = build_policy(world, DiamondSettings(width=8, mask=mask), KEY)
        if mask == "floor":
            policy = eqx.tree_at(lambda p: p.rank_bias, policy, jnp.full_like(policy.rank_bias, 2.0))
        look = jax.jit(jax.vmap(lambda view, policy=policy: policy(view)[1]))
        hearing, not_hearing = look(views), look(deaf)
        peers = not_hearing[0][0, :, 1:]  # of the lowest-ranked agent, which sees both if it hears them
        assert (hearing[0][0, :, 1:] > 0).all()
        assert (peers == 0).all() if mask == "rank" else ((peers > 0) & (peers < hearing[0][0, :, 1:])).all()


def test_what_was_done_can_be_asked_again():
    """Whatever is random in hearing, and in a policy's own draws, is data: dropout here."""
    world = Xor(max_agents=3, max_tasks=3)
    drops = build_policy(world, DiamondSettings(width=4, mask="dropout"), KEY)
    policy = Listening(drops, Broadcast(lost=0.5, bits=3))
    views = policy.draw(world.views(world.reset(KEY, TeamSize(3, 3)), jnp.array([0.1, 0.5, 0.9])), KEY)
    memory = policy.first_memory(3)
    acted = policy.act(views, memory, KEY, greedy=False)
    np.testing.assert_allclose(policy.ask_again(views, memory, acted.actions)[0], acted.log_probability, rtol=1e-6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A policy as it begins, in a folder of its own."""
    folder = tmp_path_factory.mktemp("runs") / "xor"
    settings = Settings(world=Xor(), agents="2", tasks="2", policy=DiamondSettings(width=4))
    policy = build_policy(settings.world, settings.policy, KEY)
    write_folder(folder, bundle_files(Run(folder, "xor", 0, (0,), settings), PolicyAt(policy, 0, 0), {}))
    return open_run(folder)


def without_rows(run):
    run.episodes.unlink(missing_ok=True)


def test_a_perfect_broadcast_is_the_program_and_the_rows_there_were(run):
    without_rows(run)
    usual = evaluate(run, episodes=20)
    programs = evaluation._play_batch._cache_size()
    assert evaluate(run, episodes=20, broadcast=Broadcast(unheard="lowest")) == usual
    assert evaluation._play_batch._cache_size() == programs
    assert {row["play"] for row in usual} == {"greedy", "sampled"}
    # One program serves every fault.
    for broadcast in (Broadcast(lost=0.5), Broadcast(bits=4), Broadcast(late=0.2, always_first=1)):
        evaluate(run, episodes=20, play=["greedy"], broadcast=broadcast)
    assert evaluation._play_batch._cache_size() == programs + 1


def test_who_does_not_hear_ranks_plays_as_before(run):
    world = Xor()
    policy = build_policy(world, DiamondSettings(width=8, mask="none"), KEY)
    play = partial(play_episodes, world, size=TeamSize(2, 2), episodes=64, key=KEY)
    usual, deaf = play(policy=policy), play(policy=Listening(policy, Broadcast(lost=1.0, always_first=2)))
    for name, values in usual.items():
        np.testing.assert_array_equal(deaf[name], values)


def test_rows_and_tables_tell_faults_apart(run, tmp_path, capsys):
    without_rows(run)
    words = ["evaluate", str(run.path), "--greedy", "--episodes", "10"]
    told = (["--broadcast.lost", "1"], ["--broadcast.bits", "12"], ["--broadcast.bits", "4"], [])
    for faults in (*told, *told):  # what is played again adds nothing
        assert run_command([*words, *faults]) == 0
    rows = read_rows(run.episodes)
    assert len(rows) == 40
    assert {row["play"] for row in rows} == {"greedy", "greedy lost=1", "greedy bits=4", "greedy bits=12"}
    lines = tables.table_lines([run])
    assert [line.broadcast for line in lines] == ["", "bits=4", "bits=12", "lost=1"]
    assert [row[3] for row in tables.text_rows(lines)] == ["2x2", "2x2, bits=4", "2x2, bits=12", "2x2, lost=1"]
    assert [line.paper is None for line in lines] == [False, True, True, True]
    # Figures by team size are of what hears everything.
    (played,) = played_by([run])
    assert len(played.scores[2, 2][0]) == 10
    assert draw_faults([run], tmp_path / "faults.png") == tmp_path / "faults.png"
    assert (tmp_path / "faults.png").stat().st_size > 10_000
    # A page has a line for each fault, and a column for each game of a group.
    wanted = ENTRIES["faults"].wanted[0]
    table = by_fault([(wanted, line) for line in lines])
    assert table.headings == ["broadcast", f"{wanted.group.name} at 2x2"]
    assert [row[0] for row in table.rows] == ["perfect", "bits=4", "bits=12", "lost=1"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--broadcast.lost", "1.5"], "--broadcast.lost is 1.5; it must lie between 0 and 1."),
        (["--broadcast.bits", "0"], "--broadcast.bits is 0; it must lie between 1 and 23."),
        (["--broadcast.always-first", "-1"], "--broadcast.always-first is -1; it must lie between 0 and 4096."),
        (["--broadcast.unheard", "kept"], "it must be one of guessed, lowest, highest."),
        (["--broadcast.loss", "1"], "has no option --broadcast.loss; did you mean --broadcast.lost?"),
    ],
)
def test_what_no_broadcast_can_be_is_one_sentence(run, capsys, words, sentence):
    without_rows(run)
    assert run_command(["evaluate", str(run.path), *words]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert not run.episodes.exists()
