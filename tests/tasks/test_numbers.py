"""Plain numbers, however they are written."""

from fractions import Fraction

import pytest

from rostra.tasks.numbers import (
    based,
    exact,
    number,
    same_based,
    same_ratio,
    without_thousands,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", Fraction(12)),
        ("-.75", Fraction(-3, 4)),
        ("\\frac34", Fraction(3, 4)),
        ("\\frac{3}4", Fraction(3, 4)),
        ("\\frac 3 {4}", Fraction(3, 4)),
        ("-3\\frac12", Fraction(-7, 2)),
        ("0.1\\overline{6}", Fraction(1, 6)),
        ("0.\\bar3", Fraction(1, 3)),
        ("1.2e3", Fraction(1200)),
        ("1E+3", Fraction(1000)),
        ("1e-3", Fraction(1, 1000)),
        ("1.5\\cdot10^{-1}", Fraction(3, 20)),
        ("2 x 10^3", Fraction(2000)),
    ],
)
def test_every_way_to_write_a_number_has_its_value(text: str, value: Fraction) -> None:
    assert number(exact(text)) == value


@pytest.mark.parametrize(
    "text",
    ["2e-3", "2e^3", "x^2\\frac12", "1.2.3", "3(1/2)", "2^3\\cdot10^2", "1/3\\cdot10^2", "x"],
)
def test_what_may_be_something_else_is_no_plain_number(text: str) -> None:
    assert number(exact(text)) is None


def test_a_product_is_told_from_a_mixed_number() -> None:
    assert exact("3(1/2)") == "3\\cdot (1/2)"
    assert exact("f_3(1/2)") == "f_3(1/2)"


def test_only_commas_between_thousands_are_left_out() -> None:
    texts = ["1,200", "-12,345,678.5", "1,20", "12,3456", "0,200", "1, 200"]
    assert [without_thousands(text) for text in texts] == ["1200", "-12345678.5", *texts[2:]]


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("x=58,500", "x=58500"),
        ("1,000\\pi", "1000\\pi"),
        ("\\frac{1,000}{2,000}", "\\frac{1000}{2000}"),
        ("1,000, 2,000", "1000, 2000"),
        ("(1,200)", "(1,200)"),
        ("[1,200)", "[1,200)"),
        ("\\{1,200\\}", "\\{1,200\\}"),
        ("f(1,200)+1,200", "f(1,200)+1200"),
        ("1,200_3", "1,200_3"),
        ("1,200,3", "1,200,3"),
        ("x_1,200", "x_1,200"),
    ],
)
def test_thousands_are_parted_anywhere_but_in_brackets(text: str, without: str) -> None:
    assert without_thousands(text) == without


def test_digits_in_a_base_may_stand_in_parentheses() -> None:
    assert based("(1010)_2") == based("01010_{2}") == based("{1010}_2") == ("1010", "2")
    assert based("4b7_{12}") == ("4B7", "12")
    assert all(based(text) is None for text in ("1010", "x_2", "2x_1", "-12_3"))


def test_numbers_in_a_base_are_the_same_digits_in_the_same_base() -> None:
    assert same_based("12_3,21_3", "21_{3},(12)_3") is True
    assert (
        same_based("12_3", "12") is same_based("12", "-12_3") is same_based("10", "10_b") is False
    )
    assert same_based("3_7+4_7", "4_7+3_7") is None, "this takes algebra"
    assert same_based("x_1+2x_2", "2x_2+x_1") is None, "an index is no base"


def test_a_time_is_no_ratio() -> None:
    assert same_ratio("10:30", "1:3") is False and same_ratio("10:30", "10:30") is True
    assert same_ratio("1/3", "10:30") is False
    assert same_ratio("5/12", "5:12") is None and same_ratio("2:4", "1:2") is None
