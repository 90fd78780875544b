"""What a few seeds say of a method, with its uncertainty (Agarwal et al. 2021, arXiv 2108.13264)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

RESAMPLES = 2000
LEVEL = 0.95

Scores = Sequence[np.ndarray]  # of each task those of its seeds [n]; the tasks may have different numbers of them


class Estimate(NamedTuple):
    """A statistic, and its 95% confidence interval; NaN where a task has but one seed."""

    value: float
    low: float
    high: float


def mean(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean over an axis."""
    return np.mean(scores, axis=axis)


def interquartile_mean(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of the middle half of the scores of all tasks and seeds."""
    # LaTeX: \mathrm{IQM} = \frac{1}{n - 2 \lfloor n/4 \rfloor} \sum_{i = \lfloor n/4 \rfloor + 1}^{n - \lfloor n/4 \rfloor} x_{(i)}
    return np.asarray(stats.trim_mean(scores, 0.25, axis=axis))


def optimality_gap(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """How far the scores are below 1, in the mean; what is above counts as 1."""
    # LaTeX: \mathrm{gap} = \frac1n \sum_i \max(0,\ 1 - x_i)
    return np.mean(np.maximum(0, 1 - np.asarray(scores)), axis=axis)


def estimate(scores: Scores, statistic: Callable[..., np.ndarray] = mean, resamples: int = RESAMPLES) -> Estimate:
    """A statistic of all scores, with the interval of a stratified percentile bootstrap: seeds are drawn anew within each task.

    Args:
        scores: of each task.
        statistic: of the scores of all tasks, over an axis.
        resamples: how often they are drawn; always the same way.
    """
    value = float(statistic(np.concatenate(scores)))
    if min(map(len, scores)) < 2:
        return Estimate(value, np.nan, np.nan)

    def together(*tasks: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.concatenate(tasks, axis=axis), axis=axis)

    return Estimate(value, *map(float, _interval(scores, together, resamples)))


def band(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, and the ends of its 95% interval, at each of the points of ``scores`` [seeds, points]; the ends are NaN with but one seed."""
    middle = np.mean(scores, axis=0)
    if len(scores) < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    return middle, *_interval([scores], mean, RESAMPLES // 4, axis=0)


def probability_of_improvement(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Estimate:
    """How likely a run of ours has the higher score than one of theirs on a task, in the mean over the tasks that both have.

    Args:
        ours, theirs: scores by task.
    """
    tasks = [task for task in ours if task in theirs]

    def statistic(*samples: np.ndarray, axis: int) -> np.ndarray:
        pairs = zip(samples[::2], samples[1::2], strict=True)
        return np.mean([_superiority(x, y, axis) for x, y in pairs], axis=0)

    samples = [scores for task in tasks for scores in (ours[task], theirs[task])]
    value = float(statistic(*samples, axis=-1))
    if min(map(len, samples)) < 2:
        return Estimate(value, np.nan, np.nan)
    return Estimate(value, *map(float, _interval(samples, statistic, RESAMPLES)))


def _superiority(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    # LaTeX: P(X > Y) = \frac{1}{nm} \sum_{i,j} \left( \mathbb 1[x_i > y_j] + \tfrac12 \mathbb 1[x_i = y_j] \right)
    x, y = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
    return np.mean((x > y) + 0.5 * (x == y), axis=(-2, -1))


def _interval(
    samples: Scores, statistic: Callable[..., np.ndarray], resamples: int, axis: int = -1
) -> tuple[np.ndarray, np.ndarray]:
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        confidence_level=LEVEL,
        method="percentile",
        vectorized=True,
        axis=axis,
        rng=np.random.default_rng(0),
    )
    return found.confidence_interval.low, found.confidence_interval.high
