"""A task: questions to train on, questions held back, and a way to tell whether an answer is right.

The truth is for reports only: in peer debate no reward reads it, unless truth is mixed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import NamedTuple

from rostra.seeds import derive
from rostra.tasks.grading import boxed
from rostra.tasks.question import Question


class Exercise(NamedTuple):
    """A line of a drill. Only its answer is learned."""

    asked: str
    answer: str
    rest: str


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Questions in two parts that share none."""

    name: str
    train: Sequence[Question] = field(repr=False)
    held_out: Sequence[Question] = field(repr=False)
    same: Callable[[str, str], bool] = field(repr=False)
    """Whether an answer and the reference are the same."""

    def draw(self, seed: int, start: int, count: int) -> list[Question]:
        """`count` training questions from place `start` of an endless sequence, in which every
        epoch is a new order of all. A pure function of its arguments: no cursor is kept."""
        size = len(self.train)
        places = range(start, start + count)
        return [
            self.train[_order(size, derive(seed, "epoch", p // size))[p % size]] for p in places
        ]

    def fresh(self, seed: int, count: int) -> list[Question]:
        """`count` held-out questions, drawn anew for every seed; all of them if there are fewer."""
        order = _order(len(self.held_out), derive(seed, "held out"))
        return [self.held_out[i] for i in order[:count]]

    def right(self, question: Question, solution: str | None) -> bool:
        """Whether the answer in a solution is right. None, no answer, is wrong."""
        answer = boxed(solution) if solution is not None else None
        if answer is None or question.reference is None:
            return False
        return self.same(answer, question.reference)


@lru_cache(maxsize=4)
def _order(size: int, seed: int) -> list[int]:
    order = list(range(size))
    Random(seed).shuffle(order)
    return order


def split(questions: Sequence[Question], held_out: float, seed: int) -> tuple[list[Question], ...]:
    """Questions in two parts, the same for the same seed whatever is trained on them."""
    order = _order(len(questions), derive(seed, "split"))
    cut = round(len(questions) * (1 - held_out))
    parts = order[:cut], order[cut:]
    return tuple([questions[i] for i in sorted(part)] for part in parts)
