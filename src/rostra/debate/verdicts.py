"""Verdicts: whom a judge believes, and how firmly."""

import re
from dataclasses import dataclass

from rostra.debate.protocol import Protocol
from rostra.debate.turn import Turn, TurnId

_UNMARK = str.maketrans("", "", "*`")
_VERDICT = re.compile(r"\b(\w++)[^\S\n]*+\|[^\S\n]*+([0-9]{1,3}(?:\.[0-9]{1,6})?)[^\S\n]*+%")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The probability that a judge gives to each choice; None where it could not be read."""

    author: TurnId
    confidence: tuple[float, ...] | None
    error: str | None = None


def read_verdict(turn: Turn, protocol: Protocol) -> Verdict:
    """Reads `Debater_A | 91%`. What cannot be read is an error, never an even chance."""
    sides = [side.lower() for side in protocol.sides]
    for name, percent in _VERDICT.findall(turn.text.translate(_UNMARK)):
        sure = float(percent) / 100
        if name.lower() in sides and sure <= 1:
            side = sides.index(name.lower())
            rest = (1 - sure) / (len(sides) - 1)
            return Verdict(turn.id, tuple(sure if i == side else rest for i in range(len(sides))))
    return Verdict(turn.id, None, f"no line of the form `{protocol.sides[0]} | 91%`")
