"""Models and scripts in a seat: what was sampled comes back token for token."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.arena import Debate, play
from rostra.debate.peer import SECTIONS, PeerRules, peer_v1, peer_v2
from rostra.debate.state import State, prompt_tokens
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import END, ByteChat
from rostra.engines.sampling import Completion, SamplingParams
from rostra.errors import ArenaError, EngineError
from rostra.players.model import ModelPlayer
from rostra.players.player import check_completion
from rostra.players.scripted import ScriptedPlayer
from tests.playing import (
    MALFORMED,
    Line,
    Recorder,
    RewritingChat,
    answer,
    begin,
    completion,
    played,
    question,
    ranked,
    say_all,
    wrap,
)

TEXTS = [
    wrap(SECTIONS[:3], solution="Four.", comparison="Agent 0 > Agent 1\nAgent 2 = Agent 1"),
    "<think>Hm.</think>\n" + wrap(SECTIONS[:3], solution="Five.", evaluation="<|end|> Agent 1:"),
    wrap(SECTIONS[:3], solution="s" * 200),
    wrap(SECTIONS[1:3], comparison="Agent 1 > Agent 2") + " and more after the stop",
    "<solution>never closed",
    MALFORMED,
    "",
]
FOREIGN = [
    wrap(SECTIONS[:3], solution="√2 ≈ 1,41 – 好 😀"),
    "😀" * 40,
    "caf\u00e9 \u2028 <solution>",
    "\udc80 half a pair",
]
DEBATES = st.builds(
    peer_v2,
    agents=st.integers(3, 5),
    rounds=st.integers(1, 3),
    closing_ballot=st.booleans(),
    max_tokens=st.sampled_from([17, 90, 1024]),
    stop=st.sampled_from([None, (), (END,), (ord("."),)]),
)


def cycling(texts: Sequence[str]) -> Line:
    """Says the texts in turn, by seat and slot."""
    return lambda state, view: texts[(view.slot * 5 + view.seat) % len(texts)]


def record(rules: PeerRules, line: Line, seed: int = 0) -> tuple[Transcript, Recorder]:
    recorder = Recorder(line)
    return played(Debate.peer(question(), rules, seed), recorder), recorder


@settings(max_examples=40, deadline=None)
@given(
    rules=DEBATES,
    texts=st.lists(st.sampled_from([*TEXTS, *FOREIGN]), min_size=1, max_size=7),
    seed=st.integers(0, 99),
)
def test_every_prompt_extends_the_prompt_and_the_reply_before_it(
    rules: PeerRules, texts: list[str], seed: int
) -> None:
    transcript, recorder = record(rules, cycling(texts), seed)
    for turns in transcript.by_seat():
        before: list[int] = []
        for turn in turns:
            call = recorder.calls[turn.id]
            prompt = call.prompt.tolist()
            assert prompt[: len(before)] == before
            assert len(prompt) > len(before)
            before = prompt + call.completion.tokens.tolist()


@settings(max_examples=40, deadline=None)
@given(
    rules=DEBATES,
    texts=st.lists(st.sampled_from([*TEXTS, *FOREIGN]), min_size=1, max_size=7),
)
def test_a_transcript_holds_exactly_the_tokens_that_were_seen_and_sampled(
    rules: PeerRules, texts: list[str]
) -> None:
    transcript, recorder = record(rules, cycling(texts))
    by_id = {turn.id: turn for turn in transcript.turns}
    assert recorder.calls.keys() == by_id.keys()
    for turns in transcript.by_seat():
        stream: list[int] = []
        for turn in turns:
            call = recorder.calls[turn.id]
            stream += turn.observation.tolist()
            assert stream == call.prompt.tolist()
            assert prompt_tokens(by_id, turn).tolist() == stream
            assert turn.tokens.tolist() == call.completion.tokens.tolist()
            assert turn.logprobs.tolist() == call.completion.logprobs.tolist()
            assert turn.text == call.completion.text
            stream += turn.tokens.tolist()


@settings(max_examples=40, deadline=None)
@given(rules=DEBATES, texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=7))
def test_the_conversation_rendered_whole_is_the_prompt_that_was_extended(
    rules: PeerRules, texts: list[str]
) -> None:
    transcript, recorder = record(rules, cycling(texts))
    chat = ByteChat()
    for turn in transcript.turns:
        call = recorder.calls[turn.id]
        assert chat.open(call.conversation).tolist() == call.prompt.tolist()


def test_the_end_of_a_turn_is_added_where_the_reply_did_not_sample_it_and_only_there() -> None:
    rules = peer_v2(agents=3, rounds=2, closing_ballot=False)
    texts = {0: answer, 1: lambda state, view: "no sections, so no stop"}
    _, recorder = record(rules, lambda s, v: texts.get(v.seat, answer)(s, v))
    stopped, ended = (recorder.calls[TurnId(seat, 0)] for seat in (0, 1))
    assert stopped.completion.tokens[-1] == ord(">")
    assert ended.completion.tokens[-1] == END
    for seat, call in enumerate((stopped, ended)):
        prompt = recorder.calls[TurnId(seat, 1)].prompt
        assert np.count_nonzero(prompt == END) == np.count_nonzero(call.prompt == END) + 2


def test_a_reply_cut_inside_a_character_comes_back_byte_for_byte() -> None:
    rules = peer_v2(agents=3, rounds=2, closing_ballot=False, max_tokens=5)
    transcript, recorder = record(rules, lambda state, view: "ab😀😀")
    turn = transcript.turns[0]
    assert turn.tokens.tolist() == list("ab😀".encode())[:5]
    assert turn.stop_reason == "length"
    first, second = (recorder.calls[TurnId(0, r)].prompt.tolist() for r in (0, 1))
    assert second[: len(first) + 5] == first + turn.tokens.tolist()


@pytest.mark.parametrize("history", [0, 1], ids=["none", "one round"])
def test_a_window_is_a_new_prompt_at_every_turn(history: int) -> None:
    rules = peer_v1(agents=3, rounds=3, history_rounds=history)
    transcript, recorder = record(rules, ranked)
    for turn in transcript.turns:
        assert turn.extends is None
        assert turn.observation.tolist() == recorder.calls[turn.id].prompt.tolist()


def test_a_chat_format_that_cannot_be_extended_is_rendered_anew() -> None:
    rules = peer_v2(agents=3, rounds=3)
    recorder = Recorder(ranked, RewritingChat())
    transcript = played(Debate.peer(question(), rules), recorder)
    usual, _ = record(rules, ranked)
    assert [t.text for t in transcript.turns] == [t.text for t in usual.turns]
    assert transcript.votes == usual.votes
    by_id = {turn.id: turn for turn in transcript.turns}
    for turn in transcript.turns:
        call = recorder.calls[turn.id]
        assert turn.extends is None
        assert turn.observation.tolist() == call.prompt.tolist()
        assert call.prompt.tolist() == ByteChat().open(call.conversation).tolist()
        assert prompt_tokens(by_id, turn).tolist() == call.prompt.tolist()
    assert all(t.extends == TurnId(t.id.seat, t.id.round - 1) for t in usual.turns if t.id.round)


def test_the_temperature_of_a_persona_reaches_the_sampler_and_the_turn() -> None:
    transcript, recorder = record(peer_v2(agents=7, rounds=1), ranked)
    expected = [0.6, 1.0, 0.9, 1.0, 0.8, 0.6, 1.0]
    for round_ in (0, 1):
        calls = [recorder.calls[TurnId(seat, round_)] for seat in range(7)]
        assert [call.params.temperature for call in calls] == expected
    assert [t.temperature for t in transcript.turns] == expected * 2


def test_limits_stops_and_seeds_of_the_slot_reach_the_sampler() -> None:
    rules = peer_v1(agents=3, rounds=1, max_tokens=321, closing_ballot=True)
    _, recorder = record(rules, ranked, seed=5)
    speak, ballot = (recorder.calls[TurnId(2, r)].params for r in (0, 1))
    assert (speak.max_tokens, speak.stop) == (321, ("</consensus_reason>",))
    assert (ballot.max_tokens, ballot.stop) == (321, ("</comparison>",))
    assert len({call.params.seed for call in recorder.calls.values()}) == 6
    assert speak.seed == say_all(begin(rules, seed=5), slots=2).turn_seed(2)


class Fixed:
    """A sampler that answers with so many copies of one completion."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.params: list[SamplingParams] = []

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        self.params.append(params)
        return [completion(MALFORMED)] * self.copies

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return np.zeros(len(tokens) - start, np.float32)


def test_the_nucleus_of_a_player_reaches_the_sampler() -> None:
    sampler = Fixed(1)
    player = ModelPlayer(sampler, ByteChat(), top_p=0.9, top_k=40)
    state = begin(peer_v2(agents=3))
    reply = asyncio.run(player.speak(state, state.view(0)))
    assert [(p.top_p, p.top_k) for p in sampler.params] == [(0.9, 40)]
    assert (reply.temperature, reply.extends) == (0.6, None)


@pytest.mark.parametrize("copies", [0, 2])
def test_a_sampler_that_does_not_give_one_reply_is_an_engine_error(copies: int) -> None:
    player = ModelPlayer(Fixed(copies), ByteChat())
    state = begin(peer_v2(agents=3))
    with pytest.raises(EngineError, match=f"1 reply and got {copies}"):
        asyncio.run(player.speak(state, state.view(0)))


def test_a_script_of_texts_is_spoken_in_the_order_of_turns() -> None:
    rules = peer_v1(agents=3, rounds=1)
    texts = [wrap(SECTIONS, solution=str(i)) for i in range(3)]
    transcript = played(Debate.peer(question(), rules), ScriptedPlayer(texts))
    assert [t.section("solution") for t in transcript.turns] == ["0", "1", "2"]


def test_a_script_that_runs_out_fails_the_debate() -> None:
    player = ScriptedPlayer([MALFORMED] * 2)
    debate = Debate.peer(question(), peer_v2(agents=3))
    with pytest.raises(ArenaError, match="no line left"):
        asyncio.run(play([debate], player, retries=0))


def test_a_script_that_is_a_function_sees_the_debate_and_the_view() -> None:
    def line(state: State, view: View) -> str:
        said = f"seat {view.seat} has seen {len(view.seen)} of {len(state.turns)} turns"
        return answer(state, view, solution=said)

    transcript = played(Debate.peer(question(), peer_v1(agents=3, rounds=1)), ScriptedPlayer(line))
    assert [t.section("solution") for t in transcript.turns] == [
        f"seat {i} has seen {i} of {i} turns" for i in range(3)
    ]


@pytest.mark.parametrize(
    ("tokens", "logprobs", "says"),
    [
        ([1, 2, 3], [-0.5, -0.5], "3 tokens with 2 log-probabilities"),
        ([1, 2], [-0.5, float("nan")], "not a number"),
        ([1, 2], [-0.5, float("-inf")], "not a number"),
    ],
)
def test_a_reply_that_could_not_be_trained_on_is_refused(
    tokens: list[int], logprobs: list[float], says: str
) -> None:
    arrays = (np.array(tokens), np.array(logprobs), np.arange(len(tokens)))
    with pytest.raises(EngineError, match=says):
        check_completion(Completion("ab", *arrays, "stop"))
