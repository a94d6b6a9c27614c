"""Data of your own: rows with named fields, in files or on the hub."""

from collections.abc import Collection, Iterator, Mapping

from rostra.tasks.catalogue import FIELDS, GraderName
from rostra.tasks.grading import Exact, Grader, Integers, whole_number
from rostra.tasks.mathgrader import MathGrader
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task

LONGEST = 200
"""Texts up to so many characters are kept as metadata."""


def make_grader(name: GraderName) -> Grader:
    match name:
        case "integer":
            return Integers()
        case "math":
            return MathGrader()
        case "exact" | "none":
            return Exact()


def own_task(name: str, source: Source, fields: Mapping[str, str], grader: GraderName) -> Task:
    """A task of any rows. Without a grader, references are not read: questions are open-ended."""
    names = {**FIELDS, **fields}

    def field(row: Row, which: str) -> str:
        name = names[which]
        if name not in row.values:
            say = f"say which it is with task.fields.{which}=NAME"
            raise row.wrong(f"no field {name!r}{row.meant(name)}; {say}")
        return name

    def questions(row: Row) -> Iterator[Question]:
        told = row.text(field(row, "id")) if names["id"] else row.id
        prompt = row.prompt(field(row, "prompt"))
        reference = None if grader == "none" else row.text(field(row, "reference"))
        if grader == "integer" and reference is not None and whole_number(reference) is None:
            raise row.wrong(
                f"{names['reference']!r} must be a whole number of at most 100 digits for "
                f"grader = 'integer', not {reference[:40]!r}"
            )
        yield Question(told, prompt, reference, metadata=metadata_of(row, names.values()))

    return load(name, source, questions, make_grader(grader))


def metadata_of(row: Row, used: Collection[str]) -> dict[str, str | int | float | bool | None]:
    """The fields of a row that are left, and short."""
    return {
        name: value
        for name, value in row.values.items()
        if name not in used
        and (value is None or isinstance(value, str | int | float))
        and len(str(value)) <= LONGEST
    }
