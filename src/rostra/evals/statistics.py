"""How sure a number is."""

from collections.abc import Sequence

import numpy as np

from rostra.engines.arrays import FloatArray

RESAMPLES = 1000


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean, by bootstrap over its values, one for each question. Not a number
    where there are none."""
    array = np.asarray(values, np.float64)
    if not len(array):
        return float("nan"), float("nan")
    means = _resampled(array, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _resampled(values: FloatArray, random: np.random.Generator) -> FloatArray:
    picks = random.integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[picks].mean(1))


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], seed: int = 0
) -> tuple[float, float]:
    """The 95% interval of sum(parts) / sum(wholes), by bootstrap over pairs of them. Not a number
    where the wholes are 0."""
    part, whole = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if not len(whole) or not whole.sum():
        return float("nan"), float("nan")
    picks = np.random.default_rng(seed).integers(0, len(whole), (RESAMPLES, len(whole)))
    totals = whole[picks].sum(1)
    ratios = part[picks].sum(1)[totals > 0] / totals[totals > 0]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
