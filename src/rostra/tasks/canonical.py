"""A form that answers have in common when they are plainly the same."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from rostra.tasks.answers import LONGEST, items, read_answer, strange_words
from rostra.tasks.grading import Exact, plain, whole_number
from rostra.tasks.numbers import number
from rostra.tasks.question import Question

T = TypeVar("T")
NAMED = re.compile(r"^[A-Za-z]=(?=(?:\\[A-Za-z]+|[^A-Za-z\\=,])+$)")
"""The name of a value, where that has no names in it."""


def keys_of(answers: Mapping[T, str], question: Question) -> dict[T, str]:
    """What answers to a question have in common, by whoever gave them."""
    return {who: key_of(answer, question) for who, answer in answers.items()}


def key_of(answer: str, question: Question) -> str:
    """What answers to a question have in common that are plainly the same. Where it has choices,
    the letter of one stands for it."""
    same = canonical(answer)
    choices = dict.fromkeys(question.choices)
    fits = [c for c in choices if Exact().grade([(answer, replace(question, reference=c))])[0]]
    # Two choices may differ in what counting leaves out, such as a unit.
    fits = fits or [choice for choice in choices if canonical(choice) == same]
    return plain(fits[0]) if len(fits) == 1 else same


@lru_cache(1 << 12)
def canonical(answer: str) -> str:
    """Whole numbers as digits, fractions and decimals in lowest terms, other mathematics in one
    spelling, all without units; words without blanks. It is for counting answers, not for grading
    them."""
    whole = whole_number(answer)
    if whole is not None:
        return str(whole)
    bare = "".join(plain(answer).split())
    # Answers are counted that nobody graded, so of any length.
    if len(answer) > LONGEST:
        return bare
    read = read_answer(answer)
    if read.verbal:
        return ",".join(items(read.words)) or bare
    tight = NAMED.sub("", read.tight)
    value = number(tight)
    if value is not None:
        return str(value)
    if not tight or strange_words(read.text):
        return bare
    # The two halves of a day are no unit that may be left out.
    return tight.casefold() + "".join(sorted(read.units & {"am", "pm"}))
