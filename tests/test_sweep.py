"""`diamond sweep`: which trainings its words mean, what is done of them, and one table made from nothing."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from diamond_attention import extensions
from diamond_attention.command_line import run_command
from diamond_attention.command_words import parse_train
from diamond_attention.errors import UserError
from diamond_attention.runs.folder import find_runs, open_run
from diamond_attention.runs.rows import append_rows
from diamond_attention.runs.seeds import parse_seeds
from diamond_attention.runs.train import train
from diamond_attention.sweep.combinations import Axis, combinations_of, drawn, parse_sweep
from diamond_attention.sweep.plan import as_lines, is_played, plan


def found(line: str):
    return combinations_of(*parse_sweep(shlex.split(line)))


def settings_of(line: str) -> list[dict[str, str]]:
    return [each.varied for each in found(line)]


# --- Which trainings ------------------------------------------------------------------------------


def test_every_combination_of_all_values_is_run_the_last_option_changing_fastest():
    all_of_them = found("xor --policy.mask rank none --ppo.learning-rate 1e-3 3e-3 5e-3 --total-steps 1000")
    assert [each.name for each in all_of_them] == [
        f"mask={mask}_learning-rate={rate}" for mask in ("rank", "none") for rate in ("1e-3", "3e-3", "5e-3")
    ]
    last = all_of_them[-1].options.settings
    assert (last.policy.mask, last.ppo.learning_rate, last.total_steps) == ("none", 0.005, 1000)
    for each in all_of_them:  # each is what `diamond train` makes of the same words
        assert parse_train(each.words[0], each.words[1:]).settings == each.options.settings


def test_values_with_commas_and_colons_are_one_value_each():
    assert settings_of("xor --agents 2,4 8 2:4") == [{"agents": "2,4"}, {"agents": "8"}, {"agents": "2:4"}]
    assert [each.name for each in found("xor --agents 2,4 8 2:4")] == ["agents=2,4", "agents=8", "agents=2:4"]


def test_presets_are_values_too_and_an_option_may_be_repeated_or_have_an_equals_sign():
    some = found("xor spread --ppo.learning-rate=1e-3 --ppo.learning_rate 3e-3")
    assert [each.name for each in some] == [
        f"{p}_learning-rate={r}" for p in ("xor", "spread") for r in ("1e-3", "3e-3")
    ]
    assert {each.options.settings.world.name for each in some} == {"xor", "spread"}
    assert found("xor")[0].name == "xor"


def test_a_method_can_be_varied():
    assert [each.options.settings.method.name for each in found("xor --method ppo qmix mat")] == [
        "ppo",
        "qmix",
        "mat",
    ]


@pytest.mark.parametrize(("preset", "usual"), [("xor", True), ("smaclite", False)])
def test_a_flag_is_yes_or_no_whatever_the_preset_has(preset, usual):
    yes, no = found(f"{preset} --ppo.anneal yes no")
    assert (yes.options.settings.ppo.anneal, no.options.settings.ppo.anneal) == (True, False)
    assert yes.words[1:] == (() if usual else ("--ppo.anneal",))
    assert no.words[1:] == (("--ppo.no-anneal",) if usual else ())


def test_two_options_that_end_alike_keep_their_whole_names():
    assert list(settings_of("spread --world.physics.drag 0.1 0.2 --world.physics.mass 1 2")[0]) == ["drag", "mass"]
    axes = [Axis("preset", ("a",)), Axis("--x.rate", ("1", "2")), Axis("--y.rate", ("1", "2"))]
    from diamond_attention.sweep.combinations import _labels

    assert _labels(axes) == ["preset", "x.rate", "y.rate"]


def test_a_negative_number_is_a_value():
    assert parse_sweep(["spread", "--world.collision-penalty", "-1", "-2.5"])[1][1].values == ("-1", "-2.5")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--devices many", "--devices is 'many'; it must be a whole number from 1, or all."),
        ("--devices 1 0", "--devices is '0'; it must be a whole number from 1, or all."),
        ("--coordinator a:1 --processes 2 --process 5", "has no --coordinator; `diamond train` takes it"),
        ("--coordinator auto", "has no --coordinator; `diamond train` takes it"),
        ("--process 5", "has no --process; `diamond train` takes it"),
    ],
)
def test_what_a_training_would_refuse_is_refused_before_it_is_printed(words, sentence, tmp_path, capsys):
    assert run_command(["sweep", "xor", *words.split(), "--out", str(tmp_path / "new"), "--print"]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


# --- Drawn ----------------------------------------------------------------------------------------


def test_a_larger_sample_begins_with_the_smaller_one_and_another_seed_draws_others():
    line = "xor --policy.mask rank none split --ppo.learning-rate log:1e-4:1e-2 --sample {} --sample-seed {}"
    few, more, other = found(line.format(3, 0)), found(line.format(6, 0)), found(line.format(3, 1))
    assert [each.name for each in more[:3]] == [each.name for each in few]
    assert len({each.name for each in more}) == 6
    assert [each.name for each in other] != [each.name for each in few]


def test_what_is_drawn_lies_in_its_range_and_is_spread_over_it():
    axes = [
        Axis("a", ("log:1e-4:1e-2",)),
        Axis("b", ("uniform:-1:3",)),
        Axis("c", ("whole:1:4",)),
        Axis("d", ("x", "y")),
    ]
    rows = drawn(axes, 2000, 0)
    logs, uniform, whole, words = zip(*rows, strict=True)
    # A half of a logarithmic range lies below its geometric mean, of a uniform one below its middle.
    assert sum(float(value) < 1e-3 for value in logs) == pytest.approx(1000, abs=90)
    assert sum(float(value) < 1 for value in uniform) == pytest.approx(1000, abs=90)
    assert all(1e-4 <= float(value) <= 1e-2 for value in logs)
    assert all(-1 <= float(value) <= 3 for value in uniform)
    for value in ("1", "2", "3", "4"):
        assert whole.count(value) == pytest.approx(500, abs=80)
    assert words.count("x") == pytest.approx(1000, abs=90)


def test_a_sample_of_a_grid_is_part_of_it_without_repetition():
    grid = {each.name for each in found("xor --policy.mask rank none --policy.width 8 16 32")}
    assert {each.name for each in found("xor --policy.mask rank none --policy.width 8 16 32 --sample 6")} == grid
    with pytest.raises(UserError, match="--sample is 7, and there seem to be no more than 6 combinations"):
        found("xor --policy.mask rank none --policy.width 8 16 32 --sample 7")


# --- What is done ---------------------------------------------------------------------------------

SMALL = "--policy.width 8 --ppo.envs 4 --ppo.batch 4 --ppo.epochs 1 --total-steps 8 --policy.mask rank none"


def steps_of(line: str):
    options, axes = parse_sweep(shlex.split(line))
    return list(plan(combinations_of(options, axes), options, parse_seeds(options.seeds)))


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """The first of two combinations is trained and played; and the words of the sweep."""
    out = tmp_path_factory.mktemp("sweep")
    line = f"xor {SMALL} --seeds 0,1 --episodes 2 --out {out}"
    first = found(line)[0]
    train(first.options.settings, [0, 1], out / first.name, preset="xor")
    assert [step.done for step in steps_of(line)] == [True, False, False, False]
    assert run_command(["evaluate", str(out / first.name), "--episodes", "2", "--quiet"]) == 0
    return line, out, first


def test_what_is_trained_and_played_is_skipped(half_done):
    line, out, first = half_done
    assert [step.done for step in steps_of(line)] == [True, True, False, False]
    assert not steps_of(line.replace("--episodes 2", "--episodes 3"))[1].done
    run = open_run(out / first.name / "seed_0")
    assert is_played(run, 2)
    assert not is_played(run, 3)


def test_one_line_for_each_combination_that_is_not_done_and_anybody_could_type_it(half_done, capsys):
    line, out, _ = half_done
    assert run_command(["sweep", *shlex.split(line), "--print"]) == 0
    (printed,) = capsys.readouterr().out.splitlines()
    trains, plays = (shlex.split(part) for part in printed.split(" && "))
    assert trains[:3] == ["diamond", "train", "xor"]
    options = parse_train("xor", trains[3:])
    assert (options.settings.policy.mask, options.seeds, options.resume) == ("none", "0,1", True)
    assert options.out == out / "mask=none"
    assert plays == ["diamond", "evaluate", str(out / "mask=none"), "--episodes", "2"]


def test_a_printed_line_is_safe_in_a_shell_and_brings_the_files_of_its_user(monkeypatch):
    monkeypatch.setattr(extensions, "LOADED", ["/my files/own.py"])
    (printed,) = as_lines(steps_of("xor --out 'a b;rm'"))
    for part in printed.split(" && "):
        assert shlex.split(part)[-2:] == ["--with", "/my files/own.py"]
        assert "'a b;rm/xor'" in part


def test_a_folder_with_another_training_is_refused_before_anything_runs(half_done, capsys):
    line, out, _ = half_done
    before = sorted(out.rglob("*"))
    assert run_command(["sweep", *shlex.split(line.replace("--total-steps 8", "--total-steps 80"))]) == 2
    assert "holds another training: its total_steps is 8, and 80 is needed here" in capsys.readouterr().err
    assert run_command(["sweep", *shlex.split(line.replace("--seeds 0,1", "--seeds 0:3"))]) == 2
    assert "was trained with seeds 0, 1, and 0, 1, 2 were asked for" in capsys.readouterr().err
    assert sorted(out.rglob("*")) == before


def test_a_training_can_be_typed_again_with_resume(half_done, capsys):
    """What is finished is left as it is; what is another training is refused."""
    _, out, first = half_done
    words = ["train", *first.words, "--seeds", "0,1", "--out", str(out / first.name), "--resume"]
    metrics = out / first.name / "seed_0" / "metrics.csv"
    before = metrics.read_bytes()
    assert run_command([*words, "--quiet"]) == 0
    assert metrics.read_bytes() == before
    assert "is already finished" in capsys.readouterr().err
    words[words.index("0,1")] = "0"
    assert run_command(words) == 2
    assert "holds another training: the seeds [0, 1], and [0] asked for here" in capsys.readouterr().err
    assert run_command([*words, "--total-steps", "16"]) == 2
    assert "its total_steps is 8, and 16 is needed here" in capsys.readouterr().err


def test_from_python_the_same_training_goes_on_too(half_done):
    _, out, first = half_done
    runs = train(first.options.settings, [0, 1], out / first.name, preset="xor", go_on=True)
    assert [run.seed for run in runs] == [0, 1]
    with pytest.raises(UserError, match="already holds 2 run"):
        train(first.options.settings, [0, 1], out / first.name)


def test_an_evaluation_that_crashes_is_not_done_and_the_next_time_it_is(half_done, tmp_path, capsys, monkeypatch):
    line, out, first = half_done
    line = line.replace("--policy.mask rank none", "--policy.mask rank")
    own = tmp_path / "own.py"
    own.write_text("""
import diamond_attention.evaluation.evaluate as module
real = module.evaluate
def evaluate(*arguments, **named):
    real(*arguments, **named)
    raise RuntimeError
module.evaluate = evaluate
""")
    (out / first.name).rename(out / "xor")
    words = ["sweep", *shlex.split(line), "--retries", "0"]
    try:
        rows = {run.seed: run.episodes.read_bytes() for run in find_runs([out / "xor"])}
        open_run(out / "xor" / "seed_1").episodes.unlink()
        monkeypatch.setattr(extensions, "LOADED", [own])  # by the commands that are started, not here
        assert run_command(words) == 2
        assert f"`diamond evaluate {out / 'xor'} --episodes 2` ended with status 70" in capsys.readouterr().err
        monkeypatch.setattr(extensions, "LOADED", [])
        assert run_command(words) == 0
        assert {run.seed: run.episodes.read_bytes() for run in find_runs([out / "xor"])} == rows
    finally:
        (out / "xor").rename(out / first.name)
        for made in (out / "table.md", out / "table.csv"):
            made.unlink(missing_ok=True)


def test_a_table_has_a_line_for_each_combination_the_best_first(half_done, capsys):
    """The second combination is made a copy of the first that loses every game."""
    import shutil

    from diamond_attention.runs.files import read_json, write_json

    line, out, first = half_done
    other = out / "mask=none"
    shutil.copytree(out / first.name, other)
    for run in find_runs([out / first.name, other]):
        values = {k: v for k, v in read_json(run.path / "settings.json").items() if k != "checksum"}
        if run.path.parent == other:
            values["settings"]["policy"]["mask"] = "none"
            write_json(run.path / "settings.json", values)
        rows = list(csv.DictReader((run.path / "episodes.csv").open()))
        won = "0" if run.path.parent == other else "1"
        (run.path / "episodes.csv").unlink()
        append_rows(run.path / "episodes.csv", [{**row, "success": won, "return": won} for row in rows])
    try:
        assert run_command(["sweep", *shlex.split(line)]) == 0  # nothing is left to do
        said = capsys.readouterr().out
        assert "2 combinations of 2 seed(s), 0 to do" in said
        page = (out / "table.md").read_text()
        table = [line for line in page.splitlines() if line.startswith("|")]
        assert table[0] == "| mask | seeds | greedy π* | sampled π | train s |"
        assert table[2].startswith("| rank | 2/2 | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] |")
        assert table[3].startswith("| none | 2/2 | 0.000 [0.000, 0.000] | 0.000 [0.000, 0.000] |")
        rows = list(csv.DictReader((out / "table.csv").open()))
        assert {(row["run"], row["mask"], row["seed"], row["play"], row["score"]) for row in rows} == {
            (f"mask={mask}", mask, seed, play, score)
            for mask, score in (("rank", "1.0"), ("none", "0.0"))
            for seed in "01"
            for play in ("greedy", "sampled")
        }
        # A seed that failed is no longer counted, and the status says so.
        (other / "seed_1" / "finished.json").unlink()
        write_json(other / "seed_1" / "failed.json", {"update": 1, "sentence": "seed 1 failed at update 1."})
        assert run_command(["sweep", *shlex.split(line)]) == 1
        assert "| none | 1/2 |" in (out / "table.md").read_text()
        assert "failed, and not counted: seed 1 failed at update 1." in capsys.readouterr().err
    finally:
        shutil.rmtree(other)


# --- From nothing to a table ----------------------------------------------------------------------


@pytest.mark.long
def test_what_is_printed_is_run_by_a_plain_shell_and_the_sweep_then_shows_it(tmp_path, capsys):
    """Also a line that was begun before, and cut off: it goes on."""
    (tmp_path / "diamond").write_text(f'#!/bin/sh\nexec {sys.executable} -m diamond_attention "$@"\n')
    (tmp_path / "diamond").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sweep", "xor", *SMALL.split(), "--seeds", "0:2", "--episodes", "2", "--out", str(tmp_path / "a sweep")]
    assert run_command([*words, "--print"]) == 0
    lines = capsys.readouterr().out
    assert len(lines.splitlines()) == 2
    begun = subprocess.run(["sh", "-c", lines.splitlines()[0].replace(" && ", " && exit 9; ")], env=environment)
    assert begun.returncode == 9  # trained, and not played
    assert subprocess.run(["sh", "-e"], input=lines, text=True, env=environment).returncode == 0
    assert run_command([*words, "--print"]) == 0
    assert capsys.readouterr().out == ""
    assert run_command(words) == 0
    assert "0 to do" in capsys.readouterr().out
    assert (tmp_path / "a sweep" / "table.md").read_text().count("| 2/2 |") == 2


@pytest.mark.long
def test_a_sweep_that_was_stopped_goes_on_where_it_was(tmp_path):
    """Ctrl-C while it trains: the same command again ends with the bits of one that nobody stopped."""
    longer = SMALL.replace("--total-steps 8", "--total-steps 16000").replace("rank none", "rank")
    command = [sys.executable, "-m", "diamond_attention", "sweep", "xor", *longer.split(), "--episodes", "2", "--out"]
    stopped, straight = (tmp_path / name / "xor" / "seed_0" for name in ("stopped", "straight"))
    out = stopped.parents[1]
    sweep = subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + 200
    while not (stopped / "metrics.csv").exists() or (stopped / "metrics.csv").read_text().count("\n") < 3:
        assert sweep.poll() is None, sweep.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    sweep.send_signal(signal.SIGINT)
    said, _ = sweep.communicate(timeout=100)
    assert sweep.returncode == 130, said
    reached = max(int(path.name[5:]) for path in (stopped / "checkpoints").iterdir())
    assert 0 < reached < 16000
    assert not (out / "table.md").exists()
    for each in (out, straight.parents[1]):
        assert subprocess.run([*command, str(each)], timeout=250).returncode == 0
    last = "checkpoints/step_16000/policy.safetensors"
    assert (stopped / last).read_bytes() == (straight / last).read_bytes()
    assert (out / "table.md").read_text().count("| 1/1 |") == 1


@pytest.mark.long
def test_a_sweep_is_run_and_a_second_time_nothing_is_left_to_do(tmp_path, capsys):
    words = ["sweep", "xor", *SMALL.split(), "--seeds", "0:2", "--episodes", "2", "--jobs", "2"]
    words += ["--out", str(tmp_path / "out")]
    assert run_command(words) == 0
    said = capsys.readouterr()
    assert "[4 of 4 done] evaluate mask=" in said.err
    assert "4 of 4 commands done in" in said.out
    assert len(find_runs([tmp_path / "out" / "mask=rank", tmp_path / "out" / "mask=none"])) == 4
    assert (tmp_path / "out" / "table.md").read_text().count("| 2/2 |") == 2
    assert run_command(words) == 0
    said = capsys.readouterr()
    assert "0 to do" in said.out
    assert said.err == ""
    # One more value: what is there is kept, and only what is new would run.
    assert run_command([*words, "--policy.mask", "split", "--print"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert json.loads((tmp_path / "out" / "mask=rank" / "seed_1" / "settings.json").read_text())["seed"] == 1
