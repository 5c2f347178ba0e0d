"""The command line, used as a person would: train, evaluate, tabulate, draw, list."""

import csv
import importlib.metadata
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from diamond_attention.command_line import run_command
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.progress import Lines, Terminal
from diamond_attention.runs.rows import read_rows
from diamond_attention.runs.seeds import parse_seeds

SMALL = ["--policy.width=8", "--ppo.envs=8", "--ppo.steps=2", "--ppo.batch=16", "--total-steps=96"]
SMALL += ["--checkpoint-every=3"]


@pytest.fixture(scope="module", autouse=True)
def few_episodes_at_once():
    """Two side by side, so that one program plays any number of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diamond_attention.evaluation.evaluate.EPISODES_AT_ONCE", 2)
        yield


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Two seeds of a very small run, trained once through the command line."""
    folder = tmp_path_factory.mktemp("runs") / "xor"
    assert run_command(["train", "xor-demo", *SMALL, "--seeds", "0:2", "--out", str(folder), "--quiet"]) == 0
    return folder


def test_a_run_folder_holds_what_it_promises(group):
    for seed in (0, 1):
        run = group / f"seed_{seed}"
        described = json.loads((run / "settings.json").read_text())
        assert described["format"] == 3
        assert described["settings"]["policy"]["kind"] == "diamond"
        assert described["settings"]["method"] == "ppo"
        assert described["seed"] == seed
        environment = json.loads((run / "environment.json").read_text())
        assert environment["versions"]["jax"]
        assert environment["xla_flags"] == os.environ.get("XLA_FLAGS", "")
        rows = read_rows(run / "metrics.csv")
        assert [int(row["update"]) for row in rows] == [1, 2, 3, 4, 5, 6]
        assert list(run.glob("events.out.tfevents.*"))
        assert json.loads((run / "finished.json").read_text())["update"] == 6
        assert {p.name for p in (run / "checkpoints").iterdir()} >= {"step_48", "step_96"}


def test_tensorboard_reads_the_events(group):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    file = next((group / "seed_0").glob("events.out.tfevents.*"))
    steps = [event.step for event in EventFileLoader(str(file)).Load() if event.HasField("summary")]
    assert steps == [16, 32, 48, 64, 80, 96]


def test_evaluate_appends_one_row_an_episode_and_prints_json(group, capsys):
    before = len(read_rows(group / "seed_0" / "episodes.csv"))
    status = run_command(["evaluate", str(group), "--episodes", "20", "--json"])
    assert status == 0
    lines = json.loads(capsys.readouterr().out)
    assert {line["play"] for line in lines} == {"greedy", "sampled"}
    assert all(line["seeds_trained"] == 2 and line["episodes"] == 20 for line in lines)
    after = read_rows(group / "seed_0" / "episodes.csv")
    assert len(after) - before == 40
    sampled = [float(row["success"]) for row in after if row["play"] == "sampled"]
    line = next(line for line in lines if line["play"] == "sampled")
    assert line["per_seed"][0] == pytest.approx(sum(sampled) / len(sampled))


def test_evaluating_again_repeats_the_same_episodes_and_counts_them_once(group, capsys):
    run_command(["evaluate", str(group / "seed_0"), "--episodes", "10", "--sampled", "--seed", "7"])
    first = read_rows(group / "seed_0" / "episodes.csv")
    run_command(["evaluate", str(group / "seed_0"), "--episodes", "10", "--sampled", "--seed", "7"])
    assert read_rows(group / "seed_0" / "episodes.csv") == first
    capsys.readouterr()
    run_command(["table", str(group / "seed_0"), "--json"])
    lines = json.loads(capsys.readouterr().out)
    rows = read_rows(group / "seed_0" / "episodes.csv")
    different = {tuple(row.values()) for row in rows if row["play"] == "sampled"}
    assert next(line for line in lines if line["play"] == "sampled")["episodes"] == len(different)


def test_evaluate_at_another_team_size_and_checkpoint(group, capsys):
    arguments = ["--players", "3", "--actions", "4", "--episodes", "5", "--greedy", "--checkpoint", "48", "--json"]
    assert run_command(["evaluate", str(group), *arguments]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["played_on"] == [3, 4]
    last = read_rows(group / "seed_1" / "episodes.csv")[-1]
    assert (last["agents"], last["tasks"], last["checkpoint"]) == ("3", "4", "48")
    assert run_command(["evaluate", str(group), "--checkpoint", "best", "--episodes", "5", "--json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--players", "3", "--actions", "2"], "at least as many actions"),
        (["--checkpoint", "47"], "48, 96"),
        (["--episodes", "0"], "episodes is 0"),
        (["--players", "0"], "at least 1"),
        (["--dropout", "on"], "policy.mask is rank, which has none"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_a_wrong_evaluation_is_one_sentence_and_status_2(group, capsys, arguments, sentence):
    before = read_rows(group / "seed_0" / "episodes.csv")
    assert run_command(["evaluate", str(group), *arguments]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1
    assert read_rows(group / "seed_0" / "episodes.csv") == before


def test_evaluate_prints_what_it_has_just_played_and_nothing_older(group, capsys):
    for checkpoint, episodes, seed in (("96", 12, "3"), ("48", 8, "3"), ("96", 6, "4")):
        arguments = ["--sampled", "--checkpoint", checkpoint, "--episodes", str(episodes), "--seed", seed, "--json"]
        assert run_command(["evaluate", str(group), *arguments]) == 0
        (line,) = json.loads(capsys.readouterr().out)
        assert line["episodes"] == episodes
        rows = read_rows(group / "seed_1" / "episodes.csv")[-episodes:]
        assert line["per_seed"][1] == pytest.approx(sum(float(row["success"]) for row in rows) / episodes)


def test_evaluate_says_how_far_it_is_unless_asked_for_less(group, capsys, monkeypatch):
    """A pipe gets lines. Of two runs, each both ways at one size."""
    monkeypatch.setattr("diamond_attention.runs.progress.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("diamond_attention.evaluation.evaluate.EPISODES_AT_ONCE", 10)
    asked = ["evaluate", str(group), "--episodes", "30", "--seed", "5"]
    assert run_command(asked) == 0
    said = capsys.readouterr().out
    for run in (group / "seed_0", group / "seed_1"):
        lines = [line for line in said.splitlines() if str(run) in line]
        assert lines[0] == f"evaluating {run}: 60 episodes; compiling first"
        assert lines[-1] == f"played 60 episodes of {run}"
        # A line for every batch but the first, which only starts the clock.
        assert [line.split(": ")[1].split(",")[0] for line in lines[1:-1]] == [
            f"{played} of 60 episodes" for played in (20, 30, 40, 50, 60)
        ]
    table = said[said.index("Success rate") :]
    assert run_command([*asked, "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == table.strip()
    assert run_command([*asked, "--json"]) == 0
    said = capsys.readouterr()
    assert {line["episodes"] for line in json.loads(said.out)} == {30}  # nothing but JSON
    assert said.err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_on_a_narrow_terminal_is_not_cut(group, capsys, monkeypatch, terminal):
    assert run_command(["evaluate", str(group), "--episodes", "5", "--quiet"]) == 0
    run_command(["table", str(group), "--markdown"])
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| rank")]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
    assert Console().is_terminal is terminal
    assert run_command(["table", str(group)]) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "…" not in text
    lines = [line for line in text.splitlines() if "rank mask" in line]
    assert len(lines) == len(rows) > 0
    for cells, line in zip(rows, lines, strict=True):
        assert len(line) > 80
        assert line.split() == " ".join(cells).split()  # every number whole, and all in one line


@pytest.mark.parametrize("command", ["train", "show"])
def test_help_names_the_presets(command, capsys):
    for word in ("--help", "-h"):
        with pytest.raises(SystemExit) as stopped:
            run_command([command, word])
        assert stopped.value.code == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert f"diamond {command} PRESET" in said.out
        for name, (description, _) in PRESETS.items():
            assert re.search(rf"^  {name} +{re.escape(description)}$", said.out, re.MULTILINE)


def test_runs_with_other_settings_get_lines_of_their_own(group, tmp_path, capsys):
    other = ["--ppo.learning-rate", "3e-3", "--seeds", "0:2", "--out", str(tmp_path / "other"), "--quiet"]
    assert run_command(["train", "xor-demo", *SMALL, *other]) == 0
    for folder in (group, tmp_path / "other"):
        run_command(["evaluate", str(folder), "--episodes", "5"])
    capsys.readouterr()
    run_command(["table", str(group), str(tmp_path / "other"), "--markdown"])
    text = capsys.readouterr().out
    assert "ppo.learning_rate=0.003" in text
    assert len([line for line in text.splitlines() if "2x2 | 2x2" in line]) == 2


@pytest.mark.parametrize("shown", [Lines, Terminal])
def test_progress_shows_success_speed_and_time_left(shown, capsys, monkeypatch):
    monkeypatch.setattr("diamond_attention.runs.progress.SECONDS_BETWEEN_LINES", 0.0)
    progress = shown()
    progress.begin("training", 100, 0)
    for done in (10, 20, 30):
        progress.advance(done, {"success": 0.75})
    progress.say("something happened.")
    progress.end("finished")
    said = "".join(capsys.readouterr())
    assert "something happened." in said
    assert "finished" in said
    if shown is Lines:
        assert "30 of 100 steps, success 0.750" in said
        assert "s left" in said


@pytest.mark.long
def test_the_demo_trains_tabulates_and_draws(tmp_path, monkeypatch, capsys):
    from dataclasses import replace

    from diamond_attention import demo

    text, settings = PRESETS["xor-demo"]
    small = replace(
        settings,
        policy=replace(settings.policy, width=8),
        ppo=replace(settings.ppo, envs=8, batch=16),
        total_steps=96,
    )
    monkeypatch.setitem(PRESETS, "xor-demo", (text, small))
    monkeypatch.setattr(demo, "TEAM_SIZES", ("2",))
    monkeypatch.setattr(demo, "EPISODES", 20)
    assert run_command(["demo", "--out", str(tmp_path), "--seeds", "2", "--quiet"]) == 0
    said = capsys.readouterr().out
    lines = [line.split("  ") for line in said.splitlines() if "2x2" in line]
    names = ["rank mask", "no mask", "dropout, on in play", "dropout, off in play"]
    assert [cells[0].strip() for cells in lines] == names
    # Agents that see the same choose the same, so without a mask greedy play never succeeds.
    assert "0.000 [0.000, 0.000]" in " ".join(lines[1])
    assert (tmp_path / "attention.png").exists()
    assert (tmp_path / "learning_curves.png").exists()


def test_table_prints_text_and_markdown(group, capsys):
    run_command(["evaluate", str(group), "--episodes", "5"])
    capsys.readouterr()
    assert run_command(["table", str(group)]) == 0
    text = capsys.readouterr().out
    assert "rank mask" in text
    assert "1.00/1.00" in text  # the paper's own numbers for n=k=2
    assert run_command(["table", str(group), "--markdown"]) == 0
    title, table = capsys.readouterr().out.split("\n\n")
    assert title in text
    assert title.startswith("Success rate: mean over training seeds")
    assert table.startswith("| policy |")
    # One seed alone has no spread over seeds; what is printed beside it is something else and says so.
    assert run_command(["table", str(group / "seed_0"), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith(
        "Success rate: one training seed [95 % Wilson interval over its episodes]"
    )


def test_table_names_the_runs_it_has_no_rows_of(group, tmp_path, capsys):
    run_command(["evaluate", str(group), "--episodes", "5"])
    shutil.copytree(group / "seed_0", tmp_path / "new", ignore=shutil.ignore_patterns("episodes.csv"))
    capsys.readouterr()
    assert run_command(["table", str(group), str(tmp_path / "new")]) == 0
    said = capsys.readouterr()
    assert said.err.strip() == f"not evaluated, and not in the table: {tmp_path / 'new'}"
    assert "rank mask" in said.out


def test_figures_are_drawn(group, tmp_path, capsys):
    assert run_command(["figure", str(group), "--to", str(tmp_path)]) == 0
    for name in ("attention.png", "learning_curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_show_and_list(group, capsys, monkeypatch):
    assert run_command(["show", "xor", "--players", "5"]) == 0
    text = capsys.readouterr().out
    assert 'agents = "5"' in text
    assert "5x5" in text
    monkeypatch.chdir(group.parents[0])
    Path("runs").symlink_to(group.parent, target_is_directory=True) if not Path("runs").exists() else None
    assert run_command(["list"]) == 0
    text = capsys.readouterr().out
    assert "xor-paper" in text
    assert "finished, 6 of 6 updates" in text


@pytest.mark.long
def test_bench_reports_every_number_of_seeds(tmp_path, monkeypatch, capsys):
    from dataclasses import replace

    text, settings = PRESETS["xor-demo"]
    small = replace(
        settings,
        policy=replace(settings.policy, width=8),
        ppo=replace(settings.ppo, envs=8, batch=16),
        total_steps=16 * 20,
    )
    monkeypatch.setitem(PRESETS, "xor-small", (text, small))
    assert run_command(["bench", "xor-small", "--seeds", "1", "2", "--to", str(tmp_path / "b.json")]) == 0
    results = json.loads((tmp_path / "b.json").read_text())["results"]
    assert [r["seeds"] for r in results] == [1, 2]
    for result in results:
        steps_per_second = 16 * result["seeds"] * result["updates_per_second"]
        assert result["steps_per_second"] == pytest.approx(steps_per_second)
        # Twenty updates of sixteen steps are far too few, and the table must not claim otherwise.
        assert result["seeds_solved"] == 0
        assert result["median_seconds_to_solve"] is result["slowest_seconds_to_solve"] is None
    assert "not reached" in capsys.readouterr().out


def test_help_version_and_seeds(capsys):
    assert run_command([]) == 0
    assert "diamond train PRESET" in capsys.readouterr().out
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"{importlib.metadata.version('diamond-attention')}\n"
    assert parse_seeds("0:3,7") == [0, 1, 2, 7]


def test_csv_files_can_be_read_by_anyone(group):
    """With nothing of ours. XOR's episodes are one step long, so every update ends sixteen; its return is success."""
    with open(group / "seed_0" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["16", "32", "48", "64", "80", "96"]
    assert [row["episodes"] for row in rows] == ["16"] * 6
    assert [row["success"] for row in rows] == [row["return"] for row in rows]
    rates = [float(row["learning_rate"]) for row in rows]
    assert rates == pytest.approx([rates[0] * left / 6 for left in (6, 5, 4, 3, 2, 1)], rel=1e-5)
