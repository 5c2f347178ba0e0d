"""`diamond reproduce`: every command of its list, what it skips, what it merges, and one table made from nothing."""

import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from diamond_attention import command_options
from diamond_attention.command_line import COMMANDS, run_command
from diamond_attention.command_options import ReproduceOptions
from diamond_attention.command_words import parse_train, parse_with_variations
from diamond_attention.errors import UserError
from diamond_attention.jobs import here
from diamond_attention.jobs.contract import Step
from diamond_attention.learning.registry import METHODS
from diamond_attention.reproduce import entries, make, plan
from diamond_attention.reproduce.entries import ENTRIES, Entry, Group, Wanted, register_entry
from diamond_attention.reproduce.make import check_patterns, gather, matching
from diamond_attention.reproduce.packed import ENDING, pack, unpack
from diamond_attention.reproduce.pages import escaped, write_entry
from diamond_attention.reproduce.plan import at_scale, chosen, described, shortened
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.files import read_json, write_json
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.group import create_group
from diamond_attention.runs.presets import with_method
from diamond_attention.runs.rows import append_rows, read_rows
from diamond_attention.runs.settings import FORMAT, Settings, to_json

TABLE_1 = ENTRIES["table1"]
ROOT = Path(__file__).parents[1]
ATTEMPTS = ROOT / "experiments" / "scaling_attempts.py"
PACKED = {file.name.removesuffix(ENDING): file for file in sorted((ROOT / "results").glob(f"*{ENDING}"))}
"""Rows that are committed, by the entry they are of."""


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
    times = {"train a": plan.Known(90.0, "a GPU"), "train c": plan.Known(1000.0, "a GPU")}
    monkeypatch.setattr(plan, "known_times", lambda scale: times)
    *lines, total = described(steps, "full")
    assert [line[:14] for line in lines] == ["to do     90 s", "to do        ?", "done    1000 s"]
    measured = "2 steps to do: 2 min of work (2 min as measured on a GPU)"
    assert total == f"{measured}, and 1 of them (50%) for which nothing tells how long."
    *_, total = described(steps[:1], "full")
    assert total == "1 steps to do: 2 min of work (2 min as measured on a GPU)."


def _step(name: str, tmp_path: Path, scale: str) -> Step:
    groups = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
    return plan.train_step(groups[name], scale, plan.seeds_of(groups[name], scale), tmp_path / name)


def test_what_was_never_timed_is_guessed_from_what_is_like_it(tmp_path):
    """In full by steps and seeds, of the same preset, method and size; quick trainings mostly compile."""
    full = plan.Guesses({"train xor_rank_2x2": plan.Known(100.0, "")}, "full")
    assert full.seconds(_step("xor_signed_2x2", tmp_path, "full")) == pytest.approx(50.0)  # five seeds, not ten
    for unlike in ("xor_signed_3x3", "xor_mappo_2x2", "xor-paper_rank_2x2", "spread_rank"):
        assert full.seconds(_step(unlike, tmp_path, "full")) is None
    known = {"train xor_rank_2x2": plan.Known(40.0, ""), "train xor_mappo_2x2": plan.Known(20.0, "")}
    quick = plan.Guesses(known, "quick")
    assert quick.seconds(_step("xor_signed_2x2", tmp_path, "quick")) == pytest.approx(40.0)
    assert quick.seconds(_step("xor_rank_5x5", tmp_path, "quick")) == pytest.approx(30.0)
    assert quick.seconds(Step("speed/xor.json", ("bench", "xor"), False)) is None
    # How long trainings take says nothing of playing: the steps of a plan are told apart.
    wanted = [each for each in TABLE_1.wanted if each.group.name == "xor_mappo_2x2"]
    trained, played = plan.plan(TABLE_1, wanted, "quick", (), tmp_path)
    assert quick.seconds(trained) == 20.0
    assert quick.seconds(played) is None
    known |= {"evaluate xor_rank_2x2": plan.Known(7.0, "")}
    assert plan.Guesses(known, "quick").seconds(played) == 7.0


def test_every_time_that_is_known_is_of_a_step_there_is():
    names = {each.group.name for entry in ENTRIES.values() for each in entry.wanted}
    names |= {command[-1] for entry in ENTRIES.values() for command in entry.commands}
    for scale in ("quick", "full"):
        known = plan.known_times(scale)
        assert known
        assert {what.split(" ", 1)[1] for what in known} <= names
        assert all(each.seconds > 0 and each.device for each in known.values())


def test_latex_is_escaped():
    assert escaped("50 % of a_b × π") == r"50 \% of a\_b $\times$ $\pi$"


def test_an_evaluation_that_crashed_is_not_noted_as_played_and_is_played_the_next_time(tmp_path, monkeypatch):
    words = ("evaluate", str(tmp_path / "a"), "--episodes", "2")
    create_group(tmp_path / "a", "", Settings(), [0], overwrite=False)
    steps = [Step("a", words, False, folder=tmp_path / "a")]
    options = ReproduceOptions(entry="table1", out=tmp_path, retries=0)
    status = 1
    monkeypatch.setattr(here, "words_of", lambda words: [sys.executable, "-c", f"import sys; sys.exit({status})"])
    with pytest.raises(UserError, match="ended with status 1"):
        make.do(steps, options)
    assert not plan.is_played(tmp_path / "a", words)
    assert not (tmp_path / "times.csv").exists()
    status = 0
    make.do(steps, options)
    assert plan.is_played(tmp_path / "a", words)
    assert (tmp_path / "times.csv").read_text().count("evaluate a") == 1


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
    assert report.count("<details>") == 2  # what it cost, and how it was played
    assert "<td>xor_rank</td>" in report
    assert "<strong>Not comparable</strong>" in report
    assert not re.search(r"(src|href)=.?(http|//)", report)


SMALLEST = {
    "table1": "xor_mappo_2x2",
    "xor-masks": "xor_floor_2x2",
    "spread": "spread_gsa",
    "food": "food_rank",
    "heatmap": "food_none",
    "table2": "smaclite_mappo",
    "transfer": "smaclite_rank",
    "large-teams": "xor_rank_5x5",
    "two-cores": "spread-cpu_rank",
    "dispatch": "dispatch_rank",
    "one-point": "spread_none_start=depot",
    "faults": "xor_rank_2x2",
    "commitments": "xor_commitments_2x3",
    "attention": None,
    "speed": None,
}
"""A group of every entry that has some."""


@pytest.mark.long
@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_made_from_nothing(name, tmp_path):
    entry = ENTRIES[name]
    some = [replace(each, plays=each.plays[:1]) for each in entry.wanted if each.group.name == SMALLEST[name]]
    assert len(some) == (SMALLEST[name] is not None)
    steps = list(plan.plan(entry, some, "smoke", [0], tmp_path))
    assert bool(steps) == (name != "speed")  # its benches take minutes
    for step in steps:
        assert run_command(list(step.words)) == 0
    write_entry(name, entry, some, [tmp_path], "smoke")
    made = json.loads((tmp_path / f"{name}.json").read_text())
    assert bool(made["tables"]) == bool(some)
    assert bool(made["pictures"]) == (name == "attention" or entry.figure in ("team_size", "heatmap"))


def _as_seed_1(group: Path, other: Path) -> None:
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


# --- From rows ------------------------------------------------------------------------------------


def _wanted(entry: str, name: str) -> Wanted:
    return next(each for each in ENTRIES[entry].wanted if each.group.name == name)


def _made_up(group: Group, out: Path, rows: Sequence[Mapping], seed: int = 0) -> Path:
    """A run of the group's own settings that was never trained, and rows of it that were never played."""
    folder = out / group.name / f"seed_{seed}"
    folder.mkdir(parents=True)
    settings = plan.training(group, "full")[1]
    described = {"format": FORMAT, "preset": group.train[0], "seed": seed, "group_seeds": list(range(group.seeds))}
    write_json(folder / "settings.json", {**described, "started_from": None, "settings": to_json(settings)})
    write_json(folder / "environment.json", {"commit": "c0ffee", "device": "cpu: cpu", "versions": {"jax": "1"}})
    append_rows(folder / "episodes.csv", rows)
    return folder


def _rows(agents: int, tasks: int, *, dropout: str = "off", plays=("greedy", "sampled"), score="return", **varied):
    where = {"checkpoint": 1, "simulator": "own", "agents": agents, "tasks": tasks, **varied}
    measures = dict.fromkeys(("length", "return", score), 1.0)
    return [{**where, "play": play, "dropout": dropout, "seed": 0, "episode": 0, **measures} for play in plays]


def _made(entry: str, wanted: Sequence[Wanted], out: Path) -> dict:
    write_entry(entry, ENTRIES[entry], wanted, [out], "full")
    return json.loads((out / f"{entry}.json").read_text())


def test_a_table_shows_the_games_that_its_entry_has_played_and_no_others(tmp_path):
    """Groups are shared: in one folder lies what every entry has them play."""
    battles = [
        row
        for name, size in (("2s3z", (5, 5)), ("3s5z", (8, 8)), ("3s5z_vs_3s6z", (8, 9)), ("3s_vs_5z", (3, 5)))
        for jitter in (0.0, 0.5)
        for row in _rows(*size, score="battle_won", map=name, jitter=jitter)
    ]
    rank = _wanted("table2", "smaclite_rank")
    _made_up(rank.group, tmp_path, battles)
    assert _made("table2", [rank], tmp_path)["tables"][0]["headings"][4:] == ["2s3z", "3s5z"]
    transfer = _made("transfer", [_wanted("transfer", "smaclite_rank")], tmp_path)
    assert len(transfer["tables"][0]["headings"][4:]) == 8

    sizes = [row for n in (3, 5) for row in _rows(n, n, score="success")]
    faulty = _rows(5, 5, score="success", plays=("greedy", "greedy lost=0.5"))
    players = _wanted("commitments", "xor_commitments")
    _made_up(players.group, tmp_path, [*sizes, *faulty])
    assert _made("commitments", [players], tmp_path)["tables"][0]["headings"][4:] == ["3x3"]
    faults = _made("faults", [_wanted("faults", "xor_commitments")], tmp_path)
    assert faults["tables"][0]["headings"] == ["broadcast", "xor_commitments at 5x5"]

    spread = _wanted("spread", "spread_none")
    _made_up(spread.group, tmp_path, [row for n in (2, 4, 16) for row in _rows(n, n)])
    page = _made("spread", [spread], tmp_path)["tables"][0]
    assert page["headings"][4:] == ["2x2", "4x4"]
    assert page["rows"][0][4:] == ["0.5", "0.2"]  # greedy alone: sampled play is another entry's
    page = _made("one-point", [_wanted("one-point", "spread_none")], tmp_path)["tables"][0]
    assert (page["headings"][4:], page["rows"][0][4:]) == (["4x4"], ["0.2 / 0.2"])
    # What is packed is all that was played, whoever asked for it.
    unpack(tmp_path / "spread.runs.tar.xz", tmp_path / "again")
    assert len(read_rows(tmp_path / "again" / "spread_none" / "seed_0" / "episodes.csv")) == 6


def test_the_paper_has_one_number_for_a_map_and_one_line_for_dropout(tmp_path):
    rank, dropout = _wanted("table2", "smaclite_rank"), _wanted("table2", "smaclite_dropout")
    _made_up(rank.group, tmp_path, _rows(5, 5, score="battle_won", map="2s3z", jitter=0.0))
    ways = [_rows(5, 5, score="battle_won", map="2s3z", jitter=0.0, dropout=way) for way in ("on", "off")]
    _made_up(dropout.group, tmp_path, [row for rows in ways for row in rows])
    table = _made("table2", [rank, dropout], tmp_path)["tables"][0]
    assert [row[0] for row in table["rows"]] == [
        *("rank mask", "dropout, on in play", "dropout, off in play"),
        *("rank mask, the paper's", "dropout, the paper's"),
    ]
    assert [row[4] for row in table["rows"][3:]] == ["0.83", "1.00"]
    assert "The paper has one number, and does not say how it played." in table["above"]
    assert "The paper has one line for dropout, and does not say whether it was on in play." in table["above"]


def test_seeds_that_failed_and_seeds_that_are_missing_stand_above_a_full_table(tmp_path):
    wanted = _wanted("table1", "xor_rank_2x2")
    for seed in (0, 4):
        _made_up(wanted.group, tmp_path, _rows(2, 2, score="success"), seed)
    failed = _made_up(wanted.group, tmp_path, [], seed=1)
    write_json(failed / "failed.json", {"sentence": "The loss was not finite."})
    made = _made("table1", [wanted], tmp_path)
    assert "Training seeds that are missing: xor_rank_2x2 2,3,5,6,7,8,9." in made["about"]
    assert "Training seeds that failed: xor_rank_2x2 1." in made["about"]
    assert made["tables"][0]["rows"][0][3] == "2/3"
    assert not any("Not comparable" in each for each in made["about"])
    # A group whose every seed failed was made, and one that was never played was not.
    every = Entry("T", (wanted, _wanted("table1", "xor_none_2x2"), _wanted("table1", "xor_mappo_2x2")))
    write_json(_made_up(every.wanted[1].group, tmp_path, []) / "failed.json", {"sentence": "It diverged."})
    _made_up(every.wanted[2].group, tmp_path, [])
    write_entry("table1", every, every.wanted, [tmp_path], "full")
    assert "\n- Not made: xor_mappo_2x2.\n" in (tmp_path / "table1.md").read_text()


def test_a_page_says_how_each_group_was_played(tmp_path):
    rank, dropout = _wanted("table1", "xor_rank_2x2"), _wanted("table1", "xor_dropout_2x2")
    _made_up(rank.group, tmp_path, _rows(2, 2, score="success"))
    _made_up(dropout.group, tmp_path, _rows(2, 2, score="success", dropout="on"))
    made = _made("table1", [rank, dropout], tmp_path)
    assert made["tables"][-1]["rows"] == [
        ["--players 2 --episodes 1000", "xor_rank_2x2"],
        ["--dropout on --players 2 --episodes 1000", "xor_dropout_2x2"],
        ["--dropout off --players 2 --episodes 1000", "xor_dropout_2x2"],
    ]
    assert "versions, flags and every episode of each are in `table1.runs.tar.xz`" in made["about"][-1]
    _made_up(_wanted("faults", "xor_floor_2x2").group, tmp_path, _rows(2, 2, score="success"))
    faults = _made("faults", [_wanted("faults", "xor_floor_2x2")], tmp_path)["tables"][-1]
    assert faults["rows"] == [["--players 2 --greedy --episodes 1000", "xor_floor_2x2"]]
    assert "`--broadcast.NAME VALUE`" in faults["above"][-1]


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


@pytest.mark.parametrize("name", PACKED)
def test_packed_rows_are_of_the_settings_that_the_list_asks_for_now(tmp_path, name):
    """A number changed in the list would make its rows another training's: then they are trained anew, or renamed."""
    unpack(PACKED[name], tmp_path)
    groups = {each.group.name: each.group for each in ENTRIES[name].wanted}
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders
    wrong = [f"{group}: the entry {name} has no such group" for group in folders if group not in groups]
    for group in (groups[folder] for folder in folders if folder in groups):
        try:
            gather(group, [tmp_path], "full")
        except UserError as error:
            wrong.append(f"{group.name}: {error}")
    assert not wrong, f"{PACKED[name].relative_to(ROOT)} cannot be redrawn:\n" + "\n".join(wrong)


LARGE = 1 << 18
"""Bytes of packed rows that take longer than a few seconds to draw."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if file.stat().st_size > LARGE else ())
        for name, file in PACKED.items()
    ],
)
def test_committed_pages_are_what_their_rows_make(tmp_path, name):
    unpack(PACKED[name], tmp_path / "rows")
    some = [each for each in ENTRIES[name].wanted if (tmp_path / "rows" / each.group.name).exists()]
    write_entry(name, ENTRIES[name], some, [tmp_path, tmp_path / "rows"], "full")
    for ending in (".csv", ENDING, ".md"):
        made, committed = ((folder / (name + ending)).read_bytes() for folder in (tmp_path, ROOT / "results"))
        if ending == ".md":
            made, committed = (re.sub(rb"\n- Command: .*", b"", page) for page in (made, committed))
        assert made == committed, f"results/{name}{ending} is not what its rows make; draw it again with --redraw"


def test_wanted_stands_in_a_line_of_its_own_unless_said():
    group = TABLE_1.wanted[0].group
    assert Wanted(group, ()).line == group.name
    assert Wanted(group, (), row="x").line == "x"
