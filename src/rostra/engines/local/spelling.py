"""How tokens are spelt: the bytes of each, for text, for places in text, for stop strings."""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rostra.engines.arrays import IntArray
from rostra.engines.offsets import DecodedTokens, decode_tokens
from rostra.errors import ConfigError

_PROBE = "Is 12 < 3? Agent 1 > Agent 2:\n  na\u00efve \u6570 \U0001f600."
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling:
    """The bytes of every token. Control tokens have none: they are never part of the text."""

    def __init__(self, tokenizer: Any) -> None:
        self.table = _table(tokenizer)
        text = _PROBE
        tokens = tokenizer.encode(text, add_special_tokens=False)
        spelt = b"".join(self.table[token] for token in tokens).decode(errors="replace")
        if spelt.strip() != tokenizer.decode(tokens, clean_up_tokenization_spaces=False).strip():
            raise ConfigError(
                "this tokenizer spells its tokens in a way Rostra does not know: it needs a "
                "byte-level or a sentencepiece one"
            )

    def decode(self, tokens: Sequence[int]) -> DecodedTokens:
        """The text of tokens, and where in it each of them starts."""
        pieces = [self.table[token] for token in tokens]
        return decode_tokens(b"".join(pieces), _lengths(pieces))


def _lengths(pieces: list[bytes]) -> IntArray:
    return np.fromiter(map(len, pieces), np.int64, len(pieces))


def _table(tokenizer: Any) -> list[bytes]:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    table = [b""] * (max(vocabulary.values()) + 1)
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    spell = _byte_level() if "ByteLevel" in _kinds(backend.get("decoder")) else _sentencepiece
    for token, index in vocabulary.items():
        table[index] = spell(token)
    special = set(tokenizer.all_special_ids)
    for index, added in tokenizer.added_tokens_decoder.items():
        control = added.special or index in special
        table[index] = b"" if control else str(added.content).encode()
    return table


def _kinds(decoder: Any) -> set[str]:
    if not decoder:
        return set()
    inner = [_kinds(part) for part in decoder.get("decoders", ())]
    return {decoder["type"]}.union(*inner)


def _byte_level() -> Any:
    """GPT-2's alphabet: every byte is a printable character, most of them themselves."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + index): byte for index, byte in enumerate(others)}

    def spell(token: str) -> bytes:
        if all(character in byte_of for character in token):
            return bytes(byte_of[character] for character in token)
        return token.encode()

    return spell


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()
