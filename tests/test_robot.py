"""Messages of robots, and what is believed of peers: packets lost, late, repeated, reordered, forged, meaningless."""

import random
import struct
import tracemalloc

import numpy as np
import pytest

from diamond_attention.deploy import Agent, spread_view
from diamond_attention.errors import UserError
from diamond_attention.robot.faults import BadEar, Faults
from diamond_attention.robot.message import (
    CODE_BYTES,
    FORGED,
    HEAD,
    LARGEST_MESSAGE,
    MALFORMED,
    MOST_AGENTS,
    OTHER_FLEET,
    STRANGE,
    Refused,
    Said,
    Seal,
)
from diamond_attention.robot.peers import HEARD, MINE, OLD, Peers
from diamond_attention.robot.robot import LOST, Robot
from diamond_attention.robot.senses import Senses

SECRET = b"sixteen bytes or more"
SEAL = Seal(SECRET, "north")
LANDMARKS = [[1.0, 1.0], [-0.5, 0.2], [0.3, -0.8]]


def said(agent=1, step=0, epoch=1, rank=0.25, values=(0.5, -0.5, 0.0, 0.125)):
    return Said(agent, epoch, step, rank, values)


def refusal(seal, datagram):
    with pytest.raises(Refused) as refused:
        seal.read(datagram)
    return refused.value.reason


@pytest.fixture(scope="module")
def agent():
    return Agent.load("spread", seed=0)


def robot_of(agent, number=0, **options):
    return Robot(agent, number, SEAL, **{"epoch": 1, **options})


# --- Messages -------------------------------------------------------------------------------------


def test_a_message_says_what_was_written_in_as_many_bytes_as_the_format_says():
    datagram = SEAL.write(said(agent=7, step=2**40, epoch=2**63, rank=np.float32(0.1)))
    assert len(datagram) == 30 + 4 * 4 + 16
    assert SEAL.read(datagram) == said(agent=7, step=2**40, epoch=2**63, rank=float(np.float32(0.1)))
    assert datagram[:3] == b"DA\x01"
    assert int.from_bytes(datagram[18:26]) == 2**40


def test_a_number_that_is_drawn_arrives_as_it_was_drawn(agent):
    drawn = [agent.draw_rank() for _ in range(1000)]
    assert [np.float32(SEAL.read(SEAL.write(said(rank=rank))).rank) for rank in drawn] == drawn


def test_the_code_is_hmac_sha256_with_the_key_of_this_fleet():
    """Written out once more, from the page's words alone."""
    import hashlib
    import hmac

    key = hmac.new(SECRET, b"diamond attention fleet 1\0north", hashlib.sha256).digest()
    body = b"DA\x01\x01" + hashlib.sha256(b"north").digest()[:4] + struct.pack(">HQQff", 3, 9, 5, 0.5, -1.5)
    datagram = body + hmac.new(key, body, hashlib.sha256).digest()[:16]
    assert SEAL.read(datagram) == Said(3, 9, 5, 0.5, (-1.5,))


def test_every_bit_is_under_the_code():
    datagram = SEAL.write(said())
    for bit in range(8 * len(datagram)):
        changed = bytearray(datagram)
        changed[bit // 8] ^= 1 << bit % 8
        assert refusal(SEAL, bytes(changed)) in (MALFORMED, OTHER_FLEET, FORGED)


@pytest.mark.parametrize("length", [0, 1, HEAD.size + CODE_BYTES - 1, 61, 63, LARGEST_MESSAGE + 1, 65507])
def test_other_lengths_are_malformed(length):
    assert refusal(SEAL, SEAL.write(said()).ljust(length, b"\0")[:length]) == MALFORMED


def test_two_fleets_on_one_network_do_not_hear_each_other():
    south, without_key = Seal(SECRET, "south"), Seal(b"another secret of them", "north")
    assert refusal(south, SEAL.write(said())) == OTHER_FLEET
    assert refusal(without_key, SEAL.write(said())) == FORGED
    # Also if somebody puts the other fleet's mark on it, with the same secret behind both.
    datagram, theirs = SEAL.write(said()), south.write(said())
    assert refusal(south, datagram[:4] + theirs[4:8] + datagram[8:]) == FORGED


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": MOST_AGENTS},
        {"rank": 1.0},
        {"rank": -0.1},
        {"rank": float("nan")},
        {"values": (float("inf"), 0, 0, 0)},
    ],
)
def test_what_a_peer_cannot_say_is_strange_also_with_the_right_code(wrong):
    assert refusal(SEAL, SEAL.write(said(**wrong))) == STRANGE


def test_short_keys_are_refused():
    with pytest.raises(UserError, match="at least 16"):
        Seal(b"short", "north")


# --- Peers ----------------------------------------------------------------------------------------


def numbers(peers, step):
    return [(peer.said.agent, peer.said.step) for peer in peers.present(step)]


def test_only_the_newest_message_counts_whatever_order_packets_come_in():
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 2, 0, 1]):
        peers = Peers(own=0, epoch=1, patience=5)
        became = [peers.hear(said(step=step), 0) for step in order]
        assert numbers(peers, 0) == [(1, 2)]
        assert became.count(OLD) == len(order) - len({max(order[: i + 1]) for i in range(len(order))})


def test_a_peer_that_was_not_heard_for_longer_than_patience_is_absent_until_it_is_heard_again():
    peers = Peers(own=0, epoch=1, patience=3)
    peers.hear(said(step=10), 7)
    assert [bool(peers.present(step)) for step in range(7, 13)] == [True, True, True, True, False, False]
    assert peers.hear(said(step=10), 12) == OLD  # nobody can bring it back with what it said then
    assert peers.hear(said(step=11), 12) == HEARD
    assert numbers(peers, 12) == [(1, 11)]


def test_who_starts_again_is_heard_at_once_and_its_earlier_life_no_more():
    peers = Peers(own=0, epoch=1, patience=5)
    peers.hear(said(step=5000, epoch=4), 0)
    assert peers.hear(said(step=0, epoch=5), 1) == HEARD
    assert peers.hear(said(step=5001, epoch=4), 1) == OLD
    assert numbers(peers, 1) == [(1, 0)]


def test_steps_and_clocks_of_others_are_never_compared_with_one_s_own():
    """A peer whose clock says 2106 and whose steps began a year ago is as present as any other."""
    peers = Peers(own=0, epoch=5, patience=2)
    peers.hear(said(agent=1, step=10**12, epoch=2**64 - 1), 3)
    peers.hear(said(agent=2, step=0, epoch=0), 3)
    assert [agent for agent, _ in numbers(peers, 3)] == [1, 2]


def test_joining_and_leaving():
    peers = Peers(own=9, epoch=1, patience=1)
    seen = []
    for step in range(8):
        for agent, lives in {0: range(8), 1: range(3, 8), 2: range(4)}.items():
            if step in lives:
                peers.hear(said(agent=agent, step=step), step)
        seen.append([agent for agent, _ in numbers(peers, step)])
    assert seen == [[0, 2], [0, 2], [0, 2], [0, 1, 2], [0, 1, 2], [0, 1], [0, 1], [0, 1]]


def test_one_s_own_voice_is_no_peer_and_another_with_one_s_number_is_told():
    peers = Peers(own=1, epoch=3, patience=5)
    assert peers.hear(said(agent=1, epoch=3), 0) is None
    assert peers.hear(said(agent=1, epoch=4), 0) == MINE
    assert peers.present(0) == []


# --- Robots ---------------------------------------------------------------------------------------


def test_a_robot_decides_on_what_its_peers_have_said(agent):
    robot = robot_of(agent)
    robot.speak(Senses([0.1, 0.2, 0.0, 0.1], LANDMARKS))
    robot.hear(SEAL.write(said(agent=5, rank=0.75, values=(1.0, 0.5, 0.0, 0.0))))
    robot.hear(SEAL.write(said(agent=2, rank=0.25, values=(-1.0, 0.5, 0.25, 0.0))))
    action = robot.decide()
    view = spread_view(
        [0.1, 0.2], [0, 0.1], LANDMARKS, robot.rank, [[-1, 0.5], [1, 0.5]], [[0.25, 0], [0, 0]], [0.25, 0.75],
        mark_viewer=len(agent.agent_features) == 5,
    )  # fmt: skip
    np.testing.assert_array_equal(action, agent.decide(view))
    assert robot.counts == {HEARD: 2}


def test_what_a_robot_decides_does_not_depend_on_the_order_of_packets():
    packets = [SEAL.write(said(agent=a, step=s, values=(a / 9, s / 9, 0, 0))) for a in range(1, 7) for s in range(3)]
    decided = []
    for seed in range(5):
        robot = robot_of(Agent.load("spread", seed=3))
        robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
        for packet in random.Random(seed).sample(packets, len(packets)):
            robot.hear(packet)
        decided.append(robot.decide())
    np.testing.assert_array_equal(decided, decided[:1] * 5)


def test_a_number_that_was_not_heard_is_guessed_anew_and_one_that_was_is_not(agent):
    robot, asked = robot_of(agent), []
    robot._agent = type("Watched", (), {"decide": lambda self, view: asked.append(view.ranks), "world": agent.world,
        "agent_features": agent.agent_features, "draw_rank": agent.draw_rank, "rank_hold": 1,
        "rank_is_due": agent.rank_is_due})()  # fmt: skip
    for step in range(50):
        robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
        if step == 0:
            robot.hear(SEAL.write(said(rank=0.25)))
        robot.decide()
    told = [float(ranks[1]) for ranks in asked if len(ranks) == 2]
    assert told[0] == 0.25
    assert len(told) == 1 + robot.peers.patience  # then it is absent
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(("hold", "believed"), [(1, 1), (3, 2), (4, 3), ("episode", 20)])
def test_a_number_that_is_held_is_believed_until_its_robot_draws_anew(agent, hold, believed):
    """A peer is heard once: at its step 7 where a number holds for three steps, so that it draws at 9; else at 5."""
    robot, asked = robot_of(agent, patience=19), []
    robot._agent = type("Watched", (), {"decide": lambda self, view: asked.append(view.ranks), "world": agent.world,
        "agent_features": agent.agent_features, "draw_rank": agent.draw_rank, "rank_hold": hold,
        "rank_is_due": agent.rank_is_due})()  # fmt: skip
    for step in range(20):
        robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
        if step == 0:
            robot.hear(SEAL.write(said(step=5 if hold != 3 else 7, rank=0.25)))
        robot.decide()
    told = [float(ranks[1]) for ranks in asked]
    assert told[:believed] == [0.25] * believed
    assert 0.25 not in told[believed:]
    assert len(told) == 20


def test_a_robot_draws_when_its_policy_says_and_once_where_that_is_an_episode():
    for hold, wanted in ((1, 12), (3, 4), ("episode", 1)):
        holding = Agent.load("spread", seed=0)
        holding.rank_hold = hold
        robot, drawn = robot_of(holding), []
        for _ in range(12):
            robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
            drawn.append(robot.rank)
        assert len(set(drawn)) == wanted
        assert drawn == sorted(drawn, key=drawn.index)  # each for steps on end


def test_robots_with_equal_numbers_at_one_place_do_the_same_and_the_next_draw_parts_them():
    def step(ranks):
        team = [robot_of(Agent.load("dispatch-commitments", seed=9), number) for number in range(2)]
        for robot, rank in zip(team, ranks, strict=True):
            robot.drawn_rank = lambda rank=rank: rank
        jobs = [[0.5, 0.1, 1.2], [-0.4, 0.3, 1.0], [0.2, -0.6, 0.8]]
        told = [robot.speak(Senses([0.0, 0.0], jobs)) for robot in team]
        for robot in team:
            for datagram in told:
                robot.hear(datagram)
        return [robot.decide() for robot in team]

    same, other = step([0.5, 0.5]), step([0.5, 0.75])
    assert same[0] == same[1]
    assert other[0] != other[1]


def test_values_of_another_world_are_strange(agent):
    robot = robot_of(agent)
    robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
    robot.hear(SEAL.write(said(values=(0.0, 0.0))))
    robot.decide()
    assert robot.counts == {STRANGE: 1}


def test_a_world_without_bodies_has_no_fleet():
    with pytest.raises(UserError, match="smaclite"):
        robot_of(Agent.load("smaclite"))


# --- A bad network --------------------------------------------------------------------------------


def test_so_many_messages_are_lost_as_was_asked_for_each_receiver_on_its_own():
    ears = [BadEar(Faults(loss=0.3, seed=5), number) for number in range(3)]
    messages = [said(agent=7, step=step) for step in range(20_000)]
    lost = np.array([[ear.is_lost(each) for each in messages] for ear in ears])
    np.testing.assert_allclose(lost.mean(axis=1), 0.3, atol=0.015)
    np.testing.assert_allclose(np.corrcoef(lost) - np.eye(3), 0, atol=0.03)
    again = BadEar(Faults(loss=0.3, seed=5), 0)
    assert [again.is_lost(each) for each in reversed(messages)][::-1] == lost[0].tolist()
    assert [BadEar(Faults(loss=0.3, seed=6), 0).is_lost(each) for each in messages] != lost[0].tolist()


def test_late_messages_are_heard_so_many_steps_later(agent):
    robot = robot_of(agent, faults=Faults(delay=2))
    heard = []
    for step in range(6):
        robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
        robot.hear(SEAL.write(said(step=step)))
        robot.decide()
        heard.append([peer.said.step for peer in robot.peers.present(step)])
    assert heard == [[], [], [0], [1], [2], [3]]


# --- Anything that may come in --------------------------------------------------------------------


def test_a_hundred_thousand_packets_of_every_kind(agent):
    """Random, mutated, cut, replayed, reordered, of other fleets and of peers that say strange things."""
    drawn = random.Random(1)
    robot, other = robot_of(agent, patience=50), Seal(SECRET, "south")
    steps, sent, newest, expected = dict.fromkeys(range(1, 65), 0), [], {}, 0
    robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
    tracemalloc.start()
    for number in range(100_000):
        kind = drawn.randrange(8)
        peer = drawn.randrange(1, 65)
        genuine = SEAL.write(said(agent=peer, step=steps[peer], rank=drawn.random() * 0.99))
        if kind == 0:
            robot.hear(drawn.randbytes(drawn.randrange(300)))
        elif kind == 1:
            changed = bytearray(genuine)
            for _ in range(drawn.randrange(1, 4)):
                changed[drawn.randrange(len(changed))] ^= drawn.randrange(1, 256)
            if bytes(changed) != genuine:
                robot.hear(bytes(changed))
        elif kind == 2:
            robot.hear(genuine[: drawn.randrange(len(genuine))])
        elif kind == 3:
            robot.hear(genuine + drawn.randbytes(drawn.randrange(1, 300)))
        elif kind == 4 and sent:
            robot.hear(drawn.choice(sent))  # replayed: it was heard, or overtaken, before
        elif kind == 5:
            robot.hear(other.write(said(agent=peer, step=10**9)))
        elif kind == 6:
            robot.hear(SEAL.write(said(agent=peer, step=10**9, values=(float("nan"),) * 4)))
        else:
            # Two messages of a peer, the second one overtaking the first.
            first, second = genuine, SEAL.write(said(agent=peer, step=steps[peer] + 1))
            for datagram in (second, first):
                robot.hear(datagram)
            steps[peer] += 2
            newest[peer] = steps[peer] - 1
            expected += 2
            sent = [*sent[-500:], first, second]
        if number % 500 == 499:
            assert np.isfinite(robot.decide()).all()
            robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
        if number == 20_000:
            before = tracemalloc.get_traced_memory()[0]
    robot.decide()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert {peer.said.agent: peer.said.step for peer in robot.peers.present(robot.step)} == newest
    assert len(robot.peers) == 64
    assert robot.counts[HEARD] == expected  # each once, however often it came
    assert set(robot.counts) == {HEARD, OLD, MALFORMED, FORGED, OTHER_FLEET, STRANGE}
    assert grown < 200_000


def test_memory_is_bounded_also_by_those_who_have_the_key(agent):
    robot = robot_of(agent, faults=Faults(delay=1000))
    robot.speak(Senses([0, 0, 0, 0], LANDMARKS))
    for number in range(70_000):
        robot.hear(SEAL.write(said(agent=1 + number % (MOST_AGENTS - 1), step=number)))
    assert robot.counts[LOST] == 70_000 - 65_536
    robot._ear._waiting.clear()
    for agent_number in range(1, MOST_AGENTS):
        robot.peers.hear(said(agent=agent_number), 0)
    assert len(robot.peers) == MOST_AGENTS - 1
