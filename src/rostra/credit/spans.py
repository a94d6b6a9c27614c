"""Which stream every sampled token belongs to."""

import numpy as np

from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.engines.arrays import IntArray
from rostra.rewards.streams import GEN, JUDGE, STREAMS, WHOLE

STREAM_INDEX = {name: i for i, name in enumerate(STREAMS)}
SECTION_STREAM = {"comparison": JUDGE}
"""Tokens of all other sections, and of none, belong to `gen`."""


def token_streams(transcript: Transcript, turn: Turn, *, whole: bool = False) -> IntArray:
    """For each token of a turn, the index of its stream in STREAMS.

    A token belongs to the section that holds its first byte; tags belong to the section they open
    or close. In a ballot, in a verdict and in a malformed turn every token is `judge`. With
    `whole`, as in peer v1, every token is on the one stream there is.
    """
    if whole:
        return np.full(len(turn.tokens), STREAM_INDEX[WHOLE], np.int8)
    if not turn.ok or transcript.kind(turn) != "speak":
        return np.full(len(turn.tokens), STREAM_INDEX[JUDGE], np.int8)
    streams = np.full(len(turn.tokens), STREAM_INDEX[GEN], np.int8)
    for name, stream in SECTION_STREAM.items():
        section = turn.parsed.sections.get(name)
        if section:
            inside = (turn.starts >= section.start) & (turn.starts < section.end)
            streams[inside] = STREAM_INDEX[stream]
    return streams
