"""From an entry to commands: the ones anybody could type, in order, and which of them are done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diamond_attention.command_words import parse_train
from diamond_attention.errors import UserError
from diamond_attention.reproduce.entries import Group
from diamond_attention.runs.files import is_there, make_folders, read_json, write_json
from diamond_attention.runs.folder import Run, find_runs, is_run, seeds_in
from diamond_attention.runs.settings import Settings, flat, to_json

Scale = Literal["smoke", "quick", "full"]
SHORTENED = {"smoke": "two updates of tiny networks, to see that everything runs", "quick": "a quarter of the steps"}
"""What is done to a training of that scale, to stand above its table."""
SMOKE = {"envs": 4, "steps": 2, "batch": 8, "replay": 16, "warmup": 8, "gradient_steps": 1, "epochs": 1}
EPISODES = {"smoke": 2, "quick": 1000}


@dataclass(frozen=True)
class Step:
    """One command of the plan."""

    group: str
    words: tuple[str, ...]
    """What follows `diamond`."""
    done: bool


def plan(groups: Sequence[Group], scale: Scale, seeds: Sequence[int], out: Path) -> Iterator[Step]:
    """The commands that make these groups, those that are done already marked."""
    for group in groups:
        folder = out / group.name
        yield train_step(group, scale, seeds, folder)
        for play in group.plays:
            words = ("evaluate", str(folder), *at_scale(play, scale))
            yield Step(group.name, words, is_played(folder, words))


def train_step(group: Group, scale: Scale, seeds: Sequence[int], folder: Path) -> Step:
    words, _ = training(group, scale)
    runs = runs_in(folder, group, scale)
    if not runs:
        asked = ("--seeds", ",".join(map(str, seeds)), "--out", str(folder))
        return Step(group.name, ("train", *words, *asked), done=False)
    if set(runs[0].group_seeds) != set(seeds):
        there, wanted = (", ".join(map(str, each)) for each in (runs[0].group_seeds, seeds))
        raise UserError(
            f"{folder} was trained with seeds {there}, and {wanted} were asked for; name another folder with --out, "
            "and put both in one table with --merge."
        )
    ended = all(run.finished is not None or run.failure is not None for run in runs)
    return Step(group.name, ("resume", str(folder)), ended)


def training(group: Group, scale: Scale) -> tuple[tuple[str, ...], Settings]:
    """What `diamond train` is told of a group, and the settings that it makes of it."""
    preset, *options = group.train
    words = (preset, *options, *shortened(parse_train(preset, options).settings, scale))
    return words, parse_train(preset, words[1:]).settings


def runs_in(folder: Path, group: Group, scale: Scale) -> list[Run]:
    """The runs of a group in a folder. A shorter training, or one with other settings, may not stand in its table."""
    members = [member for member in seeds_in(folder) if is_run(member)] if is_there(folder) else []
    runs = find_runs(members)
    settings = to_json(training(group, scale)[1]) if runs else {}
    for run in runs:
        if to_json(run.settings) != settings:
            there, asked = dict(flat(to_json(run.settings))), dict(flat(settings))
            name = next(each for each in ("total_steps", *asked, *there) if there.get(each) != asked.get(each))
            raise UserError(
                f"{run.path} holds another training: its {name} is {there.get(name)}, and {asked.get(name)} is "
                "needed here; name another folder with --out."
            )
    return runs


def shortened(settings: Settings, scale: Scale) -> tuple[str, ...]:
    """The options that make a training of these settings shorter."""
    if scale == "full":
        return ()
    if scale == "quick":
        return ("--total-steps", str(-(-settings.total_steps // 4)))
    words = ["--total-steps", "16", "--checkpoint-every", "1"]
    for name, value in SMOKE.items():
        if hasattr(settings.method, name):
            words += [f"--{settings.method.name}.{name.replace('_', '-')}", str(value)]
    if hasattr(settings.policy, "width"):
        words += ["--policy.width", "8"]
    return tuple(words)


def at_scale(play: Sequence[str], scale: Scale) -> tuple[str, ...]:
    return tuple(play) if scale == "full" else (*play[:-1], str(EPISODES[scale]))


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
