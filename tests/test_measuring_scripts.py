"""What scripts for a lent GPU must not get wrong: rows that survive a cut, comparisons that can fail, curves."""

import fcntl
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture(autouse=True)
def scripts_are_found(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)


def rows_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_was_found_before_the_end_is_on_disk(tmp_path):
    from measuring import Lines, side_by_side

    file, script = tmp_path / "rows.jsonl", tmp_path / "script.py"
    script.write_text(
        "import json, sys, time\n"
        "with open(sys.argv[2], 'a') as file:\n"
        "    file.write(json.dumps({'what': sys.argv[1]}) + '\\n')\n"
        "time.sleep(600 if sys.argv[1] == 'endless' else 0)\n"
        "sys.exit(3 if sys.argv[1] == 'failing' else 0)\n"
    )

    class WhenTheThirdIsAtIt(float):
        def __le__(self, now):
            return file.exists() and "endless" in file.read_text()

    commands = {name: [str(script), name, str(file)] for name in ("quick", "failing", "endless", "never")}
    statuses = side_by_side(Lines(str(file)), commands, 1, WhenTheThirdIsAtIt())
    assert statuses == {"quick": 0, "failing": 3, "endless": -9, "never": None}
    assert [row["what"] for row in rows_of(file)] == ["quick", "failing", "endless", "cut off", "ended"]


def test_a_row_says_what_was_typed_and_not_where_the_machine_keeps_its_files(tmp_path, monkeypatch):
    from measuring import Lines

    file = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "experiments" / "some.py"), "rate", "--to", str(file)])
    Lines(str(file)).environment()
    assert rows_of(file)[0]["command"] == ["python", "experiments/some.py", "rate", "--to", "rows.jsonl"]


def test_those_who_write_one_file_measure_in_turns(tmp_path):
    from measuring import Lines

    def is_free(name, kind=fcntl.LOCK_EX):
        with (tmp_path / name).open("a") as file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    lines = Lines(str(tmp_path / "rows.jsonl"))
    with lines.alone():
        lines.say("measured")  # rows are written while it is one's turn
        assert not is_free("rows.jsonl")
        assert not is_free("rows.jsonl", fcntl.LOCK_SH), "nobody compiles meanwhile"
        assert is_free("others.jsonl")
    assert is_free("rows.jsonl")
    with lines.among_others():
        assert is_free("rows.jsonl", fcntl.LOCK_SH)
        assert not is_free("rows.jsonl"), "nobody times meanwhile"
    assert [row["what"] for row in rows_of(tmp_path / "rows.jsonl")] == ["measured"]
    with Lines(None).alone():
        pass


def test_kernels_are_not_compared_with_the_ordinary_code_by_the_ordinary_code(monkeypatch):
    import battle_kernel_check
    from measuring import Lines

    for switch in ("off", "on"):
        monkeypatch.setenv("DIAMOND_KERNELS", switch)
        with pytest.raises(SystemExit, match=f"DIAMOND_KERNELS={switch} and cpu: there are no kernels of 2s3z"):
            battle_kernel_check.check(Lines(None), "2s3z", states=10, envs=5)


def test_a_battle_differs_if_any_part_does_or_is_no_number():
    import battle_kernel_check as script

    from diamond_attention.worlds.smaclite import battle
    from diamond_attention.worlds.smaclite.scenario import scenario_of

    state = jax.vmap(lambda _: battle.start(scenario_of("2s3z")))(jnp.arange(4))
    one = battle.Outcome(state, jnp.zeros(4), jnp.zeros(4, bool), jnp.zeros(4, bool))
    hp, reward = state.hp.at[1, 3].add(0.01).at[3, 0].add(1e-5), jnp.array([0.0, 0.0, jnp.nan, 0.0])
    distances = script.apart(one, one._replace(state=state._replace(hp=hp), reward=reward))
    np.testing.assert_array_equal(script.which_differ(distances), [False, True, True, False])
    assert distances["reward"][2] == jnp.inf


def test_points_of_a_curve_change_one_thing():
    import cost_curves

    few, seeds = cost_curves.settings_at("gpu", "agents", 16)
    assert (few.sizes[0].agents, few.ppo.envs, few.ppo.batch, seeds) == (16, 256, 512, 1)
    several, seeds = cost_curves.settings_at("gpu", "seeds", 8)
    assert (several.ppo, seeds) == (cost_curves.PRESETS["spread-gpu"][1].ppo, 8)
    assert cost_curves.settings_at("cpu", "width", 16)[0].policy.width == 16


def test_a_table_says_by_what_power_time_grows(tmp_path, capsys):
    import cost_curves

    file = tmp_path / "rows.jsonl"
    point = {"what": "training", "axis": "agents", "steps_per_second": 1000, "compile_s": 1.0, "program_bytes": None}
    points = [point | {"value": agents, "s_an_update": 0.001 * agents**2} for agents in (8, 2, 4)]
    file.write_text("\n".join(json.dumps(row) for row in [{"what": "environment"}, *points]))
    cost_curves.table(str(file))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(line[1], line[4]) for line in lines] == [("2", "1.0"), ("4", "2.00"), ("8", "2.00")]


def test_the_norm_by_hand_has_the_gradient_of_the_plain_one():
    from minibatch_variants import normalised

    def plain(wide):
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        return wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-5)

    rows, weights = jax.random.normal(jax.random.key(0), (2, 7, 16))
    for one, other in zip(
        *((*jax.vjp(norm, rows)[1](weights), norm(rows)) for norm in (normalised, plain)), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)
