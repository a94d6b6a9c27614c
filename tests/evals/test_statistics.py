import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.errors import DataError
from rostra.evals.statistics import (
    EXACT,
    FLIPS,
    RESAMPLES,
    Measure,
    interval,
    logistic,
    middle,
    paired,
    ratio_interval,
    redrawn,
    share_interval,
    sigmoid,
)


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


@pytest.mark.parametrize("wholes", [[1.0, 4.0, 5.0, 2.0] * 5, [1.0, 0.0, 9.0, 0.0] * 5])
def test_the_interval_of_a_ratio_contains_it(wholes):
    parts = [whole * (i % 3) / 2 for i, whole in enumerate(wholes)]
    low, high = ratio_interval(parts, wholes)
    assert 0 <= low < sum(parts) / sum(wholes) < high <= 1
    assert all(math.isnan(end) for end in ratio_interval([0.0], [0.0]))


@pytest.mark.parametrize("n", [1, 2, 20])
def test_shares_that_are_all_alike_leave_the_doubt_of_wilson(n):
    doubt = 1.96**2 / (n + 1.96**2)
    assert share_interval([0.0] * n) == (0, pytest.approx(doubt))
    assert share_interval([1.0] * n) == (pytest.approx(1 - doubt), 1)
    # However many votes there are on a question, it is one trial, and without votes none.
    assert ratio_interval([4.0] * n + [0.0], [4.0] * n + [0.0]) == (pytest.approx(1 - doubt), 1)
    assert ratio_interval([0.0] * n, [4.0] * n) == (0, pytest.approx(doubt))


def test_shares_that_differ_are_resampled():
    assert share_interval([0.0, 1.0, 1.0, 0.5]) == interval([0.0, 1.0, 1.0, 0.5])
    low, high = share_interval([0.5] * 3)
    assert 0 < low < 0.5 < high < 1 and low + high == pytest.approx(1)
    assert (low, high) == pytest.approx((0.1253, 0.8747), abs=1e-3)
    assert all(math.isnan(end) for end in share_interval([]))


def test_numbers_that_are_no_shares_have_no_doubt_of_wilson():
    assert Measure.of([1.0] * 20) == Measure(1, 1, 1)
    assert Measure.of([0.0] * 20) == Measure(0, 0, 0)


def test_never_and_always_are_not_certain():
    assert Measure.share([0.0] * 20) == Measure(0.0, 0.0, pytest.approx(0.161, abs=1e-3))
    assert Measure.share([1.0] * 20) == Measure(1.0, pytest.approx(0.839, abs=1e-3), 1.0)
    assert Measure.share([1.0, math.nan]).low == Measure.share([1.0]).low
    assert math.isnan(Measure.share([math.nan]).mean)


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


# Two players on the same questions

MARKS = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
PAIRS = st.lists(st.tuples(MARKS, MARKS), min_size=1, max_size=30)
BITS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


def columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def by_enumeration(differences: list[float]) -> float:
    """The definition, sign by sign."""
    seen = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return float(np.mean([s >= seen - 1e-9 * sum(map(abs, differences)) for s in sums]))


def test_five_questions_by_hand():
    """Differences 1, 2, 3, -1 and 0 sum to 5. Of the 16 ways to sign 1, 2, 3 and 1, the sum is 5 or
    more for (+1 +2 +3 +1), (-1 +2 +3 +1) and (+1 +2 +3 -1), and as often -5 or less: 6 of 16."""
    found = paired([2, 4, 6, 1, 7], [1, 2, 3, 2, 7])
    assert found.difference == pytest.approx(1)
    assert (found.better, found.worse, found.equal) == (3, 1, 1)
    assert found.p == pytest.approx(6 / 16)
    assert found.mcnemar is None


def test_mcnemar_by_hand():
    """9 questions only a got right and 2 only b: 2 (1 + 11 + 55) / 2048."""
    a = [1] * 9 + [0] * 2 + [1] * 20 + [0] * 5
    b = [0] * 9 + [1] * 2 + [1] * 20 + [0] * 5
    found = paired(a, b)
    assert found.mcnemar == pytest.approx(2 * (1 + 11 + 55) / 2048)
    assert found.p == pytest.approx(found.mcnemar)
    assert (found.better, found.worse, found.equal) == (9, 2, 25)
    assert found.difference == pytest.approx(7 / 36)


@given(st.lists(MARKS, min_size=1, max_size=9))
def test_with_few_differences_p_is_the_share_of_all_sign_flips(differences):
    nonzero = [d for d in differences if d]
    assert paired(differences, [0.0] * len(differences)).p == by_enumeration(nonzero)


@given(PAIRS)
def test_turning_the_players_round_turns_the_difference_and_keeps_p(pairs):
    a, b = columns(pairs)
    one, other = paired(a, b), paired(b, a)
    assert one.difference == pytest.approx(-other.difference)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p == other.p
    assert (one.better, one.worse, one.equal) == (other.worse, other.better, other.equal)


@given(PAIRS)
def test_p_is_a_probability_and_never_0(pairs):
    found = paired(*columns(pairs))
    assert 0 < found.p <= 1
    assert found.better + found.worse + found.equal == len(pairs)


@given(BITS)
def test_right_and_wrong_also_give_mcnemar(pairs):
    found = paired(*columns(pairs))
    assert found.mcnemar is not None and 0 < found.mcnemar <= 1
    tolerance = 1e-9 if found.better + found.worse <= EXACT else 0.025
    assert found.p == pytest.approx(found.mcnemar, abs=tolerance)


@given(st.lists(MARKS, max_size=40))
def test_equal_marks_are_no_evidence(marks):
    found = paired(marks, marks)
    assert found.p == 1
    assert (found.better, found.worse, found.equal) == (0, 0, len(marks))


@given(PAIRS, st.lists(MARKS, max_size=40))
def test_questions_on_which_both_are_equal_do_not_change_p(pairs, same):
    a, b = columns(pairs)
    assert paired(a + same, b + same).p == paired(a, b).p


def test_up_to_14_differences_all_flips_are_tried_and_from_15_on_a_sample():
    differences = np.random.default_rng(6).normal(0.3, 1, EXACT + 1).round(2)
    exact = by_enumeration(differences[:EXACT].tolist())
    assert EXACT == 14 and paired(differences[:EXACT], np.zeros(EXACT)).p == exact
    sampled = paired(differences, np.zeros(EXACT + 1)).p * (FLIPS + 1)
    assert sampled == pytest.approx(round(sampled), abs=1e-6)


def test_a_sample_of_flips_comes_close_to_all_of_them():
    random = np.random.default_rng(4)
    for shift in (0.0, 0.4):
        differences = random.normal(shift, 1, EXACT + 2).round(2)
        exact = by_enumeration(differences.tolist())
        assert paired(differences, np.zeros(EXACT + 2)).p == pytest.approx(exact, abs=0.015)


def test_an_unlikely_difference_among_many_has_a_small_p_that_is_not_0():
    found = paired([1] * 3000, [0] * 3000)
    assert found.p == pytest.approx(1 / (FLIPS + 1))
    assert found.mcnemar is not None and 0 < found.mcnemar < 1e-300


def test_without_a_difference_one_in_twenty_is_significant_and_not_more():
    random = np.random.default_rng(11)
    for n, draw in ((8, random.normal), (12, random.random), (25, random.normal)):
        found = [paired(draw(size=n), draw(size=n), seed=i).p < 0.05 for i in range(200)]
        assert np.mean(found) <= 0.10
        assert np.mean(found) > 0


def test_a_real_difference_is_found():
    random = np.random.default_rng(12)
    found = [
        paired(random.normal(0.8, 1, 25), random.normal(0, 1, 25), seed=i).p < 0.05
        for i in range(100)
    ]
    assert np.mean(found) > 0.6


def test_the_interval_of_a_difference_knows_which_marks_belong_together():
    """Questions differ a lot, players a little: unpaired, nothing would be seen."""
    hard = np.random.default_rng(3).normal(0, 10, 200)
    found = paired(hard + 0.1, hard)
    assert found.low == pytest.approx(0.1) and found.high == pytest.approx(0.1)


@pytest.mark.parametrize("shift", [0.0, 0.01, 0.03])
def test_with_many_different_marks_p_is_that_of_a_normal_distribution(shift):
    random = np.random.default_rng(5)
    a, b = random.random(2000) + shift, random.random(2000)
    z = abs((a - b).sum()) / math.sqrt(((a - b) ** 2).sum())
    assert paired(a, b).p == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.015)


def test_without_questions_nothing_is_known():
    found = paired([], [])
    assert math.isnan(found.difference) and math.isnan(found.low)
    assert found.p == 1


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 0], [1], "2 marks against 1: compare the same questions"),
        ([1.0, math.nan], [0.0, 0.0], "a mark is not a number"),
        ([1.0], [math.inf], "a mark is not a number"),
    ],
)
def test_marks_that_do_not_belong_together_are_refused(a, b, message):
    with pytest.raises(DataError, match=message):
        paired(a, b)


# Resamples and fits


def test_every_resample_draws_as_many_questions_as_there_are():
    drawn = redrawn(7, seed=1)
    assert drawn.shape == (RESAMPLES, 7)
    assert set(drawn.sum(1)) == {7.0}
    assert drawn.mean(0) == pytest.approx(np.ones(7), abs=0.15)
    assert redrawn(0).shape == (RESAMPLES, 0)


def test_values_that_are_no_number_are_left_out_of_an_interval():
    values = np.array([math.nan, *np.linspace(0, 1, 201), math.nan])
    assert middle(values) == pytest.approx((0.025, 0.975))
    assert all(math.isnan(end) for end in middle(np.array([math.nan])))


@given(
    st.lists(
        st.tuples(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 20)), min_size=1, max_size=30
    )
)
def test_a_logistic_fit_is_where_the_likelihood_has_no_slope(rows):
    """Also where x tells wins from losses perfectly."""
    x, y, weight = (np.array(column) for column in zip(*rows, strict=True))
    (fit,) = logistic(x, y, weight[None], ridge=0.03)
    error = weight * (y - sigmoid(fit[0] + fit[1] * x))
    assert error.sum() - 0.03 * fit[0] == pytest.approx(0, abs=1e-6)
    assert (error * x).sum() - 0.03 * fit[1] == pytest.approx(0, abs=1e-6)


def test_a_fit_that_would_overshoot_for_ever_is_held_back():
    """Two clouds, nearly separated, with weights from 1/200 to 9000."""
    x = np.array([0.937, 0.950, 0.928, 0.924, 0.956, 0.997, -0.925])
    y = np.array([0.0, 1, 0, 0, 0, 1, 0])
    weights = np.array([0.0048, 91.5, 0.0692, 295.6, 1.81, 8766.7, 825.9])
    (fit,) = logistic(x, y, weights[None])
    error = weights * (y - sigmoid(fit[0] + fit[1] * x))
    assert error.sum() - 0.03 * fit[0] == pytest.approx(0, abs=1e-5)
    assert (error * x).sum() - 0.03 * fit[1] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("gap", [1.0, 0.01])
def test_perfect_separation_does_not_diverge(gap):
    x = np.array([-gap, gap] * 500)
    (fit,) = logistic(x, (x > 0).astype(float), np.ones((1, 1000)))
    assert np.isfinite(fit).all()
    assert fit[0] == pytest.approx(0, abs=1e-9) and fit[1] > 5


def test_a_logistic_fit_finds_what_made_the_data():
    random = np.random.default_rng(9)
    x = random.uniform(-1, 1, 20_000)
    y = (random.random(20_000) < sigmoid(-0.4 + 1.7 * x)).astype(float)
    (fit,) = logistic(x, y, np.ones((1, 20_000)))
    assert fit == pytest.approx([-0.4, 1.7], abs=0.08)


def test_shares_that_never_differ_leave_doubt_and_numbers_do_not() -> None:
    same = paired([1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0])
    assert (same.difference, same.p) == (0, 1)
    assert same.high == -same.low == pytest.approx(1.96**2 / (4 + 1.96**2))
    tokens = paired([310.0, 20.0], [310.0, 20.0])
    assert (tokens.low, tokens.high) == (0, 0)


def test_shares_that_always_differ_alike_leave_room_for_doubt() -> None:
    found = paired([1.0] * 3, [0.0] * 3)
    assert found.difference == found.high == 1 and 0 < found.low < 0.5
    one = paired([0.6], [0.4])
    assert one.low < 0 < 0.2 < one.high <= 1
    alike = paired([0.6, 0.4, 0.8], [0.4, 0.2, 0.6])  # equal but for rounding
    assert alike.low < 0 < 0.5 < alike.high
    many = paired([1.0] * 300, [0.0] * 300)
    assert 0.98 < many.low < 1
