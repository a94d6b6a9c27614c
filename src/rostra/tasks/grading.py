"""What a solution answers, and whether that is right."""

import re
from collections.abc import Sequence
from typing import Protocol

from rostra.tasks.question import Question

_BRACE = re.compile(r"(\\(?:boxed|fbox)\s*+\{)|[{}]")
_INTEGER = re.compile(r"[+-]?\d{1,18}(?:\.0+)?")
_CHOICE = re.compile(r"\(?([a-z])\)?")
_NARROW = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0x2212: 0x2D}


class Grader(Protocol):
    """Whether answers are right. The same for the same answer and question, always."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        """One mark for each answer. Questions without a reference have no right answer."""
        ...


class Integers:
    """A whole number, and nothing beside it but a dollar sign or commas."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        return [same_integer(answer, question.reference or "") for answer, question in pairs]


class Exact:
    """The same text but for case, blanks and a full stop. Where a question has choices, the letter
    of one stands for it."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        return [self._same(answer, question) for answer, question in pairs]

    def _same(self, answer: str, question: Question) -> bool:
        if question.reference is None:
            return False
        said, reference = plain(answer), plain(question.reference)
        letter = _CHOICE.fullmatch(said)
        if letter and question.choices and said not in map(plain, question.choices):
            place = ord(letter[1]) - ord("a")
            said = plain(question.choices[place]) if place < len(question.choices) else said
        return bool(said) and said == reference


def plain(text: str) -> str:
    """A text without what does not change its meaning: case, blanks, a last full stop."""
    folded = " ".join(narrow(text).casefold().split())
    return folded.removesuffix(".").rstrip()


def narrow(text: str) -> str:
    """A text with full-width letters, digits and signs in their usual width. Not all of what NFKC
    does: it would make 42 of 4 squared."""
    return text.translate(_NARROW)


def boxed(solution: str) -> str | None:
    """The content of the last `\\boxed{}` or `\\fbox{}` that is whole; braces inside it may nest.
    A box with nothing in it is no answer."""
    # Where the content of each open box begins; -1 for a brace that opens no box.
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for found in _BRACE.finditer(solution):
        if found[0] != "}":
            opened.append(found.end() if found[1] else -1)
        elif opened and (start := opened.pop()) >= 0 and (last is None or start > last[0]):
            last = (start, found.start())
    return (solution[last[0] : last[1]].strip() or None) if last else None


def same_integer(answer: str, reference: str) -> bool:
    """Whether two texts are the same whole number; `1,200` and `$1200` are."""
    numbers = [_integer(text) for text in (answer, reference)]
    return numbers[0] is not None and numbers[0] == numbers[1]


def canonical(answer: str) -> str:
    """A form that answers have in common when they are plainly the same: whole numbers as digits,
    other answers without blanks. It is for counting answers, not for grading them."""
    number = _integer(answer)
    return str(number) if number is not None else "".join(plain(answer).split())


def _integer(text: str) -> int | None:
    bare = narrow(text).strip().strip("$")
    bare = bare.replace("{,}", "").replace(",", "").replace("\\$", "").strip()
    return int(bare.partition(".")[0]) if _INTEGER.fullmatch(bare) else None
