"""Tasks from files: what is read, how it is parted, and what is refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rostra.errors import ConfigError, DataError
from rostra.learn.setup import make_task
from rostra.runs.syllabus import TaskSettings
from rostra.tasks.nyu import read_nyu
from rostra.tasks.quality import distractor
from rostra.tasks.question import Question
from rostra.tasks.sources import part_of
from rostra.tasks.task import PARTS, Task


def write(folder: Path, name: str, rows: list[Any]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def task(name: str, path: Path, **settings: Any) -> Task:
    return make_task(TaskSettings(name, str(path), **settings))  # type: ignore[arg-type]


def sizes(one: Task) -> tuple[int, ...]:
    return tuple(len(one.part(part)) for part in PARTS)


def everything(one: Task) -> list[Question]:
    return [question for part in PARTS for question in one.part(part)]


def gsm(count: int, start: int = 0) -> list[dict[str, str]]:
    return [
        {"question": f"Ann has {i} hens and buys 2. How many?", "answer": f"{i}+2\n#### {i + 2}"}
        for i in range(start, start + count)
    ]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train.jsonl", "train"),
        ("math500_test.jsonl", "test"),
        ("quality_dev.jsonl", "validation"),
        ("Val-00001.parquet", "validation"),
        ("test/algebra/1.json", "test"),
        ("contest.jsonl", None),
        ("latest.jsonl", None),
        ("data.jsonl", None),
    ],
)
def test_the_name_of_a_file_says_its_part(name: str, part: str | None) -> None:
    assert part_of(name) == part


def test_the_test_file_stays_whole_and_validation_is_taken_out_of_training(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", gsm(400))
    write(tmp_path, "test.jsonl", gsm(30, 390))
    one = task("gsm8k", tmp_path, validation=0.1)
    train, validation, test = sizes(one)
    assert (train + validation, test) == (390, 30)
    assert 20 < validation < 60
    assert one.held_out is one.validation


def test_a_lone_file_is_parted_by_its_questions(tmp_path: Path) -> None:
    write(tmp_path, "data.jsonl", gsm(400))
    first = task("gsm8k", tmp_path / "data.jsonl")
    assert sum(sizes(first)) == 400 and all(sizes(first))
    write(tmp_path / "more", "data.jsonl", gsm(800))
    more = task("gsm8k", tmp_path / "more")
    for part in PARTS:
        kept = {question.prompt for question in more.part(part)}
        assert {question.prompt for question in first.part(part)} <= kept


def test_a_limit_holds_for_each_part(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", gsm(200))
    write(tmp_path, "test.jsonl", gsm(50, 500))
    assert sizes(task("gsm8k", tmp_path, limit=4)) == (4, 4, 4)


def test_equal_settings_give_the_same_task_without_reading_again(tmp_path: Path) -> None:
    path = write(tmp_path, "train.jsonl", gsm(20))
    first = task("gsm8k", tmp_path)
    path.unlink()
    assert task("gsm8k", tmp_path) is first
    with pytest.raises(DataError, match="holds no file of questions"):
        task("gsm8k", tmp_path, limit=3)


def test_a_folder_without_questions_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# nothing")
    with pytest.raises(DataError, match="holds no file of questions"):
        task("gsm8k", tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        task("gsm8k", tmp_path / "nowhere")


def test_a_file_for_validation_is_parted_where_no_file_is_for_training(tmp_path: Path) -> None:
    write(tmp_path, "dev.jsonl", gsm(400))
    assert sum(sizes(task("gsm8k", tmp_path))) == 400 and all(sizes(task("gsm8k", tmp_path)))
    write(tmp_path, "test.jsonl", gsm(30, 500))
    train, validation, test = sizes(task("gsm8k", tmp_path, limit=1000))
    assert (train + validation, test) == (400, 30) and train > 300
    write(tmp_path, "train.jsonl", gsm(20, 700))
    assert sizes(task("gsm8k", tmp_path, limit=2000)) == (20, 400, 30)


def test_a_file_for_testing_is_never_trained_on(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", gsm(50))
    assert sizes(task("gsm8k", tmp_path)) == (0, 0, 50)


def test_a_filter_that_leaves_no_training_does_not_open_validation(tmp_path: Path) -> None:
    hard, easy = ({"problem": f"{n}?", "answer": "1", "level": n, "type": "?"} for n in (5, 1))
    write(tmp_path, "train.jsonl", [hard])
    write(tmp_path, "dev.jsonl", [easy])
    assert sizes(task("math", tmp_path, levels=(1,))) == (0, 1, 0)


# gsm8k


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("x\n#### 72", "72"), ("#### 1,200", "1200"), ("#### 3 no\n####  -5 ", "-5")],
)
def test_the_gold_of_gsm8k_is_after_the_last_mark(answer: str, gold: str, tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", [{"question": "How many?", "answer": answer}])
    one = task("gsm8k", tmp_path).test[0]
    assert (one.id, one.prompt, one.reference) == ("test-1", "How many?", gold)


@pytest.mark.parametrize("answer", ["72", "#### 7.5", "#### many", "####", ""])
def test_an_answer_without_a_whole_number_is_named_with_its_line(
    answer: str, tmp_path: Path
) -> None:
    write(tmp_path, "train.jsonl", [*gsm(16), {"question": "How many?", "answer": answer}])
    with pytest.raises(DataError, match=r"^train.jsonl, line 17: the answer must end in #### "):
        task("gsm8k", tmp_path)


def test_whole_numbers_are_graded_in_one_batch(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", gsm(20))
    one = task("gsm8k", tmp_path)
    pairs = [(q, f"So \\boxed{{{q.reference}}}") for q in one.test]
    assert all(one.grade(pairs))
    assert not any(one.grade([(q, f"\\boxed{{{q.reference}1}}") for q in one.test]))


# math

PROBLEMS: list[dict[str, Any]] = [
    {"problem": "Add 1 and 1.", "solution": "$\\boxed{2}$", "level": "Level 1", "type": "Algebra"},
    {"problem": "Halve 1.", "answer": "\\frac12", "level": 2, "subject": "Prealgebra"},
    {"problem": "Root 4?", "answer": "2", "level": "Level 5", "subject": "Algebra"},
    {"problem": "What?", "answer": "x", "level": "Level ?", "subject": "Geometry"},
]


def test_math_has_levels_subjects_and_gold_from_either_field(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", PROBLEMS)
    found = [(q.reference, dict(q.metadata)) for q in task("math", tmp_path).test]
    assert found == [
        ("2", {"level": 1, "subject": "Algebra"}),
        ("\\frac12", {"level": 2, "subject": "Prealgebra"}),
        ("2", {"level": 5, "subject": "Algebra"}),
        ("x", {"level": None, "subject": "Geometry"}),
    ]


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"levels": (1, 2)}, 2),
        ({"subjects": ("Algebra",)}, 2),
        ({"levels": (5,), "subjects": ("Algebra", "Geometry")}, 1),
    ],
)
def test_math_is_filtered_by_level_and_subject(
    settings: dict[str, Any], count: int, tmp_path: Path
) -> None:
    write(tmp_path, "test.jsonl", PROBLEMS)
    assert len(task("math", tmp_path, **settings).test) == count


def test_a_filter_that_leaves_nothing_says_so(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", PROBLEMS)
    with pytest.raises(DataError, match="no question in it is asked for"):
        task("math", tmp_path, levels=(3,))


def test_the_folders_of_the_first_release_of_math_are_read(tmp_path: Path) -> None:
    for part, problem in (("train", 0), ("test", 2)):
        path = tmp_path / part / "algebra" / "7.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**PROBLEMS[problem], "type": "Algebra"}))
    one = task("math", tmp_path, validation=0.0)
    assert [q.id for q in one.train] == ["train/algebra/7-1"]
    assert [q.id for q in one.test] == ["test/algebra/7-1"]


def test_a_problem_without_an_answer_is_named(tmp_path: Path) -> None:
    row = {"problem": "?", "solution": "It is 4.", "level": 1, "subject": "Algebra"}
    write(tmp_path, "test.jsonl", [PROBLEMS[0], row])
    with pytest.raises(DataError, match=r"^test.jsonl, line 2: has no answer, and no \\boxed"):
        task("math", tmp_path)


def test_math_is_graded_by_value(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", PROBLEMS)
    one = task("math", tmp_path)
    half = one.test[1]
    assert one.grade([(half, "\\boxed{0.5}"), (half, "\\boxed{2}"), (half, "0.5")]) == [
        True,
        False,
        False,
    ]


# aime, longwriter


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"problem": "A?", "answer": "033"}, "33"),
        ({"question": "A?", "answer": 7}, "7"),
        ({"Problem": "A?", "Answer": "999", "Year": 2024}, "999"),
    ],
)
def test_all_of_aime_is_for_testing_whatever_its_fields_are_called(
    row: dict[str, Any], gold: str, tmp_path: Path
) -> None:
    write(tmp_path, "train.jsonl", [row])
    one = task("aime", tmp_path)
    assert sizes(one) == (0, 0, 1)
    assert one.test[0].reference == gold
    assert one.right(one.test[0], f"\\boxed{{{gold}}}")


@pytest.mark.parametrize("answer", ["1000", "-1", "1.5", "x", "²"])
def test_an_aime_answer_is_from_0_to_999(answer: str, tmp_path: Path) -> None:
    write(tmp_path, "aime.jsonl", [{"problem": "A?", "answer": answer}])
    with pytest.raises(DataError, match=r"^aime.jsonl, line 1: the answer must be a whole number"):
        task("aime", tmp_path)


def test_longwriter_takes_the_first_words_of_the_user_and_has_no_right_answer(
    tmp_path: Path,
) -> None:
    messages = [
        {"role": "system", "content": "Be long."},
        {"role": "user", "content": "Write a novel."},
        {"role": "assistant", "content": "Once"},
        {"role": "user", "content": "More."},
    ]
    rows = [{"messages": messages, "length": 100}, {"prompt": "Write a poem.", "type": "art"}]
    write(tmp_path, "train.jsonl", rows)
    one = task("longwriter", tmp_path)
    found = {q.prompt: q for q in everything(one)}
    assert set(found) == {"Write a novel.", "Write a poem."}
    assert dict(found["Write a novel."].metadata) == {"length": 100}
    assert all(q.reference is None for q in found.values())
    assert not one.right(found["Write a poem."], "\\boxed{anything}")


@pytest.mark.parametrize("messages", [[], "hello", [{"role": "assistant", "content": "x"}], [3]])
def test_messages_without_a_user_are_named(messages: Any, tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [{"messages": messages}])
    with pytest.raises(DataError, match="train.jsonl, line 1: no message of a user"):
        task("longwriter", tmp_path)


# Rows of your own


def test_fields_of_any_name_make_questions(tmp_path: Path) -> None:
    rows = [
        {"uid": "a", "q": "Capital of France?", "gold": "Paris", "easy": True, "long": "x" * 999},
        {"uid": "b", "q": "2+2?", "gold": 4, "tags": ["sum"]},
    ]
    write(tmp_path, "test.jsonl", rows)
    fields = {"prompt": "q", "reference": "gold", "id": "uid"}
    one = task("jsonl", tmp_path, fields=fields, grader="exact")
    assert [(q.id, q.reference, dict(q.metadata)) for q in one.test] == [
        ("a", "Paris", {"easy": True}),
        ("b", "4", {}),
    ]
    assert one.right(one.test[0], "\\boxed{paris.}")


@pytest.mark.parametrize(
    ("grader", "answer", "right"),
    [
        ("integer", "1,000", True),
        ("integer", "10^3", False),
        ("exact", "1,000", False),
        ("exact", "1000", True),
        ("math", "\\frac{2000}{2}", True),
        ("none", "1000", False),
    ],
)
def test_the_grader_is_a_choice(grader: str, answer: str, right: bool, tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", [{"prompt": "Ten times a hundred?", "answer": "1000"}])
    one = task("jsonl", tmp_path, grader=grader)
    assert one.right(one.test[0], f"\\boxed{{{answer}}}") is right
    assert (one.test[0].reference is None) == (grader == "none")


@pytest.mark.parametrize("answer", ["two", "", "1/2", "12,00", 2.5, "9" * 101])
def test_a_reference_that_is_no_whole_number_is_refused_where_those_are_graded(
    answer: str | float, tmp_path: Path
) -> None:
    rows = [{"prompt": f"{i}?", "gold": i} for i in (7, "$1,200", "-3", 4.0)]
    good = write(tmp_path, "test.jsonl", rows)
    bad = write(tmp_path, "my_test.jsonl", [*rows, {"prompt": "One and one?", "gold": answer}])
    fields = {"reference": "gold"}
    assert len(task("jsonl", good, fields=fields, grader="integer").test) == 4
    said = r"^my_test.jsonl, line 5: 'gold' must be a whole number .* grader = 'integer', not '"
    with pytest.raises(DataError, match=said):
        task("jsonl", bad, fields=fields, grader="integer")
    assert len(task("jsonl", bad, fields=fields, grader="exact").test) == 5


def test_two_rows_of_one_id_are_refused_with_both_places(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [{"prompt": "A?", "answer": "1", "uid": "x"}])
    write(tmp_path, "b.jsonl", [{"prompt": "B?", "answer": "1", "uid": "x"}])
    with pytest.raises(DataError, match=r"^b.jsonl, line 1: has the id 'x' that a.jsonl, line 1"):
        task("jsonl", tmp_path, fields={"id": "uid"})


def test_a_missing_field_is_named_with_what_was_meant(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [{"prompt": "A?", "anwser": "1"}])
    with pytest.raises(DataError, match="line 1: no field 'answer', did you mean 'anwser'?"):
        task("jsonl", tmp_path)


# Stories


def story(key: str, questions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"article_id": key, "article": f"The story of {key}.", "questions": questions, **more}


def about(text: str, gold: Any = 2, **more: Any) -> dict[str, Any]:
    options = ["north", "south ", "east", "west"]
    row: dict[str, Any] = {"question": text, "options": options, "difficult": 1, **more}
    return row if gold is None else {**row, "gold_label": gold}


def readers(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"untimed_answer": a, "untimed_best_distractor": d} for a, d in pairs]


@pytest.mark.parametrize(
    ("gold", "validation", "found"),
    [
        (2, readers((2, 4), (2, 4), (1, 2)), 4),
        (2, readers((2, 4), (1, 2), (1, 2)), 1),
        (1, readers((1, 4), (1, 3), (1, 2)), 4),
        (1, readers((3, 1), (1, 4), (1, 3), (4, 1)), 3),
        (1, readers((1, 1)), None),
        (1, [{"untimed_answer": 1}], None),
        (1, [], None),
    ],
)
def test_the_distractor_is_what_most_readers_fell_for(
    gold: int, validation: list[Mapping[str, int]], found: int | None
) -> None:
    assert distractor(gold, validation) == found


def test_a_question_about_a_story_has_its_text_and_two_answers(tmp_path: Path) -> None:
    asked = about("Where?", validation=readers((2, 4)), question_unique_id="one_1")
    write(tmp_path, "train.jsonl", [story("one", [asked])])
    (question,) = everything(task("quality", tmp_path))
    assert (question.id, question.prompt, question.reference) == ("one_1", "Where?", "south")
    assert question.background == "The story of one."
    assert sorted(question.choices) == ["south", "west"]
    told = {"story": "one", "hard": True, "gold_label": 2, "distractor": 4}
    assert dict(question.metadata) == told


def test_the_right_answer_is_first_about_half_of_the_time(tmp_path: Path) -> None:
    rows = [story(str(n), [about("Where?", best_distractor=1)]) for n in range(300)]
    write(tmp_path, "train.jsonl", rows)
    first = [q.choices[0] == q.reference for q in everything(task("quality", tmp_path))]
    assert 110 < sum(first) < 190


def test_without_readers_another_option_is_taken_and_always_the_same(tmp_path: Path) -> None:
    rows = [story(str(n), [about("Where?")]) for n in range(60)]
    write(tmp_path, "train.jsonl", rows)
    found = {q.id: q.metadata["distractor"] for q in everything(task("quality", tmp_path))}
    assert set(found.values()) == {1, 3, 4}
    again = task("quality", tmp_path, limit=1000)
    assert {q.id: q.metadata["distractor"] for q in everything(again)} == found


def test_a_test_without_labels_keeps_all_options(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", [story("one", [about("Where?", gold=None)])])
    one = task("quality", tmp_path)
    assert one.test[0].reference is None
    assert one.test[0].choices == ("north", "south", "east", "west")


def test_stories_go_to_one_part_whole(tmp_path: Path) -> None:
    rows = [story(str(n), [about(f"Where {i}?") for i in range(3)]) for n in range(100)]
    write(tmp_path, "stories.jsonl", rows)
    one = task("quality", tmp_path, validation=0.2, held_out=0.3)
    keys = [{q.metadata["story"] for q in one.part(part)} for part in PARTS]
    assert all(keys) and sum(map(len, keys)) == 100
    assert sum(sizes(one)) == 300


def test_a_story_in_two_files_is_in_the_later_part_alone(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [story(key, [about("Where?")]) for key in ("S1", "S2", "S3")])
    write(tmp_path, "dev.jsonl", [story(key, [about("Why?")]) for key in ("S2", "S4")])
    write(tmp_path, "test.jsonl", [story(key, [about("When?")]) for key in ("S1", "S4")])
    one = task("quality", tmp_path)
    found = [[(q.metadata["story"], q.prompt) for q in one.part(part)] for part in PARTS]
    assert found == [[("S3", "Where?")], [("S2", "Why?")], [("S1", "When?"), ("S4", "When?")]]


def pair(key: str, asked: str, **more: Any) -> dict[str, Any]:
    row = {"article_id": key, "story_key": f"{key}#2", "title": "A Title", "question": asked}
    return {**row, "correct": "south ", "best_distractor": "north", **more}


def test_pairs_are_questions_without_a_text(tmp_path: Path) -> None:
    rows = [pair(str(n), f"Where {n} {i}?") for n in range(60) for i in range(2)]
    write(tmp_path, "pairs.jsonl", rows)
    one = task("quality", tmp_path, validation=0.2, held_out=0.3)
    keys = [{q.metadata["story"] for q in one.part(part)} for part in PARTS]
    assert all(keys) and sum(map(len, keys)) == 60 and sum(sizes(one)) == 120
    first = next(q for q in everything(one) if q.id == "pairs-1")
    assert (first.prompt, first.reference, first.background) == ("Where 0 0?", "south", None)
    assert sorted(first.choices) == ["north", "south"]
    assert dict(first.metadata) == {"story": "0", "hard": False}
    assert one.right(first, "\\boxed{South}") and not one.right(first, "\\boxed{north}")


FIRST_RELEASE: dict[str, Any] = {
    "article_id": 7,
    "article": ["Once.\n", "Twice.\n"],
    "question1": "Where?",
    **{f"question1option{n}": word for n, word in enumerate(("north", "south", "east"), 1)},
    "question1_gold_label": 2,
    "question1_annotator_answers": [2, 1, 2],
    "question1_eval3s": [3, 2, 3],
    "question1_annotator_speed_answers": [1, 2, 2, 1, 3],
    "question2": "Whither?",
    "question2option1": "up",
    "question2option2": "down",
    "question2_gold_label": 1,
    "question2_annotator_speed_answers": [1, 2],
}


def test_rows_of_the_first_release_number_their_questions(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [FIRST_RELEASE])
    where, whither = everything(task("quality", tmp_path))
    assert (where.id, where.prompt, where.reference) == ("train-1-1", "Where?", "south")
    assert where.background == "Once.\nTwice.\n"
    told = {"story": "7", "hard": True, "gold_label": 2, "distractor": 3}
    assert dict(where.metadata) == told
    assert (whither.reference, whither.metadata["hard"]) == ("up", False)
    assert sorted(whither.choices) == ["down", "up"]


def test_a_folder_of_all_kinds_of_rows_is_read_and_gives_nothing_away(tmp_path: Path) -> None:
    stories = [story(str(n), [about(f"Where {n}?")]) for n in range(20)]
    write(tmp_path, "stories_dev.jsonl", stories)
    write(tmp_path, "pairs.jsonl", [pair(str(n), f"Why {n}?") for n in range(10, 40)])
    write(tmp_path, "first.jsonl", [FIRST_RELEASE])
    one = task("quality", tmp_path, held_out=0.3)
    keys = [{q.metadata["story"] for q in one.part(part)} for part in PARTS]
    assert all(keys) and sum(map(len, keys)) == 40


def test_only_hard_questions_are_kept_if_asked(tmp_path: Path) -> None:
    asked = [about("Hard?"), about("Easy?", difficult=0), about("Unknown?", difficult=None)]
    write(tmp_path, "train.jsonl", [story("one", asked)])
    assert len(everything(task("quality", tmp_path))) == 3
    assert [q.prompt for q in everything(task("quality", tmp_path, hard=True))] == ["Hard?"]


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (None, "no list 'questions'"),
        ([3], "question 1 must be an object"),
        ([{"question": "?"}], "has no list of options"),
        ([about("?", gold=0)], "labels go from 1 to 4"),
        ([about("?", gold=5)], "gold_label = 5: labels go from 1 to 4"),
        ([about("?", gold=[1])], r"gold_label = \[1\]: labels go from 1 to 4"),
        ([about("?", gold=1.0)], "gold_label = 1.0: labels go from 1 to 4"),
        ([about("?", gold=True)], "gold_label = True: labels go from 1 to 4"),
        ([about("?", gold=2, best_distractor=2)], "the distractor is the right answer"),
        ([about("?", gold=2, best_distractor=0)], "best_distractor = 0: labels go from 1 to 4"),
        ([about("?", validation=["x"])], "'validation' must be a list of objects"),
        ([about("?", validation={"x": 1})], "'validation' must be a list of objects"),
        ([about("?", validation=[{"untimed_answer": [1]}])], "untimed_answer = "),
        ([about("?", validation=[{"untimed_answer": 9}])], "untimed_answer = 9: labels go"),
        ([about("?", options=["a", None])], "'option 2' is null"),
        ([about("?", options=["a", "A. "], gold=1)], "the distractor is the right answer"),
        ([about("", gold=1)], "the question is empty"),
    ],
)
def test_a_bad_story_is_named_with_its_line(questions: Any, said: str, tmp_path: Path) -> None:
    good = story("good", [about("Where?")])
    write(tmp_path, "train.jsonl", [good, story("bad", questions)])
    with pytest.raises(DataError, match=f"^train.jsonl, line 2: .*{said}"):
        task("quality", tmp_path)


def test_readers_that_are_null_are_none(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", [story("one", [about("Where?", validation=None)])])
    assert len(everything(task("quality", tmp_path))) == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"article": "Once."}, "no list 'questions' in it, nor 'correct' and 'best_distractor'"),
        (pair("s", "Where?", best_distractor="South."), "the distractor is the right answer"),
        (pair("s", "Where?", best_distractor=None), "'best_distractor' is null"),
        (pair("s", "Where?", correct=["x"]), "'correct' must be a text or a number"),
        (pair("s", " "), "the question is empty"),
        ({**FIRST_RELEASE, "article": ["Once.", None]}, "'line 2' is null"),
        ({**FIRST_RELEASE, "question1_gold_label": 4}, "gold_label = 4: labels go from 1 to 3"),
        ({**FIRST_RELEASE, "question1_annotator_answers": [[1]]}, "untimed_answer = "),
        ({**FIRST_RELEASE, "question2option2": ""}, None),
    ],
)
def test_a_bad_row_of_another_kind_is_named_with_its_line(
    row: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    write(tmp_path, "train.jsonl", [pair("good", "Where?"), row])
    if said is None:
        assert len(everything(task("quality", tmp_path))) == 3
        return
    with pytest.raises(DataError, match=f"^train.jsonl, line 2: .*{said}"):
        task("quality", tmp_path)


def test_a_level_that_is_null_is_called_so(tmp_path: Path) -> None:
    write(tmp_path, "test.jsonl", [{**PROBLEMS[0], "level": None}])
    with pytest.raises(DataError, match="^test.jsonl, line 1: 'level' is null"):
        task("math", tmp_path)


# Debates that were recorded


def debate(name: str, key: str, **more: Any) -> dict[str, Any]:
    turns = [
        {"round": 0, "kind": "Speech", "role": "Debater", "index": 0, "text": "<quote>x</quote>"},
        {"round": 0, "kind": "Feedback", "role": "Judge", "index": None, "text": "Hm.",
         "probabilities": [0.3, 0.7]},
    ]  # fmt: skip
    kinds = {"is_debate": True, "is_human": False, "included_in_paper": True}
    row = {"name": name, "story_key": key, "question": "Who?", "answers": ["he", "she"]}
    return {
        **row,
        "correct_index": 1,
        "final_judgement": [0.3, 0.7],
        "turns": turns,
        **kinds,
        **more,
    }


def test_a_recorded_debate_has_its_question_speeches_and_judgements(tmp_path: Path) -> None:
    write(tmp_path, "debates.jsonl", [debate("d1", "s"), debate("d2", "t", final_judgement=None)])
    write(tmp_path, "stories.jsonl", [{"story_key": "s", "text": "Once."}])
    first, second = read_nyu(tmp_path)
    assert (first.question.reference, first.question.choices) == ("she", ("he", "she"))
    assert (first.question.background, second.question.background) == ("Once.", None)
    assert first.question.metadata["judge_right"] == 0.7
    assert (first.judgement, second.judgement) == ((0.3, 0.7), None)
    assert (first.debate, first.human, first.in_paper) == (True, False, True)
    assert [speech.probabilities for speech in first.speeches] == [None, (0.3, 0.7)]
    assert [speech.side for speech in first.speeches] == [0, None]


def test_the_questions_of_recorded_debates_are_parted_by_story(tmp_path: Path) -> None:
    rows = [debate(f"d{n}", f"s{n % 50}") for n in range(150)]
    write(tmp_path, "debates.jsonl", rows)
    write(tmp_path, "stories.jsonl", [{"story_key": f"s{n}", "text": f"{n}"} for n in range(50)])
    one = task("nyu", tmp_path, held_out=0.3)
    keys = [{q.metadata["story"] for q in one.part(part)} for part in PARTS]
    assert sum(map(len, keys)) == 50 and sum(sizes(one)) == 150
    assert one.right(one.train[0], "\\boxed{B}")


@pytest.mark.parametrize(
    "more",
    [
        {"answers": ["one"]},
        {"correct_index": 2},
        {"turns": 3},
        {"turns": [3]},
        {"final_judgement": [0.5]},
        {"final_judgement": 0.5},
        {"turns": [{"round": "first"}]},
        {"turns": {"a": 1}},
        {"turns": [{"round": 0, "index": "A"}]},
        {"turns": [{"probabilities": {"a": 1}}]},
        {"turns": [{"probabilities": ["a", "b"]}]},
        {"final_judgement": {"a": 1}},
        {"final_judgement": [0.2, 0.3, 0.5]},
        {"final_judgement": 0},
        {"correct_index": [1]},
        {"answers": ["he", None]},
        {"answers": ["he", "He."]},
    ],
    ids=str,
)
def test_a_bad_debate_is_named_with_its_line(more: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, "debates.jsonl", [debate("d", "s"), debate("e", "s", **more)])
    with pytest.raises(DataError, match=r"^debates.jsonl, line 2: "):
        task("nyu", tmp_path)


def test_two_debates_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    write(tmp_path, "debates.jsonl", [debate("d", "s"), debate("e", "s"), debate("d", "t")])
    with pytest.raises(DataError, match="^debates.jsonl, line 3: has the name 'd' that .*line 1"):
        task("nyu", tmp_path)


# The hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Task]:
    """A folder that the package reads like a dataset of the hub, and a hub that is not there."""
    datasets = pytest.importorskip("datasets")
    api = pytest.importorskip("huggingface_hub").HfApi
    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(api, "dataset_info", lambda *a, **k: (_ for _ in ()).throw(OSError("away")))

    def load(name: str, dataset: str, **settings: Any) -> Task:
        return make_task(TaskSettings(name, dataset=dataset, **settings))  # type: ignore[arg-type]

    return load


def test_a_dataset_is_read_with_the_splits_it_has(hub: Callable[..., Task], tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write(folder, "train.jsonl", [{"prompt": f"{i}?", "answer": str(i)} for i in range(40)])
    write(folder, "test.jsonl", [{"prompt": f"{i}!", "answer": str(i)} for i in range(5)])
    one = hub("hub", str(folder), grader="integer", validation=0.0)
    assert sizes(one) == (40, 0, 5)
    assert one.test[0].id == f"{folder}:test-1"
    assert sizes(hub("hub", f"{folder}@test")) == (0, 0, 5)
    other = hub("hub", str(folder), splits={"train": "test", "test": "train"}, validation=0.0)
    assert sizes(other) == (5, 0, 40)
    with pytest.raises(ConfigError, match=r"has no split 'dev' \(there are: train, test\)"):
        hub("hub", f"{folder}@dev")


def test_a_named_task_is_read_from_a_dataset(hub: Callable[..., Task], tmp_path: Path) -> None:
    write(tmp_path / "set", "train.jsonl", gsm(30))
    assert sum(sizes(hub("gsm8k", str(tmp_path / "set")))) == 30


def test_a_hub_that_cannot_be_reached_is_one_sentence(hub: Callable[..., Task]) -> None:
    with pytest.raises(DataError, match="^openai/gsm8k: the hub cannot be reached; give a file or"):
        make_task(TaskSettings("gsm8k"))


def test_a_dataset_that_the_hub_does_not_have_is_named(
    hub: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pytest.importorskip("huggingface_hub")

    class Missing(package.errors.RepositoryNotFoundError):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            Exception.__init__(self, "404")

    def missing(*_: Any, **__: Any) -> None:
        raise Missing

    monkeypatch.setattr(package.HfApi, "dataset_info", missing)
    with pytest.raises(DataError, match="the hub has no dataset 'no/such' that you may read"):
        hub("hub", "no/such")


# Settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "gsm9k"}, "did you mean gsm8k?"),
        ({"name": "sums", "path": "x"}, "path: task sums has no such setting, only gsm8k"),
        ({"name": "gsm8k", "levels": (1,)}, "levels: task gsm8k has no such setting, only math"),
        ({"name": "gsm8k", "grader": "math"}, "grader: task gsm8k has no such setting"),
        ({"name": "math", "hard": True}, "hard: task math has no such setting, only quality"),
        ({"name": "jsonl"}, "path: task jsonl needs one"),
        ({"name": "hub"}, "dataset: task hub needs one"),
        ({"name": "quality"}, "path: task quality needs one"),
        ({"name": "reasoning_gym"}, "dataset: task reasoning_gym needs one"),
        ({"name": "math", "levels": (0,)}, "levels = 0: they go from 1 to 5"),
        ({"name": "math", "subjects": ("Algebre",)}, "did you mean Algebra?"),
        ({"name": "jsonl", "path": "x", "grader": "maths"}, "did you mean math?"),
        ({"name": "jsonl", "path": "x", "fields": {"promt": "q"}}, "did you mean prompt?"),
        ({"name": "hub", "dataset": "x", "splits": {"tset": "q"}}, "did you mean test?"),
        ({"limit": -1}, "limit = -1: must be at least 0"),
        ({"validation": 0.9}, "validation = 0.9: a share that leaves something to train on"),
        ({"validation": -0.1}, "validation = -0.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        TaskSettings(**settings)
    assert said in str(caught.value)
