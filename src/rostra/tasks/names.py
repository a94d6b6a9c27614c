"""Values with names: `x=5` says as much as 5, and `x=2,y=3` as much as (2,3)."""

import re

_SYMBOL = r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?'*"
_NAME = (
    rf"(?:{_SYMBOL}|[a-wA-W]'*\([a-z]\)|[fghFGHPQ]'*\([^()=]+\)"
    r"|m?\s*\\angle\s*[A-Z]{1,3}|\[?[A-Z]{2,5}\]?|[A-Z][a-z]{2,})"
)
_ASSIGNED = re.compile(rf"(?s)({_NAME})\s*=(.+)")
_SUM = re.compile(rf"(?s)({_SYMBOL}(?:\s*\+\s*{_SYMBOL})+)\s*=(.+)")
_TUPLE = re.compile(rf"(?s)\(\s*({_SYMBOL}(?:\s*,\s*{_SYMBOL})+)\s*\)\s*=\s*\((.+)\)")
_OPEN, _CLOSED = "([{", ")]}"


def without_names(said: str, right: str) -> tuple[str, str] | None:
    """An answer and its reference without names that only one of them gives; None if they name
    other things. A chain keeps all that stands behind the name."""
    said, right = said.strip(), right.strip()
    several = [_several(text) for text in (said, right)]
    if several[0] and several[1]:
        if several[0].keys() != several[1].keys():
            return None
        return _in_order(several[0]), _in_order(several[1])
    if several[0] and "=" not in right:
        return _as_written(several[0]), right
    if several[1] and "=" not in said:
        return said, _as_written(several[1])
    named = [_single(text) for text in (said, right)]
    if named[0] and named[1]:
        return (named[0][1], named[1][1]) if named[0][0] == named[1][0] else (said, right)
    if named[1] and "=" not in said:
        return said, named[1][1]
    if named[0] and "=" not in right:
        return named[0][1], right
    if "=" not in right and (total := _SUM.fullmatch(said)):
        letters = [letter.strip() for letter in total[1].split("+")]
        if len(set(letters)) == len(letters):
            return total[2], right
    return said, right


def split(text: str) -> list[str]:
    """What commas part, outside of all brackets."""
    depth, start, parts = 0, 0, []
    for place, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def around(text: str) -> str:
    """The brackets around a text with commas, such as `(]`; empty if there are none."""
    bare = text.strip().replace(r"\{", "{").replace(r"\}", "}")
    return bare[0] + bare[-1] if enclosed(bare) and len(split(bare[1:-1])) > 1 else ""


def enclosed(text: str) -> bool:
    """Whether one pair of brackets is around all of a text."""
    if len(text) < 2 or text[0] not in _OPEN or text[-1] not in _CLOSED:
        return False
    depth = 0
    for sign in text[:-1]:
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if depth == 0:
            return False
    return True


def _single(text: str) -> tuple[str, str] | None:
    """A name and its value. A name that is given many times stands for many values."""
    parts = [_ASSIGNED.fullmatch(part) for part in split(text)]
    found = [part for part in parts if part]
    if len(found) == len(parts) and len({part[1] for part in found}) == 1:
        return found[0][1], ",".join(part[2].strip() for part in found)
    whole = _ASSIGNED.fullmatch(text)
    return (whole[1], whole[2]) if whole and "=" not in ",".join(split(whole[2])[1:]) else None


def _several(text: str) -> dict[str, str]:
    """Values by name; empty unless there are several names."""
    whole = _TUPLE.fullmatch(text)
    if whole:
        names, values = split(whole[1]), split(whole[2])
    else:
        bare = text[1:-1] if around(text) == "()" else text
        parts = [_ASSIGNED.fullmatch(part) for part in split(bare)]
        names = [part[1] for part in parts if part]
        values = [part[2].strip() for part in parts if part]
        if len(parts) != len(names):
            return {}
    different = len(set(names)) == len(names) == len(values) > 1
    return dict(zip(names, values, strict=True)) if different else {}


def _in_order(values: dict[str, str]) -> str:
    """The values as a tuple, in the order of the names."""
    return f"({','.join(values[name] for name in sorted(values))})"


def _as_written(values: dict[str, str]) -> str:
    """The values as a tuple, in the order they have in the text, but for coordinates: x is before y
    wherever it stands."""
    return _in_order(values) if values.keys() <= set("xyz") else f"({','.join(values.values())})"
