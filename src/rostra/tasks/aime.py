"""AIME: thirty problems a year, each with an answer from 0 to 999. All of it is for testing."""

from collections.abc import Iterator

from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def aime(source: Source) -> Task:
    return load("aime", source, _questions, Integers(), only="test")


def _questions(row: Row) -> Iterator[Question]:
    gold = row.text("answer", "Answer").strip()
    if not (gold.isascii() and gold.isdigit() and int(gold) <= 999):
        raise row.wrong(f"the answer must be a whole number from 0 to 999, not {gold[:40]!r}")
    year = {"year": row.text("year", "Year")} if {"year", "Year"} & {*row.values} else {}
    prompt = row.prompt("problem", "question", "Problem", "Question")
    yield Question(row.id, prompt, str(int(gold)), metadata=year)
