"""Datagrams on real networks: loopback, and network namespaces with a link between them where the system permits."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diamond_attention.errors import UserError
from diamond_attention.robot.transports import address, addresses, from_file, multicast

LOOPBACK = "127.0.0.1"


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind((LOOPBACK, 0))
        return opened.getsockname()[1]


def all_of(transport, seconds=0.3):
    heard = []
    while (datagram := transport.receive(seconds)) is not None:
        heard.append(datagram)
    return heard


def test_a_multicast_is_one_packet_that_all_hear_and_its_sender_too():
    group = "239.192.7.4", free_port()
    team = [multicast(group, LOOPBACK) for _ in range(3)]
    assert [robot.send(b"I am %d" % number) for number, robot in enumerate(team)] == [1, 1, 1]
    for robot in team:
        assert sorted(all_of(robot)) == [b"I am 0", b"I am 1", b"I am 2"]


def test_another_group_on_the_same_port_is_not_heard():
    port = free_port()
    one, other = multicast(("239.192.7.4", port), LOOPBACK), multicast(("239.192.7.5", port), LOOPBACK)
    one.send(b"here")
    assert all_of(one) == [b"here"]
    assert all_of(other) == []


def test_point_to_point_is_a_packet_for_each_peer_and_nobody_else_hears_it():
    ports = [free_port() for _ in range(4)]
    team = [
        addresses((LOOPBACK, port), [(LOOPBACK, other) for other in ports if other != port]) for port in ports[:3]
    ]
    assert team[0].send(b"hello") == 3  # the fourth is not there, which costs a packet and no more
    assert [all_of(robot) for robot in team] == [[], [b"hello"], [b"hello"]]
    assert team[0].send(b"again") == 3
    assert all_of(team[1]) == [b"again"]


def test_receiving_waits_as_long_as_was_said_and_no_longer():
    robot = addresses((LOOPBACK, free_port()), [])
    for seconds in (0.0, 0.2):
        began = time.monotonic()
        assert robot.receive(seconds) is None
        assert seconds <= time.monotonic() - began < seconds + 0.5


def test_a_long_datagram_arrives_as_one_that_is_too_long():
    port = free_port()
    robot = addresses((LOOPBACK, port), [])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"x" * 60_000, (LOOPBACK, port))
    assert len(robot.receive(1)) == 175


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "no.such.host.:7"]
)
def test_addresses_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="--peers"):
        address(text, "--peers")


def test_what_cannot_be_opened_is_one_sentence(tmp_path):
    for wrong in (
        lambda: multicast(("127.0.0.1", 7400), LOOPBACK),
        lambda: multicast(("239.192.7.4", 7400), "203.0.113.9"),
        lambda: addresses(("203.0.113.9", 7400), []),
        lambda: from_file(tmp_path / "none.py"),
    ):
        with pytest.raises(UserError):
            wrong()
    (tmp_path / "half.py").write_text("def send(datagram):\n    return 1\n")
    with pytest.raises(UserError, match="receive"):
        from_file(tmp_path / "half.py")


# --- Two robots in network namespaces -------------------------------------------------------------

NAMES = [f"diamond-test-{os.getpid()}-{number}" for number in range(3)]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)


@pytest.fixture
def namespaces():
    """Three namespaces on one bridge, each with an address of its own, as three machines on one network."""
    if shutil.which("ip") is None:
        pytest.skip("the command `ip` (iproute2) is not here")
    tried = ip("netns", "add", NAMES[0])
    if tried.returncode:
        pytest.skip(f"network namespaces are not permitted here: {tried.stderr.strip()}")
    bridge = f"dtest{os.getpid() % 100000}"
    try:
        for name in NAMES[1:]:
            assert ip("netns", "add", name).returncode == 0
        made = ip("link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
        if made.returncode:
            pytest.skip(f"a bridge cannot be made here: {made.stderr.strip()}")
        ip("link", "set", bridge, "up")
        for number, name in enumerate(NAMES):
            here, there = f"dt{number}h{os.getpid() % 10000}", f"dt{number}n{os.getpid() % 10000}"
            for words in (
                ("link", "add", here, "type", "veth", "peer", "name", there, "netns", name),
                ("link", "set", here, "master", bridge, "up"),
                ("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", there),
                ("-n", name, "link", "set", there, "up"),
                ("-n", name, "link", "set", "lo", "up"),
                ("-n", name, "route", "add", "239.0.0.0/8", "dev", there),
            ):
                done = ip(*words)
                if done.returncode:
                    pytest.skip(f"a virtual network cannot be made here: ip {' '.join(words)}: {done.stderr.strip()}")
        yield NAMES
    finally:
        for name in NAMES:
            ip("netns", "del", name)
        ip("link", "del", bridge)


SENSED = json.dumps({"own": [0.0, 0.0, 0.0, 0.0], "tasks": [[0.5, 0.5]]}) + "\n"


def until_counted(robot, name, number):
    """The first of a robot's reports that counts so many."""
    until = time.monotonic() + 100
    while time.monotonic() < until:
        report = json.loads(robot.stdout.readline())
        if report["counts"].get(name, 0) >= number:
            return report
    pytest.fail(f"not {number} of {name!r} after 100 s: {report}")


@pytest.mark.parametrize("way", ["multicast", "point to point"])
def test_robots_on_three_machines_hear_each_other(namespaces, way):
    """`diamond agent` itself, a process in each namespace; one of them belongs to another fleet."""
    environment = {**os.environ, "DIAMOND_FLEET_KEY": "00" * 16, "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    robots = []
    for number, name in enumerate(namespaces):
        peers = ",".join(f"10.77.0.{other + 1}:7400" for other in range(3) if other != number)
        listen = ("--listen", f"10.77.0.{number + 1}:7400", "--peers", peers)
        group = ("--multicast", "239.192.7.4:7400", "--interface", f"10.77.0.{number + 1}")
        words = [*(group if way == "multicast" else listen), "--rate", "10"]
        words += ["--number", str(number), "--fleet", "south" if number == 2 else "north"]
        robots.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-m", "diamond_attention", "agent", "spread", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
        )
    try:
        for robot in robots:
            robot.stdin.write(SENSED)
            robot.stdin.flush()
        # However long it takes until all have started: on a busy machine one may be seconds before another.
        told = ("heard", "heard", "other fleet")
        reports = [until_counted(robot, name, 10) for robot, name in zip(robots, told, strict=True)]
        for robot in robots:  # the body leaves, and so does the robot
            robot.stdin.close()
        assert [robot.wait(timeout=10) for robot in robots] == [0, 0, 0]
    finally:
        for robot in robots:
            robot.kill()
    assert "heard" not in reports[2]["counts"]
    for report in reports:
        assert report["counts"]["packets sent"] == (report["step"] + 1) * (1 if way == "multicast" else 2)
