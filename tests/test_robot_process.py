"""`diamond agent` as a process: its body at two pipes, its rate, its starts, and what it says if all is not well."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_robot_transports import LOOPBACK, free_port

from diamond_attention.deploy import Agent
from diamond_attention.errors import UserError
from diamond_attention.robot import body, command
from diamond_attention.robot.body import GoneError
from diamond_attention.robot.message import Said, Seal
from diamond_attention.robot.peers import HEARD, OLD
from diamond_attention.robot.process import MISSED, SENT, run_at_rate
from diamond_attention.robot.robot import Robot
from diamond_attention.robot.senses import WORLDS, Senses
from diamond_attention.robot.transports import Transport, addresses

ROOT = Path(__file__).parents[1]
KEY = "ab" * 16
SENSED = {"own": [0.0, 0.0, 0.0, 0.0], "tasks": [[0.5, 0.5], [-0.5, 0.5]]}
WAY = ("--multicast", "239.192.7.4:7400", "--interface", LOOPBACK)


def start(*words, key=KEY):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop(command.KEY, None)
    if key is not None:
        environment[command.KEY] = key
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    python = [sys.executable, "-m", "diamond_attention", "agent"]
    return subprocess.Popen([*python, *map(str, words)], env=environment, text=True, **pipes)


def tell(process, values):
    process.stdin.write((values if isinstance(values, str) else json.dumps(values)) + "\n")
    process.stdin.flush()


def test_a_robot_in_step_waits_for_what_was_sent_and_answers():
    own, other = free_port(), free_port()
    robot = start(
        "spread", "--number", 0, "--listen", f"{LOOPBACK}:{own}", "--peers", f"{LOOPBACK}:{other}",
        "--in-step", "--seed", 3,
    )  # fmt: skip
    peer, seal = addresses((LOOPBACK, other), [(LOOPBACK, own)]), Seal(bytes.fromhex(KEY), "fleet")
    assert json.loads(robot.stdout.readline()) == {"listening": 0}
    tell(robot, SENSED)
    assert json.loads(robot.stdout.readline()) == {"sent": 0}
    said = seal.read(peer.receive(5))
    assert said.agent == 0
    assert said.values == (0.0, 0.0, 0.0, 0.0)
    tell(robot, {"heard": [[1, 0]]})
    time.sleep(0.2)  # it waits for this one
    peer.send(seal.write(Said(1, 1, 0, 0.5, (1.0, 1.0, 0.0, 0.0))))
    answer = json.loads(robot.stdout.readline())
    assert len(answer["action"]) == 2
    assert answer["counts"] == {"heard": 1, "packets sent": 1, "undelivered": 0}
    tell(robot, SENSED)
    robot.stdin.close()
    assert robot.wait(timeout=10) == 0


def test_a_robot_s_process_has_no_jax_and_is_small():
    loaded = """
import sys
from diamond_attention.robot import command
from diamond_attention.deploy import Agent
Agent.load("spread")
heavy = [name for name in sys.modules if name.partition(".")[0] in ("jax", "torch", "scipy", "tyro", "rich")]
(most,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(heavy, int(most) // 1024)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", loaded], env=environment, capture_output=True, text=True, timeout=60)
    heavy, megabytes = done.stdout.rsplit(maxsplit=1)
    assert heavy == "[]", done.stderr
    assert int(megabytes) < 60


@pytest.mark.parametrize(
    ("words", "key", "sentence"),
    [
        (("spread", *WAY), KEY, "--number"),
        (("spread", "--number", 4096, *WAY), KEY, "--number is 4096; it must lie between 0 and 4095"),
        (("spread", "--number", "one", *WAY), KEY, "invalid int value: 'one'"),
        (("spread", "--number", 0), KEY, "name one way to reach the peers"),
        (("spread", "--number", 0, *WAY, "--transport", "t.py"), KEY, "name one way"),
        (("spread", "--number", 0, "--listen", "127.0.0.1:1000"), KEY, "--listen with --peers"),
        (("spread", "--number", 0, "--multicast", "here"), KEY, "it must be HOST:PORT"),
        (("spread", "--number", 0, *WAY), None, "the fleet's key is missing"),
        (("spread", "--number", 0, *WAY), "abc", "hexadecimal"),
        (("spread", "--number", 0, *WAY), "abcd", "at least 16"),
        (("spread", "--number", 0, *WAY, "--key-file", "/no/such"), None, "no small file"),
        (("spreed", "--number", 0, *WAY), KEY, "no policy of that name"),
        (("smaclite", "--number", 0, *WAY), KEY, "has no fleet"),
        (("spread", "--number", 0, *WAY, "--loss", 1.5), KEY, "--loss is 1.5"),
        (("spread", "--number", 0, *WAY, "--rate", 0), KEY, "--rate is 0"),
    ],
)
def test_what_is_wrong_is_one_sentence(words, key, sentence):
    robot = start(*words, key=key)
    _, said = robot.communicate(timeout=60)
    assert robot.returncode == 2
    assert said.startswith("diamond: ")
    assert said.count("\n") == 1
    assert sentence in said


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("not json", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ({"own": [0, 0], "tasks": [[0, 0]]}, '"own" is [0, 0]; it must be 4 numbers'),
        ({"own": [0, 0, 0, "fast"], "tasks": [[0, 0]]}, '"own"'),
        ('{"own": [0, 0, 0, NaN], "tasks": [[0, 0]]}', '"own"'),
        ({"own": [0, 0, 0, 0], "tasks": []}, '"tasks" is []; it must be rows of 2 numbers'),
        ({"own": [0, 0, 0, 0]}, '"tasks"'),
    ],
)
def test_a_body_that_makes_no_sense_is_told_so(line, sentence):
    robot = start("spread", "--number", 0, *WAY, "--in-step")
    tell(robot, line)
    _, said = robot.communicate(timeout=60)
    assert robot.returncode == 2
    assert sentence in said


@pytest.mark.parametrize("heard", [5, [5], [[1, 2, 3]], [[1, "two"]], [[1, [2]]], {"1": 2}])
def test_what_was_heard_is_pairs_of_numbers(heard):
    robot = start("spread", "--number", 0, *WAY, "--in-step")
    tell(robot, SENSED)
    tell(robot, {"heard": heard})
    _, said = robot.communicate(timeout=60)
    assert robot.returncode == 2
    assert said.startswith('diamond: the body\'s "heard" is ')
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("import no_such_module",), "cannot be loaded (ModuleNotFoundError: No module named 'no_such_module')"),
        (("def send(",), "cannot be loaded (SyntaxError"),
        (("raise ConnectionRefusedError('nobody\\nlistens')",), "(ConnectionRefusedError: nobody listens)"),
        (("receive = id", "def send(datagram): raise OSError('no link')"), "its send failed (OSError: no link)"),
        (("receive = id", "def send(datagram): pass"), "its send must return how many packets"),
        (("send = len", "def receive(seconds): return 1 / 0"), "its receive failed (ZeroDivisionError"),
        (("send = len", "receive = str"), "its receive must return bytes or None"),
    ],
)
def test_what_is_wrong_with_a_transport_of_one_s_own_is_one_sentence(lines, sentence, tmp_path):
    (tmp_path / "own.py").write_text("\n".join(lines))
    robot = start("spread", "--number", 0, "--transport", tmp_path / "own.py")
    with suppress(BrokenPipeError):  # it has ended already
        tell(robot, SENSED)
    assert robot.wait(60) == 2
    said = robot.stderr.read()
    assert said.startswith("diamond: --transport is ")
    assert said.count("\n") == 1
    assert sentence in said


def test_a_body_that_never_stops_writing_does_not_keep_a_robot_from_its_step(monkeypatch):
    """It waits until its step is due; from then on few reads, and of all that came the newest line alone is kept."""
    clock, read, kept = Clock(), [], []

    def read_some(file, number):
        clock.now += 0.01
        read.append(clock.now)
        assert len(read) < 1000
        kept.append(len(lines._lines))
        return b"".join(b'{"line": %d}\n' % (1000 * len(read) + i) for i in range(1000))

    always = SimpleNamespace(select=lambda *files: files[:3])
    monkeypatch.setattr(body, "time", clock)
    monkeypatch.setattr(body, "select", always)
    monkeypatch.setattr(body, "os", SimpleNamespace(read=read_some))
    lines = body.Lines(0, 1)
    assert lines.newest(100.5) == {"line": 1000 * len(read) + 999}
    assert clock.now >= 100.5
    before = len(read)
    assert lines.newest(100.0) == {"line": 1000 * len(read) + 999}
    assert 1 <= len(read) - before <= 16
    assert max(kept) <= 1


@pytest.mark.parametrize(
    "line", ['{"own": ' + "[" * 100_000, '{"own": [0, 0, 0, 1' + 400 * "0" + '], "tasks": [[0, 0]]}']
)
def test_what_python_itself_stumbles_over_is_one_sentence_too(line):
    robot = start("spread", "--number", 0, *WAY, "--in-step")
    _, said = robot.communicate(line + "\n", timeout=60)
    assert robot.returncode == 2
    assert said.startswith("diamond: ")
    assert said.count("\n") == 1


def test_a_line_is_written_whole_however_little_fits_the_pipe_and_offering_one_never_waits():
    reading, writing = os.pipe()
    lines, told = body.Lines(0, writing), [{"step": step, "more": "x" * 30_000} for step in range(9)]
    for each in told:
        lines.offer(each)  # a pipe holds two of them
    with pytest.raises(TimeoutError):
        lines.write(told[8], 0.1)
    other, heard = body.Lines(reading, 1), []
    while len(heard) < 4:
        heard.append(other.next(5)["step"])
        lines._write_on(0.0)
    assert heard == [0, 1, 2, 8]
    os.close(reading)
    with pytest.raises(GoneError):
        lines.offer(told[0])
    os.close(writing)


def test_every_start_has_a_higher_epoch_than_the_last_one(tmp_path):
    def epoch(*words):
        return command._epoch(command.parse_agent(["spread", "--number", "0", *map(str, words)]))

    counter = tmp_path / "starts"
    assert [epoch("--starts", counter) for _ in range(3)] == [1, 2, 3]
    assert counter.read_text() == "3\n"
    counter.write_text("many\n")
    with pytest.raises(UserError, match="does not hold a number"):
        epoch("--starts", counter)
    assert epoch("--epoch", 7) == 7
    assert epoch() < epoch()  # by the clock


def test_a_robot_that_was_killed_is_heard_at_once_after_its_next_start_and_its_earlier_lives_never(tmp_path):
    """Over UDP: each life counts itself with --starts; an older counter is as a message that is sent again."""
    own, other = free_port(), free_port()
    listening = Robot(Agent.load("spread"), 0, Seal(bytes.fromhex(KEY), "fleet"), epoch=1)
    ear, counter = addresses((LOOPBACK, own), []), tmp_path / "starts"
    counter.write_text("6\n")

    def live(steps):
        """So many steps of one life, which ends by SIGKILL; what became of each of its messages."""
        peer = start(
            "spread", "--number", 1, "--listen", f"{LOOPBACK}:{other}", "--peers", f"{LOOPBACK}:{own}",
            "--in-step", "--starts", counter,
        )  # fmt: skip
        assert json.loads(peer.stdout.readline()) == {"listening": 1}
        became = []
        for _ in range(steps):
            tell(peer, SENSED)
            peer.stdout.readline()
            before = listening.counts.copy()
            listening.speak(Senses(*SENSED.values()))
            said = listening.hear(ear.receive(5))
            listening.decide()
            became.append((said.epoch, said.step, *(listening.counts - before)))
            tell(peer, {"heard": []})
            peer.stdout.readline()
        peer.kill()
        peer.wait()
        return became

    assert live(3) == [(7, step, HEARD) for step in range(3)]
    assert live(2) == [(8, step, HEARD) for step in range(2)]  # from its first message on
    counter.write_text("6\n")  # as where a robot is set back to an older state
    assert live(2) == [(7, step, OLD) for step in range(2)]
    assert counter.read_text() == "7\n"
    assert [(peer.said.epoch, peer.said.step) for peer in listening.peers.present(listening.step)] == [(8, 1)]


def kilobytes_of(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_robot_of_thirty_two_does_not_grow_once_it_has_settled():
    """`diamond agent` with 31 peers' datagrams a step: 200 steps to settle, then three times as many."""
    own, other, peers = free_port(), free_port(), range(1, 32)
    robot = start(
        "spread-floor", "--number", 0, "--listen", f"{LOOPBACK}:{own}", "--peers", f"{LOOPBACK}:{other}", "--in-step",
    )  # fmt: skip
    network, seal = addresses((LOOPBACK, other), [(LOOPBACK, own)]), Seal(bytes.fromhex(KEY), "fleet")
    sensed = {"own": [0.0] * 4, "tasks": [[0.1 * peer, -0.1 * peer] for peer in range(32)]}
    robot.stdout.readline()
    held = []
    for step in range(800):
        tell(robot, sensed)
        robot.stdout.readline()
        network.receive(5)
        for peer in peers:
            network.send(
                seal.write(Said(peer, 1, step, (peer + step) % 32 / 32, (0.1 * peer, 0.01 * step, 0.0, 0.0)))
            )
        tell(robot, {"heard": [[peer, step] for peer in peers]})
        answer = json.loads(robot.stdout.readline())
        if step in (200, 799):
            held.append(kilobytes_of(robot))
    assert answer["counts"] == {HEARD: 31 * 800, SENT: 800, "undelivered": 0}
    robot.stdin.close()
    assert robot.wait(timeout=10) == 0
    assert held[1] - held[0] < 250, held


# --- At a fixed rate ------------------------------------------------------------------------------


class Clock:
    """Time that passes only when somebody waits or works."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


def run_for(clock, steps, monkeypatch, *, working=lambda step: 0.001, arriving=()):
    """A robot at ten steps a second on a clock of its own; when it sent, and what it counted."""
    from diamond_attention.robot import process

    monkeypatch.setattr(process, "time", clock)
    waiting, sent, reports = sorted(arriving), [], []

    def receive(seconds):
        if waiting and waiting[0][0] <= clock.now + seconds:
            when, datagram = waiting.pop(0)
            clock.now = max(clock.now, when)
            return datagram
        clock.now += max(0.0, seconds)
        return None

    def newest(until):
        clock.now = max(clock.now, until)

    def write(report):
        reports.append(report)
        if len(reports) == steps:
            raise GoneError

    agent = Agent.load("spread", seed=0)
    decide = agent.decide

    def slowly(view):
        clock.now += working(len(reports))
        return decide(view)

    agent.decide = slowly
    robot = Robot(agent, 0, Seal(b"x" * 16, "fleet"), epoch=1)
    body = SimpleNamespace(next=lambda: SENSED, newest=newest, write=write)
    transport = Transport(lambda datagram: sent.append(clock.now) or 1, receive)
    run_at_rate(robot, WORLDS["spread"], transport, body, rate=10.0)
    return sent, robot


def test_steps_begin_at_the_rate_and_late_ones_are_counted_and_left_out(monkeypatch):
    sent, robot = run_for(Clock(), 6, monkeypatch, working=lambda step: 0.27 if step == 2 else 0.001)
    assert sent == pytest.approx([100.0, 100.1, 100.2, 100.52, 100.6, 100.7])
    assert robot.counts == {SENT: 6, MISSED: 3}  # its own deadline, and two steps that never began


def test_a_flood_does_not_keep_a_robot_from_deciding(monkeypatch):
    flood = [(100.0, b"junk")] * 10_000
    sent, robot = run_for(Clock(), 2, monkeypatch, arriving=flood)
    assert len(sent) == 2
    assert robot.counts["malformed"] == 2 * 4096


@pytest.mark.parametrize("apart", [0.0, 0.01, 0.04, 0.06, 0.09])
def test_two_robots_pair_the_same_numbers_wherever_their_steps_lie(monkeypatch, apart):
    """Each hears the other's datagrams at the moment they are sent; `apart` is the second one's phase."""
    seal = Seal(b"x" * 16, "fleet")

    def heard_by(first_own_step, of_phase):
        clock, peer_steps = Clock(), []
        clock.now = first_own_step
        arriving = [
            (of_phase + 0.1 * step, seal.write(Said(1, 1, step, step / 100, (0.0,) * 4))) for step in range(40)
        ]
        arriving = [each for each in arriving if each[0] >= first_own_step - 0.1 + 1e-9]
        present = Robot.decide

        def noting(robot):
            action = present(robot)
            peer_steps.append([peer.said.step for peer in robot.peers.present(robot.step)][-1:])
            return action

        monkeypatch.setattr(Robot, "decide", noting)
        run_for(clock, 20, monkeypatch, working=lambda step: 0.0, arriving=arriving)
        monkeypatch.setattr(Robot, "decide", present)
        return peer_steps

    # Both begin their steps when the other is at its tenth.
    of_a = {10 + i: steps[0] for i, steps in enumerate(heard_by(101.0, 100.0 + apart)) if steps}
    of_b = {10 + i: steps[0] for i, steps in enumerate(heard_by(101.0 + apart, 100.0)) if steps}
    pairs_a = {(own, other) for own, other in of_a.items() if 14 <= own <= 24}
    assert pairs_a
    assert all(of_b[other] == own for own, other in pairs_a)
