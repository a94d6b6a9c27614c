import math

import numpy as np
import pytest

from rostra.evals.statistics import interval


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("size", [10, 60, 300])
def test_an_interval_contains_the_mean(share, size):
    values = [float(i < share * size) for i in range(size)]
    low, high = interval(values)
    assert 0 <= low <= np.mean(values) <= high <= 1
    assert low < high


def test_an_interval_is_as_wide_as_theory_says():
    values = np.random.default_rng(3).normal(2.0, 0.7, 400)
    low, high = interval(values)
    width = 2 * 1.96 * values.std() / math.sqrt(len(values))
    assert high - low == pytest.approx(width, rel=0.12)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.1 * width)


def test_four_times_the_questions_halve_an_interval():
    random = np.random.default_rng(5)
    few, many = random.random(100), random.random(1600)
    ratio = np.diff(interval(few))[0] / np.diff(interval(many))[0]
    assert ratio == pytest.approx(4, rel=0.2)


def test_of_nothing_there_is_no_interval():
    low, high = interval([])
    assert math.isnan(low) and math.isnan(high)


def test_equal_values_leave_no_doubt():
    assert interval([0.25] * 7) == (0.25, 0.25)
    assert interval([1.0]) == (1.0, 1.0)


def test_an_interval_is_the_same_for_the_same_seed():
    values = list(np.random.default_rng(1).random(30))
    assert interval(values) == interval(values)
    assert interval(values, seed=1) != interval(values, seed=2)
