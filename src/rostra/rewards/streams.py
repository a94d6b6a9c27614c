"""Peer v2: a reward for every turn on every stream.

`gen` pays for the answer: solution and evaluation. `judge` pays for the judgement: comparisons.
A turn that is missing from a result has no signal, which is never the same as 0.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rostra.debate.peer import Consensus
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.votes import Vote

GEN, JUDGE, WHOLE = "gen", "judge", "whole"
STREAMS = (GEN, JUDGE, WHOLE)
"""`whole` is the one stream of peer v1: every token of an agent."""


def gen_rewards(votes: Iterable[Vote]) -> dict[TurnId, float]:
    """r = 2 f / (f + g) - 1 for each turn with votes; f for, g against, a tie half of each."""
    for_ = defaultdict[TurnId, float](float)
    total = defaultdict[TurnId, int](int)
    for vote in _impartial(votes):
        for turn in (vote.a, vote.b):
            total[turn] += 1
        if vote.op == "=":
            for_[vote.a] += 0.5
            for_[vote.b] += 0.5
        else:
            for_[vote.a] += 1
    return {turn: 2 * for_[turn] / n - 1 for turn, n in total.items()}


def judge_rewards(votes: Iterable[Vote], consensus: Consensus) -> dict[TurnId, float]:
    """For each turn, the mean over its votes of +1 for agreeing with the consensus on that pair,
    -1 for opposing it, 0 where the consensus or the vote is a tie.

    leave_one_out: the majority of the other judges of the pair; without another judge a vote has
    no signal. majority: of all judges, the voter included.
    """
    votes = _impartial(votes)
    balance = defaultdict[tuple[TurnId, TurnId], int](int)
    judges = defaultdict[tuple[TurnId, TurnId], int](int)
    own_balance = defaultdict[tuple[int, TurnId, TurnId], int](int)
    own_votes = defaultdict[tuple[int, TurnId, TurnId], int](int)
    for vote in votes:
        low, high, sign = _directed(vote)
        balance[low, high] += sign
        judges[low, high] += 1
        own_balance[vote.author.seat, low, high] += sign
        own_votes[vote.author.seat, low, high] += 1
    scores = defaultdict[TurnId, list[int]](list)
    for vote in votes:
        low, high, sign = _directed(vote)
        verdict, others = balance[low, high], judges[low, high]
        if consensus == "leave_one_out":
            # A judge who voted on the pair twice is left out twice.
            verdict -= own_balance[vote.author.seat, low, high]
            others -= own_votes[vote.author.seat, low, high]
        if others:
            scores[vote.author].append(sign * ((verdict > 0) - (verdict < 0)))
    return {turn: sum(marks) / len(marks) for turn, marks in scores.items()}


def _impartial(votes: Iterable[Vote]) -> list[Vote]:
    """Votes whose author is not a side. Reading comparisons drops the others already."""
    return [v for v in votes if v.author.seat not in (v.a.seat, v.b.seat)]


def _directed(vote: Vote) -> tuple[TurnId, TurnId, int]:
    """The pair in one order, and +1 where the vote prefers its first turn, -1 its second."""
    sign = 0 if vote.op == "=" else 1
    return (vote.a, vote.b, sign) if vote.a < vote.b else (vote.b, vote.a, -sign)


def format_penalties(transcript: Transcript, penalty: float) -> dict[TurnId, float]:
    """-penalty for every malformed turn, and for every turn that could see the answers of at least
    two others and cast no valid vote. A turn that could not compare is exempt, whatever its round.
    A penalty of 0 is none: it leaves no signal behind.
    """
    if not penalty:
        return {}
    return {
        turn.id: -penalty
        for turn in transcript.turns
        if not turn.ok or (not transcript.ballots[turn.id].votes and turn.could_compare)
    }


def judge_truth(votes: Iterable[Vote], correct: Mapping[TurnId, float]) -> dict[TurnId, float]:
    """For each turn, the mean over its votes on pairs of which one is right and one is wrong of +1
    for preferring the right one, -1 for the wrong one, 0 for a tie."""
    scores = defaultdict[TurnId, list[int]](list)
    for vote in votes:
        a, b = correct.get(vote.a), correct.get(vote.b)
        if a is not None and b is not None and a != b:
            scores[vote.author].append(0 if vote.op == "=" else 1 if a > b else -1)
    return {turn: sum(marks) / len(marks) for turn, marks in scores.items()}


def guided(votes: Iterable[Vote], guide: Iterable[Vote]) -> dict[TurnId, float]:
    """For each turn, the mean over its votes of +1 for agreeing with a guide on that pair, -1 for
    opposing it, 0 where either is a tie. A pair that the guide did not judge gives no signal."""
    balance = defaultdict[tuple[TurnId, TurnId], int](int)
    for vote in guide:
        low, high, sign = _directed(vote)
        balance[low, high] += sign
    scores = defaultdict[TurnId, list[int]](list)
    for vote in _impartial(votes):
        low, high, sign = _directed(vote)
        if (low, high) in balance:
            verdict = balance[low, high]
            scores[vote.author].append(sign * ((verdict > 0) - (verdict < 0)))
    return {turn: sum(marks) / len(marks) for turn, marks in scores.items()}


def mix(peer: float | None, truth: float | None, weight: float) -> float | None:
    """(1 - w) * peer + w * truth. A part without signal adds nothing; with neither, there is none.

    With w = 0 the truth is no part of the reward, and with w = 1 the peers are not.
    """
    parts = [
        share * value
        for share, value in ((1 - weight, peer), (weight, truth))
        if value is not None and share > 0
    ]
    return sum(parts) if parts else None
