"""Carries out a traced function number by number, as a GPU's small programs must have it.

A kernel of Pallas (its Triton kind) knows arithmetic on rows of a power of two, and loops; it knows no arrays of ten
units, no indices, no sorting. So `jax.make_jaxpr` traces the ordinary rules for one battle, and `Lanes` carries the
trace out with a row of battles, one lane for each, in the place of every single number. An array of ten numbers is a
numpy array of ten rows; what only moves numbers about (reshaping, joining, known indices) happens once, in Python,
and costs the kernel nothing. What is known beforehand (a map's constants) is computed in numpy and never reaches the
kernel. There is no second description of the rules that could drift from the first.

A value is a numpy array of the shape it has in the trace: of plain numbers where all are known, else of objects,
each a known number or a row.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

Value = np.ndarray
Row = Any
"""A traced array [lane], or a number known beforehand."""

KNOWN: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.logical_and,
    "div": np.divide,
    "eq": np.equal,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "or": np.logical_or,
    "sqrt": np.sqrt,
    "sub": np.subtract,
}
"""Arithmetic number by number, and what it is in numpy. Whole numbers have no bits combined, hence `logical_`."""

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_vmap_call": "call"}
"""What merely contains other operations, and under which name."""


class UnsupportedError(NotImplementedError):
    """The trace does something no lane can do."""


def is_known(value: Any) -> bool:
    return isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.dtype != object)


def as_objects(value: Value) -> Value:
    """The same, numbers kept in their own precision."""
    if value.dtype == object:
        return value
    boxed = np.empty(value.shape, object)
    for index in np.ndindex(value.shape):
        boxed[index] = value[index]
    return boxed


def tidy(value: Value, dtype: Any) -> Value:
    """Of plain numbers, where all are known."""
    if value.dtype == object and all(isinstance(each, np.generic) for each in value.flat):
        return np.array(value.tolist(), dtype).reshape(value.shape)
    return value


def alike(values: Sequence[Value]) -> list[Value]:
    """All of objects unless all are known."""
    if all(is_known(value) for value in values):
        return list(values)
    return [as_objects(value) for value in values]


class Lanes:
    """An interpreter of traces for rows of `count` lanes."""

    def __init__(self, count: int):
        self.count = count
        self.active: Row = np.True_
        """Which lanes still go round the innermost loop."""
        self.found: dict[Any, tuple[Row, Any]] = {}
        """What was computed before, and from what: arguments are kept, or their `id` would become another's."""

    def run(self, closed: Any, *arguments: Value) -> list[Value]:
        """The results of a closed jaxpr."""
        trace = getattr(closed, "jaxpr", closed)
        constants = [np.asarray(value) for value in getattr(closed, "consts", ())]
        values: dict[Any, Value] = dict(zip(trace.constvars, constants, strict=True))
        values.update(zip(trace.invars, arguments, strict=True))

        def read(variable: Any) -> Value:
            # A literal stands for itself.
            if hasattr(variable, "val"):
                return np.asarray(variable.val, variable.aval.dtype)
            return values[variable]

        for equation in trace.eqns:
            results = self.carry_out(equation, [read(variable) for variable in equation.invars])
            for variable, result in zip(equation.outvars, results, strict=True):
                assert result.shape == variable.aval.shape, (equation.primitive.name, result.shape)
                values[variable] = tidy(result, variable.aval.dtype)
        return [read(variable) for variable in trace.outvars]

    def carry_out(self, equation: Any, inputs: list[Value]) -> list[Value]:
        name, parameters = equation.primitive.name, equation.params
        if name in KNOWN:
            return [self.elementwise(equation, inputs)]
        if name in CALLS:
            return self.run(parameters[CALLS[name]], *inputs)
        if name == "optimization_barrier":
            return inputs
        rule = getattr(self, "do_" + name.replace("-", "_"), None)
        if rule is None:
            raise UnsupportedError(f"No rule for {name}.")
        results = rule(equation, *inputs)
        return results if isinstance(results, list) else [results]

    # Arithmetic

    def elementwise(self, equation: Any, inputs: list[Value]) -> Value:
        name, dtype = equation.primitive.name, equation.outvars[0].aval.dtype
        if all(is_known(value) for value in inputs):
            with np.errstate(all="ignore"):
                return np.asarray(KNOWN[name](*inputs), dtype)
        dtypes = [variable.aval.dtype for variable in equation.invars]
        shape = equation.outvars[0].aval.shape
        results = np.empty(shape, object)
        boxed = [np.broadcast_to(as_objects(value), shape) for value in inputs]
        for index in np.ndindex(shape):
            numbers = [value[index] for value in boxed]
            results[index] = self.number(equation.primitive, equation.params, numbers, dtypes, dtype)
        return results

    def number(self, primitive: Any, parameters: dict, numbers: list[Row], dtypes: Sequence[Any], dtype: Any) -> Row:
        """One operation on rows, unless its result is known or one of its arguments."""
        name = primitive.name
        if all(isinstance(number, np.generic) for number in numbers):
            with np.errstate(all="ignore"):
                return np.asarray(KNOWN[name](*numbers), dtype)[()]
        if name in ("and", "or") and np.dtype(dtype).kind == "b":
            for own, other in (numbers, numbers[::-1]):
                if isinstance(own, np.generic):
                    return other if bool(own) == (name == "and") else own
        return self.once(
            (name, *map(mark, numbers)),
            numbers,
            lambda: self.compute(
                primitive, parameters, [self.row(*each) for each in zip(numbers, dtypes, strict=True)]
            ),
        )

    def binary(self, primitive: Any, a: Row, b: Row, dtype: Any) -> Row:
        kind = np.dtype(bool) if primitive in (lax.eq_p, lax.le_p) else dtype
        return self.number(primitive, {}, [a, b], [dtype, dtype], kind)

    def select(self, condition: Row, no: Row, yes: Row, dtype: Any) -> Row:
        if isinstance(condition, np.generic):
            return yes if condition else no
        if no is yes or (isinstance(no, np.generic) and isinstance(yes, np.generic) and no == yes):
            return no
        return self.once(
            ("select", *map(mark, (condition, no, yes))),
            (condition, no, yes),
            lambda: self.compute(lax.select_n_p, {}, [condition, self.row(no, dtype), self.row(yes, dtype)]),
        )

    def convert(self, number: Row, dtype: Any) -> Row:
        if isinstance(number, np.generic):
            return number.astype(dtype)
        told = {"new_dtype": np.dtype(dtype), "weak_type": False, "sharding": None}
        return self.once(
            ("convert", str(dtype), mark(number)),
            number,
            lambda: self.compute(lax.convert_element_type_p, told, [number]),
        )

    def once(self, key: Any, arguments: Any, compute: Callable[[], Row]) -> Row:
        if key not in self.found:
            self.found[key] = compute(), arguments
        return self.found[key][0]

    def do_select_n(self, equation: Any, condition: Value, *cases: Value) -> Value:
        dtype, shape = equation.outvars[0].aval.dtype, equation.outvars[0].aval.shape
        if len(cases) != 2 or equation.invars[0].aval.dtype != bool:
            raise UnsupportedError("select_n of other than two cases")
        results = np.empty(shape, object)
        condition, no, yes = (np.broadcast_to(as_objects(value), shape) for value in (condition, *cases))
        for index in np.ndindex(shape):
            results[index] = self.select(condition[index], no[index], yes[index], dtype)
        return results

    def do_convert_element_type(self, equation: Any, value: Value) -> Value:
        old, new = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
        if is_known(value):
            return value.astype(new)
        if old == new:
            return value
        results = np.empty(value.shape, object)
        for index in np.ndindex(value.shape):
            results[index] = self.convert(value[index], new)
        return results

    # Moving numbers about

    def do_broadcast_in_dim(self, equation: Any, value: Value) -> Value:
        shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
        sides = [1] * len(shape)
        for own, place in enumerate(places):
            sides[place] = value.shape[own]
        return np.broadcast_to(value.reshape(sides), shape)

    def do_reshape(self, equation: Any, value: Value) -> Value:
        return value.reshape(equation.params["new_sizes"])

    def do_squeeze(self, equation: Any, value: Value) -> Value:
        return value.reshape(equation.outvars[0].aval.shape)

    do_expand_dims = do_squeeze

    def do_transpose(self, equation: Any, value: Value) -> Value:
        return value.transpose(equation.params["permutation"])

    def do_slice(self, equation: Any, value: Value) -> Value:
        told = equation.params
        strides = told["strides"] or (1,) * value.ndim
        return value[tuple(map(slice, told["start_indices"], told["limit_indices"], strides))]

    def do_concatenate(self, equation: Any, *values: Value) -> Value:
        return np.concatenate(alike(values), axis=equation.params["dimension"])

    def do_stack(self, equation: Any, *values: Value) -> Value:
        return np.stack(alike(values), axis=equation.params["axis"])

    def do_iota(self, equation: Any) -> Value:
        told = equation.params
        sides = [1] * len(told["shape"])
        sides[told["dimension"]] = -1
        along = np.arange(told["shape"][told["dimension"]], dtype=told["dtype"])
        return np.broadcast_to(along.reshape(sides), told["shape"])

    # Places

    def pick(self, value: Value, place: list[int], starts: list[tuple[int, Row, int]], dtype: Any) -> Row:
        """The number at `place`, moved along some axes by (axis, how far, at most how far), which lanes may know."""
        if not starts:
            return value[tuple(place)]
        (axis, start, most), *rest = starts

        def moved(by: int) -> Row:
            there = list(place)
            there[axis] += by
            return self.pick(value, there, rest, dtype)

        if isinstance(start, np.generic):
            return moved(int(np.clip(start, 0, most)))
        candidates = [moved(by) for by in range(most + 1)]
        found = candidates[-1]
        # From one run of equals to the one before it: tables have few of them.
        for by, (own, following) in reversed(list(enumerate(pairwise(candidates)))):
            if not same(own, following):
                found = self.select(
                    self.binary(lax.le_p, start, start.dtype.type(by), start.dtype), found, own, dtype
                )
        return found

    def do_gather(self, equation: Any, value: Value, indices: Value) -> Value:
        told, result = equation.params, equation.outvars[0].aval
        numbers, sizes = told["dimension_numbers"], told["slice_sizes"]
        fills = told["mode"] == lax.GatherScatterMode.FILL_OR_DROP
        of_window = [
            axis
            for axis in range(value.ndim)
            if axis not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        ]
        of_batch = [axis for axis in range(len(result.shape)) if axis not in numbers.offset_dims]
        results = np.empty(result.shape, object)
        indices = as_objects(indices)
        for index in np.ndindex(result.shape):
            batch = tuple(index[axis] for axis in of_batch)
            place = [0] * value.ndim
            for own, axis in zip(numbers.offset_dims, of_window, strict=True):
                place[axis] = index[own]
            for axis, own in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
                place[axis] = batch[own]
            starts = [
                (axis, indices[(*batch, entry)], value.shape[axis] - sizes[axis])
                for entry, axis in enumerate(numbers.start_index_map)
            ]
            found = self.pick(value, place, starts, result.dtype)
            if fills:
                found = self.or_fill(found, starts, told["fill_value"], result.dtype)
            results[index] = found
        return results

    def or_fill(self, found: Row, starts: list[tuple[int, Row, int]], fill: Any, dtype: Any) -> Row:
        """What a place outside an array holds, by JAX's rules."""
        if fill is None:
            kind = np.dtype(dtype).kind
            fill = {"f": np.nan, "b": True}.get(kind) if kind in "fb" else np.iinfo(dtype).min if kind == "i" else 0
        for _, start, most in starts:
            kind = start.dtype
            inside = self.number(
                lax.and_p,
                {},
                [
                    self.binary(lax.le_p, kind.type(0), start, kind),
                    self.binary(lax.le_p, start, kind.type(most), kind),
                ],
                [np.dtype(bool)] * 2,
                np.dtype(bool),
            )
            found = self.select(inside, np.dtype(dtype).type(fill), found, dtype)
        return found

    def do_dynamic_slice(self, equation: Any, value: Value, *starts: Value) -> Value:
        sizes, result = equation.params["slice_sizes"], equation.outvars[0].aval
        results = np.empty(sizes, object)
        moves = [(axis, as_objects(start)[()], value.shape[axis] - sizes[axis]) for axis, start in enumerate(starts)]
        for index in np.ndindex(*sizes):
            results[index] = self.pick(value, list(index), moves, result.dtype)
        return results

    def do_scatter(self, equation: Any, value: Value, indices: Value, updates: Value) -> Value:
        told, result = equation.params, equation.outvars[0].aval
        numbers = told["dimension_numbers"]
        if numbers.operand_batching_dims or not is_known(indices):
            raise UnsupportedError("scatter to places only the lanes know")
        of_window = [axis for axis in range(value.ndim) if axis not in numbers.inserted_window_dims]
        of_batch = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
        results, updates = as_objects(value).copy(), as_objects(updates)
        for index in np.ndindex(updates.shape):
            place = [0] * value.ndim
            for own, axis in zip(numbers.update_window_dims, of_window, strict=True):
                place[axis] = index[own]
            batch = tuple(index[axis] for axis in of_batch)
            for entry, axis in enumerate(numbers.scatter_dims_to_operand_dims):
                place[axis] += int(indices[(*batch, entry)])
            if all(0 <= own < side for own, side in zip(place, result.shape, strict=True)):
                results[tuple(place)] = updates[index]
        return results

    # Many numbers to one

    def fold(self, equation: Any, value: Value, primitive: Any) -> Value:
        """In pairs, then pairs of pairs: what follows waits for few of them."""
        result = equation.outvars[0].aval
        axes = equation.params["axes"]
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        rows = as_objects(value).transpose(*kept, *axes).reshape(*result.shape, -1)
        dtype = equation.invars[0].aval.dtype
        results = np.empty(result.shape, object)
        for index in np.ndindex(result.shape):
            left = list(rows[index])
            while len(left) > 1:
                pairs = [self.binary(primitive, left[k], left[k + 1], dtype) for k in range(0, len(left) - 1, 2)]
                left = pairs + left[len(pairs) * 2 :]
            results[index] = left[0]
        return results

    def do_reduce_sum(self, equation: Any, value: Value) -> Value:
        return self.fold(equation, value, lax.add_p)

    def do_reduce_max(self, equation: Any, value: Value) -> Value:
        return self.fold(equation, value, lax.max_p)

    def do_reduce_min(self, equation: Any, value: Value) -> Value:
        return self.fold(equation, value, lax.min_p)

    def do_reduce_or(self, equation: Any, value: Value) -> Value:
        return self.fold(equation, value, lax.or_p)

    def do_reduce_and(self, equation: Any, value: Value) -> Value:
        return self.fold(equation, value, lax.and_p)

    def do_cumsum(self, equation: Any, value: Value) -> Value:
        if equation.params["reverse"]:
            raise UnsupportedError("cumsum from the end")
        rows = np.moveaxis(as_objects(value).copy(), equation.params["axis"], 0)
        for before, own in pairwise(range(len(rows))):
            for index in np.ndindex(rows.shape[1:]):
                low, high = rows[(before, *index)], rows[(own, *index)]
                rows[(own, *index)] = self.binary(lax.add_p, low, high, equation.outvars[0].aval.dtype)
        return np.moveaxis(rows, 0, equation.params["axis"])

    def first_best(self, equation: Any, value: Value, sign: int) -> Value:
        """The first index of the largest (sign 1) or the smallest (sign -1) number."""
        (axis,) = equation.params["axes"]
        dtype, index_dtype = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
        if np.dtype(dtype).kind == "b":
            value, dtype = self.as_whole_numbers(value), np.dtype(np.int32)
        rows = np.moveaxis(as_objects(value), axis, 0)
        results = np.empty(rows.shape[1:], object)
        for index in np.ndindex(rows.shape[1:]):
            best, where = rows[(0, *index)], index_dtype.type(0)
            for place in range(1, len(rows)):
                own = rows[(place, *index)]
                # Not better: at most the best so far.
                low, high = (own, best) if sign > 0 else (best, own)
                kept = self.binary(lax.le_p, low, high, dtype)
                where = self.select(kept, index_dtype.type(place), where, index_dtype)
                best = self.select(kept, own, best, dtype)
            results[index] = where
        return results

    def as_whole_numbers(self, value: Value) -> Value:
        boxed = np.empty(value.shape, object)
        for index, each in np.ndenumerate(as_objects(value)):
            boxed[index] = self.convert(each, np.int32)
        return boxed

    def do_argmax(self, equation: Any, value: Value) -> Value:
        return self.first_best(equation, value, 1)

    def do_argmin(self, equation: Any, value: Value) -> Value:
        return self.first_best(equation, value, -1)

    # Loops

    def do_while(self, equation: Any, *inputs: Value) -> list[Value]:
        """Goes round until no lane wants to; a lane that has finished keeps what it has."""
        told = equation.params
        of_condition, of_body = told["cond_nconsts"], told["body_nconsts"]
        outside = inputs[of_condition : of_condition + of_body]

        def wants(carry: list[Value]) -> Row:
            return as_objects(self.run(told["cond_jaxpr"], *inputs[:of_condition], *carry)[0])[()]

        def again(carry: list[Value]) -> list[Value]:
            return self.run(told["body_jaxpr"], *outside, *carry)

        carry = list(inputs[of_condition + of_body :])
        box = Box(self, told["body_jaxpr"], of_body, carry)
        boolean = np.dtype(bool)

        def both(a: Row, b: Row) -> Row:
            return self.row(self.number(lax.and_p, {}, [a, b], [boolean] * 2, boolean), boolean)

        active = both(self.active, wants(carry))
        outer = self.active

        def turn(active: Row, rows: list[Row]) -> tuple[Row, list[Row]]:
            self.active = active
            found = box.rows(again(box.values(rows)))
            rows = [
                self.select(active, old, new, dtype) for old, new, dtype in zip(rows, found, box.dtypes, strict=True)
            ]
            active = both(active, wants(box.values(rows)))
            self.active = outer
            return active, rows

        return box.values(self.while_any(turn, active, box.rows(carry)))

    def do_scan(self, equation: Any, *inputs: Value) -> list[Value]:
        """A loop over the rows of something is written out; one that only counts stays a loop."""
        told, body = equation.params, equation.params["jaxpr"].jaxpr
        # What scan says of its parts differs between versions of JAX; how it takes them apart does not: rows lose
        # an axis on their way in, and what is collected gains one on its way out.
        carry = sum(
            len(a.aval.shape) == len(b.aval.shape) for a, b in zip(body.outvars, equation.outvars, strict=True)
        )
        sliced = sum(
            len(a.aval.shape) != len(b.aval.shape) for a, b in zip(body.invars, equation.invars, strict=True)
        )
        constants = len(inputs) - sliced - carry
        outside, state, rows = inputs[:constants], list(inputs[constants:][:carry]), inputs[constants + carry :]
        if told["reverse"]:
            raise UnsupportedError("scan from the end")
        if not rows and len(equation.outvars) == carry:
            box = Box(self, told["jaxpr"], constants, state)

            def turn(now: list[Row]) -> list[Row]:
                return box.rows(self.run(told["jaxpr"], *outside, *box.values(now)))

            return box.values(self.repeat(told["length"], turn, box.rows(state)))
        collected = []
        for step in range(told["length"]):
            # Sliced and reshaped: a number's index would give the row in the place of an array that holds it.
            taken = (values[step : step + 1].reshape(values.shape[1:]) for values in rows)
            found = self.run(told["jaxpr"], *outside, *state, *taken)
            state = found[:carry]
            collected.append(found[carry:])
        return [*state, *(np.stack(alike(column)) for column in zip(*collected, strict=True))]

    # What depends on what a row is. Here, a traced array.

    def row(self, number: Row, dtype: Any) -> Row:
        if not isinstance(number, np.generic):
            return number
        key = str(dtype), mark(number)
        return self.once(key, None, lambda: jnp.full((self.count,), np.asarray(number), dtype))

    def compute(self, primitive: Any, parameters: dict, rows: list[Row]) -> Row:
        return primitive.bind(*rows, **parameters)

    def while_any(
        self, turn: Callable[[Row, list[Row]], tuple[Row, list[Row]]], active: Row, rows: list[Row]
    ) -> list[Row]:
        """Takes turns until no lane is active."""

        def any_of(active: Row) -> Any:
            return jnp.max(active.astype(jnp.int32))

        def again(state: tuple[Row, list[Row], Any]) -> tuple[Row, list[Row], Any]:
            # Nothing found inside a loop is there outside of it.
            before, self.found = self.found, {}
            active, rows = turn(*state[:2])
            self.found = before
            return active, rows, any_of(active)

        # What only the condition reads comes last: the compiler drops it from the results, and Triton, which counts
        # results as if it had not, would look past their end.
        return lax.while_loop(lambda state: state[2] > 0, again, (active, rows, any_of(active)))[1]

    def repeat(self, times: int, turn: Callable[[list[Row]], list[Row]], rows: list[Row]) -> list[Row]:
        def again(_: Any, rows: list[Row]) -> list[Row]:
            before, self.found = self.found, {}
            rows = turn(rows)
            self.found = before
            return rows

        return lax.fori_loop(0, times, again, rows)


class Box:
    """What a loop carries, as the list of rows that change in it; what it hands on unchanged stays outside."""

    def __init__(self, lanes: Lanes, body: Any, constants: int, carry: list[Value]):
        received, returned = body.jaxpr.invars[constants:], body.jaxpr.outvars
        self.lanes = lanes
        self.carry = carry
        self.changes = [own is not other for own, other in zip(received, returned, strict=True)]
        self.kinds = [variable.aval.dtype for variable in received]
        self.dtypes = [
            kind
            for kind, value, changes in zip(self.kinds, carry, self.changes, strict=True)
            if changes
            for _ in range(value.size)
        ]

    def rows(self, carry: list[Value]) -> list[Row]:
        return [
            self.lanes.row(each, kind)
            for kind, value, changes in zip(self.kinds, carry, self.changes, strict=True)
            if changes
            for each in as_objects(value).flat
        ]

    def values(self, rows: list[Row]) -> list[Value]:
        left = iter(rows)
        values = []
        for own, changes in zip(self.carry, self.changes, strict=True):
            if changes:
                value = np.empty(own.shape, object)
                for index in np.ndindex(own.shape):
                    value[index] = next(left)
            else:
                value = own
            values.append(value)
        return values


def same(a: Row, b: Row) -> bool:
    known = isinstance(a, np.generic) and isinstance(b, np.generic)
    return a is b or (known and bool(a == b))


def mark(number: Row) -> Any:
    """What tells numbers apart: known ones by their value, to the last bit, and rows by which they are."""
    return (number.dtype.str, number.tobytes()) if isinstance(number, np.generic) else id(number)
