"""One completed response, and its name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from rostra.debate.comparisons import Comparisons
from rostra.debate.sections import Parsed
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.sampling import StopReason, Usage
from rostra.errors import DataError

_NAME = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


class TurnId(NamedTuple):
    """A seat speaks at most once in a round, so the two name a turn. Written `seat.round`."""

    seat: int
    round: int

    def __str__(self) -> str:
        return f"{self.seat}.{self.round}"

    @classmethod
    def read(cls, text: str) -> Self:
        seat, _, round_ = text.partition(".")
        if not _NAME.fullmatch(text):
            raise DataError(f"{text!r} does not name a turn: write seat.round, as in 2.0")
        return cls(int(seat), int(round_))


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a seat said, how it was read, and every token of it."""

    id: TurnId
    slot: int
    """Which opening of the protocol it fills."""
    text: str
    stop_reason: StopReason
    parsed: Parsed
    comparisons: Comparisons
    seen: tuple[TurnId, ...]
    """The turns in its prompt, its own earlier ones included, in the order shown."""
    names: Mapping[int, TurnId]
    """For every other seat, the turn that its name stands for in this turn's comparisons."""
    extends: TurnId | None
    """The own turn whose prompt and response this prompt begins with, if it does."""
    observation: IntArray = field(repr=False)
    """The prompt tokens that come after those of `extends`; all of them where it is None."""
    tokens: IntArray = field(repr=False)
    logprobs: FloatArray = field(repr=False)
    starts: IntArray = field(repr=False)
    """For each token, the character of `text` that holds its first byte."""
    temperature: float
    """The temperature its tokens were sampled at."""
    usage: Usage | None = None
    """What it cost, where its tokens do not say it."""

    @property
    def read(self) -> int:
        """The tokens of its prompt that had to be paid for: those that are new, but for a server
        all of them."""
        return self.usage.read if self.usage else len(self.observation)

    @property
    def sampled(self) -> int:
        """The tokens that were sampled for it."""
        return self.usage.sampled if self.usage else len(self.tokens)

    @property
    def ok(self) -> bool:
        return self.parsed.ok

    @property
    def could_compare(self) -> bool:
        """Whether its prompt held the answers of at least two others."""
        return len(self.names) >= 2

    def section(self, name: str) -> str:
        """The text of a section; empty where the turn has none."""
        section = self.parsed.sections.get(name)
        return section.text if section else ""
