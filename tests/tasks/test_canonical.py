"""Answers that are counted as one."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.tasks.answers import LONGEST
from rostra.tasks.canonical import canonical
from rostra.tasks.grading import same_integer


@pytest.mark.parametrize(
    ("form", "answers"),
    [
        ("42", ["42", " 42. ", "$42", "42.0", "042", "4.2e1", "42\\text{ eggs}", "42 cm"]),
        ("1200", ["1,200", "1{,}200", "1,\\!200", "\\$1200", "1.2\\times10^3"]),
        ("-3", ["-3", "−3", "-3.0"]),
        ("1/2", ["\\frac{1}{2}", "\\dfrac12", "0.5", ".50", "1/2", "2/4", "½"]),
        ("-1/2", ["-0.5", "-\\frac12", "\\frac{-1}{2}", "\\frac{1}{-2}"]),
        ("7/2", ["3\\frac12", "3 1/2", "3.5"]),
        ("3000000", ["3\\text{ million}", "3,000,000"]),
        ("2,3", ["2,3", "2, 3", "2 and 3", "2\\text{ and }3"]),
        ("(2,3)", ["(2,3)", "\\left( 2, 3 \\right)"]),
        ("2\\sqrt{3}", ["2\\sqrt3", "2 \\sqrt{3}", "2√3", "x = 2\\sqrt{3}"]),
        ("5", ["x=5", "5", "n = 5.0"]),
        ("b", ["B", "(B)", "\\text{B}", "\\text{(B)}", "b."]),
        ("tuesday", ["Tuesday", "\\text{Tuesday}", " tuesday. "]),
        ("theoldman'sson", ["The old man's son.", "the  old man's son"]),
        ("", ["", " "]),
    ],
)
def test_what_is_plainly_the_same_has_one_form(form: str, answers: list[str]) -> None:
    assert {answer: canonical(answer) for answer in answers} == dict.fromkeys(answers, form)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2,3", "23"),
        ("4,2", "42"),
        ("1,200", "1, 200"),
        ("1/3", "0.333"),
        ("3", "3\\text{ million}"),
        ("7", "7 is wrong"),
        ("(1,2)", "[1,2]"),
        ("4:30 am", "4:30 pm"),
        ("12_5", "12"),
        ("y=2x", "2x"),
        ("x=2,y=3", "y=3"),
        ("He has 3 sons.", "He has 3 aunts."),
    ],
)
def test_what_is_another_answer_has_another_form(first: str, second: str) -> None:
    assert canonical(first) != canonical(second)


PIECES = ["\\frac", "{", "}", "(", ")", ",", "\\text{", "1", "7.5", "x", "=", "<", "\\$", "%", "^"]
latex = st.lists(st.sampled_from([*PIECES, "\\circ", "_", " ", ".", "e9", "or", "/0"]), max_size=14)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60) | latex.map("".join))
def test_any_text_has_a_form_and_keeps_it(text: str) -> None:
    assert canonical(text) == canonical(text) == canonical(f" {text}\n")


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_whole_numbers_are_their_digits(number: int) -> None:
    assert canonical(f"{number:,}") == canonical(f"{number}.0") == str(number)
    assert same_integer(canonical(f"${number}$"), str(number))


def test_texts_of_any_length_are_counted_in_no_time() -> None:
    began = time.process_time()
    for piece in ("7", "{", "\\text{", "x<1 or ", "\\frac1", " ", "a "):
        canonical(piece * 200_000)
        canonical((piece * LONGEST)[:LONGEST])
    assert canonical("A b " * LONGEST) == "ab" * LONGEST
    assert time.process_time() - began < 3
