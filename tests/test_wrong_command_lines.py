"""Wrong command lines: status 2 and one short sentence, at once, in little memory, and nothing is left behind."""

import contextlib
import dataclasses
import io
import math
import resource
import shlex
import shutil
import time
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diamond_attention import command_options
from diamond_attention.command_line import run_command
from diamond_attention.ranges import Ranged, ranged_fields
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.presets import PRESETS

MOST_SECONDS = 10.0
MOST_CHARACTERS = 300
MOST_MEMORY = 10**9
GROWN = [0]
"""Bytes by which this process has grown over all command lines so far."""


@pytest.fixture(scope="module")
def policies(tmp_path_factory) -> Path:
    """Copies of the policies that ship with the package; named as they are called, they would be unpacked first."""
    return shutil.copytree(SHIPPED, tmp_path_factory.mktemp("policies") / "shipped")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Where the command runs: empty before and after."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], folder: Path, policies: Path) -> str:
    """The one sentence with which these words are refused; @spread stands for the copy of that policy."""
    words = [str(policies / word[1:]) if word.startswith("@") else word for word in words]
    heard, grown, started = io.StringIO(), memory_used(), time.perf_counter()
    with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(io.StringIO()):
        status = run_command(words)
    seconds, errors = time.perf_counter() - started, heard.getvalue()
    GROWN[0] += memory_used() - grown
    assert status == 2, errors
    assert errors.startswith("diamond: "), errors
    assert errors.count("\n") == 1, errors
    assert errors.endswith((".\n", "?\n")), errors
    assert len(errors.rstrip("\n")) <= MOST_CHARACTERS, errors
    assert seconds < MOST_SECONDS
    assert GROWN[0] < MOST_MEMORY
    assert list(folder.iterdir()) == []
    return errors


def memory_used() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# --- Written by hand ------------------------------------------------------------------------------

LARGE = 10**30
LONG = "x" * 100
WRONG = f"""
trian xor
fly
'' train
--verbose train
train
train ''
train --seeds 3
train xor-papr
train chess
train {LONG}
train xor extra
train xor extra words here
train xor -x
train xor -- 3
train xor --ppo
train xor --ppo.
train xor --ppo.env 8
train xor --ppo.bach 16
train xor --ppo.bach=16
train xor --envs 8
train xor --sedes 0
train xor --no-quiet
train xor --{LONG} 3
train xor --quiet=yes
train xor --quiet yes
train xor --overwrite=1
train xor --ppo.anneal no
train xor --ppo.no-anneal=no
train xor --world.shaped=True
train xor --world.map 2s3z
train xor --world.physics.drag 0.5
train xor --out
train xor --out ''
train xor --out=
train xor --out ' '
train xor --seeds
train xor --seeds ''
train xor --seeds three
train xor --seeds 0,0
train xor --seeds 0,,1
train xor --seeds 5:5
train xor --seeds 5:2
train xor --seeds=-1
train xor --seeds=-5000:2,7
train xor --seeds 0:1001
train xor --seeds 0:{LARGE}
train xor --seeds {LARGE}
train xor --seeds 4294967296
train xor --seeds 1.5
train xor --device tpu
train xor --device ''
train xor --device
train xor --from nowhere
train xor --from ''
train xor --method
train xor --method dqn
train xor --method=
train xor --policy.kind
train xor --policy.kind mlp
train xor --policy.kind ''
train xor --policy.mask ranks
train xor --policy.mask
train xor --policy.mask RANK
train xor --policy.width 1
train xor --policy.width 1000000000
train xor --policy.width {LARGE}
train xor --policy.width=-64
train xor --policy.width 64.0
train xor --policy.width 1e3
train xor --policy.width 0x40
train xor --policy.width {"9" * 4000}
train xor --policy.width 65 --policy.mask split
train xor --policy.dropout-rate 1
train xor --policy.dropout-rate nan
train xor --policy.mask dropout --policy.dropout-rate 0
train xor --ppo.envs 0
train xor --ppo.envs many
train xor --ppo.envs 100000000
train xor --ppo.envs {LARGE}
train xor --ppo.envs 1 2
train xor --ppo.steps 2000000000000
train xor --ppo.steps 0
train xor --ppo.batch 500
train xor --ppo.batch 1
train xor --ppo.batch {LARGE}
train xor --ppo.epochs {LARGE}
train xor --ppo.epochs 0
train xor --ppo.learning-rate nan
train xor --ppo.learning-rate inf
train xor --ppo.learning-rate=-inf
train xor --ppo.learning-rate 0
train xor --ppo.learning-rate 1e400
train xor --ppo.learning-rate fast
train xor --ppo.learning-rate 1,5
train xor --ppo.gamma 2
train xor --ppo.gamma=-0.1
train xor --ppo.gae-lambda nan
train xor --ppo.clip 1e30
train xor --ppo.max-grad-norm 1e300
train xor --ppo.value-coefficient=-1
train xor --ppo.entropy-coefficient inf
train xor --ppo.target-kl 0
train xor --ppo.target-kl off
train xor --ppo.cut-after {LARGE}
train xor --ppo.ratio both
train xor --ppo.precision float16
train xor --rank-hold 0
train xor --rank-hold {LARGE}
train xor --rank-hold sometimes
train xor --total-steps 0
train xor --total-steps {LARGE}
train xor --total-steps 10000000000000
train xor --checkpoint-every 0
train xor --checkpoint-every {LARGE}
train xor --agents ''
train xor --agents 0
train xor --agents=-2
train xor --agents two
train xor --agents 2:
train xor --agents 4:2
train xor --agents 4097
train xor --agents 2:{LARGE}
train xor --agents {LARGE}
train xor --agents {",".join(["1:4096"] * 500)}x
train xor --agents 1:4096 --tasks 1:4096
train xor --agents 3 --tasks 2
train xor --players 3 --actions 2
train xor --players two
train xor --agents 4096
train xor --agents 4096 --seeds 0:1000
train xor --ppo.envs 1048576 --ppo.steps 65536 --ppo.batch 1048576
train xor --policy.width 4096 --seeds 0:1000
train spread --agents 2 --tasks 3
train spread --agents 4096
train spread --world.half-width 0
train spread --world.half-width {LARGE}
train spread --world.collision-penalty nan
train spread --world.physics.mass 0
train spread --world.physics.mass 1e-300
train spread --world.physics.time-step inf
train spread --world.physics.drag 1.01
train food --world.half-width 0.1
train food --world.caution=-1
train food --world.food-radius 1e-30
train smaclite --world.map ''
train smaclite --world.map 4s4z
train smaclite --world.map 2s3z,2s3z
train smaclite --world.map {LONG}
train smaclite --world.jitter=-1
train smaclite --world.jitter nan
train smaclite --world.jitter-share 2
train smaclite --agents 3
show
show chess
show xor --ppo.envs 0
show xor --seeds 0:{LARGE}
resume
resume nowhere
resume ''
resume --device cpu
resume / extra
evaluate
evaluate ''
evaluate nowhere
evaluate @spread nowhere
evaluate @spread --episodes
evaluate @spread --episodes 0
evaluate @spread --episodes=-5
evaluate @spread --episodes {10**12}
evaluate @spread --episodes {LARGE}
evaluate @spread --episodes many
evaluate @spread --episodes 1000000
evaluate @spread @food --episodes 500001 --greedy
evaluate @spread --seed=-1
evaluate @spread --seed {LARGE}
evaluate @spread --agents 0
evaluate @spread --agents 4096
evaluate @spread --agents 1:4096 --episodes 1000
evaluate @food --agents 1:4096 --tasks 1:4096
evaluate @food --agents 4096 --tasks 4096 --episodes 1
evaluate @spread --agents 2 --tasks 3
evaluate @spread --dropout on
evaluate @spread --dropout maybe
evaluate @spread --map 2s3z
evaluate @spread --map ''
evaluate @spread --map=
evaluate @spread --jitter 1
evaluate @spread --checkpoint ''
evaluate @spread --simulator mujoco
evaluate @spread --json=yes
evaluate @spread --greedy=1
evaluate @smaclite --map nowhere
evaluate @smaclite --map ''
evaluate @smaclite --jitter nan
evaluate @smaclite --jitter 1e9
evaluate @smaclite --agents 3
table
table nowhere
table @spread --json=1
table @spread --latex
figure
figure nowhere
figure @spread --agents 0
figure @spread --agents=-1
figure @spread --agents 100
figure @spread --agents 101
figure @spread --agents {LARGE}
figure @spread --seed=-1
figure @spread --to ''
figure @smaclite --agents 3
watch
watch nowhere
watch @spread @food
watch @spread --steps 0
watch @spread --steps {10**9}
watch @spread --steps {LARGE}
watch @spread --frames-per-second 0
watch @spread --frames-per-second 51
watch @spread --frames-per-second 24.5
watch @spread --agents 0
watch @spread --agents 101
watch @spread --agents x
watch @spread --tasks 0
watch @spread --seed 4294967296
watch @spread --to film.avi
watch @spread --to film
watch @spread --to ''
watch @smaclite --map ''
watch @smaclite --map nowhere
watch @smaclite --map 2s3z,3s5z
watch @smaclite --agents 3
export
export @spread
export nowhere --to there
export @spread --to ''
bench xro
bench xor --seeds
bench xor --seeds 0
bench xor --seeds 1 {LARGE}
bench xor --seeds one
bench xor --device tpu
bench xor spread
demo --seeds 0
demo --seeds {10**9}
demo --seeds three
demo --out ''
demo 3
list everything
list --json
smaclite-replay
smaclite-replay ''
smaclite-replay nowhere.npz
smaclite-replay /
smaclite-replay /dev/null
smaclite-replay /dev/zero
smaclite-replay {__file__}
train xor --track
train xor --track ''
train xor --track tensorbord
train xor --overwrite --resume
resume nowhere --track tensorbord
sweep
sweep --seeds 3
sweep xor chess
sweep xor xor
sweep xor -1
sweep xor -x
sweep xor --policy.mask rank nnoe
sweep xor --policy.mask rank none rank
sweep xor --policy.mask
sweep xor --policy.masks rank none
sweep xor --ppo.learning-rate 1e-3 1e-2 0
sweep xor --ppo.learning-rate 1e-3 0.001
sweep xor --ppo.learning-rate log:1e-4:1e-2
sweep xor --ppo.learning-rate log:0:1 --sample 3
sweep xor --ppo.learning-rate log:1:nan --sample 3
sweep xor --ppo.learning-rate uniform:2:1 --sample 3
sweep xor --ppo.learning-rate uniform:1 --sample 3
sweep xor --policy.width whole:1.5:8 --sample 3
sweep xor --policy.width whole:{LARGE}:{10 * LARGE} --sample 3
sweep xor --policy.mask rank none --sample 0
sweep xor --policy.mask rank none --sample 3
sweep xor --policy.mask rank none --sample {LARGE}
sweep xor --agents 2 3 --tasks 2
sweep xor --ppo.anneal yes maybe
sweep xor --ppo.envs yes
sweep xor --method ppo mat --ppo.learning-rate 1e-3 1e-2
sweep xor --seeds 5:5
sweep xor --seeds 0 1 2
sweep xor --ppo.envs {" ".join(map(str, range(1, 2002)))}
sweep xor --overwrite
sweep xor --from nowhere
sweep xor --track tensorbord
sweep xor --jobs 0
sweep xor --on mars
sweep xor --on ray
sweep xor --retries=-1
sweep xor --gpus=-1
sweep xor --print=yes
sweep xor --out ''
reproduce table1 --on mars
reproduce table1 --on ray
reproduce table1 --jobs 0
train xor --with
train xor --with ''
train xor --with nowhere.py
train xor --with /dev/zero
train xor --with={__file__.removesuffix(".py")}
demo --tyro-print-completion klingon
train xor --tyro-write-completion bash /nowhere/file
"""
LINES = [line for line in WRONG.splitlines() if line]
NEVER_MEANT = [
    ["evaluate", "two\nlines"],
    ["evaluate", "x" * 5000],
    ["train", "two\nlines"],
    ["train", "xor", "--two\nlines"],
    ["train", "xor", "--" + "x" * 5000],
    ["train", "xor", "--device", "two\nlines"],
    ["train", "xor", "--ppo.envs", "x" * 5000],
    ["train", "xor", "--ppo.envs", "two\nlines"],
    ["train", "xor", "x" * 5000],
    ["train", "xor", "--with", "two\nlines.py"],
    ["smaclite-replay", "x" * 5000],
    ["x" * 5000],
]


def test_there_are_many_wrong_command_lines_and_each_once():
    assert len(set(LINES)) == len(LINES) >= 150


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:60])
def test_a_wrong_command_line_is_one_sentence(line, folder, policies):
    refused(shlex.split(line), folder, policies)


@pytest.mark.parametrize("words", NEVER_MEANT, ids=lambda words: " ".join(words)[:30])
def test_a_word_nobody_meant_is_one_sentence(words, folder, policies):
    refused(words, folder, policies)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train xor --policy.width 1000000000", "policy.width is 1000000000; it must lie between 2 and 4096."),
        ("train xor --out ''", "--out is empty; write what it should be, or leave it out."),
        ("watch @smaclite --map=", "--map is empty; write what it should be, or leave it out."),
        ("evaluate ''", "one of the words is empty; write what it should be, or leave it out."),
        ("figure @spread --agents 0", "--agents is 0; it must lie between 1 and 100."),
        ("train xor --quiet=yes", "--quiet takes no value, and got 'yes'; write --quiet alone."),
        ("bench xor --seeds", "--seeds needs a value after it."),
    ],
)
def test_the_sentence_names_the_option_and_what_to_do(line, sentence, folder, policies):
    assert refused(shlex.split(line), folder, policies) == f"diamond: {sentence}\n"


# --- Made from the settings' own types and ranges -------------------------------------------------


def options_of(group: Any, before: str) -> list[tuple[str, Any, Ranged | None]]:
    """(--ppo.envs, its type, its range) for every field of a dataclass and of those inside it."""
    ranges = {field.name: field for field in ranged_fields(type(group))}
    found = []
    for field in dataclasses.fields(group):
        name, value = before + field.name.replace("_", "-"), getattr(group, field.name)
        if field.name in ("max_agents", "max_tasks"):
            continue  # follow from the sizes; no options
        if dataclasses.is_dataclass(value):
            inside = f"--{value.name}." if field.name == "method" else f"{name}."
            found += options_of(value, inside)
        else:
            found.append((name, field.type, ranges.get(field.name)))
    return found


OPTIONS = [
    ([command, preset], *option)
    for preset, (_, preset_settings) in PRESETS.items()
    for command in ("train", "show", "sweep")
    for option in options_of(preset_settings, "--")
]
OPTIONS += [
    (words, "--" + field.name.replace("_", "-"), None, field)
    for words, kind in (
        (["evaluate", "@spread"], command_options.EvaluateOptions),
        (["watch", "@spread"], command_options.WatchOptions),
        (["figure", "@spread"], command_options.FigureOptions),
        (["demo"], command_options.DemoOptions),
        (["sweep", "xor"], command_options.SweepOptions),
        (["reproduce", "table1"], command_options.ReproduceOptions),
    )
    for field in ranged_fields(kind)
]
NUMBERS = [(words, name, field) for words, name, _, field in OPTIONS if field is not None]
CHOICES = [(words, name, get_args(kind)) for words, name, kind, _ in OPTIONS if get_origin(kind) is Literal]
LETTERS = st.text("qjxzQJXZ", min_size=1, max_size=30)


@st.composite
def wrong_number(draw: st.DrawFn) -> list[str]:
    words, name, field = draw(st.sampled_from(NUMBERS))
    low, high = field.between.low, field.between.high
    if field.kind is int:
        numbers = st.one_of(
            st.integers(int(high) + 1, 10**40),
            st.integers(-(10**40), int(low) - 1),
            st.integers(50, 4000).map(lambda digits: "9" * digits),
            st.sampled_from(["1.5", "1e3", "0x10", "1/2", "٣x", "1 000", "++1"]),
        )
    else:
        numbers = st.one_of(
            st.floats(min_value=math.nextafter(high, math.inf)),
            st.floats(max_value=math.nextafter(low, -math.inf)),
            st.integers(39, 5000).map(lambda exponent: f"1e{exponent}"),
            st.sampled_from(["nan", "-nan", "NaN", "inf", "-Infinity", "1,5", "1e", "0.5.5", "½"]),
        )
    value = draw(st.one_of(numbers.map(str), LETTERS))
    return [*words, f"{name}={value}"]


@st.composite
def wrong_word(draw: st.DrawFn) -> list[str]:
    words, name, choices = draw(st.sampled_from(CHOICES))
    value = draw(st.one_of(LETTERS, st.sampled_from(choices).map(lambda choice: f"{choice}s"), st.just("None")))
    return [*words, name, value]


@st.composite
def wrong_option(draw: st.DrawFn) -> list[str]:
    words, name, *_ = draw(st.sampled_from(OPTIONS))
    spoilt = draw(st.sampled_from([f"{name}{{}}", f"--{{}}{name.lstrip('-')}", f"{name}.{{}}", "--{}", "-{}"]))
    spelt = spoilt.format(draw(LETTERS))
    return [*words, f"{spelt}=1"] if draw(st.booleans()) else [*words, spelt, "1"]


@st.composite
def empty_or_missing(draw: st.DrawFn) -> list[str]:
    words, name, *_ = draw(st.sampled_from([option for option in OPTIONS if option[2] is not bool]))
    return [*words, *draw(st.sampled_from([[name], [f"{name}="], [name, ""], [name, "  "], [f"{name}= "]]))]


MANY = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@MANY
@given(words=wrong_number())
def test_a_number_outside_its_range_or_none_at_all_is_one_sentence(words, folder, policies):
    option, _, _ = words[-1].partition("=")
    sentence = refused(words, folder, policies)
    assert option.lstrip("-") in sentence.replace("_", "-")


@MANY
@given(words=wrong_word())
def test_a_word_that_is_no_choice_is_one_sentence(words, folder, policies):
    assert words[-2] in refused(words, folder, policies)


@MANY
@given(words=wrong_option())
def test_an_option_that_does_not_exist_is_one_sentence(words, folder, policies):
    refused(words, folder, policies)


@MANY
@given(words=empty_or_missing())
def test_an_option_without_a_value_is_one_sentence(words, folder, policies):
    option = next(word for word in words if word.startswith("--")).partition("=")[0]
    assert option in refused(words, folder, policies)
