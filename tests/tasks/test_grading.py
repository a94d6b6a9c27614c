"""What a solution answers, and whether that is right."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rostra.debate.sections import parse
from rostra.tasks.grading import Exact, Integers, boxed, plain, same_integer
from rostra.tasks.question import Question

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "boxed.jsonl"


def slow(text: str) -> str | None:
    """The same, by looking from every box to the brace that closes it, the last box first."""
    for box in reversed(list(re.finditer(r"\\(?:boxed|fbox)\s*\{", text))):
        depth = 1
        for at in range(box.end(), len(text)):
            if not escaped(text, at):
                depth += (text[at] == "{") - (text[at] == "}")
            if depth == 0:
                return text[box.end() : at].strip() or None
    return None


def escaped(text: str, at: int) -> bool:
    """Whether the backslashes before a place are an odd number."""
    return (at - len(text[:at].rstrip("\\"))) % 2 == 1


PIECES = [
    "\\boxed{",
    "\\fbox{",
    "\\boxed",
    "\\boxed \n{",
    "\\boxed\\boxed{",
    "{",
    "}",
    "}}",
    "\\{",
    "\\}",
    "\\\\",
    " ",
    "7",
]
pieces = st.lists(st.sampled_from([*PIECES, "\\frac", "boxed{", "\\", "é", "\n"]), max_size=16)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So it is $\\boxed{42}$.", "42"),
        ("first \\boxed{1}, then \\boxed{2}", "2"),
        ("\\boxed{ \\frac{1}{2} }", "\\frac{1}{2}"),
        ("\\boxed{1 \\boxed{8}}", "8"),
        ("\\boxed{5} and \\boxed{6", "5"),
        ("\\boxed{5} and \\boxed", "5"),
        ("\\boxed{6 and \\boxed{5}", "5"),
        ("} { \\boxed{5}", "5"),
        ("\\boxed\n {12}", "12"),
        ("\\boxed{}", None),
        ("\\boxed{ \n}", None),
        ("\\boxed{5} \\boxed{ }", None),
        ("\\fbox{9}", "9"),
        ("\\boxed{1} \\fbox {9}", "9"),
        ("\\fboxed{9}", None),
        ("\\box{9}", None),
        ("\\boxed{\\left\\{x>0\\right.}", "\\left\\{x>0\\right."),
        (
            "\\boxed{\\left\\{\\begin{array}{l}x=1\\\\y=2\\end{array}\\right.}",
            "\\left\\{\\begin{array}{l}x=1\\\\y=2\\end{array}\\right.",
        ),
        ("\\boxed{x\\}}", "x\\}"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{a\\\\}", "a\\\\"),
        ("\\boxed{1\\\\{2}}", "1\\\\{2}"),
        ("\\\\boxed{8}", "8"),
        ("The set \\{1,2 has \\boxed{5}", "5"),
        ("\\boxed{5\\}", None),
        ("\\boxed{5", None),
        ("\\boxed{5{}", None),
        ("boxed{5}", None),
        ("\\boxed 5", None),
        ("the answer is 42", None),
        ("", None),
    ],
)
def test_the_last_whole_box_is_the_answer(text: str, answer: str | None) -> None:
    assert boxed(text) == answer


@settings(max_examples=400, deadline=None)
@given(pieces.map("".join) | st.text("\\boxed{} 1", max_size=30))
@example("\\boxed{\\boxed{1}\\boxed{2}}")
@example("\\boxed{1}}\\boxed{{2}")
def test_boxes_in_any_text_agree_with_a_slow_search(text: str) -> None:
    assert boxed(text) == slow(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.text(st.characters(exclude_characters="{}\\"), max_size=20))
def test_what_is_put_into_a_box_comes_out(before: str, answer: str) -> None:
    assert boxed(f"{before}\\boxed{{{answer}}}, so.") == (answer.strip() or None)


HOSTILE: dict[str, Callable[[int], str]] = {
    "open boxes": lambda n: "\\boxed{" * n,
    "nested boxes": lambda n: "\\boxed{" * n + "}" * n,
    "nested braces": lambda n: "\\boxed{" + "{" * n + "}" * n,
    "one whole box, then open ones": lambda n: "\\boxed{1}" + "\\boxed{" * n,
    "one open box and many braces": lambda n: "\\boxed{" + "{}" * n,
    "boxes without braces": lambda n: "\\boxed" * n,
    "blanks after a box": lambda n: "\\boxed" + " " * n,
    "blanks after boxes": lambda n: ("\\boxed" + " " * 50) * n,
    "closing braces": lambda n: "}" * n,
    "backslashes": lambda n: "\\" * n,
    "braces behind backslashes": lambda n: "\\boxed{" + "\\{" * n,
    "blanks after boxes behind backslashes": lambda n: ("\\\\boxed" + " " * 50) * n,
    "whole boxes": lambda n: "\\boxed{1}" * n,
}


def seconds(text: str) -> float:
    """The least of three: the machine may be busy."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        boxed(text)
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.parametrize("kind", HOSTILE)
def test_four_times_the_text_takes_about_four_times_as_long(kind: str) -> None:
    # A quadratic search takes 16 times as long, and minutes.
    small, large = (seconds(HOSTILE[kind](n)) for n in (5_000, 20_000))
    assert large < 9 * small + 0.05


def test_the_hostile_texts_are_read_right() -> None:
    found = {kind: boxed(make(50)) for kind, make in HOSTILE.items()}
    assert found == {kind: slow(make(50)) for kind, make in HOSTILE.items()}
    assert found["one whole box, then open ones"] == "1"
    assert found["nested boxes"] is None


def vectors() -> list[Any]:
    if not VECTORS.exists():
        return []
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines() if line.strip()]
    return [pytest.param(row, id=row["id"]) for row in rows]


@pytest.mark.skipif(not VECTORS.exists(), reason="the shared vectors are not here")
@pytest.mark.parametrize("row", vectors())
def test_the_shared_vectors_are_read_as_they_say(row: dict[str, Any]) -> None:
    # What reads answers looks into the solution only.
    sections = parse(row["text"], ("solution",), "stop").sections
    text = sections["solution"].text if sections else row["text"]
    assert boxed(text) == row["expected"]


# Whole numbers


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("42", "42"),
        (" 42 ", "42"),
        ("1,200", "1200"),
        ("$1200", "1200"),
        ("\\$1,200", "1200"),
        ("$ 1,200 $", "1200"),
        ("$\\$1,200$", "1200"),
        ("1{,}200{,}000", "1200000"),
        ("-\\$1,200", "-1200"),
        ("\\$-1,200", "-1200"),
        ("-3", "-3"),
        ("+3", "3"),
        ("007", "7"),
        ("-0", "0"),
        ("42.0", "42"),
        ("42.000", "42"),
        ("1,\\!234", "1234"),
        ("1\\,234\\,567", "1234567"),
        ("\\text{18}", "18"),
        ("\\(18\\)", "18"),
        ("**18**", "18"),
        ("$$18$$", "18"),
        ("$\\text{1,800}$", "1800"),
        ("1" + "0" * 99, "1" + "0" * 99),
        (f"{10**60:,}", str(10**60)),
    ],
)
def test_one_number_may_be_written_in_many_ways(answer: str, reference: str) -> None:
    assert same_integer(answer, reference)
    assert same_integer(reference, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " ",
        "43",
        "-42",
        "4 2",
        "42.5",
        "42.",
        ".0",
        "42 apples",
        "4e1",
        "x",
        "?",
        "$",
        ",",
        "--42",
        "-$-42",
        "4,2",
        "4{,}2",
        ",,42,",
        "42,",
        "4\\$2",
        "42$",
        "42\\$",
        "٤٢",
        "4\\,2",
        "4,\\!2",
        "\\text{42 eggs}",
        "\\text{\\text{42}}",
        "\\(42",
        "42 dollars",
        "1" * 101,
    ],
)
def test_what_is_another_number_or_none_is_wrong(answer: str) -> None:
    assert not same_integer(answer, "42")


@pytest.mark.parametrize(
    "answer", ["12,00", "1200,", "1,2,0,0", "1,20,0", ",1200", "1,2000", "0,012,000"]
)
def test_a_comma_parts_thousands_or_nothing(answer: str) -> None:
    assert not same_integer(answer, "1200") and not same_integer(answer, "12000")


@pytest.mark.parametrize("nothing", ["", "x", "?", "1.5"])
def test_two_texts_that_are_no_number_are_not_the_same_one(nothing: str) -> None:
    assert not same_integer(nothing, nothing)


def test_a_number_of_a_million_digits_is_refused_and_not_read() -> None:
    huge = "9" * 1_000_000
    assert not same_integer(huge, huge)


integers = st.integers(-(10**99), 10**99)


@settings(max_examples=200, deadline=None)
@given(integers, integers)
def test_numbers_are_the_same_if_they_are_equal(a: int, b: int) -> None:
    assert same_integer(str(a), str(b)) == (a == b)
    assert same_integer(f"{a:,}", str(a))
    assert same_integer(f"${a}$", f"{a}.00")


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789,.$-+\\ x٣³", max_size=12), st.text("0123456789,.$- ", max_size=12))
def test_any_two_texts_can_be_compared_either_way_round(a: str, b: str) -> None:
    assert same_integer(a, b) == same_integer(b, a)


# Graders


@pytest.mark.parametrize(
    ("answer", "right"),
    [("１２", True), ("−12", False), ("1{,}2", False), ("12 apples", False), ("1²", False)],
)
def test_whole_numbers_are_graded_strictly(answer: str, right: bool) -> None:
    question = Question("q", "?", "12")
    assert Integers().grade([(answer, question), ("12", question)]) == [right, True]
    assert Integers().grade([(answer, Question("q", "?"))]) == [False]


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The old man", True),
        (" the  OLD\nman. ", True),
        ("the young man", False),
        ("", False),
        ("b", True),
        ("(B)", True),
        ("A", False),
        ("E", False),
    ],
)
def test_a_choice_is_graded_by_its_words_or_its_letter(answer: str, right: bool) -> None:
    question = Question("q", "Who?", "the old man", ("the young man", "the old man"))
    assert Exact().grade([(answer, question)]) == [right]


@pytest.mark.parametrize(
    "answer",
    [
        "Paris",
        "\\text{Paris}",
        "\\textbf{\\text{Paris}}",
        "**Paris**",
        "B",
        "b.",
        "(B)",
        "\\text{B}",
        "\\mathrm{B}",
        "\\textbf{(B)}",
        "(B) Paris",
        "B. Paris",
        "B) Paris",
        "b: paris.",
        "\\textbf{(B) } \\text{Paris}",
    ],
)
def test_a_choice_may_be_set_in_any_face_and_with_its_letter(answer: str) -> None:
    question = Question("q", "Which?", "Paris", ("Rome", "Paris"))
    assert Exact().grade([(answer, question)]) == [True]


@pytest.mark.parametrize(
    "answer",
    ["A", "\\text{A}", "(A) Paris", "B. Rome", "(C) Paris", "C", "B Paris Rome", "\\text{}"],
)
def test_a_letter_and_its_choice_have_to_agree(answer: str) -> None:
    question = Question("q", "Which?", "Paris", ("Rome", "Paris"))
    assert Exact().grade([(answer, question)]) == [False]


def test_a_choice_that_begins_with_an_article_is_no_letter() -> None:
    question = Question("q", "Which?", "a man", ("a man", "man"))
    assert Exact().grade([("a man", question), ("A. man", question)]) == [True, False]


def test_a_choice_in_a_thousand_groups_is_read_in_no_time() -> None:
    question = Question("q", "Which?", "Paris", ("Rome", "Paris"))
    began = time.process_time()
    assert Exact().grade([("\\text{" * 50_000 + "B" + "}" * 50_000, question)]) == [False]
    assert time.process_time() - began < 2


def test_a_letter_that_is_itself_a_choice_stands_for_itself() -> None:
    question = Question("q", "Which?", "b", ("b", "a"))
    assert Exact().grade([("b", question), ("a", question)]) == [True, False]


def test_a_letter_is_a_letter_where_there_are_no_choices() -> None:
    assert Exact().grade([("b", Question("q", "?", "B")), ("b", Question("q", "?"))]) == [
        True,
        False,
    ]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20))
def test_every_text_is_the_same_as_itself_unless_it_says_nothing(text: str) -> None:
    assert Exact().grade([(text, Question("q", "?", text))]) == [bool(plain(text))]
