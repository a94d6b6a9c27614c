"""From the bytes of tokens to text, and to where in the text each token begins."""

from typing import NamedTuple

import numpy as np

from rostra.engines.arrays import IntArray


class DecodedTokens(NamedTuple):
    """Text, and for each token the index of the character that holds its first byte."""

    text: str
    starts: IntArray


class PlacedTokens(NamedTuple):
    """Tokens, and for each the index of the character of their text that holds its first byte."""

    tokens: IntArray
    starts: IntArray


def decode_tokens(raw: bytes, lengths: IntArray) -> DecodedTokens:
    """Decodes the bytes of tokens as UTF-8; `lengths` is the number of bytes of each token.

    Byte-level tokenizers split characters: the tokens of one character all start at it. A token
    with no bytes (a control token) starts where the next byte would. A byte that is no UTF-8
    becomes one replacement character.
    """
    firsts = np.cumsum(lengths) - lengths
    if raw.isascii():
        return DecodedTokens(raw.decode("ascii"), firsts.astype(np.int32))
    escaped = raw.decode(errors="surrogateescape")
    code = np.frombuffer(escaped.encode("utf-32-le", "surrogatepass"), np.uint32)
    lone = (code >= 0xDC80) & (code <= 0xDCFF)
    width = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
    width[lone] = 1
    ends = np.cumsum(width)
    starts = np.searchsorted(ends, firsts, side="right").astype(np.int32)
    code = np.where(lone, np.uint32(0xFFFD), code)
    return DecodedTokens(code.tobytes().decode("utf-32-le"), starts)
