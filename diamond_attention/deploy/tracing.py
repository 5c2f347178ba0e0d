"""Numpy arithmetic written down as an ONNX graph: run a function on `Traced` values, and it says what it did.

A `Traced` value stands in for an array. It has a dtype and a shape, of which an axis may be `None`: any length. What
numpy does with it (its operators, the functions below, `numbered` and `repeated` of layers.py) becomes a node of the
graph; all else is refused by numpy, so that nothing is left out in silence.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Axis = int | None

OPSET = 18
"""Known to onnxruntime since 1.14."""
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(bool): TensorProto.BOOL,
}
NUMBERS: dict[Any, str] = {
    **{np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.divide: "Div", np.negative: "Neg", np.exp: "Exp"},
    **{np.log: "Log", np.sqrt: "Sqrt", np.tanh: "Tanh", np.sign: "Sign", np.absolute: "Abs", np.maximum: "Max"},
    **{np.minimum: "Min", np.remainder: "Mod"},
}
TRUTHS: dict[Any, str] = {
    **{np.greater: "Greater", np.greater_equal: "GreaterOrEqual", np.less: "Less", np.less_equal: "LessOrEqual"},
    **{np.equal: "Equal", np.bitwise_and: "And", np.bitwise_or: "Or", np.invert: "Not"},
}


class Graph:
    """The nodes written so far. Constants stand outermost, so that the body of a loop sees them too."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[tuple[Any, ...], str] = {}
        self.initialisers: list[Any] = []
        self.named = 0

    def name(self) -> str:
        self.named += 1
        return f"v{self.named}"

    def add(self, op: str, inputs: Sequence[str], dtype: Any, shape: Sequence[Axis], **attributes: Any) -> "Traced":
        name = self.name()
        outputs = [self.name(), name] if op == "TopK" else [name]  # of a sorting only the order is of use
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return Traced(self, name, np.dtype(dtype), tuple(shape))

    def constant(self, value: Any, dtype: Any = None) -> "Traced":
        array = np.asarray(value)
        array = array.astype(dtype or {"f": np.float32, "i": np.int64, "b": bool}[array.dtype.kind])
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.name()
            self.initialisers.append(numpy_helper.from_array(array, self.constants[key]))
        return Traced(self, self.constants[key], array.dtype, array.shape)

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> "Traced":
        fixed = tuple(size if isinstance(size, int) else None for size in shape)
        return Traced(self, name, np.dtype(dtype), fixed)


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    def __init__(self, graph: Graph, name: str, dtype: np.dtype, shape: tuple[Axis, ...]):
        self.graph, self.name, self.dtype, self.shape = graph, name, dtype, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> "Traced":  # noqa: N802 - numpy's name
        return self.transposed(list(reversed(range(self.ndim))))

    def info(self, name: str | None = None) -> Any:
        return helper.make_tensor_value_info(name or self.name, TYPES[self.dtype], self.shape)

    # --- What numpy asks of it --------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "reduce":
            return self._reduced(ufunc, **options)
        if method != "__call__" or options:
            return NotImplemented
        dtype = next(each.dtype for each in inputs if isinstance(each, Traced | np.ndarray))
        values = [
            each if isinstance(each, Traced) else self.graph.constant(*_as_constant(each, dtype)) for each in inputs
        ]
        names = [each.name for each in values]
        if ufunc is np.matmul:
            return self.graph.add("MatMul", names, np.float32, _product(values[0].shape, values[1].shape))
        shape = _together(*(each.shape for each in values))
        if ufunc in NUMBERS:
            return self.graph.add(NUMBERS[ufunc], names, values[0].dtype, shape)
        if ufunc in TRUTHS:
            return self.graph.add(TRUTHS[ufunc], names, bool, shape)
        return NotImplemented

    def _reduced(self, ufunc: Any, axis: int = 0, keepdims: bool = False, initial: Any = None) -> "Traced":
        place = axis % self.ndim
        rest = [1] if keepdims else []
        shape = (*self.shape[:place], *rest, *self.shape[place + 1 :])
        axes = self.graph.constant([place]).name
        if ufunc is np.logical_or:
            counted = self.astype(np.int64)._reduced(np.maximum, axis, keepdims)
            return counted.astype(bool)
        op = {np.add: "ReduceSum", np.maximum: "ReduceMax"}[ufunc]
        return self.graph.add(op, [self.name, axes], self.dtype, shape, keepdims=int(keepdims))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return FUNCTIONS[function](self.graph, *inputs, **options) if function in FUNCTIONS else NotImplemented

    def astype(self, dtype: Any) -> "Traced":
        return self.graph.add("Cast", [self.name], dtype, self.shape, to=TYPES[np.dtype(dtype)])

    def reshape(self, shape: Sequence[Axis]) -> "Traced":
        """An axis of any length stays what and where it is."""
        known = [size for size in self.shape if size is not None]
        left = math.prod(known) if len(known) == self.ndim or None in shape else 0
        made = math.prod(size for size in shape if size not in (None, -1))
        resolved = tuple((left // made or None) if size == -1 else size for size in shape)
        target = self.graph.constant([0 if size is None else size for size in shape])
        return self.graph.add("Reshape", [self.name, target.name], self.dtype, resolved)

    def transposed(self, order: list[int]) -> "Traced":
        return self.graph.add("Transpose", [self.name], self.dtype, [self.shape[i] for i in order], perm=order)

    # --- Looking at a part ------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> "Traced":
        """By numbers, slices, None, an ellipsis, a list of numbers, or one number that is traced itself."""
        entries = list(index) if isinstance(index, tuple) else [index]
        named = sum(1 for entry in entries if entry is not None and entry is not Ellipsis)
        place = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
        entries[place : place + 1] = [slice(None)] * (self.ndim - named)
        value, axis, new, dropped = self, 0, [], 0
        for position, entry in enumerate(entries):
            if entry is None:
                new.append(position - dropped)
            elif isinstance(entry, slice):
                value, axis = value._sliced(axis, entry), axis + 1
            else:
                numbers = entry if isinstance(entry, Traced) else self.graph.constant(np.asarray(entry, np.int64))
                value = value._gathered(axis, numbers)
                axis, dropped = axis + numbers.ndim, dropped + 1 - numbers.ndim
        if not new:
            return value
        shape = list(value.shape)
        for where in new:
            shape.insert(where, 1)
        return self.graph.add("Unsqueeze", [value.name, self.graph.constant(new).name], self.dtype, shape)

    def _sliced(self, axis: int, part: slice) -> "Traced":
        if part.start is None and part.stop is None:
            return self
        last = np.iinfo(np.int64).max
        bounds = [0 if part.start is None else part.start, last if part.stop is None else part.stop]
        size, length = self.shape[axis], None
        if isinstance(part.start, Traced):
            pass  # of whatever is left
        elif size is not None:
            length = len(range(*part.indices(size)))
        elif not part.start and (part.stop or -1) > 0:
            length = part.stop  # such as the viewer's own row, which is always there
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        places = [
            each.reshape([1]) if isinstance(each, Traced) else self.graph.constant([each]) for each in (*bounds, axis)
        ]
        inputs = [self.name, *(each.name for each in places)]
        return self.graph.add("Slice", inputs, self.dtype, shape)

    def _gathered(self, axis: int, index: "Traced") -> "Traced":
        shape = (*self.shape[:axis], *index.shape, *self.shape[axis + 1 :])
        return self.graph.add("Gather", [self.name, index.name], self.dtype, shape, axis=axis)

    # --- What layers.py asks of it ----------------------------------------------------------------

    def size(self, axis: int) -> "Traced":
        lengths = self.graph.add("Shape", [self.name], np.int64, (self.ndim,))
        return lengths[axis]

    def numbered(self) -> "Traced":
        zero, one = self.graph.constant(0), self.graph.constant(1)
        return self.graph.add("Range", [zero.name, self.size(-1).name, one.name], np.int64, (self.shape[-1],))

    def repeated(self, times: Any, body: Callable[..., Any], state: Sequence["Traced"]) -> Sequence["Traced"]:
        graph, outer = self.graph, self.graph.nodes
        graph.nodes = []
        number = Traced(graph, graph.name(), np.dtype(np.int64), ())
        goes_on = Traced(graph, graph.name(), np.dtype(bool), ())
        inside = [Traced(graph, graph.name(), each.dtype, each.shape) for each in state]
        results = body(number, *inside)
        again = graph.add("Identity", [goes_on.name], bool, ())
        outputs = [again, *(graph.add("Identity", [each.name], each.dtype, each.shape) for each in results)]
        loop = helper.make_graph(
            graph.nodes,
            "body",
            [each.info() for each in (number, goes_on, *inside)],
            [each.info() for each in outputs],
        )
        graph.nodes = outer
        count = times if isinstance(times, Traced) else graph.constant(int(times))
        after = [Traced(graph, graph.name(), each.dtype, each.shape) for each in state]
        inputs = [count.name, graph.constant(True).name, *(each.name for each in state)]
        graph.nodes.append(helper.make_node("Loop", inputs, [each.name for each in after], body=loop))
        return after


# --- Shapes ---------------------------------------------------------------------------------------


def _together(*shapes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The shape of arrays broadcast against each other."""
    longest = max(map(len, shapes))
    columns = zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(
        next((size for size in sizes if size not in (1, None)), None if None in sizes else 1) for sizes in columns
    )


def _product(left: tuple[Axis, ...], right: tuple[Axis, ...]) -> tuple[Axis, ...]:
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    return (*_together(left[:-2], right[:-2]), *rows, *columns)


def _as_constant(value: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """A plain number takes the type of what it meets."""
    return value, dtype if isinstance(value, int | float) and dtype.kind != "b" else None


# --- Functions ------------------------------------------------------------------------------------


def _values(graph: Graph, given: Sequence[Any]) -> list[Traced]:
    dtype = next(each.dtype for each in given if hasattr(each, "dtype"))
    return [each if isinstance(each, Traced) else graph.constant(*_as_constant(each, dtype)) for each in given]


def _concatenate(graph: Graph, parts: Sequence[Any], axis: int = 0) -> Traced:
    values = _values(graph, parts)
    place = axis % values[0].ndim
    sizes = [each.shape[place] for each in values]
    joined = None if None in sizes else sum(size for size in sizes if size is not None)
    others = _together(*(each.shape for each in values))
    shape = (*others[:place], joined, *others[place + 1 :])
    return graph.add("Concat", [each.name for each in values], values[0].dtype, shape, axis=place)


def _where(graph: Graph, condition: Any, yes: Any, no: Any) -> Traced:
    test = condition if isinstance(condition, Traced) else graph.constant(condition)
    values = _values(graph, (yes, no))
    shape = _together(test.shape, *(each.shape for each in values))
    return graph.add("Where", [test.name, *(each.name for each in values)], values[0].dtype, shape)


def _place_of(op: str) -> Callable[..., Traced]:
    def found(graph: Graph, values: Traced, axis: int = 0) -> Traced:
        place = axis % values.ndim
        shape = (*values.shape[:place], *values.shape[place + 1 :])
        return graph.add(op, [values.name], np.int64, shape, axis=place, keepdims=0)

    return found


def _argsort(graph: Graph, values: Traced, kind: str) -> Traced:
    """Of one axis; ONNX, too, leaves equal ones in their order."""
    inputs = [values.name, values.size(0).reshape([1]).name]
    return graph.add("TopK", inputs, np.int64, values.shape, axis=0, largest=0, sorted=1)


def _swapaxes(graph: Graph, values: Any, first: int, second: int) -> Traced:
    order = list(range(values.ndim))
    order[first], order[second] = order[second], order[first]
    return values.transposed(order)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _concatenate,
    np.where: _where,
    np.argmax: _place_of("ArgMax"),
    np.argmin: _place_of("ArgMin"),
    np.argsort: _argsort,
    np.swapaxes: _swapaxes,
}


def as_model(
    graph: Graph, inputs: Sequence[tuple[str, Any, Sequence[int | str]]], outputs: dict[str, Any], **about: str
) -> bytes:
    """The graph as a file. `inputs` name their axes of any length, `outputs` are values by name."""
    traced = {name: each if isinstance(each, Traced) else graph.constant(each) for name, each in outputs.items()}
    for name, each in traced.items():
        graph.nodes.append(helper.make_node("Identity", [each.name], [name]))
    given = [helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape) for name, dtype, shape in inputs]
    whole = helper.make_graph(
        graph.nodes, "policy", given, [each.info(name) for name, each in traced.items()], graph.initialisers
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=8, producer_name="diamond-attention")
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
