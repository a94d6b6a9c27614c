"""A line that says how far something is: live in a terminal, now and then anywhere else."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console

from rostra.runs.display import duration

PAUSE = 5.0
"""Seconds between two lines where nothing can be drawn over."""


class ProgressLine:
    """Counts to a total under a name; a new name begins anew."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._status = screen.status("starting") if screen.is_terminal else None
        self._name = ""
        self._began = time.monotonic()
        self._first = 0
        self._spoke = self._began

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        """Something that cannot be counted."""
        if self._status:
            self._status.update(text)
        else:
            self._line(text)

    def count(self, name: str, done: int, total: int, tokens: int) -> None:
        now = time.monotonic()
        if name != self._name:
            self._name, self._began, self._first, self._spoke = name, now, done, now
        new = done - self._first
        parts = [f"{name}: {done} of {total} debates", f"{tokens:,} tokens"]
        if tokens and now > self._began:
            parts.append(f"{tokens / (now - self._began):,.0f} tok/s")
        if new and total > done:
            parts.append(f"{duration((now - self._began) / new * (total - done))} to go")
        text = ", ".join(parts)
        if self._status:
            self._status.update(text)
        elif now - self._spoke >= PAUSE:
            self._spoke = now
            self._line(text)

    def _line(self, text: str) -> None:
        self._screen.out(text, highlight=False)
        self._screen.file.flush()
