"""What answers count: units, and the words behind a number.

9 feet, 9\\text{ ft}               one unit
64\\text{ m}^2, 64 square meters   one unit, another than m
60 miles per hour, 60\\text{ mph}  one unit
12\\text{ ducks}                   a word like another: a duck is no goose
3\\text{ million}                  a factor, and no unit
7\\text{ is wrong}                 no number any more
"""

import re
from dataclasses import dataclass

from rostra.tasks.grading import GROUP

_UNITS = {
    "inch": "in inches",
    "foot": "ft feet",
    "yard": "yd yds yards",
    "mile": "mi miles",
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres",
    "unit": "units",
    "mg": "milligram milligrams",
    "g": "gram grams",
    "kg": "kilogram kilograms",
    "ounce": "oz ounces",
    "pound": "lb lbs pounds",
    "liter": "l liters litre litres",
    "ml": "milliliter milliliters millilitre millilitres",
    "gallon": "gal gallons",
    "quart": "qt qts quarts",
    "second": "s sec secs seconds",
    "minute": "min mins minutes",
    "hour": "h hr hrs hours",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "yr yrs years",
    "dollar": "dollars usd",
    "cent": "cents",
    "mile/hour": "mph",
    "km/hour": "kph kmh",
    "degree": "degrees deg",
    "radian": "radians rad",
    "celsius": "centigrade",
    "fahrenheit": "",
    "percent": "pct",
    "am": "",
    "pm": "",
}
UNITS = {word: name for name, words in _UNITS.items() for word in (name, *words.split())}
"""Every way to write a unit, and the unit."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FACTORS = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS_BEHIND = {"squared": 2, "cubed": 3}
_DENYING = _set(
    "is are was were be not no never maybe perhaps wrong incorrect false if unless except but and "
    "or base binary octal hexadecimal mod modulo remainder factorial root zero one two three four "
    "five six seven eight nine ten eleven twelve twenty thirty forty fifty"
)
"""Words that no unit has in it."""
_CHANGING = _set(
    "more less fewer least most greater smaller larger above below over under plus minus times "
    "divided multiplied by to from than when power negative double twice triple about almost "
    "nearly roughly approximately half halves third thirds quarter quarters fourth fourths fifth "
    "fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths twelfth "
    "twelfths hundredth hundredths thousandth thousandths millionth millionths"
)
"""Words that make another number of one they stand right behind."""
_FILLING = _set("a an the of st nd rd th")
_MATHEMATICS = _set(
    "and or alpha beta gamma delta epsilon theta kappa lambda sigma omega infinity sqrt arcsin "
    "arccos arctan sinh cosh tanh"
)
_ODD_PLURALS = {"people": "person", "children": "child", "men": "man", "women": "woman"}
_ODD_PLURALS |= {"dice": "die", "mice": "mouse", "geese": "goose"}
_MOST_WORDS = 6

_POWER = r"(?:\s*\^\{?[23]\}?)?"
_PIECE = re.compile(
    rf"(?P<group>{GROUP.pattern}{_POWER})|(?P<word>(?<![\\A-Za-z])[A-Za-z]+\.?{_POWER})"
)
_WORD = re.compile(r"([A-Za-z]+)\.?(?:\s*\^\{?([23])\}?)?|/")

Word = tuple[str, int]
"""A word and its exponent."""


@dataclass(frozen=True, slots=True)
class Counted:
    """An answer without the words it ends in, and what they are."""

    rest: str
    units: frozenset[str] = frozenset()
    factor: int = 1
    refused: bool = False
    """Whether the words make something else of the number."""


def split_unit(text: str, *, money: bool = False, letters: bool = False) -> Counted:
    """A text without the words behind its number. With `money`, a dollar sign stood before it;
    with `letters`, a letter may be a unit: 5 m is five meters where the other answer has some."""
    place = _tail(text)
    words = _words(text[place:]) if _counts(text, place, 1 if letters else 2) else []
    dollar: list[Word] = [("dollar", 0)] if money else []
    if not words:
        return Counted(text, frozenset(name for name, _ in dollar))
    factor = 1
    while words and words[0][0] in _FACTORS:
        factor *= _FACTORS[words.pop(0)[0]]
    units = _units(dollar + words) if not words or words[0][0] not in _CHANGING else None
    if units is None:
        return Counted(text, refused=True)
    return Counted(text[:place].rstrip(), units, factor)


def same_units(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two units may be one: a unit may be left out, and more may be said about it."""
    return not first or not second or first <= second or second <= first


def _tail(text: str) -> int:
    """Where the words begin that a text ends in: all in groups, or none."""
    place, kind = len(text), ""
    for piece in reversed(list(_PIECE.finditer(text))):
        of = "group" if piece["group"] else "word"
        between = text[piece.end() : place].strip()
        if (kind and of != kind) or between not in (("", "/") if kind else ("",)):
            break
        place, kind = piece.start(), of
    return place


def _words(tail: str) -> list[Word]:
    """The words in lower case; none if there is something else between them."""
    tail = GROUP.sub(r" \1 ", tail)
    if _WORD.sub("", tail).strip():
        return []
    return [((w[1] or "per").lower(), int(w[2] or 0)) for w in _WORD.finditer(tail)]


def _counts(text: str, place: int, shortest: int) -> bool:
    """Whether the words that begin at a place say what is counted, and are no letters of algebra:
    without `\\text{}` these are units of some letters, and words with a blank before them."""
    words, rest = _words(text[place:]), text[:place].rstrip()
    if not words or not re.search(r"\d|\\pi", rest):
        return False
    first = words[0][0]
    if GROUP.match(text, place):
        return rest[-1] not in "=,+-*/^_(<>:&" and (len(first) > 1 or first in UNITS)
    if not re.search(r"[\d})\]]$|\\pi$", rest):
        return False
    if first in UNITS and len(first) >= shortest:
        return True
    known = first in _FACTORS or first in _POWERS or first in _DENYING | _CHANGING or first == "per"
    like_a_word = len(first) > 3 and re.search("[aeiouy]", first)
    return text[:place] != rest and first not in _MATHEMATICS and bool(known or like_a_word)


def _units(words: list[Word]) -> frozenset[str] | None:
    """The units that words name; None if they name none."""
    names: list[str] = []
    power, per = 0, False
    for word, exponent in words:
        if word in _DENYING or word in _FACTORS or len(words) > _MOST_WORDS:
            return None
        if word in _POWERS_BEHIND:
            if not names:
                return None
            names[-1] += f"^{_POWERS_BEHIND[word]}"
        elif word == "per":
            per = True
        elif word in _POWERS:
            power = _POWERS[word]
        elif word not in _FILLING:
            name = UNITS.get(word) or _singular(word)
            exponent = power or exponent
            name += f"^{exponent}" if exponent else ""
            names.append(f"{names.pop() if names else ''}/{name}" if per else name)
            power, per = 0, False
    return None if power or per else frozenset(names)


def _singular(word: str) -> str:
    if word in _ODD_PLURALS:
        return _ODD_PLURALS[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if re.search("(?:s|x|z|ch|sh)es$", word):
        return word[:-2]
    return word.removesuffix("s") if not word.endswith("ss") else word
