"""Intervals that are written as bounds: `0<=x<1` is `[0,1)`."""

import re
from typing import NamedTuple

RELATION = re.compile(r"<|>|\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])")
_FLIPPED = {">": "<", r"\ge": r"\le"}
_UNEQUAL = r"\\ne(?![a-zA-Z])"
_BOUNDING = re.compile(rf"{RELATION.pattern}|{_UNEQUAL}")
_BUILT = re.compile(
    r"(?s)\\\{\s*([a-z])\s*(?:\\in\s*\\mathbb\s*(?:\{R\}|R))?\s*(?:\\mid(?![a-zA-Z])|[|:])(.+)\\\}"
)
_ENCLOSED = re.compile(r"\(([^(),]*)\)")
_POINT = re.compile(rf"\s*([a-zA-Z])\s*(=|{_UNEQUAL})([^=,<>]+)")
_OR = re.compile(r",?\s*(?<![A-Za-z\\])or(?![A-Za-z])")
_AND = re.compile(r",?\s*(?<![A-Za-z\\])and(?![A-Za-z])")
_LEAST, _GREATEST = r"-\infty", r"\infty"


class Bounds(NamedTuple):
    """The values that a letter may have, as an interval or a union of some."""

    letter: str
    interval: str


class _Interval(NamedTuple):
    letter: str
    opening: str
    least: str
    greatest: str
    closing: str

    def __str__(self) -> str:
        return f"{self.opening}{self.least},{self.greatest}{self.closing}"


def bounds(text: str) -> Bounds | None:
    """What bounds a letter; None if a text is anything else."""
    if not _BOUNDING.search(text):
        return None
    built = _BUILT.fullmatch(text.strip())
    inner = built[2] if built else text
    enclosed = _ENCLOSED.fullmatch(inner.strip())
    parts = [_point(part) or _part(part) for part in _OR.split(enclosed[1] if enclosed else inner)]
    found = [part for part in parts if part]
    letters = {part.letter for part in found} | ({built[1]} if built else set())
    if len(found) < len(parts) or len(letters) != 1:
        return None
    return Bounds(letters.pop(), r"\cup ".join(part.interval for part in found))


def upwards(text: str) -> str:
    """A chain of relations with the least first. One inside of brackets stays as it is."""
    signs = RELATION.findall(text)
    parts = RELATION.split(text)[::-1]
    if not signs or any(sign not in _FLIPPED for sign in signs) or not all(map(_whole, parts)):
        return text
    flipped = [_FLIPPED[sign] for sign in signs[::-1]] + [""]
    return "".join(f"{part}{sign} " for part, sign in zip(parts, flipped, strict=True)).strip()


def _whole(text: str) -> bool:
    """Whether as many brackets open as close."""
    return sum(map(text.count, "([{")) == sum(map(text.count, ")]}"))


def _point(text: str) -> Bounds | None:
    """One value, or all but one."""
    found = _POINT.fullmatch(text)
    if not found:
        return None
    letter, sign, value = found[1], found[2], found[3].strip()
    if sign == "=":
        return Bounds(letter, rf"\{{{value}\}}")
    return Bounds(letter, rf"({_LEAST},{value})\cup ({value},{_GREATEST})")


def _part(text: str) -> Bounds | None:
    """One chain of relations, or one from below and one from above."""
    found = [_chain(half) for half in _AND.split(text)]
    match found:
        case [_Interval() as only]:
            return Bounds(only.letter, str(only))
        case [_Interval() as a, _Interval() as b] if a.letter == b.letter:
            below, above = (b, a) if a.least == _LEAST else (a, b)
            if below.greatest == _GREATEST and above.least == _LEAST != below.least:
                return Bounds(
                    a.letter, str(below._replace(greatest=above.greatest, closing=above.closing))
                )
    return None


def _chain(text: str) -> _Interval | None:
    text = upwards(text)
    parts = [part.strip() for part in RELATION.split(text)]
    signs = RELATION.findall(text)
    closed = [sign != "<" for sign in signs]
    if _FLIPPED.keys() & set(signs) or any(
        not part or "," in part or "=" in part for part in parts
    ):
        return None
    match [bool(re.fullmatch("[a-zA-Z]", part)) for part in parts]:
        case [False, True, False]:
            least, letter, greatest = parts
            return _Interval(letter, "(["[closed[0]], least, greatest, ")]"[closed[1]])
        case [False, True]:
            return _Interval(parts[1], "(["[closed[0]], parts[0], _GREATEST, ")")
        case [True, False]:
            return _Interval(parts[0], "(", _LEAST, parts[1], ")]"[closed[0]])
    return None
