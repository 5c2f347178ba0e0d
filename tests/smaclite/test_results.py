"""From `diamond table --json` to results/smaclite.csv and the README's table, with numbers made up by hand."""

import json
from pathlib import Path

import pytest

from diamond_attention.errors import UserError


@pytest.fixture
def smaclite_results(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import smaclite_results

    return smaclite_results


def line(mask: str, played: str, play: str, per_seed: list[float], **others) -> dict:
    return {
        "world": "smaclite",
        "preset": "smaclite-gpu",
        "overrides": "",
        "mask": mask,
        "trained_on": "2s3z",
        "map": played,
        "jitter": "0.0",
        "play": play,
        "dropout": "off",
        "measure": "battle_won",
        "episodes": 256,
        "seeds": list(range(len(per_seed))),
        "per_seed": per_seed,
        "commit": "abc",
        "device": "cuda: H200",
        **others,
    }


def add(smaclite_results, file: Path, lines: list[dict]) -> list[dict[str, str]]:
    table = file.with_suffix(".json")
    table.write_text(json.dumps(lines))
    rows = smaclite_results.rows_of(table, None)
    smaclite_results.result_rows.add(file, smaclite_results.COLUMNS, smaclite_results.WHAT, rows)
    return smaclite_results.result_rows.read(file)


def cells(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in markdown.splitlines() if row[:1] == "|"]


def test_one_row_a_seed_and_condition(smaclite_results, tmp_path):
    file = tmp_path / "smaclite.csv"
    lines = [line("rank", "3s5z", "sampled", [0.5, 0.75]), line("rank", "3s5z", "greedy", [0.0, 1.0])]
    rows = add(smaclite_results, file, lines)
    assert [(row["play"], row["seed"], row["win_rate"]) for row in rows] == [
        ("greedy", "0", "0.0"),
        ("greedy", "1", "1.0"),
        ("sampled", "0", "0.5"),
        ("sampled", "1", "0.75"),
    ]
    assert {(row["map"], row["trained_on"], row["episodes"], row["device"]) for row in rows} == {
        ("3s5z", "2s3z", "256", "cuda: H200")
    }
    # Played again: the same seed and condition is one row. Other starts are another condition.
    again = [line("rank", "3s5z", "greedy", [0.25]), line("rank", "3s5z", "greedy", [0.125], jitter="0.5")]
    rows = add(smaclite_results, file, again)
    greedy = [(row["jitter"], row["seed"], row["win_rate"]) for row in rows if row["play"] == "greedy"]
    assert greedy == [("0.0", "0", "0.25"), ("0.0", "1", "1.0"), ("0.5", "0", "0.125")]


def test_the_table_has_the_paper_s_numbers_and_says_what_the_sample_is(smaclite_results, tmp_path):
    rows = add(
        smaclite_results,
        tmp_path / "smaclite.csv",
        [
            line("none", "3s5z", "sampled", [0.5, 0.5]),
            line("rank", "3s5z", "sampled", [0.5, 0.75]),
            line("rank", "3s5z", "greedy", [0.5], jitter="0.5"),
            line("rank", "3s5z", "greedy", [0.9, 0.9], jitter="2.0"),  # in the file, not in the table
            line("rank", "2s3z", "sampled", [1.0, 1.0]),
            line("rank", "3s_vs_5z", "sampled", [0.0], trained_on="2s3z,3s_vs_5z"),
            line("dropout", "2s3z", "sampled", [1.0, 1.0], dropout="on"),
        ],
    )
    text = smaclite_results.markdown(rows)
    assert "256 battles for each seed" in text
    assert "practically one game" in text
    _, _, *table = cells(text)
    columns = [[row[0], row[2], row[3], row[4], row[6], row[7], row[9]] for row in table]
    assert columns == [
        ["**rank mask**", "2s3z", "2s3z", "2", "1.000 [1.000, 1.000]", "", "0.832"],
        ["dropout, on in play", "2s3z", "2s3z", "2", "1.000 [1.000, 1.000]", "", "1.000"],
        ["**rank mask**", "2s3z", "3s5z, zero-shot", "2", "0.625 [0.500, 0.750]", "0.500, 1 of 2 seeds", "0.497"],
        ["no mask", "2s3z", "3s5z, zero-shot", "2", "0.500 [0.500, 0.500]", "", "0.000"],
        ["**rank mask**", "2s3z, 3s_vs_5z", "3s_vs_5z", "1", "0.000", "", ""],
    ]


def test_without_rows_there_is_no_table(smaclite_results, tmp_path, monkeypatch):
    monkeypatch.setattr(smaclite_results, "RESULTS", tmp_path / "none.csv")
    readme = "before\n<!-- smaclite:begin -->\nold\n<!-- smaclite:end -->\nafter\n"
    assert smaclite_results.with_tables(readme) == "before\n<!-- smaclite:begin -->\n\n<!-- smaclite:end -->\nafter\n"


def test_tables_of_other_worlds_are_refused(smaclite_results, tmp_path):
    table = tmp_path / "table.json"
    table.write_text(json.dumps([line("rank", "", "greedy", [1.0], measure="success")]))
    with pytest.raises(UserError, match="no win rate"):
        smaclite_results.rows_of(table, None)


def test_scripted_teams_are_compared_row_by_row_and_together(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import smaclite_statistics

    # Ours, made up: half of 1,000 battles. The original: the same, and far fewer.
    monkeypatch.setattr(smaclite_statistics, "play", lambda *_: (500, 1000, 0))
    equal, different = {"numpy": (50, 100), "C++": (50, 100)}, {"numpy": (20, 100), "C++": (50, 100)}
    rows = smaclite_statistics.compare(
        {("2s3z", "nearest", 0.1): equal, ("3s5z", "nearest", 0.1): different}, 1000, 0
    )
    assert [(row["original_backend"], row["map"], row["verdict"]) for row in rows] == [
        ("numpy", "2s3z", "not told apart"),
        ("numpy", "3s5z", "differs"),
        ("numpy", "all", "differs"),
        ("C++", "2s3z", "not told apart"),
        ("C++", "3s5z", "not told apart"),
        ("C++", "all", "not told apart"),
    ]
    assert (rows[2]["won"], rows[2]["episodes"], rows[2]["original_win_rate"]) == (1000, 2000, "0.3500")


def test_a_scripted_team_plays_so_many_battles(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import smaclite_statistics

    monkeypatch.setattr(smaclite_statistics, "EPISODES_AT_ONCE", 2)
    won, played, dropped = smaclite_statistics.play("2s_vs_1sc", "nearest", 0.1, 3, 0)
    assert (played, dropped) == (4, 0)
    assert 0 <= won <= 4
