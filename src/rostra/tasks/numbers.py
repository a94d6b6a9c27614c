"""Plain numbers, however they are written: whole, decimal, mixed, with a period, with an exponent,
in another base."""

import math
import re
from fractions import Fraction

from rostra.tasks.names import split

_THOUSANDS = re.compile(
    r"(?P<open>\\\{|[(\[])|(?P<close>\\\}|[)\]])"
    r"|(?<![\w.,^])[1-9]\d{0,2}(?:,\d{3})++(?!,?\d|_)"
)
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))")
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")
_POWER_OF_TEN = re.compile(
    r"(?<![\w.^/\\})])(\d+(?:\.\d+)?)\s*(?:\\times|\\cdot|[x*])\s*"
    r"10\s*\^\s*(?:\{\s*([+-]?\d{1,3})\s*\}|([+-]?\d{1,3}))(?![\w.^!(])"
)
# 2e-3 may be two times e less three, so a negative exponent takes a mantissa nobody gives to e.
_EXPONENT = re.compile(
    r"(?<![\w.^/\\})])(\d+(?:\.\d+)?)[eE]\+?(\d{1,3})(?![\w.^!(])"
    r"|(?<![\w.^/\\})])(\d+\.\d+|1)[eE](-\d{1,3})(?![\w.^!(])"
)
_OVER = re.compile(r"\\frac\s*(?:\{\s*(\d+)\s*\}|(\d)(?=\s*[\d{]))")
_UNDER = re.compile(r"(\\frac\{\d+\})\s*(?:\{\s*(\d+)\s*\}|(\d))")
_MIXED = re.compile(r"(?<![\w.^/\\})])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}")
_PRODUCT = re.compile(r"(?<![\w.^/\\})])(\d+)\s*(?=\(\s*\{?(?:\d+\s*/|\\frac))")
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<n>\d+)|(?P<a>\d+)/(?P<b>\d+)"
    r"|\{?\\frac\{(?P<over>[+-]?\d+)\}\{(?P<under>[+-]?\d+)\}\}?)"
)
_BASE = re.compile(
    r"(?<![\w\\])(?=[({]?[A-Za-z]*\d)"
    r"(?:\(([0-9A-Za-z]++)\)|\{([0-9A-Za-z]++)\}|([0-9A-Za-z]++))_(?:\{(\d++)\}|(\d++))"
)
_SUBSCRIPT = re.compile(r"(?:[\d)]|(?<!\{)\})_")
_RATIO = re.compile(r"(\d+):(\d+)")
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d")


def number(tight: str) -> Fraction | None:
    """The value of a number that is whole or a fraction; `exact` makes these of all others."""
    found = _NUMBER.fullmatch(tight)
    if not found:
        return None
    over = int(found["n"] or found["a"] or found["over"])
    under = int(found["b"] or found["under"] or 1)
    if not under:
        return None
    return Fraction(-over if found["sign"] == "-" else over, under)


def exact(text: str) -> str:
    """A text with every decimal, mixed number and power of ten in it as a whole number or a
    fraction, and with the sign of a product that looks like a mixed number."""
    text = _UNDER.sub(r"\1{\2\3}", _OVER.sub(r"\\frac{\1\2}", text))
    text = _EXPONENT.sub(_scaled, _POWER_OF_TEN.sub(_scaled, text))
    text = _DECIMAL.sub(_fraction, _REPEATING.sub(_repeated, text))
    return _PRODUCT.sub(r"\1\\cdot ", _MIXED.sub(_mixed, text))


def written(value: Fraction) -> str:
    """A value as `number` reads it."""
    if value.denominator == 1:
        return str(value.numerator)
    return rf"{{\frac{{{value.numerator}}}{{{value.denominator}}}}}"


def without_thousands(text: str) -> str:
    """Without the commas that part thousands. In brackets, commas part what they list."""
    depth = 0

    def joined(found: re.Match[str]) -> str:
        nonlocal depth
        depth += bool(found["open"]) - bool(found["close"])
        return found[0] if depth else found[0].replace(",", "")

    return _THOUSANDS.sub(joined, text)


def based(tight: str) -> tuple[str, str] | None:
    """The digits of a number in another base, and that base. Digits that are letters take a base
    above ten: two times x_1 is no such number."""
    found = _BASE.fullmatch(tight)
    if not found:
        return None
    digits, base = _digits(found)
    return (digits, base) if digits.isdigit() or int(base) > 10 else None


def same_based(said: str, right: str) -> bool | None:
    """Whether two tight texts with numbers in other bases are the same, lists in any order; None if
    neither has such a number, or both the same ones: algebra takes no notice of a base."""
    texts = said, right
    if not any(based(text) or _SUBSCRIPT.search(text) for text in texts):
        return None
    first, second = (_BASE.sub(lambda found: "_".join(_digits(found)), text) for text in texts)
    if sorted(split(first)) == sorted(split(second)):
        return True
    bases = [sorted(map(_digits, _BASE.finditer(text))) for text in texts]
    others = any(based(text) or _SUBSCRIPT.search(_BASE.sub("", text)) for text in texts)
    return False if others or bases[0] != bases[1] else None


def _digits(found: re.Match[str]) -> tuple[str, str]:
    digits = found[1] or found[2] or found[3]
    return digits.upper().lstrip("0") or "0", found[4] or found[5]


def same_ratio(said: str, right: str) -> bool | None:
    """Whether two texts are one ratio, where that can be told: half past ten is not 1:3."""
    ratios = [_RATIO.fullmatch(text) for text in (said, right)]
    if not any(ratio and _CLOCK.fullmatch(ratio[0]) for ratio in ratios):
        return None
    pairs = [(int(ratio[1]), int(ratio[2])) for ratio in ratios if ratio]
    if len(pairs) == 2:
        # Minutes have two digits, and parts of a ratio no zero before them.
        return pairs[0] == pairs[1] and (said == right or ":0" not in said + right)
    # One that is in lowest terms may be a ratio after all, and a fraction is never a time.
    return None if math.gcd(*pairs[0]) == 1 else False


def _scaled(found: re.Match[str]) -> str:
    mantissa, exponent = (group for group in found.groups() if group)
    return written(Fraction(mantissa) * Fraction(10) ** int(exponent))


def _repeated(found: re.Match[str]) -> str:
    whole, fixed, period = found[1], found[2], found[3] or found[4]
    scale = 10 ** len(fixed)
    value = Fraction(int((whole or "0") + fixed), scale)
    value += Fraction(int(period), scale * (10 ** len(period) - 1))
    return written(value)


def _fraction(found: re.Match[str]) -> str:
    return written(Fraction(int((found[1] or "0") + found[2]), 10 ** len(found[2])))


def _mixed(found: re.Match[str]) -> str:
    whole, over, under = map(int, found.groups())
    return written(whole + Fraction(over, under)) if under else found[0]
