"""Several real processes on this machine train one run: they agree, stop together, and survive the loss of one."""

import dataclasses
import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.runs import processes
from diamond_attention.runs import signals as signals_module
from diamond_attention.runs import train as training
from diamond_attention.runs.progress import Quiet
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.signals import Interrupted
from diamond_attention.runs.train import resume, train
from diamond_attention.worlds.xor import Xor

STEPS = 16
TINY = ["--policy.width=8", "--ppo.envs=8", "--ppo.steps=2", "--ppo.batch=16", "--device=cpu"]
SETTINGS = Settings(
    world=Xor(),
    policy=DiamondSettings(width=8),
    ppo=PpoSettings(envs=8, steps=2, batch=16, learning_rate=2e-4),
    total_steps=20 * STEPS,
    checkpoint_every=10,
)
CALL = "from diamond_attention.command_line import main; main()"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def group_of(
    number: int,
    *words: object,
    differ: dict[int, list[str]] | None = None,
    call: dict[int, str] | None = None,
    slurm: bool = False,
    devices: dict[int, int] | None = None,
) -> list[subprocess.Popen]:
    """So many processes with the same command, each with words of its own if it is to `differ`."""
    port = free_port()

    def joining(index: int) -> list[str]:
        if slurm:
            return ["--coordinator", "auto"]
        return f"--coordinator 127.0.0.1:{port} --processes {number} --process {index}".split()

    def environment(index: int) -> dict[str, str]:
        """What `srun` sets."""
        own = {"NTASKS": number, "PROCID": index, "LOCALID": index, "STEP_NODELIST": "127.0.0.1", "JOB_ID": 1}
        of_slurm = {f"SLURM_{name}": str(value) for name, value in own.items()}
        count = f"--xla_force_host_platform_device_count={(devices or {}).get(index, 1)} "
        return {
            **os.environ,
            **({**of_slurm, "JAX_COORDINATOR_PORT": str(port)} if slurm else {}),
            "XLA_FLAGS": count + os.environ["XLA_FLAGS"],
        }

    return [
        subprocess.Popen(
            [
                *(sys.executable, "-c", (call or {}).get(index, CALL), *map(str, words)),
                *(differ or {}).get(index, ()),
                *joining(index),
                "--wait=200",
            ],
            env=environment(index),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(number)
    ]


def two_of(program: str, told: object, **where: Any) -> list[subprocess.Popen]:
    """Two processes of a program that is told a free port, its number, and something more."""
    port, pipe = free_port(), subprocess.PIPE
    return [
        subprocess.Popen(
            [sys.executable, "-c", program, str(port), str(process), str(told)],
            stdout=pipe,
            stderr=pipe,
            text=True,
            **where,
        )
        for process in (0, 1)
    ]


def ends_of(processes: list[subprocess.Popen], timeout: float = 500) -> list[tuple[int, str, str]]:
    until, ends = time.monotonic() + timeout, []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=max(1, until - time.monotonic()))
            ends.append((process.returncode, out, errors))
    finally:
        for process in processes:
            process.kill()
    return ends


def checkpoints_of(group: Path, seed: int) -> list[int]:
    return sorted(int(path.name[5:]) // STEPS for path in (group / f"seed_{seed}" / "checkpoints").glob("step_*"))


def wait_for_checkpoint(group: Path, seeds: int, after: int, processes: list[subprocess.Popen]) -> None:
    until = time.monotonic() + 400
    while not all(max(checkpoints_of(group, seed), default=0) > after for seed in range(seeds)):
        ended = [process.communicate() for process in processes if process.poll() is not None]
        assert not ended
        assert time.monotonic() < until
        time.sleep(0.01)


def arrays_in(group: Path, seed: int, update: int) -> dict[str, bytes]:
    file = group / f"seed_{seed}" / "checkpoints" / f"step_{update * STEPS}" / "state.safetensors"
    return {name: array.tobytes() for name, array in safetensors.numpy.load_file(file).items()}


def worker_of(watcher: subprocess.Popen) -> int:
    """The half of a process that works."""
    (worker,) = map(int, Path(f"/proc/{watcher.pid}/task/{watcher.pid}/children").read_text().split())
    return worker


def one_sentence(errors: str) -> str:
    assert errors.count("\n") == 1, errors
    return errors


ADDED = """
import sys
import time
import jax
jax.config.update("jax_platforms", "cpu")
port, process, late = map(int, sys.argv[1:])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, process)
from adding import LEARNER, METHOD, added, begin, same
from diamond_attention.runs.learners import Learners
from diamond_attention.runs.processes import Order, choose_devices, hear, sent_text, tell

used = choose_devices("all")
assert len(used) == 6
assert sent_text("from the first" if process == 0 else "") == "from the first"
time.sleep(late * process)
for seeds in ([3], [1, 0], [4, 5, 6], [0, 1, 2, 3, 4]):  # six devices a seed, three, two, one each
    learners = Learners(METHOD, LEARNER, [begin(seed) for seed in seeds], used)
    logs = [learners.advance_here(2), learners.advance_here(3)]
    assert learners.failure is None
    assert same(learners.fetch_here(), logs, added(seeds)), seeds

# A signal to one, and a device that fails in one.
assert tell(Order.ADVANCE, 7) == 15 if process == 0 else hear(15) == (Order.ADVANCE, 7)
def full(stacked, count):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
if process == 1:
    learners._advance = [full] * len(learners._advance)
learners.advance_here(1)
expected = "process 1 of this run could not go on; it says why." if process == 0 else "RESOURCE_EXHAUSTED"
assert str(learners.failure) == expected
print("well")
"""


@pytest.mark.parametrize("late", [0, pytest.param(40, marks=pytest.mark.long)])
def test_numbers_do_not_depend_on_the_processes_that_draw_them(late):
    """Two real processes of three devices each: seeds apart, shared within a process, and shared between both.

    Also where one needs many seconds more than the other before it can begin, for example to compile.
    """
    flags = "--xla_force_host_platform_device_count=3 " + os.environ["XLA_FLAGS"]
    ends = ends_of(two_of(ADDED, late, env={**os.environ, "XLA_FLAGS": flags}, cwd=Path(__file__).parent))
    assert [(status, out.splitlines()[-1]) for status, out, _ in ends] == [(0, "well"), (0, "well")], ends


@pytest.mark.long
@pytest.mark.parametrize("slurm", [False, True])
def test_two_processes_train_each_seed_as_it_would_train_alone(slurm, tmp_path):
    words = ("train", "xor-demo", *TINY, f"--total-steps={20 * STEPS}", "--checkpoint-every=10", "--seeds=0,1")
    ends = ends_of(group_of(2, *words, "--out", tmp_path / "both", slurm=slurm))
    assert [(status, errors) for status, _, errors in ends] == [(0, ""), (0, "")], ends
    assert "finished 2 of 2 seed(s)" in ends[0][1]
    assert "finished" not in ends[1][1]  # one process writes, and says so
    for seed in (0, 1):
        train(SETTINGS, [seed], tmp_path / f"alone_{seed}")
        assert arrays_in(tmp_path / "both", seed, 20) == arrays_in(tmp_path / f"alone_{seed}", seed, 20)
        rows = (tmp_path / "both" / f"seed_{seed}" / "metrics.csv").read_text().splitlines()
        assert len(rows) == 21


def numbers_in(group: Path, seed: int, update: int) -> dict[str, np.ndarray]:
    file = group / f"seed_{seed}" / "checkpoints" / f"step_{update * STEPS}" / "state.safetensors"
    return safetensors.numpy.load_file(file)


def near(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Up to the order in which sums are taken."""
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=1e-3, atol=1e-4) for name in one
    )


@pytest.mark.long
@pytest.mark.parametrize(("seeds", "to_the_bit"), [([0, 1, 2, 3], True), ([0, 1], False)])
def test_two_processes_of_two_devices_each_train_as_four_devices_of_one_process(seeds, to_the_bit, tmp_path):
    """Four seeds have a device each; two have two each, which share their teams within a process."""
    which = "--seeds=" + ",".join(map(str, seeds))
    words = ("train", "xor-demo", *TINY, f"--total-steps={4 * STEPS}", "--checkpoint-every=2", which)
    ends = ends_of(group_of(2, *words, "--out", tmp_path / "both", devices={0: 2, 1: 2}))
    assert [(status, errors) for status, _, errors in ends] == [(0, ""), (0, "")], ends
    train(dataclasses.replace(SETTINGS, total_steps=4 * STEPS, checkpoint_every=2), [0], tmp_path / "alone")
    if to_the_bit:
        assert arrays_in(tmp_path / "both", 0, 4) == arrays_in(tmp_path / "alone", 0, 4)
    assert near(numbers_in(tmp_path / "both", 0, 4), numbers_in(tmp_path / "alone", 0, 4))
    assert checkpoints_of(tmp_path / "both", seeds[-1]) == [2, 4]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("processes", "devices", "seeds"),
    [(2, 1, [0]), (4, 1, [0, 1]), (3, 1, [0, 1]), (2, 3, [0, 1, 2])],
    ids=["share a seed", "two share each seed", "one rests", "each is in two parts, one of them shared"],
)
def test_processes_that_share_seeds_learn_what_one_device_learns(processes, devices, seeds, tmp_path):
    words = ("train", "xor-demo", *TINY, f"--total-steps={4 * STEPS}", "--checkpoint-every=2")
    which = "--seeds=" + ",".join(map(str, seeds))
    of_each = dict.fromkeys(range(processes), devices)
    ends = ends_of(group_of(processes, *words, which, "--out", tmp_path / "together", devices=of_each))
    assert [(status, errors) for status, _, errors in ends] == [(0, "")] * processes, ends
    settings = dataclasses.replace(SETTINGS, total_steps=4 * STEPS, checkpoint_every=2)
    for seed in seeds:
        train(settings, [seed], tmp_path / f"alone_{seed}")
        together, alone = (numbers_in(tmp_path / name, seed, 4) for name in ("together", f"alone_{seed}"))
        assert near(together, alone)
    if processes * devices // len(seeds) == 1:  # each seed has a device of its own
        assert all(
            arrays_in(tmp_path / "together", seed, 4) == arrays_in(tmp_path / f"alone_{seed}", seed, 4)
            for seed in seeds
        )


def stopped_after(updates: int) -> str:
    """The command, which says where it begins, and is told to stop when so many updates are done in all."""
    return f"""
import diamond_attention.runs.train as training
from diamond_attention.runs.signals import relay
loop, advance = training._training_loop, training.Learners.advance
def and_say(*arguments, done, **named):
    global reached
    reached = done
    print("began at", done, flush=True)
    return loop(*arguments, done=done, **named)
def and_stop(self, count):
    global reached
    log = advance(self, count)
    reached += count
    if reached == {updates}:
        relay(15)
    return log
training._training_loop, training.Learners.advance = and_say, and_stop
{CALL}"""


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_run_of_two_processes_goes_on_with_four_and_then_with_one_as_if_nothing_had_been(tmp_path):
    """All share one seed. Where each begins is said: what began anew would end near the straight one too."""
    group = tmp_path / "group"
    words = ("train", "xor-demo", *TINY, f"--total-steps={12 * STEPS}", "--checkpoint-every=4", "--seeds=0")
    ends = ends_of(group_of(2, *words, "--out", group, call={0: stopped_after(4)}))
    assert [status for status, _, _ in ends] == [143, 143], ends
    assert "began at 0" in ends[0][1]
    assert checkpoints_of(group, 0) == [4]
    ends = ends_of(group_of(4, "resume", group, "--device=cpu", call={0: stopped_after(8)}))
    assert [status for status, _, _ in ends] == [143] * 4, ends
    assert "began at 4" in ends[0][1]
    assert checkpoints_of(group, 0)[-1] == 8
    began: list[int] = []

    class Noting(Quiet):
        def begin(self, what, total, done, unit="steps"):
            began.append(done)

    resume(group, progress=Noting())
    assert began == [8 * STEPS]
    train(dataclasses.replace(SETTINGS, total_steps=12 * STEPS, checkpoint_every=4), [0], tmp_path / "straight")
    assert near(numbers_in(group, 0, 12), numbers_in(tmp_path / "straight", 0, 12))


@pytest.mark.long
@pytest.mark.parametrize("method", ["mappo", "mat", "qmix"])
def test_two_processes_train_other_methods_as_one_does(method, tmp_path):
    sizes = {
        "mappo": "--mappo.envs=8 --mappo.steps=2 --mappo.batch=16",
        "mat": "--mat.envs=8 --mat.steps=2 --mat.batch=16 --policy.width=8 --policy.heads=2",
        "qmix": "--qmix.envs=8 --qmix.steps=2 --qmix.warmup=16 --qmix.batch=8 --qmix.replay=64",
    }
    words = ("train", "xor", f"--method={method}", *sizes[method].split(), "--device=cpu", "--checkpoint-every=2")
    words += (f"--total-steps={4 * STEPS}",)
    ends = ends_of(group_of(2, *words, "--seeds=0,1", "--out", tmp_path / "both"))
    assert [(status, errors) for status, _, errors in ends] == [(0, ""), (0, "")], ends
    for seed in (0, 1):
        assert run_command([*words, f"--seeds={seed}", "--out", str(tmp_path / f"alone_{seed}")]) == 0
        assert arrays_in(tmp_path / "both", seed, 4) == arrays_in(tmp_path / f"alone_{seed}", seed, 4)


FROM_PYTHON = """
import sys
from pathlib import Path
import jax
port, process, group = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
from diamond_attention import train
from diamond_attention.command_words import parse_train
settings = parse_train("xor-demo", WORDS).settings
runs = train(settings, [0, 1], Path(group))
print([run.seed for run in runs])
"""


@pytest.mark.long
def test_processes_that_python_began_train_together_and_only_the_first_returns_runs(tmp_path):
    words = [*TINY[:-1], f"--total-steps={4 * STEPS}", "--checkpoint-every=2"]
    ends = ends_of(two_of(FROM_PYTHON.replace("WORDS", repr(words)), tmp_path / "both"))
    # Gloo says on standard output who is connected, above what was asked for.
    assert [(status, out.splitlines()[-1]) for status, out, _ in ends] == [(0, "[0, 1]"), (0, "[]")], ends
    train(dataclasses.replace(SETTINGS, total_steps=4 * STEPS, checkpoint_every=2), [0], tmp_path / "alone")
    assert arrays_in(tmp_path / "both", 0, 4) == arrays_in(tmp_path / "alone", 0, 4)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_signal_to_one_stops_all_and_a_killed_one_ends_all_and_any_number_goes_on(tmp_path):
    group = tmp_path / "group"
    words = ("train", "xor-demo", *TINY, f"--total-steps={100_000 * STEPS}", "--checkpoint-every=50", "--seeds=0,1")
    two = group_of(2, *words, "--out", group)
    wait_for_checkpoint(group, 2, 0, two)
    two[1].send_signal(signal.SIGTERM)  # to the one that does not write
    ends = ends_of(two)
    assert [(status, errors) for status, _, errors in ends] == [(143, ""), (143, "")], ends
    stopped = int(re.search(r"stopped and saved at update (\d+) of", ends[0][1])[1])
    assert [checkpoints_of(group, seed)[-1] for seed in (0, 1)] == [stopped, stopped]

    # Four processes, so that two share the teams of each seed; one is killed as the system would do it.
    four = group_of(4, "resume", group, "--device=cpu")
    wait_for_checkpoint(group, 2, stopped, four)
    four[3].kill()
    killed = time.monotonic()
    ends = ends_of(four, timeout=60)
    assert time.monotonic() - killed < 60
    assert [status for status, _, _ in ends] == [1, 1, 1, -signal.SIGKILL], ends
    for _, _, errors in ends[:3]:
        assert "another process of this run ended or cannot be reached" in one_sentence(errors)
    saved = [checkpoints_of(group, seed)[-1] for seed in (0, 1)]
    assert min(saved) > stopped

    # The working half of a process is what the kernel ends when memory is short; its watcher says so.
    two = group_of(2, "resume", group, "--device=cpu")
    wait_for_checkpoint(group, 2, min(saved), two)
    os.kill(worker_of(two[0]), signal.SIGKILL)
    ends = ends_of(two, timeout=60)
    assert [status for status, _, _ in ends] == [137, 1], ends
    assert "ended by SIGKILL" in one_sentence(ends[0][2])
    assert "another process of this run ended or cannot be reached" in one_sentence(ends[1][2])

    # One process and one device, as ever.
    alone = subprocess.Popen(
        [sys.executable, "-c", CALL, "resume", str(group), "--device=cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_checkpoint(group, 2, max(checkpoints_of(group, 0)), [alone])
    alone.send_signal(signal.SIGINT)
    assert [status for status, _, _ in ends_of([alone])] == [130]


def slowly(name: str, reached: Path) -> str:
    """The command, where that function of runs/train.py takes three seconds once another process is to stop."""
    return f"""
import time
from pathlib import Path
import diamond_attention.runs.train as training
learned = 0
advance = training.Learners.advance
def and_learn(self, count):
    global learned
    log = advance(self, count)
    learned = self.noted
    return log
training.Learners.advance = and_learn
room, _, name = "training.{name}".rpartition(".")
room = eval(room)
real = getattr(room, name)
def slow(*arguments, **named):
    if learned:
        Path({str(reached)!r}).touch()
        time.sleep(3)
    return real(*arguments, **named)
setattr(room, name, slow)
{CALL}"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["save_checkpoint", "Metrics.close"])
def test_a_signal_that_reaches_one_process_later_than_another_cuts_nothing_short(name, tmp_path):
    """SLURM signals all nodes, but not at once: one may hear from another that it is to stop, and then by itself.

    The first process gets its own signal while it saves, or after that.
    """
    group, reached = tmp_path / "group", tmp_path / "reached"
    words = ("train", "xor-demo", *TINY, f"--total-steps={100_000 * STEPS}", "--checkpoint-every=50", "--seeds=0,1")
    two = group_of(2, *words, "--out", group, call={0: slowly(name, reached)})
    wait_for_checkpoint(group, 2, 0, two)
    two[1].send_signal(signal.SIGTERM)
    until = time.monotonic() + 60
    while not reached.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    two[0].send_signal(signal.SIGTERM)
    ends = ends_of(two)
    assert [(status, errors) for status, _, errors in ends] == [(143, ""), (143, "")], ends
    stopped = int(re.search(r"stopped and saved at update (\d+) of", ends[0][1])[1])
    assert [checkpoints_of(group, seed)[-1] for seed in (0, 1)] == [stopped, stopped]


@pytest.mark.parametrize("when", ["save_checkpoint", "Metrics.close"])
def test_the_first_signal_to_a_process_is_not_the_second_after_one_that_another_noted(when, tmp_path, monkeypatch):
    """The same in one process, which hears from `Learners` what others noted; its second signal ends it at once."""

    def and_told_to_stop(self, count):
        log = advance(self, count)
        self.noted = signal.SIGTERM
        return log

    def and_signalled(*arguments, **named):
        for _ in range(signals):
            signals_module.relay(signal.SIGTERM)
        return real(*arguments, **named)

    class EndedAtOnceError(Exception):
        pass

    def end(status):
        raise EndedAtOnceError(status)

    advance = training.Learners.advance
    room, name = (training.Metrics, "close") if when == "Metrics.close" else (training, when)
    real = getattr(room, name)
    monkeypatch.setattr(training.Learners, "advance", and_told_to_stop)
    monkeypatch.setattr(signals_module.os, "_exit", end)
    monkeypatch.setattr(signals_module.signals_noted, "only_relayed", True)
    monkeypatch.setattr(room, name, and_signalled)
    signals = 1
    with pytest.raises(training.Interrupted) as interrupted:
        train(SETTINGS, [0], tmp_path / "one")
    assert interrupted.value.signal_number == signal.SIGTERM
    assert checkpoints_of(tmp_path / "one", 0) == [1]
    signals = 2
    with pytest.raises(EndedAtOnceError, match="143"):
        train(SETTINGS, [0], tmp_path / "two")


@pytest.mark.long
def test_one_that_only_falls_silent_counts_as_dead_within_a_minute(tmp_path):
    """As a machine that vanishes: its connections stay open, and nothing comes through them."""
    group = tmp_path / "group"
    words = ("train", "xor-demo", *TINY, f"--total-steps={100_000 * STEPS}", "--checkpoint-every=50", "--seeds=0,1")
    two = group_of(2, *words, "--out", group)
    wait_for_checkpoint(group, 2, 0, two)
    worker = worker_of(two[1])
    os.kill(worker, signal.SIGSTOP)
    silent = time.monotonic()
    try:
        _, errors = two[0].communicate(timeout=90)
        assert time.monotonic() - silent < 60
    finally:
        os.kill(worker, signal.SIGKILL)
        ends_of(two)
    assert two[0].returncode == 1
    assert "another process of this run ended or cannot be reached" in one_sentence(errors)
    assert all(arrays_in(group, seed, checkpoints_of(group, seed)[-1]) for seed in (0, 1))


FULL_DEVICE = f"""
import jax
import diamond_attention.runs.learners as learners
advance_here = learners.Learners.advance_here
def full(stacked, count):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
def and_full_at_last(self, count):
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls == 8:
        self._advance = [full]
    return advance_here(self, count)
learners.Learners.advance_here = and_full_at_last
{CALL}"""


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 1])
def test_a_device_that_is_full_ends_all_and_each_says_what_it_knows(which, tmp_path):
    words = ("train", "xor-demo", *TINY, f"--total-steps={100_000 * STEPS}", "--checkpoint-every=2", "--seeds=0,1")
    call = {which: FULL_DEVICE}
    ends = ends_of(group_of(2, *words, "--out", tmp_path / "group", call=call))
    assert [status for status, _, _ in ends] == [2, 2], ends
    assert "the device ran out of memory" in one_sentence(ends[which][2])
    assert f"process {which} of this run could not go on; it says why." in one_sentence(ends[1 - which][2]) or (
        which == 0 and "the first process of this run could not go on; it says why." in ends[1][2]
    )
    assert checkpoints_of(tmp_path / "group", 0)[-1] > 0


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 1])
def test_a_device_that_is_full_amid_a_shared_program_ends_all_within_a_minute(which, tmp_path):
    """The others wait in that program, so they see no more than that it ended."""
    words = ("train", "xor-demo", *TINY, f"--total-steps={100_000 * STEPS}", "--checkpoint-every=2", "--seeds=0")
    two = group_of(2, *words, "--out", tmp_path / "group", call={which: FULL_DEVICE})
    wait_for_checkpoint(tmp_path / "group", 1, 0, [])
    begun = time.monotonic()
    ends = ends_of(two)
    assert time.monotonic() - begun < 60
    assert [status for status, _, _ in ends] == [1, 1], ends
    assert "the device ran out of memory in the midst of what several processes compute" in one_sentence(
        ends[which][2]
    )
    assert "another process of this run ended or cannot be reached" in one_sentence(ends[1 - which][2])


# --- What can be put right ------------------------------------------------------------------------


def other_version(name: str) -> str:
    return (
        "import importlib.metadata as found; real = found.version; "
        f"found.version = lambda name: '9.9' if name == '{name}' else real(name); {CALL}"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("differ", "call", "sentence"),
    [
        ({1: ["--ppo.epochs=3"]}, {}, "ppo.epochs is 3 in process 1 and 1 in process 0; type the same command"),
        ({1: ["--devices=2"]}, {}, "--devices is 2 in process 1 and None in process 0; type the same command"),
        ({1: ["--seeds=0,1"]}, {}, "--seeds is [0, 1] in process 1 and [0] in process 0; type the same command"),
        ({}, {1: other_version("jax")}, "jax is '9.9' in process 1 and '"),
    ],
)
def test_processes_that_disagree_say_so_and_train_nothing(differ, call, sentence, tmp_path):
    ends = ends_of(group_of(2, "train", "xor-demo", *TINY, "--out", tmp_path / "new", differ=differ, call=call))
    for status, _, errors in ends:
        assert status == 2, ends
        assert sentence in one_sentence(errors)
    assert not (tmp_path / "new").exists()


@pytest.mark.long
def test_processes_with_unequal_devices_say_so(tmp_path):
    ends = ends_of(group_of(2, "train", "xor-demo", *TINY, "--out", tmp_path / "new", devices={1: 2}))
    for status, _, errors in ends:
        assert status == 2, ends
        assert "process 1 has 2 device(s) and process 0 has 1; let all see as many" in one_sentence(errors)
    assert not (tmp_path / "new").exists()


@pytest.mark.long
@pytest.mark.parametrize("slurm", [False, True])
def test_what_the_first_process_cannot_do_ends_all(slurm, tmp_path):
    (tmp_path / "file").write_text("")
    ends = ends_of(group_of(2, "train", "xor-demo", *TINY, "--out", tmp_path / "file", slurm=slurm))
    assert [status for status, _, _ in ends] == [2, 2], ends
    assert "which is a file" in one_sentence(ends[0][2])
    assert "the first process of this run could not go on" in one_sentence(ends[1][2])


@pytest.mark.long
@pytest.mark.parametrize("process", ["0", "1"])
def test_nobody_waits_for_ever(process, tmp_path):
    """The first for the others, and another for a first that is not there."""
    words = f"--coordinator 127.0.0.1:{free_port()} --processes 2 --process {process} --wait 2".split()
    answer = subprocess.run(
        [sys.executable, "-c", CALL, "train", "xor-demo", *TINY, "--out", tmp_path / "new", *words],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert answer.returncode == 2, answer
    assert "processes did not meet there within --wait 2 s; start all of them" in one_sentence(answer.stderr)
    assert not (tmp_path / "new").exists()


@pytest.mark.long
def test_a_port_that_somebody_else_has_is_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = f"--coordinator 127.0.0.1:{taken.getsockname()[1]} --processes 2 --process 0 --wait 2".split()
        answer = subprocess.run(
            [sys.executable, "-c", CALL, "train", "xor-demo", *TINY, "--out", tmp_path / "new", *words],
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert answer.returncode == 2, answer
    assert "the first process cannot have that port here (address already in use)" in one_sentence(answer.stderr)


@pytest.mark.long
def test_auto_needs_somebody_who_started_the_processes(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", CALL, "train", "xor-demo", *TINY, "--out", tmp_path / "new", "--coordinator=auto"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert answer.returncode == 2, answer
    assert "JAX finds no SLURM, Open MPI or Kubernetes that started this process" in one_sentence(answer.stderr)


@pytest.mark.parametrize("asked", ["many", True, 0, -1, 2.5, "2"])
def test_from_python_devices_are_a_number_or_all(asked, tmp_path):
    with pytest.raises(UserError, match=f"--devices is '?{asked}'?; it must be a whole number from 1, or all"):
        train(SETTINGS, [0], tmp_path / "new", devices=asked)
    assert not (tmp_path / "new").exists()


def test_a_checkout_that_is_not_installed_can_agree_with_others(monkeypatch):
    def version(name):
        if name == "diamond-attention":
            raise importlib.metadata.PackageNotFoundError
        return "1.0"

    said: list[str] = []
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "gathered_texts", lambda text: said.append(text) or [text, text])
    processes.check_agreement({"total_steps": 1})
    assert '"diamond-attention": "not installed"' in said[0]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("INTERNAL: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9", True),
        ("NCCL operation failed: RESOURCE_EXHAUSTED: out of memory", False),
        ("INTERNAL: an error nobody has heard of", False),
    ],
)
def test_what_a_library_said_of_a_loss_is_kept(text, lost, monkeypatch):
    error = jax.errors.JaxRuntimeError(text)
    with pytest.raises(jax.errors.JaxRuntimeError), processes.among_others():
        raise error  # there are no others
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with (
        pytest.raises(processes.LostError if lost else jax.errors.JaxRuntimeError) as raised,
        processes.among_others(),
    ):
        raise error
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Interrupted(15), [(processes.Order.END, 15)]),
        (UserError("no."), [(processes.Order.END, processes.FAILED)]),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED"), [(processes.Order.END, processes.FAILED)]),
        (MemoryError(), [(processes.Order.END, processes.FAILED)]),
        (KeyboardInterrupt(), [(processes.Order.END, processes.FAILED)]),
        (processes.LostError(), []),
        (processes.OutOfStepError("why"), []),
    ],
)
@pytest.mark.parametrize("others_are_there", [True, False])
def test_however_the_first_process_ends_the_others_are_told_if_they_listen(
    error, told, others_are_there, monkeypatch
):
    said: list[tuple[processes.Order, int]] = []

    def tell(order, number=0):
        said.append((order, number))
        if not others_are_there:
            raise processes.LostError

    monkeypatch.setattr(processes, "tell", tell)
    with pytest.raises(type(error)) as raised, processes.leading():
        raise error
    assert raised.value is error
    assert said == told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--devices 2", "--devices is 2, and JAX finds 1 here (cpu); name at most as many, or all."),
        ("--devices 0", "--devices is '0'; it must be a whole number from 1, or all."),
        ("--devices many", "--devices is 'many'; it must be a whole number from 1, or all."),
        ("--coordinator here", "--coordinator is 'here'; it must be HOST:PORT of the first process, or auto."),
        ("--coordinator a:70000", "--coordinator is 'a:70000'; it must be HOST:PORT of the first process, or auto."),
        (
            "--coordinator a:1 --process 0",
            "--coordinator is 'a:1', and --processes is missing; name it.",
        ),
        (
            "--coordinator a:1 --processes 2",
            "--coordinator is 'a:1', and --process is missing; name it.",
        ),
        (
            "--coordinator a:1 --processes 2 --process 2",
            "--process is 2 and --processes is 2; they count from 0.",
        ),
        ("--processes 2", "--processes is 2, which goes with --coordinator HOST:PORT; name that too."),
        ("--coordinator auto --process 1", "--process is 1, which goes with --coordinator HOST:PORT; name that too."),
    ],
)
def test_what_was_typed_is_checked_before_anybody_is_waited_for(words, sentence, tmp_path, capsys):
    assert run_command(["train", "xor-demo", *TINY, "--out", str(tmp_path / "new"), *words.split()]) == 2
    assert capsys.readouterr().err == f"diamond: {sentence}\n"
    assert not (tmp_path / "new").exists()
