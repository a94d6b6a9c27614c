"""Judgement bootstrapping: a stronger model judges the same debates, and judges learn from it.

Its ballots answer the prompts that the policy's judges had. They never get into the debate: they
are something to agree with, as long as their weight lasts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.debate.votes import Vote, cast
from rostra.errors import EngineError, EngineUnavailable
from rostra.players.player import Player


@dataclass(frozen=True, slots=True)
class Guidance:
    """What the guide said about a batch of debates."""

    votes: list[tuple[Vote, ...]]
    """For each debate."""
    failed: int
    """Ballots that the engine did not give."""


async def guide_votes(transcripts: Sequence[Transcript], guide: Player) -> Guidance:
    """Asks the guide for every ballot of every debate."""
    asked = [
        (place, *ballot)
        for place, transcript in enumerate(transcripts)
        for ballot in _ballots(transcript)
    ]
    votes = await asyncio.gather(*(_vote(guide, state, seat) for _, state, seat in asked))
    found: list[list[Vote]] = [[] for _ in transcripts]
    for (place, _, _), given in zip(asked, votes, strict=True):
        found[place] += given or ()
    return Guidance([tuple(given) for given in found], sum(given is None for given in votes))


def _ballots(transcript: Transcript) -> list[tuple[State, int]]:
    """The states in which the ballots of a debate were open, and who had to speak."""
    slots = transcript.protocol.slots
    ballots = [turn for turn in transcript.turns if slots[turn.slot].kind == "ballot"]
    if not ballots:
        return []
    state = State(transcript.question, transcript.protocol, transcript.seed)
    for turn in transcript.turns:
        if turn.slot == ballots[0].slot:
            break
        state = state.submit(turn)
    return [(state, turn.id.seat) for turn in ballots]


async def _vote(guide: Player, state: State, seat: int) -> tuple[Vote, ...] | None:
    view = state.view(seat)
    try:
        reply = await guide.speak(state, view)
    except EngineUnavailable:
        raise
    except EngineError:
        return None
    turn: Turn = state.turn(view, reply.completion, reply.observation)
    return cast(turn.id, turn.comparisons, turn.names).votes
