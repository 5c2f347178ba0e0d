"""From `diamond table --json` to results/smaclite.csv and its tables, with numbers made up by hand."""

import json
import re
from pathlib import Path

import pytest

from diamond_attention.errors import UserError

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def smaclite_results(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
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
    rows = smaclite_results.rows_of(lines, None)
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


def test_the_tables_have_the_paper_s_numbers_and_say_how_many_seeds(smaclite_results, tmp_path):
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
    tables = dict(zip(re.findall(r"\*\*Played on (\w+)\*\*", text), text.split("**Played on ")[1:], strict=True))
    found = {
        played: [[row[0], row[2], row[3], row[5], row[6], row[8]] for row in cells(table)[2:]]
        for played, table in tables.items()
    }
    assert found == {
        "2s3z": [
            ["**rank mask**", "2s3z", "2", "1.000 [1.000, 1.000]", "", "0.832"],
            ["dropout, on in play", "2s3z", "2", "1.000 [1.000, 1.000]", "", "1.000"],
        ],
        "3s5z": [
            ["**rank mask**", "2s3z, zero-shot", "2", "0.625 [0.500, 0.750]", "0.500, 1 of 2 seeds", "0.497"],
            ["no mask", "2s3z, zero-shot", "2", "0.500 [0.500, 0.500]", "", "0.000"],
        ],
        "3s_vs_5z": [["**rank mask**", "2s3z, 3s_vs_5z", "1", "0.000", "", ""]],
    }
    assert cells(smaclite_results.short(rows))[2] == ["rank mask", "1.00", "0.62", ""]


def test_without_rows_there_is_no_table(smaclite_results):
    assert smaclite_results.markdown([]) == ""


def test_lines_without_a_win_rate_are_refused(smaclite_results):
    with pytest.raises(UserError, match="no win rate"):
        smaclite_results.rows_of([line("rank", "", "greedy", [1.0], measure="success")], None)


def test_rows_go_to_the_file_of_their_world(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import tables

    for keeper in tables.KEEPERS.values():
        monkeypatch.setattr(keeper, "RESULTS", tmp_path / f"{keeper.__name__}.csv")
    table = tmp_path / "table.json"
    table.write_text(json.dumps([line("rank", "3s5z", "greedy", [1.0])]))
    tables.add(table, commit="def")
    assert [row["commit"] for row in tables.result_rows.read(tmp_path / "smaclite_results.csv")] == ["def"]
    table.write_text(json.dumps([line("rank", "", "greedy", [1.0], world="moon")]))
    with pytest.raises(UserError, match="lines of the world 'moon'"):
        tables.add(table, None)


def test_a_page_s_tables_are_made_between_its_markers(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import result_rows

    page = "before\n<!-- one:begin -->\nold\n<!-- one:end -->\nafter\n"
    assert result_rows.with_tables(page, {"one": lambda: "new"}) == page.replace("old", "new")
    with pytest.raises(UserError, match="marker 'one'"):
        result_rows.with_tables(page, {"two": lambda: "new"})


def scripted(won: int, episodes: int, map_name: str = "2s3z", **others: str) -> dict[str, str]:
    team = {"map": map_name, "rule": "nearest", "share_random": "0.10"}
    return {**team, "won": str(won), "episodes": str(episodes), **others}


def test_scripted_teams_are_compared_line_by_line_and_together(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import smaclite_statistics

    # Ours, made up: half of 1,000 battles. The original: the same, and far fewer.
    ours = [scripted(500, 1000), scripted(500, 1000, "3s5z")]
    original = [
        scripted(won, 100, map_name, backend=backend, sample=sample)
        for backend, sample in smaclite_statistics.SAMPLES
        for map_name, won in (("2s3z", 50), ("3s5z", 20 if (backend, sample) == ("numpy", "first") else 50))
    ]
    _, _, first, second, together = cells(smaclite_statistics.markdown(ours, original))
    assert first == ["nearest, 10% random", "2s3z", "0.500", "0.500 of 100", "1.000", *["0.500 of 100", "1.000"] * 2]
    assert second[3:7] == ["0.200 of 100", "0.000", "0.500 of 100", "1.000"]
    assert together[2] == "2,000 battles"
    assert together[4::2] == ["0.000", "1.000", "1.000"]


def test_paired_battles_are_tested_where_it_is_known_who_won_alone(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import smaclite_statistics

    known = {"teams": "all", "precision": "float32", "battles": "1000", "original_won": "", "here_won": ""}
    unknown = known | {"precision": "float64", "original_won": "300", "here_won": "301", "original_only": ""}
    rows = [known | {"original_only": "0", "here_only": "5"}, unknown | {"here_only": ""}]
    _, _, first, second = cells(smaclite_statistics.paired(rows))
    assert first == ["all", "float32", "1,000", "", "", "0", "5", "0.06"]  # two in thirty-two
    assert second == ["all", "float64", "1,000", "300", "301", "", "", ""]


def test_a_scripted_team_plays_so_many_battles(monkeypatch):
    """Who attacks the nearest and never strays wins 2s3z every time, in the original as here."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import smaclite_statistics

    monkeypatch.setattr(smaclite_statistics, "EPISODES_AT_ONCE", 2)
    assert smaclite_statistics.play("2s3z", "nearest", 0.0, 3, 0) == (4, 4, 0)
