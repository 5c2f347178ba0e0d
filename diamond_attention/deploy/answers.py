"""What a policy answers with, for one agent. `act` turns an answer and a noise into an action.

Without noise the action is the most likely one, with the noise that `noise` draws it is a sample. Noise is an
argument, so that the same arithmetic serves a numpy generator, numbers that everybody knows, and an ONNX graph.
"""

from typing import Any, NamedTuple

import numpy as np


class Categorical(NamedTuple):
    """One of several choices; a choice with logit −∞ is never taken."""

    logits: Any

    def act(self, noise: Any = 0.0) -> Any:
        return np.argmax(self.logits + noise, axis=-1)  # of equal ones the first

    def noise(self, generator: np.random.Generator) -> Any:
        return gumbel(generator.random(self.logits.shape, np.float32))


class Menu(NamedTuple):
    """A choice among a few vectors."""

    logits: Any
    entries: Any

    def act(self, noise: Any = 0.0) -> Any:
        best = np.argmax(self.logits + noise, axis=-1)[..., None]
        return (np.arange(len(self.entries)) == best).astype(np.float32) @ self.entries

    def noise(self, generator: np.random.Generator) -> Any:
        return Categorical(self.logits).noise(generator)


class Gaussian(NamedTuple):
    """Independent normal components, clipped to [−1, 1] as every world does."""

    mean: Any
    log_std: Any

    def act(self, noise: Any = 0.0) -> Any:
        return np.minimum(np.maximum(self.unclipped(noise), -1.0), 1.0)

    def unclipped(self, noise: Any = 0.0) -> Any:
        return self.mean + np.exp(self.log_std) * noise

    def noise(self, generator: np.random.Generator) -> Any:
        return generator.standard_normal(self.mean.shape, np.float32)


class Squashed(NamedTuple):
    """The hyperbolic tangent of independent normal components."""

    mean: Any
    log_std: Any

    def act(self, noise: Any = 0.0) -> Any:
        return np.tanh(self.mean + np.exp(self.log_std) * noise)

    def noise(self, generator: np.random.Generator) -> Any:
        return Gaussian(self.mean, self.log_std).noise(generator)


Answer = Categorical | Menu | Gaussian | Squashed


def gumbel(uniform: np.ndarray) -> np.ndarray:
    """Gumbel noise from numbers in [0, 1): the highest of logits with this added is a sample."""
    smallest = np.finfo(np.float32).tiny
    return -np.log(-np.log(np.maximum(uniform * (1.0 - smallest) + smallest, smallest)))
