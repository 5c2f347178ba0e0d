"""From entries to commands: the ones anybody could type, in order, which of them are done, and how long they take."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from diamond_attention.command_words import parse_train
from diamond_attention.jobs.contract import Step, Words
from diamond_attention.reproduce.entries import Entry, Group, Wanted
from diamond_attention.runs.files import is_there, make_folders, read_json, write_json
from diamond_attention.runs.folder import (
    Run,
    check_same_seeds,
    check_same_training,
    find_runs,
    has_ended,
    is_run,
    seeds_in,
)
from diamond_attention.runs.settings import Settings

Scale = Literal["smoke", "quick", "full"]
SHORTENED = {
    "smoke": "two updates of tiny networks, to see that everything runs",
    "quick": "one seed, smaller batches and far fewer steps",
}
"""What is done to a training of that scale, to stand above its table."""
LARGEST: dict[Scale, dict[str, int]] = {
    "smoke": {"envs": 4, "steps": 2, "batch": 4, "replay": 16, "warmup": 8, "gradient_steps": 1, "epochs": 1},
    "quick": {"envs": 128, "batch": 256, "replay": 8192, "warmup": 2048, "gradient_steps": 8, "epochs": 1},
}
"""Settings of methods that are lowered to this where they are larger. XOR is quick as it is."""
MOST_STEPS: dict[Scale, int] = {"smoke": 16, "quick": 10_000}
QUICK_STEPS_OF_XOR = 40_000
"""Which solve it."""
WIDEST: dict[Scale, int] = {"smoke": 8, "quick": 32}
"""Of networks."""
SHARE_OF_EPISODES = 8
TIMES = Path(__file__).with_name("times.csv")
"""How long steps took: a copy of what `note_ended` writes."""


def chosen(wanted: Sequence[Wanted], scale: Scale) -> list[Wanted]:
    return [each for each in wanted if each.quick or scale == "full"]


def plan(entry: Entry, wanted: Sequence[Wanted], scale: Scale, seeds: Sequence[int], out: Path) -> Iterator[Step]:
    """The commands that make an entry with these groups, those that are done marked. No seeds: each group's own."""
    for each in wanted:
        folder = out / each.group.name
        yield train_step(each.group, scale, seeds or seeds_of(each.group, scale), folder)
        for play in each.plays:
            words = ("evaluate", str(folder), *at_scale(play, scale))
            yield Step(each.group.name, words, is_played(folder, words), folder=folder)
    device = "gpu" if scale == "full" else "cpu"
    for command in entry.commands if scale != "smoke" else ():
        *told, name = (word.format(device=device) for word in command)
        yield Step(name, (*told, str(out / name)), is_there(out / name))


def seeds_of(group: Group, scale: Scale) -> range:
    return range(group.seeds if scale == "full" else 1)


def train_step(group: Group, scale: Scale, seeds: Sequence[int], folder: Path) -> Step:
    words, settings = training(group, scale)
    runs = runs_in(folder, group, scale)
    if not runs:
        asked = ("--seeds", ",".join(map(str, seeds)), "--out", str(folder), "--resume")
        return Step(group.name, ("train", *words, *asked), False, settings.total_steps, folder)
    check_same_seeds(runs[0], seeds, "name another folder with --out, and put both in one table with --merge")
    # A policy alone, such as a shipped one put there, has nothing to go on from.
    ended = all(map(has_ended, runs))
    return Step(group.name, ("resume", str(folder)), ended, settings.total_steps, folder)


@cache
def training(group: Group, scale: Scale) -> tuple[Words, Settings]:
    """What `diamond train` is told of a group, and the settings that it makes of it."""
    preset, *options = group.train
    settings = parse_train(preset, options).settings
    words = (*group.train, *shortened(settings, scale))
    return words, settings if words == group.train else parse_train(preset, words[1:]).settings


def runs_in(folder: Path, group: Group, scale: Scale) -> list[Run]:
    """The runs of a group in a folder. A shorter training, or one with other settings, may not stand in its table."""
    members = [member for member in seeds_in(folder) if is_run(member)] if is_there(folder) else []
    runs = find_runs(members)
    for run in runs:
        check_same_training(run, training(group, scale)[1])
    return runs


def shortened(settings: Settings, scale: Scale) -> Words:
    """The options that make a training of these settings shorter."""
    if scale == "full":
        return ()
    if (scale, settings.world.name) == ("quick", "xor"):
        return ("--total-steps", str(min(settings.total_steps, QUICK_STEPS_OF_XOR)))
    words = ["--total-steps", str(min(settings.total_steps, MOST_STEPS[scale]))]
    for name, largest in LARGEST[scale].items():
        value = getattr(settings.method, name, 0)
        if value > largest:
            words += [f"--{settings.method.name}.{name.replace('_', '-')}", str(largest)]
    if getattr(settings.method, "precision", "float32") != "float32":  # which a CPU has no instructions for
        words += [f"--{settings.method.name}.precision", "float32"]
    if getattr(settings.policy, "width", 0) > WIDEST[scale]:
        words += ["--policy.width", str(WIDEST[scale])]
    words += ["--checkpoint-every", "1"] if scale == "smoke" else []
    return tuple(words)


def at_scale(play: Words, scale: Scale) -> Words:
    """The same play with fewer episodes."""
    fewer = {"full": int(play[-1]), "quick": max(2, int(play[-1]) // SHARE_OF_EPISODES), "smoke": 2}
    return (*play[:-1], str(fewer[scale]))


# --- What was played ------------------------------------------------------------------------------


def _played_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.played.json")


def is_played(folder: Path, words: Sequence[str]) -> bool:
    file = _played_file(folder)
    return is_there(file) and list(words) in read_json(file).get("commands", [])


def note_played(folder: Path, words: Sequence[str]) -> None:
    """An evaluation that is repeated adds no rows, so a kill before this note costs time and nothing else."""
    file = _played_file(folder)
    before = read_json(file).get("commands", []) if is_there(file) else []
    make_folders(file.parent)
    write_json(file, {"commands": [*before, list(words)]})


# --- How long it takes ----------------------------------------------------------------------------


@cache
def known_times(scale: Scale) -> Mapping[str, float]:
    """Mean seconds of steps, by what they do, as they were measured: quick on two cores, full on one H200."""
    measured: dict[str, list[float]] = defaultdict(list)
    with open(TIMES, newline="") as file:
        for row in csv.DictReader(file):
            if row["scale"] == scale:
                measured[row["what"]].append(float(row["seconds"]))
    return {what: sum(seconds) / len(seconds) for what, seconds in measured.items()}


def described(steps: Sequence[Step], scale: Scale) -> Iterator[str]:
    """A line for each step, and one about all of them."""
    known = known_times(scale)
    waiting = [step for step in steps if not step.done]
    for step in steps:
        seconds = f"{known[step.what]:5.0f} s" if step.what in known else "      ?"
        yield f"{'done ' if step.done else 'to do'} {seconds}  diamond {' '.join(step.words)}"
    unknown = sum(step.what not in known for step in waiting)
    total = sum(known.get(step.what, 0) for step in waiting)
    device = {"full": "one H200", "quick": "two CPU cores, two groups at a time"}.get(scale)
    if waiting and device and unknown < len(waiting):
        more = f", and {unknown} steps whose time is not known" if unknown else ""
        yield f"{len(waiting)} steps to do: {total / 60:.0f} min of work, as measured on {device}{more}."
