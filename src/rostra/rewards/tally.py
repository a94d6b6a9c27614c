"""Peer v1: one number per agent, from all votes of a debate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rostra.debate.votes import Vote
from rostra.engines.arrays import FloatArray, IntArray


class SeatVote(NamedTuple):
    """A vote by seats: which rounds they spoke in does not matter in v1."""

    author: int
    a: int
    op: str
    b: int


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How often each agent won, lost and tied."""

    wins: IntArray
    losses: IntArray
    ties: IntArray
    valid: int
    malformed: int
    """Votes on agents that do not exist, on one agent twice, or on the voter himself."""

    @property
    def matchups(self) -> IntArray:
        return self.wins + self.losses + self.ties

    def win_rate(self) -> FloatArray:
        """(wins + ties / 2) / matchups; 0 for an agent nobody compared. In [0, 1]."""
        return np.asarray((self.wins + 0.5 * self.ties) / np.maximum(self.matchups, 1))

    def win_minus_loss(self) -> FloatArray:
        """(wins - losses) / matchups; 0 for an agent nobody compared. In [-1, 1]."""
        return np.asarray((self.wins - self.losses) / np.maximum(self.matchups, 1))


def seat_votes(votes: Iterable[Vote]) -> list[SeatVote]:
    """Votes on turns as votes on the seats that spoke them."""
    return [SeatVote(v.author.seat, v.a.seat, v.op, v.b.seat) for v in votes]


def tally(votes: Sequence[SeatVote], n_agents: int) -> Tally:
    """Counts the valid votes."""
    seats = range(n_agents)
    valid = [v for v in votes if v.a in seats and v.b in seats and len({v.author, v.a, v.b}) == 3]
    a = np.array([v.a for v in valid], np.int64)
    b = np.array([v.b for v in valid], np.int64)
    tied = np.array([v.op == "=" for v in valid], bool)

    def count(agents: IntArray) -> IntArray:
        return np.bincount(agents, minlength=n_agents)

    return Tally(
        wins=count(a[~tied]),
        losses=count(b[~tied]),
        ties=count(a[tied]) + count(b[tied]),
        valid=len(valid),
        malformed=len(votes) - len(valid),
    )
