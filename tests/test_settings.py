"""Settings: read back as they were written, and refused in one sentence before anything runs."""

import dataclasses
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings, MaskKind
from diamond_attention.runs.assemble import shape_of_learner
from diamond_attention.runs.checkpoint import save_checkpoint
from diamond_attention.runs.files import json_bytes
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.group import create_group
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.seeds import parse_seeds
from diamond_attention.runs.settings import FORMAT, Settings, from_json, to_json
from diamond_attention.runs.sizes import parse_sizes
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.registry import WORLDS
from diamond_attention.worlds.xor import Xor

MASKS = ", ".join(get_args(MaskKind))
UNUSUAL = Settings(
    world=Xor(shaped=True),
    agents="2:4",
    tasks="4,8",
    rank_hold="episode",
    policy=DiamondSettings(
        width=8, mask="dropout", third_block="paper", dropout_rate=0.25, dropout_at_execution=False
    ),
    ppo=PpoSettings(
        envs=8,
        steps=3,
        batch=12,
        epochs=2,
        learning_rate=1.25e-5,
        anneal=False,
        gamma=0.5,
        gae_lambda=0.75,
        clip=0.1,
        value_coefficient=0.25,
        entropy_coefficient=0.01,
        max_grad_norm=2.0,
        target_kl=None,
        ratio="agent",
        normalise_advantages=False,
        precision="bfloat16",
        normalise_values=True,
        cut_after=50,
    ),
    total_steps=1000,
    checkpoint_every=3,
)


def written(settings: Settings, **changes) -> dict:
    """What settings.json holds, with some of it replaced: written(s, ppo__envs=3) changes ppo.envs."""
    values = json.loads(json.dumps(to_json(settings)))
    for name, value in changes.items():
        *groups, last = name.split("__")
        place = values
        for group in groups:
            place = place[group]
        place[last] = value
    return values


def refusal(values: object) -> str:
    """The sentence with which these settings are refused."""
    with pytest.raises(UserError) as refused:
        from_json(values)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


# --- settings.json --------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [*(preset for _, preset in PRESETS.values()), UNUSUAL])
def test_settings_come_back_from_json_as_they_were(settings):
    assert from_json(written(settings)) == settings


def test_every_setting_of_the_unusual_ones_differs_from_its_default():
    # Or a setting that is lost on the way to the file and back would not be missed above.
    default = to_json(Settings())
    for name, value in to_json(UNUSUAL).items():
        if isinstance(value, dict):
            same = [field for field in value if value[field] == default[name][field]]
            # What has no other value yet: one kind of policy, one method.
            assert same == {"world": ["name"], "policy": ["kind"]}.get(name, [])
        elif name != "method":
            assert value != default[name]


def test_the_room_for_teams_follows_from_their_sizes_and_is_not_written():
    assert (UNUSUAL.world.max_agents, UNUSUAL.world.max_tasks) == (4, 8)
    assert set(to_json(UNUSUAL)["world"]) == {"name", "shaped"}
    assert from_json(written(UNUSUAL)).world == UNUSUAL.world


def test_a_setting_that_an_older_file_lacks_has_its_default():
    values = written(UNUSUAL)
    del values["ppo"]["clip"], values["checkpoint_every"]
    expected = dataclasses.replace(
        UNUSUAL, ppo=dataclasses.replace(UNUSUAL.ppo, clip=PpoSettings().clip), checkpoint_every=100
    )
    assert from_json(values) == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ppo__learning_rat": 1.0}, "there is no setting ppo.learning_rat; did you mean ppo.learning_rate?"),
        ({"ppo__env": 8}, "there is no setting ppo.env; did you mean ppo.envs?"),
        ({"policy__widht": 8}, "there is no setting policy.widht; did you mean policy.width?"),
        ({"world__shapd": True}, "there is no setting world.shapd; did you mean world.shaped?"),
        ({"total_step": 5}, "there is no setting total_step; did you mean total_steps?"),
        ({"quantum": 5}, "there is no setting quantum."),
    ],
)
def test_a_misspelt_setting_gets_a_suggestion(changes, sentence):
    assert refusal(written(Settings(), **changes)) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"policy__width": "64"}, "policy.width is '64', which is not what this setting takes (int)."),
        ({"policy__width": 64.0}, "policy.width is 64.0, which is not what this setting takes (int)."),
        ({"policy__width": True}, "policy.width is True, which is not what this setting takes (int)."),
        ({"policy__width": None}, "policy.width is None, which is not what this setting takes (int)."),
        ({"ppo__anneal": 1}, "ppo.anneal is 1, which is not what this setting takes (bool)."),
        ({"ppo__gamma": "high"}, "ppo.gamma is 'high', which is not what this setting takes (float)."),
        ({"ppo__gamma": [0.9]}, "ppo.gamma is [0.9], which is not what this setting takes (float)."),
        ({"ppo__target_kl": "off"}, "ppo.target_kl is 'off', which is not what this setting takes (float or none)."),
        (
            {"ppo__ratio": "jont"},
            "ppo.ratio is 'jont', which is not what this setting takes (one of joint, agent).",
        ),
        (
            {"policy__mask": "ranks"},
            f"policy.mask is 'ranks', which is not what this setting takes (one of {MASKS}).",
        ),
        (
            {"rank_hold": "episodes"},
            "rank_hold is 'episodes', which is not what this setting takes (int or one of episode).",
        ),
        ({"agents": [2, 3]}, "agents is [2, 3], which is not what this setting takes (str)."),
        ({"world__shaped": "no"}, "world.shaped is 'no', which is not what this setting takes (bool)."),
        ({"policy": 3}, "policy must be a group of settings, not 3."),
        ({"ppo": []}, "ppo must be a group of settings, not []."),
    ],
)
def test_a_wrong_type_names_the_setting_the_value_and_what_it_takes(changes, sentence):
    assert refusal(written(Settings(), **changes)) == sentence


@pytest.mark.parametrize("values", [None, [], "xor", 3, {}, {"world": "xor"}, {"world": None}])
def test_something_that_is_no_settings_file_is_refused(values):
    assert refusal(values) == "the settings hold no world; this is not a settings.json of this project."


@pytest.mark.parametrize("name", ["chess", None, 3, "os", "__import__"])
def test_a_world_is_looked_up_and_never_imported(name):
    assert refusal(written(Settings(), world__name=name)) == (
        f"the run's world is {name!r}, which is not one of {', '.join(WORLDS)}; "
        "if it is your own, name the file that registers it: --with FILE.py."
    )


def test_a_number_too_large_for_a_float_is_refused_in_one_sentence():
    assert refusal(written(Settings(), ppo__learning_rate=10**400)).startswith("ppo.learning_rate is 1000")


def test_a_team_size_given_as_a_number_from_python_can_be_read_back():
    settings = Settings(agents=4, tasks=6)
    assert settings.sizes == (TeamSize(4, 6),)
    assert from_json(written(settings)).sizes == settings.sizes


# --- Values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "changes", "sentence"),
    [
        (DiamondSettings, {"width": 1}, "policy.width is 1; it must lie between 2 and 4096."),
        (DiamondSettings, {"mask": "all"}, f"policy.mask is 'all'; it must be one of {MASKS}."),
        (DiamondSettings, {"dropout_rate": 1.0}, "policy.dropout_rate is 1.0; it must lie between 0 and 0.999."),
        (DiamondSettings, {"dropout_rate": -0.1}, "policy.dropout_rate is -0.1; it must lie between 0 and 0.999."),
        (
            DiamondSettings,
            {"dropout_rate": math.nan},
            "policy.dropout_rate is nan; it must lie between 0 and 0.999.",
        ),
        (
            DiamondSettings,
            {"mask": "dropout", "dropout_rate": 0.0},
            "policy.mask is dropout and policy.dropout_rate is 0, which hides nothing; "
            "raise the rate or use policy.mask none.",
        ),
        (PpoSettings, {"envs": 0}, "ppo.envs is 0; it must lie between 1 and 1048576."),
        (PpoSettings, {"steps": -1}, "ppo.steps is -1; it must lie between 1 and 65536."),
        (PpoSettings, {"batch": 0}, "ppo.batch is 0; it must lie between 1 and 1073741824."),
        (PpoSettings, {"epochs": 0}, "ppo.epochs is 0; it must lie between 1 and 1000."),
        (PpoSettings, {"learning_rate": 0.0}, "ppo.learning_rate is 0.0; it must be above 0 and at most 1000."),
        (PpoSettings, {"learning_rate": math.nan}, "ppo.learning_rate is nan; it must be above 0 and at most 1000."),
        (PpoSettings, {"clip": -0.2}, "ppo.clip is -0.2; it must be above 0 and at most 1000."),
        (PpoSettings, {"max_grad_norm": 0.0}, "ppo.max_grad_norm is 0.0; it must be above 0 and at most 1000000000."),
        (PpoSettings, {"gamma": 1.5}, "ppo.gamma is 1.5; it must lie between 0 and 1."),
        (PpoSettings, {"gae_lambda": -0.5}, "ppo.gae_lambda is -0.5; it must lie between 0 and 1."),
        (
            PpoSettings,
            {"value_coefficient": -1.0},
            "ppo.value_coefficient is -1.0; it must lie between 0 and 1000000.",
        ),
        (
            PpoSettings,
            {"entropy_coefficient": -1.0},
            "ppo.entropy_coefficient is -1.0; it must lie between 0 and 1000000.",
        ),
        (PpoSettings, {"target_kl": 0.0}, "ppo.target_kl is 0.0; it must be above 0 and at most 1000, or be None."),
        (
            PpoSettings,
            {"envs": 8, "steps": 2, "batch": 7},
            "ppo.batch is 7, which does not divide the 16 steps of a rollout (ppo.envs 8 × ppo.steps 2); "
            "choose a divisor.",
        ),
        (
            PpoSettings,
            {"batch": 1},
            "ppo.batch is 1, and advantages cannot be normalised over one sample; use 2 or more.",
        ),
        (Settings, {"total_steps": 0}, "total_steps is 0; it must lie between 1 and 10000000000000."),
        (Settings, {"checkpoint_every": 0}, "checkpoint_every is 0; it must lie between 1 and 1000000000."),
        (Settings, {"rank_hold": 0}, 'rank_hold is 0; it must lie between 1 and 1000000, or be "episode".'),
        (
            Settings,
            {"agents": "3", "tasks": "2"},
            "players is 3 and actions is 2: XOR needs at least as many actions as players, or nobody could ever "
            "win; raise actions or lower players.",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_can(group, changes, sentence):
    with pytest.raises(UserError) as refused:
        group(**changes)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("name", ["learning_rate", "value_coefficient", "entropy_coefficient"])
def test_infinity_is_refused_where_it_could_only_fail_later(name):
    with pytest.raises(UserError, match=f"ppo.{name} is inf"):
        PpoSettings(**{name: math.inf})


def test_updates_are_steps_rounded_up_to_whole_updates():
    ppo = PpoSettings(envs=8, steps=2, batch=16)
    updates = [Settings(ppo=ppo, total_steps=steps).total_updates for steps in (1, 16, 17, 160)]
    assert updates == [1, 1, 2, 10]


# --- Team sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4", (4,)),
        ("2:5", (2, 3, 4, 5)),
        ("2:4,8", (2, 3, 4, 8)),
        ("8,2", (8, 2)),
        ("3:3", (3,)),
        ("2,2:4,3", (2, 3, 4)),
        ("1", (1,)),
        ("4096", (4096,)),
    ],
)
def test_sizes_are_read_as_numbers_ranges_and_lists(text, sizes):
    assert parse_sizes(text, "agents") == sizes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write a number, a range such as 2:8, or a list such as 2,4,8."),
        ("many", "write a number"),
        ("2;4", "write a number"),
        ("2:", "write a number"),
        (":4", "write a number"),
        ("2,,4", "write a number"),
        ("2.5", "write a number"),
        ("2:4:6", "write a number"),
        ("0", "sizes must be at least 1 and ranges must not run backwards."),
        ("-3", "sizes must be at least 1"),
        ("4:2", "ranges must not run backwards"),
        ("0:3", "sizes must be at least 1"),
        ("4097", "sizes above 4096 are not supported."),
        ("2:99999999999", "sizes above 4096"),
    ],
)
def test_sizes_that_cannot_be_read_are_refused_with_what_can(text, why):
    with pytest.raises(UserError) as refused:
        parse_sizes(text, "agents")
    assert str(refused.value).startswith(f"agents is {text!r}; ")
    assert why in str(refused.value)


def test_of_a_range_only_the_pairs_that_can_be_played_are_kept():
    assert Settings(agents="2:4", tasks="3").sizes == (TeamSize(2, 3), TeamSize(3, 3))
    assert Settings(agents="2:4").sizes == (TeamSize(2, 2), TeamSize(3, 3), TeamSize(4, 4))
    with pytest.raises(UserError, match="XOR needs at least as many actions as players"):
        Settings(agents="4:5", tasks="2:3")


# --- Run folders ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_group(tmp_path_factory) -> Path:
    """A run that was never trained but has a checkpoint: enough to refuse what cannot be done with it."""
    settings = Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16))
    folder = tmp_path_factory.mktemp("runs") / "group"
    (run,) = create_group(folder, "xor", settings, [0], overwrite=False)
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shape_of_learner(settings))
    save_checkpoint(run.checkpoints, state._replace(update=np.asarray(3, np.int32)), step=48, score=None)
    return folder


@pytest.fixture
def run(tiny_group, tmp_path) -> Path:
    return shutil.copytree(tiny_group, tmp_path / "group") / "seed_0"


def rewrite(run: Path, **changes) -> None:
    values = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_bytes(json_bytes({**values, **changes}))


def test_a_run_opens_with_the_settings_it_was_made_with(run):
    opened = open_run(run)
    assert (opened.preset, opened.seed, opened.group_seeds) == ("xor", 0, (0,))
    assert opened.settings == Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1} and this version reads up to {FORMAT}; upgrade diamond-attention."),
        (10**30, "upgrade diamond-attention."),
        (0, "has format 0, which this version can no longer read; train it anew."),
        (-1, "has format -1, which this version can no longer read; train it anew."),
        (None, "has no format number; it is not a settings.json of this project."),
        ("1", "has no format number"),
        (1.0, "has no format number"),
    ],
)
def test_another_format_is_refused_with_what_to_do(found, sentence, run):
    rewrite(run, format=found)
    with pytest.raises(UserError) as refused:
        open_run(run)
    assert str(run / "settings.json") in str(refused.value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100_000, "\x00", " " * (1 << 20) + "{}"], ids=lambda text: text[:3]
)
def test_a_settings_file_that_is_not_one_is_refused_in_one_sentence(text, run):
    (run / "settings.json").write_text(text)
    with pytest.raises(UserError) as refused:
        open_run(run)
    assert str(run / "settings.json") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("changes", [{"seed": "0"}, {"seed": None}, {"group_seeds": 3}, {"group_seeds": ["../.."]}])
def test_a_run_that_does_not_say_its_seed_is_refused(changes, run):
    rewrite(run, **changes)
    with pytest.raises(UserError, match="does not say which seed it is"):
        open_run(run)


def test_a_refused_setting_is_reported_with_its_file(run):
    values = json.loads((run / "settings.json").read_text())
    values["settings"]["ppo"]["envs"] = -2
    rewrite(run, settings=values["settings"])
    with pytest.raises(UserError) as refused:
        open_run(run)
    assert str(refused.value) == f"{run / 'settings.json'}: ppo.envs is -2; it must lie between 1 and 1048576."


# --- The command line -----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Commands write into the current folder by default, and keep compiled programs in the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))


def status_and_error(arguments: str, capsys) -> tuple[int, str]:
    status = run_command(arguments.split())
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("trian xor", "there is no command 'trian'; did you mean train?"),
        ("fly", "there is no command 'fly'; there are train, resume, "),
        ("train", "`diamond train` needs a preset first: xor, "),
        ("train --seeds 0:3", "`diamond train` needs a preset first: xor, "),
        ("train xor-papr", "`diamond train`: there is no preset 'xor-papr'; did you mean xor-paper?"),
        ("show chess", "`diamond show`: there is no preset 'chess'; there are xor, "),
        ("bench xro", "`diamond bench`: there is no preset 'xro'; did you mean xor?"),
        ("list everything", "`diamond list` takes no arguments, and got 'everything'."),
        (
            "resume nowhere",
            "nowhere holds no run; name a run folder, or a folder of seeds.",
        ),
        ("evaluate nowhere", "nowhere holds no run; "),
        ("table nowhere", "nowhere holds no run; "),
        ("figure nowhere", "nowhere holds no run; "),
        ("evaluate", "name at least one run; `diamond list` shows them."),
        ("table", "name at least one run; `diamond list` shows them."),
        ("train xor --players 3 --actions 2", "players is 3 and actions is 2: XOR needs at least as many actions"),
        ("train xor --agents 3 --tasks 2", "players is 3 and actions is 2: XOR needs at least as many actions"),
        ("train xor --players two", "agents is 'two'; write a number, a range such as 2:8, or a list"),
        ("train xor --actions 8:4", "tasks is '8:4'; sizes must be at least 1 and ranges must not run backwards."),
        ("train xor --ppo.batch 500", "ppo.batch is 500, which does not divide the 512 steps of a rollout"),
        ("train xor --ppo.batch 1", "ppo.batch is 1, and advantages cannot be normalised over one sample"),
        ("train xor --ppo.envs 0", "ppo.envs is 0; it must lie between 1 and 1048576."),
        ("train xor --ppo.learning-rate nan", "ppo.learning_rate is nan; it must be above 0 and at most 1000."),
        ("train xor --ppo.gamma 2", "ppo.gamma is 2.0; it must lie between 0 and 1."),
        ("train xor --policy.width 1", "policy.width is 1; it must lie between 2 and 4096."),
        (
            "train xor --policy.mask dropout --policy.dropout-rate 0",
            "policy.mask is dropout and policy.dropout_rate is 0, which hides nothing; ",
        ),
        ("train xor --total-steps 0", "total_steps is 0; it must lie between 1 and 10000000000000."),
        ("train xor --checkpoint-every 0", "checkpoint_every is 0; it must lie between 1 and 1000000000."),
        ("train xor --rank-hold 0", 'rank_hold is 0; it must lie between 1 and 1000000, or be "episode".'),
        (
            "train xor --seeds three",
            "--seeds is 'three'; write a seed, a range such as 0:10, or a list such as 0,5,7.",
        ),
        ("train xor --seeds 0,0", "--seeds is '0,0'; give 1 to 1000 seeds, each once, from 0 to 4294967295."),
        ("train xor --seeds 5:5", "--seeds is '5:5'; give 1 to 1000 seeds, each once"),
        ("train xor --seeds=-1", "--seeds is '-1'; give 1 to 1000 seeds, each once"),
        ("train xor --seeds 4294967296", "--seeds is '4294967296'; give 1 to 1000 seeds, each once"),
    ],
)
def test_what_can_be_put_right_is_one_sentence_and_status_2_before_anything_runs(
    arguments, sentence, capsys, tmp_path
):
    status, errors = status_and_error(arguments, capsys)
    assert status == 2
    assert errors.startswith(f"diamond: {sentence}")
    assert errors.count("\n") == 1
    assert errors.endswith((".\n", "?\n"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("evaluate {run} --checkpoint 999", "--checkpoint is '999'; write best, last or one of the steps .*: 48\\."),
        ("evaluate {run} --checkpoint bset", "--checkpoint is 'bset'; write best, last or one of the steps "),
        ("evaluate {run} --checkpoint best", "seed_0 has no scored checkpoint; use --checkpoint last\\."),
        ("evaluate {run} --episodes 0", "--episodes is 0; it must lie between 1 and 1000000\\."),
        ("evaluate {run} --seed=-1", "--seed is -1; it must lie between 0 and 4294967295\\."),
        ("figure {run} --seed=-1", "--seed is -1; it must lie between 0 and 4294967295\\."),
        ("figure {run} --seed 4294967296", "--seed is 4294967296; it must lie between 0 and 4294967295\\."),
        (
            "evaluate {run} --dropout on",
            r"--dropout was given, but policy\.mask is rank, which has none;",
        ),
        ("evaluate {run} --players 3 --actions 2", "players is 3 and actions is 2: XOR needs"),
        ("evaluate {run} --players x", "--agents is 'x'; write a number, a range such as 2:8"),
        ("table {run}", "these runs have no evaluated episodes yet; run `diamond evaluate` on them first\\."),
        ("resume {run}/checkpoints", "checkpoints holds no run; "),
    ],
)
def test_what_a_run_cannot_do_is_one_sentence_and_status_2(arguments, sentence, capsys, run):
    status, errors = status_and_error(arguments.format(run=run), capsys)
    assert status == 2
    assert errors.startswith("diamond: ")
    assert re.search(sentence, errors)
    assert errors.count("\n") == 1


def test_a_run_of_a_newer_version_is_one_sentence_and_status_2(capsys, run):
    rewrite(run, format=FORMAT + 1)
    for command in ("resume", "evaluate", "table", "figure"):
        status, errors = status_and_error(f"{command} {run}", capsys)
        assert status == 2
        assert errors.startswith(f"diamond: {run}/settings.json has format {FORMAT + 1}")
        assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train xor --ppo.bach 16", "`diamond train xor` has no option --ppo.bach; did you mean --ppo.batch?"),
        ("train xor --sedes 0", "`diamond train xor` has no option --sedes; did you mean --seeds?"),
        ("train xor --envs 8", "`diamond train xor` has no option --envs; did you mean --ppo.envs?"),
        (
            "train xor --quantum 8",
            "`diamond train xor` has no option --quantum; `diamond train xor --help` lists all.",
        ),
        ("train xor --policy.mask ranks", f"--policy.mask is 'ranks'; it must be one of {MASKS}."),
        ("train xor --ppo.envs many", "--ppo.envs is 'many'; it must be a whole number."),
        ("train xor --ppo.gamma=high", "--ppo.gamma is 'high'; it must be a number."),
        ("train xor --ppo.target_kl off", "--ppo.target-kl is 'off'; it must be None or a number."),
        ("train xor --rank-hold sometimes", "--rank-hold is 'sometimes'; it must be a whole number or episode."),
        ("train xor --device tpu", "--device is 'tpu'; it must be one of cpu, gpu."),
        ("train xor --quiet=yes", "--quiet takes no value, and got 'yes'; write --quiet alone."),
        ("train xor --ppo.envs", "--ppo.envs needs a value after it."),
        ("watch somewhere --players x", "--players is 'x'; it must be None or a whole number."),
        ("bench xor --seeds 1 x", "--seeds is '1, x'; it must be a whole number."),
        (
            "evaluate somewhere --episods 10",
            "`diamond evaluate` has no option --episods; did you mean --episodes?",
        ),
        (
            "watch one two",
            "`diamond watch` has no use for 'two'; options begin with --, and `diamond watch --help` lists them.",
        ),
        ("resume", "`diamond resume` needs PATH (run); see `diamond resume --help`."),
        (
            "export somewhere",
            "`diamond export` needs --to PATH (New folder; of several seeds, each gets one in it. Or a new "
            "file.onnx, of one seed (extra `onnx`)); see `diamond export --help`.",
        ),
        (
            "list --tyro-print-completion klingon",
            "`diamond list` takes no arguments, and got '--tyro-print-completion'.",
        ),
        (
            "demo --tyro-print-completion klingon",
            "--tyro-print-completion failed: Shell should be one `bash`, `zsh`, `tcsh`, or `fish`, but got klingon.",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_what_can(arguments, sentence, capsys, tmp_path):
    status, errors = status_and_error(arguments, capsys)
    assert (status, errors) == (2, f"diamond: {sentence}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_box_of_another_version_of_tyro_is_quoted_in_one_line():
    from diamond_attention.refusals import _in_one_sentence

    lines = ["╭─ Parsing error ─╮", "│ this is         │", "│ required: X     │", "│ ─────────────── │", "│ --help │"]
    box = "\n".join([*lines, "╰─────────────────╯"])
    assert _in_one_sentence(box, [], "diamond watch") == "`diamond watch`: this is required: X."


def test_help_keeps_its_boxes_and_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    with pytest.raises(SystemExit) as stopped:
        run_command(["train", "xor", "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "--ppo.envs INT" in said.out
    assert max(map(len, said.out.splitlines())) == 72


def test_show_prints_what_train_would_use(capsys):
    assert (
        run_command(
            ["show", "xor-demo", "--ppo.envs", "8", "--ppo.batch", "16", "--players", "2:3", "--actions", "3"]
        )
        == 0
    )
    out = capsys.readouterr().out.splitlines()
    for line in ("ppo.envs = 8", "ppo.batch = 16", 'agents = "2:3"', 'tasks = "3"', "policy.width = 32"):
        assert line in out
    assert out[-1] == "# 2500 updates of 16 steps; agents x tasks: 2x3 3x3"


def test_the_installed_command_ends_with_status_2_too(tmp_path):
    command = Path(sys.executable).with_name("diamond")
    if not command.exists():
        pytest.skip("the package is not installed beside this Python")
    done = subprocess.run([command, "trian"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "diamond: there is no command 'trian'; did you mean train?\n"


def has_gpu() -> bool:
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


@pytest.mark.skipif(has_gpu(), reason="JAX finds a GPU here")
@pytest.mark.parametrize("command", ["train xor", "resume {run}", "evaluate {run}"])
def test_asking_for_a_gpu_that_is_not_there_is_an_error_and_not_a_slow_run(command, capsys, run):
    status, errors = status_and_error(f"{command.format(run=run)} --device gpu", capsys)
    assert status == 2
    assert errors.startswith("diamond: --device is gpu, but JAX finds no GPU here; ")
    assert errors.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0:3", [0, 1, 2]), ("0,5,7", [0, 5, 7]), ("1:3,9", [1, 2, 9])]
)
def test_seeds_are_read_as_numbers_ranges_and_lists(text, seeds):
    assert parse_seeds(text) == seeds


def test_an_older_format_is_migrated_step_by_step(tmp_path, monkeypatch):
    """Format 0 called the team sizes players; its migration renames them and the run opens."""
    from diamond_attention.runs import folder
    from diamond_attention.runs.settings import Settings, to_json

    def rename(values):
        settings = dict(values["settings"])
        settings["agents"] = settings.pop("players")
        return {**values, "settings": settings}

    monkeypatch.setitem(folder.MIGRATIONS, 0, rename)
    settings = to_json(Settings(agents="3"))
    settings["players"] = settings.pop("agents")
    described = {"format": 0, "preset": "xor", "seed": 0, "group_seeds": [0], "settings": settings}
    (tmp_path / "settings.json").write_text(json.dumps(described))
    assert folder.open_run(tmp_path).settings == Settings(agents="3")


def test_a_run_on_a_world_of_ones_own_keeps_that_worlds_settings(tmp_path):
    from dataclasses import dataclass

    from diamond_attention.runs import folder
    from diamond_attention.runs.settings import Settings
    from diamond_attention.worlds.xor import Xor

    @dataclass(frozen=True)
    class Own(Xor):
        reach: float = 0.1
        name = "own"

    (run,) = create_group(tmp_path / "group", "", Settings(world=Own(reach=0.5)), [0], overwrite=False)
    (opened,) = folder.find_runs([str(tmp_path / "group")], world=Own())
    assert opened.settings.world == Own(reach=0.5)
    assert opened == run


def test_no_method_can_take_the_place_of_a_setting():
    from diamond_attention.learning.registry import TAKEN

    assert set(TAKEN) == {field.name for field in dataclasses.fields(Settings)}
