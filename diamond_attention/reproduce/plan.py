"""From entries to commands: the ones anybody could type, in order, which of them are done, and how long they take."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from diamond_attention.command_words import parse_train
from diamond_attention.jobs.contract import Step, Words
from diamond_attention.reproduce.entries import ENTRIES, Entry, Group, Wanted
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
from diamond_attention.runs.presets import PRESETS
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
"""How long steps took, and on what: what `note_ended` wrote and, for full, what experiments/full_times.py did."""


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
    for command in entry.commands:
        if scale == "smoke" and command[0] == "bench":  # which measures for minutes
            continue
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


class Known(NamedTuple):
    """How long a step took: a training with compiling, an evaluation with starting its process."""

    seconds: float
    device: str


@cache
def known_times(scale: Scale) -> Mapping[str, Known]:
    """Mean seconds of steps, by what they do, and where they were measured."""
    measured: dict[str, list[Known]] = defaultdict(list)
    with open(TIMES, newline="") as file:
        for row in csv.DictReader(file):
            if row["scale"] == scale:
                measured[row["what"]].append(Known(float(row["seconds"]), row["device"]))
    return {what: Known(_mean([each.seconds for each in known]), known[0].device) for what, known in measured.items()}


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


MAKES_LONGER = ("--method", "--policy.kind", "--players", "--actions", "--agents", "--tasks")
"""What steps that are like each other are told alike."""


class Guesses:
    """How long steps take that were never timed: as long as those like them, for every training step and seed."""

    def __init__(self, known: Mapping[str, Known], scale: Scale):
        self._groups = {each.group.name: each.group for entry in ENTRIES.values() for each in entry.wanted}
        self._closest = slice(1) if scale == "full" else slice(None)
        self._like: dict[Words, list[float]] = defaultdict(list)
        for what, (seconds, _) in known.items():
            command, name = what.split(" ", 1)
            if name in self._groups:
                for like in self._likes(command, name):
                    self._like[like].append(seconds / self._size(command, name, scale))
        self._scale = scale

    def seconds(self, step: Step) -> float | None:
        """None where nothing is like it."""
        if step.group in self._groups:
            for like in self._likes(step.words[0], step.group):
                if like in self._like:
                    return _mean(self._like[like]) * self._size(step.words[0], step.group, self._scale)
        return None

    def _likes(self, command: str, name: str) -> Sequence[Words]:
        """From what is closest to what is all that is left. In full, only what is closest says how long it takes; a
        short training mostly compiles, whatever it is.
        """
        preset, *told = self._groups[name].train
        kinds = [after for word, after in pairwise(told) if word in MAKES_LONGER]
        world = PRESETS[preset][1].world.name
        return [(command, preset, *kinds), (command, world), (command,)][self._closest]

    def _size(self, command: str, name: str, scale: Scale) -> int:
        group = self._groups[name]
        steps = training(group, scale)[1].total_steps if command == "train" else 1
        return steps * len(seeds_of(group, scale))


def described(steps: Sequence[Step], scale: Scale) -> Iterator[str]:
    """A line for each step, and one about all of them."""
    known = known_times(scale)
    guesses = Guesses(known, scale)
    measured: dict[str, float] = defaultdict(float)
    guessed, unknown = 0.0, 0
    for step in steps:
        like = None if step.what in known else guesses.seconds(step)
        if step.what in known:
            seconds, device = known[step.what]
            measured[device] += 0 if step.done else seconds
            time = f"{seconds:6.0f} s"
        elif like is not None:
            guessed += 0 if step.done else like
            time = f"~{like:5.0f} s"
        else:
            unknown += not step.done
            time = "       ?"
        yield f"{'done ' if step.done else 'to do'} {time}  diamond {' '.join(step.words)}"
    waiting = sum(not step.done for step in steps)
    parts = [f"{seconds / 60:.0f} min as measured on {device}" for device, seconds in measured.items() if seconds]
    parts += [f"{guessed / 60:.0f} min guessed from steps like them"] if guessed else []
    if parts:
        total = f"{(sum(measured.values()) + guessed) / 60:.0f} min of work ({', '.join(parts)})"
        more = (
            f", and {unknown} of them ({unknown / waiting:.0%}) for which nothing tells how long" if unknown else ""
        )
        yield f"{waiting} steps to do: {total}{more}."
