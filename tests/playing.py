"""Helpers that play scripted debates, whole through the arena or turn by turn through a state."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostra.arena import Debate, play
from rostra.debate.peer import PeerRules
from rostra.debate.protocol import Protocol
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.debate.views import View
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import ByteChat, encode
from rostra.engines.chat import ChatFormat, Message
from rostra.engines.sampling import Completion, Sampler, SamplingParams, StopReason
from rostra.engines.scripted import Script, ScriptedEngine
from rostra.players.model import ModelPlayer
from rostra.players.player import Player, Reply
from rostra.players.scripted import ScriptedPlayer
from rostra.tasks.question import Question

Line = Callable[[State, View], str]
"""What a seat says, given the debate and its view."""

MALFORMED = "I forgot the sections."


def question(prompt: str = "What is 17 * 24?", **fields: Any) -> Question:
    return Question(**{"id": "q1", "prompt": prompt} | fields)


def wrap(sections: Sequence[str], **bodies: str) -> str:
    """A well-formed reply with these sections. What is not given says N/A; a consensus says NO."""
    texts = {"consensus": "NO"} | bodies
    return "\n".join(f"<{name}>{texts.get(name, 'N/A')}</{name}>" for name in sections)


def answer(state: State, view: View, **bodies: str) -> str:
    """A well-formed reply to a view."""
    bodies = {"solution": f"Agent {view.seat} works it out."} | bodies
    return wrap(state.protocol.slots[view.slot].sections, **bodies)


def ranking(view: View) -> str:
    """Comparisons that prefer a lower seat to a higher one, for all that may be compared."""
    seats = sorted(view.names)
    pairs = zip(seats, seats[1:], strict=False)
    return "\n".join(f"Agent {a} > Agent {b}" for a, b in pairs) or "N/A"


def ranked(state: State, view: View) -> str:
    """A line for a whole debate: well-formed, and the lower seat is always preferred."""
    return answer(state, view, comparison=ranking(view))


def begin(rules: PeerRules | Protocol, seed: int = 0, about: Question | None = None) -> State:
    """A debate in which nobody has spoken."""
    protocol = rules.protocol() if isinstance(rules, PeerRules) else rules
    return State(about or question(), protocol, seed)


def completion(text: str, stop_reason: StopReason = "stop") -> Completion:
    """A completion of plain text, one token a byte."""
    tokens = encode(text)
    starts = np.arange(len(tokens), dtype=np.int32)
    return Completion(text, tokens, np.zeros(len(tokens), np.float32), starts, stop_reason)


def _now(speech: Coroutine[Any, Any, Reply]) -> Reply:
    """What a script says. It never waits for anything, so it needs no event loop."""
    try:
        speech.send(None)
    except StopIteration as done:
        reply: Reply = done.value
        return reply
    raise AssertionError("a scripted player waited for something")


def take(state: State, seat: int, said: str | Line) -> Turn:
    """The turn that a seat would take now."""
    view = state.view(seat)
    line = said if callable(said) else lambda state, view: said
    reply = _now(ScriptedPlayer(line).speak(state, view))
    return state.turn(
        view,
        reply.completion,
        reply.observation,
        extends=reply.extends,
        temperature=reply.temperature,
    )


def say(state: State, seat: int, said: str | Line = answer) -> State:
    """The debate after a seat has spoken; well-formed where nothing else is asked for."""
    return state.submit(take(state, seat, said))


def say_all(state: State, said: str | Line = answer, slots: int = 1) -> State:
    """The debate after so many slots in which everybody has spoken."""
    for _ in range(slots):
        for seat in state.open_slots():
            state = say(state, seat, said)
    return state


def finish_all(state: State, said: str | Line = answer) -> State:
    """The debate at its end."""
    while state.open_slots():
        state = say_all(state, said)
    return state


def played(debate: Debate, player: Player | dict[str, Player]) -> Transcript:
    """One debate, played through the arena without a second attempt."""
    transcripts: list[Transcript] = []

    async def main() -> None:
        # Nothing is returned: in Python 3.11 asyncio.run spells out what its task returns.
        transcripts.extend((await play([debate], player, retries=0)).transcripts)

    asyncio.run(main())
    (transcript,) = transcripts
    return transcript


def play_peer(
    rules: PeerRules, line: Line = ranked, seed: int = 0, about: Question | None = None
) -> Transcript:
    """A peer debate in which all seats speak the line."""
    return played(Debate.peer(about or question(), rules, seed), ScriptedPlayer(line))


def play_judged(protocol: Protocol, line: Line, about: Question, seed: int = 0) -> Transcript:
    """A judged debate in which all seats, the judge too, speak the line."""
    player = ScriptedPlayer(line)
    return played(Debate(about, protocol, seed), {"policy": player, "judge": player})


def play_rehearsal(
    rules: PeerRules, script: Script, seed: int = 0, about: Question | None = None
) -> Transcript:
    """A peer debate in which all seats are one scripted model."""
    engine = ScriptedEngine(script)
    sampler = asyncio.run(engine.sampler())
    debate = Debate.peer(about or question(), rules, seed)
    return played(debate, ModelPlayer(sampler, engine.chat))


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What a sampler was asked, and what it said."""

    prompt: IntArray
    params: SamplingParams
    completion: Completion
    view: View
    conversation: tuple[Message, ...]
    """The whole prompt as messages."""


class Recorder:
    """A player that speaks a line and keeps what its sampler was asked and said."""

    def __init__(self, line: Line, chat: ChatFormat | None = None) -> None:
        self.calls: dict[TurnId, Call] = {}
        self._line = line
        self._chat = chat or ByteChat()

    async def speak(self, state: State, view: View) -> Reply:
        engine = ScriptedEngine([self._line(state, view)])
        sampler = _Recording(await engine.sampler())
        reply = await ModelPlayer(sampler, self._chat).speak(state, view)
        whole = state.conversation(view.seat)
        name = TurnId(view.seat, state.protocol.slots[view.slot].round)
        self.calls[name] = Call(*sampler.heard, view, whole)
        return reply


class _Recording:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.heard: tuple[IntArray, SamplingParams, Completion]

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        completions = await self._sampler.sample(prompt, n, params)
        self.heard = (prompt, params, completions[0])
        return completions

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return await self._sampler.score(tokens, start)


class RewritingChat(ByteChat):
    """A chat format that may not be extended, like templates that rewrite history."""

    extends = False
