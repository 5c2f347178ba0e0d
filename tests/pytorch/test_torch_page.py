"""docs/torch.md, executed: its Python, with fewer frames, and its commands; its numbers are the rows'."""

import json
import re
import shlex
import statistics
from pathlib import Path

from diamond_attention.command_line import run_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "torch.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs_from_a_shipped_policy_to_a_fine_tuned_one_that_is_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shipped, fine_tuning, benchmarl = blocks("python")
    names = {}
    exec(compile(shipped + fine_tuning, "docs/torch.md", "exec"), names)
    assert names["loss"] < 0.06  # it begins at 0.34
    program = benchmarl.replace("400_000", "400")
    assert program != benchmarl
    few = "config.on_policy_n_envs_per_worker, config.on_policy_collected_frames_per_batch = 4, 400\n"
    few += "config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters, config.save_folder = 100, 1, '.'\n"
    exec(compile(program.replace("model = ", few + "model = ", 1), "docs/torch.md", "exec"), {})
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    run = [words[1:] for words in commands if words[0] == "diamond"]
    assert [words[:2] for words in run] == [["evaluate", "gentle"], ["evaluate", "spread"]]
    for words in (run[0], ["evaluate", "from_benchmarl", "--episodes", "200", "--greedy"]):
        few_episodes = [word.replace("200", "2") for word in words]
        assert run_command([*few_episodes, "--quiet"]) == 0, capsys.readouterr().err


def test_the_extras_that_the_page_installs_are_there():
    for words in (shlex.split(line) for block in blocks("sh") for line in block.splitlines()):
        if words[:2] == ["pip", "install"]:
            extra = re.fullmatch(r"\.\[(\w+)\]", words[2])[1]
            assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()


def test_the_numbers_of_the_training_are_those_of_the_rows():
    rows = json.loads((ROOT / "results" / "benchmarl_diamond.json").read_text())
    beside = json.loads((ROOT / "results" / "benchmarl_mappo.json").read_text())
    part = PAGE.split("### Trained for real")[1].split("\n## ")[0]
    curves = [dict(map(tuple, row["R_sampled_by_frames"])) for row in rows]
    told = re.findall(r"((?:-\d+,?\s)+and\s-\d+)\s(before|after)\s(training|it|[\d,]+\sframes)", part)
    assert [(when, what) for _, when, what in told][-2:] == [("before", "training"), ("after", "it")]
    for numbers, when, what in told:
        frames = re.match(r"[\d,]+", what)
        if frames:
            expected = [curve[int(frames[0].replace(",", ""))] for curve in curves]
        else:
            expected = [row["R_untrained" if when == "before" else "R"] for row in rows]
        assert [int(number) for number in re.findall(r"-\d+", numbers)] == [round(score) for score in expected]
    assert len(told) == 5
    assert all(row["R"] > row["R_untrained"] / 2 for row in rows), "they learned"
    assert f"{statistics.mean(row['R'] for row in beside):.0f}" in part


def test_what_came_of_benchmarl_s_own_tests_is_what_was_written_down():
    outcome = json.loads((ROOT / "results" / "benchmarl_model_tests.json").read_text())
    counts = ", ".join(f"{outcome[name]} {name}" for name in ("passed", "skipped", "failed"))
    assert counts in PAGE
    # The last two words are whether the model is centralised and whether its input has agents.
    assert all(name.endswith("-False-False]") for name in outcome["names_of_skipped"])
    assert len(outcome["names_of_skipped"]) == outcome["skipped"] == sum(outcome["why_skipped"].values())
