"""A process that compares answers by algebra: `python -m rostra.tasks.algebra SECONDS`.

Every line it reads is a reference and an answer, and every line it writes is 1 or 0. Expressions
that never end are what it is for: when one has taken so many seconds of work, it dies.
"""

import json
import sys
from functools import lru_cache
from typing import Any

from rostra.tasks.needs import need
from rostra.tasks.serving import limited, serve


def main() -> None:
    need("math_verify")
    seconds = float(sys.argv[1])

    def answer(line: str) -> str:
        with limited(seconds):
            return str(int(same(*json.loads(line))))

    serve(answer)


def same(reference: str, answer: str) -> bool:
    """Whether two expressions have one value."""
    verify = need("math_verify").verify
    try:
        gold, said = _parsed(reference), _parsed(answer)
        # Twelve places: a number that is only close is another number.
        return bool(verify(gold, said, float_rounding=12, timeout_seconds=0))
    except (Exception, RecursionError, MemoryError):
        return False


@lru_cache(maxsize=512)
def _parsed(text: str) -> list[Any]:
    package = need("math_verify")
    latex = [package.LatexExtractionConfig()]
    found: list[Any] = package.parse(f"${text}$", latex, parsing_timeout=0)
    return [_settled(one) for one in found]


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
