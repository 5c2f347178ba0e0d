"""Checkpoints come back bit for bit, and a file that is not exactly right is refused with one sentence."""

import hashlib
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as some

from diamond_attention.errors import Notice, UserError
from diamond_attention.learning.ppo import PpoState
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.runs.array_file import CheckpointError
from diamond_attention.runs.arrays import named_arrays
from diamond_attention.runs.assemble import shape_of_learner
from diamond_attention.runs.checkpoint import (
    best_of,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    remove_leftovers,
    save_checkpoint,
)
from diamond_attention.runs.files import LARGEST_JSON, json_bytes
from diamond_attention.runs.folder import open_run
from diamond_attention.runs.group import create_group
from diamond_attention.runs.restore import load_run
from diamond_attention.runs.settings import Settings

SETTINGS = Settings(policy=DiamondSettings(width=8), ppo=PpoSettings(envs=8, steps=2, batch=16))
UPDATE = 7
STEP = UPDATE * 16


@pytest.fixture(scope="module")
def shapes() -> PpoState:
    return shape_of_learner(SETTINGS)


@pytest.fixture(scope="module")
def state(shapes) -> PpoState:
    """A learner with a different number in every place, so that nothing can be swapped unseen."""
    random = np.random.default_rng(0)

    def fill(leaf) -> np.ndarray:
        if leaf.dtype == bool:
            return random.random(leaf.shape) < 0.5
        if np.issubdtype(leaf.dtype, np.integer):
            return random.integers(0, 2**31 - 1, leaf.shape).astype(leaf.dtype)
        return random.standard_normal(leaf.shape).astype(leaf.dtype)

    filled = jax.tree.map(fill, shapes)
    return filled._replace(update=np.asarray(UPDATE, np.int32), failure=np.asarray(0, np.int32))


@pytest.fixture(scope="module")
def saved(state, tmp_path_factory) -> Path:
    """A good checkpoint. Copy before use."""
    return save_checkpoint(tmp_path_factory.mktemp("checkpoints"), state, step=STEP, score=0.5)


@pytest.fixture
def good(saved, tmp_path) -> Path:
    return shutil.copytree(saved, tmp_path / saved.name)


def tensors(folder: Path) -> Path:
    return folder / "state.safetensors"


def header_length(folder: Path) -> int:
    return struct.unpack("<Q", tensors(folder).read_bytes()[:8])[0]


def replace_tensors(folder: Path, data: bytes) -> None:
    """Other contents with the digest that belongs to them, so that the digest cannot be what refuses them."""
    tensors(folder).write_bytes(data)
    describe(folder, sha256=hashlib.sha256(data).hexdigest())


def describe(folder: Path, **changes) -> None:
    values = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_bytes(json_bytes({**values, **changes}))


def with_header(folder: Path, header: bytes) -> bytes:
    """The same arrays behind another header."""
    data = tensors(folder).read_bytes()[8 + header_length(folder) :]
    return struct.pack("<Q", len(header)) + header + data


def header_of(folder: Path) -> dict:
    return json.loads(tensors(folder).read_bytes()[8 : 8 + header_length(folder)])


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(tensors(folder))


def assert_refused(folder: Path, shapes: PpoState, *fragments: str) -> None:
    """Refused as a whole, in one sentence that names the file."""
    with pytest.raises(CheckpointError) as refusal:
        load_checkpoint(folder, shapes)
    sentence = str(refusal.value)
    assert isinstance(refusal.value, UserError)
    assert "\n" not in sentence
    assert str(folder) in sentence
    assert sentence.endswith(".")
    for fragment in fragments:
        assert fragment in sentence


def assert_same_bits(loaded: PpoState, state: PpoState) -> None:
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    for (name, mine), (_, yours) in zip(named_arrays(loaded).items(), named_arrays(state).items(), strict=True):
        mine, yours = np.asarray(mine), np.asarray(yours)
        assert (mine.shape, mine.dtype, mine.tobytes()) == (yours.shape, yours.dtype, yours.tobytes()), name


# --- Saving, loading, keeping ---------------------------------------------------------------------


def test_a_checkpoint_comes_back_bit_for_bit(good, shapes, state):
    assert_same_bits(load_checkpoint(good, shapes), state)


def test_the_smallest_and_largest_numbers_come_back_bit_for_bit(shapes, state, tmp_path):
    extremes = np.asarray([-0.0, 1e-45, -1e-45, np.finfo(np.float32).max, np.finfo(np.float32).tiny], np.float32)

    def extreme(leaf: np.ndarray) -> np.ndarray:
        return np.resize(extremes, leaf.shape) if leaf.dtype == np.float32 else leaf

    odd = jax.tree.map(extreme, state)
    assert_same_bits(load_checkpoint(save_checkpoint(tmp_path, odd, step=STEP, score=None), shapes), odd)


def test_every_array_of_the_learner_is_in_the_file_under_its_own_name(saved, state):
    names = [name for name, _ in named_arrays(state).items()]
    assert len(set(names)) == len(names) == len(jax.tree.leaves(state))
    assert set(arrays_of(saved)) == set(names)
    # XOR's values are small and not normalised, so there is no scale to keep.
    assert {name.split(".")[0] for name in names} == set(PpoState._fields) - {"value_scale"}


def save_scored(folder: Path, state: PpoState, scores: list[float | None]) -> list[int]:
    """One checkpoint for each score, pruned after each as in training; the updates that are left."""
    for update, score in enumerate(scores, 1):
        saved = state._replace(update=np.asarray(update, np.int32))
        save_checkpoint(folder, saved, step=update * 16, score=score)
        prune_checkpoints(folder, every=1)
    return [info.update for info in list_checkpoints(folder)]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6], [2, 6, 7]),  # the best and the last two
        ([0.1, 0.2, 0.3, 0.4], [3, 4]),  # the best is among the last two
        ([0.9, 0.9, 0.1, 0.1], [2, 3, 4]),  # of equally good ones the newest
        ([None, None, None, None], [3, 4]),  # no episode ended, so none is the best
        ([None, -2.0, None, -3.0, None], [2, 4, 5]),
        ([0.5], [1]),
    ],
)
def test_the_last_two_and_the_best_are_kept(scores, kept, state, tmp_path):
    assert save_scored(tmp_path, state, scores) == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"step_{16 * update}" for update in kept)


def test_checkpoints_are_in_order_of_their_number_not_of_its_letters(state, tmp_path):
    for step in (96, 1120, 112):
        save_checkpoint(tmp_path, state, step=step, score=float(step))
    assert [info.step for info in list_checkpoints(tmp_path)] == [96, 112, 1120]
    assert best_of(list_checkpoints(tmp_path)).step == 1120


def test_what_a_crash_left_half_written_is_neither_listed_nor_in_the_way(state, shapes, tmp_path):
    partial = tmp_path / f".unfinished.step_{STEP}"
    partial.mkdir()
    (partial / "state.safetensors").write_bytes(b"half of it")
    assert list_checkpoints(tmp_path) == []
    path = save_checkpoint(tmp_path, state, step=STEP, score=None)
    assert not partial.exists()
    assert_same_bits(load_checkpoint(path, shapes), state)


def test_of_what_lies_beside_checkpoints_only_our_own_leftovers_are_removed(state, tmp_path):
    """A folder whose name or contents no version of ours has is somebody's."""
    kept = save_checkpoint(tmp_path, state, step=STEP, score=None)
    for name, file in {
        ".unfinished.step_7": "state.json",
        "step_8.partial": "state.safetensors",  # of a version before .unfinished.
        "my_notes.partial": "notes.txt",
        "step_9.partial": "thesis.tex",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("text")
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (outside / "state.json").write_text("irreplaceable")
    (tmp_path / "step_10.partial").symlink_to(outside)
    (tmp_path / ".unfinished.step_11").symlink_to(outside)
    remove_leftovers(tmp_path)
    left = {kept.name, "my_notes.partial", "step_9.partial", "step_10.partial"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert (outside / "state.json").read_text() == "irreplaceable"


def test_a_checkpoint_made_where_somebody_stopped_goes_when_the_next_is_due(state, tmp_path):
    for update in (2, 4, 5, 6):
        save_checkpoint(tmp_path, state._replace(update=np.asarray(update, np.int32)), step=update, score=update)
        prune_checkpoints(tmp_path, every=2)
        if update == 5:
            assert [info.update for info in list_checkpoints(tmp_path)] == [4, 5]
    assert [info.update for info in list_checkpoints(tmp_path)] == [4, 6]


def test_a_folder_with_another_steps_name_is_refused(good, shapes):
    assert_refused(good.rename(good.with_name("step_113")), shapes, "its folder is step_113")


@pytest.mark.parametrize("changes", [{"score": 9.0}, {"update": 8}, {"format": 1}, {"checksum": "0" * 64}])
def test_a_description_edited_by_hand_is_refused(changes, good, shapes):
    values = json.loads((good / "state.json").read_text())
    (good / "state.json").write_text(json.dumps({**values, **changes}))
    assert_refused(good, shapes, "its checksum differs")
    del values["checksum"]
    (good / "state.json").write_text(json.dumps(values))
    assert_refused(good, shapes, "its checksum differs")


def test_saving_again_replaces_the_whole_checkpoint(good, state, shapes):
    (good / "state.safetensors").write_bytes(b"broken")
    (good / "stray").write_text("of an earlier life")
    assert save_checkpoint(good.parent, state, step=STEP, score=None) == good
    assert sorted(path.name for path in good.iterdir()) == ["state.json", "state.safetensors"]
    assert_same_bits(load_checkpoint(good, shapes), state)


# --- Damaged files --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 200, -20_000, -4096, -4, -1])
def test_a_truncated_file_is_refused(length, good, shapes):
    size = tensors(good).stat().st_size
    os.truncate(tensors(good), length if length >= 0 else max(0, size + length))
    assert_refused(good, shapes)


def test_a_file_cut_right_behind_its_header_is_refused(good, shapes):
    os.truncate(tensors(good), 8 + header_length(good))
    assert_refused(good, shapes, "cut short")


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_is_noticed_wherever_it_is(seed, good, shapes):
    data = bytearray(tensors(good).read_bytes())
    header = 8 + header_length(good)
    random = np.random.default_rng(seed)
    # A third of them in the header, which is a small part of the file.
    position = random.integers(0, header) if seed % 3 == 0 else random.integers(header, len(data))
    data[position] ^= 1 << int(random.integers(8))
    tensors(good).write_bytes(data)
    assert_refused(good, shapes)


@pytest.mark.parametrize("more", [b"\0", b"\0" * 4096, b"PK\3\4 an archive may hide here"])
def test_bytes_behind_the_end_are_refused(more, good, shapes):
    replace_tensors(good, tensors(good).read_bytes() + more)
    assert_refused(good, shapes, "too long")


@pytest.mark.parametrize("length", [0, 1, LARGEST_JSON + 1, 2**31, 2**63, 2**64 - 1])
def test_an_impossible_header_length_is_refused_before_memory_is_asked_for(length, good, shapes):
    replace_tensors(good, struct.pack("<Q", length) + tensors(good).read_bytes()[8:])
    assert_refused(good, shapes, "not a safetensors file")


def test_a_header_length_that_reaches_into_the_arrays_is_refused(good, shapes):
    replace_tensors(good, struct.pack("<Q", header_length(good) + 64) + tensors(good).read_bytes()[8:])
    assert_refused(good, shapes)


@pytest.mark.parametrize(
    "header",
    [
        b"not JSON",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b'"text"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"1" * 10_000,
    ],
    ids=["text", "not UTF-8", "list", "null", "string", "open", "nested lists", "nested objects", "long number"],
)
def test_a_header_that_is_not_an_object_of_tensors_is_refused(header, good, shapes):
    replace_tensors(good, with_header(good, header))
    assert_refused(good, shapes)


# --- Good files of something else -----------------------------------------------------------------


def test_a_safetensors_file_with_other_names_is_refused(good, shapes):
    replace_tensors(good, safetensors.numpy.save({"embedding": np.zeros((3, 4), np.float32)}))
    assert_refused(good, shapes, "of another run")
    # And one that has exactly as many bytes of arrays.
    payload = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    replace_tensors(good, safetensors.numpy.save({"embedding": np.zeros(payload, np.uint8)}))
    assert_refused(good, shapes, "embedding, which does not fit the run's settings")


def test_a_name_too_many_or_too_few_is_refused(good, shapes):
    header = header_of(good)
    name = "weights.policy.embed_agent.first.weight"
    assert name in header
    lacking = {key: value for key, value in header.items() if key != name}
    replace_tensors(good, with_header(good, json.dumps(lacking).encode()))
    assert_refused(good, shapes, f"lacks {name}")
    more = {**header, "zero": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
    replace_tensors(good, with_header(good, json.dumps(more).encode()))
    assert_refused(good, shapes, "holds zero")


def test_the_right_names_with_another_shape_are_refused(good, shapes):
    arrays = arrays_of(good)
    name = next(name for name, array in arrays.items() if array.ndim == 2 and array.shape[0] != array.shape[1])
    shape = list(arrays[name].shape)
    arrays[name] = np.ascontiguousarray(arrays[name].T)  # as many bytes as before
    replace_tensors(good, safetensors.numpy.save(arrays))
    assert_refused(good, shapes, f"holds {name} as float32 {shape[::-1]}", f"float32 {shape}")


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_the_right_names_with_another_dtype_are_refused(dtype, good, shapes):
    arrays = arrays_of(good)
    name = next(name for name, array in arrays.items() if array.dtype == np.float32 and array.size > 1)
    arrays[name] = arrays[name].view(dtype)  # as many bytes as before
    replace_tensors(good, safetensors.numpy.save(arrays))
    assert_refused(good, shapes, f"holds {name} as {np.dtype(dtype)}", "float32")


@pytest.mark.parametrize("entry", [None, [], "F32", {}, {"dtype": ["F32"], "shape": "8"}, {"dtype": "F16"}])
def test_a_header_entry_that_describes_no_tensor_is_refused(entry, good, shapes):
    header = {**header_of(good), "key": entry}
    replace_tensors(good, with_header(good, json.dumps(header).encode()))
    assert_refused(good, shapes, "holds key as")


@pytest.mark.parametrize(
    "offsets", [[0, 4], [0, 0], [-4, 0], [4, 0], [2**62, 2**62 + 4], None, "0:4", [0.0, 4.0]], ids=str
)
def test_offsets_that_overlap_or_lead_out_of_the_file_are_refused(offsets, good, shapes):
    header = header_of(good)
    assert header["update"]["data_offsets"] != offsets
    header["update"]["data_offsets"] = offsets
    replace_tensors(good, with_header(good, json.dumps(header).encode()))
    assert_refused(good, shapes)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["weights.policy.", "weights.critic.", "optimiser.", "teams."])
def test_values_that_are_not_finite_are_refused_even_if_the_digest_fits(part, value, good, shapes):
    arrays = arrays_of(good)
    name = next(name for name in sorted(arrays) if name.startswith(part) and arrays[name].dtype == np.float32)
    array = arrays[name].copy()
    array.flat[-1] = value
    replace_tensors(good, safetensors.numpy.save({**arrays, name: array}))
    assert_refused(good, shapes, f"not finite, in {name}")


def test_a_checkpoint_of_another_width_is_refused(good):
    wider = shape_of_learner(Settings(policy=DiamondSettings(width=10), ppo=SETTINGS.ppo))
    assert_refused(good, wider, "of another run")


def test_a_run_whose_settings_say_another_width_does_not_load(state, tmp_path):
    (run,) = create_group(tmp_path / "group", "xor", SETTINGS, [0], overwrite=False)
    save_checkpoint(run.checkpoints, state, step=STEP, score=0.5)
    assert_same_bits(load_run(open_run(run.path))[0], state)
    file = run.path / "settings.json"
    values = json.loads(file.read_text())
    values["settings"]["policy"]["width"] = 10
    file.write_bytes(json_bytes(values))
    for which in ("last", "best", str(STEP)):
        with pytest.raises(UserError, match=r"step_112/state\.safetensors has \d+ bytes where its settings call for"):
            load_run(open_run(run.path), which)


def test_of_a_runs_checkpoints_the_newest_good_one_is_used(state, tmp_path):
    (run,) = create_group(tmp_path / "group", "xor", SETTINGS, [0], overwrite=False)
    save_scored(run.checkpoints, state, [0.9, 0.1, 0.2])
    assert [load_run(run, which)[1] for which in ("last", "best", "32")] == [48, 16, 32]
    os.truncate(run.checkpoints / "step_48" / "state.safetensors", 1000)
    with pytest.warns(Notice, match=r"step_32 of .* is used, because the newest checkpoint is broken: .*step_48"):
        loaded, step = load_run(run, "last")
    assert (int(loaded.update), step) == (2, 32)
    with pytest.raises(UserError, match=r"step_48/state\.safetensors"):
        load_run(run, "48")  # asked for by its number, it must not be another one


# --- state.json -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"not JSON",
        b"\xff\xff",
        b"[]",
        b"null",
        b"7",
        b"{}",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"pad": "' + b" " * LARGEST_JSON + b'"}',
    ],
    ids=[
        "empty",
        "open",
        "text",
        "not UTF-8",
        "list",
        "null",
        "number",
        "bare",
        "nested",
        "long number",
        "too large",
    ],
)
def test_a_description_that_is_none_is_refused(text, good, shapes):
    (good / "state.json").write_bytes(text)
    assert_refused(good, shapes, "state.json")
    assert list_checkpoints(good.parent) == []


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 1e999, "9"])
def test_a_score_that_is_no_number_is_refused(score, good, shapes):
    describe(good, score=score)
    assert_refused(good, shapes, "its score is no number")


def test_a_missing_file_is_refused(good, shapes):
    tensors(good).rename(good / "elsewhere")
    assert_refused(good, shapes, "state.safetensors")
    (good / "state.json").unlink()
    assert_refused(good, shapes, "state.json cannot be read")
    shutil.rmtree(good)
    assert_refused(good, shapes, "state.json cannot be read")


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "7"},
        {"update": 7.0},
        {"update": None},
        {"update": True},
        {"step": "112"},
        {"sha256": None},
        {"sha256": 5},
        {"format": "1"},
        {"score": "0.5"},
        {"score": [0.5]},
        {"score": True},
    ],
    ids=str,
)
def test_a_description_with_a_wrong_type_is_refused(changes, good, shapes):
    describe(good, **changes)
    assert_refused(good, shapes, "does not describe a checkpoint")


@pytest.mark.parametrize("number", [0, 3, -1])
def test_another_format_is_refused_by_its_number(number, good, shapes):
    describe(good, format=number)
    assert_refused(good, shapes, f"has format {number}; this version reads up to format 2")


def test_a_description_of_another_update_is_refused(good, shapes):
    describe(good, update=UPDATE + 1)
    assert_refused(good, shapes, "of different updates")


def test_a_digest_that_does_not_fit_is_refused(good, shapes):
    describe(good, sha256="0" * 64)
    assert_refused(good, shapes, "is damaged")


# --- Nothing is followed, nothing is executed -----------------------------------------------------


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_links_are_not_followed_even_to_the_right_file(name, good, shapes):
    (good / name).rename(good.parent / name)
    (good / name).symlink_to(good.parent / name)
    assert_refused(good, shapes, f"{name} is a link")


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_folder_in_a_files_place_is_refused(name, good, shapes):
    (good / name).unlink()
    (good / name).mkdir()
    assert_refused(good, shapes)


class Trap:
    """Unpickling it creates a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("place", ["whole file", "header", "behind a good header", "description"])
def test_a_pickle_is_refused_and_never_run(place, good, shapes):
    sprung = good.parent / "sprung"
    payload = pickle.dumps(Trap(sprung))
    pickle.loads(payload)
    assert sprung.exists()  # so the trap works, and its absence below means something
    sprung.unlink()

    data = tensors(good).read_bytes()
    if place == "whole file":
        replace_tensors(good, payload)
    elif place == "header":
        replace_tensors(good, with_header(good, payload))
    elif place == "behind a good header":
        replace_tensors(good, data[: 8 + header_length(good)] + payload)
    else:
        (good / "state.json").write_bytes(payload)
    assert_refused(good, shapes)
    assert not sprung.exists()


@pytest.fixture(scope="module")
def mutated(saved, tmp_path_factory) -> Path:
    return shutil.copytree(saved, tmp_path_factory.mktemp("mutated") / saved.name)


@given(
    name=some.sampled_from(["state.safetensors", "state.json"]),
    where=some.floats(0, 1, exclude_max=True),
    written=some.binary(max_size=200),
    removed=some.none() | some.integers(0, 200),
    fitting_digest=some.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_a_mutated_checkpoint_is_refused_or_still_the_same(
    mutated, saved, shapes, state, name, where, written, removed, fitting_digest
):
    for file in ("state.safetensors", "state.json"):
        shutil.copyfile(saved / file, mutated / file)
    data = (saved / name).read_bytes()
    position = int(where**2 * len(data))  # nearer the beginning, where the header is
    # Either written over what was there, which keeps the length, or put in the place of more or fewer bytes.
    end = position + (len(written) if removed is None else removed)
    changed = data[:position] + written + data[end:]
    (mutated / name).write_bytes(changed)
    if name == "state.safetensors" and fitting_digest:
        describe(mutated, sha256=hashlib.sha256(changed).hexdigest())

    loaded, refusal = loaded_or_refused(mutated, shapes)
    if refusal is not None:
        assert "\n" not in refusal
        assert refusal.endswith(".")
    elif name == "state.json" or changed == data:
        assert_same_bits(loaded, state)
    else:
        # With a digest that fits, other finite numbers in the right places are a checkpoint like any other.
        assert fitting_digest
        for leaf, wanted in zip(jax.tree.leaves(loaded), jax.tree.leaves(shapes), strict=True):
            assert (leaf.shape, leaf.dtype) == (wanted.shape, wanted.dtype)
            assert np.all(np.isfinite(leaf))


def loaded_or_refused(folder: Path, shapes: PpoState) -> tuple[PpoState | None, str | None]:
    try:
        return load_checkpoint(folder, shapes), None
    except CheckpointError as refusal:
        return None, str(refusal)
