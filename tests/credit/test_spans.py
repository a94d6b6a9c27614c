"""Which stream each sampled token belongs to, down to tokens that split a character."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.arena import Debate, play
from rostra.credit.spans import token_streams
from rostra.debate.judged import debate as judged_debate
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.state import Outcome, State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.engines.bytechat import decode
from rostra.engines.offsets import decode_tokens
from rostra.engines.sampling import Completion, StopReason
from rostra.players.scripted import ScriptedPlayer
from rostra.rewards.streams import STREAMS
from rostra.tasks.question import Question
from tests.rewards.builders import QUESTION, rehearse, scripted


def turn_of(
    pieces: Sequence[bytes], stop_reason: StopReason = "stop", rules: PeerRules | None = None
) -> tuple[Transcript, Turn]:
    """A first turn whose tokens hold these bytes; an empty piece is a control token."""
    rules = rules or peer_v2(agents=3)
    state = State(QUESTION, rules.protocol())
    text, starts = decode_tokens(b"".join(pieces), np.array([len(p) for p in pieces], np.int64))
    tokens = np.arange(len(pieces))
    completion = Completion(text, tokens, np.zeros(len(pieces)), starts, stop_reason)
    turn = state.turn(state.view(0), completion, np.zeros(1, np.int64))
    transcript = Transcript(
        QUESTION, state.protocol, 0, (turn,), {}, (), Outcome("rounds", 1), rules
    )
    return transcript, turn


def streams_of(pieces: Sequence[bytes], stop_reason: StopReason = "stop") -> list[str]:
    return named(*turn_of(pieces, stop_reason))


def named(transcript: Transcript, turn: Turn) -> list[str]:
    return [STREAMS[i] for i in token_streams(transcript, turn).tolist()]


def spoken_on(stream: str, transcript: Transcript, turn: Turn) -> str:
    """The text of the tokens of a stream."""
    chosen = token_streams(transcript, turn) == STREAMS.index(stream)
    return decode(turn.tokens[chosen]).text


def test_tags_belong_to_the_section_they_open_or_close() -> None:
    pieces = [
        b"Well, ",
        b"<solution>",
        b"42",
        b"</solution>",
        b"\n",
        b"<evaluation>",
        b"fine",
        b"</evaluation>",
        b"\n",
        b"<comparison>",
        b"Agent 1 > Agent 2",
        b"</comparison>",
        b"\nThat is all.",
        b"",
    ]
    assert streams_of(pieces) == ["gen"] * 9 + ["judge"] * 3 + ["gen"] * 2


def test_a_token_across_a_border_belongs_where_it_begins() -> None:
    pieces = [
        b"<solution>x</solution><evaluation>y</evaluation",
        b"><comp",
        b"arison>N/A",
        b"</comparison> and",
        b" more",
    ]
    assert streams_of(pieces) == ["gen", "gen", "judge", "judge", "gen"]


HEAD = b"<solution>1</solution><evaluation>2</evaluation>"


@pytest.mark.parametrize("character", ["é", "数", "😀"])
def test_the_pieces_of_a_character_before_a_section_are_not_in_it(character: str) -> None:
    raw = character.encode()
    for cut in range(1, len(raw)):
        # The second token starts inside the character and runs into the section.
        pieces = [HEAD, raw[:cut], raw[cut:] + b"<comparison>", b"N/A</comparison>", raw[:1]]
        assert streams_of(pieces) == ["gen", "gen", "gen", "judge", "gen"]


@pytest.mark.parametrize("character", ["é", "数", "😀"])
def test_the_pieces_of_a_character_inside_a_section_are_all_in_it(character: str) -> None:
    raw = character.encode()
    bytewise = [raw[i : i + 1] for i in range(len(raw))]
    pieces = [HEAD, b"<comparison>", *bytewise, b"</comparison>", *bytewise]
    n = len(bytewise)
    assert streams_of(pieces) == ["gen"] + ["judge"] * (n + 2) + ["gen"] * n


def test_a_character_that_opens_nothing_yet_shares_a_token_with_the_tag() -> None:
    raw = "数".encode()
    pieces = [HEAD + raw[:2], raw[2:] + b"<compar", b"ison>" + raw[:1], raw[1:] + b"</comparison>"]
    assert streams_of(pieces) == ["gen", "gen", "judge", "judge"]


def test_broken_bytes_do_not_move_the_border() -> None:
    pieces = [
        b"\xff\xc3" + HEAD,
        b"\xa9",
        b"\xf0\x9f",
        b"<comparison>",
        b"\xe6\x95",
        b"</comparison>",
    ]
    assert streams_of(pieces) == ["gen", "gen", "gen", "judge", "judge", "judge"]


def test_the_end_of_turn_closes_a_section_whose_closing_tag_was_swallowed() -> None:
    assert streams_of([HEAD, b"<comparison>", b"N/A", b""]) == ["gen"] + ["judge"] * 3
    assert streams_of([HEAD, b"<comparison>", b"N/A</comparison>", b""]) == [
        "gen",
        "judge",
        "judge",
        "gen",
    ]


fragments = st.text(alphabet="aé数😀ß\n ", max_size=6).map(str.encode)
broken = st.sampled_from([b"\xff", b"\x80", b"\xc3", b"\xe6\x95", b"\xf0\x9f\x98", b"\xed\xa0\x80"])
filler = st.lists(fragments | broken, max_size=4).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(st.tuples(*[filler] * 7), st.data())
def test_tokens_of_any_bytes_belong_to_the_section_that_holds_their_first_byte(
    fill: tuple[bytes, ...], data: st.DataObject
) -> None:
    raw = fill[0]
    for i, name in enumerate((b"solution", b"evaluation", b"comparison")):
        raw += b"<" + name + b">" + fill[2 * i + 1] + b"</" + name + b">" + fill[2 * i + 2]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=30)))
    edges = [0, *cuts, len(raw)]
    # Equal cuts make tokens without bytes, like control tokens.
    pieces = [raw[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    opened, closed = raw.index(b"<comparison>"), raw.index(b"</comparison>") + 13
    expected = ["judge" if opened <= first < closed else "gen" for first in edges[:-1]]
    assert streams_of(pieces) == expected


def test_a_reply_cut_off_by_length_is_malformed_and_all_judge() -> None:
    pieces = [HEAD, b"<comparison>", b"Agent 1 > Ag"]
    assert streams_of(pieces, "length") == ["judge"] * 3
    assert streams_of(pieces, "stop") == ["gen", "judge", "judge"]


def test_every_token_of_a_malformed_turn_is_judge() -> None:
    debate = scripted(peer_v2(agents=3, rounds=1), malformed=("1.0", "1.1"))
    for turn in debate.turns:
        if not turn.ok:
            assert spoken_on("judge", debate, turn) == turn.text
            assert set(named(debate, turn)) == {"judge"}


def test_a_ballot_is_all_judge_its_evaluation_included() -> None:
    debate = scripted(peer_v2(agents=3, rounds=1), {"0.1": "Agent 1 > Agent 2"})
    ballots = [t for t in debate.turns if t.id.round == 1]
    assert len(ballots) == 3
    for ballot in ballots:
        assert "<evaluation>" in ballot.text
        assert set(named(debate, ballot)) == {"judge"}


def test_speeches_are_divided_between_answer_and_judgement() -> None:
    for debate in rehearse(peer_v2(agents=5, rounds=2), range(2)):
        for turn in debate.turns:
            if debate.kind(turn) == "speak":
                answer, mark, judgement = turn.text.partition("<comparison>")
                assert spoken_on("gen", debate, turn) == answer
                assert spoken_on("judge", debate, turn) == mark + judgement


def test_sections_after_the_comparison_are_gen_again() -> None:
    rules = peer_v1(agents=3, rounds=1, reward="streams")
    debate = scripted(rules)
    for turn in debate.turns:
        assert spoken_on("judge", debate, turn) == "<comparison>N/A</comparison>"


def test_in_v1_every_token_is_on_the_one_stream() -> None:
    debate = scripted(peer_v1(agents=3, rounds=1), malformed=("1.0",))
    for turn in debate.turns:
        streams = token_streams(debate, turn, whole=True)
        assert len(streams) == len(turn.tokens)
        assert {STREAMS[i] for i in streams.tolist()} == {"whole"}


def test_a_verdict_is_judge_and_a_free_speech_is_gen() -> None:
    question = Question("fox", "What jumps?", choices=("A fox", "A dog"), background="A fox jumps.")
    players = {
        "policy": ScriptedPlayer(lambda state, view: "The fox jumps."),
        "judge": ScriptedPlayer(lambda state, view: "Debater_A | 91%"),
    }
    played = asyncio.run(play([Debate(question, judged_debate(1))], players))
    (transcript,) = played.transcripts
    *speeches, verdict = transcript.turns
    assert [set(named(transcript, turn)) for turn in speeches] == [{"gen"}, {"gen"}]
    assert set(named(transcript, verdict)) == {"judge"}
