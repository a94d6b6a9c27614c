"""Marks that were given before, so that what is slow is done once."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

Pair = tuple[str, str]
"""An answer, and what it answers."""
LIMIT = 100_000


class Marks:
    """The newest of them. Any thread may ask."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._known: OrderedDict[Pair, bool] = OrderedDict()
        self._lock = threading.Lock()

    def recall(self, pairs: Iterable[Pair]) -> dict[Pair, bool]:
        with self._lock:
            return {pair: self._known[pair] for pair in pairs if pair in self._known}

    def keep(self, marks: Mapping[Pair, bool]) -> None:
        with self._lock:
            self._known.update(marks)
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
