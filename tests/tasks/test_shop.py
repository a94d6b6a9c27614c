"""Word problems: different, the same every time, and with the right answer."""

import re

from rostra.tasks.question import Question
from rostra.tasks.shop import shop


def problems(size: int = 1000) -> list[Question]:
    task = shop(size)
    return [*task.train, *task.held_out]


def solved(text: str) -> tuple[str, int]:
    """The kind of a problem, and its answer, found by reading it."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    first, second, third = numbers
    match text:
        case _ if "more boxes" in text:
            return "boxes", first + second * third
        case _ if "gives" in text:
            return "gives", first - second + third
        case _ if "dollars each" in text:
            return "dollars", first * second + first * third
        case _ if "every day" in text:
            return "days", first * second - third
    raise AssertionError(f"a problem of no known kind: {text}")


def test_every_reference_is_the_answer_to_its_text() -> None:
    for question in problems():
        assert question.reference == str(solved(question.prompt)[1]), question.prompt


def test_all_four_kinds_come_up_about_equally_often() -> None:
    kinds = [solved(question.prompt)[0] for question in problems()]
    counts = {kind: kinds.count(kind) for kind in ("boxes", "gives", "dollars", "days")}
    assert all(190 < count < 310 for count in counts.values())


def test_the_one_who_is_asked_about_is_the_one_it_happens_to() -> None:
    for question in problems():
        kind, _ = solved(question.prompt)
        told, asked = question.prompt.rsplit(". ", 1)
        names = re.findall(r"\b(?:Ada|Ben|Chloe|Dan|Eva|Finn|Grace|Hugo)\b", told)
        if kind == "dollars":
            assert asked == "How many dollars do they pay together?"
            assert len(set(names)) == 2
            continue
        assert f"does {names[0]} have" in asked
        if kind == "days":
            assert asked.endswith(f"than {names[1]}?")
        if kind in ("gives", "days"):
            assert len(set(names)) == 2


def test_nobody_is_asked_how_many_more_there_are_of_what_is_fewer() -> None:
    fewer = [q.prompt for q in problems() if int(q.reference or 0) < 0]
    assert fewer == []


def test_all_problems_are_different() -> None:
    for size in (10, 1000):
        questions = problems(size)
        assert len(questions) == size
        assert len({q.prompt for q in questions}) == size
        assert len({q.id for q in questions}) == size


def test_the_same_problems_every_time() -> None:
    before = [(q.id, q.prompt, q.reference) for q in problems(50)]
    shop.cache_clear()
    assert [(q.id, q.prompt, q.reference) for q in problems(50)] == before


def test_a_share_is_held_out() -> None:
    assert (len(shop().train), len(shop().held_out)) == (850, 150)
    assert (len(shop(40, 0.5).train), len(shop(40, 0.5).held_out)) == (20, 20)


def test_a_right_solution_is_right_and_another_number_is_not() -> None:
    task = shop()
    question = task.train[0]
    right = int(question.reference or "")
    assert task.right(question, f"The answer is \\boxed{{{right}}}.")
    assert not task.right(question, f"The answer is \\boxed{{{right + 1}}}.")
