"""Verdicts: whom a judge believes, and how firmly."""

import re
from dataclasses import dataclass

from rostra.debate.protocol import Protocol
from rostra.debate.sections import without_thinking
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
    """Reads `Debater_A | 91%`, not in the thinking. What cannot be read, or contradicts itself, is
    an error and never an even chance."""
    sides = [side.lower() for side in protocol.sides]
    aloud = without_thinking(turn.text).translate(_UNMARK)
    said = {
        (sides.index(name.lower()), float(percent) / 100)
        for name, percent in _VERDICT.findall(aloud)
        if name.lower() in sides and float(percent) <= 100
    }
    if not said:
        return Verdict(turn.id, None, f"no line of the form `{protocol.sides[0]} | 91%`")
    if len(said) > 1:
        return Verdict(turn.id, None, "more than one verdict, and they differ")
    (side, sure) = said.pop()
    rest = (1 - sure) / (len(sides) - 1)
    return Verdict(turn.id, tuple(sure if i == side else rest for i in range(len(sides))))
