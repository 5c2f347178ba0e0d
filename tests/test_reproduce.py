"""`diamond reproduce`: every command of its list, what it skips, what it merges, and one table made from nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diamond_attention.command_line import COMMANDS, run_command
from diamond_attention.command_options import EvaluateOptions
from diamond_attention.command_words import parse_train, parse_with_variations
from diamond_attention.errors import UserError
from diamond_attention.learning.registry import METHODS
from diamond_attention.reproduce.entries import ENTRIES, Entry
from diamond_attention.reproduce.make import _escaped, chosen_groups, gather, write_table
from diamond_attention.reproduce.plan import plan, shortened
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.settings import Settings

TABLE_1 = ENTRIES["table1"]


def test_table_1_has_ten_methods_three_sizes_and_both_settings():
    names = [group.name for group in TABLE_1.groups]
    assert len(set(names)) == len(names) == 10 * 3 * 2
    for preset in ("xor", "xor-paper"):
        for key in ("rank", "none", "dropout", *(name for name in METHODS if name != "ppo")):
            assert {f"{preset}_{key}_{size}" for size in ("2x2", "2x3", "3x3")} <= set(names)


@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_every_command_of_a_plan_is_one_that_anybody_could_type(scale, tmp_path):
    for entry in ENTRIES.values():
        some = entry.groups if scale == "full" else entry.groups[::7]
        for step in plan(some, scale, range(entry.seeds), tmp_path):
            command, *words = step.words
            assert command in COMMANDS
            assert not step.done
            if command == "train":
                options = parse_train(words[0], words[1:])
                assert options.seeds.count(",") == entry.seeds - 1
                assert (scale == "smoke") == (options.settings.total_steps == 16)
            else:
                parse_with_variations(EvaluateOptions, words, command)


def test_a_quick_training_has_a_quarter_of_the_steps():
    assert shortened(Settings(total_steps=1001), "quick") == ("--total-steps", "251")
    assert shortened(Settings(), "full") == ()
    smoke = shortened(with_method(Settings(), "ph-marl"), "smoke")
    assert smoke[smoke.index("--ph-marl.replay") :][:2] == ("--ph-marl.replay", "16")
    assert "--policy.width" not in smoke  # it has none


def test_only_takes_patterns_and_a_wrong_one_is_a_sentence():
    assert len(chosen_groups(TABLE_1, ["xor_mat_*", "xor-paper_rank_2x2"])) == 4
    with pytest.raises(UserError, match=r"--only is 'mat', which matches no group"):
        chosen_groups(TABLE_1, ["mat"])


def test_latex_is_escaped():
    assert _escaped("50 % of a_b × π") == r"50 \% of a\_b $\times$ $\pi$"


def test_a_table_is_made_skipped_where_it_is_done_and_merged(tmp_path, monkeypatch, capsys):
    """Seed 0 here, seed 1 on another machine: the table has both, and a second time nothing is trained."""
    small = ["--scale", "smoke", "--only", "xor_rank_2x2"]
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert run_command(["reproduce", "table1", *small, "--out", here]) == 0
    said = capsys.readouterr().out
    assert "[1 of 2] diamond train xor --players 2 --actions 2 --policy.mask rank" in said
    assert "[2 of 2, about" in said
    page = (tmp_path / "here" / "table1.md").read_text()
    assert "**Not comparable**: two updates of tiny networks" in page
    assert "Training seeds: 1, where a full table has 10." in page
    assert "| rank mask |" in page
    assert "1.00/1.00" in page  # the paper's
    assert (tmp_path / "here" / "table1.csv").read_text().count("\n") == 1 + 2  # greedy and sampled
    assert r"\begin{tabular}" in (tmp_path / "here" / "table1.tex").read_text()
    assert run_command(["reproduce", "table1", *small, "--out", here, "--dry-run"]) == 0
    assert [line[:5] for line in capsys.readouterr().out.splitlines()] == ["done ", "done "]

    def nothing_may_run(command):
        raise AssertionError(command)

    # The other machine's folder: the same run under another seed.
    _as_seed_1(tmp_path / "here" / "xor_rank_2x2", tmp_path / "there" / "xor_rank_2x2")
    monkeypatch.setattr("diamond_attention.reproduce.make.run_to_its_end", nothing_may_run)
    assert run_command(["reproduce", "table1", *small, "--out", here, "--merge", there]) == 0
    page = (tmp_path / "here" / "table1.md").read_text()
    assert "Training seeds: 2, where a full table has 10." in page
    assert "| 2/2 |" in page
    capsys.readouterr()
    assert run_command(["reproduce", "table1", *small, "--out", here, "--merge", here]) == 2
    assert "seed 0 of xor_rank_2x2 is in" in capsys.readouterr().err
    # A shorter training does not stand in for a longer one, and seeds are added from another folder.
    longer = ["reproduce", "table1", "--scale", "quick", *small[2:], "--out", here]
    assert run_command(longer) == 2
    assert "holds another training: its total_steps is 16, and" in capsys.readouterr().err
    assert run_command(["reproduce", "table1", *small, "--seeds", "0:2", "--out", here]) == 2
    assert "was trained with seeds 0, and 0, 1 were asked for" in capsys.readouterr().err


def _as_seed_1(group: Path, other: Path) -> None:
    from diamond_attention.runs.files import read_json, write_json

    folder = other / "seed_1"
    folder.mkdir(parents=True)
    for name in ("environment.json", "finished.json", "episodes.csv"):
        (folder / name).write_bytes((group / "seed_0" / name).read_bytes())
    values = {k: v for k, v in read_json(group / "seed_0" / "settings.json").items() if k != "checksum"}
    write_json(folder / "settings.json", {**values, "seed": 1, "group_seeds": [1]})
    assert open_run(folder).seed == 1


def test_groups_that_nobody_made_are_named(tmp_path):
    assert gather(TABLE_1.groups[0], [tmp_path], "full") == []
    with pytest.raises(UserError, match="no evaluated episodes"):
        write_table("table1", Entry("T", 1, ()), TABLE_1.groups, [tmp_path], "full")


def test_ctrl_c_leaves_a_command_the_time_to_save(tmp_path):
    saves = f"""
import signal, sys, time
def save(*_):
    time.sleep(1)
    open({str(tmp_path / "saved")!r}, "w").close()
    sys.exit(130)
signal.signal(signal.SIGINT, save)
open({str(tmp_path / "going")!r}, "w").close()
time.sleep(60)
"""
    waits = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
from diamond_attention.reproduce.make import run_to_its_end
try:
    run_to_its_end([sys.executable, "-c", {saves!r}])
except KeyboardInterrupt:
    sys.exit(77)
"""
    going = subprocess.Popen([sys.executable, "-c", waits], start_new_session=True)
    while not (tmp_path / "going").exists():
        assert going.poll() is None
        time.sleep(0.05)
    os.killpg(going.pid, signal.SIGINT)
    assert going.wait(timeout=30) == 77
    assert (tmp_path / "saved").exists()
