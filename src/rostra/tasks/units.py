"""Units that answers are given in."""

import re

_UNITS = {
    "inch": "in inches",
    "foot": "ft feet",
    "yard": "yd yards",
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
    "gallon": "gallons",
    "second": "s sec secs seconds",
    "minute": "min mins minutes",
    "hour": "h hr hrs hours",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "yr yrs years",
    "dollar": "dollars usd",
    "cent": "cents",
    "mph": "",
    "kph": "kmh",
    "degree": "degrees deg",
    "radian": "radians rad",
    "percent": "",
    "am": "",
    "pm": "",
}
UNITS = {word: name for name, words in _UNITS.items() for word in (name, *words.split())}
"""Every way to write a unit, and the unit."""

_NAMED = re.compile(
    r"(?:(?P<square>square|sq\.?)|(?P<cube>cubic|cu\.?))?\s*(?P<unit>[A-Za-z]+)\.?"
    r"(?:\s*\^\{?(?P<power>[23])\}?)?"
)
_PLAIN = re.compile(
    r"(?P<rest>.*[\d})])\s*(?P<tail>(?:(?:square|cubic|sq|cu)\.?\s+)?[A-Za-z]{2,}\.?"
    r"(?:\s*\^\{?[23]\}?)?)"
)


def split_unit(text: str, group: re.Pattern[str]) -> tuple[str, str]:
    """A text without the unit it ends in, and that unit. `group` matches `\\text{...}`: words in
    one, behind a number, say what is counted even if they are no unit we know."""
    grouped = list(group.finditer(text))
    if grouped:
        last = grouped[-1]
        rest, power = text[: last.start()].strip(), text[last.end() :].strip()
        tail = last[1].strip()
        if re.search(r"\d|\\pi", rest) and re.fullmatch(r"(?:\^\{?[23]\}?)?", power):
            if unit := _unit(tail + power):
                return rest, unit
            if re.fullmatch(r"[A-Za-z][A-Za-z .]+", tail) and not power:
                return rest, ""
        return text, ""
    found = _PLAIN.fullmatch(text)
    if found and (unit := _unit(found["tail"])):
        return found["rest"], unit
    return text, ""


def _unit(text: str) -> str:
    found = _NAMED.fullmatch(text.strip())
    name = UNITS.get(found["unit"].lower()) if found else None
    if not found or not name:
        return ""
    power = "2" if found["square"] else "3" if found["cube"] else found["power"]
    return f"{name}^{power}" if power else name
