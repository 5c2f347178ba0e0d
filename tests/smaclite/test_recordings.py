"""The engine against recorded episodes of the original, one step at a time in float64."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.worlds.smaclite import battle, replay
from diamond_attention.worlds.smaclite.scripted import attack_weakest_in_range

TRACES = sorted((Path(__file__).parent / "traces").glob("*.npz"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_step_is_the_original_step(path):
    comparison = replay.compare(replay.load_trace(path))
    assert comparison.mismatches == {}
    assert comparison.lines_dropped == 0


def test_replay_reports_what_differs_and_fails(tmp_path, monkeypatch, capsys):
    trace = TRACES[0]
    arrays = dict(np.load(trace))
    arrays["hp"] = arrays["hp"].copy()
    arrays["hp"][5, 0] -= 1.0
    spoiled = tmp_path / "spoiled.npz"
    np.savez_compressed(spoiled, **arrays)
    monkeypatch.setitem(replay.EXPLAINED, ("spoiled", 4), "Spoiled by hand.")
    found = tmp_path / "found.json"
    assert run_command(["smaclite-replay", str(trace)]) == 0
    assert run_command(["smaclite-replay", str(trace), str(spoiled), "--to", str(found)]) == 1
    printed = capsys.readouterr().out
    assert "spoiled step 4 differs: hp 1.0e+00\n    Spoiled by hand." in printed
    assert "spoiled step 5 differs" in printed
    written = json.loads(found.read_text())
    first, second = written["exceptions"][:2]
    assert (first["recording"], first["step"], first["why"]) == ("spoiled", 4, "Spoiled by hand.")
    assert first["differences"] == {"hp": 1.0}
    assert second["why"] is None
    good, bad = written["recordings"]
    assert (good["recording"], good["share_matching"]) == (trace.stem, 1.0)
    assert bad["share_matching"] == pytest.approx(1 - len(written["exceptions"]) / bad["steps"])
    assert written["steps"] == 2 * good["steps"]
    assert written["steps_matching"] == written["steps"] - len(written["exceptions"])
    assert written["largest_difference"]["hp"] >= 1.0
    assert len(written["environment"]["commit"]) >= 7


def test_a_scripted_team_does_what_the_recorded_one_did():
    """The recorded team's rule and its random numbers are known: 15 % of its actions are any legal one."""
    path = Path(__file__).parent / "traces" / "2s_vs_1sc_01_inrange_eps.npz"
    trace = replay.load_trace(path)
    with np.load(path) as stored:
        generator = np.random.default_rng(json.loads(str(stored["meta"]))["policy_seed"])
    recorded, scenario = trace.arrays["actions"], trace.scenario
    with jax.enable_x64(True):
        states = replay.load_state(trace, np.arange(trace.steps))
        legal = jax.vmap(lambda state: battle.legal_actions(scenario, state))(states)
        actions = np.array(jax.vmap(lambda *now: attack_weakest_in_range(scenario, *now))(states, legal))
    strayed = 0
    for step in range(trace.steps):
        for agent in np.flatnonzero(trace.arrays["alive"][step][scenario.ally_ids]):
            if generator.random() < 0.15:
                actions[step, agent] = generator.choice(np.flatnonzero(legal[step, agent]))
                strayed += 1
    np.testing.assert_array_equal(actions, recorded)
    assert strayed > 0


def test_other_files_are_refused_with_one_sentence(tmp_path):
    arrays = dict(np.load(TRACES[0]))
    other = tmp_path / "other.npz"

    np.savez(other, a=np.zeros(3))
    with pytest.raises(UserError, match="not a SMAClite trace"):
        replay.load_trace(other)

    np.savez(other, **(arrays | {"hp": arrays["hp"][:, :3]}))
    with pytest.raises(UserError, match="another format: hp has shape"):
        replay.load_trace(other)

    np.savez(other, **{name: values for name, values in arrays.items() if name != "order"})
    with pytest.raises(UserError, match="another format: order is missing"):
        replay.load_trace(other)

    np.savez(other, **(arrays | {"meta": np.array('{"map": "8m", "unit_type": []}')}))
    with pytest.raises(UserError, match="'8m'"):
        replay.load_trace(other)

    other.write_text("not even an archive")
    with pytest.raises(UserError, match="not a SMAClite trace"):
        replay.load_trace(other)
    with pytest.raises(UserError, match="no file"):
        replay.load_trace(tmp_path / "missing.npz")
    with pytest.raises(UserError, match="at least one"):
        replay.compare_all([])
