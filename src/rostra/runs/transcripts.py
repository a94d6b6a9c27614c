"""Transcripts on disk: versioned JSON, one debate a line, plain or compressed.

A file keeps what cannot be worked out again: the question, the rules, and every turn with its
tokens. Sections, votes and the outcome are written for readers; on reading, the turns are submitted
to the rules once more, so a file that contradicts itself is noticed.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import zstandard
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rostra.debate.peer import PeerRules
from rostra.debate.protocol import Protocol
from rostra.debate.state import State
from rostra.debate.transcript import Transcript, finish
from rostra.debate.turn import Turn, TurnId
from rostra.debate.views import View
from rostra.debate.votes import comparable
from rostra.engines.sampling import Completion, StopReason, Usage
from rostra.errors import DataError, RostraError
from rostra.runs.config import first_error
from rostra.runs.frames import frames
from rostra.tasks.question import Question

FORMAT = "rostra.transcript"
VERSION = 1


Int32 = Annotated[int, Field(ge=0, lt=2**31)]
Logprob = Annotated[float, Field(ge=-1e9, le=1e9)]


class TurnRecord(BaseModel):
    """A turn as it is stored."""

    model_config = ConfigDict(extra="forbid")

    id: str
    slot: Int32
    text: str
    stop_reason: StopReason
    seen: list[str]
    extends: str | None
    temperature: Annotated[float, Field(ge=0, le=1e6)]
    observation: list[Int32]
    tokens: list[Int32]
    logprobs: list[Logprob]
    starts: list[Int32]
    usage: tuple[Int32, Int32] | None = None
    """Tokens read and sampled by a server's count."""
    sections: dict[str, str] = {}
    error: str | None = None


class TranscriptRecord(BaseModel):
    """A transcript as it is stored."""

    model_config = ConfigDict(extra="forbid")

    format: str
    version: int
    question: Question
    rules: PeerRules | None
    protocol: Protocol | None
    """Only where it was not compiled from rules."""
    seed: int
    turns: list[TurnRecord]
    votes: list[str]
    verdicts: list[dict[str, Any]] = []
    outcome: dict[str, Any]


_RECORD = TypeAdapter(TranscriptRecord)


@dataclass(frozen=True, slots=True)
class Stored:
    """A transcript and where it was read."""

    transcript: Transcript
    place: str
    """File, and line where there are several."""


def to_data(transcript: Transcript) -> dict[str, Any]:
    """A transcript as plain data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "question": asdict(transcript.question),
        "rules": asdict(transcript.rules) if transcript.rules else None,
        "protocol": None if transcript.rules else asdict(transcript.protocol),
        "seed": transcript.seed,
        **_written(transcript),
        "turns": [_turn_data(turn) for turn in transcript.turns],
    }


def _written(transcript: Transcript) -> dict[str, Any]:
    """What follows from the turns, written for readers."""
    return {
        "outcome": asdict(transcript.outcome),
        "votes": [str(vote) for vote in transcript.votes],
        "verdicts": [asdict(verdict) for verdict in transcript.verdicts],
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {
        "id": str(turn.id),
        "slot": turn.slot,
        "text": turn.text,
        "stop_reason": turn.stop_reason,
        "error": turn.parsed.error,
        "sections": {name: section.text for name, section in turn.parsed.sections.items()},
        "seen": [str(i) for i in turn.seen],
        "extends": str(turn.extends) if turn.extends else None,
        "temperature": turn.temperature,
        "observation": turn.observation.tolist(),
        "tokens": turn.tokens.tolist(),
        "logprobs": turn.logprobs.tolist(),
        "starts": turn.starts.tolist(),
        **({"usage": list(turn.usage)} if turn.usage else {}),
    }


def from_data(data: Mapping[str, Any]) -> Transcript:
    """A transcript from plain data; DataError says what is wrong with it."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise DataError("not a Rostra transcript")
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        raise DataError(
            f"written by a newer Rostra (transcript version {version}, this one reads up to "
            f"{VERSION}); upgrade with `pip install -U rostra`"
        )
    try:
        record = _RECORD.validate_python(data)
    except ValidationError as error:
        raise DataError(f"not a valid transcript: {first_error(error)}") from None
    except RostraError as error:
        raise DataError(f"not a valid transcript: {error}") from None
    if record.rules is None and record.protocol is None:
        raise DataError("not a valid transcript: it has neither rules nor a protocol")
    try:
        transcript = _replay(record)
    except RostraError as error:
        raise DataError(f"not a valid transcript: {error}") from None
    written = json.loads(json.dumps(_written(transcript)))
    for name in ("votes", "verdicts", "outcome"):
        if written[name] != getattr(record, name):
            raise DataError(f"its {name} do not follow from its turns; was it edited?")
    return transcript


def _replay(record: TranscriptRecord) -> Transcript:
    """Submits the stored turns to the rules once more."""
    protocol = record.protocol or (record.rules or PeerRules()).protocol()
    state = State(record.question, protocol, record.seed)
    for stored in record.turns:
        turn = _turn(state, stored)
        if {n: s.text for n, s in turn.parsed.sections.items()} != stored.sections:
            raise DataError(f"the sections of turn {turn.id} are not in its text; was it edited?")
        state = state.submit(turn)
    return finish(state, record.rules)


def _turn(state: State, record: TurnRecord) -> Turn:
    turn_id = TurnId.read(record.id)
    if record.slot >= len(state.protocol.slots):
        raise DataError(f"turn {turn_id} fills slot {record.slot}, which does not exist")
    if not len(record.tokens) == len(record.logprobs) == len(record.starts):
        raise DataError(f"turn {turn_id} has not as many log-probabilities as tokens")
    seen = tuple(map(TurnId.read, record.seen))
    extends = TurnId.read(record.extends) if record.extends else None
    spoken = {turn.id for turn in state.turns}
    for other in (*seen, *([extends] if extends else [])):
        if other not in spoken:
            raise DataError(f"turn {turn_id} refers to turn {other}, which was not spoken before")
    view = View(
        seat=turn_id.seat,
        slot=record.slot,
        extends=extends,
        messages=(),
        seen=seen,
        names=comparable(state.turns, seen, turn_id.seat),
    )
    completion = Completion(
        text=record.text,
        tokens=np.array(record.tokens, np.int32),
        logprobs=np.array(record.logprobs, np.float32),
        starts=np.array(record.starts, np.int32),
        stop_reason=record.stop_reason,
        usage=Usage(*record.usage) if record.usage else None,
    )
    return state.turn(
        view,
        completion,
        np.array(record.observation, np.int32),
        extends=extends,
        temperature=record.temperature,
    )


def dumps(transcript: Transcript) -> str:
    """A transcript as one line of JSON."""
    data = to_data(transcript)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a character, as some models write it, fits into a file only as an escape.
        text = json.dumps(data, separators=(",", ":"))
    return text


def check_target(path: Path, overwrite: bool) -> None:
    """Refuses a place where a transcript could not be written, before there is one to lose."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise DataError(f"{path}: already there; give another name, or --overwrite to replace it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{path}: cannot be written: the folder is not yours to write in")


def write_transcript(transcript: Transcript, path: Path) -> None:
    """Writes one transcript, whole or not at all."""
    part = path.with_name(path.name + ".part")
    text = dumps(transcript) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".zst":
            part.write_bytes(zstandard.compress(text.encode()))
        else:
            part.write_text(text, "utf-8")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None


def read_transcripts(path: Path) -> Iterator[Stored]:
    """The transcripts of a file (.json, .jsonl, either with .zst) or of a run directory."""
    if path.is_dir():
        files = sorted(f for f in (path / "transcripts").glob("*.jsonl*") if f.suffix != ".part")
        if not files:
            raise DataError(f"{path}: no transcripts/*.jsonl.zst in it; is it a run directory?")
        for file in files:
            yield from read_transcripts(file)
        return
    empty = True
    for number, line in _lines(path):
        if line.strip():
            empty = False
            place = f"{path}, line {number}" if number > 1 or ".jsonl" in path.name else str(path)
            yield Stored(_loads(line, place), place)
    if empty:
        raise DataError(f"{path}: empty")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            parts = [part for part, _ in frames(file)] if path.suffix == ".zst" else [file.read()]
        text = b"".join(parts).decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text, so not a transcript") from None
    except zstandard.ZstdError:
        raise DataError(f"{path}: not a zstandard file") from None
    except EOFError:
        raise DataError(f"{path}: cut short") from None
    yield from enumerate(text.split("\n") if ".jsonl" in path.name else [text], 1)


def _loads(line: str, place: str) -> Transcript:
    try:
        return from_data(json.loads(line))
    except json.JSONDecodeError as error:
        cut = error.pos >= len(line.rstrip()) - 1 or "Unterminated" in error.msg
        what = "cut short" if cut else f"not JSON ({error.msg} at column {error.colno})"
        raise DataError(f"{place}: {what}") from None
    except RecursionError:
        raise DataError(f"{place}: not a transcript: nested too deep") from None
    except ValueError:
        raise DataError(f"{place}: not a transcript: a number with too many digits") from None
    except RostraError as error:
        raise DataError(f"{place}: {error}") from None
