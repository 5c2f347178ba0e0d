"""What lies at the edges of a run: links, pipes, files edited by hand, two processes at once, numbers that broke."""

import contextlib
import fcntl
import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from long_xor import LongXor
from test_crash_points import SETTINGS, Stop, StoppingProgress, contents
from test_mutated_files import ran

from diamond_attention.command_line import run_command
from diamond_attention.errors import Notice, UserError, printable
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.reports.tables import table_lines
from diamond_attention.runs.bundle import export_policy
from diamond_attention.runs.files import json_bytes, read_file, read_json, write_file, write_folder
from diamond_attention.runs.folder import find_runs, open_run, own_copy
from diamond_attention.runs.group import LOCK, exclusive
from diamond_attention.runs.locks import is_locked, locked
from diamond_attention.runs.restore import load_run
from diamond_attention.runs.rows import append_rows, read_rows
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import resume, train
from diamond_attention.terminal import interrupts_heard
from diamond_attention.worlds.contract import TeamSize, Transition
from diamond_attention.worlds.xor import Xor, XorState


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Two seeds broken off half-way, and evaluated. Copy before use."""
    folder = tmp_path_factory.mktemp("edges") / "group"
    with pytest.raises(Stop):
        train(SETTINGS, (0, 1), folder, progress=StoppingProgress())
    for run in find_runs([folder]):
        evaluate(run, episodes=2)
    return folder


@pytest.fixture
def group(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "group")


def refusal(place: Path, *arguments: str) -> str:
    """What a command that is refused says: one sentence, status 2."""
    status, _, complained = ran(place, list(arguments))
    assert status == 2, (status, complained)
    assert complained.count("\n") == 1, complained
    assert complained.startswith("diamond: "), complained
    assert len(complained) < 320
    return complained


# --- Links and leftovers of others ----------------------------------------------------------------

LINKS = [
    ".lock",
    "seed_0/settings.json",
    "seed_0/episodes.csv",
    "seed_0/.episodes.csv.lock",
    "seed_0/metrics.csv",
    "seed_0/.unfinished.metrics.csv",
    "seed_0/.unfinished.finished.json",
    "seed_0/finished.json",
    "seed_0/checkpoints",
    "seed_0/checkpoints/step_32",
    "seed_0/checkpoints/.unfinished.step_40",
    "seed_0/checkpoints/step_32/state.json",
    "seed_0/checkpoints/step_32/policy.safetensors",
    "seed_1",
    ".new_group",
    ".unfinished.new_group",
]


@pytest.mark.parametrize("link", LINKS)
def test_links_in_a_run_lead_nowhere(link, group, tmp_path):
    """Whatever a folder that somebody sent points to is neither written nor removed, and rarely read."""
    outside = tmp_path / "outside"
    place = group / link
    if place.is_dir():
        shutil.copytree(place, outside)
        shutil.rmtree(place)
    elif place.exists():
        outside.write_bytes(place.read_bytes())
        place.unlink()
    elif link.startswith((".new", ".unfinished.new")) or "step" in link:
        shutil.copytree(group / "seed_0", outside / "seed_0")
    else:
        outside.write_text("irreplaceable")
    place.symlink_to(outside)
    before = contents(outside) if outside.is_dir() else outside.read_bytes()
    for arguments in (
        ["resume", "group", "--quiet"],
        ["evaluate", "group", "--episodes", "1", "--quiet", "--seed", "9"],
        ["table", "group"],
        ["export", "group", "--to", "exported"],
        ["list"],
    ):
        status, _, complained = ran(tmp_path, arguments)
        assert status in (0, 2), (arguments, complained)
        assert complained.count("\n") == 1 or status == 0, (arguments, complained)
    assert (contents(outside) if outside.is_dir() else outside.read_bytes()) == before


def test_a_run_may_be_named_through_a_link(group, tmp_path):
    """A link that you made and typed is yours."""
    (tmp_path / "best").symlink_to(group)
    status, _, complained = ran(tmp_path, ["resume", "best", "--quiet"])
    assert (status, complained) == (0, "")


def test_notes_beside_checkpoints_and_shipped_policies_are_left_alone(group, tmp_path, monkeypatch):
    notes = group / "seed_0" / "checkpoints" / "my_notes.partial"
    notes.mkdir()
    (notes / "notes.txt").write_text("irreplaceable")
    mine = tmp_path / "runs" / "shipped" / "spread.partial"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("irreplaceable")
    resume(group)
    monkeypatch.chdir(tmp_path)
    own_copy(open_run("spread"))
    assert (notes / "notes.txt").read_text() == (mine / "notes.txt").read_text() == "irreplaceable"


def test_only_our_files_are_overwritten(group):
    (group / "seed_1" / "checkpoints" / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(UserError, match=r"seed_1/checkpoints/thesis\.tex is not ours, so nothing is overwritten"):
        train(SETTINGS, (0,), group, overwrite=True)
    assert (group / "seed_0" / "checkpoints" / "step_32").is_dir()


def test_text_from_a_run_cannot_steer_a_terminal(group, tmp_path):
    write_file(group / "seed_0" / "failed.json", json_bytes({"sentence": "it \x1b[2J\x1b]0;failed\x07 \u202e."}))
    _, said, complained = ran(tmp_path, ["evaluate", "group", "--episodes", "1"])
    assert "skipped" in complained
    assert "\x1b" not in said + complained
    assert "\x07" not in said + complained
    assert printable("a\tb\nc\x1b d π 家") == "a�b�c� d π 家"


# --- Files that are none --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "large", "unreadable"])
@pytest.mark.parametrize(
    "file", ["settings.json", "metrics.csv", "episodes.csv", "checkpoints/step_32/state.json", "finished.json"]
)
def test_a_file_that_is_none_is_one_sentence(kind, file, group, tmp_path):
    place = group / "seed_0" / file
    place.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "endless":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    elif kind == "large":
        with open(place, "wb") as opened:
            opened.truncate(1 << 40)  # takes no room on the disk
    else:
        place.write_text("{}")
        place.chmod(0)
    started = time.monotonic()
    for arguments in (["resume", "group", "--quiet"], ["evaluate", "group", "--episodes", "1"], ["table", "group"]):
        status, _, complained = ran(tmp_path, arguments)
        assert status in (0, 2), (arguments, complained)
        assert complained.count("\n") == 1 or status == 0, (arguments, complained)
    assert time.monotonic() - started < 30


def test_only_plain_files_are_read(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_file(tmp_path / "nothing", 10)
    with pytest.raises(UserError, match="not a plain file"):
        read_file(tmp_path, 10)
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(UserError, match="has 5 bytes where it can have 4"):
        read_file(tmp_path / "file", 4)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(UserError, match="is a link"):
        read_file(tmp_path / "link", 5)


def test_names_that_are_too_long_are_one_sentence(tmp_path):
    long = "x" * 300
    assert "File name too long" in refusal(tmp_path, "evaluate", long)
    assert "File name too long" in refusal(tmp_path, "train", "xor", "--out", long, "--quiet")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be_is_one_sentence(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "shipped").write_text("")
    assert "runs/shipped" in refusal(tmp_path, "evaluate", "spread", "--episodes", "1")


# --- Files edited by hand -------------------------------------------------------------------------


def in_line(number: int, change):
    def edit(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        lines[number] = change(lines[number])
        return b"".join(lines)

    return edit


EDITS = {
    "another encoding": (lambda data: data.decode().encode("utf-16"), "line 1 has bytes that are not UTF-8"),
    "a column more": (in_line(2, lambda line: line.rstrip() + b",7\r\n"), "line 3 has"),
    "words": (in_line(2, lambda line: b"two" + line[line.index(b",") :]), "line 3 has 'two' in column"),
    "no header": (lambda data: b"".join(data.splitlines(keepends=True)[1:]), "line 1: the header"),
    "an open quote": (in_line(2, lambda line: b'"' + line), "line 3 has"),
    "a huge cell": (in_line(2, lambda line: b"7" * 200_000 + line), "line 3 has"),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize(("file", "command"), [("metrics.csv", "resume"), ("episodes.csv", "table")])
def test_an_edited_file_is_refused_with_its_line(edit, file, command, group, tmp_path):
    change, told = EDITS[edit]
    place = group / "seed_0" / file
    place.write_bytes(change(place.read_bytes()))
    edited = place.read_bytes()
    sentence = refusal(tmp_path, command, "group")
    assert f"{file}" in sentence
    assert told in sentence
    assert place.read_bytes() == edited


def test_a_row_lost_or_doubled_by_hand_is_not_passed_over(group, tmp_path):
    place = group / "seed_0" / "metrics.csv"
    whole = place.read_bytes()
    lines = whole.splitlines(keepends=True)
    place.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    assert "has update 3 after update 1" in refusal(tmp_path, "resume", "group")
    place.write_bytes(b"".join([*lines[:3], *lines[2:]]))
    assert "has update 2 after update 2" in refusal(tmp_path, "resume", "group")
    place.write_bytes(whole)
    assert ran(tmp_path, ["resume", "group", "--quiet"])[0] == 0


def test_a_header_that_two_processes_wrote_counts_once(group):
    (run, _) = find_runs([group])
    rows = read_rows(run.episodes)
    header = run.episodes.read_bytes().splitlines(keepends=True)[0]
    run.episodes.write_bytes(header + run.episodes.read_bytes())
    assert read_rows(run.episodes) == rows
    assert table_lines([run])


def test_a_row_cut_short_by_an_earlier_version_is_told_of(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"episode,length\r\n0,12\r\n1\r\n2,7\r\n")
    with pytest.warns(Notice, match=r"rows\.csv, line 3 is cut short and was left out"):
        assert [row["episode"] for row in read_rows(tmp_path / "rows.csv")] == ["0", "2"]


def test_rows_are_added_to_what_is_there_to_the_byte(tmp_path):
    file = tmp_path / "rows.csv"
    append_rows(file, [{"episode": 0, "length": 12}])
    assert file.read_bytes() == b"episode,length\r\n0,12\r\n"
    file.write_bytes(file.read_bytes() + b"1,4")  # cut short: 45 was meant
    append_rows(file, [{"episode": 0, "length": 12}, {"episode": 1, "length": 45}])
    assert file.read_bytes() == b"episode,length\r\n0,12\r\n1,45\r\n"
    file.write_bytes(b"episo")  # not even the header was written
    append_rows(file, [{"episode": 0, "length": 12}])
    assert file.read_bytes() == b"episode,length\r\n0,12\r\n"
    with pytest.raises(UserError, match="has other columns than this version writes"):
        append_rows(file, [{"episode": 0, "width": 12}])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_columns_that_do_not_fit_are_found_before_anything_is_played(group, tmp_path, monkeypatch):
    import diamond_attention.evaluation.evaluate as evaluation

    (group / "seed_0" / "episodes.csv").write_bytes(b"checkpoint,return\r\n1,2\r\n")
    monkeypatch.setattr(evaluation, "play_sizes", lambda *_: pytest.fail("it was played"))
    assert "has other columns" in refusal(tmp_path, "evaluate", "group", "--episodes", "1")


def test_settings_edited_by_hand_are_refused(group, tmp_path):
    """A run whose settings changed half-way would be neither the one run nor the other."""
    file = group / "seed_0" / "settings.json"
    file.write_text(file.read_text().replace('"gamma": 0.99', '"gamma": 0.9'))
    assert "its checksum differs; put it back as it was" in refusal(tmp_path, "resume", "group")


def test_best_is_not_what_somebody_wrote_into_a_file(group, tmp_path):
    file = group / "seed_0" / "checkpoints" / "step_16" / "state.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "score": 1e9}))
    _, step = load_run(open_run(group / "seed_0"), "best")
    assert step != 16


# --- Silence --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "group", "--episodes", "1", "--quiet"],
        ["export", "group", "--to", "exported"],
        ["train", "xor-demo", "--from", "group", "--out", "new", "--quiet", "--seeds", "0,1"],
        ["figure", "group/seed_1", "--to", "pictures"],
    ],
    ids=["evaluate", "export", "from", "figure"],
)
def test_an_older_checkpoint_is_not_used_without_a_word(arguments, group, tmp_path):
    for file in ("state.safetensors", "policy.safetensors"):
        os.truncate(group / "seed_1" / "checkpoints" / "step_32" / file, 100)
    status, _, complained = ran(tmp_path, arguments)
    assert status == 0
    assert "step_16 of group/seed_1 is used, because the newest checkpoint is broken" in complained


class Bottomless(Xor):
    """Its reward is not a number."""

    name = "bottomless"

    def step(self, state, actions, key) -> Transition:
        played = super().step(state, actions, key)
        return played._replace(reward=jnp.full_like(played.reward, jnp.nan), measures={})


def test_returns_that_are_no_numbers_are_told_of(original, tmp_path):
    (run, _) = find_runs([shutil.copytree(original, tmp_path / "group")])
    run.episodes.unlink()
    with pytest.warns(Notice, match=r"2 of 2 returns of .*seed_0 are not finite, so their mean is no number"):
        evaluate(replace(run, settings=replace(run.settings, world=Bottomless())), episodes=2, play=("greedy",))
    lines = run.episodes.read_text().splitlines()
    header = lines[0].replace("length,return", "length,return,success,distinct")
    run.episodes.write_text("\r\n".join([header, *(line + ",nan,1" for line in lines[1:])]) + "\r\n")
    with pytest.warns(Notice, match=r"2 of 2 scores in .*episodes\.csv are not finite"):
        table_lines([run])


# --- Numbers that broke ---------------------------------------------------------------------------


class CrackState(NamedTuple):
    game: XorState
    step: Array
    crack: Array
    """Nobody looks at it, and from the fourth step on it is not finite."""


@dataclass(frozen=True)
class Cracked(LongXor):
    """There is a number in its state that stops being finite unseen, or its reward becomes too large."""

    kind: str = "state"

    name = "cracked"

    def reset(self, key, size: TeamSize) -> CrackState:
        return CrackState(self.xor.reset(key, size), jnp.zeros((), jnp.int32), jnp.zeros(()))

    def step(self, state: CrackState, actions, key) -> Transition:
        played = super().step(state, actions, key)
        late = state.step >= 4
        crack = jnp.where(late & (self.kind == "state"), jnp.nan, 0.0)
        reward = jnp.where(late & (self.kind == "reward"), 3e38, played.reward)
        return played._replace(state=played.state._replace(crack=crack), reward=reward)


@pytest.mark.parametrize(
    ("kind", "changes", "every"),
    [
        ("state", {}, 1),
        ("state", {}, 3),
        ("reward", {"normalise_values": True}, 1),
        ("reward", {}, 2),
        ("none", {}, 1),
    ],
    ids=["state", "state, no checkpoint yet", "value scale", "reward", "weights"],
)
def test_nothing_that_is_not_finite_is_kept(kind, changes, every, tmp_path):
    settings = Settings(
        world=Cracked(kind=kind),
        policy=DiamondSettings(width=4),
        ppo=replace(SETTINGS.ppo, **changes),
        total_steps=5 * 8,
        checkpoint_every=every,
    )
    if kind == "none":  # the last update, and only that one, makes weights that are not finite
        return check_the_last_update(settings, tmp_path)
    (run,) = train(settings, [0], tmp_path / "group")
    assert run.failure is not None
    assert run.finished is None
    assert run.failure["update"] == 3
    assert ("teams.world.crack" in run.failure["tensor"]) == (kind == "state")
    if every < 3:
        state, step = load_run(open_run(run.path, Cracked()))
        assert (int(state.update), step) == (2, 2 * 8)
    return None


def check_the_last_update(settings: Settings, place: Path) -> None:
    import diamond_attention.learning.seeds as seeds
    from diamond_attention.learning.ppo_method import PPO
    from diamond_attention.runs import learners
    from diamond_attention.runs import train as training

    def update(learner, state):
        after, metrics = PPO.update(learner, state)
        broken = jax.tree.map(
            lambda x: jnp.where(after.update == 5, jnp.inf, x) if x.dtype == jnp.float32 else x, after.weights
        )
        return after._replace(weights=broken), metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "method_of", lambda settings: PPO._replace(update=update))
        patch.setattr(learners, "advance_seeds_once", seeds.advance_seeds)
        (run,) = train(settings, [0], place / "group")
    assert run.finished is None
    assert run.failure is not None
    assert (run.failure["update"], run.failure["tensor"].split(".")[0]) == (5, "weights")
    for path in run.checkpoints.iterdir():
        arrays = jax.tree.leaves(load_run(open_run(run.path, Cracked()), path.name.removeprefix("step_"))[0])
        assert all(np.all(np.isfinite(array)) for array in arrays)


# --- At once --------------------------------------------------------------------------------------


def in_processes(code: str, number: int, *arguments: object) -> None:
    """The same code in several processes, which begin when all of them are ready, and all end well."""
    waiting = (
        "import sys, time\n"
        "from pathlib import Path\n"
        f"{code.split('GO')[0]}"
        "until = float(sys.argv[2])\n"
        "while time.time() < until: pass\n"
        f"{code.split('GO')[1]}"
    )
    start = time.time() + 4
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", waiting, str(i), str(start), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(number)
    ]
    complaints = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * number, complaints


def test_rows_added_at_once_are_whole_and_under_one_header(tmp_path):
    code = (
        "from diamond_attention.runs.rows import append_rows\nGO"
        "for i in range(30):\n"
        "    file = Path(sys.argv[3]) / f'{i}.csv'\n"
        "    append_rows(file, [{'process': sys.argv[1], 'row': row} for row in range(50)])\n"
    )
    in_processes(code, 3, tmp_path)
    assert len(list(tmp_path.iterdir())) == 30
    for file in tmp_path.iterdir():
        lines = file.read_text().splitlines()
        assert lines[0] == "process,row"
        # Nothing is interleaved: each process's rows stand together, in their order.
        parts = [lines[1 + 50 * i : 51 + 50 * i] for i in range(3)]
        assert sorted(part[0][0] for part in parts) == ["0", "1", "2"]
        for part in parts:
            assert part == [f"{part[0][0]},{row}" for row in range(50)]


def test_a_shipped_policy_unpacked_at_once_is_unpacked_once(tmp_path):
    code = (
        "import os\n"
        "from diamond_attention.runs.folder import open_run, own_copy\nGO"
        "for i in range(20):\n"
        "    place = Path(sys.argv[3]) / str(i)\n"
        "    place.mkdir(exist_ok=True)\n"
        "    os.chdir(place)\n"
        "    own_copy(open_run('spread'))\n"
    )
    in_processes(code, 3, tmp_path)
    for place in tmp_path.iterdir():
        assert [path.name for path in (place / "runs" / "shipped").iterdir()] == ["spread"]


def test_a_second_training_is_refused_and_an_evaluation_is_told(group, tmp_path):
    with exclusive(group):
        # flock is between open files, so this process can stand for two.
        assert "being trained by another process" in refusal(tmp_path, "resume", "group")
        assert "being trained by another process" in refusal(
            tmp_path, "train", "xor-demo", "--out", "group", "--overwrite", "--quiet"
        )
        status, _, complained = ran(tmp_path, ["evaluate", "group/seed_0", "--episodes", "1", "--quiet"])
        assert status == 0
        assert "group/seed_0 is being trained by another process; what it has saved until now is played" in complained
    assert not is_locked(group / LOCK)
    assert not (group / LOCK).exists()


def test_a_second_evaluation_waits_and_says_so(tmp_path):
    file, said = tmp_path / "rows.csv", []
    lock = open(tmp_path / ".rows.csv.lock", "w")  # noqa: SIM115 - closed below, which lets go
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(1.5, lock.close).start()
    with pytest.warns(Notice, match="another process is adding rows to .*; waiting for it"):
        append_rows(file, [{"row": 1}])
    assert file.read_text() == "row\n1\n"
    assert said == []


def test_a_lock_outlives_nobody(tmp_path):
    """Whoever waits for a lock whose file is removed meanwhile takes the new one."""
    holding: list[int] = []

    def hold(number: int) -> None:
        for _ in range(20):
            with locked(tmp_path / "lock", busy=lambda: None):
                holding.append(number)
                time.sleep(0.001)
                assert holding[-1] == number
                holding.append(-number)

    threads = [threading.Thread(target=hold, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holding) == 120
    assert all(entered == -left for entered, left in zip(holding[::2], holding[1::2], strict=True))
    assert list(tmp_path.iterdir()) == []


# --- What is left, and what is said ---------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "xor-demo", "--out", "new", "--from", "nowhere"],
        ["train", "xor-demo", "--out", "a/b/new", "--from", "nowhere"],
        ["export", "nowhere", "--to", "new"],
        ["figure", "nowhere", "--to", "new"],
        ["watch", "nowhere", "--to", "new/film.gif"],
        ["bench", "nothing", "--to", "new/bench.json"],
        ["smaclite-replay", "nothing.npz", "--to", "new/found.json"],
        ["demo", "--out", "new", "--seeds", "0"],
        ["evaluate", "spread", "--agents", "0"],
        ["evaluate", "spread", "--checkpoint", "3", "--episodes", "1", "--agents", "2"],
        ["watch", "spread", "--to", "film.txt"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_refused_command_leaves_nothing_behind(arguments, tmp_path):
    refusal(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_whole_with_the_folders_in_it(tmp_path):
    write_folder(tmp_path / "a" / "new", {"one": b"1", "deep/er/two": b"2", "deep/three": b"3"})
    assert contents(tmp_path) == {"a/new/one": b"1", "a/new/deep/er/two": b"2", "a/new/deep/three": b"3"}


def test_a_checksum_is_of_the_values_not_of_their_spelling(tmp_path):
    (tmp_path / "file.json").write_bytes(json_bytes({"format": 2, "b": [1, 2.5], "a": {"π": None}}))
    values = json.loads((tmp_path / "file.json").read_text())
    (tmp_path / "file.json").write_text(json.dumps(dict(reversed(values.items()))))
    assert read_json(tmp_path / "file.json", sealed=range(2, 3)) == {"format": 2, "b": [1, 2.5], "a": {"π": None}}
    (tmp_path / "file.json").write_text(json.dumps({**values, "b": [1, 2.6]}))
    with pytest.raises(UserError, match="its checksum differs"):
        read_json(tmp_path / "file.json")


def diamond(place: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    call = "from diamond_attention.command_line import main; main()"
    return subprocess.run(
        [sys.executable, "-c", call, *arguments], cwd=place, text=True, stderr=subprocess.PIPE, timeout=120, **options
    )


def test_a_terminal_without_the_letters_and_a_full_disk_behind_it(tmp_path):
    """A folder with a letter that ASCII lacks, and what is printed goes to a device that takes nothing."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "π").mkdir()
    (tmp_path / "runs" / "π" / "settings.json").write_text("{}")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    listed = diamond(tmp_path, "list", env=plain, stdout=subprocess.PIPE)
    assert listed.returncode == 0, listed.stderr
    assert "runs/\\u03c0" in listed.stdout
    with open("/dev/full", "w") as full:
        unheard = diamond(tmp_path, "list", stdout=full)
    assert unheard.returncode == 2
    assert unheard.stderr == "diamond: what was printed could not be written (No space left on device).\n"


def drop_an_interrupt_in_a_finaliser() -> None:
    class Dropping:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    Dropping()


def drop_an_interrupt_while_collecting_garbage() -> None:
    def interrupted(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(interrupted)  # once, or a second Ctrl-C would end the tests
        signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(interrupted)
    gc.collect()


@pytest.mark.parametrize("drop", [drop_an_interrupt_in_a_finaliser, drop_an_interrupt_while_collecting_garbage])
def test_an_interrupt_that_is_dropped_is_heard_all_the_same(drop):
    """As in JAX's callback while Python collects garbage: what is raised there goes to sys.unraisablehook."""

    def drop_and_go_on() -> None:
        drop()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            time.sleep(0.01)

    started = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers ignore it
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_heard():
            drop_and_go_on()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 5


def test_ctrl_c_ends_an_evaluation_with_nothing_half_written(group, tmp_path):
    # As it is from a terminal; pytest's workers ignore the signal, and so would what they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    call = heard + "from diamond_attention.command_line import main; main()"
    before = contents(group)
    process = subprocess.Popen(
        [sys.executable, "-c", call, "evaluate", "group", "--episodes", "250000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "evaluating" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 130, complained
    assert "Traceback" not in complained
    assert contents(group) == before


# --- A file system that is full -------------------------------------------------------------------


@pytest.mark.long
def test_a_real_disk_that_is_full(tmp_path):
    """A file system of 200 kB, mounted in a name space of its own where the machine allows that."""
    diamond = f"{sys.executable} -c 'from diamond_attention.command_line import main; main()'"
    training = "train xor-demo --total-steps 12800 --checkpoint-every 1 --policy.width 16 --quiet --out group"
    script = (
        f"mount -t tmpfs -o size=200k none $1 && cd $1 && {diamond} {training}; echo status $?; "
        f"mount -o remount,size=100m none $1; {diamond} evaluate group --episodes 1 --quiet; echo then $?; "
        f"ls -A group/seed_0/checkpoints; {diamond} resume group --quiet; echo resumed $?; "
        "ls -A group/seed_0/checkpoints group/seed_0"
    )
    own_names = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command = [*own_names, script, "sh", str(tmp_path)]
    try:
        probe = [*own_names, f"mount -t tmpfs none {tmp_path}"]
        allowed = subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("mounting in a name space of one's own is not allowed here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "status 2" in done.stdout, done
    assert "No space left on device" in done.stderr
    assert "diamond resume group" in done.stderr
    assert "Traceback" not in done.stderr
    assert "then 0" in done.stdout, done
    assert ".unfinished" not in done.stdout
    before, _, after = done.stdout.partition("resumed 0")
    assert "step_12800" not in before
    assert "step_12800" in after, done
    assert "finished.json" in after


def test_public_names_used_above_are_quiet_about_what_is_well(group):
    """No notice, no word on standard error, when nothing is wrong."""
    complained = io.StringIO()
    with contextlib.redirect_stderr(complained):
        resume(group)
        for run in find_runs([group]):
            evaluate(run, episodes=1)
            export_policy(run, group.parent / f"exported_{run.seed}")
        assert run_command(["table", str(group), "--json"]) == 0
    assert complained.getvalue() == ""
