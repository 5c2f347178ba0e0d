"""A world, a policy and a method from outside the package, exactly as the three pages of docs/ write them.

The pages' code becomes three files in a folder of its own; the `diamond` command takes them with `--with`.
"""

import csv
import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

from diamond_attention import (
    METHODS,
    POLICIES,
    PRESETS,
    WORLDS,
    Acted,
    Categorical,
    Policy,
    PolicyKind,
    PpoSettings,
    Settings,
    TeamSize,
    UserError,
    command_line,
    evaluate,
    export_policy,
    load_policy,
    open_run,
    register_method,
    register_policy,
    register_preset,
    register_world,
    resume,
    train,
)
from diamond_attention.command_line import run_command
from diamond_attention.evaluation.recording import record
from diamond_attention.extensions import LOADED
from diamond_attention.runs.metrics import TIMING_COLUMNS
from diamond_attention.runs.rows import read_rows

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "your_own_world.md": "beacons.py",
    "your_own_policy.md": "linear.py",
    "your_own_method.md": "reinforce.py",
}
SEEDS, UPDATES, STEPS = (0, 1), 200, 256

# Presets as small as can be, in a fourth file, which uses what the other three have registered.
SMALL = f"""
from diamond_attention import METHODS, POLICIES, WORLDS, Settings, Xor, register_preset

reinforce, linear = METHODS["reinforce"].settings, POLICIES["linear"].settings()
own = Settings(
    world=WORLDS["beacons"](), agents="2:3", tasks="2", policy=linear,
    method=reinforce(envs=64, steps=4, learning_rate=0.1), total_steps={UPDATES * STEPS}, checkpoint_every=2,
)
register_preset("small", "All three, small.", own)
xor = Settings(world=Xor(), policy=linear, method=reinforce(envs=8), total_steps=160)
register_preset("small-xor", "XOR, which can be solved, though not by this.", xor)
"""


@pytest.fixture(scope="module", autouse=True)
def registries():
    """What is registered here is forgotten again, so that no other test meets it."""
    known = (WORLDS, POLICIES, METHODS, PRESETS)
    before = [dict(registry) for registry in known]
    yield
    for registry, names in zip(known, before, strict=True):
        registry.clear()
        registry.update(names)
    LOADED.clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The pages' code, and nothing else."""
    folder = tmp_path_factory.mktemp("own")
    for page, file in PAGES.items():
        blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
        (folder / file).write_text("\n\n".join(blocks))
    (folder / "small.py").write_text(SMALL)
    return folder


@pytest.fixture(scope="module")
def own(folder) -> list[str]:
    """`--with` for all of them, once loaded into this process too."""
    words = [f"--with={folder / file}" for file in (*PAGES.values(), "small.py")]
    assert run_command(["list", *words]) == 0
    return words


def diamond(*arguments: object) -> subprocess.Popen:
    """The real command in a process of its own."""
    call = "from diamond_attention.command_line import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", call, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(group: Path, seed: int) -> tuple:
    """The last training state and policy of a seed down to their bits, and its rows but for the clock."""
    last = group / f"seed_{seed}" / "checkpoints" / f"step_{UPDATES * STEPS}"
    arrays = [safetensors.numpy.load_file(last / f"{name}.safetensors") for name in ("state", "policy")]
    bits = [{name: (array.dtype, array.tobytes()) for name, array in each.items()} for each in arrays]
    with open(group / f"seed_{seed}" / "metrics.csv", newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in csv.DictReader(file)]
    return bits, rows


# --- The pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", PAGES.values())
def test_what_a_page_says_under_check_it_passes(file, folder):
    answer = subprocess.run([sys.executable, folder / file], capture_output=True, text=True, cwd=folder, timeout=250)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_on_a_page_parse(page, own):
    """Options that do not exist would be refused; nothing is trained here."""
    text = (DOCS / page).read_text().replace("\\\n", " ")
    commands = [line.split() for line in re.findall(r"^diamond (.*)$", text, re.MULTILINE)]
    assert commands
    for name, *words in commands:
        files = {after for word, after in pairwise(words) if word == "--with"}
        assert files
        assert files <= set(PAGES.values())
        words = [word for word in words if word != "--with" and word not in files]
        if name == "train":
            command_line.parse_train(words[0], words[1:])
        elif name in ("evaluate", "watch"):
            command_line.parse_with_variations(getattr(command_line, f"{name.capitalize()}Options"), words, name)
        else:
            command_line.parse_options(getattr(command_line, f"{name.capitalize()}Options"), words, name)


# --- All three together, from training to bench ---------------------------------------------------


@pytest.fixture(scope="module")
def straight(own, tmp_path_factory) -> Path:
    group = tmp_path_factory.mktemp("runs") / "straight"
    # Fewer checkpoints, since nobody is going to kill this one.
    words = ["--seeds", "0,1", "--checkpoint-every", "100", "--out", str(group), "--quiet"]
    assert run_command(["train", "small", *own, *words]) == 0
    return group


@pytest.fixture(scope="module")
def killed(own, tmp_path_factory) -> Path:
    """A group that was killed half-way and resumed, both by the command."""
    group = tmp_path_factory.mktemp("runs") / "killed"
    process = diamond("train", "small", *own, "--seeds", "0,1", "--out", group)
    until = time.monotonic() + 200
    while not all(list(group.glob(f"seed_{seed}/checkpoints/step_*[0-9]")) for seed in SEEDS):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "no checkpoint appeared"
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(group.rglob("finished.json"))
    resumed = diamond("resume", group, *own, "--device=cpu")
    out, errors = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, errors
    assert "finished 2 of 2 seed(s)" in out
    return group


@pytest.mark.long
def test_a_killed_and_resumed_run_equals_one_that_was_never_stopped(killed, straight):
    for seed in SEEDS:
        (state, policy), rows = ended(killed, seed)
        assert ([state, policy], rows) == ended(straight, seed)
        parts = {name.split(".")[0] for name in state}
        assert parts == {"policy", "optimiser", "baseline", "key", "update", "failure"}
        assert set(policy) == {"layer.weight", "layer.bias"}
        assert [int(row["update"]) for row in rows] == list(range(1, UPDATES + 1))
    assert ended(straight, 0) != ended(straight, 1)
    described = json.loads((killed / "seed_0" / "settings.json").read_text())["settings"]
    assert described["world"] == {"name": "beacons", "reach": 0.1}
    assert described["policy"] == {"kind": "linear", "first_weights": 0.1}
    assert (described["method"], described["reinforce"]["envs"]) == ("reinforce", 64)


@pytest.fixture(scope="module")
def evaluated(killed, own) -> Path:
    assert run_command(["evaluate", str(killed), *own, "--agents", "2:4", "--episodes", "100", "--quiet"]) == 0
    return killed


def test_it_learned_something(evaluated):
    """Two agents that choose at random succeed in three of four episodes."""
    rows = [row for seed in SEEDS for row in read_rows(evaluated / f"seed_{seed}" / "episodes.csv")]
    pairs = [float(row["success"]) for row in rows if row["agents"] == "2" and row["play"] == "greedy"]
    assert len(pairs) == 200
    assert np.mean(pairs) > 0.8


def test_table(evaluated, own, capsys):
    assert run_command(["table", str(evaluated), *own]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Success rate: mean over training seeds")
    assert "one linear layer, reinforce" in text
    assert run_command(["table", str(evaluated), *own, "--markdown"]) == 0
    assert "| one linear layer, reinforce | small" in capsys.readouterr().out
    assert run_command(["table", str(evaluated), *own, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {(tuple(line["played_on"]), line["play"]) for line in lines} == {
        ((agents, 2), play) for agents in (2, 3, 4) for play in ("greedy", "sampled")
    }
    for line in lines:
        named = {name: line[name] for name in ("world", "preset", "method", "policy", "measure", "overrides")}
        assert named == {
            "world": "beacons",
            "preset": "small",
            "method": "reinforce",
            "policy": "one linear layer",
            "measure": "success",
            "overrides": "",
        }


def test_another_method_s_defaults_are_not_called_changes(own, tmp_path, capsys):
    words = ["--method", "reinforce", "--policy.kind", "linear", "--reinforce.envs", "8", "--total-steps", "16"]
    assert run_command(["train", "xor-demo", *own, *words, "--out", str(tmp_path / "x"), "--quiet"]) == 0
    assert run_command(["evaluate", str(tmp_path / "x"), *own, "--episodes", "5", "--greedy", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["overrides"] == "reinforce.envs=8 total_steps=16"


def test_figures(evaluated, own, tmp_path, capsys):
    assert run_command(["figure", str(evaluated), *own, "--to", str(tmp_path)]) == 0
    drawn, left_out = capsys.readouterr()
    assert {Path(line).name for line in drawn.split()} == {"learning_curves.png", "team_size.png"}
    assert "its policy has no attention to show" in left_out


def pictures_in(film: Path) -> int:
    with Image.open(film) as opened:
        return opened.n_frames


def test_watch(killed, own, tmp_path, capsys):
    assert run_command(["watch", str(killed), *own, "--to", str(tmp_path / "film.gif"), "--agents", "3"]) == 0
    assert pictures_in(tmp_path / "film.gif") >= 2


def test_an_exported_policy_is_evaluated_and_watched_and_started_from(killed, own, tmp_path, capsys):
    exported = tmp_path / "exported"
    assert run_command(["export", str(killed / "seed_1"), *own, "--to", str(exported)]) == 0
    assert {path.name for path in exported.iterdir()} == {"policy.json", "policy.safetensors"}
    described = json.loads((exported / "policy.json").read_text())
    assert described["kind"] == "linear"
    place = {"name": "place on the line from the viewer", "unit": "length of the line", "frame": "own"}
    assert described["task_features"] == [place]
    assert run_command(["watch", str(exported), *own, "--to", str(tmp_path / "film.gif")]) == 0
    words = ["--episodes", "100", "--agents", "3", "--json"]
    played = []
    for path in (killed / "seed_1", exported):
        capsys.readouterr()
        assert run_command(["evaluate", str(path), *own, *words]) == 0
        played.append([line["mean"] for line in json.loads(capsys.readouterr().out)])
    assert played[0] == played[1]
    words = ["--total-steps", "256", "--out", str(tmp_path / "more"), "--quiet"]
    assert run_command(["train", "small", *own, "--from", str(exported), *words]) == 0


@pytest.mark.long
def test_bench(own, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("diamond_attention.bench.report.ENVS", {"cpu": (8,)})
    monkeypatch.setattr("diamond_attention.bench.training.SECONDS_OF_UPDATES", 0.0)
    assert run_command(["bench", "small", *own, "--to", str(tmp_path / "speed.json")]) == 0
    measured = json.loads((tmp_path / "speed.json").read_text())
    assert measured["settings"]["reinforce"]["envs"] == 64
    assert measured["training"][0]["steps_per_update"] == STEPS
    assert set(measured["parts"]) == {f"{p}_seconds" for p in ("update", "simulation", "rollout", "epochs")}
    assert [row["agents"] for row in measured["decisions"]] == [4, 16, 64]
    assert run_command(["bench", "small-xor", *own, "--seeds", "2", "--to", str(tmp_path / "solved.json")]) == 0
    (result,) = json.loads((tmp_path / "solved.json").read_text())["results"]
    assert (result["seeds"], result["seeds_solved"]) == (2, 0)


def test_list_and_show(killed, own, monkeypatch, capsys):
    monkeypatch.chdir(killed.parent)
    killed.parent.joinpath("runs").symlink_to(killed.parent)
    assert run_command(["list", *own]) == 0
    listed = capsys.readouterr().out
    for line in (
        r"small +All three, small\.",
        r"beacons +Every beacon on a line needs an agent of its own\.",
        r"linear +One linear layer, which says what each feature of a task is worth\.",
        r"reinforce +REINFORCE on the team's return, with the mean of earlier returns as its baseline\.",
        rf"runs/killed/seed_0 +finished, {UPDATES} of {UPDATES} updates, one linear layer",
    ):
        assert re.search(rf"^  {line}$", listed, re.MULTILINE), line
    assert run_command(["show", "beacons", *own, "--method=reinforce", "--policy.kind=linear"]) == 0
    shown = capsys.readouterr().out
    assert 'world.name = "beacons"' in shown
    assert "reinforce.learning_rate = 0.001" in shown
    assert "policy.first_weights = 0.1" in shown
    assert "ppo." not in shown
    assert "max_agents" not in shown


# --- Each of them with the package's own ----------------------------------------------------------

TINY_PPO = ["--ppo.envs=8", "--ppo.steps=4", "--ppo.batch=32", "--ppo.epochs=1", "--total-steps=64"]


def success(group: Path, own: list[str], capsys, *words: str) -> float:
    capsys.readouterr()
    assert run_command(["evaluate", str(group), *own, "--episodes", "500", "--json", *words]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    return line["mean"]


@pytest.mark.long
def test_the_world_with_ppo_and_diamond_attention(own, tmp_path, capsys):
    group = tmp_path / "beacons"
    assert run_command(["train", "beacons", own[0], "--policy.width=8", *TINY_PPO, f"--out={group}", "--quiet"]) == 0
    assert open_run(group / "seed_0").settings.policy.mask == "rank"
    assert success(group, own[:1], capsys, "--sampled", "--agents", "4") > 0.8  # four agents, two beacons
    assert run_command(["figure", str(group), own[0], "--to", str(tmp_path / "figures"), "--agents", "3"]) == 0
    assert (tmp_path / "figures" / "attention_snapshots.png").exists()


@pytest.mark.long
def test_the_policy_with_ppo_on_xor(own, tmp_path, capsys):
    group = tmp_path / "linear"
    words = ["--policy.kind=linear", "--ppo.envs=64", f"--out={group}", "--total-steps=2560", "--quiet"]
    assert run_command(["train", "xor-demo", own[1], *words]) == 0
    # Agents that see the same choose the same.
    assert success(group, own[:2], capsys, "--greedy") == 0
    assert success(group, own[:2], capsys, "--sampled") == pytest.approx(0.5, abs=0.1)


@pytest.mark.long
def test_a_policy_that_decides_in_turn_solves_xor(own, tmp_path, capsys):
    """What `PerAgentPolicy` cannot express: the second agent hears what the first has chosen."""
    group = tmp_path / "in-turn"
    words = ["--policy.kind=in-turn", "--ppo.learning-rate=0.05", f"--out={group}", "--quiet"]
    words += ["--ppo.envs=128", "--ppo.batch=128", "--total-steps=12800"]
    assert run_command(["train", "xor", own[1], *words]) == 0
    assert success(group, own[:2], capsys, "--greedy") == 1
    assert success(group, own[:2], capsys, "--sampled") > 0.8
    assert run_command(["watch", str(group), own[1], "--to", str(tmp_path / "film.gif")]) == 0
    capsys.readouterr()
    assert run_command(["figure", str(group), own[1], "--to", str(tmp_path)]) == 0
    assert "its policy has no attention to show" in capsys.readouterr().err


@pytest.mark.long
def test_the_method_with_diamond_attention_learns_xor_through_the_ranks(own, tmp_path, capsys):
    group = tmp_path / "reinforce"
    words = ["--method=reinforce", "--policy.width=16", "--total-steps=40960", f"--out={group}", "--quiet"]
    assert run_command(["train", "xor", own[2], *words]) == 0
    assert open_run(group / "seed_0").settings.policy.mask == "rank"
    assert success(group, own[:3], capsys, "--sampled") > 0.9  # without the mask a half is the most there can be


@dataclasses.dataclass(frozen=True)
class CountingSettings:
    kind: Literal["counting"] = "counting"


class CountingPolicy(Policy):
    """Remembers how many steps it has played, and prefers the first task at even ones."""

    sure: jax.Array

    def first_memory(self, agents):
        return jnp.zeros(agents, jnp.int32)

    def one_agent(self, view, steps):
        return Categorical(self.sure * (jnp.arange(len(view.tasks)) == steps % len(view.tasks)))

    def act(self, views, memory, key, greedy):
        def one(view, steps, key):
            distribution = self.one_agent(view, steps)
            action = distribution.mode() if greedy else distribution.sample(key)
            return action, distribution.log_probability(action)

        return Acted(*jax.vmap(one)(views, memory, jax.random.split(key, len(memory))), memory + 1)

    def ask_again(self, views, memory, actions):
        def one(view, steps, action):
            distribution = self.one_agent(view, steps)
            return distribution.log_probability(action), distribution.entropy()

        return jax.vmap(one)(views, memory, actions)


def test_a_policy_s_memory_is_kept_stored_and_begun_anew(own, tmp_path):
    register_policy(PolicyKind(CountingSettings, lambda settings, interface, key: CountingPolicy(jnp.asarray(2.0))))
    world = dataclasses.replace(WORLDS["beacons"](), reach=-1.0)  # nobody ever arrives, so episodes have four steps
    one_pass = PpoSettings(envs=8, steps=8, batch=64, learning_rate=1e-9)
    settings = Settings(world=world, agents=2, tasks=2, policy=CountingSettings(), method=one_pass, total_steps=128)
    (run,) = train(settings, [0], tmp_path / "runs")
    # Asked again with what was stored, it says what it said: had the memory been another, it would not.
    assert [float(row["kl"]) for row in read_rows(run.metrics)] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert record(run, TeamSize(2, 2)).actions[:4].tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]


# --- Registered by a Python call ------------------------------------------------------------------


class PowerCutError(Exception):
    pass


class CutAfter:
    """A progress that ends the run at an update."""

    def __init__(self, step: int):
        self.step = step

    def begin(self, what, total, done, unit="steps"):
        pass

    def advance(self, done, shown):
        if done >= self.step:
            raise PowerCutError

    def say(self, sentence):
        pass

    end = say


def test_registered_and_used_from_python(own, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Lamps(WORLDS["beacons"]):
        name = "lamps"

    @dataclasses.dataclass(frozen=True)
    class PlainSettings(POLICIES["linear"].settings):
        kind: Literal["plain"] = "plain"

    @dataclasses.dataclass(frozen=True)
    class SlowSettings(METHODS["reinforce"].settings):
        name = "slow"
        learning_rate: float = 0.01

    register_world(Lamps)
    register_policy(PolicyKind(PlainSettings, POLICIES["linear"].build))
    register_method(METHODS["reinforce"]._replace(settings=SlowSettings, policy=PlainSettings()))
    settings = Settings(
        world=Lamps(),
        agents=3,
        tasks=2,
        policy=PlainSettings(),
        method=SlowSettings(envs=64, steps=4),
        total_steps=UPDATES * STEPS,
        checkpoint_every=50,
    )
    register_preset("lamps", "From Python.", settings)
    train(settings, SEEDS, tmp_path / "straight")
    with pytest.raises(PowerCutError):
        train(settings, SEEDS, tmp_path / "cut", progress=CutAfter(100 * STEPS))
    runs = resume(tmp_path / "cut")
    for run in runs:
        assert run.settings == settings
        assert ended(tmp_path / "cut", run.seed) == ended(tmp_path / "straight", run.seed)
        rows = evaluate(run, episodes=50, play=("sampled",))
        assert len(rows) == 50
        assert {row["agents"] for row in rows} == {3}
    assert type(load_policy(tmp_path / "cut" / "seed_0")[0]).__name__ == "LinearPolicy"
    assert export_policy(runs[0], tmp_path / "alone").policy_alone


# --- What can go wrong ----------------------------------------------------------------------------


def one_sentence(said: str) -> str:
    assert said.startswith("diamond: ")
    assert said.count("\n") == 1
    return said


def test_without_its_file_a_run_says_which_option_is_missing(straight):
    process = diamond("table", straight)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "the run's world is 'beacons'" in one_sentence(errors)
    assert "--with FILE.py" in errors


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("missing.py", None, "is not a file"),
        ("words.txt", "A page about worlds.", "must end in .py"),
        ("words.py", "A page about worlds.", "not Python that can be read (invalid syntax"),
        ("binary.py", b"\xff\xfe\x00", "not Python that can be read"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_sentence(name, text, sentence, tmp_path, capsys):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run_command(["list", "--with", str(tmp_path / name)]) == 2
    said = one_sentence(capsys.readouterr().err)
    assert sentence in said
    assert str(tmp_path / name) in said


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("beacons.py", "a world called 'beacons'"),
        ("linear.py", "a kind of policy called 'linear'"),
        ("reinforce.py", "a method called 'reinforce'"),
    ],
)
def test_a_name_can_be_registered_once(file, what, own, folder, tmp_path, capsys):
    (tmp_path / file).write_text((folder / file).read_text())
    assert run_command(["list", "--with", str(tmp_path / file)]) == 2
    assert f"there is already {what}" in one_sentence(capsys.readouterr().err)


def test_a_preset_s_name_can_be_registered_once(own):
    with pytest.raises(UserError, match="already a preset called 'small'"):
        register_preset("small", "Another.", PRESETS["xor"][1])


def test_what_is_registered_must_be_what_it_says():
    with pytest.raises(UserError, match="frozen dataclass that inherits from World"):
        register_world(WORLDS["xor"]())
    with pytest.raises(UserError, match=r'needs a field `kind: Literal\["its name"\]'):
        register_policy(PolicyKind(PpoSettings, POLICIES["diamond"].build))


def test_with_needs_a_file(capsys):
    assert run_command(["list", "--with"]) == 2
    assert "--with needs a Python file" in one_sentence(capsys.readouterr().err)


def test_a_policy_that_does_not_fit_a_world_says_so(own, tmp_path, capsys):
    words = ["--policy.kind=linear", "--out", str(tmp_path / "runs"), "--quiet"]
    assert run_command(["train", "spread-cpu", *own, *words]) == 2
    assert "can only choose a task" in one_sentence(capsys.readouterr().err)
    assert not (tmp_path / "runs").exists()
