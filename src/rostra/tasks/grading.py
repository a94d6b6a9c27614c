"""What a solution answers, and whether that is right."""

import re
from collections.abc import Sequence
from typing import Protocol

from rostra.tasks.question import Question

_BOX = r"(?:boxed|fbox)\s*+\{"
# A brace behind a backslash opens and closes nothing, unless the backslash is itself behind one.
_BRACE = re.compile(rf"(\\{_BOX})|\\\\(?!{_BOX})|\\[{{}}]|[{{}}]")
_PARTED = r"(?:,(?:\\!)?|\{,\}|\\,)"
_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:\\?\$)?\s*(?P<inner>[+-]?)"
    rf"(?P<digits>[0-9]{{1,100}}|[1-9][0-9]{{0,2}}(?:{_PARTED}[0-9]{{3}}){{1,33}})(?:\.0+)?"
)
_AROUND = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), ("**", "**"))
_CHOICE = re.compile(r"(?:\(([a-z])\)|([a-z])(?:[.:)]|$))\s*(.*)")
_DEEPEST = 3
_NARROW = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0x2212: 0x2D}


GROUP = re.compile(
    r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|mbox|hbox|math(?:rm|bf|it|sf)|operatorname)\s*\{([^{}]*)\}"
)
"""Words in LaTeX."""


class Grader(Protocol):
    """Whether answers are right. The same for the same answer and question, always."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        """One mark for each answer. Questions without a reference have no right answer."""
        ...


class Integers:
    """A whole number, and nothing beside it but a dollar sign in front and commas between
    thousands."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        return [same_integer(answer, question.reference or "") for answer, question in pairs]


class Exact:
    """The same text but for case, blanks, a full stop and what sets it in LaTeX. Where a question
    has choices, the letter of one stands for it; where both are given, they must agree."""

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        return [self._same(answer, question) for answer, question in pairs]

    def _same(self, answer: str, question: Question) -> bool:
        if question.reference is None or not plain(answer):
            return False
        if plain(answer) == plain(question.reference):
            return True
        said, choices = unset(answer), [unset(choice) for choice in question.choices]
        letter = _CHOICE.fullmatch(said)
        if letter and said not in choices:
            place = ord(letter[1] or letter[2]) - ord("a")
            if place < len(choices) and letter[3] in ("", choices[place]):
                said = choices[place]
        return bool(said) and said == unset(question.reference)


def plain(text: str) -> str:
    """A text without what does not change its meaning: case, blanks, a last full stop."""
    folded = " ".join(narrow(text).casefold().split())
    return folded.removesuffix(".").rstrip()


def unset(text: str) -> str:
    """A plain text without the LaTeX and the stars that set it in another face."""
    for _ in range(_DEEPEST):
        text = GROUP.sub(r" \1 ", text).strip().strip("*")
    return plain(text)


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
        if found[1] or found[0] == "{":
            opened.append(found.end() if found[1] else -1)
        elif found[0] == "}" and opened:
            start = opened.pop()
            if start >= 0 and (last is None or start > last[0]):
                last = (start, found.start())
    return (solution[last[0] : last[1]].strip() or None) if last else None


def same_integer(answer: str, reference: str) -> bool:
    """Whether two texts are the same whole number; `1,200` and `$1200` are."""
    numbers = [whole_number(text) for text in (answer, reference)]
    return numbers[0] is not None and numbers[0] == numbers[1]


def whole_number(text: str) -> int | None:
    """The whole number that a text is, if it is one of at most a hundred digits."""
    found = _INTEGER.fullmatch(_unwrapped(narrow(text).strip()))
    if not found or found["sign"] and found["inner"]:
        return None
    return int(found["sign"] + found["inner"] + re.sub("[^0-9]", "", found["digits"]))


def _unwrapped(text: str) -> str:
    """A text without the signs that set it as mathematics, in bold or as text."""
    for before, behind in _AROUND:
        inner = text.removeprefix(before).removesuffix(behind)
        if len(text) - len(inner) == len(before + behind):
            text = inner.strip()
    group = GROUP.fullmatch(text)
    return group[1].strip() if group else text
