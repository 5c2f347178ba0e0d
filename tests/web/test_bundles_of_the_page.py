"""Bundles that the live page refuses: each with one sentence that says what to do."""

import copy
import json
import random
import shutil

import pytest
from asking import ask, needs_node

from diamond_attention.runs.bundle_format import SHIPPED

pytestmark = needs_node


@pytest.fixture
def bundle(tmp_path):
    return shutil.copytree(SHIPPED / "dispatch-commitments", tmp_path / "bundle")


def said_of(bundle, tmp_path):
    return ask(tmp_path, {"ask": "refuse", "folder": str(bundle)})[0]


def changed(bundle, **values):
    described = json.loads((bundle / "policy.json").read_text())
    (bundle / "policy.json").write_text(json.dumps(described | values))


def test_a_whole_bundle_is_read(bundle, tmp_path):
    assert said_of(bundle, tmp_path) == "read"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"format": 3}, "has format 3, and this page reads up to 2; take a newer version of the page"),
        ({"format": None}, "has no format number"),
        ({"format": 0}, "has no format number"),
        ({"format": -1}, "has no format number"),
        ({"kind": "mat"}, "is of the kind “mat”; this page plays diamond and commitments"),
        ({"kind": "constructor"}, "is of the kind “constructor”"),
        ({"settings": {"width": -1}}, "does not describe a policy"),
        ({"settings": {"width": 32}}, "does not say how many rounds"),
        ({"settings": {"width": 33, "rounds": 1, "rounds_each_turn": 1}}, "lacks the array embed.first.weight"),
        ({"action": {"kind": "dance"}}, "acts in a way that this page does not know"),
        ({"action": {"kind": "continuous", "size": 2}}, "continuous actions"),
        ({"settings": {"width": 32, "rounds": -5, "rounds_each_turn": 1}}, "does not say how many rounds"),
        ({"settings": "narrow"}, "does not describe a policy"),
        ({"agent_features": None}, "does not describe a policy"),
        ({"agent_features": [None, {"name": "x"}]}, "does not describe a policy"),
        ({"agent_features": ["x", "y"]}, "does not describe a policy"),
        ({"agent_features": "xy"}, "does not describe a policy"),
        ({"task_features": [[]]}, "does not describe a policy"),
        ({"agent_features": [{"frame": "place"}] * 2, "task_features": [{"frame": "place"}]}, "places of more parts"),
        ({"sha256": "0" * 64}, "is damaged: policy.safetensors is not the file"),
    ],
)
def test_a_description_that_cannot_be_played_is_one_sentence(bundle, tmp_path, values, sentence):
    changed(bundle, **values)
    said = said_of(bundle, tmp_path)
    assert said.startswith("The policy “made” ")
    assert sentence in said


@pytest.mark.parametrize("name", ["dispatch-commitments", "spread-floor"])
def test_a_value_of_another_kind_anywhere_is_one_sentence_and_never_an_exception(name, tmp_path):
    """Each value in turn is something else, also within lists and below; most of them matter."""
    described = json.loads((SHIPPED / name / "policy.json").read_text())
    described.pop("trained")  # nothing in it is needed to play

    def others(value, replace):
        for other in (None, "x", -5, 1.5, 10**9, True, [], {}, [None], {"length": 2}):
            if other != value:
                yield replace(other)
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in inside:

            def put(other, key=key):
                changed = copy.copy(value)
                changed[key] = other
                return replace(changed)

            yield from others(each, put)

    questions = []
    for number, changed in enumerate(others(described, lambda other: other)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "policy.json").write_text(json.dumps(changed))
        (folder / "policy.safetensors").symlink_to(SHIPPED / name / "policy.safetensors")
        questions.append({"ask": "refuse", "folder": str(folder)})
    said = ask(tmp_path, *questions)  # fails where one of them was another exception
    assert len(said) > 300
    for sentence in said:
        assert sentence == "read" or sentence.startswith("The policy “made” ")
    assert sum(sentence != "read" for sentence in said) > 100


def test_whatever_is_damaged_is_one_sentence_and_never_an_exception(bundle, tmp_path):
    """Cut short, bits turned over, both with and without a digest that fits."""
    import hashlib

    whole = (bundle / "policy.safetensors").read_bytes()
    chance = random.Random(0)
    questions = []
    for trial in range(60):
        data = bytearray(whole[: chance.choice([0, 7, 8, 100, len(whole) - 4])] if trial % 3 == 0 else whole)
        for _ in range(3 if data else 0):
            data[chance.randrange(min(len(data), 700))] ^= 1 << chance.randrange(8)
        folder = shutil.copytree(bundle, tmp_path / f"damaged_{trial}")
        (folder / "policy.safetensors").write_bytes(data)
        changed(folder, sha256=hashlib.sha256(data).hexdigest())
        questions.append({"ask": "refuse", "folder": str(folder)})
    said = ask(tmp_path, *questions)  # fails where one of them was another exception
    assert sum(each == "read" for each in said) < 10  # a turned bit within a name of the metadata changes nothing
    for sentence in said:
        assert sentence == "read" or sentence.startswith("The policy “made” is damaged: ")
    (bundle / "policy.json").write_text("{")
    assert "not JSON" in said_of(bundle, tmp_path)
