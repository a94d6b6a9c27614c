"""MATH: problems of competitions in seven subjects and five levels. MATH-500 is the test."""

import re
from collections.abc import Collection, Iterator

from rostra.tasks.grading import boxed
from rostra.tasks.mathgrader import MathGrader
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def math(source: Source, levels: Collection[int] = (), subjects: Collection[str] = ()) -> Task:
    """The problems of some levels and subjects; of all by default."""

    def questions(row: Row) -> Iterator[Question]:
        level, subject = _level(row), row.text("subject", "type")
        if (not levels or level in levels) and (not subjects or subject in subjects):
            yield Question(
                row.id,
                row.prompt("problem", "question"),
                _gold(row),
                metadata={"level": level, "subject": subject},
            )

    return load("math", source, questions, MathGrader())


def _level(row: Row) -> int | None:
    """`3` and `Level 3` are 3; a few problems have none."""
    found = re.search(r"\d+", row.text("level"))
    return int(found[0]) if found else None


def _gold(row: Row) -> str:
    if row.values.get("answer") is not None:
        return row.text("answer")
    gold = boxed(row.text("solution"))
    if gold is None:
        raise row.wrong("has no answer, and no \\boxed{} in its solution")
    return gold
