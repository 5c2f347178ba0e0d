"""Ordinary functions of one battle as kernels for many: a lane of a GPU for each battle.

`lanes` has the reason and the method. A kernel here is one `pallas_call` of the Triton kind.
"""

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas

from diamond_attention.errors import UserError, notice, printable, shown
from diamond_attention.worlds.smaclite.lanes import Lanes, Row, as_objects

LANES = 32
"""Battles in one program: a warp. Its loops wait for the slowest of them, and asking them all is one instruction."""

SWITCH = "DIAMOND_KERNELS"
"""The environment variable: `on` is for all maps that a GPU can run them for, `off` for none. No setting of a world:
it does not change what a run is."""
UNITS_UNASKED = 24
"""Where nobody says, kernels are for maps of at most so many units. Those of larger maps take minutes to compile."""
OLDEST_GPU = 8.0
"""Compute capability from which Triton's kernels run."""


def are_used(dtype: Any) -> bool:
    """Whether this process has a GPU for kernels and wants them."""
    return are_wanted() and dtype == jnp.float32 and jax.default_backend() == "gpu" and _run_here()


def are_wanted() -> bool:
    told = os.environ.get(SWITCH)
    if told not in (None, "on", "off"):
        raise UserError(f"{SWITCH} is {shown(told)}; say on or off.")
    return told != "off"


@lru_cache(maxsize=1)
def _run_here() -> bool:
    """Asked once in a process: a kernel of two instructions says whether there are kernels at all."""
    gpu = jax.devices()[0]
    oldest = f"a GPU by NVIDIA of compute capability {OLDEST_GPU:g} or later is needed"
    try:
        if "cuda" not in gpu.client.platform_version or float(gpu.compute_capability) < OLDEST_GPU:
            return no_kernels(gpu.device_kind, oldest)
        numbers = np.arange(LANES, dtype=np.float32)[None]
        # Compiled by hand: this may be asked while a larger program is traced, and must not become a part of it.
        double = jax.jit(lambda numbers: in_lanes(lambda given: (given[0] * 2,), "first", (numbers,))[0])
        if not np.array_equal(double.lower(numbers).compile()(numbers), 2 * numbers):
            return no_kernels(gpu.device_kind, "a first one computed wrong numbers")
    except Exception as error:  # whatever a driver, a compiler or a version of JAX without Triton raises
        return no_kernels(gpu.device_kind, error)
    return True


def no_kernels(where: str, why: Any) -> bool:
    """False, and one sentence about it."""
    first_line = printable(str(why).strip().partition("\n")[0])[:LONGEST_REASON] or type(why).__name__
    notice(f"SMAClite's kernels do not run on {where} ({first_line}); battles go the slower, ordinary way.")
    return False


LONGEST_REASON = 120


def in_lanes(
    function: Callable[..., Any],
    name: str,
    battles: Any,
    units: Any = None,
    tables: Any = None,
    interpret: bool = False,
) -> Any:
    """`function(battles)` for battles side by side: arrays have a last axis of battles, which it does not see.

    With `units` and `tables` it is `function(battles, units, tables)`, once for each unit of each battle. It sees a
    row of `units`, whose arrays are [unit, ..., battle], and a number of each of the `tables`, [unit].
    """
    groups = (battles,) if units is None else (battles, units, tables)
    given, structure = jax.tree.flatten(groups)
    kinds = [kind for kind, group in enumerate(groups) for _ in jax.tree.leaves(group)]
    count = given[0].shape[-1]
    rows = 1 if units is None else len(jax.tree.leaves(units)[0])
    seen = [
        jax.ShapeDtypeStruct((value.shape[:-1], value.shape[1:-1], ())[kind], value.dtype)
        for kind, value in zip(kinds, given, strict=True)
    ]
    trace, found = jax.make_jaxpr(function, return_shape=True)(*jax.tree.unflatten(structure, seen))
    results, result_structure = jax.tree.flatten(found)
    received, returned = trace.jaxpr.invars, trace.jaxpr.outvars
    # What is not looked at is not read, and what goes through unchanged is not written.
    looked_at = {
        variable for equation in trace.jaxpr.eqns for variable in equation.invars if not hasattr(variable, "val")
    }
    read = [place for place, variable in enumerate(received) if variable in looked_at]
    written = [place for place, variable in enumerate(returned) if variable not in received]

    padded = -(-count // LANES) * LANES
    sizes = [int(np.prod(shape.shape)) for shape in seen]
    places = [
        (
            pallas.BlockSpec((size, LANES), lambda unit, block: (0, block)),
            pallas.BlockSpec((size, LANES), lambda unit, block: (unit, block)),
            pallas.BlockSpec((1,), lambda unit, block: (unit,)),
        )[kind]
        for kind, size in zip(kinds, sizes, strict=True)
    ]
    flat = [
        value if kind == TABLE else jnp.pad(value.reshape(-1, count), ((0, 0), (0, padded - count)))
        for kind, value in zip(kinds, given, strict=True)
    ]
    output_sizes = [int(np.prod(results[place].shape)) for place in written]
    outputs = pallas.pallas_call(
        partial(_kernel, trace, seen, read, written),
        out_shape=[
            jax.ShapeDtypeStruct((rows * size, padded), results[place].dtype)
            for size, place in zip(output_sizes, written, strict=True)
        ],
        grid=(rows, padded // LANES),
        in_specs=[pallas.BlockSpec((1,), lambda unit, block: (0,))] * 2 + [places[place] for place in read],
        out_specs=[pallas.BlockSpec((size, LANES), lambda unit, block: (unit, block)) for size in output_sizes],
        name=name,
        interpret=interpret,
        **({} if interpret else {"compiler_params": _one_warp()}),
    )(jnp.full(1, -FAR, jnp.int32), jnp.ones(1, jnp.int32), *(flat[place] for place in read))
    of_all = () if units is None else (rows,)
    computed = {
        place: value[:, :count].reshape(*of_all, *results[place].shape, count)
        for place, value in zip(written, outputs, strict=True)
    }
    return jax.tree.unflatten(
        result_structure,
        [
            computed[place] if place in computed else given[received.index(variable)]
            for place, variable in enumerate(returned)
        ],
    )


TABLE = 2
FAR = 1_000_000


def _kernel(
    trace: Any, seen: list[Any], read: list[int], written: list[int], far: Any, once: Any, *references: Any
) -> None:
    """One program: reads what its battles are, carries the trace out, writes what became of them.

    For every access to memory Triton looks at all that is connected with it, in both directions, and at all that is
    connected with that; with some thousand operations and a hundred accesses this takes minutes. It does not
    look out of a branch, nor through what a `while` carries. So all reading stands in a branch and all writing in a
    loop, which happen exactly once, as the compiler cannot know: `once` is read from memory. Constants connect as
    well: places are counted from `FAR` on, where the rules have no constants, and `far` takes it away again.
    """
    lanes = Lanes(LANES)
    offset = far[0]
    sources, targets = references[: len(read)], references[len(read) :]

    def load() -> list[Row]:
        return [
            source[offset + (FAR + index), :] if source.ndim == 2 else jnp.full((LANES,), source[0])
            for source in sources
            for index in range(source.shape[0])
        ]

    def nothing() -> list[Row]:
        return [jnp.zeros((LANES,), source.dtype) for source in sources for _ in range(source.shape[0])]

    rows = iter(lax.cond(once[0] > 0, load, nothing))
    values = [np.zeros(shape.shape, shape.dtype) for shape in seen]
    for place in read:
        boxed = np.empty(seen[place].shape, object)
        for index in np.ndindex(boxed.shape):
            boxed[index] = next(rows)
        values[place] = boxed
    results = lanes.run(trace, *values)
    found = [
        lanes.row(each, target.dtype)
        for target, place in zip(targets, written, strict=True)
        for each in as_objects(results[place]).flat
    ]

    def store(state: tuple[list[Row], Any]) -> tuple[list[Row], Any]:
        rows, again = state
        left = iter(rows)
        for target in targets:
            for index in range(target.shape[0]):
                target[offset + (FAR + index), :] = next(left)
        # Changed, or the compiler would see that the loop carries nothing new and write what it was given.
        return [-row if row.dtype == jnp.float32 else ~row for row in rows], again - 1

    lax.while_loop(lambda state: state[1] > 0, store, (found, once[0]))


def _one_warp() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=1, num_stages=1)
