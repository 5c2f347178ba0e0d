"""The README's tables of Simple Spread, from rows and measurements made up for the purpose."""

import csv
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def particle_results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import particle_results

    monkeypatch.setattr(particle_results, "RESULTS", tmp_path / "particles.csv")
    return particle_results


def write_rows(particle_results, scores):
    """`scores`: (mask, agents) -> R of seeds 0, 1, …"""
    same = {"world": "spread", "preset": "p", "simulator": "vmas", "play": "greedy", "dropout": "off", "episodes": 64}
    with open(particle_results.RESULTS, "w", newline="") as file:
        writer = csv.DictWriter(file, particle_results.COLUMNS)
        writer.writeheader()
        for (mask, agents), per_seed in scores.items():
            for seed, score in enumerate(per_seed):
                writer.writerow({**same, "mask": mask, "agents": agents, "tasks": agents, "seed": seed, "R": score})


def cells(table, line=0):
    return [cell.strip() for cell in table.splitlines()[2 + line].strip("|").split("|")]


def test_differences_are_over_the_seeds_both_have(particle_results):
    none, floor = [-40.0, -50.0, -60.0, -70.0], [-36.0, -45.0, -54.0]  # a tenth better in every pair
    write_rows(
        particle_results,
        {("none", 4): none, ("floor", 4): floor, ("none", 5): none, ("floor", 5): floor[:1], ("none", 6): none},
    )
    name, preset, pairs, at_2, at_3, at_4, at_5, at_6, *_ = cells(particle_results.against_no_mask())
    assert (name, preset, pairs) == ("learned floor", "p", "3")
    assert at_4 == "+10.0 [+10.0, +10.0]"
    assert at_2 == at_3 == at_5 == at_6 == ""  # one pair has no spread, none no difference


def test_scores_have_student_s_interval_at_home(particle_results):
    write_rows(particle_results, {("rank", n): [-57.0, -53.0, -61.0] for n in range(2, 9)})
    assert cells(particle_results.scores("spread", "vmas", None, {}))[-1] == "[-66.9, -47.1]"


def test_vmas_stands_beside_the_simulation_that_computes_as_much(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import speed_results

    row = {"envs": 64, "agents": 4, "steps_per_second": 3e6, "steps_per_second_with_views": 2e6}
    found = {
        "simulation": [{**row, "vmas_steps_per_second": 2e4, "times_vmas": 100.0}],
        "training": [],
        "recorded_elsewhere": [],
        "vmas": "measured",
    }
    (tmp_path / "bench_spread_cpu.json").write_text(json.dumps(found))
    monkeypatch.setattr(speed_results, "RESULTS", tmp_path)
    table = speed_results.spread()
    assert cells(table, 0)[0::3] == ["simulation, alone", "3,000,000"]
    assert cells(table, 0)[-1] == ""
    assert cells(table, 1)[0::3] == ["simulation, with views", "2,000,000"]
    assert cells(table, 1)[-1] == "VMAS, same run: 20,000"
