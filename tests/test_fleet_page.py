"""docs/fleet.md, executed: its commands, a body and its robot, and a fleet over a real MQTT broker."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_robot_transports import LOOPBACK, free_port

from diamond_attention.robot.message import Said, Seal
from diamond_attention.robot.transports import addresses, multicast

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fleet.md").read_text()
PATHS = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(words, folder, **more):
    return subprocess.run(words, cwd=folder, env={**ENVIRONMENT, **more}, capture_output=True, text=True, timeout=280)


def commands(beginning):
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith(beginning)]


def test_the_first_command_of_the_page_plays_as_the_page_says(tmp_path):
    words = shlex.split(commands("diamond fleet")[0])[1:]
    done = run([sys.executable, "-m", "diamond_attention", *words, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["steps"], found["episodes"], found["killed"], found["agents at the end"]) == (400, 1, [0], 8)
    told = found["messages"]
    assert told["packets sent"] == 400 * 8 + 300 - 250  # of the ninth from step 100 on, of the first until 150
    assert told.get("undelivered", 0) == 0
    assert told["lost"] / (told["lost"] + told["heard"]) == pytest.approx(0.3, abs=0.01)


def test_the_robots_of_the_page_begin(tmp_path):
    """Its two lines for a robot with number 3, with the addresses of this machine in place of the page's."""
    lines = commands("diamond agent")
    assert len(lines) == 2
    (tmp_path / "key").write_text("a secret of sixteen bytes or more\n")
    for line in lines:
        ports = {}

        def here(found, ports=ports):
            return f"{LOOPBACK}:{ports.setdefault(found[0], free_port())}"

        line = re.sub(r"10\.0\.0\.\d+:\d+", here, line).replace("10.0.0.13", LOOPBACK)
        line = line.replace(":7400", f":{free_port()}")
        robot = subprocess.Popen(
            [sys.executable, "-m", "diamond_attention", *shlex.split(line)[1:]],
            cwd=tmp_path, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        robot.stdin.write(json.dumps({"own": [0.0] * 4, "tasks": [[0.5, 0.5]]}) + "\n")
        robot.stdin.flush()
        report = json.loads(robot.stdout.readline())
        assert len(report["action"]) == 2
        assert report["counts"]["packets sent"] == (1 if "--multicast" in line else 2)
        robot.stdin.close()
        assert robot.wait(60) == 0


def test_the_table_of_messages_is_what_robots_send():
    """Packets as both transports count them, and 90 bytes of each: this message, and UDP's and IP's heads."""
    part = PAGE.split("| robots | packets a step, multicast |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", part, re.MULTILINE)
    rows = [list(map(int, row)) for row in cells]
    assert [row[0] for row in rows] == [2, 8, 32, 64]
    datagram = Seal(b"x" * 16, "fleet").write(Said(0, 1, 0, 0.5, (0.0,) * 4))
    assert len(datagram) + 8 + 20 == int(re.search(r"^(\d+) bytes a packet", PAGE, re.MULTILINE)[1])
    assert f"at Simple Spread {len(datagram)} bytes" in PAGE
    group = multicast(("239.192.7.4", free_port()), LOOPBACK)
    for robots, together, one_by_one, kilobits in rows:
        peers = [(LOOPBACK, free_port()) for _ in range(robots - 1)]
        sent = addresses((LOOPBACK, free_port()), peers).send(datagram)
        assert (together, one_by_one) == (robots * group.send(datagram), robots * sent)
        assert kilobits == round(sent * 8 * (len(datagram) + 28) * 10 / 1000)


def test_the_body_of_the_page_moves_and_its_robot_ends_with_it(tmp_path):
    (tmp_path / "body.py").write_text(blocks("python")[0])
    done = run([sys.executable, "body.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    place, counts, status = re.fullmatch(r"(\[.*?\]) (\{.*\}) (\d+)\n", done.stdout).groups()
    assert place != "[0.4, -0.2]"
    assert "'packets sent': 5" in counts
    assert status == "0"


@pytest.fixture
def broker():
    program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("Mosquitto is not installed: apt-get install mosquitto")
    port = free_port()
    running = subprocess.Popen([program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        running.terminate()
        running.wait(10)


def test_a_fleet_over_mqtt_scores_what_it_scores_without_a_network(broker, tmp_path):
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is the client of the page's example")
    (tmp_path / "mqtt_transport.py").write_text(blocks("python")[1])
    (command,) = (line for block in blocks("sh") for line in block.splitlines() if "mqtt_transport.py" in line)
    words = [sys.executable, "-m", "diamond_attention", *shlex.split(command)[1:], "--quiet"]
    over_mqtt = run(words, tmp_path, MQTT_HOST=LOOPBACK, MQTT_PORT=str(broker))
    assert over_mqtt.returncode == 0, over_mqtt.stderr
    at = words.index("--transport")
    simulated = run([*words[:at], "--simulated", *words[at + 2 :]], tmp_path)
    assert over_mqtt.stdout == simulated.stdout
    assert "60 sent, 120 heard" in over_mqtt.stdout


def test_links_to_parts_of_the_page_lead_somewhere():
    for page in ("responsible_use.md", "fleet.md"):
        text = (ROOT / "docs" / page).read_text()
        for other, part in re.findall(r"\]\(([\w.]+\.md)?#([\w-]+)\)", text):
            headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / (other or page)).read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert part in slugs, f"{page} links to {other}#{part}"
