"""Every command of docs/scale.md and of the tutorial beside it is one that can be typed; the small ones are run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from diamond_attention.command_options import ReproduceOptions, ResumeOptions
from diamond_attention.command_words import parse_options, parse_train, preset_name
from diamond_attention.process_group import devices_asked, group_asked
from diamond_attention.reproduce.entries import ENTRIES
from diamond_attention.reproduce.make import check_patterns
from diamond_attention.runs.folder import find_runs
from diamond_attention.runs.seeds import parse_seeds
from diamond_attention.runs.trackers.registry import TRACKERS
from diamond_attention.sweep.combinations import combinations_of, parse_sweep

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "scale.md", DOCS / "tutorials" / "cluster.md"]
OF_OTHERS = ("export", "pip", "ray", "sbatch", "#!/bin/bash")
"""How lines begin that are not for us to take."""


def blocks_of(page: Path, kind: str = "(?:sh)?") -> list[str]:
    """Fenced blocks, without those of other languages."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[list[str]]:
    """The words after `diamond` of every line that has them."""
    found = []
    for line in "".join(blocks_of(page)).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["srun"]:  # and its own options
            words = words[words.index("diamond") :]
        if words and words[0] == "diamond":
            found.append(words[1 : words.index(">")] if ">" in words else words[1:])
        else:
            assert not words or words[0] in OF_OTHERS, line
    return found


ALL = [(page.name, words) for page in PAGES for words in commands_of(page)]


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{page}: {' '.join(words)}" for page, words in ALL])
def test_every_command_of_the_pages_can_be_typed(page, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *rest = words
    if command == "train":
        preset, others = preset_name("train", rest)
        options = parse_train(preset, others)
        parse_seeds(options.seeds)
        assert set(options.track) <= TRACKERS.keys()
    elif command == "resume":
        options = parse_options(ResumeOptions, rest, "resume")
    elif command == "sweep":
        options, axes = parse_sweep(rest)
        parse_seeds(options.seeds)
        assert len(combinations_of(options, axes)) > 1
        return
    else:
        assert command == "reproduce"
        options = parse_options(ReproduceOptions, rest, "reproduce")
        check_patterns(ENTRIES[options.entry].wanted, options.only)
        return
    devices_asked(options.devices)
    group_asked(options)


def test_both_pages_have_commands_of_every_kind():
    assert {(page, words[0]) for page, words in ALL} == {
        *(("scale.md", command) for command in ("train", "resume", "sweep", "reproduce")),
        *(("cluster.md", command) for command in ("train", "sweep")),
    }


def in_a_shell(commands: str, folder: Path) -> str:
    (folder / "bin").mkdir()
    (folder / "bin" / "diamond").write_text(f'#!/bin/sh\nexec {sys.executable} -m diamond_attention "$@"\n')
    (folder / "bin" / "diamond").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["sh", "-e"], input=commands, cwd=folder, env=environment, capture_output=True, text=True, timeout=590
    )
    assert answer.returncode == 0, answer
    return answer.stdout + answer.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_can_be_followed(tmp_path):
    said = in_a_shell("".join(blocks_of(PAGES[1], "sh")), tmp_path)
    assert "runs/xor is already finished; there is nothing to resume." in said
    assert said.count("diamond train xor-demo") == 4  # the lines of `sweep --print`
    assert all(run.finished is not None for run in find_runs([tmp_path / "runs" / "xor"]))
    assert len(find_runs([tmp_path / "runs" / "xor"])) == 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_devices_without_a_second_gpu_and_an_array_without_a_scheduler(tmp_path):
    """The page's own lines. SLURM's numbers come from a loop, and trainings and evaluations are made shorter."""
    devices = next(block for block in blocks_of(PAGES[0]) if "export XLA_FLAGS" in block)
    array = next(block for block in blocks_of(PAGES[0]) if "sbatch" in block)
    printed, submitted, table = array.splitlines()
    task = re.search(r"--wrap '(.*)'$", submitted)[1]
    loop = f"for SLURM_ARRAY_TASK_ID in $(seq $(wc -l < commands.txt)); do {task}; done"
    shorter = {"20480": "1024", "--seeds 0:2": "--seeds 0:2 --episodes 2 --ppo.envs 8 --ppo.batch 8", "3e-3": ""}
    lines = "\n".join([printed, loop, table])
    for long, short in shorter.items():
        lines = lines.replace(long, short)
    said = in_a_shell(f"{devices.rstrip()} --total-steps 512\n{lines}\n", tmp_path)
    assert len(find_runs([tmp_path / "runs" / "xor-demo"])) == 3
    assert "2 combinations of 2 seed(s), 0 to do" in said
    assert (tmp_path / "sweeps" / "slurm" / "table.md").read_text().count("| 2/2 |") == 2
