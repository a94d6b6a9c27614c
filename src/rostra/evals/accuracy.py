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
from rostra.evals.statistics import Measure, ratio_interval
from rostra.learn.lesson import answers_of
from rostra.rewards.streams import gen_rewards
from rostra.tasks.canonical import key_of

Marks = Mapping[TurnId, float]
NUMBERS = ("k", "budget")
"""Measures of a row that are no shares."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply: what it answers, and whether that is right."""

    seat: int
    round: int
    text: str | None
    """What it has in common with answers that are plainly the same. None where the reply was
    malformed or has no box."""
    right: float
    formed: bool
    tokens: int
    prompt_tokens: int = 0
    said: str | None = None
    """The answer as it was written."""


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that was measured on one question."""

    question: str
    accuracy: float
    """What the mode is about: of one answer, of the common one, or of the seat of the policy."""
    measures: dict[str, float] = field(default_factory=dict)
    votes_right: int = 0
    votes_decided: int = 0
    tokens: float = 0
    """Sampled for what the accuracy is about: one answer of direct, all answers of a vote, one
    debate of the others."""
    prompt_tokens: float = 0
    """Read for it, each token once where a conversation goes on."""

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


# What is answered


def answers_in(transcript: Transcript, marks: Marks) -> list[Answer]:
    """The replies of agents in which there may be an answer, in the order of turns."""
    said = answers_of(transcript)
    return [
        Answer(
            turn.id.seat,
            turn.id.round,
            key_of(said[turn.id], transcript.question) if turn.id in said else None,
            marks.get(turn.id, 0.0),
            turn.ok,
            turn.sampled,
            turn.read,
            said.get(turn.id),
        )
        for turn in transcript.turns
        if transcript.kind(turn) == "speak"
        and transcript.protocol.seats[turn.id.seat].role == "agent"
    ]


def latest(answers: Sequence[Answer], round_: int | None = None) -> list[Answer]:
    """The last reply of every seat, in or before a round."""
    found: dict[int, Answer] = {}
    for answer in answers:
        if round_ is None or answer.round <= round_:
            found[answer.seat] = answer
    return [found[seat] for seat in sorted(found)]


def held(answers: Sequence[Answer], round_: int | None = None) -> list[Answer]:
    """The last answer that every seat gave, in or before a round: a later reply without one takes
    nothing back. A seat that never gave any has its last reply."""
    # A stable sort: replies with an answer come last, in their own order.
    return latest(sorted(answers, key=lambda answer: answer.text is not None), round_)


def liked(transcripts: Sequence[Transcript], among: Sequence[Answer]) -> dict[str, float]:
    """For each of some answers, the mean gen reward of all turns that give it; an answer that
    nobody voted on is missing."""
    known = {answer.text for answer in among}
    earned = defaultdict[str, list[float]](list)
    for transcript in transcripts:
        rewards = gen_rewards(transcript.votes)
        for answer in answers_in(transcript, {}):
            reward = rewards.get(TurnId(answer.seat, answer.round))
            if reward is not None and answer.text is not None and answer.text in known:
                earned[answer.text].append(reward)
    # Rounded, so that the order of a sum cannot decide between equals.
    return {text: round(sum(each) / len(each), 9) for text, each in earned.items()}


def choose(answers: Sequence[Answer], by: Mapping[str, float] | None = None) -> Answer | None:
    """The answer that does best by some number, then the more common one, then the one that was
    given first; without numbers, the most common one. Of those who gave it, the first who used the
    words that most did: words may be graded differently."""
    count = Counter(answer.text for answer in answers if answer.text is not None)
    among = [text for text in count if text in by] if by else list(count)
    # Of equals, max takes the first.
    best = max(among, key=lambda text: (by[text] if by else 0.0, count[text]), default=None)
    given = [answer for answer in answers if best is not None and answer.text == best]
    words = Counter(answer.said for answer in given)
    return max(given, key=lambda answer: words[answer.said], default=None)


def chosen_right(answers: Sequence[Answer], by: Mapping[str, float] | None = None) -> float:
    """The mark of the answer that is chosen."""
    best = choose(answers, by)
    return best.right if best is not None else 0.0


# What it amounts to


def shares(answers: Sequence[Answer], replies: Sequence[Answer] | None = None) -> dict[str, float]:
    """What k answers to one question amount to. avg@k: the share of replies that is right. pass@k:
    one answer is. cons@k: more than half are. vote@k: the most common one is. In a debate, replies
    are the last ones of seats, and answers those that seats hold."""
    replies = answers if replies is None else replies
    marks = [answer.right for answer in answers]
    return {
        "format": _mean([reply.formed for reply in replies]),
        "avg@k": _mean([reply.right for reply in replies]),
        "pass@k": float(max(marks, default=0.0) >= 1),
        "cons@k": float(sum(mark >= 1 for mark in marks) > len(marks) / 2),
        "vote@k": chosen_right(answers),
    }


def direct_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], k: int
) -> Row:
    """One turn each, k of them: the accuracy of a single answer, and what a single one costs."""
    answers = [a for t, m in zip(transcripts, marks, strict=True) for a in answers_in(t, m)][:k]
    found = shares(answers)
    by_seat = {
        f"seat {s}": _mean([a.right for a in answers if a.seat == s])
        for s in sorted({answer.seat for answer in answers})
    }
    return Row(
        question,
        found["avg@k"],
        {**found, **by_seat, "k": len(answers)},
        tokens=_mean([answer.tokens for answer in answers]),
        prompt_tokens=_mean([answer.prompt_tokens for answer in answers]),
    )


def vote_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], budget: int
) -> Row:
    """Self-consistency: the most common of as many answers as a budget of tokens pays for. The one
    that crosses the budget is still counted, so that there is always one. What was sampled beyond
    it is no part of the method, and none of its cost."""
    answers: list[Answer] = []
    spent = 0
    for answer in [a for t, m in zip(transcripts, marks, strict=True) for a in answers_in(t, m)]:
        if answers and spent >= budget:
            break
        answers.append(answer)
        spent += answer.tokens
    found = shares(answers)
    return Row(
        question,
        found["vote@k"],
        {**found, "k": len(answers), "budget": budget},
        tokens=spent,
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
    )


def debate_row(question: str, transcript: Transcript, marks: Marks) -> Row:
    """A whole debate: the accuracy of the most common answer that seats hold at its end, beside a
    plain vote on the first ones, which a debate must beat to be worth its cost."""
    answers = [*_silence(transcript), *answers_in(transcript, marks)]
    last = held(answers)
    measures = shares(last, latest(answers))
    # A debate that ended early stands as it ended, in the rounds that it did not need.
    rounds = sorted({slot.round for slot in transcript.protocol.slots if slot.kind == "speak"})
    measures["vote@first"] = chosen_right(held(answers, rounds[0]))
    by = liked([transcript], last)
    measures["winner"], measures["voted"] = chosen_right(last, by), float(bool(by))
    for round_ in rounds:
        found = shares(held(answers, round_), latest(answers, round_))
        measures |= {f"round {round_ + 1}/{name}": value for name, value in found.items()}
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
        **_cost(transcript),
    )


def roles_row(
    question: str, transcripts: Sequence[Transcript], marks: Sequence[Marks], policy: str = "policy"
) -> Row:
    """The policy in every seat in turn, fixed opponents in the others: the accuracy of the seat of
    the policy, averaged over seats, and what one such debate costs."""
    own: list[Answer] = []
    replies: list[Answer] = []
    others: list[float] = []
    wins: list[float] = []
    right = decided = 0
    for transcript, known in zip(transcripts, marks, strict=True):
        seats = {seat.index for seat in transcript.protocol.seats if seat.player == policy}
        answers = [*_silence(transcript), *answers_in(transcript, known)]
        ours = [a for a in held(answers) if a.seat in seats]
        own += ours
        replies += [a for a in latest(answers) if a.seat in seats]
        others += [a.right for a in held(answers) if a.seat not in seats]
        rewards = gen_rewards(transcript.votes)
        names = [TurnId(a.seat, a.round) for a in ours]
        wins += [(rewards[name] + 1) / 2 for name in names if name in rewards]
        counted = votes_right(transcript, known, seats)
        right, decided = right + counted[0], decided + counted[1]
    measures = {
        "format": _mean([reply.formed for reply in replies]),
        "avg@k": _mean([reply.right for reply in replies]),
        "opponents": _mean(others),
        "win_rate": _mean(wins),
        **{f"seat {answer.seat}": answer.right for answer in own},
        "k": float(len(transcripts)),
    }
    costs = [_cost(transcript) for transcript in transcripts]
    return Row(
        question,
        _mean([answer.right for answer in own]),
        measures,
        right,
        decided,
        tokens=_mean([cost["tokens"] for cost in costs]),
        prompt_tokens=_mean([cost["prompt_tokens"] for cost in costs]),
    )


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
    found = {"accuracy": Measure.share([row.accuracy for row in rows])}
    for name in names:
        values = [row.measures[name] for row in rows if name in row.measures]
        found[name] = Measure.of(values) if name in NUMBERS else Measure.share(values)
    if "voted" in found and not found["voted"].mean:
        del found["winner"]  # it would be that of a plain count
    right = [float(row.votes_right) for row in rows]
    decided = [float(row.votes_decided) for row in rows]
    if sum(decided):
        share = sum(right) / sum(decided)
        found["votes right"] = Measure(share, *ratio_interval(right, decided))
    found["tokens"] = Measure.of([row.tokens for row in rows])
    found["prompt_tokens"] = Measure.of([row.prompt_tokens for row in rows])
    return found


def _silence(transcript: Transcript) -> list[Answer]:
    """How every agent begins: without an answer. One who never came to speak, because the debate
    was over before, also ends so."""
    seats = [seat.index for seat in transcript.protocol.seats if seat.role == "agent"]
    return [Answer(seat, -1, None, 0.0, False, 0) for seat in seats]


def _cost(transcript: Transcript) -> dict[str, int]:
    turns: tuple[Turn, ...] = transcript.turns
    return {
        "tokens": sum(turn.sampled for turn in turns),
        "prompt_tokens": sum(turn.read for turn in turns),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
