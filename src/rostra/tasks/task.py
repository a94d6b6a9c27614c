"""A task: questions to train on, questions held back, and a way to tell whether an answer is right.

The truth is for reports only: in peer debate no reward reads it, unless truth is mixed in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple, get_args

from rostra.errors import ConfigError, DataError
from rostra.seeds import derive
from rostra.tasks.grading import Grader, boxed
from rostra.tasks.parts import asked
from rostra.tasks.question import Question

PartName = Literal["train", "validation", "test"]
PARTS: tuple[PartName, ...] = get_args(PartName)


class Exercise(NamedTuple):
    """A line of a drill. Only its answer is learned."""

    asked: str
    answer: str
    rest: str


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Questions in three parts that share none."""

    name: str
    train: Sequence[Question] = field(repr=False)
    test: Sequence[Question] = field(repr=False)
    """For the last number only, and for evaluations where there is no validation."""
    grader: Grader = field(repr=False)
    validation: Sequence[Question] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        seen: dict[object, PartName] = {}
        for name in PARTS:
            for question in self.part(name):
                if seen.setdefault(asked(question), name) != name:
                    raise DataError(
                        f"task {self.name}: question {question.id!r} stands in the {name} part and "
                        "in another; take it out of one"
                    )

    @property
    def held_out(self) -> Sequence[Question]:
        """What evaluations draw from while a run goes on."""
        return self.validation or self.test

    def part(self, name: PartName) -> Sequence[Question]:
        match name:
            case "train":
                return self.train
            case "validation":
                return self.validation
            case "test":
                return self.test

    def where(self, only: Mapping[str, object]) -> "Task":
        """The same task with the questions whose metadata are these. What is held out stays so."""
        parts = {
            name: [
                question
                for question in self.part(name)
                if all(question.metadata.get(key) == value for key, value in only.items())
            ]
            for name in PARTS
        }
        if not any(parts.values()):
            known = sorted({key for name in PARTS for q in self.part(name) for key in q.metadata})
            raise ConfigError(
                f"only = {dict(only)}: no question of task {self.name} is like that (they have: "
                f"{', '.join(known) or 'no metadata'})"
            )
        return replace(self, **parts)  # type: ignore[arg-type]

    def draw(self, seed: int, start: int, count: int) -> list[Question]:
        """`count` training questions from place `start` of an endless sequence, in which every
        epoch is a new order of all. A pure function of its arguments: no cursor is kept."""
        size = len(self.train)
        if not size:
            raise ConfigError(
                f"task {self.name}: has no questions to train on; give a file or split of them"
            )
        places = range(start, start + count)
        return [
            self.train[_order(size, derive(seed, "epoch", p // size))[p % size]] for p in places
        ]

    def fresh(self, seed: int, count: int) -> list[Question]:
        """`count` held-out questions, drawn anew for every seed; all of them if there are fewer."""
        order = _order(len(self.held_out), derive(seed, "held out"))
        return [self.held_out[i] for i in order[:count]]

    def sample(self, part: PartName, seed: int, count: int) -> list[Question]:
        """`count` questions of a part, drawn anew for every seed; all if there are fewer."""
        known = self.part(part)
        return [known[i] for i in _order(len(known), derive(seed, "sample", part))[:count]]

    def right(self, question: Question, solution: str | None) -> bool:
        """Whether the answer in a solution is right. None, no answer, is wrong."""
        return self.grade([(question, solution)])[0]

    def grade(self, pairs: Sequence[tuple[Question, str | None]]) -> list[bool]:
        """The same for many solutions at once, which is faster where grading is slow."""
        marks = [False] * len(pairs)
        places, answers = [], []
        for place, (question, solution) in enumerate(pairs):
            answer = boxed(solution) if solution is not None else None
            if answer is not None and question.reference is not None:
                places.append(place)
                answers.append((answer, question))
        for place, mark in zip(places, self.grader.grade(answers), strict=True):
            marks[place] = mark
        return marks


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
