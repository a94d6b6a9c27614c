"""A process that makes and scores puzzles of reasoning-gym: `python -m rostra.tasks.gym SECONDS`.

Some of its tasks draw from shared random state, depend on the order of sets, print, or evaluate the
answer as code. All that stays in here.
"""

import json
import random
import re
import sys
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rostra.tasks.needs import need
from rostra.tasks.serving import limited, serve

EVALUATES = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
"""Tasks that run an answer as Python. They get to see arithmetic only."""
_ARITHMETIC = re.compile(
    r"(?:\d+(?:\.\d+)?|(?:sin|cos|tan|exp|log|sqrt|pi|[A-Za-z])(?![\w.])|[-+*/^()\[\],\s])*"
)
CHUNK = 10
"""Puzzles that are made for one line."""


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
                return json.dumps(made(Place(kind, seed, size, start)))
            case ["score", str() as kind, int() as seed, int() as size, int() as at, str() as said]:
                place = Place(kind, seed, size, at)
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
    if place.kind in EVALUATES and not _ARITHMETIC.fullmatch(answer):
        return False
    try:
        dataset = _dataset(place.kind, place.seed, place.size)
        return bool(dataset.score_answer(answer, _entry(place)) >= 1)
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
