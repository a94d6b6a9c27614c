"""Judged debate: two sides about a text that the judge cannot read, and consultancy, its baseline.

The same slots, views and states as peer debate: the judge is a seat that does not see the
background, and gives a verdict instead of votes.
"""

from rostra.debate.prompts import builtin
from rostra.debate.protocol import MOST_ROUNDS, Protocol, Sight, Slot, check_most
from rostra.debate.seat import Seat
from rostra.errors import ConfigError

SIDES = ("Debater_A", "Debater_B")


def debate(turns: int = 2, *, simultaneous: bool = True, max_tokens: int = 512) -> Protocol:
    """Two debaters speak in turns; then the judge, who saw only the speeches, decides."""
    _check_turns(turns)
    seats = tuple(Seat(i, name, "debater", side=i) for i, name in enumerate(SIDES))
    openings = [(0, 1)] if simultaneous else [(0,), (1,)]
    speeches = [
        Slot(round=r, seats=s, max_tokens=max_tokens) for r in range(turns) for s in openings
    ]
    return _judged("debate", seats, speeches)


def consultancy(side: int, turns: int = 2, *, max_tokens: int = 512) -> Protocol:
    """One consultant argues for one side; the judge decides."""
    _check_turns(turns)
    if side not in range(len(SIDES)):
        raise ConfigError(f"side = {side}: must be 0 or 1")
    seats = (Seat(0, SIDES[side], "consultant", side=side),)
    speeches = [Slot(round=r, seats=(0,), max_tokens=max_tokens) for r in range(turns)]
    return _judged("consultancy", seats, speeches)


def double_consultancy(turns: int = 2, *, max_tokens: int = 512) -> Protocol:
    """Two consultants who never see each other, and one judge who hears both."""
    _check_turns(turns)
    seats = tuple(Seat(i, name, "consultant", side=i) for i, name in enumerate(SIDES))
    alone = Sight(seats=())
    speeches = [
        Slot(round=r, seats=(0, 1), sees=alone, max_tokens=max_tokens) for r in range(turns)
    ]
    return _judged("double-consultancy", seats, speeches)


def _judged(name: str, seats: tuple[Seat, ...], speeches: list[Slot]) -> Protocol:
    judge = Seat(len(seats), "Judge", "judge", temperature=0.0, player="judge")
    last = speeches[-1].round + 1
    sees = Sight(background=False)
    verdict = Slot(last, (judge.index,), "verdict", sees=sees, max_tokens=16)
    return Protocol(name, (*seats, judge), (*speeches, verdict), builtin("judged"), sides=SIDES)


def _check_turns(turns: int) -> None:
    if turns < 1:
        raise ConfigError(f"turns = {turns}: each side speaks at least once")
    check_most("turns", turns, MOST_ROUNDS)
