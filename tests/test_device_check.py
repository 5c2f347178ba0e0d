"""`diamond bench --check`: one device against another, and that a device which computes wrongly is found out."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from diamond_attention.bench import check
from diamond_attention.bench.check import Compared, _apart, compare
from diamond_attention.command_line import run_command
from diamond_attention.learning.registry import METHODS
from diamond_attention.policies.registry import POLICIES
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.contract import TeamSize
from diamond_attention.worlds.xor import Xor

HERE, THERE = jax.devices()[0], "another"
KEY = jax.random.key(1)


@pytest.fixture
def two_kinds(monkeypatch):
    """Small ones; a test needs no more to see what is done with each."""
    kinds = {
        name: POLICIES[name]._replace(settings=lambda own=POLICIES[name]: own.settings(width=8)) for name in SMALL
    }
    monkeypatch.setattr(check, "POLICIES", kinds)
    monkeypatch.setattr(check, "METHODS", {name: METHODS[name] for name in LEARNED})
    monkeypatch.setattr(check, "TEAMS", 4)
    monkeypatch.setattr(check, "FEW", {**check.FEW, "envs": 4, "steps": 2, "batch": 8, "replay": 8, "warmup": 8})


SMALL = ("diamond", "mat")
LEARNED = ("qmix",)


def differences(monkeypatch, wrong):
    """What is compared on a device whose results `wrong` has changed, and on the right one."""
    right = check._on

    def on(device, function, *given):
        made = right(HERE, function, *given)
        return wrong(made) if device is THERE else made

    monkeypatch.setattr(check, "_on", on)
    return list(compare(Settings(world=Xor()), THERE, HERE, (2,)))


def test_every_part_is_compared_and_agrees_with_itself(two_kinds, monkeypatch):
    found = differences(monkeypatch, lambda made: made)
    parts = ["a step", "views", *(f"{name} and its gradient" for name in SMALL)]
    parts += [f"the loss of {name} and its gradient" for name in LEARNED]
    assert [each.what for each in found] == [f"xor 2x2, {part}" for part in parts for _ in check.PRECISIONS]
    assert all(each.apart == 0 and each.agrees for each in found)


def test_a_number_that_is_wrong_in_one_place_is_found(two_kinds, monkeypatch):
    def a_tenth_more_in_one_place(made):
        leaves, structure = jax.tree.flatten(made)
        largest = max(range(len(leaves)), key=lambda i: leaves[i].size)
        flat = jnp.ravel(leaves[largest]).astype(float)
        place = jnp.argmax(jnp.abs(flat))
        leaves[largest] = flat.at[place].multiply(1.1).reshape(leaves[largest].shape)
        return jax.tree.unflatten(structure, leaves)

    found = differences(monkeypatch, a_tenth_more_in_one_place)
    wrong = [each for each in found if "gradient" in each.what]
    assert all(each.apart == pytest.approx(0.1, rel=1e-4) for each in wrong)
    assert not any(each.agrees for each in wrong)
    assert "DIFFERS, more than 0.001" in str(wrong[0])


@pytest.mark.parametrize(("name", "part"), [("mappo", "critic"), ("qmix", "mixer"), ("masac", "critics")])
def test_the_gradient_of_a_loss_reaches_all_that_is_learned_beside_the_policy(name, part, two_kinds):
    """Where nothing arrives nothing could be compared."""
    world, size = Xor(max_agents=2, max_tasks=2), TeamSize(2, 2)
    learner = check._learner(Settings(world=world), name, world, size)
    state = eqx.filter_jit(partial(check._begun, METHODS[name], learner))(jax.random.key(0))
    played = eqx.filter_jit(partial(METHODS[name].collect, learner))(state, jax.random.key(0))
    lowered, gradient = eqx.filter_jit(partial(check._lowered, METHODS[name], learner))(state, played, KEY)
    assert lowered.ndim == 1
    assert bool(jnp.all(jnp.isfinite(lowered)))
    for whole in (gradient.policy, getattr(gradient, part)):
        assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(whole)) > 1e-4


def test_apart_by_hand():
    assert _apart((jnp.array([2.0, -4.0]),), (jnp.array([2.1, -4.0]),)) == pytest.approx(0.1 / 4)
    assert _apart(jnp.array([jnp.inf, 1.0]), jnp.array([jnp.inf, 1.0])) == 0
    assert _apart(jnp.array([jnp.nan, 1.0]), jnp.array([0.0, 1.0])) == float("inf")
    assert _apart(jnp.array([True, False]), jnp.array([True, True])) == 1
    assert not Compared("x", "float32", 1.1e-3).agrees
    assert Compared("x", "default", 1.1e-3).agrees


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["xor", "--check", "--device", "cpu"], "JAX finds no GPU here"),
        (["xor", "--check", "--seeds", "1"], "leave them out"),
        (["xor", "--check", "--to", "x.json"], "leave them out"),
    ],
)
def test_what_cannot_be_checked_is_a_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
