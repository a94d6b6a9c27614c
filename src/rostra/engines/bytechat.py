"""A chat format that needs no model: one token per byte, and four control tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from rostra.engines.arrays import IntArray
from rostra.engines.chat import Message, Role
from rostra.engines.offsets import DecodedTokens, PlacedTokens, decode_tokens

END = 256
"""The end of a turn."""
HEADERS: Mapping[Role, int] = {"system": 257, "user": 258, "assistant": 259}
VOCABULARY = 260

_CONTROL = {token: np.array([token], np.uint16) for token in (END, *HEADERS.values())}
_ROLES = {token: role for role, token in HEADERS.items()}
_SHOWN = {END: "<|end|>\n"} | {token: f"<|{role}|>\n" for role, token in HEADERS.items()}


class ByteChat:
    """Bytes are tokens 0 to 255; text can never spell a control token, because it is no byte."""

    extends = True

    def open(self, messages: Sequence[Message]) -> IntArray:
        parts: list[IntArray] = []
        for message in messages:
            parts += (_CONTROL[HEADERS[message.role]], encode(message.text), _CONTROL[END])
        parts.append(_CONTROL[HEADERS["assistant"]])
        return np.concatenate(parts)

    def extend(self, reply: IntArray, messages: Sequence[Message]) -> IntArray:
        rest = self.open(messages)
        ended = len(reply) > 0 and reply[-1] == END
        return rest if ended else np.concatenate([_CONTROL[END], rest])

    def reply(self, text: str, *, end: bool) -> PlacedTokens:
        tokens = encode(text)
        if end:
            tokens = np.concatenate([tokens, _CONTROL[END]])
        return PlacedTokens(tokens, decode(tokens).starts)


def encode(text: str) -> IntArray:
    """The tokens of plain text."""
    return np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.uint16)


def decode(tokens: IntArray) -> DecodedTokens:
    """The text of sampled tokens, without control tokens, and where each token starts in it."""
    spoken = tokens < END
    return decode_tokens(tokens[spoken].astype(np.uint8).tobytes(), spoken.astype(np.int64))


def conversation(tokens: IntArray) -> list[Message]:
    """The messages of a prompt: what `open` and `extend` put together."""
    raw = tokens.astype(np.uint8).tobytes()
    marks = np.flatnonzero(tokens >= END).tolist()
    ends = [*marks[1:], len(tokens)]
    return [
        Message(_ROLES[int(tokens[at])], raw[at + 1 : end].decode(errors="replace"))
        for at, end in zip(marks, ends, strict=False)
        if tokens[at] != END and end < len(tokens)
    ]


def transcribe(tokens: IntArray) -> str:
    """A whole prompt as readable text, control tokens written out: what a scripted model reads."""
    raw = tokens.astype(np.uint8).tobytes()
    text: list[str] = []
    last = 0
    for at in np.flatnonzero(tokens >= END).tolist():
        text += (raw[last:at].decode(errors="replace"), _SHOWN[int(tokens[at])])
        last = at + 1
    text.append(raw[last:].decode(errors="replace"))
    return "".join(text)
