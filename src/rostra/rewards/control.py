"""Controls: what learning would look like if the votes meant nothing, or if nobody judged.

A policy that gets better from votes may only have become sharper or better formed. `coin` keeps
everything about the votes but what they say; `plurality` pays solutions for being common.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.votes import Ballot, Vote
from rostra.seeds import derive
from rostra.tasks.canonical import keys_of

Answers = Mapping[TurnId, str]
"""What each solution answers; turns without an answer are missing."""


def coin_flipped(transcript: Transcript) -> Transcript:
    """The same debate with the same pairs and ties, every other vote turned by a coin."""
    ballots = {
        turn: Ballot(tuple(_flipped(transcript.seed, vote) for vote in ballot.votes), ballot.unseen)
        for turn, ballot in transcript.ballots.items()
    }
    return replace(transcript, ballots=ballots)


def _flipped(seed: int, vote: Vote) -> Vote:
    # The pair in one order, so that the coin does not know what the vote said.
    low, high = min(vote.a, vote.b), max(vote.a, vote.b)
    heads = derive(seed, "coin", *vote.author, *low, *high) % 2
    if vote.op == "=":
        return vote
    return Vote(vote.author, low, vote.op, high) if heads else Vote(vote.author, high, vote.op, low)


def plurality_rewards(transcript: Transcript, answers: Answers) -> dict[TurnId, float]:
    """+1 for each solution that gives the most common answer of its round, -1 for each other; on a
    tie for the most common, all that are tied get +1. A round with one answer only has no signal:
    there is nothing to agree with."""
    rounds = defaultdict[int, list[TurnId]](list)
    for turn in transcript.turns:
        if turn.id in answers:
            rounds[turn.id.round].append(turn.id)
    rewards: dict[TurnId, float] = {}
    for turns in rounds.values():
        if len(turns) < 2:
            continue
        keys = keys_of({turn: answers[turn] for turn in turns}, transcript.question)
        counted = Counter(keys.values())
        top = max(counted.values())
        rewards |= {turn: 1.0 if counted[key] == top else -1.0 for turn, key in keys.items()}
    return rewards
