"""A process that makes and scores puzzles of reasoning-gym: `python -m rostra.tasks.gym SECONDS`.

Some of its tasks draw from shared random state, depend on the order of sets, print, or evaluate the
answer as code. All that stays in here.
"""

import json
import random
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rostra.tasks.needs import need
from rostra.tasks.serving import limited, serve

_ARITHMETIC = re.compile(
    r"(?:\d+(?:\.\d+)?|(?:sin|cos|tan|exp|log|sqrt|pi|[A-Za-z])(?![\w.])|[-+*/^()\[\],\s])*"
)
EVALUATES: Mapping[str, re.Pattern[str]] = {
    "binary_matrix": _ARITHMETIC,
    "countdown": _ARITHMETIC,
    "intermediate_integration": _ARITHMETIC,
    "n_queens": re.compile(r"[_Q\s]*"),
    "polynomial_multiplication": _ARITHMETIC,
    "simple_integration": _ARITHMETIC,
    "spiral_matrix": _ARITHMETIC,
    "string_insertion": re.compile(r"[A-Z]*"),
}
"""Tasks that run an answer as Python, and all that they get to see: arithmetic, a board, letters.
None of it does anything when it is run."""
_NO_NUMBER = re.compile(r"(?<![a-z])(?:nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)
"""What Python reads as a number, and some scorers then call as near as can be."""
CHUNK = 10
"""Puzzles that are made for one line."""
MAKING = 300.0
"""Seconds of work for that. The process has to end by itself: who asked may be gone."""


class Place(NamedTuple):
    """Where a puzzle comes from: one place, one puzzle, always."""

    kind: str
    seed: int
    size: int
    number: int


def main() -> None:
    need("reasoning_gym")
    seconds = float(sys.argv[1])

    def answer(line: str) -> str:
        match json.loads(line):
            case ["names"]:
                return json.dumps(names())
            case ["make", str() as kind, int() as seed, int() as size, int() as start]:
                with limited(MAKING):
                    return json.dumps(made(Place(kind, seed, size, start)))
            case ["score", str() as kind, int() as seed, int() as size, int() as at, str() as said]:
                place = Place(kind, seed, size, at)
                with limited(MAKING):
                    _entry(place)
                with limited(seconds):
                    return str(int(right(place, said)))
        raise ValueError(line)

    serve(answer)


def names() -> list[str]:
    return sorted(need("reasoning_gym.factory").DATASETS)


def made(start: Place) -> list[tuple[str, str]] | str:
    """The next puzzles from a place on, with their answers; or why there are none."""
    try:
        end = min(start.number + CHUNK, start.size)
        entries = [_entry(start._replace(number=n)) for n in range(start.number, end)]
    except Exception as error:
        return str(error)
    return [(entry["question"], entry["answer"]) for entry in entries]


def right(place: Place, answer: str) -> bool:
    """Whether an answer is right. One that is nearly right is wrong."""
    if place.kind in EVALUATES and not EVALUATES[place.kind].fullmatch(answer):
        return False
    try:
        entry = _entry(place)
        # Without blanks, because a scorer takes them out.
        if _NO_NUMBER.search("".join(answer.split())) and not _NO_NUMBER.search(entry["answer"]):
            return False
        dataset = _dataset(place.kind, place.seed, place.size)
        return bool(dataset.score_answer(answer, entry) >= 1)
    except (Exception, RecursionError, MemoryError):
        return False


@lru_cache(maxsize=128)
def _dataset(kind: str, seed: int, size: int) -> Any:
    return need("reasoning_gym").create_dataset(kind, seed=seed, size=size)


@lru_cache(maxsize=4096)
def _entry(place: Place) -> Any:
    random.seed(place.seed + place.number)
    np.random.seed((place.seed + place.number) % 2**32)
    return _dataset(place.kind, place.seed, place.size)[place.number]


if __name__ == "__main__":
    main()
