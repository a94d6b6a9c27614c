"""A process that compares answers by algebra: `python -m rostra.tasks.algebra SECONDS`.

Every line it reads is a reference and an answer, and every line it writes is 1 or 0. Expressions
that never end are what it is for: when one has taken so many seconds of work, it dies.
"""

import json
import sys
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from rostra.tasks.needs import need
from rostra.tasks.serving import limited, serve

SOME = 1.37
"""What letters stand for where two expressions are to be near each other."""


def main() -> None:
    need("math_verify")
    seconds = float(sys.argv[1])

    def answer(line: str) -> str:
        with limited(seconds):
            return str(int(same(*json.loads(line))))

    serve(answer)


def same(reference: str, answer: str) -> bool:
    """Whether two expressions have one value. An equation is no value, and where it is a
    calculation, all of its sides have to have it; what is about the value has to be near."""
    answer, *near = answer.split(r"\approx")
    if near:
        value = answer.rpartition("=")[2]
        return same(reference, answer) and all(_near(value, side) for side in near)
    if "=" in reference and "=" not in answer:
        return False
    if "=" in answer and "=" not in reference:
        return all(_equal(reference, side) for side in answer.split("="))
    return _equal(reference, answer)


def _equal(reference: str, answer: str) -> bool:
    verify = need("math_verify").verify
    try:
        gold, said = _parsed(reference), _parsed(answer)
        # Twelve places: a number that is only close is another number.
        return bool(verify(gold, said, float_rounding=12, timeout_seconds=0))
    except (Exception, RecursionError, MemoryError):
        return False


def _near(exactly: str, side: str) -> bool:
    """Whether a number may be another, rounded: to two digits, and above ten to three or to a whole
    number."""
    try:
        value, rounded = _value(exactly), _value(side)
    except (Exception, RecursionError, MemoryError):
        return False
    least = min(abs(value) / 20, 0.5)
    return value == rounded or abs(value - rounded) <= max(abs(value) / 200, least)


def _value(text: str) -> complex:
    """An expression as a number, letters as some number; what is in braces is read as a set of
    one."""
    found = _parsed(text)[0]
    (only,) = found if getattr(found, "is_FiniteSet", False) else (found,)
    return complex(only.evalf(subs=dict.fromkeys(only.free_symbols, SOME)))


@lru_cache(maxsize=512)
def _parsed(text: str) -> list[Any]:
    found: list[Any] = need("math_verify").parse(f"${text}$", [_reading()], parsing_timeout=0)
    return [_settled(one) for one in found]


@cache
def _reading() -> Any:
    """How LaTeX is read: without units, or the letter of 5m would be one and go."""
    latex = need("math_verify").LatexExtractionConfig()
    return replace(latex, normalization_config=replace(latex.normalization_config, units=False))


def _settled(expression: Any) -> Any:
    """With i for the imaginary unit, and every other letter a real number: the parser guesses both
    by how the text looks, so that equal texts would differ."""
    sympy = need("sympy")
    put = {
        letter: sympy.I if letter.name == "i" else sympy.Symbol(letter.name, real=True)
        for letter in getattr(expression, "free_symbols", ())
        if letter.name == "i" or not letter.is_real
    }
    return expression.xreplace(put) if put else expression


if __name__ == "__main__":
    main()
