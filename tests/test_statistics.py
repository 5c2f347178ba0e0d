"""Statistics against closed forms."""

import numpy as np
import pytest
from scipy.special import ndtri

from diamond_attention.evaluation.statistics import (
    TwoRates,
    holm,
    paired_interval,
    seed_interval,
    two_rates_p_value,
    wilson_interval,
)


def test_wilson_against_its_formula():
    """Solving |p̂ - p| = z sqrt(p (1-p) / n) for p, the definition of the interval."""
    for successes, trials in [(8, 10), (0, 10), (10, 10), (498, 1000)]:
        interval = wilson_interval(successes, trials)
        for end in (interval.low, interval.high):
            if 1e-9 < end < 1 - 1e-9:  # at 0 and 1 the interval ends at the limit itself
                z = abs(interval.mean - end) / np.sqrt(end * (1 - end) / trials)
                assert z == pytest.approx(1.959964, rel=1e-5)
    assert wilson_interval(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson_interval(10, 10).low == pytest.approx(1 - 0.2775, abs=1e-4)


def test_bootstrap_of_a_large_sample_is_the_normal_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    interval = seed_interval(values)
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.05)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.05)


def test_bootstrap_of_two_seeds_is_known_exactly():
    """The mean of two draws from {0, 1} is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4."""
    interval = seed_interval([0.0, 1.0])
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.0, 1.0)


def test_equal_seeds_have_no_spread_and_a_table_printed_twice_is_the_same():
    assert seed_interval([0.7] * 5) == pytest.approx((0.7, 0.7, 0.7))
    values = [0.1, 0.5, 0.9, 0.4]
    assert seed_interval(values) == seed_interval(values)


def test_pairing_by_seed_removes_what_the_seeds_share():
    """Two seeds far apart, ours one better in each: the difference is known exactly, unpaired it is not."""
    difference = paired_interval([11.0, 101.0], [10.0, 100.0])
    assert difference.absolute == pytest.approx((1.0, 1.0, 1.0))
    # Their mean, 55 ± 45 · 12.7 (Student's t of two), may be zero.
    assert difference.relative is None


def test_paired_differences_against_student_and_by_hand():
    from scipy.stats import ttest_rel

    ours, theirs = [-29.0, -31.0, -28.5, -30.0, -27.0], [-30.0, -30.5, -30.0, -29.0, -31.0]
    expected = ttest_rel(ours, theirs).confidence_interval(0.95)
    found = paired_interval(ours, theirs)
    assert found.absolute == pytest.approx((1.0, expected.low, expected.high))
    # Where their runs are all alike, the share is the difference over their mean.
    found = paired_interval(ours, [-30.0] * 5)
    assert found.relative == pytest.approx([part / 30.0 for part in found.absolute])
    # Where every run of ours is a tenth better than its pair, the share is known exactly, the difference is not.
    found = paired_interval([0.9 * score for score in theirs], theirs)
    assert found.relative == pytest.approx((0.1, 0.1, 0.1))
    assert found.absolute.high - found.absolute.low > 0.1


def test_a_relative_difference_of_negative_scores_is_positive_where_ours_is_better():
    """R is negative: −95 is better than −100, by 5 %."""
    better = paired_interval([-95.0] * 3, [-100.0] * 3)
    assert better.relative == pytest.approx((0.05, 0.05, 0.05))
    worse = paired_interval([-100.0] * 3, [-95.0] * 3)
    assert worse.relative.low == pytest.approx(-5 / 95)


def test_a_difference_covers_its_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        shared = generator.normal(0, 10, 10)
        ours, theirs = shared + generator.normal(1, 1, 10), shared + generator.normal(0, 1, 10)
        interval = paired_interval(list(ours), list(theirs)).absolute
        covered += interval.low <= 1.0 <= interval.high
    assert 0.91 < covered / 200 < 0.99


def test_no_share_of_nothing_and_no_pairs_of_unequal_lists():
    assert paired_interval([0.5, 0.5], [0.0, 1.0]).relative is None
    for ours, theirs in (([1.0], [1.0, 2.0]), ([1.0], [1.0]), ([], [])):
        with pytest.raises(ValueError, match="paired"):
            paired_interval(ours, theirs)


def test_two_rates_against_the_chi_square_test():
    """The square of the pooled z is the chi-square of the table without Yates's correction."""
    from scipy.stats import chi2_contingency

    for won, played, their_wins, their_played in [(15, 100, 610, 4000), (34, 94, 900, 4000), (1, 10, 9, 10)]:
        table = [[won, played - won], [their_wins, their_played - their_wins]]
        expected = chi2_contingency(table, correction=False).pvalue
        assert two_rates_p_value([TwoRates(won, played, their_wins, their_played)]) == pytest.approx(expected)
    assert two_rates_p_value([TwoRates(0, 10, 0, 50)]) == 1.0


def test_differences_add_up_over_conditions_and_opposite_ones_cancel():
    lower, higher = TwoRates(20, 100, 30, 100), TwoRates(30, 100, 20, 100)
    assert two_rates_p_value([lower, higher]) == pytest.approx(1.0)
    # Twice the same evidence: z grows by the square root of two.
    one, both = (ndtri(two_rates_p_value([lower] * times) / 2) for times in (1, 2))
    assert both == pytest.approx(np.sqrt(2) * one)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert holm([0.5, 0.001, 0.02]) == pytest.approx([0.5, 0.003, 0.04])
    assert holm([0.02, 0.03]) == pytest.approx([0.04, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
