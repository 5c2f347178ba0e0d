"""docs/deploy.md, executed: its commands, but for training and installing, and its Python in one program."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from diamond_attention.command_line import run_command

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "deploy.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs_from_a_trained_run_to_a_decision(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason="the extra onnx brings it")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "older_runs" / "format_1" / "spread" / "seed_3", "runs/spread-cpu/seed_0")
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    run = [words[1:] for words in commands if words[0] == "diamond" and words[1] != "train"]
    assert len(run) == 2
    for words in run:
        assert run_command(words) == 0, capsys.readouterr().err
    program = "\n".join(blocks("python"))
    exec(compile(program, "docs/deploy.md", "exec"), {})
    assert len(capsys.readouterr().out.split("[")[-1].split()) == 2  # a velocity was printed
    exec(
        compile(program.replace('"spread-floor"', '"my_policy"').split("import onnxruntime")[0], "again", "exec"), {}
    )


def test_the_extra_and_the_folder_that_the_page_installs_are_there():
    for words in (shlex.split(line) for block in blocks("sh") for line in block.splitlines()):
        if words[:2] == ["pip", "install"]:
            folder, _, extra = words[2].rstrip("]").partition("[")
            assert (ROOT / folder / "pyproject.toml").exists()
            assert not extra or f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()


def test_the_page_names_every_kind():
    from diamond_attention.deploy.kinds import KINDS

    part = PAGE.split("## What `decide` takes")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)))) == set(KINDS)
