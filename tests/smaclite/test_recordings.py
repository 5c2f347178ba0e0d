"""The engine against recorded episodes of the original, one step at a time in float64."""

import io
import json
import os
import resource
import zipfile
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

    np.savez(other, **(arrays | {"meta": np.array("[" * 100_000)}))
    with pytest.raises(UserError, match="not a SMAClite trace"):
        replay.load_trace(other)
    np.savez(other, **(arrays | {"meta": np.array('{"map": ["2s3z"], "unit_type": []}')}))
    with pytest.raises(UserError, match="is a trace of"):
        replay.load_trace(other)
    np.savez(other, **(arrays | {"hp": arrays["hp"].astype(str)}))
    with pytest.raises(UserError, match="another format: hp does not hold numbers"):
        replay.load_trace(other)
    shorter = {
        name: values[:1] if len(values) > len(arrays["reward"]) else values[:0] for name, values in rest(arrays)
    }
    np.savez(other, meta=arrays["meta"], **shorter)
    with pytest.raises(UserError, match="a trace of no steps"):
        replay.load_trace(other)


def rest(arrays):
    return ((name, values) for name, values in arrays.items() if name != "meta")


def header_of(shape: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return written.getvalue()


BOMBS = {
    # 160 MB of zeros, which pack to a thousandth.
    "pos.npy": (lambda: header_of((20_000_000,)) + bytes(160_000_000), "would unpack to 2 arrays of 160000"),
    # Room for eight terabytes would be made before it is seen that there are eight bytes.
    "vel.npy": (lambda: header_of((10**12,)) + bytes(8), "not a SMAClite trace"),
    "hp.npy": (lambda: header_of((3,)) + bytes(8), "not a SMAClite trace"),
    "shield.npy": (lambda: b"\x93NUMPY\x03\x00" + header_of((1,))[8:] + bytes(8), "not a SMAClite trace"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_unpack_to_more_than_a_trace_is_never_unpacked(name, tmp_path):
    make, sentence = BOMBS[name]
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(name, make())
        packed.writestr("meta.npy", b"")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=sentence):
        replay.load_trace(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_zip_file_of_very_many_files_or_bytes_is_refused(tmp_path):
    many = tmp_path / "many.npz"
    with zipfile.ZipFile(many, "w") as packed:
        for number in range(65):
            packed.writestr(f"{number}.npy", b"")
    with pytest.raises(UserError, match="would unpack to 65 arrays of 0 bytes"):
        replay.load_trace(many)
    large = tmp_path / "large.npz"
    with large.open("wb") as file:
        file.truncate(10**12)  # takes no room on the disk
    with pytest.raises(UserError, match="has 1000000000000 bytes, and no SMAClite trace has more than"):
        replay.load_trace(large)


def test_only_plain_files_are_opened_and_nobody_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", tmp_path, "/dev/zero"):
        with pytest.raises(UserError, match="is not a plain file; name the"):
            replay.load_trace(path)
