"""Whether an answer in mathematics is the same as the reference: by its form, else by algebra."""

import json
from collections.abc import Sequence
from functools import cache

from rostra.tasks.answers import compared
from rostra.tasks.marks import Marks, Pair
from rostra.tasks.needs import check_installed
from rostra.tasks.question import Question
from rostra.tasks.workers import Workers


@cache
def _workers() -> Workers:
    """One set of processes for all tasks."""
    check_installed("math_verify")
    return Workers("rostra.tasks.algebra")


class MathGrader:
    """Equal in value, and in form where that matters: units, bases, intervals. An answer that is
    close, or that algebra does not finish in time, is wrong. Any thread may grade."""

    def __init__(self, workers: Workers | None = None) -> None:
        self._workers = workers
        self._marks = Marks()

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        asked = [(answer, question.reference) for answer, question in pairs]
        wanted = {(answer, right): None for answer, right in asked if right is not None}
        marks = self._marks.recall(wanted)
        marks |= self._decide([pair for pair in wanted if pair not in marks])
        return [right is not None and marks[answer, right] for answer, right in asked]

    def _decide(self, pairs: Sequence[Pair]) -> dict[Pair, bool]:
        found = {pair: compared(*pair) for pair in pairs}
        marks = {pair: mark for pair, mark in found.items() if isinstance(mark, bool)}
        hard = {pair: forms for pair, forms in found.items() if not isinstance(forms, bool)}
        if hard:
            workers = self._workers or _workers()
            said = workers.ask([json.dumps(forms) for forms in hard.values()])
            marks |= {pair: mark == "1" for pair, mark in zip(hard, said, strict=True)}
        self._marks.keep(marks)
        return marks
