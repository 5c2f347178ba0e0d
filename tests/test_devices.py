"""Several devices of one machine. The tests start processes of their own, in which the CPU counts as four devices.

Host devices share the cores: they show that the results are the same, not how fast anything is.
"""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diamond_attention.learning.devices import parts_of
from diamond_attention.learning.registry import METHODS

FLAGS = "--xla_force_host_platform_device_count=4 " + os.environ["XLA_FLAGS"]


def with_four_devices(code: str, *arguments: object) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "XLA_FLAGS": FLAGS},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("seeds", range(1, 12))
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8, 64])
def test_every_seed_is_in_one_part_and_no_device_in_two(seeds, devices):
    parts = parts_of(seeds, range(devices))
    assert [i for part in parts for i in part.places] == list(range(seeds))
    used = [device for part in parts for device in part.devices]
    assert len(set(used)) == len(used) <= devices
    assert len({len(part.devices) for part in parts}) == 1
    # No device has two seeds more than another, and none has two while another has none to do.
    assert max(part.seeds for part in parts) == -(-seeds // devices)
    assert len(used) > devices - min(seeds, devices)


ADDED = """
import jax
from adding import LEARNER, METHOD, added, begin, same
from diamond_attention.runs.learners import Learners

for number in (3, 4):
    for seeds in ([3], [1, 0], [4, 5, 6], [0, 1, 2, 3, 4]):
        learners = Learners(METHOD, LEARNER, [begin(seed) for seed in seeds], jax.devices()[:number])
        logs = [learners.advance(2), learners.advance(3)]
        assert same(learners.states(), logs, added(seeds)), (number, seeds)
"""


def test_numbers_do_not_depend_on_the_devices_that_draw_them():
    """Whole numbers, whose sums have no rounding: equal for every split of seeds and teams, even or not."""
    with_four_devices(ADDED)


TRAINING = """
import sys
from pathlib import Path
import jax, numpy as np, safetensors.numpy
from diamond_attention import resume, train
from diamond_attention.command_words import parse_train

place, words = Path(sys.argv[1]), sys.argv[2:]
settings = parse_train(words[0], words[1:]).settings
LAST = settings.total_steps

def arrays(group, seed):
    return safetensors.numpy.load_file(place / group / f"seed_{seed}/checkpoints/step_{LAST}/state.safetensors")

def same(one, other):
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)

def near(one, other):
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=1e-3, atol=1e-4) for name in one
    )
"""


def of_test(words: str, code: str, place: Path) -> None:
    with_four_devices(TRAINING + code, place, *words.split())


XOR = "xor --policy.width 8 --ppo.envs 6 --ppo.steps 4 --ppo.batch 12 --total-steps 96 --checkpoint-every 2"
QMIX = (
    "xor --method qmix --qmix.envs 6 --qmix.steps 1 --qmix.warmup 12 --qmix.batch 10 --qmix.replay 48 "
    "--qmix.gradient-steps 2 --total-steps 36 --checkpoint-every 2"
)


@pytest.mark.long
def test_seeds_on_devices_of_their_own_have_the_bits_of_one_device(tmp_path):
    of_test(
        XOR,
        """
train(settings, [0, 1, 2], place / "apart", devices="all")
train(settings, [0, 1, 2], place / "two", devices=2)
train(settings, [0, 1], place / "first_two")
for seed in (0, 1, 2):
    train(settings, [seed], place / f"alone_{seed}")
    assert same(arrays("apart", seed), arrays(f"alone_{seed}", seed))
assert same(arrays("two", 2), arrays("alone_2", 2))
for seed in (0, 1):
    assert same(arrays("two", seed), arrays("first_two", seed))
    assert near(arrays("two", seed), arrays("apart", seed))
""",
        tmp_path,
    )


@pytest.mark.parametrize("words", [pytest.param(XOR, marks=pytest.mark.long), QMIX], ids=["PPO", "QMIX"])
def test_teams_on_several_devices_learn_what_they_learn_on_one(words, tmp_path):
    """Six teams on four devices, and minibatches that four do not divide: up to the order in which sums are taken."""
    of_test(
        words,
        """
train(settings, [0], place / "shared", devices=4)
train(settings, [0], place / "alone")
assert near(arrays("shared", 0), arrays("alone", 0))
""",
        tmp_path,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [[0, 1], [0, 1, 2]], ids=["two devices a seed", "a device each, and one rests"])
def test_a_run_goes_from_four_devices_to_one_and_back_and_the_other_way_round(seeds, tmp_path):
    of_test(
        XOR.replace("--total-steps 96", "--total-steps 144"),
        f"seeds = {seeds}"
        """
class StopAt:
    def __init__(self, step): self.step = step
    def begin(self, what, total, done): self.began = done
    def advance(self, done, shown):
        if done >= self.step: raise KeyboardInterrupt  # as if the power failed: the checkpoint of that step is there
    def say(self, sentence): pass
    def end(self, sentence): pass

def broken_off(work):
    try:
        work()
    except KeyboardInterrupt:
        return
    raise AssertionError("it went through")

to_the_end = StopAt(10**9)
train(settings, seeds, place / "alone", devices=1)
for first, then, last in ((4, 1, 4), (1, 4, 1)):
    group = place / f"from_{first}"
    broken_off(lambda: train(settings, seeds, group, devices=first, progress=StopAt(48)))
    part = StopAt(96)
    broken_off(lambda: resume(group, devices=then, progress=part))
    resume(group, devices=last, progress=to_the_end)
    assert (part.began, to_the_end.began) == (48, 96)
    assert all(near(arrays(group.name, seed), arrays("alone", seed)) for seed in seeds)
""",
        tmp_path,
    )


# --- The page -------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]


def rows_of(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_how_far_four_devices_are_from_one_stands_on_the_page_as_it_was_measured():
    page = (ROOT / "docs" / "scale.md").read_text()
    rows = rows_of("device_differences")
    lines = list(dict.fromkeys((row["what"], row["preset"], row["method"]) for row in rows))
    for what, preset, method in lines:
        measured = [row for row in rows if (row["what"], row["preset"], row["method"]) == (what, preset, method)]
        assert [row["update"] for row in measured] == ["1", "2", "3"]
        cells = " | ".join(row["largest_difference"] for row in measured)
        assert f"| {method} | {preset} | {what} | {cells} |" in page
    assert {method for what, _, method in lines if what == "four devices"} == METHODS.keys()
    assert page.count("| four devices |") + page.count("compiled otherwise |") == len(lines)


def test_what_processes_cost_stands_on_the_page_as_it_was_measured():
    page = (ROOT / "docs" / "scale.md").read_text()
    meetings = {row["processes"]: row for row in rows_of("process_overhead")}
    trained = {(row["processes"], row["what"]): row for row in rows_of("process_training")}
    assert {processes for processes, _ in trained} == {"1", *meetings} == {"1", "2", "4"}
    for processes in ("1", "2", "4"):
        rows = (meetings.get(processes, {}), trained[processes, "call"], trained[processes, "fetch"])
        cells = [row.get(name, "") for row in rows for name in ("median_ms", "slowest_tenth_from_ms")]
        assert f"| {' | '.join([processes, *cells])} |" in page


def test_what_the_page_expects_of_many_gpus_follows_from_what_one_measured():
    measured = {
        "smaclite-gpu": json.loads((ROOT / "results/bench_smaclite_gpu.json").read_text())["training"],
        "xor-paper": json.loads((ROOT / "results/bench_xor_gpu.json").read_text())["results"],
    }
    page = (ROOT / "docs" / "scale.md").read_text()
    for preset, (few, many) in measured.items():
        seconds = [1 / each["updates_per_second"] for each in (few, many)]
        work = (seconds[1] - seconds[0]) / (many["seeds"] - few["seeds"])
        start = seconds[0] - work * few["seeds"]
        a, b = re.search(
            rf"\| {preset} \| ([\d.]+) \| ([\d.]+) \| {few['seeds']} and {many['seeds']} seeds", page
        ).groups()
        assert (float(a), float(b)) == pytest.approx((1000 * start, 1000 * work), rel=0.02)
        rows = re.findall(rf"\| {preset} \| (\d+) \| ([\d.]+) \| ([\d.]+) \|\n", page)
        assert rows
        for seeds, *faster in rows:
            for devices, said in zip((8, 64), faster, strict=True):
                expected = (start + work * int(seeds)) / (start + work * -(-int(seeds) // devices))
                assert float(said) == pytest.approx(expected, abs=0.051)
