"""Answers in mathematics, written in one way: what can be decided without algebra, is.

\\dfrac12, 1/2, 0.5, .50        the same number
5\\text{ inches}, 5, 5 in       the same; 5 cm is another
25\\%, 25, 0.25                 the same; 0.25\\% is another
x=5, 5                         the same; y=5 is another than x=5
(1,2], 1<x\\le2                 the same; (1,2) is another
2112_6                         a number in base 6, and 2112 is another
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rostra.tasks.grading import narrow, plain
from rostra.tasks.units import split_unit

LONGEST = 400
"""An answer that is longer than its reference by so many characters is wrong, unread."""

DEEPEST = 20
"""Braces inside of braces, in an answer that is read at all."""

_SIGNS = str.maketrans(
    {
        "°": r"^\circ ",
        "×": r"\times ",
        "·": r"\cdot ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "±": r"\pm ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "∪": r"\cup ",
        "–": "-",
        "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "²": "^{2}",
        "³": "^{3}",
        "\u00a0": " ",
    }
)
_SPELT = [
    (re.compile(pattern), put)
    for pattern, put in (
        (r"(?s)^\$(.*)\$$|^\\\((.*)\\\)$|^\\\[(.*)\\\]$", r"\1\2\3"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle)(?![a-zA-Z])\s*", ""),
        (r"\\leq(?:slant)?(?![a-zA-Z])", r"\\le "),
        (r"\\geq(?:slant)?(?![a-zA-Z])", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\^\s*\{?\s*\\circ(?![a-zA-Z])\s*\}?|\\degrees?(?![a-zA-Z])", " "),
        (r"(?<=\d)(?:,\\!\s*|\{,\}\s*|\\[,;: ])(?=\d{3}(?!\d))", ""),
        (r"\\!", ""),
        (r"(?<!\\)\\[,;: ]|\\q?quad(?![a-zA-Z])|~", " "),
        (r"\b([aApP])\.\s?[mM]\b\.?", r"\1m"),
        (r"\^(\d{2,})", r"^{\1}"),
        (r"\\over(?:line|rightarrow)\s*\{([A-Z]{2,3})\}", r"\1"),
        (r"\\(begin|end)\{(?:b|small)matrix\}", r"\\\1{pmatrix}"),
        (r"(?<![\d.])(\d+) +(\d+)/(\d+)", r"\1\\frac{\2}{\3}"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"^[a-z]\s*\\in(?![a-zA-Z])", ""),
    )
]
_TEXT = re.compile(
    r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|mbox|hbox|math(?:rm|bf|it|sf)|operatorname)\s*\{([^{}]*)\}"
)
_AND = re.compile(r",?(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}")
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<n>\d+)|(?P<a>\d+)/(?P<b>\d+)"
    r"|(?P<whole>\d*)\{?\\frac(?:\{(?P<over>\d+)\}\{(?P<under>\d+)\}|(?P<o>\d)(?P<u>\d))\}?)"
)
_BASE = re.compile(r"(?=[A-Za-z]*\d)([0-9A-Za-z]+)_(?:\{(\d+)\}|(\d+))")
_ASSIGNED = re.compile(r"((?:[A-Za-z]|\\[a-z]+)(?:\([a-z]\))?)\s*=(.+)")
_RELATION = re.compile(r"<|>|\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])")
_FLIPPED = {">": "<", r"\ge": r"\le"}
_OPEN, _CLOSED = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, taken apart."""

    text: str
    """Without units, and with decimals as fractions."""
    words: str
    """What it says, with nothing left out."""
    verbal: bool
    """Whether it is words, and no mathematics."""
    unit: str
    percent: bool

    @property
    def tight(self) -> str:
        return _tight(self.text)


def compared(answer: str, reference: str) -> bool | tuple[str, str]:
    """Whether two answers are the same; where it takes algebra to tell, the two as it reads them,
    the reference first."""
    if len(answer) > LONGEST + len(reference):
        return False
    if len(reference) > LONGEST:
        return plain(answer) == plain(reference)
    said, right = read_answer(answer), read_answer(reference)
    if not said.tight or said.unit and right.unit and said.unit != right.unit:
        return False
    if not _closed(said.text):
        return False
    if said.tight == right.tight and said.percent == right.percent:
        return True
    if right.verbal or said.verbal:
        return right.verbal and _items(said.words) == _items(right.words)
    bases = [_base(one.tight) for one in (said, right)]
    if any(bases):
        return bases[0] == bases[1]
    numbers = [number(one.tight) for one in (said, right)]
    if numbers[0] is not None and numbers[1] is not None:
        return _same_number((numbers[0], numbers[1]), said.percent, right.percent)
    return _forms(said.text, right.text)


def _closed(text: str) -> bool:
    """Whether every brace that is opened is closed, and few are open at once."""
    depth = 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if not 0 <= depth <= DEEPEST:
            return False
    return depth == 0


def _same_number(pair: tuple[Fraction, Fraction], first: bool, second: bool) -> bool:
    """A percent sign on one side only may stand for a hundredth, or for nothing."""
    a, b = pair
    if first == second:
        return a == b
    return a == b or (a == b * 100 if first else a * 100 == b)


def _forms(said: str, right: str) -> bool | tuple[str, str]:
    """Both without what only one of them spells out: a name, an interval, parentheses."""
    said, right = _without_names(said, right)
    if bool(_RELATION.search(said)) != bool(_RELATION.search(right)):
        said, right = _interval(said), _interval(right)
    around, meant = _around(said), _around(right)
    if around and meant and around != meant:
        return False
    if meant and not around and meant != "{}" and _split(said, ","):
        if meant != "()":
            return False
        said = f"({said})"
    if _tight(said) == _tight(right):
        return True
    return right, said


def _tight(text: str) -> str:
    """Without blanks, but for those that keep two numbers apart."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def _base(tight: str) -> tuple[str, str] | None:
    """The digits of a number in another base, and that base."""
    found = _BASE.fullmatch(tight)
    return (found[1].upper().lstrip("0"), found[2] or found[3]) if found else None


def _without_names(said: str, right: str) -> tuple[str, str]:
    """`x=5` and `5` are the same, and `x=5` and `y=5` are not."""
    named = [_ASSIGNED.fullmatch(text.strip()) for text in (said, right)]
    if named[0] and named[1]:
        if named[0][1] == named[1][1]:
            return named[0][2], named[1][2]
    elif named[0] and "=" not in right:
        return named[0][2], right
    elif named[1] and "=" not in said:
        return said, named[1][2]
    return said, right


def _interval(text: str) -> str:
    """Bounds of one letter as an interval; anything else as it is."""
    parts = [part.strip() for part in _RELATION.split(text)]
    closed = [sign != "<" for sign in _RELATION.findall(text)]
    match [bool(re.fullmatch("[a-z]", part)) for part in parts]:
        case [False, True, False]:
            return f"{'(['[closed[0]]}{parts[0]},{parts[2]}{')]'[closed[1]]}"
        case [False, True]:
            return rf"{'(['[closed[0]]}{parts[0]},\infty)"
        case [True, False]:
            return rf"(-\infty,{parts[1]}{')]'[closed[0]]}"
        case _:
            return text


def _around(text: str) -> str:
    """The brackets around a text with commas, such as `(]`; empty if there are none."""
    bare = text.strip().replace(r"\{", "{").replace(r"\}", "}")
    if len(bare) < 2 or bare[0] not in _OPEN or bare[-1] not in _CLOSED:
        return ""
    depth = 0
    for place, sign in enumerate(bare):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if depth == 0 and place < len(bare) - 1:
            return ""
    return bare[0] + bare[-1] if _split(bare[1:-1], ",") else ""


def _split(text: str, mark: str) -> bool:
    """Whether a mark stands in a text, outside of all brackets."""
    depth = 0
    for sign in text:
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if sign == mark and depth == 0:
            return True
    return False


@lru_cache(maxsize=4096)
def read_answer(text: str) -> Answer:
    """An answer in its normal form."""
    text = narrow(text).translate(_SIGNS).strip().removesuffix(".").strip()
    for pattern, put in _SPELT:
        text = pattern.sub(put, text.strip())
    money = "$" in text
    text = text.replace(r"\$", "").replace("$", "")
    words = _TEXT.sub(r"\1", text)
    text, unit = split_unit(text, _TEXT)
    verbal = _TEXT.sub("", text).strip(" ()") == "" and bool(re.search("[A-Za-z]", words))
    verbal = verbal or bool(re.fullmatch(r"[A-Za-z]{3,}(?: [A-Za-z]+)*", text))
    text = _AND.sub(",", _TEXT.sub(r" \1 ", text)).strip().removesuffix(".")
    percent = unit == "percent" or "%" in text
    text = text.replace(r"\%", "").replace("%", "").strip()
    text = re.sub(r"^\(([A-Za-z])\)$|^([A-Za-z])\)$", r"\1\2", text)
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    text = _upwards(_DECIMAL.sub(_fraction, _REPEATING.sub(_repeated, text)))
    unit = "" if percent else unit or ("dollar" if money else "")
    return Answer(text, words, verbal and not unit, unit, percent)


def _items(words: str) -> list[str]:
    """What a text lists, in any order."""
    parts = re.split(",", _AND.sub(",", words.casefold()))
    return sorted(item for part in parts if (item := re.sub(r"[^\w:+-]", "", part)))


def _upwards(text: str) -> str:
    """A chain of relations with the least first."""
    signs = _RELATION.findall(text)
    if not signs or any(sign not in _FLIPPED for sign in signs):
        return text
    parts = _RELATION.split(text)[::-1]
    flipped = [_FLIPPED[sign] for sign in signs[::-1]] + [""]
    return "".join(f"{part}{sign} " for part, sign in zip(parts, flipped, strict=True)).strip()


def _repeated(found: re.Match[str]) -> str:
    whole, fixed, period = found.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int((whole or "0") + fixed), scale)
    value += Fraction(int(period), scale * (10 ** len(period) - 1))
    return _written(value)


def _fraction(found: re.Match[str]) -> str:
    return _written(Fraction(int((found[1] or "0") + found[2]), 10 ** len(found[2])))


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return rf"{{\frac{{{value.numerator}}}{{{value.denominator}}}}}"


def number(tight: str) -> Fraction | None:
    """The value of a plain number: whole, a fraction, or mixed."""
    found = _NUMBER.fullmatch(tight)
    if not found:
        return None
    over = int(found["a"] or found["over"] or found["o"] or 0)
    under = int(found["b"] or found["under"] or found["u"] or 1)
    if not under:
        return None
    value = int(found["n"] or found["whole"] or 0) + Fraction(over, under)
    return -value if found["sign"] == "-" else value
