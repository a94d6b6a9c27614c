"""Votes: which turns were compared, by whom, and who is preferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rostra.debate.comparisons import Comparisons, Op
from rostra.debate.turn import Turn, TurnId


class Vote(NamedTuple):
    """The author of one turn prefers turn a to turn b, or holds them equal."""

    author: TurnId
    a: TurnId
    op: Op
    b: TurnId

    def __str__(self) -> str:
        return f"{self.author}: {self.a} {self.op} {self.b}"


@dataclass(frozen=True, slots=True)
class Ballot:
    """The votes of one turn."""

    votes: tuple[Vote, ...] = ()
    unseen: int = 0
    """Comparisons of a turn that the judge had not read, or that holds no answer."""


def comparable(turns: Sequence[Turn], seen: Sequence[TurnId], author: int) -> dict[int, TurnId]:
    """For every other seat, the turn that its name stands for: the latest in the judge's prompt.

    A seat whose latest turn is malformed showed no answer there, so its name stands for nothing.
    """
    shown = set(seen)
    latest: dict[int, Turn] = {}
    for turn in turns:
        seat = turn.id.seat
        if seat != author and turn.id in shown:
            known = latest.get(seat)
            if known is None or known.slot < turn.slot:
                latest[seat] = turn
    return {seat: turn.id for seat, turn in latest.items() if "solution" in turn.parsed.sections}


def cast(author: TurnId, comparisons: Comparisons, names: Mapping[int, TurnId]) -> Ballot:
    """Turns comparisons of seats into votes on the turns that the judge had read."""
    votes = []
    for a, op, b in comparisons.valid:
        if a in names and b in names:
            votes.append(Vote(author, names[a], op, names[b]))
    return Ballot(tuple(votes), len(comparisons.valid) - len(votes))
