"""Numbers nobody meant: where each may lie, what they would need of memory, and who is asked before anything runs."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import numpy as np
import pytest

from diamond_attention.bench.report import bench
from diamond_attention.build import build_policy
from diamond_attention.demo import demo
from diamond_attention.errors import UserError, shown
from diamond_attention.evaluation import evaluate as evaluation
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.evaluation.recording import record, size_to_show
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.ranges import Between, Ranged, check_number, check_ranges, ranged_fields
from diamond_attention.reports.figures import draw_attention, draw_figures
from diamond_attention.runs import memory
from diamond_attention.runs.assemble import shape_of_learner
from diamond_attention.runs.bundle_format import SHIPPED
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.memory import bytes_of, check_training_fits, host_bytes, play_bytes, training_bytes
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.progress import Quiet
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.sizes import team_sizes
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.particles import Physics
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

# --- Ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ball:
    bounces: Annotated[int, Between(1, 10)] = 3
    radius: Annotated[float, Between(0, 2, low_left_out=True)] = 1.0
    rests_after: Annotated[int | None, Between(1, 5)] = None
    hold: Annotated[int | Literal["episode"], Between(1, 7)] = 1
    name: str = "ball"
    weight: float = math.inf

    def __post_init__(self) -> None:
        check_ranges(self, "ball.")


def test_only_fields_that_say_where_they_may_lie_are_checked():
    assert ranged_fields(Ball) == (
        Ranged("bounces", int, Between(1, 10), ()),
        Ranged("radius", float, Between(0, 2, low_left_out=True), ()),
        Ranged("rests_after", int, Between(1, 5), (None,)),
        Ranged("hold", int, Between(1, 7), ("episode",)),
    )
    Ball(bounces=1, radius=1e-300, rests_after=5, hold="episode", weight=math.nan)
    Ball(bounces=10, radius=2, rests_after=None, hold=7)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"bounces": 0}, "ball.bounces is 0; it must lie between 1 and 10."),
        ({"bounces": 11}, "ball.bounces is 11; it must lie between 1 and 10."),
        ({"bounces": 2.0}, "ball.bounces is 2.0; it must be a whole number and lie between 1 and 10."),
        ({"bounces": True}, "ball.bounces is True; it must be a whole number and lie between 1 and 10."),
        ({"bounces": "3"}, "ball.bounces is '3'; it must be a whole number and lie between 1 and 10."),
        ({"bounces": None}, "ball.bounces is None; it must be a whole number and lie between 1 and 10."),
        (
            {"bounces": np.int64(3)},
            "ball.bounces is np.int64(3); it must be a whole number and lie between 1 and 10.",
        ),
        ({"radius": 0}, "ball.radius is 0; it must be above 0 and at most 2."),
        ({"radius": math.nan}, "ball.radius is nan; it must be above 0 and at most 2."),
        ({"radius": math.inf}, "ball.radius is inf; it must be above 0 and at most 2."),
        ({"radius": -math.inf}, "ball.radius is -inf; it must be above 0 and at most 2."),
        ({"radius": False}, "ball.radius is False; it must be a number and be above 0 and at most 2."),
        ({"rests_after": 6}, "ball.rests_after is 6; it must lie between 1 and 5, or be None."),
        ({"hold": 8}, 'ball.hold is 8; it must lie between 1 and 7, or be "episode".'),
        (
            {"hold": "ever"},
            "ball.hold is 'ever'; it must be a whole number and lie between 1 and 7, or be \"episode\".",
        ),
    ],
)
def test_a_number_outside_its_range_or_no_number_is_one_sentence(changes, sentence):
    with pytest.raises(UserError) as refused:
        Ball(**changes)
    assert str(refused.value) == sentence


def test_an_option_is_named_as_it_is_typed_and_may_be_left_out():
    @dataclass(frozen=True)
    class Options:
        frames_per_second: Annotated[int | None, Between(1, 50)] = None

    check_ranges(Options(), "--")
    with pytest.raises(UserError) as refused:
        check_ranges(Options(51), "--")
    assert str(refused.value) == "--frames-per-second is 51; it must lie between 1 and 50."


@pytest.mark.parametrize(
    "value",
    [10**100, -(10**100), 10**5000, "x" * 1000, [0] * 1000],
    ids=["large", "small", "thousands of digits", "words", "list"],
)
def test_a_value_of_any_length_is_quoted_in_a_sentence(value):
    assert len(shown(value)) <= 61
    with pytest.raises(UserError) as refused:
        check_number("ball.bounces", value, Between(1, 10))
    assert len(str(refused.value)) < 150


def test_annotations_may_be_strings():
    """As after `from __future__ import annotations`."""
    later = dataclasses.make_dataclass("Later", [("number", "Annotated[int, Between(1, 2)]", 1)])
    later.__module__ = __name__
    assert ranged_fields(later) == (Ranged("number", int, Between(1, 2), ()),)


GROUPS = {
    "ppo": PpoSettings(envs=2, steps=2, batch=2, normalise_advantages=False),
    "policy": DiamondSettings(),
    "settings": Settings(method=PpoSettings(envs=2**20, batch=2**20)),
    "xor": Xor(),
    "spread": Spread(),
    "food": Food(half_width=10.0),
    "physics": Physics(),
    "smaclite": Smaclite(),
}
ENDS = [
    (group, field, end)
    for group, settings in GROUPS.items()
    for field in ranged_fields(type(settings))
    for end in (field.between.low, field.between.high)
]
ANOTHER_RULE_REFUSES = {("food", "half_width", 1e-6), ("food", "food_radius", 1_000_000)}
"""Food has to find a place to grow again."""


@pytest.mark.parametrize(("group", "field", "end"), ENDS, ids=lambda value: getattr(value, "name", str(value)))
def test_both_ends_of_every_range_are_allowed_and_nothing_beyond(group, field, end):
    settings = GROUPS[group]
    if (group, field.name) == ("ppo", "batch"):
        settings = dataclasses.replace(settings, envs=2**20, steps=2**10)
    at_the_end = math.nextafter(end, 1.0) if field.between.low_left_out and end == field.between.low else end
    beyond = end - 1 if end == field.between.low else end * 2 + 1
    if (group, field.name, end) not in ANOTHER_RULE_REFUSES:
        assert getattr(dataclasses.replace(settings, **{field.name: at_the_end}), field.name) == at_the_end
    with pytest.raises(UserError, match=rf"{field.name} is .*; it must (lie|be) "):
        dataclasses.replace(settings, **{field.name: beyond})


def test_every_number_of_every_preset_has_a_range():
    def numbers(settings):
        for field in dataclasses.fields(settings):
            value = getattr(settings, field.name)
            if dataclasses.is_dataclass(value):
                yield from numbers(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield type(settings), field.name

    for _, settings in PRESETS.values():
        for kind, name in numbers(settings):
            assert name in [field.name for field in ranged_fields(kind)], f"{kind.__name__}.{name} has no range"


def test_more_updates_than_an_int32_counts_are_refused():
    ppo = PpoSettings(envs=2, steps=1, batch=2)
    assert Settings(method=ppo, total_steps=2 * (2**31 - 1)).total_updates == 2**31 - 1
    with pytest.raises(UserError) as refused:
        Settings(method=ppo, total_steps=2 * (2**31 - 1) + 1)
    assert str(refused.value) == (
        "total_steps is 4294967295, which makes 2147483648 updates of 2 steps, and at most 2147483647 can be "
        "counted; lower it."
    )


# --- Sizes ----------------------------------------------------------------------------------------


def test_the_pairs_of_sizes_are_counted_before_they_are_made():
    assert len(team_sizes(Xor(), "1:64", "1:64")) == 64 * 65 // 2  # of 4096 pairs, those with enough actions
    assert len(team_sizes(Xor(), "1:4096", "same")) == 4096
    with pytest.raises(UserError) as refused:
        team_sizes(Xor(), "1:4096", "1:4096")
    assert str(refused.value) == (
        "agents is '1:4096' and tasks is '1:4096', which makes 16777216 pairs, and at most 4096 are supported; "
        "name fewer sizes."
    )


# --- Memory ---------------------------------------------------------------------------------------

TINY = Settings(policy=DiamondSettings(width=4), method=PpoSettings(envs=4, steps=3, batch=12))
"""Two players and two actions."""

# Bytes, counted by hand. One agent's view: two agents with one feature each, two tasks with twelve, who is present,
# two ranks. Its attention: two blocks of task × agent, and a third with the viewer alone.
VIEW = 2 * 1 * 4 + 2 * 12 * 4 + 2 + 2 + 2 * 4
ATTENTION = 2 * (2 * 2 * 4) + 2 * 1 * 4
# A team's episode: players and actions, two ranks, step, limit, return, and the measures success and distinct.
TEAM = 2 * 4 + 2 * 4 + 4 + 4 + 4 + 2 * 4
# A step of it: two views, the team's view, two actions with their log-probabilities, value and next value, reward,
# three flags, the return and the two measures of a finished episode.
TEAM_VIEW = 2 * 1 * 4 + 2 * 12 * 4 + 2 + 2
STEP = 2 * VIEW + TEAM_VIEW + 2 * 4 + 2 * 4 + 4 + 4 + 4 + 3 + 4 + 2 * 4


def test_what_a_game_needs_is_the_views_and_the_attention():
    policy = build_policy(TINY.world, TINY.policy, jax.random.key(0))
    assert (VIEW, ATTENTION) == (116, 40)
    assert play_bytes(TINY.world, policy) == 2 * (VIEW + ATTENTION)


def test_what_a_training_needs_is_its_state_a_rollout_and_who_plays_in_it():
    state = shape_of_learner(TINY)
    weights = sum(leaf.size for leaf in jax.tree.leaves(state.weights))
    # Adam keeps two more numbers for each weight, and counts; then the teams, a key, and two counts of our own.
    expected = 3 * 4 * weights + 4 + 4 * TEAM + 8 + 4 + 4
    assert bytes_of(state) == expected
    assert STEP == 383
    assert training_bytes(TINY) == expected + 4 * 2 * (VIEW + ATTENTION) + 4 * TEAM + 4 * 3 * STEP


def test_a_training_that_does_not_fit_is_refused_with_what_it_needs(monkeypatch):
    needed = training_bytes(TINY)
    monkeypatch.setattr(memory, "device_bytes", lambda: 3 * needed)
    check_training_fits(TINY, [0, 1, 2])
    with pytest.raises(UserError) as refused:
        check_training_fits(TINY, range(4))
    assert str(refused.value) == (
        f"this training needs at least {4 * needed / 1000:.1f} kB for 2 agents, 2 tasks, ppo.envs 4, ppo.steps 3, "
        f"ppo.batch 12, policy.width 4 and 4 seed(s), and the device has {3 * needed / 1000:.1f} kB; lower them."
    )


def test_the_largest_numbers_allowed_are_refused_by_their_memory_and_not_by_a_crash():
    ppo = PpoSettings(envs=2**20, steps=2**16, batch=2**30)
    for agents in ("2", "4096"):
        with pytest.raises(UserError, match=r"this training needs at least [\d.]+ [TPE]B for \d+ agents"):
            check_training_fits(Settings(agents=agents, method=ppo, policy=DiamondSettings(width=4096)), range(1000))


def test_the_memory_of_a_cpu_is_the_smallest_limit_around_this_process(tmp_path):
    assert host_bytes(tmp_path) > 2**20  # no limits at all: what the machine has
    groups = {
        "proc/self/cgroup": "3:memory:/docker/abc\n2:cpu:/\n0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.max": "700000\n",
    }
    for name, text in groups.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_bytes(tmp_path) == 700_000
    old = tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes"  # the container's own group is not shown inside it
    old.parent.mkdir()
    old.write_text("600000\n")
    assert host_bytes(tmp_path) == 600_000


# --- Who is asked, also from Python ---------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    return open_run(SHIPPED / "spread")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"episodes": 0}, "--episodes is 0; it must lie between 1 and 1000000."),
        ({"episodes": 10**12}, "--episodes is 1000000000000; it must lie between 1 and 1000000."),
        ({"episodes": 2.5}, "--episodes is 2.5; it must be a whole number and lie between 1 and 1000000."),
        ({"seed": 2**32}, "--seed is 4294967296; it must lie between 0 and 4294967295."),
        (
            {"episodes": 600_000},
            "--episodes is 600000, which makes 1200000 rows with 1 size(s), all runs together, and 2 way(s) of "
            "playing; at most 1000000 are kept at once: lower it or evaluate less at a time.",
        ),
    ],
)
def test_an_evaluation_of_too_much_is_refused_before_it_plays(run, arguments, sentence, monkeypatch):
    monkeypatch.setattr(evaluation, "play_sizes", None)
    with pytest.raises(UserError) as refused:
        evaluate(run, **arguments)
    assert str(refused.value) == sentence


def test_a_team_that_memory_cannot_hold_is_refused_before_it_plays(run, monkeypatch):
    monkeypatch.setattr(evaluation, "play_sizes", None)
    with pytest.raises(
        UserError, match=r"this game needs at least [\d.]+ TB for 4096 agents \(--agents\), .*lower them"
    ):
        evaluate(run, sizes=[TeamSize(4096, 4096)], episodes=1000)


def test_pictures_and_films_of_too_much_are_refused(run, tmp_path, monkeypatch):
    def refusal(call, *arguments, **named):
        with pytest.raises(UserError) as refused:
            call(*arguments, **named)
        return str(refused.value)

    too_many = "64 agents are too many for a picture of what each attends to; choose at most 32 with --agents."
    assert refusal(lambda: [*draw_figures([run], tmp_path / "figures", agents=64)]) == too_many
    assert refusal(draw_attention, run, tmp_path / "attention.png", size=TeamSize(64, 64)) == too_many
    for agents in (0, -1, 101):
        assert refusal(size_to_show, run, run.settings.world, agents) == (
            f"--agents is {agents}; it must lie between 1 and 100."
        )
    assert refusal(record, run, TeamSize(4, 4), steps=10**9) == (
        "--steps is 1000000000; it must lie between 1 and 100000."
    )
    monkeypatch.setattr(memory, "device_bytes", lambda: 2**20)
    # The attention is 1.6 MB of it: 401 frames of two blocks for eight viewers, eight tasks and eight agents.
    assert refusal(record, run, TeamSize(8, 8)).startswith(
        "this recording needs at least 1.9 MB for 8 agents (--agents)"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_demo_and_the_bench_count_their_seeds_first(tmp_path):
    for seeds in (0, 10**9, True):
        with pytest.raises(UserError, match=f"--seeds is {seeds}; it must "):
            demo(tmp_path / "demo", seeds, Quiet())
        with pytest.raises(UserError, match=f"--seeds is {seeds}; it must "):
            bench("xor", [1, seeds], tmp_path / "bench.json")
    assert list(tmp_path.iterdir()) == []


def test_the_device_is_asked_for_its_own_memory(monkeypatch):
    class Gpu:
        def memory_stats(self):
            return {"bytes_limit": 16_000_000_000}

    monkeypatch.setattr(jax, "devices", lambda platform=None: [Gpu()])
    assert memory.device_bytes() == 16_000_000_000
