"""Kernels without a GPU and without compiling: traces carried out in numpy, all programs of a kernel at once."""

import jax
import numpy as np

from diamond_attention.worlds.smaclite.lanes import KNOWN, Lanes, as_objects


class NumpyLanes(Lanes):
    """Rows are numpy's arrays."""

    def row(self, number, dtype):
        return np.full(self.count, number, dtype) if isinstance(number, np.generic) else number

    def compute(self, primitive, parameters, rows):
        with np.errstate(all="ignore"):
            if primitive.name == "select_n":
                return np.where(rows[0], rows[2], rows[1])
            if primitive.name == "convert_element_type":
                return rows[0].astype(parameters["new_dtype"])
            return KNOWN[primitive.name](*rows)

    def while_any(self, turn, active, rows):
        while active.any():
            active, rows = self.apart(turn, active, rows)
        return rows

    def repeat(self, times, turn, rows):
        for _ in range(times):
            rows = self.apart(turn, rows)
        return rows

    def apart(self, turn, *state):
        before, self.found = self.found, {}
        state = turn(*state)
        self.found = before
        return state


def in_numpy(function, name, battles, units=None, tables=None, interpret=False):
    """What `kernels.in_lanes` does."""
    groups = (battles,) if units is None else (battles, units, tables)
    flat, structure = jax.tree.flatten(groups)
    kinds = [kind for kind, group in enumerate(groups) for _ in jax.tree.leaves(group)]
    count = flat[0].shape[-1]
    rows = 1 if units is None else len(jax.tree.leaves(units)[0])
    shapes = [
        jax.ShapeDtypeStruct((value.shape[:-1], value.shape[1:-1], ())[kind], value.dtype)
        for kind, value in zip(kinds, flat, strict=True)
    ]
    trace, found = jax.make_jaxpr(function, return_shape=True)(*structure.unflatten(shapes))
    results, result_structure = jax.tree.flatten(found)
    of_all = () if units is None else (rows,)

    def compute(*given):
        lanes = NumpyLanes(rows * count)
        inputs = []
        for kind, value, shape in zip(kinds, map(np.asarray, given), shapes, strict=True):
            boxed = np.empty(shape.shape, object)
            for index in np.ndindex(shape.shape):
                if kind == 0:
                    boxed[index] = np.tile(value[index], rows)
                elif kind == 1:
                    boxed[index] = value[(slice(None), *index)].reshape(-1)
                else:
                    boxed[index] = np.repeat(value, count)
            inputs.append(boxed)
        outputs = []
        for value, result in zip(lanes.run(trace, *inputs), results, strict=True):
            numbers = [lanes.row(each, result.dtype) for each in as_objects(value).flat]
            whole = np.stack(numbers).reshape(*result.shape, *of_all, count).astype(result.dtype)
            outputs.append(np.moveaxis(whole, len(result.shape), 0) if of_all else whole)
        return tuple(outputs)

    told = tuple(jax.ShapeDtypeStruct((*of_all, *result.shape, count), result.dtype) for result in results)
    return result_structure.unflatten(jax.pure_callback(compute, told, *flat))
