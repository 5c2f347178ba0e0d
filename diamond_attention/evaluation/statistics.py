"""Intervals. The sample is the training run: episodes of one run say how well that one policy plays."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri


class Interval(NamedTuple):
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for one policy's success rate. It does not collapse at 0 or 1.

    >>> print(wilson_interval(8, 10))
    0.800 [0.490, 0.943]
    """
    z = ndtri(0.5 + confidence / 2)
    rate = successes / trials
    centre = (rate + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2))
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half))


def seed_interval(per_seed: Sequence[float], confidence: float = 0.95, resamples: int = 10_000) -> Interval:
    """Mean over training seeds with a percentile bootstrap over those seeds.

    Always resampled with the same generator, so a table printed twice is the same table.
    """
    values = np.asarray(per_seed, float)
    generator = np.random.default_rng(0)
    means = np.mean(values[generator.integers(0, len(values), (resamples, len(values)))], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))
