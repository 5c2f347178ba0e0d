"""Sweeps on a real Ray cluster of two nodes on this machine: a worker killed, a node killed, and Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from diamond_attention.runs.folder import find_runs, open_run
from diamond_attention.runs.metrics import TIMING_COLUMNS
from diamond_attention.runs.rows import read_rows

LOOPBACK = "127.0.0.1"
SMALL = ["--policy.width", "8", "--ppo.envs", "16", "--ppo.batch", "16", "--ppo.epochs", "1", "--episodes", "4"]


def until(holds: Callable[[], object], seconds: float = 120, beside: subprocess.Popen | None = None) -> None:
    """Waits, as long as the process beside it goes on."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        assert beside is None or beside.poll() is None, "it ended"
        time.sleep(0.05)


class Cluster:
    """A head and one more node, a CPU each, on the loopback interface."""

    def __init__(self, folder: str):
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            self.address = f"{LOOPBACK}:{free.getsockname()[1]}"
        port = self.address.partition(":")[2]
        self.environment = {**os.environ, "RAY_ADDRESS": self.address, "RAY_USAGE_STATS_ENABLED": "0"}
        self.started: list[subprocess.Popen] = []
        head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
        self.head = self.node(*head)
        until(lambda: self.answers(), beside=self.head)
        self.other = self.node(f"--address={self.address}")
        until(lambda: self.resource("CPU") == 2, beside=self.other)

    def node(self, *words: str) -> subprocess.Popen:
        own = [f"--node-ip-address={LOOPBACK}", "--num-cpus=1", "--num-gpus=0", "--object-store-memory=100000000"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        environment = {name: value for name, value in self.environment.items() if name != "RAY_ADDRESS"}
        return subprocess.Popen(
            [*command, *own, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def answers(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as one:
            return one.connect_ex((host, int(port))) == 0

    def resource(self, name: str) -> float:
        asks = (
            "import ray; ray.init(logging_level='ERROR', log_to_driver=False); "
            f"print(ray.cluster_resources().get({name!r}, 0))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", asks], env=self.environment, capture_output=True, text=True, timeout=60
        )
        return float(answer.stdout or 0)

    def start(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "diamond_attention", *words]
        started = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(started)
        return started

    def end(self) -> None:
        for sweep in self.started:
            sweep.kill()
        for node in (self.other, self.head):
            node.terminate()
            node.wait(timeout=60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp", ignore_cleanup_errors=True) as folder:  # a short name
        made = Cluster(folder)
        try:
            yield made
        finally:
            made.end()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def command_for(folder: Path) -> int | None:
    """The process of the command that trains in this folder."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:  # it has just ended
            continue
        if b"diamond_attention.jobs.child" in words and str(folder).encode() in words and b"train" in words:
            return int(entry.name)
    return None


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def rows_without_times(run: Path) -> list[dict[str, str]]:
    rows = read_rows(run / "metrics.csv")
    return [{name: value for name, value in row.items() if name not in TIMING_COLUMNS} for row in rows]


@pytest.mark.parametrize("address", ["", f"{LOOPBACK}:9"])
def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path, address):
    """Ray itself would try for minutes, and then end the process. First of all, while none runs on this machine."""
    environment = {**os.environ, "RAY_ADDRESS": address}
    command = [
        sys.executable,
        "-m",
        "diamond_attention",
        "sweep",
        "xor",
        "--on",
        "ray",
        "--out",
        str(tmp_path / "out"),
    ]
    started = time.monotonic()
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert time.monotonic() - started < 90
    assert answer.returncode == 2
    assert "--on is ray, but no Ray cluster answers" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(600)
def test_ctrl_c_saves_on_every_machine_and_the_paper_goes_through_the_same_door(cluster, tmp_path):
    out = tmp_path / "out"
    endless = ["--total-steps", "1000000000", "--checkpoint-every", "1000000"]
    words = ["xor", *SMALL, *endless, "--policy.mask", "rank", "none", "split", "--out", str(out), "--on", "ray"]
    sweep = cluster.start("sweep", *words)
    begun = [out / f"mask={mask}" / "seed_0" for mask in ("rank", "none")]

    def updates(run: Path) -> int:
        return len(read_rows(run / "metrics.csv")) if (run / "metrics.csv").exists() else 0

    until(lambda: all(updates(run) > 10 for run in begun), 200, sweep)
    sweep.send_signal(signal.SIGINT)
    said, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 128 + signal.SIGINT, said
    for run in begun:
        (saved,) = (run / "checkpoints").iterdir()  # none was due
        assert saved.name == f"step_{updates(run) * 16}"
        assert open_run(run).finished is None
        assert command_for(run.parent) is None
    assert not (out / "mask=split").exists()  # it was waiting for its turn
    paper = ["table1", "--scale", "smoke", "--only", "xor_rank_2x2", "--out", str(tmp_path / "made"), "--on", "ray"]
    reproduce = cluster.start("reproduce", *paper)
    said, _ = reproduce.communicate(timeout=120)
    assert reproduce.returncode == 0, said
    assert "[2 of 2 done] evaluate xor_rank_2x2" in said
    assert "| rank mask | xor_rank |" in (tmp_path / "made" / "table1.md").read_text()
    assert len(find_runs([tmp_path / "made" / "xor_rank_2x2"])) == 1


def environment_of(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


@pytest.mark.timeout(600)
def test_commands_that_take_half_a_gpu_share_one_and_its_memory(cluster, tmp_path):
    """GPUs that Ray counts and nobody has: two of them, so four commands at a time, and a fifth waits."""
    node = cluster.node(f"--address={cluster.address}", "--num-cpus=4", "--num-gpus=2")
    try:
        until(lambda: cluster.resource("GPU") == 2, beside=node)
        out = tmp_path / "out"
        rates = ("1e-4", "2e-4", "3e-4", "4e-4", "5e-4")
        words = ["xor", *SMALL, "--total-steps", "1000000000", "--ppo.learning-rate", *rates, "--out", str(out)]
        sweep = cluster.start("sweep", *words, "--on", "ray", "--gpus", "0.5")
        folders = [out / f"learning-rate={rate}" for rate in rates]
        until(lambda: sum(command_for(folder) is not None for folder in folders) == 4, 200, sweep)
        environments = [environment_of(command) for command in map(command_for, folders) if command is not None]
        assert sorted(each["CUDA_VISIBLE_DEVICES"] for each in environments) == ["0", "0", "1", "1"]
        assert {each["XLA_PYTHON_CLIENT_MEM_FRACTION"] for each in environments} == {"0.450"}
        assert command_for(folders[-1]) is None
        sweep.send_signal(signal.SIGINT)
        said, _ = sweep.communicate(timeout=120)
        assert sweep.returncode == 128 + signal.SIGINT, said
    finally:
        node.terminate()
        node.wait(timeout=60)
    until(lambda: cluster.resource("GPU") == 0)


@pytest.mark.timeout(900)
def test_a_sweep_outlives_a_killed_worker_and_a_killed_node(cluster, tmp_path):
    """Both trainings go on from their checkpoints, and end with the bits of one that nobody disturbed.

    The last one, since the cluster has one node less then.
    """
    out = tmp_path / "out"
    settings = [*SMALL[:-2], "--total-steps", "48000", "--checkpoint-every", "100"]
    words = ["xor", *settings, "--policy.mask", "rank", "none", "--out", str(out), "--on", "ray", "--episodes", "4"]
    sweep = cluster.start("sweep", *words)
    folders = {mask: out / f"mask={mask}" for mask in ("rank", "none")}

    def checkpoints(mask: str) -> list[Path]:
        return list((folders[mask] / "seed_0" / "checkpoints").glob("step_*"))

    until(lambda: all(map(command_for, folders.values())), 120, sweep)
    commands = {mask: command_for(folder) for mask, folder in folders.items()}
    workers = {mask: parent_of(command) for mask, command in commands.items()}
    raylets = {mask: parent_of(worker) for mask, worker in workers.items()}
    (on_other,) = (mask for mask, raylet in raylets.items() if parent_of(raylet) == cluster.other.pid)
    (on_head,) = (mask for mask in folders if mask != on_other)
    victims = {on_head: workers[on_head], on_other: raylets[on_other]}

    def killed_once_saved() -> bool:
        for mask in [mask for mask in victims if checkpoints(mask)]:
            os.kill(victims.pop(mask), signal.SIGKILL)
        return not victims

    until(killed_once_saved, 300, sweep)
    until(lambda: not any(map(lives, commands.values())), 60, sweep)  # nothing goes on unseen
    said, _ = sweep.communicate(timeout=500)
    assert sweep.returncode == 0, said
    assert said.count("was lost with the machine or the process that ran it; it is started again.") == 2
    assert "[4 of 4 done]" in said
    assert (out / "table.md").read_text().count("| 1/1 |") == 2
    assert not (out / ".seen_by_the_cluster").exists()
    alone = ["train", "xor", *settings, "--policy.mask", on_head, "--out", str(tmp_path / "alone"), "--quiet"]
    assert subprocess.run([sys.executable, "-m", "diamond_attention", *alone], timeout=300).returncode == 0
    mine, theirs = tmp_path / "alone" / "seed_0", folders[on_head] / "seed_0"
    assert rows_without_times(mine) == rows_without_times(theirs)
    last = "checkpoints/step_48000/policy.safetensors"
    assert (mine / last).read_bytes() == (theirs / last).read_bytes()
    again = cluster.start("sweep", *words)
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert "0 to do" in said


@pytest.mark.timeout(600)
def test_a_cluster_that_is_lost_is_one_sentence_and_what_is_done_is_kept(tmp_path):
    """The head, and with it all of a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(folder)
        out = tmp_path / "out"
        try:
            words = ["xor", *SMALL, "--total-steps", "1000000000", "--out", str(out), "--on", "ray"]
            sweep = cluster.start("sweep", *words)
            until(lambda: command_for(out / "xor") is not None, 200, sweep)
            command = command_for(out / "xor")
            cluster.head.terminate()
            said, _ = sweep.communicate(timeout=200)
        finally:
            cluster.end()
    assert sweep.returncode == 2, said
    # What comes before is shortened, by as much as the folder is long.
    assert "the process that ran it; what is done is kept" in said.splitlines()[-1]
    until(lambda: not lives(command), 60)
