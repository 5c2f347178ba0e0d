"""`diamond web RUNS`: what it says of a folder of runs, whole, half-written or broken; what it never hands out."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_web_server import asked, serving

from diamond_attention.command_line import run_command
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.runs.files import json_bytes
from diamond_attention.runs.group import exclusive
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import train
from diamond_attention.web import runs_folder
from diamond_attention.web.runs_folder import POINTS, RunsFolder, _mean, _side_by_side
from diamond_attention.web.runs_page import runs_answers

TINY = Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16), total_steps=64)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "runs"
    for run in train(TINY, [0, 1], folder / "xor", preset="xor"):
        evaluate(run, episodes=8, play=["greedy"])
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "runs")


@contextmanager
def page_of(folder):
    with serving(runs_answers(folder)) as port:
        yield lambda address: asked(port, f"/{address}")


def read(ask, address):
    status, _, body = ask(address)
    assert status == 200, body
    return json.loads(body)


def by_path(overview):
    return {run["path"]: run for run in overview["runs"]}


def seeds_of(curves):
    return {seed["path"]: seed["points"] for group in curves for seed in group["seeds"]}


def everything_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_what_it_says_is_what_the_files_say_and_nothing_is_written(runs):
    before = everything_in(runs)
    with page_of(runs) as ask:
        seen = read(ask, "overview")
        curves = read(ask, "curves/")
        scores = read(ask, "scores")
    assert everything_in(runs) == before
    assert set(by_path(seen)) == {"xor/seed_0", "xor/seed_1"}
    for run in seen["runs"]:
        assert (run["state"], run["step"], run["steps"], run["sentence"]) == ("finished", 64, 64, "")
        assert (run["world"], run["policy"]) == ("XOR", "rank mask")
    assert {"return", "success", "entropy"} <= set(seen["columns"])
    rows = (runs / "xor/seed_1/metrics.csv").read_text().splitlines()
    place = rows[0].split(",").index("success")
    points = [[float(row.split(",")[1]), float(row.split(",")[place])] for row in rows[1:]]
    assert seeds_of(curves)["xor/seed_1"] == points
    assert curves[0]["panel"] == "XOR, 2x2: success"
    [table] = scores["tables"]
    assert table["world"] == "xor"
    assert len(table["rows"]) == 1
    assert scores["sentences"] == []


def test_it_follows_a_training_that_goes_on(runs):
    """A row is added, a lock is held, a run is finished: the next answer knows."""
    member = runs / "xor" / "seed_0"
    (member / "finished.json").unlink()
    with page_of(runs) as ask:
        interrupted = by_path(read(ask, "overview"))["xor/seed_0"]
        assert interrupted["state"] == "interrupted"
        assert interrupted["sentence"] == f"diamond resume {member} goes on."
        with exclusive(runs / "xor"):
            assert by_path(read(ask, "overview"))["xor/seed_0"]["state"] == "training"
        last = (member / "metrics.csv").read_text().splitlines()[-1].split(",")
        with (member / "metrics.csv").open("a") as file:
            file.write(
                ",".join([str(int(last[0]) + 1), "80", *last[2:]]) + "\n" + "6,9"
            )  # and one that is being written
        assert by_path(read(ask, "overview"))["xor/seed_0"]["step"] == 80
        points = seeds_of(read(ask, "curves/entropy"))["xor/seed_0"]
        assert points[-1] == [
            80.0,
            float(last[(member / "metrics.csv").read_text().split("\n")[0].split(",").index("entropy")]),
        ]


def test_an_empty_folder_is_answered_and_runs_that_come_are_seen(tmp_path, trained):
    folder = tmp_path / "later"
    folder.mkdir()
    with page_of(folder) as ask:
        nothing = {"runs": [], "columns": [], "pictures": [], "left_out": []}
        assert read(ask, "overview") == {"folder": str(folder)} | nothing
        assert read(ask, "curves/") == []
        assert read(ask, "scores") == {"tables": [], "sentences": []}
        shutil.copytree(trained / "xor", folder / "a" / "b")
        assert set(by_path(read(ask, "overview"))) == {"a/b/seed_0", "a/b/seed_1"}
    with page_of(folder / "a" / "b" / "seed_0") as ask:  # a single run
        assert [run["path"] for run in read(ask, "overview")["runs"]] == ["."]


def damage_settings(run):
    (run / "settings.json").write_text("{")


def newer_settings(run):
    values = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(values | {"format": 99}))


def no_settings(run):
    (run / "settings.json").unlink()


def damage_metrics(run):
    (run / "metrics.csv").write_text("update,step\n1,many\n")


def link_out(run):
    (run / "notes.txt").symlink_to("/etc/hostname")


def damage_finished(run):
    (run / "finished.json").write_text("[")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_settings, "settings.json"),
        (newer_settings, "has format 99"),
        (no_settings, "holds no settings.json: it is being made, or was cut off."),
        (damage_metrics, "line 2 has 'many' in column step"),
        (link_out, "notes.txt is a link"),
        (damage_finished, "finished.json"),
    ],
)
def test_a_broken_run_is_a_sentence_beside_those_that_are_whole(runs, trained, damage, sentence):
    damage(runs / "xor" / "seed_0")
    with page_of(runs) as ask:
        found = by_path(read(ask, "overview"))
        assert found["xor/seed_0"]["state"] == "broken"
        assert sentence in found["xor/seed_0"]["sentence"]
        assert found["xor/seed_1"]["state"] == "finished"
        assert "xor/seed_1" in seeds_of(read(ask, "curves/success"))
        assert len(read(ask, "scores")["tables"]) == 1
        shutil.rmtree(runs / "xor" / "seed_0")
        shutil.copytree(trained / "xor" / "seed_0", runs / "xor" / "seed_0")
        assert by_path(read(ask, "overview"))["xor/seed_0"]["state"] == "finished"  # once it is put right


def test_broken_rows_of_episodes_and_failed_runs_are_said(runs):
    (runs / "xor/seed_0/episodes.csv").write_text("checkpoint,agents\nx\n")
    (runs / "xor/seed_1/failed.json").write_text(json.dumps({"update": 3, "sentence": "the loss is no number."}))
    with page_of(runs) as ask:
        scores = read(ask, "scores")
        assert scores["tables"] == []
        assert "episodes.csv" in scores["sentences"][0]
        failed = by_path(read(ask, "overview"))["xor/seed_1"]
        assert (failed["state"], failed["sentence"]) == ("failed", "the loss is no number.")


@pytest.mark.parametrize("name", ["failed.json", "environment.json"])
def test_one_broken_file_beside_the_rows_hides_no_table(runs, name):
    (runs / "xor/seed_0" / name).write_text("{")
    with page_of(runs) as ask:
        scores = read(ask, "scores")
        assert [len(table["rows"]) for table in scores["tables"]] == [1]
        assert [f"{name} cannot be read as JSON." in sentence for sentence in scores["sentences"]] == [True]
        assert "xor/seed_1" in seeds_of(read(ask, "curves/success"))


NO_SUPERUSER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Whom file permissions do not hold back must do without that."""


@pytest.mark.skipif(bool(NO_SUPERUSER) and not shutil.which("setpriv"), reason="the superuser reads everything")
def test_what_may_not_be_read_is_said_and_the_rest_is_there(runs):
    shutil.copytree(runs / "xor", runs / "theirs")
    (runs / "notes").mkdir()
    locked = {runs / "theirs/seed_0": 0o000, runs / "theirs/seed_1/checkpoints": 0o000, runs / "notes": 0o600}
    for folder, mode in locked.items():
        folder.chmod(mode)
    words = [*NO_SUPERUSER, sys.executable, "-m", "diamond_attention", "web", str(runs), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().split(":")[2].split("/")[0])
        seen = read(lambda address: asked(port, f"/{address}"), "overview")
        scores = read(lambda address: asked(port, f"/{address}"), "scores")
        curves = read(lambda address: asked(port, f"/{address}"), "curves/success")
    finally:
        process.kill()
        process.wait()
        for folder in locked:
            folder.chmod(0o700)
    assert sorted(seen["left_out"]) == [
        "notes cannot be read (Permission denied).",
        "theirs/seed_0 cannot be read (Permission denied).",
    ]
    states = {path: run["state"] for path, run in by_path(seen).items()}
    assert states == {"theirs/seed_1": "broken", "xor/seed_0": "finished", "xor/seed_1": "finished"}
    assert by_path(seen)["theirs/seed_1"]["sentence"] == "theirs/seed_1 cannot be read (Permission denied)."
    assert set(seeds_of(curves)) == {"xor/seed_0", "xor/seed_1"}
    assert len(scores["tables"]) == 1


def test_a_picture_or_folder_that_goes_while_it_is_looked_at_is_not_there(runs, monkeypatch):
    (runs / "film.gif").write_bytes(b"GIF89a")
    (runs / "figure.png").write_bytes(b"PNG")
    (runs / "soon").mkdir()
    listed = os.scandir

    def scandir(folder):
        if folder != runs:
            return listed(folder)
        entries = list(listed(folder))
        (runs / "film.gif").unlink()
        (runs / "soon").rmdir()
        return entries

    monkeypatch.setattr(runs_folder.os, "scandir", scandir)
    seen = RunsFolder(runs).overview()
    assert ([picture["name"] for picture in seen["pictures"]], seen["left_out"]) == (["figure.png"], [])
    assert len(seen["runs"]) == 2


def test_a_folder_that_is_gone_is_said(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    looking = RunsFolder(folder)
    folder.rmdir()
    assert looking.overview()["left_out"] == [f"{folder} cannot be read (No such file or directory)."]


def test_what_is_beyond_the_limits_is_said(runs, monkeypatch):
    monkeypatch.setattr(runs_folder, "MOST_PICTURES", 2)
    monkeypatch.setattr(runs_folder, "DEEPEST", 2)
    for number in range(3):
        (runs / f"{number}.png").write_bytes(b"PNG")
        os.utime(runs / f"{number}.png", (number, number))
    (runs / "a/b/c").mkdir(parents=True)
    seen = RunsFolder(runs).overview()
    assert [picture["name"] for picture in seen["pictures"]] == ["2.png", "1.png"]
    assert seen["left_out"] == [
        "Folders more than 2 levels down were not looked into.",
        "Of 3 films and figures the newest 2 are shown.",
    ]
    monkeypatch.setattr(runs_folder, "MOST_FOLDERS", 3)
    assert RunsFolder(runs).overview()["left_out"][0].startswith("Only 3 folders were looked into; ")


# --- What is handed out ---------------------------------------------------------------------------


def test_pictures_are_served_and_nothing_else_by_any_way(runs, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    (runs / "film.gif").write_bytes(b"GIF89a")
    (runs / "xor" / "curve.png").write_bytes(b"PNG")
    (runs / "xor" / ".hidden.png").write_bytes(b"hidden")
    (runs / "link.png").symlink_to(tmp_path / "secret.png")
    (runs / "way").symlink_to(tmp_path)
    os.mkfifo(runs / "pipe.png")
    (runs / "folder.png").mkdir()
    with page_of(runs) as ask:
        assert {picture["name"] for picture in read(ask, "overview")["pictures"]} == {"film.gif", "xor/curve.png"}
        status, headers, body = ask("pictures/film.gif")
        assert (status, headers["Content-Type"], body) == (200, "image/gif", b"GIF89a")
        assert ask("pictures/xor/curve.png")[2] == b"PNG"
        for address in (
            "pictures/../secret.png",
            "pictures/..%2fsecret.png",
            "pictures/%2e%2e/secret.png",
            "pictures/xor/../../secret.png",
            f"pictures/{tmp_path}/secret.png",
            f"pictures/{str(tmp_path).replace('/', '%2F')}%2Fsecret.png",
            "pictures/way/secret.png",
            "pictures/link.png",
            "pictures/pipe.png",
            "pictures/folder.png",
            "pictures/xor/.hidden.png",
            "pictures/nothing.png",
            "pictures/film.gif%00.png",
            "pictures/xor/seed_0/settings.json",
            "pictures/",
            "xor/seed_0/settings.json",
            "../secret.png",
            "training",
        ):
            assert ask(address)[0] == 404, address


def test_a_picture_that_is_drawn_anew_has_another_address(runs):
    (runs / "figure.png").write_bytes(b"before")
    with page_of(runs) as ask:
        [before] = read(ask, "overview")["pictures"]
        assert ask(before["address"])[2] == b"before"
        (runs / "figure.png").write_bytes(b"after")
        os.utime(runs / "figure.png", (1, 1))
        [after] = read(ask, "overview")["pictures"]
        assert (before["name"], before["address"]) != (after["name"], after["address"])
        assert before["name"] == after["name"]
        assert ask(after["address"])[2] == b"after"


@pytest.mark.parametrize("name", [b"b\xffd.png", "Grüße & co? #1%20.png".encode(), b"line\nbreak.png"])
def test_a_picture_is_served_whatever_its_name(runs, name):
    (runs / os.fsdecode(name)).write_bytes(b"PNG")
    with page_of(runs) as ask:
        [picture] = read(ask, "overview")["pictures"]
        assert picture["address"].isascii()
        assert picture["name"] == (name.decode(errors="replace").replace("\n", "\ufffd"))
        assert ask(picture["address"])[::2] == (200, b"PNG")


def test_links_to_folders_are_not_followed_to_runs(runs, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "elsewhere")
    (runs / "others").symlink_to(tmp_path / "elsewhere")
    with page_of(runs) as ask:
        assert set(by_path(read(ask, "overview"))) == {"xor/seed_0", "xor/seed_1"}


def test_the_live_page_is_there_too_and_every_part_of_the_page(runs):
    with page_of(runs) as ask:
        for address in (
            "",
            "training.js",
            "training.css",
            "style.css",
            "icon.svg",
            "features.js",
            "live/index.html",
            "live/main.js",
        ):
            assert ask(address)[0] == 200, address
        assert b"Learning curves" in ask("")[2]


# --- Curves ---------------------------------------------------------------------------------------


def test_many_points_become_means_of_neighbours():
    assert _side_by_side([[]]) == [[]]
    assert _side_by_side([[(1.0, 2.0), (3.0, 4.0)]]) == [[(1.0, 2.0), (3.0, 4.0)]]
    [points] = _side_by_side([[(float(i), 2.0 * i) for i in range(1000)]])
    assert len(points) == POINTS
    assert points[0] == (2.0, 4.0)
    assert all(value == 2 * step for step, value in points)


def test_seeds_of_which_one_is_behind_are_averaged_at_the_same_steps():
    """Seed 0 has ten times the rows of seed 1: both are worth what step they are at, so their mean is too."""
    ahead, behind = ([(float(i), float(i)) for i in range(number)] for number in (1000, 101))
    curves = _side_by_side([ahead, behind])
    mean = _mean(curves)
    assert [step for step, _ in mean] == [2.0 + 5 * i for i in range(20)]
    assert all(value == step for step, value in mean)
    # The last stretch of who is behind, steps 100 to 104, is not whole: at step 102 it would have the value 100.
    assert curves[1][-1] == (97.0, 97.0)


def test_a_mean_is_of_the_steps_that_all_seeds_have():
    """An update in which no episode ended has no score: rows are not the same in number, nor steps in place."""
    curves = _side_by_side([[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)], [(2.0, 0.0), (3.0, 1.0), (4.0, 2.0)]])
    assert _mean(curves) == [(2.0, 10.0), (4.0, 21.0)]
    assert _mean(curves[:1]) == []


def write_metrics(run, rows):
    header = (run / "metrics.csv").read_text().splitlines()[0]
    names = header.split(",")
    lines = [
        ",".join({"update": str(i), "step": str(step), "success": str(value)}.get(name, "1") for name in names)
        for i, (step, value) in enumerate(rows, 1)
    ]
    (run / "metrics.csv").write_text("\n".join([header, *lines]) + "\n")


def test_what_is_no_number_and_failed_seeds_are_in_no_mean(runs, trained):
    shutil.copytree(trained / "xor" / "seed_1", runs / "xor" / "seed_2")
    settings = json.loads((runs / "xor/seed_2/settings.json").read_text())
    settings.pop("checksum")
    (runs / "xor/seed_2/settings.json").write_bytes(json_bytes(settings | {"seed": 2, "group_seeds": [0, 1, 2]}))
    write_metrics(runs / "xor/seed_0", [(16, 0.5), (32, "nan"), (48, 1.0)])
    write_metrics(runs / "xor/seed_1", [(16, 0.0), (32, 0.25), (48, 0.5), (64, 0.75)])
    write_metrics(runs / "xor/seed_2", [(16, 0.0), (32, 0.0)])
    (runs / "xor/seed_2/failed.json").write_text(json.dumps({"update": 2, "sentence": "the loss is no number."}))
    with page_of(runs) as ask:
        [group] = read(ask, "curves/success")
    assert group["mean"] == [[16.0, 0.25], [48.0, 0.75]]
    assert {seed["path"]: seed["failed"] for seed in group["seeds"]} == {
        "xor/seed_0": False,
        "xor/seed_1": False,
        "xor/seed_2": True,
    }
    assert seeds_of([group])["xor/seed_0"] == [[16.0, 0.5], [48.0, 1.0]]
    assert seeds_of([group])["xor/seed_2"] == [[16.0, 0.0], [32.0, 0.0]]


# --- The command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["nowhere", "file.txt"])
def test_what_is_no_folder_is_one_sentence(named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("")
    assert run_command(["web", named]) == 2
    assert capsys.readouterr().err == (
        f"diamond: {named} is not a folder; name the one that holds your runs, such as runs.\n"
    )


def test_many_readers_at_once_get_whole_answers(runs):
    with page_of(runs) as ask:
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(read(ask, "overview")["runs"][0]["state"]))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["finished"] * 12


def test_the_command_serves_a_folder_until_ctrl_c(runs):
    words = [sys.executable, "-m", "diamond_attention", "web", str(runs), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().split(":")[2].split("/")[0])
        assert len(json.loads(asked(port, "/overview")[2])["runs"]) == 2
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
