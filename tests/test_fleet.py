"""A fleet on one machine: processes and simulated packets do the same, and nobody is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from deployed import CASES, files_of, random_policy

from diamond_attention import load_policy
from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.fleet.command import FleetOptions, crew_of, world_of
from diamond_attention.fleet.crew import Orders, Simulated, check_policy
from diamond_attention.fleet.field import Episode, Field
from diamond_attention.fleet.play import play
from diamond_attention.robot.faults import Faults
from diamond_attention.robot.process import SENT, UNDELIVERED
from diamond_attention.runs.progress import Quiet
from diamond_attention.worlds.spread import Spread

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def field_of(options):
    more, tasks = len(options.join), options.tasks or options.agents
    return Field(world_of(options.policy), options.agents, more, tasks, options.steps, options.seed)


def played(options):
    crew = crew_of(options)
    try:
        return play(field_of(options), crew, options.join, options.kill, Quiet())
    finally:
        crew.close()


@pytest.mark.parametrize("way", ["multicast", "point to point"])
def test_processes_do_what_robots_do_whose_packets_are_simulated(way):
    """On a bad network, with one that joins and one that is killed: the same score and counts, to the last bit."""
    options = FleetOptions(
        "spread-floor", agents=3, steps=14, loss=0.3, delay=1, join=(4,), kill=(9,), seed=5,
        point_to_point=way != "multicast",
    )  # fmt: skip
    real, simulated = played(options), played(replace(options, simulated=True, point_to_point=False))
    assert real["score"] == simulated["score"]
    assert real["messages"].pop(UNDELIVERED, 0) == 0
    packets, turns = real["messages"].pop(SENT), simulated["messages"].pop(SENT)
    assert turns == 14 * 3 + 10 - 5
    assert packets == (turns if way == "multicast" else 3 * turns)
    # What the killed one had heard in the step before is not asked for twice, so nothing is missing.
    assert real["messages"] == simulated["messages"]
    assert real["messages"]["lost"] > 0
    assert real["killed"] == [0]
    assert real["agents at the end"] == 3


@pytest.mark.parametrize("name", ["spread", "food"])
def test_with_a_perfect_network_a_fleet_moves_as_the_policy_does_in_its_world(name):
    """Step by step beside the policy in JAX, which is told the numbers that the robots have drawn."""
    field = Field(world_of(name), 4, 0, 4, 20, seed=3)
    crew = Simulated(Orders(name, Faults(), 20, seed=3))
    for number in range(4):
        crew.join(number)
    policy, _ = load_policy(name)
    for _ in range(20):
        state = field._state
        actions = crew.actions(field.senses())
        ranks = jnp.asarray([crew._robots[number].rank for number in range(4)], jnp.float32)
        views = policy.draw(field.world.views(state, ranks), jax.random.key(0))
        wanted = policy.act(views, None, jax.random.key(0), greedy=True).actions
        wanted = np.clip(wanted, -1, 1)  # as the world does
        np.testing.assert_allclose([actions[number] for number in range(4)], wanted, atol=1e-4)
        field.move(actions)


def test_dispatch_plays_whole_episodes_and_its_score_is_the_share_of_the_optimum():
    options = FleetOptions("dispatch-commitments", agents=4, steps=40, simulated=True)
    perfect, lossy = played(options), played(replace(options, loss=0.9))
    assert 0.9 < perfect["score"] <= 1.0
    assert lossy["score"] < perfect["score"] - 0.1


def test_an_episode_that_is_not_over_is_left_out_of_the_score():
    """Of six steps, four are an episode; a share of the optimum is never above one."""
    options = FleetOptions("dispatch-commitments", agents=4, steps=6, simulated=True)
    longer, whole = played(options), played(replace(options, steps=4))
    assert {name: longer[name] for name in ("score", "served", "wasted", "episodes")} == {
        name: whole[name] for name in ("score", "served", "wasted", "episodes")
    }
    assert longer["score"] <= 1.0
    assert (whole["steps of the unfinished episode"], longer["steps of the unfinished episode"]) == (0, 2)


def test_an_episode_is_over_at_its_time_limit_and_begins_anew(monkeypatch):
    monkeypatch.setattr(Spread, "time_limit", 5)
    field = Field(world_of("spread"), 2, 0, 2, 12, seed=0)
    starts, total = [], [0.0]
    for step in range(12):
        if step % 5 == 0:
            starts.append(field.senses()[0].own)
        before = field.episode.told()["score"]
        field.move({0: [1.0, 0.0], 1: [0.0, 1.0]})
        if step % 5 == 4:
            total.append(field._sums["score"] - sum(total))
            assert total[-1] < before  # as every step's reward is below zero
    assert field.episodes == 2
    assert field.found()["score"] == pytest.approx(sum(total) / 2)
    assert len({tuple(start) for start in starts}) == 3  # elsewhere each time
    assert all(start[2:] == [0.0, 0.0] for start in starts)
    assert field.episode.steps == 2


def test_success_is_of_the_last_quarter_of_each_episode():
    episode = Episode(["score", "covered"])
    for step in range(8):
        episode.add({"score": -1.0, "covered": 0.5}, reached=step == 6)
    assert episode.told() == {"score": -8.0, "covered": 0.5, "success": 0.5}


def test_only_robots_that_are_processes_have_memory_of_their_own():
    name = "MB of the largest robot, after each tenth"
    assert played(FleetOptions("spread-floor", agents=2, steps=20, simulated=True))[name] == []
    held = played(FleetOptions("spread-floor", agents=2, steps=25))[name]
    assert len(held) == 10
    assert 15 < min(held) <= max(held) < 60


def test_who_is_absent_is_left_out_of_the_world_and_of_what_others_sense():
    field = Field(world_of("spread"), 2, 1, 2, 10, seed=0)
    assert sorted(field.senses()) == [0, 1]
    before = field.senses()[1].own
    field.present[:] = [False, True, True]
    assert sorted(field.senses()) == [1, 2]
    assert field.senses()[1].own == before
    field.move({1: [1.0, 0.0], 2: [0.0, 0.0]})
    assert field.senses()[1].own[2] == pytest.approx(before[2] + 0.1)


def test_success_is_as_many_landmarks_covered_as_there_are_robots():
    field = Field(world_of("spread"), 2, 0, 2, 4, seed=0)
    places = field._state.tasks
    field._state = field._state._replace(positions=places + 0.01, velocities=jnp.zeros((2, 2)))
    apart = float(jnp.linalg.norm(places[0] - places[1])) > 0.31
    assert apart  # or they would push each other away
    field.move({})
    assert field.found()["success"] == 1.0
    assert field.found()["covered"] == 1.0
    field._state = field._state._replace(positions=places + 5.0)
    field.move({})
    assert field.found()["success"] == 0.0  # of the last step, a quarter of two being less than one
    assert field.found()["covered"] == 0.5


def test_a_process_that_ends_by_itself_is_said_in_one_sentence_and_the_others_go_on(capsys):
    options = FleetOptions("spread-floor", agents=3, steps=6)
    crew = crew_of(options)
    try:
        field = field_of(options)
        for number in range(3):
            crew.join(number)
        assert sorted(crew.actions(field.senses())) == [0, 1, 2]
        pids = crew.processes()
        os.kill(pids[1], signal.SIGKILL)
        assert sorted(crew.actions(field.senses())) == [0, 2]
        assert capsys.readouterr().err == "diamond: agent 1 was ended by SIGKILL; the others go on without it.\n"
        assert crew.memory() < 60
    finally:
        crew.close()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_by_the_clock_nobody_stands_on_the_field_before_its_process_has_started(monkeypatch):
    idle, first = [], {}
    move = Field.move

    def noting(field, actions):
        for number in field.present.nonzero()[0].tolist():
            first.setdefault(number, field.step)
            if actions.get(number) is None:
                idle.append((field.step, number))
        move(field, actions)

    monkeypatch.setattr(Field, "move", noting)
    found = played(FleetOptions("spread-floor", agents=2, steps=60, rate=5.0, join=(3,), kill=(50,)))
    assert idle == []
    assert first[0] == first[1] == 0
    assert 3 < first[2] < 50
    assert found["agents at the end"] == 2
    assert found["killed"] == [0]
    assert found["messages"][SENT] >= 50
    assert found["messages"]["heard"] >= 20
    assert found["covered"] > 0.1  # they have moved


def test_a_process_that_hangs_does_not_stop_the_world(capsys, monkeypatch):
    monkeypatch.setattr("diamond_attention.fleet.crew.SILENT", 30.0)  # until it has started
    options = FleetOptions("spread-floor", agents=2, steps=6000, rate=500.0)
    crew, field = crew_of(options), field_of(options)
    try:
        for number in range(2):
            crew.join(number)
        crew.actions(field.senses())
        os.kill(crew.processes()[1], signal.SIGSTOP)
        monkeypatch.setattr("diamond_attention.fleet.crew.SILENT", 3.0)
        until, steps = time.monotonic() + 60, 0
        while 1 in crew.actions(field.senses()) and time.monotonic() < until:
            steps += 1
        assert steps > 0
        assert list(crew.processes()) == [0]
        assert "agent 1 did not answer for 3 s and was ended" in capsys.readouterr().err
    finally:
        crew.close()


def test_a_process_that_reads_nothing_does_not_stop_the_world_however_long_its_lines(capsys, monkeypatch):
    """A line of 256 landmarks is longer than the page that a pipe says is free."""
    monkeypatch.setattr("diamond_attention.fleet.crew.SILENT", 30.0)
    options = FleetOptions("food", agents=1, tasks=256, steps=6000, rate=50.0)
    crew, field = crew_of(options), field_of(options)
    try:
        crew.join(0)
        crew.actions(field.senses())
        os.kill(crew.processes()[0], signal.SIGSTOP)
        slowest, until = 0.0, time.monotonic() + 4
        while time.monotonic() < until:
            began = time.monotonic()
            crew.actions(field.senses())
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 2
        os.kill(crew.processes()[0], signal.SIGCONT)  # what it reads then are whole lines
        before, until = crew.counts()[SENT], time.monotonic() + 30
        while crew.counts()[SENT] < before + 5 and time.monotonic() < until:
            assert crew.actions(field.senses())
        assert crew.counts()[SENT] >= before + 5
        assert capsys.readouterr().err == ""
    finally:
        crew.close()


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, timeout=20)
    return [int(word) for word in found.stdout.split()]


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_a_fleet_ends_no_process_is_left(number):
    words = [
        sys.executable,
        "-m",
        "diamond_attention",
        "fleet",
        "spread-floor",
        "--agents",
        "2",
        "--steps",
        "1000000",
    ]
    fleet = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        children, until = [], time.monotonic() + 120
        while len(children) < 2 and time.monotonic() < until:
            time.sleep(0.5)
            children = children_of(fleet.pid)
        assert len(children) == 2
        fleet.send_signal(number)
        told, said = fleet.communicate(timeout=60)
        assert ("stopped after" in told) == (number == signal.SIGINT)  # what came of it until then
        assert "Traceback" not in said
        assert fleet.returncode in ((130,) if number == signal.SIGINT else (-number,))
        until = time.monotonic() + 20
        while any(map(is_there, children)) and time.monotonic() < until:
            time.sleep(0.2)
        assert not any(map(is_there, children))
    finally:
        fleet.kill()


def test_the_command_says_what_came_of_it(capsys):
    words = ["fleet", "spread-floor", "--agents", "3", "--steps", "8", "--simulated", "--quiet"]
    assert run_command(words) == 0
    told = capsys.readouterr().out
    assert told.startswith("R, the return divided by the agents: −".replace("−", "-"))
    assert "24 sent, 48 heard, 0 lost as asked" in told
    assert run_command([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == {SENT: 24, "heard": 48}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["smaclite"], "has no fleet"),
        (["no-such"], "no policy of that name"),
        (["spread", "--agents", "0"], "--agents is 0"),
        (["spread", "--agents", "4", "--tasks", "5"], "one landmark for each agent"),
        (["spread", "--kill", "400"], "--kill is 400; each must be a step from 0 to 399"),
        (["spread", "--loss", "2"], "--loss is 2"),
        (["spread", "--simulated", "--rate", "10"], "--simulated has neither"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(words, sentence, capsys):
    assert run_command(["fleet", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_policy_that_decides_for_all_at_once_has_no_fleet(tmp_path):
    world, settings = CASES["mat, spread"]
    for name, data in files_of(world, settings, random_policy(world, settings)).items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match="does not decide on one robot's view"):
        check_policy(str(tmp_path))
