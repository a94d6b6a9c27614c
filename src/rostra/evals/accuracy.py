"""What debates and answers say about how good a policy is, question by question.

Everything is a number for each question first, and a mean over questions with its interval then:
answers to one question are not independent of each other, questions are.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.evals.statistics import interval, ratio_interval
from rostra.learn.lesson import answers_of
from rostra.rewards.streams import gen_rewards
from rostra.tasks.grading import canonical

Marks = Mapping[TurnId, float]
Z = 1.96


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over questions with its 95% interval; not a number where nothing is known."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        known = [value for value in values if not np.isnan(value)]
        if known and (set(known) == {0.0} or set(known) == {1.0}):
            # A bootstrap of equal values knows no doubt; Wilson's interval does.
            doubt = Z**2 / (len(known) + Z**2)
            return cls(known[0], *((0.0, doubt) if known[0] == 0 else (1 - doubt, 1.0)))
        return cls(float(np.mean(known)) if known else float("nan"), *interval(known))


@dataclass(frozen=True, slots=True)
class Answer:
    """One solution: what it answers, and whether that is right."""

    seat: int
    round: int
    text: str | None
    """None where the reply was malformed or has no box."""
    right: float
    formed: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that was measured on one question."""

    question: str
    accuracy: float
    """What the mode is about: of one answer, of the common one, or of the seat of the policy."""
    measures: dict[str, float] = field(default_factory=dict)
    votes_right: int = 0
    votes_decided: int = 0
    tokens: int = 0
    """Sampled."""
    prompt_tokens: int = 0
    """Read, each token once where a conversation goes on."""

    def to_data(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "accuracy": self.accuracy,
            **self.measures,
            "votes_right": self.votes_right,
            "votes_decided": self.votes_decided,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
        }


def answers_in(transcript: Transcript, marks: Marks) -> list[Answer]:
    """The solutions of a debate, in the order of turns."""
    said = answers_of(transcript)
    return [
        Answer(
            turn.id.seat,
            turn.id.round,
            canonical(said[turn.id]) if turn.id in said else None,
            marks.get(turn.id, 0.0),
            turn.ok,
            len(turn.tokens),
        )
        for turn in transcript.turns
        if transcript.kind(turn) == "speak"
    ]


def shares(answers: Sequence[Answer]) -> dict[str, float]:
    """What k answers to one question amount to. avg@k: the share that is right. pass@k: one is.
    cons@k: more than half are. vote@k: the most common one is."""
    marks = [answer.right for answer in answers]
    k = len(marks)
    return {
        "format": _mean([answer.formed for answer in answers]),
        "avg@k": _mean(marks),
        "pass@k": float(max(marks, default=0.0) >= 1),
        "cons@k": float(sum(mark >= 1 for mark in marks) > k / 2),
        "vote@k": plurality_right(answers),
    }


def plurality(answers: Sequence[Answer]) -> str | None:
    """The most common answer; on a tie, the one that was given first."""
    counted = Counter(answer.text for answer in answers if answer.text is not None)
    return counted.most_common(1)[0][0] if counted else None


def plurality_right(answers: Sequence[Answer]) -> float:
    top = plurality(answers)
    return max((a.right for a in answers if a.text == top and top is not None), default=0.0)


def latest(answers: Sequence[Answer], round_: int | None = None) -> list[Answer]:
    """The last answer of every seat, in or before a round."""
    found: dict[int, Answer] = {}
    for answer in answers:
        if round_ is None or answer.round <= round_:
            found[answer.seat] = answer
    return [found[seat] for seat in sorted(found)]


def finals(transcript: Transcript, answers: Sequence[Answer]) -> list[Answer]:
    """The last answer of every agent. One who never came to speak, because the debate was over
    before, has given none."""
    spoken = {answer.seat: answer for answer in latest(answers)}
    nothing = [
        Answer(seat.index, 0, None, 0.0, False, 0)
        for seat in transcript.protocol.seats
        if seat.role == "agent" and seat.index not in spoken
    ]
    return sorted([*spoken.values(), *nothing], key=lambda answer: answer.seat)


def winner_right(transcript: Transcript, answers: Sequence[Answer]) -> float:
    """Whether the answer that did best by votes is right: the highest mean gen reward of the last
    turns that give it; without votes, the most common one."""
    final = {(a.seat, a.round): a for a in latest(answers) if a.text is not None}
    earned = defaultdict[str, list[float]](list)
    for turn, reward in gen_rewards(transcript.votes).items():
        answer = final.get((turn.seat, turn.round))
        if answer is not None and answer.text is not None:
            earned[answer.text].append(reward)
    if not earned:
        return plurality_right(list(final.values()))
    best = max(earned, key=lambda text: (_mean(earned[text]), len(earned[text])))
    return max(a.right for a in final.values() if a.text == best)


def direct_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], k: int
) -> Row:
    """One turn each, k of them: the accuracy of a single answer."""
    answers = [a for t, m in zip(transcripts, marks, strict=True) for a in answers_in(t, m)][:k]
    found = shares(answers)
    by_seat = {
        f"seat {s}": _mean([a.right for a in answers if a.seat == s]) for s in _seats(answers)
    }
    return Row(
        question, found["avg@k"], {**found, **by_seat, "k": len(answers)}, **_cost(transcripts)
    )


def vote_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], budget: int
) -> Row:
    """Self-consistency: the most common of as many answers as a budget of tokens pays for. The one
    that crosses the budget is still counted, so that there is always one."""
    answers: list[Answer] = []
    spent = 0
    for answer in [a for t, m in zip(transcripts, marks, strict=True) for a in answers_in(t, m)]:
        if answers and spent >= budget:
            break
        answers.append(answer)
        spent += answer.tokens
    found = shares(answers)
    cost = _cost(transcripts)
    # What was sampled beyond the budget is not part of the method.
    share = spent / cost["tokens"] if cost["tokens"] else 0.0
    cost = {"tokens": spent, "prompt_tokens": round(cost["prompt_tokens"] * share)}
    return Row(question, found["vote@k"], {**found, "k": len(answers), "budget": budget}, **cost)


def debate_row(question: str, transcript: Transcript, marks: Marks) -> Row:
    """A whole debate: the accuracy of the most common last answer, beside a plain vote on the
    first ones, which a debate must beat to be worth its cost."""
    answers = answers_in(transcript, marks)
    last = finals(transcript, answers)
    first_round = min((a.round for a in answers), default=0)
    measures = shares(last)
    measures["vote@first"] = plurality_right(latest(answers, first_round))
    measures["winner"] = winner_right(transcript, answers)
    for round_ in sorted({a.round for a in answers}):
        for name, value in shares(latest(answers, round_)).items():
            measures[f"round {round_ + 1}/{name}"] = value
    for answer in last:
        measures[f"seat {answer.seat}"] = answer.right
    right, decided = votes_right(transcript, marks)
    measures["k"] = len(last)
    return Row(
        question,
        measures["vote@k"],
        measures,
        votes_right=right,
        votes_decided=decided,
        **_cost([transcript]),
    )


def roles_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], policy: str = "policy"
) -> Row:
    """The policy in every seat in turn, fixed opponents in the others: the accuracy of the seat of
    the policy, averaged over seats."""
    own: list[float] = []
    others: list[float] = []
    wins: list[float] = []
    by_seat: dict[str, float] = {}
    right = decided = 0
    formed: list[float] = []
    for transcript, known in zip(transcripts, marks, strict=True):
        seats = {seat.index for seat in transcript.protocol.seats if seat.player == policy}
        last = finals(transcript, answers_in(transcript, known))
        own += [a.right for a in last if a.seat in seats]
        formed += [a.formed for a in last if a.seat in seats]
        others += [a.right for a in last if a.seat not in seats]
        by_seat |= {f"seat {a.seat}": a.right for a in last if a.seat in seats}
        ids = {(a.seat, a.round) for a in last if a.seat in seats}
        wins += [
            (reward + 1) / 2
            for turn, reward in gen_rewards(transcript.votes).items()
            if (turn.seat, turn.round) in ids
        ]
        counted = votes_right(transcript, known, seats)
        right, decided = right + counted[0], decided + counted[1]
    measures = {
        "format": _mean(formed),
        "avg@k": _mean(own),
        "opponents": _mean(others),
        "win_rate": _mean(wins),
        **by_seat,
        "k": float(len(transcripts)),
    }
    return Row(question, measures["avg@k"], measures, right, decided, **_cost(transcripts))


def votes_right(
    transcript: Transcript, marks: Marks, authors: set[int] | None = None
) -> tuple[int, int]:
    """How many votes prefer a right answer to a wrong one, and how many decide between such."""
    found = [
        marks[v.a] > marks[v.b]
        for v in transcript.votes
        if v.op == ">"
        and v.a in marks
        and v.b in marks
        and marks[v.a] != marks[v.b]
        and (authors is None or v.author.seat in authors)
    ]
    return sum(found), len(found)


def summary(rows: Sequence[Row]) -> dict[str, Measure]:
    """Means over questions, each with its interval."""
    names = dict.fromkeys(name for row in rows for name in row.measures)
    found = {"accuracy": Measure.of([row.accuracy for row in rows])}
    for name in names:
        found[name] = Measure.of([row.measures[name] for row in rows if name in row.measures])
    right = [float(row.votes_right) for row in rows]
    decided = [float(row.votes_decided) for row in rows]
    if sum(decided):
        share = sum(right) / sum(decided)
        found["votes right"] = Measure(share, *ratio_interval(right, decided))
    found["tokens"] = Measure.of([float(row.tokens) for row in rows])
    found["prompt_tokens"] = Measure.of([float(row.prompt_tokens) for row in rows])
    return found


def _cost(transcripts: Sequence[Transcript]) -> dict[str, int]:
    turns: list[Turn] = [turn for t in transcripts for turn in t.turns]
    return {
        "tokens": sum(len(turn.tokens) for turn in turns),
        "prompt_tokens": sum(len(turn.observation) for turn in turns),
    }


def _seats(answers: Sequence[Answer]) -> list[int]:
    return sorted({answer.seat for answer in answers})


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
