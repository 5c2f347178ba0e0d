"""A thousand damaged files. Each is refused in one sentence, or what it says is not needed, or it is told what was
used instead: nothing crashes, nothing hangs, and nothing plays or trains with numbers that were not learned.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from test_crash_points import ALL_POINTS, SETTINGS, Stop, StoppingProgress, contents

import diamond_attention.runs.group as group_module
from diamond_attention.command_line import run_command
from diamond_attention.runs.files import json_bytes
from diamond_attention.runs.train import resume, train
from diamond_attention.terminal import LONGEST

MUTATIONS = 1000
SEED = 0

FILES = [
    "settings.json",
    "environment.json",
    "metrics.csv",
    "episodes.csv",
    "checkpoints/step_32/state.json",
    "checkpoints/step_32/state.safetensors",
    "checkpoints/step_32/policy.json",
    "checkpoints/step_32/policy.safetensors",
    "checkpoints/step_16/state.safetensors",
    "finished.json",
    "failed.json",
]


# --- Ways to damage a file ------------------------------------------------------------------------


def flip_a_bit(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def cut_the_beginning(data: bytes, chance: random.Random) -> bytes:
    return data[chance.randrange(1, len(data)) :]


def take_something_out(data: bytes, chance: random.Random) -> bytes:
    first = chance.randrange(len(data))
    return data[:first] + data[first + chance.randint(1, 40) :]


def put_something_in(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + chance.randbytes(chance.randint(1, 40)) + data[place:]


def zeros(data: bytes, chance: random.Random) -> bytes:
    first = chance.randrange(len(data))
    last = min(len(data), first + chance.randint(1, 4096))
    return data[:first] + bytes(last - first) + data[last:]


def another_number(data: bytes, chance: random.Random) -> bytes:
    """A digit becomes another digit: still a number, still JSON or CSV."""
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return flip_a_bit(data, chance)
    place = chance.choice(digits)
    return data[:place] + bytes([48 + (data[place] - 48 + chance.randint(1, 9)) % 10]) + data[place + 1 :]


def a_line_twice(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return b"".join([*lines[: place + 1], *lines[place:]])


def a_line_less(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def another_encoding(data: bytes, chance: random.Random) -> bytes:
    return data.decode("latin-1").encode(chance.choice(["utf-16", "utf-32"]))


def strange_text(data: bytes, chance: random.Random) -> bytes:
    strange = [
        b"",
        b"\0",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b'"',
        b"[" * 5000,
        b"9" * 5000,
        b"\x1b[2J\x1b[31m",
        b"a,b\n1\n",
    ]
    return chance.choice(strange)


def a_value_of_another_kind(data: bytes, chance: random.Random) -> bytes:
    """In JSON one value, wherever it is, becomes another one; the checksum stays."""
    try:
        values = json.loads(data)
    except ValueError:
        return another_number(data, chance)
    group = values
    while True:
        name = chance.choice(list(group))
        if not isinstance(group[name], dict) or not group[name] or chance.random() < 0.1:
            break
        group = group[name]
    group[name] = chance.choice([None, True, -1, 0, 1e308, 10**400, "", "x" * 1000, [], {}, [1], {"a": 1}, 3, "rank"])
    return json.dumps(values).encode()


def a_matrix_transposed(data: bytes, chance: random.Random) -> bytes:
    try:
        arrays = safetensors.numpy.load(data)
    except Exception:
        return flip_a_bit(data, chance)
    square = [name for name, array in arrays.items() if array.ndim == 2 and array.shape[0] == array.shape[1] > 1]
    name = chance.choice(sorted(square))
    return safetensors.numpy.save({**arrays, name: np.ascontiguousarray(arrays[name].T)})


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    flip_a_bit,
    cut,
    cut_the_beginning,
    take_something_out,
    put_something_in,
    zeros,
    another_number,
    a_line_twice,
    a_line_less,
    another_encoding,
    strange_text,
    a_value_of_another_kind,
    a_matrix_transposed,
]


# --- What is done with it -------------------------------------------------------------------------

COMMANDS: dict[str, list[str]] = {
    "resume": ["resume", "group", "--quiet", "--device", "cpu"],
    "evaluate": ["evaluate", "group", "--episodes", "2", "--json", "--device", "cpu"],
    "table": ["table", "group", "--json"],
    "export": ["export", "group", "--to", "exported"],
    "from": ["train", "xor-demo", "--from", "group", "--out", "new", "--quiet", "--device", "cpu"],
    "list": ["list"],
}
FROM = ["--policy.width=4", "--ppo.envs=4", "--ppo.batch=8", "--total-steps=8", "--seeds=0,1", "--agents=2"]


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Path:
    """A group broken off half-way, evaluated; one of its seeds says how it ended."""
    place = tmp_path_factory.mktemp("mutated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_module, "describe_environment", lambda: {"command": ["diamond"]})
        with pytest.raises(Stop):
            train(SETTINGS, (0, 1), place / "group", progress=StoppingProgress())
    assert ran(place, COMMANDS["evaluate"])[0] == 0
    return place / "group"


def ran(place: Path, arguments: list[str]) -> tuple[int, str, str]:
    """A command's status, and what it said."""
    said, complained = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            status = run_command(arguments + (FROM if "--from" in arguments else []))
    finally:
        os.chdir(before)
    return status, said.getvalue(), complained.getvalue()


@pytest.fixture(scope="module")
def undamaged(group, tmp_path_factory) -> dict[str, tuple[str, dict[str, bytes]]]:
    """What each command says and leaves when nothing is broken."""
    outcome = {}
    for name, arguments in COMMANDS.items():
        place = tmp_path_factory.mktemp("undamaged") / "place"
        shutil.copytree(group, place / "group")
        status, said, _ = ran(place, arguments)
        assert status == 0
        outcome[name] = said, {file: data for file, data in contents(place).items() if is_learned(file)}
    return outcome


def is_learned(file: str) -> bool:
    """What was learned or follows from it, and not what was said about it."""
    return file.endswith(".safetensors")


def chosen() -> list[int]:
    if os.environ.get(ALL_POINTS):
        return list(range(MUTATIONS))
    return [i for i in range(MUTATIONS) if hashlib.sha256(f"mutation {i}".encode()).digest()[0] % 16 == 0]


@pytest.mark.timeout(1800 if os.environ.get(ALL_POINTS) else 300)
@pytest.mark.parametrize("part", range(4))
def test_a_damaged_file_is_refused_or_told_of(part, group, undamaged, tmp_path):
    for number in chosen()[part::4]:
        chance = random.Random(f"{SEED} {number}")
        file = FILES[number % len(FILES)]
        damage = DAMAGES[number // len(FILES) % len(DAMAGES)]
        command = chance.choice(list(COMMANDS))
        where = f"mutation {number}: {damage.__name__} of {file}, {command}"
        place = tmp_path / str(number)
        shutil.copytree(group, place / "group")
        victim = place / "group" / f"seed_{chance.randrange(2)}" / file
        if file == "finished.json":
            shutil.copy(victim.with_name("environment.json"), victim)
        if file == "failed.json":
            victim.write_bytes(json_bytes({"update": 3, "tensor": "loss", "sentence": "seed 0 failed."}))
        original = victim.read_bytes()
        broken = damage(original, chance)
        victim.write_bytes(broken)

        started = time.monotonic()
        status, said, complained = ran(place, COMMANDS[command])
        assert time.monotonic() - started < 20, where
        assert status in (0, 1, 2), where
        sentences = complained.splitlines()
        assert "Traceback" not in complained, where
        assert all(len(sentence) <= LONGEST for sentence in sentences), (where, sentences)
        assert complained.isprintable() or "\n" in complained, where
        assert "\x1b" not in complained + said, where
        if status == 2:
            assert len(sentences) >= 1, where
            assert not (place / "exported").exists(), where
            assert not (place / "new").exists(), where
            continue
        # It went through. What was learned must be as it should, unless it was told what was used instead.
        if broken != original and not sentences and file.endswith((".safetensors", ".json")):
            wanted_said, wanted = undamaged[command]
            found = {name: data for name, data in contents(place).items() if is_learned(name)}
            touched = str(victim.relative_to(place))
            differing = [name for name in wanted if found.get(name) != wanted[name] and name != touched]
            assert differing == [], where
            if command in ("evaluate", "table"):
                assert said == wanted_said, where


def test_what_is_left_of_a_damaged_run_can_be_resumed(group, tmp_path):
    """The newest checkpoint of one seed is gone; both step back together and end as they would have."""
    shutil.copytree(group, tmp_path / "group")
    straight = tmp_path / "straight"
    shutil.copytree(group, straight)
    resume(straight)
    file = tmp_path / "group" / "seed_1" / "checkpoints" / "step_32" / "state.json"
    file.write_bytes(flip_a_bit(file.read_bytes(), random.Random(0)))
    resume(tmp_path / "group")
    ours, theirs = contents(tmp_path / "group"), contents(straight)
    assert {k: v for k, v in ours.items() if is_learned(k)} == {k: v for k, v in theirs.items() if is_learned(k)}
