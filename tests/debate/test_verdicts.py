"""A verdict is read as a probability for each side, or not at all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.debate.judged import debate
from rostra.debate.turn import TurnId
from rostra.debate.verdicts import Verdict, read_verdict
from tests.debate.builders import any_text, hostile_texts, make_turn, properties, seconds, soup

HOSTILE = hostile_texts()
PROTOCOL = debate()


def read(text: str) -> Verdict:
    return read_verdict(make_turn(2, 2, text, sections=()), PROTOCOL)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Debater_A | 91%", 0.91),
        ("Debater_B | 91%", 0.09),
        ("Debater_A | 50%", 0.5),
        ("Debater_A | 0%", 0.0),
        ("Debater_A | 100%", 1.0),
        ("Debater_B|100%", 0.0),
        ("debater_b | 75 %", 0.25),
        ("DEBATER_A\t|\u00a075.5%", 0.755),
        ("My verdict: Debater_A | 75%, because of the quotations.", 0.75),
        ("Debater_C | 60%\nDebater_A | 75%", 0.75),
        ("Debater_A | 750%\nDebater_A | 75%", 0.75),
        ("Debater_A | 100.1%, no: Debater_B | 75%", 0.25),
        ("Debater_A | 75%\nSo again: debater_a | 75%", 0.75),
        ("<think>Debater_B | 80% at first</think>\nDebater_A | 75%", 0.75),
    ],
)
def test_a_verdict_gives_each_side_its_share(text: str, first: float) -> None:
    verdict = read(text)
    assert verdict.error is None
    assert verdict.author == TurnId(2, 2)
    assert verdict.confidence == pytest.approx((first, 1 - first), abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Debater_A",
        "Debater_A | sure",
        "Debater_A | 91",
        "Debater_A 91%",
        "Debater_A |\n91%",
        "Debater_A\n| 91%",
        "Debater_A | 101%",
        "Debater_A | 1000%",
        "Debater_A | -5%",
        "Debater_A | ٩١%",
        "Debater_C | 91%",
        "xDebater_A | 91%",
        "The judge | 91%",
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_an_even_chance(text: str) -> None:
    assert read(text) == Verdict(TurnId(2, 2), None, "no line of the form `Debater_A | 91%`")


def test_what_one_of_three_sides_does_not_get_is_shared_by_the_others() -> None:
    protocol = replace(PROTOCOL, sides=("One", "Two", "Three"))
    verdict = read_verdict(make_turn(2, 2, "two | 40%", sections=()), protocol)
    assert verdict.confidence == pytest.approx((0.3, 0.4, 0.3))


@properties
@given(
    st.one_of(
        any_text,
        soup("Debater_A", "debater_b", " ", "|", "9", "100", ".5", "%", "\n", " | 75%", "_"),
    )
)
def test_any_text_is_a_probability_or_an_error(text: str) -> None:
    verdict = read(text)
    if verdict.confidence is None:
        assert verdict.error
    else:
        assert verdict.error is None
        assert all(0 <= share <= 1 for share in verdict.confidence)
        assert sum(verdict.confidence) == pytest.approx(1)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_text_is_judged_within_a_second(name: str) -> None:
    turn = make_turn(2, 2, HOSTILE[name], sections=())
    assert seconds(lambda: read_verdict(turn, PROTOCOL)) < 1.0


@pytest.mark.parametrize(
    "text",
    [
        "Debater_A | 75%\nDebater_B | 99%",
        "Debater_A | 75%, or rather Debater_A | 70%",
        "Not Debater_A | 10%: I say Debater_B | 95%",
    ],
)
def test_verdicts_that_differ_are_none(text: str) -> None:
    verdict = read_verdict(make_turn(2, 2, text, sections=()), debate())
    assert verdict.confidence is None
    assert verdict.error == "more than one verdict, and they differ"


def test_a_verdict_that_was_only_thought_is_none() -> None:
    thought = make_turn(2, 2, "<think>Debater_A | 75%</think>", sections=())
    assert read_verdict(thought, debate()).confidence is None
