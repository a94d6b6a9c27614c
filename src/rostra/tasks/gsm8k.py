"""GSM8K: word problems of grade school, with a whole number after `####`."""

from collections.abc import Iterator

from rostra.tasks.grading import Integers, same_integer
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def gsm8k(source: Source) -> Task:
    return load("gsm8k", source, _questions, Integers())


def _questions(row: Row) -> Iterator[Question]:
    _, mark, gold = row.text("answer").rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not same_integer(gold, gold):
        raise row.wrong("the answer must end in #### and a whole number")
    yield Question(row.id, row.prompt("question"), gold)
