"""Transcripts on disk: what is written is what is read, and a bad file is one sentence."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rostra.arena import Debate
from rostra.debate.judged import consultancy
from rostra.debate.judged import debate as two_sides
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.transcript import Transcript
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.sampling import Completion, Sampler, SamplingParams, Usage
from rostra.engines.scripted import Script, ScriptedEngine
from rostra.errors import DataError
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.rewards.score import RewardRules, score
from rostra.runs.transcripts import (
    Stored,
    dumps,
    from_data,
    read_transcripts,
    write_transcript,
)
from rostra.tasks.question import Question
from tests.playing import played


def read_all(path: Path) -> list[Stored]:
    return list(read_transcripts(path))


BARE = {
    "system": "{{name}}",
    "opening": "{{question}}{{turns}}{{task}}",
    "next": "{{turns}}{{task}}",
    "alone": "",
    "pair": "",
    "compare": "",
    "again": "",
    "ballot": "",
    "contract.solution": "",
    "contract.comparison": "",
}
"""Templates that make a small file."""


def peer(rules: PeerRules, script: Script | None = None, seed: int = 7) -> Transcript:
    engine = ScriptedEngine(script or rehearsal())
    player = ModelPlayer(asyncio.run(engine.sampler()), engine.chat)
    question = Question("q-1", "What is 6 * 7?", reference="42", metadata={"level": 2, "odd": None})
    return played(Debate.peer(question, rules, seed), player)


def small() -> Transcript:
    """A debate whose file is short enough to be tried byte by byte."""
    rules = peer_v2(
        agents=3,
        rounds=1,
        schedule="sequential",
        sections=("solution", "comparison"),
        closing_ballot=False,
        personas=(),
        prompts=BARE,
    )

    def script(prompt: object, seed: int) -> str:
        return "<solution>é</solution><comparison>Agent 0 > Agent 1</comparison>"

    return peer(rules, script)


def garbled(prompt: object, seed: int) -> str:
    return "<solution>no end" if seed % 2 else "nothing \N{SNOWMAN} to see\u2028here\r\n"


def judged() -> Transcript:
    question = Question(
        "q-2",
        "Who did it?",
        choices=("The butler", "The gardener"),
        background="It was a dark night.",
    )
    players: dict[str, Player] = {
        "policy": ScriptedPlayer(["He did.", "No, he did.", "Look here.", "Look there."]),
        "judge": ScriptedPlayer(["Debater_B | 91%"]),
    }
    return played(Debate(question, two_sides(), 3), players)


def unreadable() -> Transcript:
    question = Question("q-3", "Who?", choices=("A", "B"))
    players: dict[str, Player] = {
        "policy": ScriptedPlayer(["He did."]),
        "judge": ScriptedPlayer(["I cannot say."]),
    }
    return played(Debate(question, consultancy(1, turns=1)), players)


DEBATES: dict[str, Callable[[], Transcript]] = {
    "peer-v1": lambda: peer(peer_v1(agents=3, rounds=2)),
    "peer-v1 aborted": lambda: peer(peer_v1(agents=3), garbled),
    "peer-v2": lambda: peer(peer_v2(agents=4, rounds=2)),
    "peer-v2 malformed": lambda: peer(peer_v2(agents=3, rounds=1), garbled),
    "a window of history": lambda: peer(peer_v2(agents=3, rounds=3, history_rounds=1)),
    "stop ids": lambda: peer(peer_v2(agents=3, rounds=1, stop=(256,))),
    "bare": small,
    "judged": judged,
    "unreadable verdict": unreadable,
}


def assert_same(a: Transcript, b: Transcript) -> None:
    assert a.question == b.question
    assert a.protocol == b.protocol
    assert a.rules == b.rules
    assert a.seed == b.seed
    assert a.votes == b.votes
    assert a.ballots == b.ballots
    assert a.verdicts == b.verdicts
    assert a.outcome == b.outcome
    assert len(a.turns) == len(b.turns)
    for one, two in zip(a.turns, b.turns, strict=True):
        for name in ("id", "slot", "text", "stop_reason", "parsed", "comparisons"):
            assert getattr(one, name) == getattr(two, name)
        for name in ("seen", "names", "extends", "temperature", "usage", "read", "sampled"):
            assert getattr(one, name) == getattr(two, name)
        for name in ("observation", "tokens", "logprobs", "starts"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
    if a.rules:
        rules = RewardRules.of(a.rules)
        one_score, two_score = score([a], rules), score([b], rules)
        assert one_score.rewards == two_score.rewards
        assert one_score.advantages == two_score.advantages


@pytest.mark.parametrize("suffix", [".json", ".json.zst", ".jsonl", ".jsonl.zst"])
@pytest.mark.parametrize("kind", DEBATES)
def test_a_transcript_comes_back_as_it_was_written(kind: str, suffix: str, tmp_path: Path) -> None:
    transcript = DEBATES[kind]()
    path = tmp_path / f"debate{suffix}"
    write_transcript(transcript, path)
    [stored] = read_transcripts(path)
    assert_same(stored.transcript, transcript)
    assert (path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd") == (path.suffix == ".zst")


def costly() -> Transcript:
    """A debate of a model whose server counts its own tokens."""

    class Counted:
        """Replies that cost other numbers of tokens than they have."""

        def __init__(self, sampler: Sampler) -> None:
            self._sampler = sampler

        async def sample(
            self, prompt: IntArray, n: int, params: SamplingParams
        ) -> list[Completion]:
            replies = await self._sampler.sample(prompt, n, params)
            return [
                replace(reply, usage=Usage(len(prompt), params.seed % 1000)) for reply in replies
            ]

        async def score(self, tokens: IntArray, start: int) -> FloatArray:
            return await self._sampler.score(tokens, start)

    engine = ScriptedEngine(rehearsal())
    player = ModelPlayer(Counted(asyncio.run(engine.sampler())), engine.chat)
    return played(Debate.peer(Question("q-4", "6 * 7?"), peer_v2(agents=3, rounds=2), 7), player)


def test_what_a_server_counted_is_kept(tmp_path: Path) -> None:
    transcript = costly()
    write_transcript(transcript, tmp_path / "debate.json")
    [stored] = read_transcripts(tmp_path / "debate.json")
    assert_same(stored.transcript, transcript)
    usages = [turn.usage for turn in stored.transcript.turns]
    assert len({usage.sampled for usage in usages if usage}) > 3
    assert all(isinstance(usage, Usage) for usage in usages)
    later = [turn for turn in stored.transcript.turns if turn.extends]
    assert later
    assert all(turn.read > len(turn.observation) for turn in later)
    written = json.loads((tmp_path / "debate.json").read_text())["turns"]
    assert [tuple(turn["usage"]) for turn in written] == usages


def test_a_file_without_counts_is_like_one_from_before_there_were_any(tmp_path: Path) -> None:
    data = json.loads(dumps(small()))
    assert not any("usage" in turn for turn in data["turns"])
    assert all(turn.usage is None for turn in from_data(data).turns)
    free = data | {"turns": [turn | {"usage": [0, 0]} for turn in data["turns"]]}
    assert {(turn.read, turn.sampled) for turn in from_data(free).turns} == {(0, 0)}


@pytest.mark.parametrize("usage", [[1], [1, 2, 3], [-1, 2], [1, 2**31], ["x", 1], {}, 5])
def test_counts_that_are_none_are_refused(usage: object, tmp_path: Path) -> None:
    data = json.loads(dumps(small()))
    data["turns"][1]["usage"] = usage
    assert "usage" in refusal(data, tmp_path)


def test_a_judged_debate_is_stored_with_its_protocol_and_a_peer_debate_with_its_rules() -> None:
    with_protocol, with_rules = json.loads(dumps(judged())), json.loads(dumps(small()))
    assert with_protocol["rules"] is None
    assert with_protocol["protocol"]["sides"] == ["Debater_A", "Debater_B"]
    assert with_protocol["verdicts"][0]["confidence"] == pytest.approx([0.09, 0.91])
    assert with_rules["protocol"] is None
    assert with_rules["rules"]["agents"] == 3


def test_a_file_of_many_lines_is_read_in_order_and_each_place_is_named(tmp_path: Path) -> None:
    wanted = [small(), judged(), peer(peer_v1(agents=3, rounds=1))]
    path = tmp_path / "many.jsonl"
    path.write_text("\n\n".join(map(dumps, wanted)) + "\n\n", "utf-8")
    found = read_all(path)
    for stored, transcript in zip(found, wanted, strict=True):
        assert_same(stored.transcript, transcript)
    assert [s.place for s in found] == [f"{path}, line {n}" for n in (1, 3, 5)]


def test_a_run_directory_is_read_file_by_file_without_unfinished_ones(tmp_path: Path) -> None:
    folder = tmp_path / "transcripts"
    folder.mkdir()
    wanted = [peer(peer_v2(agents=3, rounds=1), seed=seed) for seed in range(4)]
    for name, pair in (("step-0002", wanted[2:]), ("step-0001", wanted[:2])):
        text = "".join(dumps(t) + "\n" for t in pair)
        (folder / f"{name}.jsonl.zst").write_bytes(zstandard.compress(text.encode()))
    (folder / "step-0003.jsonl.zst.part").write_bytes(b"half")
    (folder / "notes.txt").write_text("not one of them")
    found = read_all(tmp_path)
    assert [s.transcript.seed for s in found] == [0, 1, 2, 3]
    for stored, transcript in zip(found, wanted, strict=True):
        assert_same(stored.transcript, transcript)


def test_compressed_files_that_were_joined_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "joined.jsonl.zst"
    frames = [zstandard.compress((dumps(t) + "\n").encode()) for t in (small(), judged())]
    path.write_bytes(b"".join(frames))
    assert [s.transcript.question.id for s in read_all(path)] == ["q-1", "q-2"]


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_a_file_cut_at_any_byte_is_refused_or_whole(suffix: str, tmp_path: Path) -> None:
    transcript = small()
    path = tmp_path / f"cut{suffix}"
    write_transcript(transcript, path)
    size = path.stat().st_size
    refused = 0
    for length in reversed(range(size)):
        os.truncate(path, length)
        try:
            found = read_all(path)
        except DataError as error:
            refused += 1
            assert str(error).startswith(str(path))
            assert "\n" not in str(error)
        else:
            assert dumps(found[0].transcript) == dumps(transcript)
    assert refused >= size - 8


def test_a_cut_file_says_that_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(dumps(small()).encode()[:-200])
    with pytest.raises(DataError, match="cut short"):
        read_all(path)


def test_a_cut_compressed_file_says_that_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.zst"
    raw = zstandard.compress(dumps(peer(peer_v2(agents=3, rounds=1))).encode())
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(DataError, match="cut short"):
        read_all(path)


def test_a_compressed_file_of_two_that_is_cut_is_never_taken_for_one_of_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cut.jsonl.zst"
    stream = zstandard.ZstdCompressor().compressobj()
    line = (dumps(small()) + "\n").encode()
    first = stream.compress(line) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    both = first + stream.compress(line) + stream.flush()
    path.write_bytes(both)
    assert len(read_all(path)) == 2
    for length in reversed(range(len(first), len(both))):
        os.truncate(path, length)
        try:
            found = len(read_all(path))
        except DataError:
            continue
        assert found == 2


def test_whole_lines_before_a_cut_one_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text(dumps(small()) + "\n" + dumps(judged())[:500], "utf-8")
    reading = read_transcripts(path)
    assert next(reading).transcript.question.id == "q-1"
    with pytest.raises(DataError, match="cut.jsonl, line 2: cut short"):
        next(reading)


@pytest.mark.parametrize(
    ("name", "raw", "says"),
    [
        ("a.json", b"", "empty"),
        ("a.jsonl", b"\n \n", "empty"),
        ("a.json.zst", b"", "empty"),
        ("a.json.zst", b"no zstandard at all", "not a zstandard file"),
        ("a.json", b'{"prompt": "\xff\xfe"}', "not UTF-8 text"),
        ("a.json.zst", zstandard.compress(b'"\xff\xfe"'), "not UTF-8 text"),
        ("a.json", b"{,}", "not JSON"),
        ("a.json", b"[]", "not a Rostra transcript"),
        ("a.json", b"null", "not a Rostra transcript"),
        ("a.json", b"3", "not a Rostra transcript"),
        ("a.json", b'{"format": "inspect.log"}', "not a Rostra transcript"),
        ("a.json", b'{"format": ["rostra.transcript"]}', "not a Rostra transcript"),
        ("a.json", b"[" * 100_000, "nested too deep"),
        ("a.json", b'{"seed": ' + b"9" * 5000 + b"}", "a.json"),
        ("a.json", b"\xef\xbb\xbf{}", "a.json"),
    ],
)
def test_what_is_not_a_transcript_is_refused_in_one_sentence(
    name: str, raw: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(DataError) as caught:
        read_all(path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'gone.json'}: no such file")):
        read_all(tmp_path / "gone.json")


def test_a_directory_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is it a run directory?"):
        read_all(tmp_path)


def test_a_file_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(DataError, match="cannot be read: Not a directory"):
        read_all(tmp_path / "a" / "b.json")


def refusal(data: object, tmp_path: Path) -> str:
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(DataError) as caught:
        read_all(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_a_newer_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    message = refusal(json.loads(dumps(small())) | {"version": 2, "moods": []}, tmp_path)
    assert message == (
        "written by a newer Rostra (transcript version 2, this one reads up to 1); "
        "upgrade with `pip install -U rostra`"
    )


REQUIRED = ["format", "version", "question", "rules", "protocol", "seed", "turns", "votes"]
REQUIRED_OF_TURNS = ["id", "slot", "text", "stop_reason", "seen", "extends", "temperature"]


@pytest.mark.parametrize("key", [*REQUIRED, "outcome"])
def test_a_missing_key_is_refused(key: str, tmp_path: Path) -> None:
    data = json.loads(dumps(small()))
    del data[key]
    message = refusal(data, tmp_path)
    assert key in message or (key == "format" and "not a Rostra transcript" in message)


@pytest.mark.parametrize("key", [*REQUIRED_OF_TURNS, "observation", "tokens", "logprobs", "starts"])
def test_a_turn_with_a_missing_key_is_refused(key: str, tmp_path: Path) -> None:
    data = json.loads(dumps(small()))
    del data["turns"][1][key]
    assert f"turns.1.{key}" in refusal(data, tmp_path)


def test_edited_votes_are_noticed(tmp_path: Path) -> None:
    data = json.loads(dumps(small()))
    assert data["votes"] == ["2.0: 0.0 > 1.0"]
    data["votes"] = ["2.0: 1.0 > 0.0"]
    assert "was it edited?" in refusal(data, tmp_path)


def edit_text(data: dict[str, Any]) -> None:
    turn = data["turns"][2]
    turn["text"] = turn["text"].replace("Agent 0 > Agent 1", "Agent 1 > Agent 0")


def swap_turns(data: dict[str, Any]) -> None:
    data["turns"].reverse()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (edit_text, "the sections of turn 2.0 are not in its text"),
        (swap_turns, "may not speak|was made for|not spoken before"),
        (lambda d: d["turns"].pop(), "not over"),
        (lambda d: d["turns"].append(d["turns"][-1]), "over"),
        (lambda d: d["turns"][1]["tokens"].pop(), "log-probabilities"),
        (lambda d: d["turns"][1]["logprobs"].pop(), "log-probabilities"),
        (lambda d: d["turns"][1]["starts"].pop(), "log-probabilities"),
        (lambda d: d["turns"][1].update(slot=99), "fills slot 99"),
        (lambda d: d["turns"][1].update(slot=-1), "turns.1.slot"),
        (lambda d: d["turns"][1].update(id="agent one"), "does not name a turn"),
        (lambda d: d["turns"][1].update(id="9.0"), "seat 9"),
        (lambda d: d["turns"][1].update(id="0.0"), "seat 0"),
        (lambda d: d["turns"][1].update(stop_reason="tired"), "stop_reason"),
        (lambda d: d["turns"][1].update(mood="good"), "mood"),
        (lambda d: d["turns"][2].update(extends="2.0.1"), "does not name a turn"),
        (lambda d: d["turns"][2].update(extends="2.9"), "2.9"),
        (lambda d: d["turns"][2].update(seen=["0.0", "1.0", "9.9"]), "9.9"),
        (lambda d: d["outcome"].update(ended="consensus"), "outcome|edited"),
        (lambda d: d["turns"][1]["sections"].update(solution="42"), "section|edited"),
        (lambda d: d["turns"][1]["tokens"].__setitem__(0, 2**40), "token|turn"),
        (lambda d: d["turns"][1]["observation"].__setitem__(0, 2**40), "token|turn|observation"),
        (lambda d: d["turns"][1].update(id="1" * 5000 + ".0"), "turn"),
        (lambda d: d.update(rules=None), "neither rules nor a protocol"),
        (lambda d: d["rules"].update(agents=2), "agents = 2"),
        (lambda d: d["rules"].update(rounds=3.2e16), "rounds = 32000000000000000: must be at most"),
        (lambda d: d["rules"].update(agents=1e9), "agents = 1000000000: must be at most"),
        (lambda d: d["rules"].update(stop=["a", 1]), "stop"),
        (lambda d: d["rules"].update(rouns=2), "rouns"),
        (lambda d: d["question"].update(prompt=" "), "empty"),
        (lambda d: d["question"].update(prompt=3), "question.prompt"),
        (lambda d: d.update(seed="many"), "seed"),
        (lambda d: d.update(extra=1), "extra"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    edit: Callable[[dict[str, Any]], object], says: str, tmp_path: Path
) -> None:
    data = json.loads(dumps(small()))
    edit(data)
    assert re.search(says, refusal(data, tmp_path))


def test_an_edited_verdict_is_noticed(tmp_path: Path) -> None:
    data = json.loads(dumps(judged()))
    data["verdicts"][0]["confidence"] = [0.91, 0.09]
    assert "edited" in refusal(data, tmp_path)


def test_plain_data_is_checked_like_a_file() -> None:
    data = json.loads(dumps(small()))
    data["rules"]["agents"] = 2
    with pytest.raises(DataError, match="agents = 2"):
        from_data(data)


def paths(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in plain data; of long lists only the first items."""
    found = [at] if at else []
    if isinstance(value, dict):
        return found + [p for key, v in value.items() for p in paths(v, (*at, key))]
    if isinstance(value, list):
        return found + [p for i, v in enumerate(value[:4]) for p in paths(v, (*at, i))]
    return found


SMALL = dumps(small())
WIDE = st.integers(-(2**70), 2**70)
LEAF = st.none() | st.booleans() | WIDE | st.floats() | st.text(max_size=5) | st.just("\ud800")
ANYTHING = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3), max_leaves=4) | (
    st.dictionaries(st.text(max_size=5), LEAF, max_size=2)
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.sampled_from(paths(json.loads(SMALL))), value=ANYTHING)
def test_a_file_with_anything_anywhere_is_read_or_refused(
    where: tuple[Any, ...], value: object, tmp_path: Path
) -> None:
    data = json.loads(SMALL)
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data), "utf-8")
    try:
        [stored] = read_transcripts(path)
    except DataError as error:
        assert str(error).startswith(str(path))
    else:
        assert_same(stored.transcript, from_data(json.loads(dumps(stored.transcript))))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, len(SMALL)), gone=st.integers(0, 3), put=st.binary(max_size=3))
def test_a_damaged_file_is_read_or_refused(at: int, gone: int, put: bytes, tmp_path: Path) -> None:
    raw = SMALL.encode()
    path = tmp_path / "damaged.json"
    path.write_bytes(raw[:at] + put + raw[at + gone :])
    try:
        read_all(path)
    except DataError as error:
        assert str(error).startswith(str(path))


def test_writing_makes_the_folder_and_leaves_no_part_behind(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "debate.json.zst"
    write_transcript(small(), path)
    write_transcript(judged(), path)
    assert list(path.parent.iterdir()) == [path]
    assert read_all(path)[0].transcript.question.id == "q-2"


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_a_path_that_cannot_be_written_is_refused_and_nothing_is_left(
    suffix: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_transcript(small(), tmp_path / "file" / f"debate{suffix}")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        write_transcript(small(), folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["file", folder.name])
