"""Which questions are trained on, and which are held back.

A question goes where its own text says, so one that is added moves no other.
"""

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rostra.seeds import fraction
from rostra.tasks.question import Question


class Parts(NamedTuple):
    """Questions in three parts."""

    train: list[Question]
    validation: list[Question]
    test: list[Question]


def asked(question: Question) -> tuple[str, str | None]:
    """What makes two questions the same: their text but for case, blanks, and how its characters
    are put together, about one text."""
    prompt = question.prompt
    if not prompt.isascii():
        # Full-width letters, accents apart, marks without width: nobody sees a difference.
        prompt = prompt.translate({ord(c): _folded(c) for c in set(prompt) if not c.isascii()})
        prompt = unicodedata.normalize("NFC", prompt)
    return " ".join(prompt.casefold().split()), question.background


def _folded(sign: str) -> str:
    """A character at its usual width; nothing for one that has none."""
    if unicodedata.category(sign) == "Cf":
        return ""
    kind, _, code = unicodedata.decomposition(sign).partition(" ")
    return chr(int(code, 16)) if kind in ("<wide>", "<narrow>") else sign


def prompt_of(question: Question) -> str:
    return asked(question)[0]


def parted(
    pool: Sequence[Question],
    validation: Sequence[Question] = (),
    test: Sequence[Question] = (),
    *,
    shares: tuple[float, float],
    key: Callable[[Question], str] = prompt_of,
) -> Parts:
    """The parts that are given stay whole; those that are not are taken out of the pool, a share
    for validation and one for test. Questions with one key, such as a story, stay together. What is
    held back is never in a part before it, and no other question of its key is."""
    held = 0.0 if test else shares[1]
    kept = 0.0 if validation else shares[0]
    parts = Parts([], list(validation), list(test))
    for question in pool:
        place = fraction("part", key(question))
        parts[2 if place < held else 1 if place < held + kept else 0].append(question)
    checked = without(parts.validation, parts.test, key)
    return Parts(without(parts.train, [*parts.test, *checked], key), checked, parts.test)


def without(
    questions: Sequence[Question],
    others: Sequence[Question],
    key: Callable[[Question], str] = prompt_of,
) -> list[Question]:
    """The questions that are none of some others. One that comes without its text may be about
    any."""
    taken = {asked(question) for question in others}
    taken |= {(prompt, None) for prompt, _ in taken}
    keys = {key(question) for question in others} if key is not prompt_of else set()
    return [q for q in questions if asked(q) not in taken and key(q) not in keys]
