"""The arithmetic that all kinds of policy share, on numpy arrays, for one agent or a team.

Written so that it can be traced (`tracing.py`): no array is changed in place, no axis of agents or tasks is counted,
and what happens does not depend on values. So one implementation is both what a robot runs and what an ONNX graph is
made of.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Take = Callable[..., np.ndarray]
"""`take("head.mean.bias", 2)`: the array of that name and shape, out of a bundle."""

HIDDEN = -math.inf
CACHED = 1 << 15
"""Numbers of 32 bits, 128 KiB: below what a core's second cache holds."""


# --- Functions ------------------------------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    return 0.5 * np.tanh(0.5 * x) + 0.5  # no number is too large for it


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def erf(x: Any) -> Any:
    """Formula 7.1.26 of Abramowitz and Stegun, to 1.5e-7; numpy has none of its own."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1.0 - polynomial * np.exp(-x * x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def normalised(x: Any) -> Any:
    """Of mean 0 and variance 1 over the features."""
    apart = x - mean(x)
    return apart / np.sqrt(mean(apart * apart) + 1e-5)


def mean(x: Any) -> Any:
    """Over the features, kept as an axis of one."""
    return np.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]


def softmax_or_zero(scores: Any) -> Any:
    """Over the last axis; a row in which everything is hidden gives zeros, not NaN."""
    peak = np.maximum.reduce(scores, axis=-1, keepdims=True, initial=HIDDEN)
    exponentials = np.exp(scores - np.maximum(peak, -3e38))  # of −∞ less −∞ there is no exponential
    total = np.add.reduce(exponentials, axis=-1, keepdims=True)
    return exponentials / np.where(total > 0.0, total, 1.0)


def softmax(scores: Any) -> Any:
    """Over the last axis, of which something is not hidden."""
    exponentials = np.exp(scores - np.maximum.reduce(scores, axis=-1, keepdims=True))
    return exponentials / np.add.reduce(exponentials, axis=-1, keepdims=True)


def unless_hidden(present: Any) -> Any:
    """The term that hides from attention who is not there: 0 or −∞."""
    return np.where(present, np.float32(0), np.float32(HIDDEN))


# --- What numpy and a graph say differently -------------------------------------------------------


def numbered(values: Any) -> Any:
    """0, 1, 2 … along the last axis."""
    return np.arange(values.shape[-1]) if isinstance(values, np.ndarray) else values.numbered()


def repeated(times: Any, body: Callable[..., Any], state: Sequence[Any]) -> Sequence[Any]:
    """`state = body(number, *state)`, for the numbers 0 … times − 1."""
    traced = next((each for each in (times, *state) if hasattr(each, "repeated")), None)
    if traced is not None:
        return traced.repeated(times, body, state)
    for number in range(int(times)):
        state = body(number, *state)
    return state


def by_parts(body: Callable[[Any, Any], Any], rows: Any, others: Any, width: int) -> Any:
    """`body(rows, others)`, which makes so many numbers of every pair; in numpy for a few rows at a time.

    What is small is still in the cache when it is read again, and takes less than half the time.
    """
    if not isinstance(rows, np.ndarray):
        return body(rows, others)
    few = max(1, CACHED // max(width * len(others), 1))
    return np.concatenate([body(rows[first : first + few], others) for first in range(0, len(rows), few)])


# --- Layers ---------------------------------------------------------------------------------------


class Linear(NamedTuple):
    weight: np.ndarray
    """[in, out]: bundles have [out, in]."""
    bias: np.ndarray

    def __call__(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class Projection(NamedTuple):
    """Two linear layers around a SiLU, then normalised."""

    first: Linear
    second: Linear

    def __call__(self, x: Any) -> Any:
        return normalised(self.second(silu(self.first(x))))


class Norm(NamedTuple):
    """Normalised, with a scale and an offset."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, x: Any) -> Any:
        return normalised(x) * self.weight + self.bias


def take_linear(take: Take, name: str, into: int, out: int) -> Linear:
    return Linear(np.ascontiguousarray(take(f"{name}.weight", out, into).T), take(f"{name}.bias", out))


def take_projection(take: Take, name: str, into: int, width: int) -> Projection:
    first = take_linear(take, f"{name}.first", into, width)
    return Projection(first, take_linear(take, f"{name}.second", width, width))


def take_norm(take: Take, name: str, width: int) -> Norm:
    return Norm(take(f"{name}.weight", width), take(f"{name}.bias", width))
