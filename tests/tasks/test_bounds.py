"""Bounds as intervals."""

import pytest

from rostra.tasks.bounds import bounds, upwards


@pytest.mark.parametrize(
    ("text", "letter", "interval"),
    [
        ("0\\le x<1", "x", "[0,1)"),
        ("1>x\\ge 0", "x", "[0,1)"),
        ("t>4", "t", "(4,\\infty)"),
        ("4\\ge t", "t", "(-\\infty,4]"),
        ("x<-2 or x>3", "x", "(-\\infty,-2)\\cup (3,\\infty)"),
        ("x<-2, or 3<x<5", "x", "(-\\infty,-2)\\cup (3,5)"),
        ("x<5 and x\\ge 2", "x", "[2,5)"),
        ("\\{x\\mid x>0\\}", "x", "(0,\\infty)"),
        ("\\{x\\mid 5>x\\ge 2\\}", "x", "[2,5)"),
        ("(x>3)", "x", "(3,\\infty)"),
        ("x\\ne -2", "x", "(-\\infty,-2)\\cup (-2,\\infty)"),
        ("x=-1 or 0\\le x<7", "x", "\\{-1\\}\\cup [0,7)"),
        ("\\{ y \\in \\mathbb{R} : 0<y<1 \\}", "y", "(0,1)"),
    ],
)
def test_bounds_of_one_letter_are_an_interval(text: str, letter: str, interval: str) -> None:
    assert bounds(text) == (letter, interval)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "x=3",
        "x<y",
        "2<3",
        "x+1<3",
        "x<",
        "0<x>3",
        "x<1 or y>3",
        "x=1 or x=2",
        "x<1 or y=3",
        "x+1\\ne 2",
        "(x>3",
        "(x>3,4)",
        "x<1, x>3",
        "x<1 and x<3",
        "x<1 and x>3 and x>4",
        "g(1)<g(2)<g(3)",
        "\\{y\\mid x>0\\}",
        "\\{x\\mid x^2\\}",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert bounds(text) is None


def test_a_chain_begins_with_the_least() -> None:
    assert upwards("c>b\\ge a").replace(" ", "") == "a\\leb<c"
    assert upwards("a<b>c") == "a<b>c"


def test_a_chain_inside_of_brackets_stays_as_it_is() -> None:
    for text in ("\\{x\\mid x>0\\}", "(x>3)", "\\{(x,y)\\mid x>y\\}"):
        assert upwards(text) == text
    assert upwards("g(2)>g(1)") == "g(1)< g(2)"
