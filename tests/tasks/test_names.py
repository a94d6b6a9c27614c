"""Values with names."""

import pytest

from rostra.tasks.names import around, enclosed, split, without_names


@pytest.mark.parametrize(
    ("said", "right", "left"),
    [
        ("x=5", "5", ("5", "5")),
        ("5", "x=5", ("5", "5")),
        ("x=5", "x=6", ("5", "6")),
        ("x=5", "y=5", ("x=5", "y=5")),
        ("x=2+3=5", "5", ("2+3=5", "5")),
        ("x_1=5", "5", ("5", "5")),
        ("\\theta=5", "5", ("5", "5")),
        ("P(A\\cap B)=5", "5", ("5", "5")),
        ("[ABC]=5", "5", ("5", "5")),
        ("m+n=5", "5", ("5", "5")),
        ("m+m=5", "5", ("m+m=5", "5")),
        ("5", "m+n=5", ("5", "m+n=5")),
        ("2x=5", "5", ("2x=5", "5")),
        ("\\sin(x)=5", "5", ("\\sin(x)=5", "5")),
        ("x=1,x=2", "1,2", ("1,2", "1,2")),
        ("x=1,2", "1,2", ("1,2", "1,2")),
        ("y=3,x=2", "x=2,y=3", ("(2,3)", "(2,3)")),
        ("(y,x)=(3,2)", "(2,3)", ("(2,3)", "(2,3)")),
        ("(m,b)=(2,3)", "(2,3)", ("(2,3)", "(2,3)")),
        ("(2,3)", "( m, b )=(2,3)", ("(2,3)", "(2,3)")),
        ("r=3,\\theta=\\pi", "(3,\\pi)", ("(3,\\pi)", "(3,\\pi)")),
        ("(b,m)=(3,2)", "(m,b)=(2,3)", ("(3,2)", "(3,2)")),
        ("(3,2)", "(x=2,y=3)", ("(3,2)", "(2,3)")),
        ("x=2,y=3", "2x=y", ("x=2,y=3", "2x=y")),
    ],
)
def test_a_name_that_only_one_gives_is_left_out(
    said: str, right: str, left: tuple[str, str]
) -> None:
    assert without_names(said, right) == left


def test_other_names_are_other_things() -> None:
    assert without_names("a=2,b=3", "x=2,y=3") is None


def test_commas_inside_of_brackets_part_nothing() -> None:
    assert split("(1,2), [3,4),5") == ["(1,2)", "[3,4)", "5"]
    assert split("") == [""]


def test_brackets_are_around_a_list_or_nothing() -> None:
    assert around("(1,2]") == "(]" and around(" \\{1,2\\} ") == "{}"
    assert [around(text) for text in ("(1)", "1,2", "(1,2)(3,4)", "(", "")] == [""] * 5


def test_one_pair_of_brackets_is_around_a_text_or_is_not() -> None:
    assert enclosed("{x}") and enclosed("(1,2]") and enclosed("((1)(2))")
    assert not any(map(enclosed, ("{x}+{y}", "(", "", "x", "{x}y", "(1)(2)")))
