"""The published files, where they are at hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from rostra.learn.setup import make_task
from rostra.runs.syllabus import TaskSettings
from rostra.tasks.nyu import read_nyu
from rostra.tasks.parts import asked
from rostra.tasks.quality import distractor
from rostra.tasks.task import PARTS, Task

SHARED = Path(__file__).parents[3] / "shared"
DATA = SHARED / "data"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not here")


def load(name: str, path: str, **settings: Any) -> Task:
    return make_task(TaskSettings(name, str(DATA / path), **settings))  # type: ignore[arg-type]


def gold_is_right(task: Task) -> bool:
    questions = [q for part in PARTS for q in task.part(part)]
    return all(task.grade([(q, f"\\boxed{{{q.reference}}}") for q in questions]))


def disjoint(task: Task) -> bool:
    keys = [{asked(q) for q in task.part(part)} for part in PARTS]
    return not (keys[0] & keys[1] or keys[0] & keys[2] or keys[1] & keys[2])


def test_gsm8k_is_whole_parted_and_gold_is_right() -> None:
    task = load("gsm8k", "gsm8k")
    assert len(task.test) == 1319
    assert len(task.train) + len(task.validation) == 7473
    assert 300 < len(task.validation) < 450
    assert disjoint(task) and gold_is_right(task)


def test_math_500_is_the_test_and_gold_is_right() -> None:
    task = load("math", "math")
    assert [len(task.part(part)) for part in PARTS] == [0, 0, 500]
    assert {q.metadata["level"] for q in task.test} == {1, 2, 3, 4, 5}
    assert len({q.metadata["subject"] for q in task.test}) == 7
    assert gold_is_right(task)


def test_the_answer_of_math_is_the_last_box_of_its_solution(tmp_path: Path) -> None:
    lines = (DATA / "math" / "math500_test.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    bare = [{k: v for k, v in row.items() if k != "answer"} for row in rows]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    task = make_task(TaskSettings("math", str(tmp_path)))
    assert [q.reference for q in task.test] == [row["answer"] for row in rows]


def test_every_prompt_for_a_long_text_is_read() -> None:
    task = load("longwriter", "longwriter")
    assert sum(len(task.part(part)) for part in PARTS) == 60


def test_stories_of_quality_have_the_distractors_that_readers_fell_for() -> None:
    task = load("quality", "quality/quality_v101_schema_sample.jsonl")
    found = {q.id: q for part in PARTS for q in task.part(part)}
    lines = (SHARED / "vectors" / "quality_distractor.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        expected = row["arnesen_distractor_1indexed"]
        if "validation" in row:
            assert distractor(row["gold_label"], row["validation"]) == expected
            continue
        question = found[row["question_unique_id"]]
        assert question.metadata["distractor"] == expected
        assert question.metadata["gold_label"] == row["correct_option_1indexed"]
        assert question.metadata["hard"] is row["hard"]


def by_story(task: Task) -> list[set[object]]:
    stories = [{q.metadata["story"] for q in task.part(part)} for part in PARTS]
    assert not (stories[0] & stories[1] or stories[0] & stories[2] or stories[1] & stories[2])
    return stories


def the_other_is_wrong(task: Task) -> bool:
    questions = [q for part in PARTS for q in task.part(part)]
    others = [next(c for c in q.choices if c != q.reference) for q in questions]
    pairs = zip(questions, others, strict=True)
    return not any(task.grade([(q, f"\\boxed{{{other}}}") for q, other in pairs]))


@pytest.mark.parametrize(
    ("file", "questions", "stories"),
    [
        ("quality_dev_reconstructed.jsonl", 1040, 58),
        ("quality_pairs_nyu.jsonl", 342, 96),
        ("quality_example.jsonl", 10, 1),
        ("quality_v101_schema_sample.jsonl", 5, 1),
    ],
)
def test_every_file_of_quality_is_read_parted_by_story_and_graded(
    file: str, questions: int, stories: int
) -> None:
    task = load("quality", f"quality/{file}")
    assert sum(len(task.part(part)) for part in PARTS) == questions
    found = by_story(task)
    assert sum(map(len, found)) == stories
    assert stories == 1 or all(found), "every part has questions"
    assert gold_is_right(task) and the_other_is_wrong(task)


def test_the_folder_of_quality_is_read_whole_and_gives_no_story_away() -> None:
    task = load("quality", "quality")
    assert all(by_story(task))
    assert gold_is_right(task) and the_other_is_wrong(task)


def test_recorded_debates_are_read_and_parted_by_story() -> None:
    debates = list(read_nyu(DATA / "nyu_debates"))
    assert len(debates) == 631
    assert all(debate.question.background for debate in debates)
    assert sum(debate.judgement is None for debate in debates) == 114
    task = load("nyu", "nyu_debates")
    assert sum(len(task.part(part)) for part in PARTS) == 631
    stories = [{q.metadata["story"] for q in task.part(part)} for part in PARTS]
    assert all(stories) and sum(map(len, stories)) == 100
    assert gold_is_right(task)
