"""Statistics of few seeds: against scipy, hand computations, and how often an interval has the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from minerva.report.statistics import (
    band,
    estimate,
    interquartile_mean,
    optimality_gap,
    probability_of_improvement,
)


def test_the_interquartile_mean_is_of_the_middle_half():
    scores = np.array([9.0, 1, 2, 3, 4, 5, 6, -7])
    assert interquartile_mean(scores) == (2 + 3 + 4 + 5) / 4
    assert estimate([scores[:3], scores[3:]], interquartile_mean).value == 3.5


def test_the_optimality_gap_counts_what_is_above_as_one():
    assert optimality_gap(np.array([0.5, 2.0, 0.9])) == pytest.approx((0.5 + 0 + 0.1) / 3)


def test_the_interval_of_a_mean_is_scipys():
    scores = np.random.default_rng(1).normal(size=12)
    found = estimate([scores])
    theirs = stats.bootstrap([scores], np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(5))
    assert found.value == scores.mean()
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.05)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.05)
    assert estimate([scores]) == found, "the same each time"


def test_seeds_are_drawn_within_their_task():
    # Tasks far apart, without spread of their own: were seeds drawn over all, the mean would vary by a lot.
    assert estimate([np.full(3, 0.0), np.full(5, 100.0)]) == (62.5, 62.5, 62.5)


def test_an_interval_has_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        found = estimate([rng.normal(size=20), rng.normal(5, 1, size=20)], resamples=400)
        hits += found.low <= 2.5 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_one_seed_has_no_interval():
    assert np.isnan(estimate([np.array([3.0]), np.array([4.0, 5.0])])).tolist() == [False, True, True]
    middle, low, high = band(np.array([[1.0, 2.0]]))
    assert middle.tolist() == [1, 2]
    assert np.isnan([low, high]).all()


def test_the_probability_of_improvement_is_mann_and_whitneys():
    rng = np.random.default_rng(2)
    ours = {"a": rng.normal(1, 1, 7), "b": rng.normal(0, 1, 5).round(), "c": np.ones(2)}
    theirs = {"b": rng.normal(0, 1, 6).round(), "a": rng.normal(0, 1, 4)}
    found = probability_of_improvement(ours, theirs)
    expected = [stats.mannwhitneyu(ours[t], theirs[t]).statistic / len(ours[t]) / len(theirs[t]) for t in ("a", "b")]
    assert found.value == pytest.approx(np.mean(expected))
    assert 0 <= found.low < found.value < found.high <= 1
    assert probability_of_improvement(ours, ours | {"a": ours["a"] - 99}).value == pytest.approx((1 + 0.5 + 0.5) / 3)


def test_a_band_has_an_interval_at_each_point():
    scores = np.random.default_rng(3).normal(size=(6, 4)) * [1, 2, 3, 4]
    middle, low, high = band(scores)
    np.testing.assert_allclose(middle, scores.mean(0))
    assert low.shape == high.shape == (4,)
    for i in range(4):
        reference = stats.bootstrap([scores[:, i]], np.mean, method="percentile", rng=np.random.default_rng(9))
        interval = reference.confidence_interval
        assert (low[i], high[i]) == pytest.approx((interval.low, interval.high), abs=0.15 * scores[:, i].std())
