"""The world of sums."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.tasks.grading import boxed
from rostra.tasks.sums import (
    ballot,
    compared,
    drill,
    has_carry,
    lines_of,
    matched,
    sums,
    terms,
    usual_mistake,
    worked,
)

numbers = st.integers(0, 99)


def test_all_sums_below_the_limit_are_asked_once() -> None:
    task = sums()
    questions = [*task.train, *task.held_out]
    assert sorted(terms(q.prompt) for q in questions) == [
        (a, b) for a in range(30) for b in range(30)
    ]
    assert (len(task.train), len(task.held_out)) == (765, 135)
    assert len({q.id for q in questions}) == 900


def test_references_are_the_sums_and_carries_are_known() -> None:
    task = sums(12, 0.25)
    questions = [*task.train, *task.held_out]
    assert len(questions) == 144
    for question in questions:
        a, b = (int(term) for term in question.prompt.split("+"))
        assert question.reference == str(a + b)
        assert question.metadata == {"carry": int(str(a)[-1]) + int(str(b)[-1]) > 9}
        assert task.right(question, worked(a, b, a + b))
        assert not task.right(question, worked(a, b, usual_mistake(a, b)))


def test_both_parts_have_questions_with_a_carry_and_without() -> None:
    task = sums()
    for part in (task.train, task.held_out):
        carries = sum(bool(q.metadata["carry"]) for q in part)
        assert carries / len(part) == pytest.approx(0.45, abs=0.1)


def test_the_same_world_every_time() -> None:
    before = [q.prompt for q in sums().held_out]
    sums.cache_clear()
    assert [q.prompt for q in sums().held_out] == before


@pytest.mark.parametrize(
    ("a", "b", "carry", "mistake"),
    [(17, 24, True, 31), (5, 5, True, 0), (0, 0, False, 1), (12, 13, False, 26), (9, 1, True, 0)],
)
def test_the_usual_mistake_forgets_the_carry(a: int, b: int, carry: bool, mistake: int) -> None:
    assert has_carry(a, b) is carry
    assert usual_mistake(a, b) == mistake


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 49), st.integers(0, 49))
def test_the_usual_mistake_is_wrong_and_a_number(a: int, b: int) -> None:
    wrong = usual_mistake(a, b)
    assert wrong != a + b and wrong >= 0
    if has_carry(a, b):
        digits = (a // 10 + b // 10, (a % 10 + b % 10) % 10)
        assert wrong == 10 * digits[0] + digits[1]


@settings(max_examples=60, deadline=None)
@given(numbers, numbers, st.integers(0, 999))
def test_a_worked_sum_can_be_read_again(a: int, b: int, answer: int) -> None:
    text = worked(a, b, answer)
    assert text.startswith(f"{a}+{b}=")
    assert boxed(text) == str(answer)
    assert terms(f"{a}+{b}") == (a, b)


def test_answers_are_matched_letter_by_letter() -> None:
    assert matched("41", "41") == "41=41 yes"
    assert matched("31", "41") == "31=41 no"
    assert matched("", "41") == "=41 no"


# Drills


def test_every_line_of_a_drill_is_right() -> None:
    task = sums()
    asked_of = {q.prompt for q in task.train}
    seen = {"sum": 0, "tagged": 0, "yes": 0, "no": 0}
    for seed in range(20):
        for asked, answer, rest in drill(task, seed):
            if "boxed" in asked:
                prompt, _, tag = asked.removesuffix("\\boxed{").partition("=")
                assert prompt in asked_of
                assert tag in ("", "<solution>")
                a, b = prompt.split("+")
                assert int(answer) == int(a) + int(b)
                assert rest == "}\n"
                assert boxed(asked + answer + rest) == answer
                seen["tagged" if tag else "sum"] += 1
            else:
                left, right = asked.split("=")
                assert answer == (" yes" if int(left) == int(right) else " no")
                assert rest == "\n"
                seen[answer.strip()] += 1
    assert seen["sum"] + seen["tagged"] == seen["yes"] + seen["no"] == 640
    assert all(230 < count < 410 for count in seen.values())


def test_a_drill_never_asks_what_is_held_out() -> None:
    task = sums()
    held = {q.prompt for q in task.held_out}
    asked = {line.asked.partition("=")[0] for seed in range(20) for line in drill(task, seed)}
    assert len(asked) > 200
    assert not asked & held


def test_a_drill_has_two_lines_for_every_sum_and_is_the_same_for_the_same_seed() -> None:
    task = sums()
    assert len(drill(task, 0)) == 64
    assert len(drill(task, 0, 5)) == 10
    assert drill(task, 1) == drill(task, 1)
    assert drill(task, 1) != drill(task, 2)


SEATS = st.dictionaries(st.integers(0, 6), st.booleans(), max_size=6)


@given(SEATS)
def test_those_who_are_right_beat_those_who_are_not_and_all_are_compared(right) -> None:
    verdicts = compared(right)
    assert len(verdicts) == len(set(verdicts))
    if len(right) > 1:
        assert {seat for i, _, j in verdicts for seat in (i, j)} == set(right)
    for i, op, j in verdicts:
        assert i != j
        assert op == (">" if right[i] and not right[j] else "=")
        assert right[i] >= right[j]


def test_a_ballot_follows_from_its_marks() -> None:
    outcomes = set()
    for seed in range(200):
        asked, answer, rest = ballot(seed)
        assert asked.startswith("<evaluation>") and asked.endswith("</evaluation><comparison>")
        assert rest == "</comparison>"
        rows = re.findall(r"Agent (\d):(\d+)=(\d+) (yes|no)", asked)
        assert {mine for _, _, mine, _ in rows} == {boxed(asked)}
        assert all((said == mine) == (mark == "yes") for _, said, mine, mark in rows)
        marks = {int(seat): mark == "yes" for seat, _, _, mark in rows}
        assert 2 <= len(marks) == len(rows) <= 4
        assert answer == lines_of(compared(marks))
        outcomes.add((len(marks), sum(marks.values())))
    assert outcomes == {(n, k) for n in (2, 3, 4) for k in range(n + 1)}
    assert ballot(1) == ballot(1)


def test_the_two_kinds_of_lines_are_mixed() -> None:
    kinds = ["boxed" in line.asked for line in drill(sums(), 0)]
    changes = sum(a != b for a, b in zip(kinds, kinds[1:], strict=False))
    assert 16 < changes < 48
