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
