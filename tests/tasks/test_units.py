"""What stands behind a number."""

import pytest

from rostra.tasks.units import Counted, same_units, split_unit


@pytest.mark.parametrize(
    ("text", "rest", "units"),
    [
        ("9\\text{ feet}", "9", {"foot"}),
        ("9 ft.", "9", {"foot"}),
        ("9\\mbox{ in}^2", "9", {"inch^2"}),
        ("9\\text{ square }\\text{inches}", "9", {"inch^2"}),
        ("9 cubic inches", "9", {"inch^3"}),
        ("9\\text{ feet squared}", "9", {"foot^2"}),
        ("16\\pi cm^3", "16\\pi", {"cm^3"}),
        ("60 miles per hour", "60", {"mile/hour"}),
        ("60\\text{ mph}", "60", {"mile/hour"}),
        ("5\\text{ m}/\\text{s}", "5", {"m/second"}),
        ("12\\text{ berries}", "12", {"berry"}),
        ("12 small ducks", "12", {"small", "duck"}),
        ("3/4\\text{ of the cake}", "3/4", {"cake"}),
        ("2x\\text{ cm}", "2x", {"cm"}),
        ("5m", "5m", set()),
        ("5 m", "5 m", set()),
        ("5 abc", "5 abc", set()),
        ("5 theta", "5 theta", set()),
        ("5\\text{ x}", "5\\text{ x}", set()),
        ("x\\text{ cm}", "x\\text{ cm}", set()),
        ("5\\text{ six-packs}", "5\\text{ six-packs}", set()),
        ("\\text{cm}", "\\text{cm}", set()),
        ("5/\\text{cm}", "5/\\text{cm}", set()),
    ],
)
def test_words_behind_a_number_are_units(text: str, rest: str, units: set[str]) -> None:
    assert split_unit(text) == Counted(rest, frozenset(units))


@pytest.mark.parametrize(
    ("text", "factor", "units"),
    [
        ("3\\text{ million}", 10**6, set()),
        ("3 dozen eggs", 12, {"egg"}),
        ("2 hundred thousand dollars", 10**5, {"dollar"}),
    ],
)
def test_words_for_numbers_are_factors(text: str, factor: int, units: set[str]) -> None:
    assert split_unit(text) == Counted(text[0], frozenset(units), factor)


@pytest.mark.parametrize(
    "tail",
    [
        "is wrong",
        "ducks is wrong",
        "squared",
        "base five",
        "halves",
        "or more",
        "less than x",
        "square",
        "per",
        "ducks million",
        "of a very long and boring text",
    ],
)
def test_words_that_change_the_number_are_refused(tail: str) -> None:
    text = f"7\\text{{ {tail}}}"
    assert split_unit(text) == Counted(text, refused=True)


def test_money_is_a_unit_and_may_be_paid_for_another() -> None:
    assert split_unit("5", money=True).units == {"dollar"}
    assert split_unit("5\\text{ per hour}", money=True) == Counted("5", frozenset({"dollar/hour"}))


def test_a_letter_is_a_unit_only_where_one_is_expected() -> None:
    assert split_unit("5 m^2", letters=True) == Counted("5", frozenset({"m^2"}))
    assert split_unit("5x", letters=True) == Counted("5x")


def test_units_may_be_left_out_or_told_more_of_but_not_exchanged() -> None:
    foot, inch, none = frozenset({"foot"}), frozenset({"inch"}), frozenset[str]()
    assert same_units(foot, none) and same_units(none, foot) and same_units(foot, foot)
    assert same_units(foot, foot | {"long"})
    assert not same_units(foot, inch) and not same_units(foot, inch | {"long"})
