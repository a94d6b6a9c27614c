"""From advantages to training examples: the tokens of a trajectory, each with its weight."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from rostra.credit.spans import STREAM_INDEX, token_streams
from rostra.debate.peer import check_choice
from rostra.debate.state import prompt_tokens
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.training import Datum
from rostra.rewards.advantages import Key
from rostra.rewards.streams import STREAMS, WHOLE

Normalise = Literal["token_mean", "sum"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The training examples of a batch of debates."""

    data: list[Datum]
    origins: list[tuple[int, int]]
    """For each datum, the position of its debate in the batch and its seat."""
    stream_tokens: dict[str, int]
    """Response tokens with a signal, by stream."""
    trajectories: int
    """Seats that spoke, over all debates."""
    turns: int
    breaks: int
    """Turns whose prompt did not extend what came before, or that were sampled at another
    temperature, so that a new datum had to begin."""

    def metrics(self) -> dict[str, float]:
        """How well trajectories merge."""
        return {
            "data/datums_per_trajectory": len(self.data) / max(self.trajectories, 1),
            "data/prefix_break_frac": self.breaks / max(self.turns - self.trajectories, 1),
        }


def datums(
    transcripts: Sequence[Transcript],
    advantages: Sequence[Mapping[Key, float]],
    *,
    weights: Mapping[str, float] | None = None,
    normalise: Normalise = "token_mean",
    players: Collection[str] = ("policy",),
) -> Batch:
    """One datum per trajectory while every prompt extends the tokens before it.

    The weight of a token is lambda_stream * A(turn, stream), divided by the number of tokens with a
    signal on that stream in the batch (`token_mean`) or by nothing (`sum`). `weights` gives the
    lambdas, 1 where it is silent. Prompt tokens, and turns without a signal, weigh 0. Only seats
    that are filled by one of `players` are trained on.
    """
    check_choice("normalise", normalise, get_args(Normalise))
    for stream in weights or {}:
        check_choice("weights", stream, STREAMS)
    pieces: list[_Piece] = []
    origins: list[tuple[int, int]] = []
    trajectories = turns = 0
    for index, (transcript, values) in enumerate(zip(transcripts, advantages, strict=True)):
        for seat, spoken in zip(transcript.protocol.seats, transcript.by_seat(), strict=True):
            if spoken and seat.player in players:
                found = _trajectory(transcript, spoken, values)
                pieces += found
                origins += [(index, seat.index)] * len(found)
                trajectories += 1
                turns += len(spoken)
    counts = sum((p.signals() for p in pieces), np.zeros(len(STREAMS), np.int64))
    scale = np.array([1.0 if weights is None else weights.get(s, 1.0) for s in STREAMS])
    if normalise == "token_mean":
        scale = scale / np.maximum(counts, 1)
    return Batch(
        data=[piece.datum(scale) for piece in pieces],
        origins=origins,
        stream_tokens=dict(zip(STREAMS, counts.tolist(), strict=True)),
        trajectories=trajectories,
        turns=turns,
        breaks=len(pieces) - trajectories,
    )


@dataclass(slots=True, eq=False)
class _Piece:
    """A stretch of one trajectory that is one sequence of tokens."""

    temperature: float
    last: TurnId
    """The turn it ends with."""
    tokens: list[IntArray] = field(default_factory=list)
    logprobs: list[FloatArray] = field(default_factory=list)
    advantages: list[FloatArray] = field(default_factory=list)
    """Not a number where there is no signal."""
    streams: list[IntArray] = field(default_factory=list)

    def observe(self, tokens: IntArray) -> None:
        self.tokens.append(tokens)
        self.logprobs.append(np.zeros(len(tokens), np.float32))
        self.advantages.append(np.full(len(tokens), np.nan))
        self.streams.append(np.full(len(tokens), -1, np.int8))

    def act(self, turn: Turn, advantages: FloatArray, streams: IntArray) -> None:
        self.last = turn.id
        self.tokens.append(turn.tokens)
        self.logprobs.append(turn.logprobs)
        self.advantages.append(advantages)
        self.streams.append(streams)

    def signals(self) -> IntArray:
        """Tokens with a signal, by stream."""
        streams, advantages = np.concatenate(self.streams), np.concatenate(self.advantages)
        return np.bincount(streams[~np.isnan(advantages)], minlength=len(STREAMS))

    def datum(self, scale: FloatArray) -> Datum:
        tokens = np.concatenate(self.tokens).astype(np.int64)
        streams = np.concatenate(self.streams)
        # Index -1, a prompt, reads the last entry; its advantage is no signal, hence 0 below.
        weights = np.nan_to_num(np.concatenate(self.advantages) * scale[streams])
        return Datum(
            inputs=tokens[:-1],
            targets=tokens[1:],
            logprobs=np.concatenate(self.logprobs)[1:].astype(np.float32),
            weights=weights[1:].astype(np.float32),
            mask=(streams >= 0)[1:].astype(np.float32),
            streams=streams[1:],
            temperature=self.temperature,
        )


def _trajectory(
    transcript: Transcript, turns: list[Turn], values: Mapping[Key, float]
) -> list[_Piece]:
    """The pieces of one seat's trajectory: a new one wherever a prompt does not extend the last."""
    by_id = {turn.id: turn for turn in transcript.turns}
    pieces: list[_Piece] = []
    for turn in turns:
        last = pieces[-1] if pieces else None
        rest = None
        if last is not None and last.temperature == turn.temperature:
            rest = _continuation(last, turn)
        if last is None or rest is None:
            last = _Piece(turn.temperature, turn.id)
            rest = prompt_tokens(by_id, turn)
            pieces.append(last)
        last.observe(rest)
        whole = values.get(Key(turn.id.seat, None, WHOLE))
        streams = token_streams(transcript, turn, whole=whole is not None)
        table = np.full(len(STREAMS), np.nan)
        for stream, index in STREAM_INDEX.items():
            table[index] = values.get(Key(*turn.id, stream), np.nan)
        if whole is not None:
            table[STREAM_INDEX[WHOLE]] = whole
        last.act(turn, table[streams], streams)
    return pieces


def _continuation(piece: _Piece, turn: Turn) -> IntArray | None:
    """The prompt tokens after those of the piece, or None where the prompt does not extend it."""
    if turn.extends is not None:
        return turn.observation if turn.extends == piece.last else None
    so_far = np.concatenate(piece.tokens)
    head = turn.observation[: len(so_far)]
    return turn.observation[len(so_far) :] if np.array_equal(head, so_far) else None
