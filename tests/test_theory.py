"""The paper's theory as programs: the theorem exactly, what nobody can do, and cheats that must be caught."""

import itertools
import math
import random
import re
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diamond_attention.command_line import run_command
from diamond_attention.ranks import draw_ranks
from diamond_attention.theory.homogeneity import alone, every_string, first_difference
from diamond_attention.theory.machine import Broadcast, Halt, Receive, Sample, heard, play
from diamond_attention.theory.players import (
    Counting,
    Deterministic,
    HiddenCoin,
    Named,
    Ordering,
    Oversampling,
    Private,
    Sleeper,
    every_deterministic_player,
)
from diamond_attention.theory.report import marks
from diamond_attention.theory.theorem import (
    best_private_dispatch,
    best_private_xor,
    bits_needed,
    enumerated_probability,
    order_probability,
    simulated_probability,
    solved_by,
    solves_xor,
)
from diamond_attention.worlds.xor import Xor

INPUTS = [((2, 2),), ((3, 4),)]
MESSAGES = ["00", "01", "10", "11"]


# --- The machine ----------------------------------------------------------------------------------


class Echo:
    """Says its input, hears everybody, and ends."""

    def compute(self, tape):
        if len(tape) == 1:
            return (*tape, "said"), Broadcast(tape[0])
        if len(tape) == 2:
            return tape, Receive()
        return tape, Halt()


def test_a_broadcast_is_anonymous_and_has_multiplicity():
    outcomes = play([Echo()] * 3, [("b",), ("a",), ("b",)], [""] * 3)
    assert [outcome.output[-1] for outcome in outcomes] == [(("a", 1), ("b", 2))] * 3
    assert [outcome.said for outcome in outcomes] == [("b",), ("a",), ("b",)]


class Twice:
    """Two rounds: in the second it says how many it heard in the first."""

    def compute(self, tape):
        if len(tape) in (1, 3):
            return (*tape, "said"), Broadcast("x" if len(tape) == 1 else str(tape[2][0][1]))
        if len(tape) in (2, 4):
            return tape, Receive()
        return tape, Halt()


def test_rounds_do_not_mix_and_who_has_halted_is_not_heard():
    assert [o.output[-1] for o in play([Twice(), Twice()], [("",)] * 2, [""] * 2)] == [(("2", 2),)] * 2
    mixed = play([Echo(), Twice()], [("x",), ("",)], [""] * 2)
    assert mixed[1].output[-1] == (("2", 1),)


class Restless:
    def compute(self, tape):
        return tape, Sample(0)


def test_a_machine_that_does_not_end_is_found():
    with pytest.raises(RuntimeError, match="has not halted"):
        play([Restless()], [("",)], [""])


# --- The theorem ----------------------------------------------------------------------------------


def test_known_probabilities():
    assert order_probability(2, 1) == Fraction(1, 2)
    assert order_probability(3, 2) == Fraction(4 * 3 * 2, 64)
    assert order_probability(3, 1) == 0
    assert order_probability(1, 0) == 1
    assert order_probability(23, 10) == Fraction(math.comb(1024, 23) * math.factorial(23), 1024**23)


@pytest.mark.parametrize(("players", "bits"), [(1, 2), (2, 1), (2, 3), (2, 5), (3, 2), (3, 3), (4, 2)])
def test_playing_every_game_gives_the_theorem_exactly(players, bits):
    assert enumerated_probability(players, bits) == order_probability(players, bits)


@pytest.mark.parametrize(("players", "bits"), [(5, 6), (8, 8), (32, 12)])
def test_drawn_games_agree(players, bits):
    found = [simulated_probability(players, bits, 20_000, seed) for seed in range(5)]
    inside = sum(each.low <= order_probability(players, bits) <= each.high for each in found)
    assert inside >= 4


def test_nobody_who_shares_one_bit_does_better():
    """Every way to choose from one's own bit and what was heard, in one round: the theorem is the most."""
    cases = [(own, heard((own, other))) for own in "01" for other in "01"]
    best = Fraction(0)
    for actions in itertools.product(range(2), repeat=len(cases)):
        chosen = dict(zip(cases, actions, strict=True))
        won = sum(chosen[a, heard((a, b))] != chosen[b, heard((a, b))] for a in "01" for b in "01")
        best = max(best, Fraction(won, 4))
    assert best == order_probability(2, 1)


def test_without_randomness_nobody_of_all_there_are_solves_it():
    sizes = {(2, 2, 1): 2 * 2**3, (2, 2, 2): 2 * 2**3 * 2**9, (3, 2, 1): 2 * 3**4}
    for (players, words, rounds), number in sizes.items():
        everyone = list(every_deterministic_player(players, players, words, rounds))
        assert len(everyone) == number
        assert solved_by(everyone, players, players) == 0


def test_the_enumeration_is_not_blind():
    """Two different deterministic players do solve it: what is impossible is to solve it among equals."""
    tables = [Deterministic("a", {(heard("aa"),): action}, 1) for action in range(2)]
    assert solves_xor(tables, 2, ["", ""])


def test_the_order_is_that_of_the_ranks():
    """The protocol with the bits of a float32 rank takes the places that comparing ranks gives."""
    ranks = np.asarray(draw_ranks(jax.random.key(3), 5))
    bits = [f"{int(rank * 2**24):024b}" for rank in ranks]
    outcomes = play([Ordering(24)] * 5, [((5, 5),)] * 5, bits)
    assert [outcome.output[-1] for outcome in outcomes] == [int(np.sum(ranks < rank)) for rank in ranks]


@given(st.integers(2, 5), st.integers(0, 6), st.randoms())
@settings(max_examples=30, deadline=None)
def test_players_in_another_order_do_the_same(players, bits, drawn):
    strings = ["".join(drawn.choice("01") for _ in range(bits)) for _ in range(players)]
    order = drawn.sample(range(players), players)
    plain = play([Ordering(bits)] * players, [((players, players),)] * players, strings)
    mixed = play([Ordering(bits)] * players, [((players, players),)] * players, [strings[i] for i in order])
    assert [plain[i] for i in order] == mixed


def test_bits_needed_is_the_fewest():
    for players in (2, 3, 10, 64):
        bits = bits_needed(players, 1e-6)
        assert 1 - order_probability(players, bits) < Fraction(1e-6) <= 1 - order_probability(players, bits - 1)
    assert bits_needed(2, 0.5) == 2  # exactly one half is not below it


# --- Private randomness ---------------------------------------------------------------------------


def test_private_bits_reach_the_chance_level_and_no_more():
    games = itertools.product("01", repeat=2)
    assert Fraction(sum(solves_xor([Private()] * 2, 2, game) for game in games), 4) == best_private_xor(2, 2)
    assert float(best_private_xor(3, 4)) == pytest.approx(Xor().scoring.chance(3, 4))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_no_other_probabilities_do_better(weights, data):
    players = data.draw(st.integers(1, len(weights)))
    shares = [weight / sum(weights) for weight in weights]
    ways = sum(math.prod(each) for each in itertools.combinations(shares, players))
    assert math.factorial(players) * ways <= float(best_private_xor(players, len(shares))) + 1e-12


@pytest.mark.parametrize(
    ("vehicles", "jobs", "travel"), [(4, 4, 0.0), (4, 4, 0.3), (8, 2, 0.3), (5, 3, 0.6), (1, 3, 0.5)]
)
def test_the_best_private_dispatch_is_the_best_of_a_fine_grid(vehicles, jobs, travel):
    go, share = best_private_dispatch(vehicles, jobs, travel)
    often = np.linspace(0, 1, 100_001)
    reward = jobs * (1 - (1 - often / jobs) ** vehicles) - vehicles * often * travel
    optimum = min(vehicles, jobs) * (1 - travel)
    assert share == pytest.approx(reward.max() / optimum, abs=1e-9)
    assert go == pytest.approx(often[reward.argmax()], abs=1e-4)
    if (vehicles, travel) == (4, 0.0):
        assert share == pytest.approx(1 - 0.75**4)
    with pytest.raises(ValueError, match="never gone"):
        best_private_dispatch(2, 2, 1.0)


# --- Homogeneity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("player", [Ordering(2), Private(), Deterministic("a", {(): 0}, 0)])
def test_a_player_is_homogeneous_with_its_copy(player):
    assert first_difference(player, player, INPUTS, 3, MESSAGES) is None


@pytest.mark.parametrize(
    ("one", "other", "bits"),
    [
        (Named(0), Named(1), ""),
        (HiddenCoin(random.Random(1)), HiddenCoin(random.Random(1)), ""),
        (Counting(), Counting(), ""),
        (Sleeper(0, 2, "11"), Sleeper(1, 2, "11"), "11"),
        (Sleeper(1, 2, "10"), Ordering(2), "10"),
        (Oversampling(2, 0), Oversampling(2, 1), "00"),
    ],
)
def test_cheats_are_caught(one, other, bits):
    found = first_difference(one, other, INPUTS, 3, MESSAGES)
    assert found is not None
    assert found.bits == bits
    assert "one player made" in str(found)


def test_cheats_solve_what_is_impossible_which_is_why_they_must_be_caught():
    assert solves_xor([Named(i) for i in range(4)], 4, [""] * 4)


def test_exactly_the_bits_given_are_used():
    assert alone(Ordering(2), INPUTS[0], "0", ()) == "a request for more bits"
    assert alone(Ordering(2), INPUTS[0], "011", ()) == "use of 2 bits only"
    assert list(every_string(2)) == ["", "0", "1", "00", "01", "10", "11"]


# --- The command ----------------------------------------------------------------------------------


def test_the_command_says_and_draws_it(tmp_path, capsys):
    picture = tmp_path / "theory.png"
    assert run_command(["theory", "--to", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "| 3 | 2 | 3/8 = 0.37500 | 3/8 = 0.37500 | all 64 |" in said
    assert "| 2 | 2 | 2 | 8,192 | 0 |" in said
    assert "| 64 | 31 | 2.4e-04 |" in said
    assert picture.stat().st_size > 10_000
    assert run_command(["theory", "--to", str(tmp_path / "theory.txt")]) == 2
    assert "the picture is a .png" in capsys.readouterr().err
    assert not (tmp_path / "theory.txt").exists()


def test_trained_players_with_rounded_ranks_do_what_the_theorem_says():
    for mark in marks():
        if mark.ranks.isdigit():
            exact = float(order_probability(mark.players, int(mark.ranks)))
            spread = math.sqrt(max(exact * (1 - exact), 1e-4) / mark.episodes)
            assert mark.success == pytest.approx(exact, abs=5 * spread + 0.005), mark


# --- The page -------------------------------------------------------------------------------------


def test_every_function_of_the_table_from_theory_to_architecture_is_in_the_file_it_links_to():
    page = Path(__file__).parents[1] / "docs" / "theory.md"
    table = page.read_text().split("## From theory to architecture")[1]
    links = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", table)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(links) == len(rows) == 5
    for function, file in links:
        assert f"def {function}(" in (page.parent / file).read_text(), f"{file} has no {function}"
