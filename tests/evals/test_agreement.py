"""How far judges agree, beyond chance."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rostra.errors import ConfigError
from rostra.evals.agreement import Level, alpha, alpha_of, coincidences

VOTES = st.sampled_from([-1, 0, 1])
UNITS = st.lists(
    st.lists(st.one_of(VOTES, st.none()), min_size=3, max_size=3), min_size=2, max_size=12
)
LEVELS = st.sampled_from(["nominal", "ordinal", "interval"])

# Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, section C: four observers, twelve
# units, values missing. One row for each observer.
_ = None
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
LITERATURE = [list(unit) for unit in zip(*OBSERVERS, strict=True)]


def test_two_judges_and_two_values_by_hand():
    """Section A of the same paper. Four of ten units differ, so 8 of the 20 values stand beside a
    different one: 4 in each order. 14 zeros and 6 ones. alpha = 1 - (20 - 1) * 4 / (14 * 6)."""
    a = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    b = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    units = list(zip(a, b, strict=True))
    assert alpha(units, "nominal") == pytest.approx(1 - 19 * 4 / (14 * 6))
    assert alpha(units, "nominal") == pytest.approx(0.095, abs=5e-4)


def test_missing_votes_by_hand():
    """The lone 3 of the last unit is paired with nothing, so 40 values are left: 9 ones, 13 twos,
    10 threes, 5 fours, 3 fives. A unit with m values, n of them equal, adds n (n - 1) / (m - 1) to
    the pairs that agree: ones 3 + 2 + 2, twos 2 + 4 + 4, threes 4 + 4, fours 4, fives 3."""
    pairs = coincidences(LITERATURE, [1, 2, 3, 4, 5]).sum(0)
    assert pairs.sum() == pytest.approx(40)
    assert pairs.sum(0).tolist() == pytest.approx([9, 13, 10, 5, 3])
    assert np.diag(pairs).tolist() == pytest.approx([7, 10, 8, 4, 3])
    chance = 9 * 8 + 13 * 12 + 10 * 9 + 5 * 4 + 3 * 2
    by_hand = (39 * (7 + 10 + 8 + 4 + 3) - chance) / (40 * 39 - chance)
    assert alpha(LITERATURE, "nominal") == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("level", "printed"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_each_level_gives_what_the_paper_prints(level: Level, printed: float):
    assert alpha(LITERATURE, level) == pytest.approx(printed, abs=5e-4)


def test_a_tie_against_a_win_is_less_disagreement_than_a_loss_against_a_win():
    rest = [[1, 1], [0, 0], [-1, -1]] * 4
    assert alpha([*rest, [0, 1]]) > alpha([*rest, [-1, 1]])
    assert alpha([*rest, [0, 1]], "nominal") == pytest.approx(
        alpha([*rest, [-1, 1]], "nominal"), abs=0.01
    )


@given(st.lists(VOTES, min_size=2, max_size=15), st.integers(2, 5), LEVELS)
def test_perfect_agreement_is_1(votes: list[int], judges: int, level: Level):
    assume(len(set(votes)) > 1)
    assert alpha([[vote] * judges for vote in votes], level) == pytest.approx(1)


def test_judges_that_vote_at_random_agree_by_chance_only():
    random = np.random.default_rng(8)
    even = random.integers(-1, 2, (3000, 3)).tolist()
    skewed = random.choice([-1, 0, 1], (3000, 3), p=[0.05, 0.05, 0.9]).tolist()
    for units in (even, skewed):
        assert alpha(units) == pytest.approx(0, abs=0.04)
        assert alpha(units, "nominal") == pytest.approx(0, abs=0.04)


def test_two_judges_who_always_contradict_each_other_are_below_chance():
    """10 units, each with one of both: alpha = 1 - 19 * 10 / (10 * 10)."""
    assert alpha([[1, -1], [-1, 1]] * 5) == pytest.approx(1 - 19 * 10 / 100)


@given(UNITS, LEVELS, st.permutations([0, 1, 2]), st.randoms(use_true_random=False))
def test_neither_the_order_of_judges_nor_of_units_matters(units, level, order, random):
    turned = [[unit[i] for i in order] for unit in units]
    random.shuffle(turned)
    assert alpha(turned, level) == pytest.approx(alpha(units, level), nan_ok=True)


@given(UNITS, LEVELS)
def test_which_end_of_the_scale_is_which_does_not_matter(units, level):
    turned = [[None if vote is None else -vote for vote in unit] for unit in units]
    assert alpha(turned, level) == pytest.approx(alpha(units, level), nan_ok=True)


@given(UNITS, LEVELS)
def test_alpha_is_at_most_1_and_a_judge_who_never_votes_changes_nothing(units, level):
    found = alpha(units, level)
    assert math.isnan(found) or found <= 1 + 1e-12
    silent = [[*unit, None] for unit in units]
    assert alpha(silent, level) == pytest.approx(found, nan_ok=True)


@given(UNITS)
def test_a_unit_with_one_vote_says_nothing_about_agreement(units):
    alone = [*units, [1, None, None], [None, None, None]]
    assert alpha(alone) == pytest.approx(alpha(units), nan_ok=True)


@pytest.mark.parametrize("units", [[], [[1, None], [None, 0]], [[1, 1], [1, 1, 1]], [[0]]])
def test_without_two_different_comparable_votes_there_is_no_number(units):
    assert math.isnan(alpha(units))


def test_sums_of_coincidences_are_scored_all_at_once():
    random = np.random.default_rng(2)
    many = [random.integers(-1, 2, (9, 3)).tolist() for _ in range(5)]
    summed = np.stack([coincidences(units, (-1, 0, 1)).sum(0) for units in many])
    found = alpha_of(summed, (-1, 0, 1))
    assert found.tolist() == pytest.approx([alpha(units) for units in many])


def test_a_misspelt_level_is_refused_with_the_right_one():
    with pytest.raises(ConfigError, match="'ordnal'.*did you mean ordinal"):
        alpha([[1, 0]], "ordnal")  # type: ignore[arg-type]
