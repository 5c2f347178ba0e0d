"""Intervals. The sample is the training run: episodes of one run say how well that one policy plays."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit


class Interval(NamedTuple):
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.with_decimals(3)

    def with_decimals(self, decimals: int) -> str:
        return f"{self.mean:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


class PairedDifference(NamedTuple):
    absolute: Interval
    """The mean of ours − theirs."""
    relative: Interval | None
    """The same as a share of the size of their mean; None where that can be zero."""


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


class TwoRates(NamedTuple):
    """Successes and trials of two systems under the same conditions."""

    successes: int
    trials: int
    other_successes: int
    other_trials: int


def two_rates_p_value(conditions: Sequence[TwoRates]) -> float:
    """How often equal success rates would differ by at least as much, both sides.

    Under one condition it is the pooled z-test of two proportions. Under several it is Cochran, Mantel and
    Haenszel's: rates may differ from condition to condition, and differences in one direction add up.

    >>> round(two_rates_p_value([TwoRates(30, 100, 20, 100)]), 3)
    0.102
    >>> round(two_rates_p_value([TwoRates(30, 100, 20, 100), TwoRates(60, 100, 50, 100)]), 3)
    0.032
    """
    difference = variance = 0.0
    for successes, trials, other_successes, other_trials in conditions:
        pooled = (successes + other_successes) / (trials + other_trials)
        difference += successes - trials * pooled
        variance += pooled * (1 - pooled) * trials * other_trials / (trials + other_trials)
    return float(2 * ndtr(-abs(difference) / math.sqrt(variance))) if variance else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """The same p-values corrected for being several, after Holm: compare each with the level meant for all.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def seed_interval(per_seed: Sequence[float], confidence: float = 0.95, resamples: int = 10_000) -> Interval:
    """Mean of a rate, between 0 and 1, over training seeds with a percentile bootstrap over those seeds.

    Always resampled with the same generator, so a table printed twice is the same table.
    """
    values = np.asarray(per_seed, float)
    means = np.mean(values[_resamples(len(values), resamples)], axis=1)
    return _percentiles(float(np.mean(values)), means, confidence)


def score_interval(per_seed: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Mean of a score over training seeds with Student's t. A bootstrap over five is a third too narrow.

    One seed has no spread; its interval is itself.

    >>> score_interval([-57.0, -53.0, -61.0]).with_decimals(1)
    '-57.0 [-66.9, -47.1]'
    """
    values = np.asarray(per_seed, float)
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    half = float(stdtrit(max(1, len(values) - 1), 0.5 + confidence / 2)) * spread / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired_interval(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> PairedDifference:
    """How much better ours is, from runs that share their training seeds: Student's t over those pairs.

    Higher is better in both. "At least as good, within 5 %" holds where `relative.low` is not below −0.05.
    """
    if len(ours) != len(theirs) or len(ours) < 2:
        raise ValueError(f"{len(ours)} runs cannot be paired with {len(theirs)}; give two pairs or more, one a seed")
    their_values = np.asarray(theirs, float)
    differences = np.asarray(ours, float) - their_values
    absolute = score_interval(differences, confidence)
    their_mean = score_interval(their_values, confidence)
    if their_mean.low <= 0 <= their_mean.high:
        return PairedDifference(absolute, None)
    # A share of a mean is as uncertain as that mean (to first order: the delta method).
    share = absolute.mean / abs(their_mean.mean)
    residuals = (differences - share * their_values * np.sign(their_mean.mean)) / abs(their_mean.mean)
    return PairedDifference(absolute, score_interval(share + residuals, confidence))


def _resamples(values: int, resamples: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, values, (resamples, values))


def _percentiles(mean: float, resampled: np.ndarray, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))
