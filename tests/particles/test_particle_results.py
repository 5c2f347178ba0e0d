"""Tables of Simple Spread, Food Collection and speed, from rows and measurements made up for the purpose."""

import csv
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from diamond_attention.reports.anchors import Anchor
from diamond_attention.reproduce.entries import ENTRIES

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"


@pytest.fixture
def particle_results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import particle_results

    monkeypatch.setattr(particle_results, "RESULTS", tmp_path / "particles.csv")
    return particle_results


def write_rows(particle_results, scores, **others):
    """`scores`: (mask, agents) or (mask, agents, tasks) -> R of seeds 0, 1, …"""
    same = {"world": "spread", "preset": "p", "simulator": "vmas", "play": "greedy", "dropout": "off", "episodes": 64}
    with open(particle_results.RESULTS, "w", newline="") as file:
        writer = csv.DictWriter(file, particle_results.COLUMNS)
        writer.writeheader()
        for (mask, *size), per_seed in scores.items():
            for seed, score in enumerate(per_seed):
                row = {**same, "mask": mask, "agents": size[0], "tasks": size[-1], "seed": seed, "R": score}
                writer.writerow({**row, **others})


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


def test_a_ratio_of_means_is_not_the_mean_of_ratios(particle_results):
    scores = {}
    for n in range(2, 9):
        # 10 % worse, 5 % better and level
        scores |= {("none", n): [-40.0, -80.0, -60.0], ("floor", n): [-44.0, -76.0, -60.0]}
    write_rows(particle_results, scores, preset="spread-gpu")
    table = particle_results.ways_to_form_the_ratio()
    assert cells(table, 0)[1].split()[0] == "+0.0"
    assert cells(table, 1)[1].split()[0] == "-1.7"


def test_scores_have_student_s_interval_at_home(particle_results):
    write_rows(particle_results, {("rank", n): [-57.0, -53.0, -61.0] for n in range(2, 9)})
    assert cells(particle_results.scores("spread"))[-1] == "[-66.9, -47.1]"


def test_sizes_are_counted_against_the_programmed_team_and_no_mask(particle_results, monkeypatch):
    """Three sizes, a programmed team that scores 0: ahead clearly, ahead on average, behind."""
    monkeypatch.setattr(
        particle_results,
        "programmed_team",
        lambda world: ("nobody", defaultdict(lambda: Anchor(mean=0.0, sd=0.0, episodes=512))),
    )
    split = {("split", 4, 4): [10.0, 11.0, 12.0], ("split", 5, 4): [-10.0, 5.0, 20.0], ("split", 6, 4): [-5.0] * 3}
    none = {("none", 4, 4): [11.0, 12.0, 13.0], ("none", 5, 4): [0.0, 0.0, 0.0], ("none", 6, 4): [-9.0] * 3}
    write_rows(particle_results, none | split, world="food", simulator="own", preset="food-gpu")
    table = particle_results.at_all_sizes("food")
    assert cells(table, 0) == ["no mask", "food-gpu", "3", "1 (1)", "1 (1)", ""]
    assert cells(table, 1) == ["half the heads", "food-gpu", "3", "2 (1)", "1 (1)", "1 (1)"]


def test_vmas_stands_beside_the_simulation_that_computes_as_much(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXPERIMENTS)
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


# --- The groups of seeds that were trained ---------------------------------------------------------


def listed_particles():
    """What `diamond train` is told of every group in the list."""
    lines = (EXPERIMENTS / "particles.groups").read_text().splitlines()
    return [line.split()[1:] for line in lines if line.strip() and not line.startswith("#")]


def listed_battles():
    """The same of what `diamond reproduce` trains on SMAClite: ours, and not yet all of it."""
    every = [each.group for name in ("table2", "transfer", "two-cores") for each in ENTRIES[name].wanted]
    ours = [group for group in every if group.train[0].startswith("smaclite") and "--method" not in group.train]
    return [[*group.train, "--seeds", f"0:{group.seeds}"] for group in ours]


def what_was_asked(words):
    """Preset, mask, further settings and the number of seeds of `diamond train WORDS`."""
    preset, *options = words
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    asked = dict(zip(names, options[1::2], strict=True))
    first, last = map(int, asked.pop("seeds").split(":"))
    return preset, asked.pop("policy.mask"), asked, set(range(first, last))


@pytest.mark.parametrize(
    ("name", "listed", "whole"), [("particles", listed_particles, True), ("smaclite", listed_battles, False)]
)
def test_every_row_has_a_group_that_was_trained_and_every_group_its_rows(name, listed, whole):
    seeds = defaultdict(set)
    with open(ROOT / "results" / f"{name}.csv", newline="") as file:
        for row in csv.DictReader(file):
            other_map = {} if row["trained_on"] in ("4x4", "2s3z") else {"world.map": row["trained_on"]}
            settings = dict(word.split("=") for word in row["overrides"].split()) | other_map
            numbers = {key: float(value) if key != "world.map" else value for key, value in settings.items()}
            seeds[row["preset"], row["mask"], frozenset(numbers.items())].add(int(row["seed"]))
    asked = {}
    for words in listed():
        preset, mask, settings, numbers = what_was_asked(words)
        values = {key: float(value) if key != "world.map" else value for key, value in settings.items()}
        asked[preset, mask, frozenset(values.items())] = numbers
    assert seeds.items() <= asked.items()
    assert not whole or asked == seeds


def test_groups_are_trained_and_exported_once(tmp_path):
    """With a `diamond` that only writes down what it is told and makes the folder of an export."""
    commands = tmp_path / "bin"
    commands.mkdir()
    diamond = commands / "diamond"
    export = "if [ $1 = export ]; then mkdir -p $4; fi"
    diamond.write_text(f'#!/bin/bash\necho "$@" >> "$LOG"; cat > /dev/null\n{export}\n')
    diamond.chmod(0o755)
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    groups = tmp_path / "some.groups"
    groups.write_text("# a comment\n\none  spread-gpu --seeds 0:5\ntwo  food-gpu --seeds 0:3 --world.caution 1\n")

    def train(*which):
        words = [EXPERIMENTS / "train_groups.sh", groups, "out", *which]
        answer = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        told = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
        (tmp_path / "log").write_text("")
        return answer, told

    assert train("three")[0].returncode == 2
    assert train("two")[1] == [
        "train food-gpu --seeds 0:3 --world.caution 1 --out out/runs/two --overwrite",
        "export out/runs/two --to out/policies/two",
    ]
    assert train()[1] == [
        "train spread-gpu --seeds 0:5 --out out/runs/one --overwrite",
        "export out/runs/one --to out/policies/one",
    ]
    assert train()[1] == []
