"""`diamond reproduce`: every command of its list, what it skips, what it merges, and one table made from nothing."""

import io
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from diamond_attention import command_options
from diamond_attention.command_line import COMMANDS, run_command
from diamond_attention.command_words import parse_train, parse_with_variations
from diamond_attention.errors import UserError
from diamond_attention.jobs.contract import Step
from diamond_attention.learning.registry import METHODS
from diamond_attention.reproduce import entries, make, plan
from diamond_attention.reproduce.entries import ENTRIES, Entry, Wanted, register_entry
from diamond_attention.reproduce.make import check_patterns, gather, matching
from diamond_attention.reproduce.packed import pack, unpack
from diamond_attention.reproduce.pages import escaped, write_entry
from diamond_attention.reproduce.plan import at_scale, chosen, described, shortened
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.settings import Settings

TABLE_1 = ENTRIES["table1"]
ATTEMPTS = Path(__file__).parents[1] / "experiments" / "scaling_attempts.py"


# --- The list -------------------------------------------------------------------------------------


def test_table_1_has_ten_methods_three_sizes_and_both_settings():
    names = [each.group.name for each in TABLE_1.wanted]
    assert len(set(names)) == len(names) == 10 * 3 * 2
    for preset in ("xor", "xor-paper"):
        for key in ("rank", "none", "dropout", *(name for name in METHODS if name != "ppo")):
            assert {f"{preset}_{key}_{size}" for size in ("2x2", "2x3", "3x3")} <= set(names)


@pytest.mark.parametrize("world", ["spread", "food"])
def test_a_panel_has_every_method_every_mask_and_the_papers_own_numbers(world):
    groups = {each.group.name: each for each in ENTRIES[world].wanted}
    for name in ("rank", "none", "dropout", "floor", "signed", "first", "split"):
        assert groups[f"{world}_{name}"].group.seeds == 5
    for name in ("mappo", "ippo", "mat", "qmix", "masac"):
        assert groups[f"{world}_{name}"].group.seeds == 3
        assert groups[f"{world}_{name}"].plays[0][:2] == ("--agents", "4")
    assert f"{world}_gsa-nearest" in groups
    assert f"{world}_ph-marl-nearest" in groups
    settings = parse_train(world, groups[f"{world}-paper_rank"].group.train[1:]).settings
    assert settings.policy.third_block == "paper"
    assert settings.world.mark_viewer is False
    assert settings.total_steps == 1_200_000


def test_groups_of_one_name_are_one_training():
    by_name: dict[str, set] = {}
    for entry in ENTRIES.values():
        for each in entry.wanted:
            by_name.setdefault(each.group.name, set()).add(each.group)
    assert {name: len(groups) for name, groups in by_name.items() if len(groups) > 1} == {}


def test_a_table_of_ones_own_has_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr(entries, "ENTRIES", dict(ENTRIES))
    register_entry("mine", Entry("Mine"))
    register_entry("mine", Entry("Mine"))  # a file may be loaded twice
    assert entries.ENTRIES["mine"].title == "Mine"
    for taken in ("mine", "table1", "all"):
        with pytest.raises(UserError, match=f"there is already a result called '{taken}'"):
            register_entry(taken, Entry("Another"))


@pytest.mark.long
def test_a_table_of_ones_own_is_made_with_a_policy_of_ones_own(tmp_path):
    out = tmp_path / "made"
    command = [sys.executable, "-m", "diamond_attention", "reproduce", "scaling", "--with", str(ATTEMPTS)]
    subprocess.run([*command, "--scale", "smoke", "--only", "*nobody*", "--out", str(out)], check=True, timeout=600)
    assert "rank mask, and nobody" in (out / "scaling.md").read_text()


def test_a_policy_that_ships_can_stand_for_its_training(tmp_path):
    wanted = next(each for each in ENTRIES["faults"].wanted if each.group.name == "spread_floor")
    shutil.copytree(SHIPPED / "spread-floor", tmp_path / "here" / wanted.group.name / "seed_0")
    step, *plays = plan.plan(ENTRIES["faults"], [wanted], "full", [0], tmp_path / "here")
    assert step.done
    assert not any(play.done for play in plays)
    (run,) = gather(wanted.group, [tmp_path / "here"], "full")
    pack({wanted.group.name: [run]}, tmp_path / "a.runs.tar.xz")
    unpack(tmp_path / "a.runs.tar.xz", tmp_path / "there")
    (unpacked,) = gather(wanted.group, [tmp_path / "there"], "full")
    assert (unpacked.settings, unpacked.environment) == (run.settings, run.environment)


@pytest.mark.parametrize("scale", ["smoke", "quick", "full"])
def test_every_command_of_a_plan_is_one_that_anybody_could_type(scale, tmp_path):
    seen = set()
    for entry in ENTRIES.values():
        some = entry.wanted if scale == "full" else chosen(entry.wanted, scale)[::5]
        for step in plan.plan(entry, some, scale, (), tmp_path):
            command, *words = step.words
            assert command in COMMANDS
            assert not step.done
            # Two that differ in numbers and folders alone are parsed alike.
            kind_of = tuple(word for word in step.words if not re.match(r"[\d/]", word))
            if kind_of in seen:
                continue
            seen.add(kind_of)
            if command == "train":
                options = parse_train(words[0], words[1:])
                assert (scale == "full") == (options.seeds.count(",") > 0)
                assert (scale == "smoke") == (options.settings.total_steps == 16)
            else:
                kind = getattr(command_options, f"{command.capitalize()}Options")
                parse_with_variations(kind, words, command)


def test_a_quick_training_is_no_larger_than_two_cores_can_bear():
    assert shortened(Settings(total_steps=1001), "full") == ()
    assert shortened(Settings(total_steps=1001), "quick") == ("--total-steps", "1001")
    assert shortened(Settings(total_steps=10**6), "quick") == ("--total-steps", "40000")
    smoke = shortened(with_method(Settings(), "ph-marl"), "smoke")
    assert smoke[smoke.index("--ph-marl.replay") :][:2] == ("--ph-marl.replay", "16")
    assert "--policy.width" not in smoke  # it has none
    play = ("--agents", "4", "--episodes", "128")
    assert [at_scale(play, scale)[-1] for scale in ("full", "quick", "smoke")] == ["128", "16", "2"]


def test_only_takes_patterns_and_a_wrong_one_is_a_sentence():
    assert len(matching(TABLE_1.wanted, ["xor_mat_*", "xor-paper_rank_2x2"])) == 4
    with pytest.raises(UserError, match=r"--only is 'mat', which matches no group"):
        check_patterns(TABLE_1.wanted, ["mat"])


def test_a_plan_says_how_long_it_takes(monkeypatch, tmp_path):
    steps = [Step("a", ("train", "a"), False), Step("b", ("train", "b"), False), Step("c", ("train", "c"), True)]
    monkeypatch.setattr(plan, "known_times", lambda scale: {"train a": 90.0, "train c": 1000.0})
    *lines, total = described(steps, "full")
    assert [line[:13] for line in lines] == ["to do    90 s", "to do       ?", "done   1000 s"]
    assert total == ("2 steps to do: 2 min of work, as measured on one H200, and 1 steps whose time is not known.")


def test_latex_is_escaped():
    assert escaped("50 % of a_b × π") == r"50 \% of a\_b $\times$ $\pi$"


# --- From nothing to a page -----------------------------------------------------------------------


def test_a_table_is_made_skipped_where_it_is_done_and_merged(tmp_path, monkeypatch, capsys):
    """Seed 0 here, seed 1 on another machine: the table has both, and a second time nothing is trained."""
    small = ["--scale", "smoke", "--only", "xor_rank_2x2"]
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert run_command(["reproduce", "table1", *small, "--out", here]) == 0
    said = capsys.readouterr().err
    assert "[1 of 2] diamond train xor --players 2 --actions 2 --policy.mask rank" in said
    assert re.search(r"\[1 of 2 done, about \d+ min left\] train xor_rank_2x2: ", said)
    page = (tmp_path / "here" / "table1.md").read_text()
    assert "**Not comparable**: two updates of tiny networks" in page
    assert "Not made: xor-paper_rank_2x2, " in page
    assert "| rank mask | xor_rank | a number from each peer | 1/1 |" in page
    assert "| rank mask, the paper's |  |  |  | 1.00 / 1.00 |" in page
    cost = next(line for line in page.splitlines() if line.startswith("| xor_rank_2x2 | 16 |"))
    assert "| a number from each peer | xor --players 2 --actions 2 --policy.mask rank |" in cost
    assert (tmp_path / "here" / "table1.csv").read_text().count("\n") == 1 + 2  # greedy and sampled
    assert r"\begin{tabular}" in (tmp_path / "here" / "table1.tex").read_text()
    times = (tmp_path / "here" / "times.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in times[1:]] == [
        ["smoke", "train xor_rank_2x2"],
        ["smoke", "evaluate xor_rank_2x2"],
    ]
    assert run_command(["reproduce", "table1", *small, "--out", here, "--dry-run"]) == 0
    assert [line[:5] for line in capsys.readouterr().out.splitlines()] == ["done ", "done "]

    def nothing_may_run(*_):
        raise AssertionError

    # The other machine's folder: the same run under another seed.
    _as_seed_1(tmp_path / "here" / "xor_rank_2x2", tmp_path / "there" / "xor_rank_2x2")
    monkeypatch.setattr(make, "carry_out", nothing_may_run)
    assert run_command(["reproduce", "table1", *small, "--out", here, "--merge", there]) == 0
    page = (tmp_path / "here" / "table1.md").read_text()
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
    # What was packed makes the same table and report in a folder where nothing else is.
    packed = str(tmp_path / "here" / "table1.runs.tar.xz")
    again = tmp_path / "again"
    assert run_command(["reproduce", "table1", *small, "--out", str(again), "--merge", packed, "--redraw"]) == 0
    assert (again / "table1.csv").read_bytes() == (tmp_path / "here" / "table1.csv").read_bytes()
    assert (again / "table1.runs.tar.xz").read_bytes() == Path(packed).read_bytes()
    report = (again / "report.html").read_text()
    assert "<td>xor_rank</td>" in report
    assert "<strong>Not comparable</strong>" in report
    assert not re.search(r"(src|href)=.?(http|//)", report)


def _as_seed_1(group: Path, other: Path) -> None:
    from diamond_attention.runs.files import read_json, write_json

    folder = other / "seed_1"
    folder.mkdir(parents=True)
    for name in ("environment.json", "finished.json", "episodes.csv"):
        (folder / name).write_bytes((group / "seed_0" / name).read_bytes())
    values = {k: v for k, v in read_json(group / "seed_0" / "settings.json").items() if k != "checksum"}
    write_json(folder / "settings.json", {**values, "seed": 1, "group_seeds": [1]})
    assert open_run(folder).seed == 1


def test_nothing_to_show_is_a_sentence(tmp_path):
    some = TABLE_1.wanted[0]
    assert gather(some.group, [tmp_path], "full") == []
    with pytest.raises(UserError, match="no run of table1 has been played yet"):
        write_entry("table1", Entry("T", (some,)), [some], [tmp_path], "full")


def test_a_folder_to_merge_that_is_not_there_is_refused_before_anything_runs(tmp_path, capsys):
    words = [
        "reproduce",
        "table1",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path / "out"),
        "--merge",
        str(tmp_path / "no"),
    ]
    assert run_command(words) == 2
    assert "which is not there; name a folder, or a file of packed runs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- Packed runs ----------------------------------------------------------------------------------


def _archive(file: Path, name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"{}") -> Path:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.size, member.linkname = kind, len(data) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
        archive.addfile(member, io.BytesIO(data))
    file.write_bytes(lzma.compress(text.getvalue()))
    return file


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../x/seed_0/settings.json", tarfile.REGTYPE),
        ("/x/seed_0/settings.json", tarfile.REGTYPE),
        ("x/seed_0/checkpoints", tarfile.REGTYPE),
        ("x/seed_0/settings.json", tarfile.SYMTYPE),
        ("x/seed_0/settings.json", tarfile.LNKTYPE),
        ("x/seed_0/settings.json", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_with_anything_but_files_of_runs_is_refused_whole(tmp_path, name, kind):
    with pytest.raises(UserError, match="is no file of a run"):
        unpack(_archive(tmp_path / "a.runs.tar.xz", name, kind), tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_a_broken_archive_is_a_sentence(tmp_path):
    file = tmp_path / "a.runs.tar.xz"
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="is not a file of packed runs, or it is broken"):
        unpack(file, tmp_path / "into")
    pack({}, file)
    unpack(file, tmp_path / "into")  # empty, and whole


def test_wanted_stands_in_a_line_of_its_own_unless_said():
    group = TABLE_1.wanted[0].group
    assert Wanted(group, ()).line == group.name
    assert Wanted(group, (), row="x").line == "x"
