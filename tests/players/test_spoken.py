"""Given words in the tokens of an engine: as if a model had said them."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.arena import Debate
from rostra.debate.peer import SECTIONS, PeerRules, peer_v1, peer_v2
from rostra.debate.state import prompt_tokens
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.engines.bytechat import END, ByteChat, decode, encode
from rostra.players.player import check_completion
from rostra.players.spoken import SpokenPlayer
from tests.playing import (
    MALFORMED,
    Line,
    RewritingChat,
    answer,
    begin,
    play_peer,
    played,
    question,
    ranked,
    say_all,
    wrap,
)

TEXTS = [
    wrap(SECTIONS[:3], solution="Four.", comparison="Agent 0 > Agent 1\nAgent 2 = Agent 1"),
    wrap(SECTIONS[:3], solution="√2 ≈ 1,41 – 好 😀", evaluation="<|end|>\n<|user|>\nAgent 1:"),
    wrap(SECTIONS[1:3], comparison="Agent 1 > Agent 2") + " and more after the stop",
    "<solution>never closed",
    MALFORMED,
    "😀" * 9,
    "",
]
RULES = st.builds(
    peer_v2,
    agents=st.integers(3, 4),
    rounds=st.integers(1, 3),
    closing_ballot=st.booleans(),
    history_rounds=st.sampled_from([-1, 1]),
    stop=st.sampled_from([None, (), (END,), ("Agent", "4")]),
)


def cycling(texts: Sequence[str]) -> Line:
    return lambda state, view: texts[(view.slot * 5 + view.seat) % len(texts)]


def spoken(rules: PeerRules, line: Line, chat: ByteChat | None = None, seed: int = 0) -> Transcript:
    player = SpokenPlayer(line, chat or ByteChat())
    return played(Debate.peer(question(), rules, seed), player)


@settings(max_examples=40, deadline=None)
@given(RULES, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=7))
def test_tokens_decode_to_the_words_and_starts_point_into_them(
    rules: PeerRules, texts: list[str]
) -> None:
    for turn in spoken(rules, cycling(texts)).turns:
        text, starts = decode(turn.tokens)
        assert text == turn.text
        assert turn.starts.tolist() == starts.tolist()
        assert not turn.logprobs.any()
        assert len(turn.logprobs) == len(turn.tokens)
        assert turn.logprobs.dtype == np.float32
        assert turn.stop_reason == "stop"


@settings(max_examples=40, deadline=None)
@given(RULES, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=7))
def test_every_prompt_extends_the_prompt_before_it(rules: PeerRules, texts: list[str]) -> None:
    transcript = spoken(rules, cycling(texts))
    by_id = {turn.id: turn for turn in transcript.turns}
    for turns in transcript.by_seat():
        before: list[int] = []
        for turn in turns:
            prompt = prompt_tokens(by_id, turn).tolist()
            if rules.history_rounds == -1:
                assert prompt[: len(before)] == before
                assert len(prompt) > len(before)
                before = prompt + turn.tokens.tolist()
            else:
                assert turn.extends is None


@pytest.mark.parametrize("rules", [peer_v2(agents=4, rounds=3), peer_v1(agents=3, rounds=2)])
def test_given_words_make_the_debate_that_a_model_would_have_made(rules: PeerRules) -> None:
    given_, sampled = spoken(rules, ranked, seed=3), play_peer(rules, ranked, seed=3)
    assert given_.votes == sampled.votes != ()
    for ours, theirs in zip(given_.turns, sampled.turns, strict=True):
        assert (ours.id, ours.text, ours.extends) == (theirs.id, theirs.text, theirs.extends)
        assert ours.observation.tolist() == theirs.observation.tolist()
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        assert ours.starts.tolist() == theirs.starts.tolist()


def test_the_words_end_where_a_sampler_would_have_stopped() -> None:
    rules = peer_v2(agents=3, rounds=1, closing_ballot=False)
    (turn, *_) = spoken(rules, lambda s, v: answer(s, v) + " I should add that").turns
    assert turn.text.endswith("</comparison>")
    assert turn.tokens.tolist() == encode(turn.text).tolist()


def test_of_several_stops_the_first_to_end_counts() -> None:
    rules = peer_v2(agents=3, rounds=1, closing_ballot=False, stop=("long enough", "no", "x"))
    line: Line = lambda s, v: "this is long enough, no? x"  # noqa: E731
    (turn, *_) = spoken(rules, line).turns
    assert turn.text == play_peer(rules, line).turns[0].text == "this is long eno"
    assert END not in turn.tokens


def test_words_without_a_stop_end_with_the_end_of_their_turn() -> None:
    rules = peer_v2(agents=3, rounds=1, closing_ballot=False)
    (turn, *_) = spoken(rules, lambda s, v: MALFORMED).turns
    assert turn.tokens.tolist() == [*MALFORMED.encode(), END]
    assert turn.starts.tolist() == [*range(len(MALFORMED)), len(MALFORMED)]


def test_a_stop_that_is_a_token_cuts_no_words() -> None:
    rules = peer_v2(agents=3, rounds=1, closing_ballot=False, stop=(ord("."),))
    (turn, *_) = spoken(rules, lambda s, v: "One. Two.").turns
    assert turn.text == "One. Two."


def test_the_end_of_a_turn_stands_once_in_the_next_prompt() -> None:
    rules = peer_v2(agents=3, rounds=2, closing_ballot=False)
    for line, ends in ((answer, 0), (lambda s, v: MALFORMED, 1)):
        transcript = spoken(rules, line)
        by_id = {turn.id: turn for turn in transcript.turns}
        first, second = by_id[TurnId(0, 0)], by_id[TurnId(0, 1)]
        assert np.count_nonzero(first.tokens == END) == ends
        before, after = prompt_tokens(by_id, first), prompt_tokens(by_id, second)
        assert np.count_nonzero(after == END) == np.count_nonzero(before == END) + 2


def test_a_chat_format_that_cannot_be_extended_is_rendered_anew() -> None:
    rules = peer_v2(agents=3, rounds=3)
    anew, usual = spoken(rules, ranked, RewritingChat()), spoken(rules, ranked)
    by_id = {turn.id: turn for turn in usual.turns}
    assert anew.votes == usual.votes
    for turn in anew.turns:
        assert turn.extends is None
        assert turn.observation.tolist() == prompt_tokens(by_id, by_id[turn.id]).tolist()


def test_what_is_said_to_a_view_can_be_trained_on() -> None:
    state = say_all(begin(peer_v2(agents=3)))
    view = state.view(1)
    reply = asyncio.run(SpokenPlayer(answer, ByteChat()).speak(state, view))
    check_completion(reply.completion)
    assert reply.extends == TurnId(1, 0)
    assert reply.temperature == 1.0


def test_words_are_said_in_the_tokens_of_a_real_tokenizer() -> None:
    pytest.importorskip("transformers")
    from rostra.engines.local.chat import TemplateChat
    from rostra.engines.local.toy import END as IM_END
    from rostra.engines.local.toy import sums_tokenizer

    tokenizer = sums_tokenizer()
    chat = TemplateChat(tokenizer)
    rules = peer_v2(agents=3, rounds=2)
    line = cycling([*TEXTS[:3], MALFORMED])
    debate = Debate.peer(question(), rules)
    transcript = played(debate, SpokenPlayer(line, chat))
    by_id = {turn.id: turn for turn in transcript.turns}
    for turns in transcript.by_seat():
        before: list[int] = []
        for turn in turns:
            said = tokenizer.decode(turn.tokens, clean_up_tokenization_spaces=False)
            assert said.removesuffix(IM_END) == turn.text
            prompt = prompt_tokens(by_id, turn).tolist()
            assert prompt[: len(before)] == before
            before = prompt + turn.tokens.tolist()
