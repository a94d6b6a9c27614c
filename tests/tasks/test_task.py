"""Questions in parts: drawn in endless order, held back, and marked."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.errors import ConfigError, DataError
from rostra.tasks.grading import Exact, Integers
from rostra.tasks.question import Question
from rostra.tasks.shop import shop
from rostra.tasks.sums import sums
from rostra.tasks.task import PARTS, Task, split


def numbered(count: int) -> list[Question]:
    return [Question(str(i), f"{i}+0", str(i)) for i in range(count)]


def task(train: int = 7, held_out: int = 5) -> Task:
    questions = numbered(train + held_out)
    return Task("tiny", questions[:train], questions[train:], Integers())


def names(questions: list[Question]) -> list[str]:
    return [question.id for question in questions]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**62), st.integers(0, 5))
def test_every_epoch_has_every_question_once(size: int, seed: int, epoch: int) -> None:
    drawn = task(size).draw(seed, epoch * size, size)
    assert sorted(names(drawn), key=int) == [str(i) for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 40), st.integers(0, 30), st.integers(0, 30))
def test_a_draw_goes_on_where_another_stopped(seed: int, start: int, first: int, more: int) -> None:
    one = task()
    whole = one.draw(seed, start, first + more)
    assert names(whole) == names(one.draw(seed, start, first)) + names(
        one.draw(seed, start + first, more)
    )
    assert len(whole) == first + more


def test_a_draw_does_not_depend_on_what_was_drawn_before() -> None:
    fresh, used = task(), task()
    for start in range(0, 60, 3):
        used.draw(start, start, 9)
    assert names(used.draw(4, 10, 20)) == names(fresh.draw(4, 10, 20))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    one = task(30)
    orders = [names(one.draw(seed, start, 30)) for seed in (0, 1) for start in (0, 30, 60)]
    assert len({tuple(order) for order in orders}) == 6


def test_every_question_comes_first_about_equally_often() -> None:
    firsts = [task(4).draw(seed, 0, 1)[0].id for seed in range(400)]
    assert all(60 < firsts.count(str(i)) < 140 for i in range(4))


def test_a_draw_never_changes_what_is_drawn_from() -> None:
    one = task()
    before = names(list(one.train)), names(list(one.held_out))
    drawn = one.draw(0, 0, 7)
    drawn.clear()
    held = one.fresh(0, 5)
    held.clear()
    assert (names(list(one.train)), names(list(one.held_out))) == before
    assert len(one.draw(0, 0, 7)) == 7
    assert len(one.fresh(0, 5)) == 5


@pytest.mark.parametrize("made", [task, sums, shop], ids=["tiny", "sums", "shop"])
def test_no_question_is_trained_on_and_held_out(made: type) -> None:
    one = made()
    train, held = ({q.prompt for q in part} for part in (one.train, one.held_out))
    assert train and held
    assert not train & held
    assert {q.prompt for q in one.draw(3, 0, 200)} <= train
    assert {q.prompt for q in one.fresh(3, 50)} <= held


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 9))
def test_a_fresh_draw_is_of_different_held_out_questions(seed: int, count: int) -> None:
    drawn = task().fresh(seed, count)
    assert len(drawn) == min(count, 5)
    assert len(set(names(drawn))) == len(drawn)
    assert {int(name) for name in names(drawn)} <= set(range(7, 12))
    assert names(drawn) == names(task().fresh(seed, count))


def test_fresh_questions_are_drawn_anew_for_every_seed() -> None:
    one = task(held_out=40)
    assert len({tuple(names(one.fresh(seed, 5))) for seed in range(20)}) > 15
    assert set(names(one.fresh(0, 40))) == set(names(one.fresh(1, 40)))


# Right and wrong


@pytest.mark.parametrize(
    ("solution", "right"),
    [
        ("\\boxed{4}", True),
        ("I say \\boxed{5}, no, \\boxed{4}.", True),
        ("\\boxed{ 4.0 }", True),
        ("\\boxed{4}, no, \\boxed{5}", False),
        ("4", False),
        ("\\boxed{}", False),
        ("\\boxed{four}", False),
        ("", False),
        (None, False),
    ],
)
def test_the_answer_in_the_last_box_is_what_counts(solution: str | None, right: bool) -> None:
    assert task().right(Question("q", "2+2", "4"), solution) is right


def test_without_a_reference_nothing_is_right() -> None:
    assert not task().right(Question("q", "Why?"), "\\boxed{4}")


def test_a_task_says_what_is_the_same_answer() -> None:
    loose = Task("loose", [], [], Exact())
    assert loose.right(Question("q", "Who?", "Ada"), "\\boxed{ADA}")
    assert not task().right(Question("q", "Who?", "Ada"), "\\boxed{ADA}")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([None, "", "\\boxed{4}", "\\boxed{5}", "4", "\\boxed{ }"]), max_size=8)
)
def test_many_solutions_are_marked_as_one_by_one(solutions: list[str | None]) -> None:
    questions = [Question("q", "2+2", "4"), Question("open", "Why?")]
    pairs = [(question, solution) for solution in solutions for question in questions]
    assert task().grade(pairs) == [task().right(*pair) for pair in pairs]


def test_a_batch_is_put_to_the_grader_at_once() -> None:
    calls: list[int] = []

    class Counted:
        def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
            calls.append(len(pairs))
            return [True for _ in pairs]

    one = Task("counted", [], [], Counted())
    question = Question("q", "?", "4")
    found = one.grade([(question, "\\boxed{1}"), (question, None), (question, "\\boxed{2}")])
    assert (found, calls) == ([True, False, True], [2])


# Three parts


def test_evaluations_draw_from_validation_where_there_is_one() -> None:
    questions = numbered(12)
    with_one = Task("t", questions[:6], questions[6:9], Integers(), questions[9:])
    assert names(list(with_one.held_out)) == ["9", "10", "11"]
    assert set(names(with_one.fresh(0, 9))) == {"9", "10", "11"}
    assert names(list(task().held_out)) == names(list(task().test))


def test_a_part_is_found_by_its_name() -> None:
    questions = numbered(6)
    one = Task("t", questions[:1], questions[1:3], Integers(), questions[3:])
    assert [len(one.part(name)) for name in PARTS] == [1, 3, 2]


@pytest.mark.parametrize("again", ["1+0", " 1+0", "1+0\n"])
def test_a_question_in_two_parts_is_refused(again: str) -> None:
    twice = Question("again", again, "1")
    with pytest.raises(DataError, match="question 'again' stands in the test part and in another"):
        Task("t", numbered(3), [twice], Integers())
    with pytest.raises(DataError, match="question '1' stands in the validation part"):
        Task("t", [twice], [], Integers(), numbered(3))


def test_case_and_blanks_do_not_make_another_question() -> None:
    one, other = Question("a", "What  is\nIT?", "1"), Question("b", "what is it?", "1")
    with pytest.raises(DataError, match="'b'"):
        Task("t", [one], [other], Integers())


def test_the_same_words_about_another_text_are_another_question() -> None:
    one, other = (Question(text, "Who?", "1", background=text) for text in ("a", "b"))
    assert len(Task("t", [one], [other], Integers()).test) == 1


def test_a_task_without_questions_to_train_on_says_so_when_they_are_drawn() -> None:
    one = Task("exam", [], numbered(3), Integers())
    assert len(one.fresh(0, 3)) == 3
    with pytest.raises(ConfigError, match="task exam: has no questions to train on"):
        one.draw(0, 0, 1)


@pytest.mark.parametrize(("made", "first"), [(sums, "0+0"), (shop, "shop-1")])
def test_the_toy_worlds_have_no_validation(made: type, first: str) -> None:
    one = made()
    assert one.held_out is one.test and not one.validation
    assert one.train[0].id == first


# Two parts


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.sampled_from([0.0, 0.1, 0.15, 0.5, 1.0]), st.integers(0, 2**62))
def test_parts_hold_every_question_once_and_in_order(count: int, share: float, seed: int) -> None:
    train, held = split(numbered(count), share, seed)
    ids = [int(q.id) for q in train], [int(q.id) for q in held]
    assert sorted(ids[0] + ids[1]) == list(range(count))
    assert ids[0] == sorted(ids[0]) and ids[1] == sorted(ids[1])
    assert abs(len(held) - share * count) <= 0.5
    again = split(numbered(count), share, seed)
    assert [names(part) for part in again] == [names(train), names(held)]


def test_another_seed_holds_back_others() -> None:
    held = [tuple(names(split(numbered(40), 0.25, seed)[1])) for seed in range(5)]
    assert len(set(held)) == 5


def test_any_question_may_be_held_back() -> None:
    held = {name for seed in range(60) for name in names(split(numbered(8), 0.25, seed)[1])}
    assert held == {str(i) for i in range(8)}


def test_a_task_can_be_narrowed_by_metadata_and_nothing_moves_between_its_parts() -> None:
    whole = sums()
    easy = whole.where({"carry": False})
    assert set(names(list(easy.train))) < set(names(list(whole.train)))
    assert set(names(list(easy.test))) < set(names(list(whole.test)))
    assert not any(q.metadata["carry"] for q in [*easy.train, *easy.test])
    assert len(easy.train) + len(whole.where({"carry": True}).train) == len(whole.train)


def test_metadata_that_no_question_has_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no question of task sums .*they have: carry"):
        sums().where({"carries": True})
