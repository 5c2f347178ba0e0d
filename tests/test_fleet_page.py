"""docs/fleet.md, executed: a body and its robot, and a fleet over a real MQTT broker."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_robot_transports import LOOPBACK, free_port

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fleet.md").read_text()
PATHS = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(words, folder, **more):
    return subprocess.run(words, cwd=folder, env={**ENVIRONMENT, **more}, capture_output=True, text=True, timeout=200)


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
