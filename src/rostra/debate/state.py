"""A debate in progress: a frozen value that a turn carries to the next value.

`open_slots()` says who may speak, `view(seat)` what they see, `submit(turn)` what follows. States
can be kept and continued twice, so a branching rollout is two submits from one state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from rostra.debate.comparisons import Comparisons, read_comparisons
from rostra.debate.protocol import Protocol, Slot
from rostra.debate.sections import parse
from rostra.debate.turn import Turn, TurnId
from rostra.debate.verdicts import Verdict, read_verdict
from rostra.debate.views import View, conversation, show, view
from rostra.debate.votes import Ballot, Vote, cast
from rostra.engines.arrays import IntArray
from rostra.engines.chat import Message
from rostra.engines.sampling import Completion
from rostra.errors import DataError, RuleError
from rostra.seeds import derive
from rostra.tasks.canonical import key_of
from rostra.tasks.grading import boxed
from rostra.tasks.question import Question


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a debate ended."""

    ended: Literal["rounds", "consensus", "agreement", "malformed"]
    rounds: int
    """Rounds of speaking that were finished."""
    by: TurnId | None = None
    """The malformed turn that ended it."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Everything that has happened in a debate so far."""

    question: Question
    protocol: Protocol
    seed: int = 0
    turns: tuple[Turn, ...] = ()
    """In the order of slots and, inside a slot, of seats; never in the order of arrival."""
    ballots: Mapping[TurnId, Ballot] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    shown: Mapping[TurnId, str] = field(default_factory=dict)
    """Each turn as others see it."""
    slot: int = 0
    """The slot that is open now."""
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        if len(self.question.choices) < len(self.protocol.sides):
            raise DataError(
                f"question {self.question.id!r} has {len(self.question.choices)} choices; "
                f"{self.protocol.name} needs one for each side"
            )

    @property
    def votes(self) -> tuple[Vote, ...]:
        return tuple(v for turn in self.turns for v in self.ballots[turn.id].votes)

    def open_slots(self) -> tuple[int, ...]:
        """The seats that may speak now; nobody once the debate is over."""
        if self.outcome:
            return ()
        seats = self.protocol.slots[self.slot].seats
        spoken = [t.id.seat for t in self.turns[-len(seats) :] if t.slot == self.slot]
        return tuple([seat for seat in seats if seat not in spoken]) if spoken else seats

    def view(self, seat: int) -> View:
        """What the seat sees now. Turns of the same slot are never in it."""
        self._check_open(seat)
        return view(self, seat, self.slot)

    def conversation(self, seat: int) -> tuple[Message, ...]:
        """The whole prompt of the seat as messages."""
        self._check_open(seat)
        return conversation(self, seat, self.slot)

    def turn_seed(self, seat: int) -> int:
        """The seed of the seat's next turn."""
        return derive(self.seed, "turn", seat, self.protocol.slots[self.slot].round)

    def turn(
        self,
        seen: View,
        completion: Completion,
        observation: IntArray,
        *,
        extends: TurnId | None = None,
        temperature: float | None = None,
    ) -> Turn:
        """Reads a completion that answers a view."""
        slot = self.protocol.slots[seen.slot]
        parsed = parse(completion.text, slot.sections, completion.stop_reason)
        comparison = parsed.sections.get("comparison")
        comparisons = Comparisons()
        if comparison:
            comparisons = read_comparisons(comparison.text, seen.seat, len(self.protocol.seats))
        if temperature is None:
            temperature = self.protocol.seats[seen.seat].temperature
        return Turn(
            id=TurnId(seen.seat, slot.round),
            slot=seen.slot,
            text=completion.text,
            stop_reason=completion.stop_reason,
            parsed=parsed,
            comparisons=comparisons,
            seen=seen.seen,
            names=seen.names,
            extends=extends,
            observation=observation,
            tokens=completion.tokens,
            logprobs=completion.logprobs,
            starts=completion.starts,
            temperature=temperature,
            usage=completion.usage,
        )

    def submit(self, turn: Turn) -> State:
        """The debate after the turn."""
        self._check_open(turn.id.seat)
        slot = self.protocol.slots[self.slot]
        if turn.slot != self.slot or turn.id.round != slot.round:
            raise RuleError(f"turn {turn.id} was made for slot {turn.slot}, not for {self.slot}")
        verdicts = self.verdicts
        if slot.kind == "verdict":
            read = (*verdicts, read_verdict(turn, self.protocol))
            verdicts = tuple(sorted(read, key=lambda v: (v.author.round, v.author.seat)))
        turns = (*self.turns, turn)
        if self.turns and _place(self.turns[-1]) > _place(turn):
            turns = tuple(sorted(turns, key=_place))
        state = State(
            self.question,
            self.protocol,
            self.seed,
            turns,
            {**self.ballots, turn.id: cast(turn.id, turn.comparisons, turn.names)},
            verdicts,
            {**self.shown, turn.id: show(self.protocol, slot, turn)},
            self.slot,
        )
        return state if state.open_slots() else state._advance(slot)

    def _advance(self, done: Slot) -> State:
        """Closes the slot that everybody has spoken in."""
        bad = [t for t in self.turns if t.slot == self.slot and not t.ok]
        if bad and self.protocol.malformed == "abort":
            return self._end(Outcome("malformed", self._rounds_before(done.round), bad[0].id))
        following = self.slot + 1
        slots = self.protocol.slots
        if following < len(slots) and slots[following].round == done.round:
            return replace(self, slot=following)
        if done.kind == "speak" and self._same_answers():
            return self._end(Outcome("agreement", self._rounds_before(done.round + 1)))
        if done.kind == "speak" and self.protocol.ends_on_consensus and self._agreed(done.round):
            # The rounds that are left fall away; ballots and verdicts do not.
            while following < len(slots) and slots[following].kind == "speak":
                following += 1
        if following < len(slots):
            return replace(self, slot=following)
        rounds = self._rounds_before(done.round + 1)
        last = [t.id.round for t in self.turns if slots[t.slot].kind == "speak"]
        agreed = self.protocol.ends_on_consensus and self._agreed(max(last, default=0))
        return self._end(Outcome("consensus" if agreed else "rounds", rounds))

    def _end(self, outcome: Outcome) -> State:
        return replace(self, outcome=outcome, slot=len(self.protocol.slots))

    def _rounds_before(self, round_: int) -> int:
        slots = self.protocol.slots
        spoken = {t.id.round for t in self.turns if slots[t.slot].kind == "speak"}
        return sum(r < round_ for r in spoken)

    def _agreed(self, round_: int) -> bool:
        return all(t.parsed.consensus for t in self.turns if t.id.round == round_)

    def _same_answers(self) -> bool:
        """Whether enough of the agents give one answer."""
        share = self.protocol.ends_on_agreement
        if not share:
            return False
        last = [said[-1] for said in answers_by_seat(self.protocol, self.turns).values()]
        keys = [key_of(answer, self.question) for answer in last if answer]
        most = max(Counter(keys).values(), default=0)
        return most > 0 and most / self.protocol.agents >= share

    def _check_open(self, seat: int) -> None:
        if self.outcome:
            raise RuleError(f"the debate about question {self.question.id!r} is over")
        if seat not in self.open_slots():
            raise RuleError(f"seat {seat} may not speak now; open: {list(self.open_slots())}")


def _place(turn: Turn) -> tuple[int, int]:
    return turn.slot, turn.id.seat


def answer_of(turn: Turn) -> str | None:
    """What a turn answers, as it is written in its last box. A malformed one has no sections, and
    so no answer."""
    return boxed(turn.section("solution"))


def answers_by_seat(protocol: Protocol, turns: Iterable[Turn]) -> dict[int, list[str | None]]:
    """What each agent answered, round by round; None where it gave no answer. Who has not spoken
    is missing."""
    said: dict[int, list[str | None]] = {}
    for turn in turns:
        agent = protocol.seats[turn.id.seat].role == "agent"
        if agent and protocol.slots[turn.slot].kind == "speak":
            said.setdefault(turn.id.seat, []).append(answer_of(turn))
    return dict(sorted(said.items()))


def prompt_tokens(turns: Mapping[TurnId, Turn], turn: Turn) -> IntArray:
    """The whole prompt of a turn, put together from the observations it extends."""
    parts = [turn.observation]
    while turn.extends is not None:
        turn = turns[turn.extends]
        parts += [turn.tokens, turn.observation]
    return np.concatenate(parts[::-1])
