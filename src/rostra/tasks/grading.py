"""What a solution answers, and whether that is right."""

import re

_BRACE = re.compile(r"(\\boxed\s*+\{)|[{}]")
_INTEGER = re.compile(r"[+-]?\d{1,18}(?:\.0+)?")


def boxed(solution: str) -> str | None:
    """The content of the last `\\boxed{}` that is whole; braces inside it may nest."""
    # Where the content of each open box begins; -1 for a brace that opens no box.
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for found in _BRACE.finditer(solution):
        if found[0] != "}":
            opened.append(found.end() if found[1] else -1)
        elif opened and (start := opened.pop()) >= 0 and (last is None or start > last[0]):
            last = (start, found.start())
    return solution[last[0] : last[1]].strip() if last else None


def same_integer(answer: str, reference: str) -> bool:
    """Whether two texts are the same whole number; `1,200` and `$1200` are."""
    numbers = [_integer(text) for text in (answer, reference)]
    return numbers[0] is not None and numbers[0] == numbers[1]


def _integer(text: str) -> int | None:
    plain = text.strip().strip("$").replace(",", "").replace("\\$", "").strip()
    return int(plain.partition(".")[0]) if _INTEGER.fullmatch(plain) else None
