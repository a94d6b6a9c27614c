"""Questions go where their own text says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.tasks.parts import asked, parted
from rostra.tasks.question import Question

SHARES = (0.1, 0.2)


def questions(*prompts: str) -> list[Question]:
    return [Question(str(i), prompt, "1") for i, prompt in enumerate(prompts)]


def numbered(count: int) -> list[Question]:
    return questions(*(f"How much is {i} and {i}?" for i in range(count)))


def prompts(part: list[Question]) -> list[str]:
    return [question.prompt for question in part]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("abAB \n", min_size=1).filter(str.strip), max_size=30))
def test_parts_hold_every_question_and_share_none(texts: list[str]) -> None:
    parts = parted(questions(*texts), shares=(0.3, 0.3))
    assert sorted(prompts([*parts.train, *parts.validation, *parts.test])) == sorted(texts)
    keys = [{asked(question) for question in part} for part in parts]
    assert not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])


def test_the_shares_are_about_what_was_asked_for() -> None:
    train, validation, test = (len(part) for part in parted(numbered(5000), shares=SHARES))
    assert train + validation + test == 5000
    assert abs(validation - 500) < 80 and abs(test - 1000) < 110


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 60))
def test_a_question_that_is_added_moves_no_other(count: int, more: int) -> None:
    few, many = (parted(numbered(n), shares=SHARES) for n in (count, count + more))
    for small, large in zip(few, many, strict=True):
        assert prompts(small) == prompts(large)[: len(small)]


def test_order_case_and_blanks_move_no_question() -> None:
    texts = [f"What is {i}?" for i in range(200)]
    shouted = [f" {text.upper()}\n" for text in reversed(texts)]
    usual, other = (parted(questions(*t), shares=SHARES) for t in (texts, shouted))
    for a, b in zip(usual, other, strict=True):
        assert {asked(q) for q in a} == {asked(q) for q in b}


def test_a_test_that_is_given_stays_whole_and_leaves_training() -> None:
    pool = numbered(100)
    test = [Question("t", pool[3].prompt.upper(), "1"), Question("u", "Something else?", "1")]
    parts = parted(pool, test=test, shares=SHARES)
    assert parts.test == test
    kept = prompts([*parts.train, *parts.validation])
    assert len(kept) == 99 and pool[3].prompt not in kept
    assert 0 < len(parts.validation) < 30


def test_a_validation_that_is_given_loses_what_is_tested() -> None:
    pool = numbered(20)
    parts = parted(pool, validation=pool[:4], test=pool[2:6], shares=SHARES)
    assert prompts(parts.validation) == prompts(pool[:2])
    assert prompts(parts.test) == prompts(pool[2:6])
    assert prompts(parts.train) == prompts(pool[6:])


def test_questions_of_one_story_stay_together() -> None:
    pool = [
        Question(f"{story}-{n}", f"Question {n}?", "1", background=str(story))
        for story in range(300)
        for n in range(3)
    ]
    parts = parted(pool, shares=SHARES, key=lambda q: str(q.background))
    stories = [{q.background for q in part} for part in parts]
    assert all(stories)
    assert sum(map(len, stories)) == 300


def about(story: str, *prompts: str) -> list[Question]:
    return [Question(f"{story}-{p}", p, "1", background=f"The text of {story}.") for p in prompts]


def test_a_story_that_is_held_back_has_no_question_in_a_part_before() -> None:
    parts = parted(
        [*about("S1", "Who?"), *about("S2", "Who?"), *about("S3", "Who?")],
        [*about("S2", "Why?"), *about("S4", "Why?")],
        [*about("S1", "When?"), *about("S4", "When?")],
        shares=SHARES,
        key=lambda q: str(q.background),
    )
    assert [[q.id for q in part] for part in parts] == [
        ["S3-Who?"],
        ["S2-Why?"],
        ["S1-When?", "S4-When?"],
    ]


def test_a_question_that_comes_without_its_text_may_be_about_one_that_is_held_back() -> None:
    bare = [Question("p1", "who?", "1"), Question("p2", "Where?", "1")]
    parts = parted(bare, test=about("S1", "Who?"), shares=(0.0, 0.1), key=lambda q: q.id)
    assert [q.id for q in parts.train] == ["p2"]


def test_a_share_of_nothing_takes_nothing() -> None:
    parts = parted(numbered(500), shares=(0.0, 0.1))
    assert not parts.validation and parts.test


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("Où est le café {}?", "Ou\u0300 est le cafe\u0301 {}?"),
        ("How many apples {}?", "How many\u200b apples {}?"),
        ("How many apples {}?", "How many apples {}\uff1f"),
        ("How many apples {}?", "\ufeffHow  many\u00a0apples {}?"),
    ],
)
def test_questions_that_look_the_same_are_in_one_part(text: str, twin: str) -> None:
    both = [form.format(i) for i in range(100) for form in (text, twin)]
    parts = parted(questions(*both), shares=(0.2, 0.3))
    assert all(len(part) % 2 == 0 and part for part in parts)
    keys = [{asked(question) for question in part} for part in parts]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 100


def test_what_looks_different_is_another_question() -> None:
    apart = questions("Compute 5²", "Compute 52", "Compute ½", "Compute 1/2", "Compute 1⁄2")
    assert len({asked(question) for question in apart}) == 5
