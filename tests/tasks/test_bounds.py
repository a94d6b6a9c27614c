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
