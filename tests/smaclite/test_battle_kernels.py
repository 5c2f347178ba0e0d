"""Kernels of whole steps against the ordinary code, number by number; without a GPU."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_lanes import in_numpy

from diamond_attention.errors import Notice, UserError
from diamond_attention.worlds.smaclite import battle, battle_kernels, kernels, scripted
from diamond_attention.worlds.smaclite.scenario import scenario_of
from diamond_attention.worlds.smaclite.world import Smaclite

each = partial(jax.vmap, in_axes=-1, out_axes=-1)


def battles_under_way(name, count, steps):
    """States, legal actions and turn orders as random play meets them, side by side."""
    scenario = scenario_of(name)

    @jax.jit
    def play(state, key):
        action_key, order_key = (jax.random.split(each_key, count) for each_key in jax.random.split(key))
        legal = jax.vmap(partial(battle.legal_actions, scenario), in_axes=-1)(state)
        actions = jax.vmap(scripted.choose_at_random, out_axes=-1)(action_key, legal)
        orders = jax.vmap(partial(battle.draw_turn_orders, scenario), out_axes=-1)(order_key)
        return actions, orders, each(partial(battle.step_plainly, scenario))(state, actions, orders)

    start = partial(battle.start, scenario, jitter=1.5)
    state = jax.vmap(start, out_axes=-1)(jax.random.split(jax.random.key(0), count))
    for step in range(steps):
        actions, orders, outcome = play(state, jax.random.key(step))
        yield state, actions, orders, outcome
        state = outcome.state


def assert_equal_but_for_close_calls(expected, found, count, allowed):
    """A last bit may decide which of two ways around somebody is nearer; that may happen, but hardly ever."""
    wrong = np.zeros(count, bool)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert one.dtype == other.dtype
        difference = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).reshape(-1, count)
        wrong |= ~(difference <= 1e-3).all(axis=0)
    assert wrong.sum() <= allowed, np.flatnonzero(wrong)


@pytest.mark.parametrize(
    ("name", "count", "steps"),
    [
        ("2s3z", 48, 6),
        pytest.param("MMM2", 48, 14, marks=pytest.mark.kernels),
        pytest.param("bane_vs_bane", 32, 10, marks=pytest.mark.kernels),
        pytest.param("2c_vs_64zg", 32, 10, marks=pytest.mark.kernels),
    ],
)
def test_a_step_in_lanes_is_the_ordinary_step(name, count, steps, monkeypatch):
    monkeypatch.setattr(battle_kernels, "in_lanes", in_numpy)
    step = jax.jit(partial(battle_kernels.step_side_by_side, scenario_of(name)))
    for state, actions, orders, expected in list(battles_under_way(name, count, steps))[1::4]:
        found = step(state, actions, orders)
        assert_equal_but_for_close_calls(expected, found, count, allowed=count // 16)


@pytest.mark.timeout(900)
def test_a_step_in_pallas_is_the_ordinary_step():
    """The kernels as they are, by Pallas's interpreter: battles of the second step and of the sixth, side by side.

    2s3z, because what an interpreter compiles is a tenth of what units beside long walls need.
    """
    _, early, *_, late = battles_under_way("2s3z", 48, 6)
    halves = jax.tree.map(lambda one, other: jnp.concatenate([one[..., :24], other[..., 24:]], axis=-1), early, late)
    state, actions, orders, expected = halves
    # Not compiled as a whole: each of its three kernels then is compiled once, not once a tick.
    found = battle_kernels.step_side_by_side(scenario_of("2s3z"), state, actions, orders, interpret=True)
    assert_equal_but_for_close_calls(expected, found, 48, allowed=2)
    moved = jnp.abs(found.state.position - state.position).max(axis=(0, 1)) > 0.1
    hurt = (found.state.hp < state.hp).any(axis=0)
    assert moved[:24].all()
    assert hurt[24:].sum() > 2, "battles in which nobody fights say little"


def small(battles, units, table):
    """A loop of as many turns as a lane's own number says, a table, an index, a sum: what kernels are made of."""
    counts, (start, wanted) = battles["counts"], units
    value = jax.lax.while_loop(
        lambda carry: carry[0] > 0, lambda carry: (carry[0] - 1, carry[1] * 2), (start, wanted)
    )
    best = jnp.argmax(counts)
    return value[1] + table, counts[best] + jnp.sum(counts), wanted


def test_programs_of_pallas_find_their_battles_units_and_tables():
    """In interpret mode, with a number of battles that fills no warp; the answer by hand."""
    generator = np.random.default_rng(0)
    counts, start = generator.integers(0, 9, (3, 70)), generator.integers(0, 5, (2, 70))
    wanted = generator.normal(size=(2, 70)).astype(np.float32)
    table = np.array([10.0, 20.0], np.float32)
    given = jax.tree.map(jnp.int32, {"counts": counts}), (jnp.int32(start), jnp.asarray(wanted)), jnp.asarray(table)
    for run in (partial(kernels.in_lanes, interpret=True), in_numpy):
        doubled, largest, same = run(small, "small", *given)
        np.testing.assert_allclose(doubled, wanted * 2.0**start + table[:, None], rtol=1e-6)
        np.testing.assert_array_equal(largest, np.tile(counts.max(axis=0) + counts.sum(axis=0), (2, 1)))
        np.testing.assert_array_equal(same, wanted)


def test_what_goes_through_unchanged_is_handed_on():
    value, other = jnp.arange(40.0).reshape(1, 40), jnp.ones((1, 40))
    kept, changed = kernels.in_lanes(lambda given: (given[0], given[1] + 1), "kept", (value, other), interpret=True)
    assert kept is value
    np.testing.assert_array_equal(changed, 2.0)


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_lanes_pick_from_tables_as_jax_does(mode):
    """Indices only the lanes know, also outside the table; one table has runs of equals, one has rows."""
    runs = jnp.array([3, 3, 3, 7, 7, 1, 1, 1], jnp.int32)
    square = jnp.arange(12.0).reshape(3, 4)

    def picks(index, other):
        return (
            runs.at[index].get(mode=mode),
            square.at[index, other].get(mode=mode),
            square.at[other].get(mode=mode),
            jnp.array([[True, False, True]]).at[0, index].get(mode=mode),
        )

    pairs = jnp.array([(a, b) for a in range(-10, 11) for b in range(-5, 6)], jnp.int32).T
    found = in_numpy(lambda given: picks(*given), "picks", tuple(pairs))
    expected = jax.vmap(picks, out_axes=-1)(*pairs)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_loops_that_collect_and_those_inside_others():
    def rules(given):
        values, turns = given
        total, sums = jax.lax.scan(lambda carry, one: (carry + one, carry * one), jnp.float32(1), values)

        def outer(carry):
            left, value = carry
            _, value = jax.lax.while_loop(
                lambda inner: inner[0] < left, lambda inner: (inner[0] + 1, inner[1] + 1), (0, value)
            )
            return left - 1, value

        return total, sums, jax.lax.while_loop(lambda carry: carry[0] > 0, outer, (turns, 0))[1]

    values, turns = jnp.arange(15.0).reshape(3, 5), jnp.arange(5)
    total, sums, triangular = in_numpy(rules, "rules", (values, turns))
    np.testing.assert_array_equal(total, 1 + values.sum(axis=0))
    np.testing.assert_array_equal(
        sums, [values[0], (1 + values[0]) * values[1], (1 + values[0] + values[1]) * values[2]]
    )
    np.testing.assert_array_equal(triangular, turns * (turns + 1) // 2)


def test_what_lanes_cannot_do_is_said():
    with pytest.raises(NotImplementedError, match="No rule for sort"):
        kernels.in_lanes(lambda given: jnp.sort(given[0]), "sort", (jnp.ones((3, 4)),), interpret=True)


def test_kernels_are_used_on_a_gpu_unless_switched_off(monkeypatch):
    monkeypatch.delenv(kernels.SWITCH, raising=False)
    assert not kernels.are_used(np.float32), "there is no GPU here"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "_run_here", lambda: True)
    for said in (None, "on"):
        if said:
            monkeypatch.setenv(kernels.SWITCH, said)
        assert kernels.are_used(np.float32)
        assert not kernels.are_used(np.float64)
    monkeypatch.setenv(kernels.SWITCH, "off")
    assert not kernels.are_used(np.float32)
    monkeypatch.setenv(kernels.SWITCH, "yes")
    with pytest.raises(UserError, match=r"DIAMOND_KERNELS is 'yes'; say on or off\."):
        kernels.are_used(np.float32)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """`on_a_gpu(kind, version, capability)`: this process believes to have that one, and that it is asked for."""

    def pretend(kind, version, capability):
        gpu = SimpleNamespace(
            device_kind=kind, client=SimpleNamespace(platform_version=version), compute_capability=capability
        )
        monkeypatch.setenv(kernels.SWITCH, "on")
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        monkeypatch.setattr(jax, "devices", lambda *_: [gpu])

    asked = kernels._run_here, battle_kernels.are_used_for
    for each_once in asked:
        each_once.cache_clear()
    yield pretend
    for each_once in asked:
        each_once.cache_clear()


@pytest.mark.parametrize(
    ("kind", "version", "capability"), [("Tesla V100", "cuda 12090", "7.0"), ("AMD MI300X", "rocm 60000", "gfx942")]
)
def test_a_gpu_that_is_too_old_or_another_kind_says_so_once(kind, version, capability, on_a_gpu):
    on_a_gpu(kind, version, capability)
    with pytest.warns(Notice) as said:
        assert [kernels.are_used(np.float32) for _ in range(2)] == [False, False]
    (sentence,) = (str(one.message) for one in said)
    assert sentence == (
        f"SMAClite's kernels do not run on {kind} (a GPU by NVIDIA of compute capability 8 or later is needed); "
        "battles go the slower, ordinary way."
    )


def test_a_gpu_that_fails_at_the_first_kernel_says_so_in_one_sentence(on_a_gpu, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("ptxas fatal: Unknown option\nand a page of a compiler's stack")

    monkeypatch.setattr(kernels, "in_lanes", refuse)
    on_a_gpu("NVIDIA H200", "cuda 12090", "9.0")
    with pytest.warns(Notice, match=r"on NVIDIA H200 \(ptxas fatal: Unknown option\); battles") as said:
        assert not kernels.are_used(np.float32)
    assert len(said) == 1


@pytest.mark.parametrize("factor", [2, 3])
def test_a_gpu_whose_first_kernel_is_wrong_has_none(factor, on_a_gpu, monkeypatch):
    monkeypatch.setattr(kernels, "in_lanes", lambda function, name, given: (given[0] * factor,))
    on_a_gpu("NVIDIA H200", "cuda 12090", "9.0")
    if factor == 2:
        assert jax.jit(lambda x: x + kernels.are_used(np.float32))(1) == 2, "asked while something else is traced"
    else:
        with pytest.warns(Notice, match="a first one computed wrong numbers"):
            assert not kernels.are_used(np.float32)


@pytest.mark.parametrize(
    ("name", "gpus", "doubt"),
    [
        ("2s3z", 2, "are for one GPU, and several are to be seen here"),
        ("27m_vs_30m", 1, "of 27m_vs_30m take minutes to compile"),
    ],
)
def test_kernels_that_may_not_be_wanted_have_to_be_asked_for(name, gpus, doubt, on_a_gpu, monkeypatch):
    on_a_gpu("NVIDIA H200", "cuda 12090", "9.0")
    monkeypatch.setattr(jax, "device_count", lambda: gpus)
    compiled = []
    monkeypatch.setattr(battle_kernels, "step_side_by_side", lambda scenario, *_, **__: compiled.append(scenario))
    assert battle_kernels.are_used_for(scenario_of(name), False)
    assert len(compiled) == 1

    battle_kernels.are_used_for.cache_clear()
    monkeypatch.delenv(kernels.SWITCH)
    with pytest.warns(Notice, match=f"{doubt}, so battles go the slower, ordinary way; DIAMOND_KERNELS=on asks"):
        assert not battle_kernels.are_used_for(scenario_of(name), False)
    assert len(compiled) == 1


def test_kernels_of_several_maps_can_be_mixed_in_one_batch(monkeypatch):
    """Where maps are chosen from in a batch, JAX batches whatever a map's step is handed from outside."""
    monkeypatch.setattr(kernels, "are_used", lambda dtype: dtype == np.float32)
    monkeypatch.setattr(battle_kernels, "are_used_for", lambda *_: True)
    in_interpreter = partial(battle_kernels.step_side_by_side, interpret=True)
    monkeypatch.setattr(battle_kernels, "step_side_by_side", in_interpreter)
    world = Smaclite("2s3z,3s_vs_5z")

    def play(size, key):
        return world.step(world.reset(key, size), jnp.zeros(world.max_agents, jnp.int32), key)

    sizes = jax.tree.map(lambda *each: jnp.array(each), *world.sizes)
    after = jax.eval_shape(jax.vmap(play), sizes, jax.random.split(jax.random.key(0), 2))
    assert after.reward.shape == (2,)


def test_a_map_whose_kernels_do_not_compile_is_played_the_ordinary_way(on_a_gpu, monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("No rule for this map.")

    on_a_gpu("NVIDIA H200", "cuda 12090", "9.0")
    monkeypatch.setattr(kernels, "_run_here", lambda: True)
    monkeypatch.setattr(battle_kernels, "in_lanes", refuse)
    monkeypatch.setattr(battle, "step_plainly", lambda scenario, state, *_: state.hp + 1)
    scenario = scenario_of("2s3z")
    state, orders = battle.start(scenario), jnp.zeros((8, 10), jnp.int32)
    step = jax.vmap(partial(battle.step, scenario), in_axes=(None, 0, None))
    sentence = r"do not run on NVIDIA H200 for 2s3z \(No rule for this map\.\); battles go the slower, ordinary way"
    actions = jnp.zeros((3, 5), jnp.int32)
    with pytest.warns(Notice, match=sentence) as said:
        found = [jax.jit(lambda actions: step(state, actions, orders))(actions) for _ in range(2)]
    np.testing.assert_array_equal(found, np.tile(state.hp + 1, (2, 3, 1)))
    assert len(said) == 1


def test_steps_of_batches_of_batches_are_one_batch(monkeypatch):
    """On a CPU a GPU's kind of program takes the ordinary way; here a quick one, whose answer is known."""

    def quick(scenario, state, actions, turn_orders, correct_walls=False):
        moved = state._replace(hp=state.hp + jnp.sum(actions))
        return battle.Outcome(moved, jnp.float32(turn_orders[-1, 0]), state.alive[0], ~state.alive[0])

    monkeypatch.setattr(kernels, "are_used", lambda dtype: True)
    monkeypatch.setattr(battle_kernels, "are_used_for", lambda *_: True)
    monkeypatch.setattr(battle, "step_plainly", quick)
    battle_kernels._joined.cache_clear()
    scenario = scenario_of("2s3z")
    state, actions = battle.start(scenario), jnp.arange(30, dtype=jnp.int32).reshape(2, 3, 5)
    orders = jnp.arange(3 * 8 * 10, dtype=jnp.int32).reshape(3, 8, 10)
    step = jax.vmap(lambda actions, orders: battle.step(scenario, state, actions, orders))
    outcome = jax.vmap(step, in_axes=(0, None))(actions, orders)
    np.testing.assert_allclose(outcome.state.hp, state.hp + actions.sum(axis=-1)[..., None])
    np.testing.assert_array_equal(outcome.reward, np.tile(orders[:, -1, 0], (2, 1)))
    assert outcome.state.position.shape == (2, 3, 10, 2)
    np.testing.assert_array_equal(outcome.state.position[1, 2], state.position)
    battle_kernels._joined.cache_clear()


@pytest.mark.kernels
@pytest.mark.parametrize("name", ["2s3z", "27m_vs_30m"])
def test_a_step_becomes_a_program_for_gpus(name):
    """As far as that is known without one: Pallas translates all of it for Triton."""
    state, actions, orders, _ = next(battles_under_way(name, 64, 1))
    step = jax.jit(partial(battle_kernels.step_side_by_side, scenario_of(name)))
    gpu = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=gpu)):
        text = step.trace(state, actions, orders).lower(lowering_platforms=("cuda",)).as_text()
    assert {"smaclite_begin", "smaclite_act", "smaclite_avoid"} <= set(text.replace('"', " ").split())
