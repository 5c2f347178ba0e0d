"""Commands side by side: what waits for what, what is started again, and what a signal or a kill leaves behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from diamond_attention import extensions
from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.jobs import here
from diamond_attention.jobs.carry_out import carry_out, complain
from diamond_attention.jobs.contract import Ending, Step
from diamond_attention.jobs.here import MEMORY, Here, words_of
from diamond_attention.jobs.ray_cluster import check_ray, run_there
from diamond_attention.runs.files import write_json
from diamond_attention.runs.group import create_group
from diamond_attention.runs.metrics import steps_so_far
from diamond_attention.runs.progress import Quiet
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.xor import Xor

CODE = "import time, sys; time.sleep({}); sys.exit({})"


class Programs(Here):
    """Here, where a command `train NAME` is the program of that name; of several, one for each time."""

    def __init__(self, jobs: int, programs: dict[str, str | list[str]]):
        super().__init__(jobs)
        self.programs = {name: [each] if isinstance(each, str) else each for name, each in programs.items()}
        self.started: list[tuple[str, float]] = []

    def words_of(self, words: Sequence[str]) -> list[str]:
        programs = self.programs[words[1]]
        code = programs[min(self.names.count(words[1]), len(programs) - 1)]
        self.started.append((words[1], time.monotonic()))
        return [sys.executable, "-c", code]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.started]


@pytest.fixture
def place(monkeypatch):
    def make(jobs: int = 1, **programs: str | list[str]) -> Programs:
        made = Programs(jobs, programs)
        monkeypatch.setattr(here, "words_of", made.words_of)
        return made

    return make


class Told(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def steps(*names: str, command: str = "train") -> list[Step]:
    return [Step(name, (command, name), False) for name in names]


def done(step: Step, seconds: float) -> None:
    pass


def test_groups_go_on_side_by_side_and_a_speed_is_measured_alone(place):
    place = place(2, a=CODE.format(0.3, 0), b=CODE.format(0.3, 0), c=CODE.format(0.3, 0))
    assert carry_out([*steps("a", "b"), *steps("c", command="bench")], place, done, Quiet()) == []
    began = dict(place.started)
    assert began["b"] - began["a"] < 0.25
    assert began["c"] - began["b"] > 0.3


def test_steps_of_one_group_follow_each_other_and_what_is_done_is_not_started(place):
    place = place(3, a=CODE.format(0.2, 0), b=CODE.format(0, 0), c="")
    plan = [
        Step("one", ("train", "a"), False),
        Step("one", ("evaluate", "b"), False),
        Step("two", ("train", "c"), True),
    ]
    ended: list[str] = []
    assert carry_out(plan, place, lambda step, seconds: ended.append(step.words[1]), Quiet()) == []
    assert place.names == ended == ["a", "b"]
    assert place.started[1][1] - place.started[0][1] > 0.2


def test_one_that_is_refused_is_given_up_with_its_reason_and_the_others_go_on(place):
    refused = "import sys; print('diamond: it has no wheels.', file=sys.stderr); sys.exit(2)"
    place, told = place(1, a=refused, b=CODE.format(0, 0), play=CODE.format(0, 0)), Told()
    plan = [*steps("a"), Step("a", ("evaluate", "play"), False), *steps("b")]
    broken = carry_out(plan, place, done, told, retries=5)
    assert place.names == ["a", "b"]  # not again, and not what comes after it
    assert [(each.step.words, each.sentence) for each in broken] == [
        (("train", "a"), "was refused: it has no wheels.")
    ]
    with pytest.raises(UserError, match=r"`diamond train a` was refused: it has no wheels; what is done is kept"):
        complain(broken)
    assert "gave up: `diamond train a` was refused: it has no wheels." in told.said
    assert complain([]) is None


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9"),
        (CODE.format(0, 143), "ended with status 143"),
        (CODE.format(0, 70), "ended with status 70"),
    ],
)
def test_a_command_that_was_lost_is_started_again_so_often_and_no_more(place, end, fault):
    there, told = place(1, a=[end, end, CODE.format(0, 0)]), Told()
    assert carry_out(steps("a"), there, done, told, retries=2) == []
    assert there.names == ["a"] * 3
    assert told.said.count(f"`diamond train a` {fault}; it is started again.") == 2
    there = place(1, a=end)
    (broken,) = carry_out(steps("a"), there, done, Quiet(), retries=1)
    assert (there.names, broken.sentence) == (["a"] * 2, fault)


def test_a_machine_that_is_gone_counts_as_lost():
    class Gone:
        at_once = 1
        started = 0

        def start(self, words):
            self.started += 1
            return self

        def ending(self):
            return Ending(None, "") if self.started == 1 else Ending(0, "")

        def stop(self):
            raise AssertionError

    place, told = Gone(), Told()
    assert carry_out(steps("a"), place, done, told, retries=1) == []
    assert "was lost with the machine or the process that ran it; it is started again." in told.said[1]


def test_a_seed_that_failed_is_a_result_and_anything_else_with_status_1_is_not(tmp_path, place):
    ends_with_1 = "import sys; print('seed 3 failed', file=sys.stderr); sys.exit(1)"
    runs = create_group(tmp_path / "a", "", Settings(world=Xor()), [0, 3], overwrite=False)
    steps = [
        Step("a", ("train", "a"), False, 8, tmp_path / "a"),
        Step("a", ("evaluate", "a"), False, 0, tmp_path / "a"),
    ]
    noted: list[str] = []

    def given_up() -> list[tuple[str, str]]:
        broken = carry_out(steps, place(1, a=ends_with_1), lambda step, s: noted.append(step.words[0]), told)
        return [(each.step.words[0], each.sentence) for each in broken]

    told = Told()
    assert given_up() == [("train", "ended with status 1")]
    write_json(runs[0].path / "finished.json", {"update": 1, "step": 8})
    assert given_up() == [("train", "ended with status 1")]
    write_json(runs[1].path / "finished.json", {"update": 1, "step": 8})
    assert given_up() == [("evaluate", "ended with status 1")]  # it did not crash before it was trained, but after
    assert noted == ["train"]
    (runs[1].path / "finished.json").unlink()
    write_json(runs[1].path / "failed.json", {"update": 1, "sentence": "seed 3 failed"})
    assert given_up() == []
    assert noted == ["train"] * 2 + ["evaluate"]
    assert "a: seed 3 failed" in told.said
    (runs[0].path / "settings.json").write_text("{")
    assert given_up() == [("train", "ended with status 1")]


@pytest.mark.parametrize(
    ("broken", "fault"), [("os._exit(1)", "ended with status 1"), ("1 / 0", "ended with status 70")]
)
def test_a_training_that_ends_before_it_has_a_folder_is_tried_again_and_the_others_go_on(
    broken, fault, tmp_path, monkeypatch
):
    """Real commands: a file of the user's own ends every training, or lets it crash."""
    own = tmp_path / "own.py"
    own.write_text(f"""
import os
import diamond_attention.command_line as command_line
def train_command(arguments):
    {broken}
command_line.COMMANDS["train"] = train_command
""")
    monkeypatch.setattr(extensions, "LOADED", [own])
    out, told = tmp_path / "out", Told()
    plan = [Step("a", ("train", "xor", "--out", str(out)), False, 8, out), Step("b", ("list",), False)]
    ((step, sentence),) = carry_out(plan, Here(), done, told, retries=1)
    assert (step.group, sentence) == ("a", fault)
    assert [said for said in told.said if "started again" in said] == [
        f"`diamond train xor --out {out}` {fault}; it is started again."
    ]
    assert any("] list b: " in said for said in told.said)
    assert not out.exists()


def test_how_far_it_is_is_told_in_steps_of_training(tmp_path, monkeypatch, place):
    monkeypatch.setattr("diamond_attention.jobs.carry_out.MEASURE_EVERY", 0.1)
    (run,) = create_group(tmp_path / "a", "", Settings(), [0], overwrite=False)
    write_json(run.path / "finished.json", {"update": 4, "step": 200})
    metrics = run.path / "metrics.csv"
    half = f"""
import time
open({str(metrics)!r}, "w").write("update,step,return\\n1,50,0.5\\n2,100,0.5\\n3,15")
time.sleep(0.6)
"""
    assert steps_so_far(tmp_path / "a") == steps_so_far(tmp_path / "nowhere") == 0

    class Bar(Told):
        def begin(self, what, total, done, unit="steps"):
            self.began = (what, total, done, unit)
            self.at: list[int] = []

        def advance(self, done, shown):
            self.at.append(done)

    bar = Bar()
    carry_out([Step("a", ("train", "a"), False, 200, tmp_path / "a")], place(1, a=half), done, bar)
    assert bar.began == ("1 command", 200, 0, "training steps")
    assert 100 in bar.at  # the last row is not whole yet
    assert bar.at[-1] == 200


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_every_command_the_time_to_save(tmp_path, by):
    """Whether it goes to all of a terminal's processes or to the one that is named, each command is told once."""
    saves = """
import signal, sys, time
def save(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(1)
    open({saved!r}, "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
open({going!r}, "w").close()
time.sleep(60)
"""
    programs = {
        name: saves.format(saved=str(tmp_path / f"saved_{name}"), going=str(tmp_path / f"going_{name}"))
        for name in "ab"
    }
    waits = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
from diamond_attention.jobs import here
from diamond_attention.jobs.carry_out import carry_out
from diamond_attention.jobs.contract import Step
from diamond_attention.runs.progress import Quiet
from diamond_attention.runs.train import Interrupted
programs = {programs!r}
here.words_of = lambda words: [sys.executable, "-c", programs[words[1]]]
steps = [Step(name, ("train", name), False) for name in "ab"] + [Step("c", ("train", "c"), False)]
try:
    carry_out(steps, here.Here(2), lambda step, seconds: True, Quiet(), retries=3)
except Interrupted as interrupted:
    sys.exit(128 + interrupted.signal_number)
"""
    going = subprocess.Popen([sys.executable, "-c", waits], start_new_session=True)
    while not all((tmp_path / f"going_{name}").exists() for name in "ab"):
        assert going.poll() is None
        time.sleep(0.05)
    if by == signal.SIGINT:
        os.killpg(going.pid, by)
    else:
        going.terminate()
    assert going.wait(timeout=30) == 128 + by
    assert all((tmp_path / f"saved_{name}").exists() for name in "ab")


def test_a_command_ends_with_the_process_that_started_it(tmp_path):
    """Also when that is killed and can tell nobody."""
    slow = tmp_path / "slow.py"
    slow.write_text(f"import time\nopen({str(tmp_path / 'going')!r}, 'w').close()\ntime.sleep(60)\n")
    begins = f"""
import os, subprocess, sys, time
words = [sys.executable, "-m", "diamond_attention.jobs.child", str(os.getpid()), "list", "--with", {str(slow)!r}]
print(subprocess.Popen(words).pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", begins], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    _until((tmp_path / "going").exists)
    assert _lives(child)
    parent.kill()
    parent.wait()
    _until(lambda: not _lives(child))


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _until(holds) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_child_is_the_command_itself_and_one_whose_parent_is_gone_does_nothing():
    child = [sys.executable, "-m", "diamond_attention.jobs.child"]
    answer = subprocess.run([*child, str(os.getpid()), "--version"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout.strip()) == (0, "0.1.0")
    answer = subprocess.run([*child, "1", "--version"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (137, "")


def test_a_command_brings_the_files_of_its_user_along_and_is_quiet(tmp_path, monkeypatch):
    own = tmp_path / "own.py"
    own.write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()")
    monkeypatch.setattr(extensions, "LOADED", [own])
    started = Here().start(("list",))
    _until(started.ending)
    assert started.ending() == Ending(0, "")
    assert (tmp_path / "loaded").exists()
    words = words_of(("train", "xor"))
    assert words[1:] == ["-m", "diamond_attention.jobs.child", str(os.getpid()), "train", "xor", "--quiet"]
    assert words_of(("bench", "xor"))[4:] == ["bench", "xor"]


def test_commands_that_share_a_gpu_share_its_memory(monkeypatch):
    monkeypatch.delenv(MEMORY, raising=False)
    assert Here(1)._environment == {}
    assert Here(3)._environment == {MEMORY: "0.300"}
    monkeypatch.setenv(MEMORY, "0.2")
    assert Here(3)._environment == {}


# --- A cluster, as far as it can be known without one (tests/extras has one) -----------------------


def test_a_machine_that_does_not_see_the_folder_is_named(tmp_path):
    status, said = run_there(["list"], {}, str(tmp_path), str(tmp_path / "gone" / ".seen"), "token")
    assert status == 2
    assert "does not see" in said
    assert "on a file system that all machines of the cluster share" in said
    (tmp_path / ".seen").write_text("other")  # a folder of the same name is not the same folder
    assert run_there(["list"], {}, str(tmp_path), str(tmp_path / ".seen"), "token")[0] == 2


def test_ray_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--on is ray, which is not installed; .*'diamond-attention\[ray\]'"):
        check_ray()


@pytest.mark.parametrize("words", ["sweep xor --policy.mask rank none", "reproduce table1 --scale smoke"])
def test_on_a_cluster_that_cannot_be_nothing_is_begun(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    assert run_command([*words.split(), "--out", "new", "--on", "ray"]) == 2
    printed = capsys.readouterr()
    assert "--on is ray, which is not installed" in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
