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

from rostra.tasks.bounds import RELATION, Bounds, bounds, upwards
from rostra.tasks.grading import GROUP, plain
from rostra.tasks.names import around, split, without_names
from rostra.tasks.numbers import exact, number, same_based, same_ratio, without_thousands, written
from rostra.tasks.spelling import spelt
from rostra.tasks.units import Counted, same_units, split_unit

LONGEST = 400
"""An answer that is longer than its reference by so many characters is wrong, unread."""

DEEPEST = 20
"""Braces inside of braces, in an answer that is read at all."""

_AND = re.compile(r",?\s*(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_APPROXIMATELY = re.compile(r"\\(?:thick)?approx(?![a-zA-Z])|≈")
_SIGNS = re.compile(r"\\pm(?![a-zA-Z])\s*")
_SET = re.compile(r"(?s)(\\\{)(.*)(\\\})")
_ESCAPED = re.compile(r"\\[\\{}]")
_MONEY = re.compile(r"(?<![\w.})])(?:\\\$|(?<!\\)\$)")
_DELIMITER = re.compile(r"(?<!\\)\$")
_PERCENT = re.compile(r"(?<=[\d})])\s*\\?%(?!\s*[\w\\(.])")
_TURNING = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_SCALE = re.compile(rf"\^\\circ\s*(?:{GROUP.pattern}|([CF]))$")
_ANGLE = re.compile(r"(?:\{(\d+(?:\.\d+)?)\}|(\d+(?:\.\d+)?|[A-Za-z]|\\[a-z]+))\s*\^\\circ")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3,}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z]+\}")
_FUNCTIONS = re.compile(
    "(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|exp|max|min|gcd|lcm|mod|det|sqrt|inf|infinity"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, taken apart."""

    text: str
    """Without units, and with decimals as fractions."""
    words: str
    """What it says, with nothing left out."""
    verbal: bool
    """Whether it is words, and no mathematics."""
    units: frozenset[str]
    percent: bool
    bounds: Bounds | None

    @property
    def tight(self) -> str:
        return _tight(self.text)

    @property
    def limits(self) -> str:
        """What the bounds are; the text tells no `and` between them from an `or`."""
        return _tight(self.bounds.interval) if self.bounds else ""


def compared(answer: str, reference: str) -> bool | tuple[str, str]:
    """Whether two answers are the same; where it takes algebra to tell, the two as it reads them,
    the reference first."""
    if len(answer) > LONGEST + len(reference):
        return False
    if len(reference) > LONGEST:
        return plain(answer) == plain(reference)
    if _APPROXIMATELY.search(answer) and not _APPROXIMATELY.search(reference):
        return _approximated(spelt(answer), reference)
    said, right = read_both(answer, reference)
    if not said.tight or not _closed(said.text) or not _same_units(said, right):
        return False
    if said.tight == right.tight and said.percent == right.percent:
        return said.limits == right.limits
    if right.verbal or said.verbal:
        return right.verbal and items(said.words) == items(right.words)
    numbers = [number(one.tight) for one in (said, right)]
    if numbers[0] is not None and numbers[1] is not None:
        return _same_number((numbers[0], numbers[1]), said.percent, right.percent)
    ratio = same_ratio(said.tight, right.tight)
    if ratio is not None or said.percent and not right.percent:
        return bool(ratio)
    return _forms(said, right)


def _approximated(answer: str, reference: str) -> bool | tuple[str, str]:
    """The same for an answer that says how much it is about: algebra has to find that near."""
    value, *near = _APPROXIMATELY.split(answer)
    found = compared(value, reference)
    if found is False:
        return False
    exactly, about = read_answer(value), [read_answer(text) for text in near]
    if exactly.units and any(one.units and one.units != exactly.units for one in about):
        return False
    alike = exactly.text.rpartition("=")[2]
    right, said = (alike, alike) if found is True else found
    return right, r"\approx ".join([said, *(one.text for one in about)])


def read_both(answer: str, reference: str) -> tuple[Answer, Answer]:
    """An answer and its reference. What one of them is tells how to read the other: 100,200 is a
    list where a list is asked for, and 5 m is meters where the other has a unit."""
    right = read_answer(reference)
    listed = bool(around(right.text)) or len(split(right.text)) > 1
    said = read_answer(answer, listed=listed, letters=bool(right.units))
    if len(split(said.text)) > len(split(right.text)) > 1:
        # Too many items, unless some commas part thousands after all.
        said = read_answer(answer, letters=bool(right.units))
    return said, read_answer(reference, letters=bool(said.units))


def _closed(text: str) -> bool:
    """Whether every brace that is opened is closed, and few are open at once. Those behind a
    backslash are signs like others."""
    depth = 0
    for sign in _ESCAPED.sub("", text):
        depth += (sign == "{") - (sign == "}")
        if not 0 <= depth <= DEEPEST:
            return False
    return depth == 0


def _same_units(said: Answer, right: Answer) -> bool:
    """A unit may be left out. Percent is one that goes with no other."""
    if said.percent != right.percent:
        return not (right if said.percent else said).units
    return same_units(said.units, right.units)


def _same_number(pair: tuple[Fraction, Fraction], said: bool, right: bool) -> bool:
    """A percent sign on one side only may stand for a hundredth, or for nothing. It stands for a
    hundredth where the reference is a share: a quarter of a percent is not 0.25."""
    a, b = pair
    if said == right:
        return a == b
    if right:
        return a == b or a * 100 == b
    return a == b * 100 or a == b and abs(b) > 1


def _forms(said: Answer, right: Answer) -> bool | tuple[str, str]:
    """Both without what only one of them spells out: a name, an interval, parentheses."""
    named = without_names(said.text, right.text)
    given, asked = said.bounds, right.bounds
    if named is None or given and asked and given.letter != asked.letter:
        return False
    first, second = named
    if given and (asked or not RELATION.search(second)):
        first = given.interval
    if asked and (given or not RELATION.search(first)):
        second = asked.interval
    bases = same_based(_tight(first), _tight(second))
    if bases is not None or not _readable(first, second):
        return bool(bases)
    brackets, meant = around(first), around(second)
    if brackets and meant and brackets != meant:
        return False
    if meant and meant != "{}" and _SIGNS.search(first) and not _SIGNS.search(second):
        return False  # both signs are two values in no order
    if meant and not brackets and meant != "{}" and len(split(first)) > 1:
        if meant != "()":
            return False
        first = f"({first})"
    first, second = _signs_apart(first), _signs_apart(second)
    if _tight(first) == _tight(second):
        return True
    return _parted(second), _parted(first)


def _signs_apart(text: str) -> str:
    """A value with both signs as two values, also where it is one of several."""
    if not _SIGNS.search(text):
        return text
    inside = _SET.fullmatch(text.strip())
    parts = [one for part in split(inside[2] if inside else text) for one in _each_sign(part)]
    return f"{inside[1]}{','.join(parts)}{inside[3]}" if inside else ",".join(parts)


def _each_sign(part: str) -> list[str]:
    if len(_SIGNS.findall(part)) != 1 or re.search(r"[,=<>]|\\mp(?![a-zA-Z])", part):
        return [part]
    return [_SIGNS.sub("+", part).removeprefix("+"), _SIGNS.sub("-", part)]


def _readable(said: str, right: str) -> bool:
    """Whether an answer has nothing that algebra would skip: signs of money, percent and minutes,
    dots, items that are empty or said twice, words of which the reference has no letter."""
    if any(said.count(sign) != right.count(sign) for sign in ("$", "%", "'", '"', "dots")):
        return False
    parts, wanted = split(said), split(right)
    if len(parts) > 1 and ("" in parts or len(set(parts)) < len(parts) != len(wanted)):
        return False
    return all(set(word) <= set(right) for word in strange_words(said))


def strange_words(text: str) -> list[str]:
    """The words in a text that are no mathematics."""
    words = _WORD.findall(_ENVIRONMENT.sub("", text))
    return [word for word in words if not _FUNCTIONS.fullmatch(word)]


def _parted(text: str) -> str:
    """With a blank behind the commas of a list, or algebra would read 100,200 as one number."""
    return re.sub(r"(?<=\d),(?=\d)", ", ", text)


def _tight(text: str) -> str:
    """Without blanks, but for those that keep two numbers apart."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


@lru_cache(maxsize=4096)
def read_answer(text: str, *, listed: bool = False, letters: bool = False) -> Answer:
    """An answer in its normal form. With `listed`, commas part numbers and no thousands; with
    `letters`, one letter may be a unit."""
    text, angles = _degrees(spelt(text))
    if len(_DELIMITER.findall(text)) % 2 == 0:
        text = _DELIMITER.sub(" ", text)
    text = _untied(text)
    money = _MONEY.search(text) is not None
    text = _MONEY.sub("", text)
    words = GROUP.sub(r"\1", text)
    counted = _counted(text, money=money, letters=letters)
    text, units = counted.rest, counted.units | angles
    verbal = GROUP.sub("", text).strip(" ()") == "" and bool(re.search("[A-Za-z]", words))
    verbal = verbal or bool(re.fullmatch(r"[A-Za-z]{3,}(?: [A-Za-z]+)*", text))
    text = GROUP.sub(r" \1 ", text).strip().removesuffix(".")
    percent = "percent" in units or _PERCENT.search(text) is not None
    text = re.sub(r"^\(([A-Za-z])\)$|^([A-Za-z])\)$", r"\1\2", _PERCENT.sub("", text).strip())
    text = exact(text if listed else without_thousands(text))
    limits = bounds(text)
    text = _AND.sub(",", text)
    text = text if len(split(text)) > 1 else upwards(text)
    if counted.factor != 1:
        value = number(_tight(text))
        text = (
            rf"({text})\cdot {counted.factor}" if value is None else written(value * counted.factor)
        )
    units -= {"percent"}
    return Answer(text, words, counted.refused or verbal and not units, units, percent, limits)


def _untied(text: str) -> str:
    """With the `and` or `or` that ends a text between numbers outside of it."""
    if not re.search(r"\d", GROUP.sub("", text)):
        return text
    return GROUP.sub(_word_out, text)


def _word_out(group: re.Match[str]) -> str:
    words = group[1].split()
    if not words or words[-1] not in ("and", "or"):
        return group[0]
    before = rf"\text{{ {' '.join(words[:-1])}}}" if words[1:] else ""
    return f"{before} {words[-1]} "


def _counted(text: str, *, money: bool, letters: bool) -> Counted:
    """A text without its unit, also where every item of a list has it."""
    whole = split_unit(text, money=money, letters=letters)
    parts = [] if money or RELATION.search(text) else split(_AND.sub(",", text))
    each = [split_unit(part, letters=letters) for part in parts]
    if len({part.units for part in each}) != 1 or any(p.refused or p.factor != 1 for p in each):
        return whole
    rests = [part.rest for part in each]
    if len(rests) < 2 or not each[0].units or not all(re.search(r"\d", rest) for rest in rests):
        return whole
    return Counted(", ".join(rests), each[0].units)


def _degrees(text: str) -> tuple[str, frozenset[str]]:
    """A text without its signs of degrees, and the unit they are. In a sine they are no unit but a
    number: 45 degrees are a quarter of pi."""
    if r"^\circ" not in text:
        return text, frozenset()
    if _TURNING.search(text):
        text = _ANGLE.sub(r"{\\frac{\1\2\\pi}{180}}", text)
        return text.replace(r"^\circ", r"\cdot\frac{\pi}{180}"), frozenset()
    scale = _SCALE.search(text)
    name = {"C": "celsius", "F": "fahrenheit"}.get(
        ((scale[1] or scale[2]) if scale else "").strip()
    )
    if scale and name:
        return text[: scale.start()], frozenset({"degree", name})
    return text.replace(r"^\circ", " "), frozenset({"degree"})


def items(words: str) -> list[str]:
    """What a text lists, in any order."""
    parts = re.split(",", _AND.sub(",", words.casefold()))
    return sorted(item for part in parts if (item := re.sub(r"[^\w:+-]", "", part)))
