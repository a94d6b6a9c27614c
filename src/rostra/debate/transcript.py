"""A finished debate, frozen, and its form as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rostra.debate.peer import PeerRules
from rostra.debate.protocol import Protocol
from rostra.debate.state import Outcome, State
from rostra.debate.turn import Turn, TurnId
from rostra.debate.verdicts import Verdict
from rostra.debate.votes import Ballot, Vote
from rostra.errors import RuleError
from rostra.tasks.question import Question


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """One finished debate: everything needed to show it, score it again and train on it."""

    question: Question
    protocol: Protocol = field(repr=False)
    seed: int
    turns: tuple[Turn, ...] = field(repr=False)
    ballots: Mapping[TurnId, Ballot] = field(repr=False)
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    rules: PeerRules | None = None
    """The settings that the protocol was compiled from, in peer debate."""

    @property
    def votes(self) -> tuple[Vote, ...]:
        """All votes, in the order of turns."""
        return tuple(v for turn in self.turns for v in self.ballots[turn.id].votes)

    def by_seat(self) -> list[list[Turn]]:
        """The turns of every seat, in order."""
        seats: list[list[Turn]] = [[] for _ in self.protocol.seats]
        for turn in self.turns:
            seats[turn.id.seat].append(turn)
        return seats

    def kind(self, turn: Turn) -> str:
        """Whether a turn is a speech, a ballot or a verdict."""
        return self.protocol.slots[turn.slot].kind


def finish(state: State, rules: PeerRules | None = None) -> Transcript:
    """The transcript of a debate that is over."""
    if state.outcome is None:
        raise RuleError(f"the debate is not over: seats {list(state.open_slots())} have to speak")
    return Transcript(
        question=state.question,
        protocol=state.protocol,
        seed=state.seed,
        turns=state.turns,
        ballots=state.ballots,
        verdicts=state.verdicts,
        outcome=state.outcome,
        rules=rules,
    )
