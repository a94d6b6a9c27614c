"""From the bytes of tokens to text, and to where in the text each token begins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.engines.offsets import decode_tokens

fragments = st.text(max_size=5).map(lambda s: s.encode("utf-8", "replace"))
raw_bytes = st.lists(fragments | st.binary(max_size=4), max_size=8).map(b"".join)


def decoded(*pieces: bytes) -> tuple[str, list[int]]:
    text, starts = decode_tokens(b"".join(pieces), np.array([len(p) for p in pieces], np.int64))
    return text, starts.tolist()


def walked(raw: bytes, firsts: list[int]) -> tuple[str, list[int]]:
    """The same, slowly: walks the bytes one character at a time."""
    text, owner, at = "", [], 0
    while at < len(raw):
        for width in (1, 2, 3, 4):
            try:
                character = raw[at : at + width].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            character, width = "\ufffd", 1
        owner += [len(text)] * width
        text += character
        at += width
    owner = owner[: len(raw)] + [len(text)]
    return text, [owner[first] for first in firsts]


def test_ascii_tokens_start_at_their_bytes() -> None:
    assert decoded(b"ab", b"c", b"def") == ("abcdef", [0, 2, 3])


def test_no_tokens_are_no_text() -> None:
    assert decoded() == ("", [])


@pytest.mark.parametrize("character", ["é", "数", "😀"])
def test_all_tokens_of_a_character_start_at_it(character: str) -> None:
    raw = character.encode()
    pieces = [raw[i : i + 1] for i in range(len(raw))]
    assert decoded(b"ab", *pieces, b"c") == (f"ab{character}c", [0, *[2] * len(raw), 3])


def test_a_token_that_begins_inside_a_character_starts_at_that_character() -> None:
    raw = "数".encode()
    assert decoded(b"a" + raw[:2], raw[2:] + b"bc", b"d") == ("a数bcd", [0, 1, 4])


def test_a_token_without_bytes_starts_where_the_next_byte_would() -> None:
    assert decoded(b"", b"a", b"", b"b", b"") == ("ab", [0, 0, 1, 1, 2])
    assert decoded(b"", "é".encode(), b"", b"b", b"") == ("éb", [0, 0, 1, 1, 2])


def test_every_byte_that_is_no_utf8_is_one_replacement_character() -> None:
    assert decoded(b"\xff", b"\xe6\x95", b"x", b"\x80") == (
        "\ufffd\ufffd\ufffdx\ufffd",
        [0, 1, 3, 4],
    )
    # An encoded surrogate is no UTF-8 either.
    assert decoded(b"\xed\xa0\x80") == ("\ufffd" * 3, [0])


def test_a_character_completed_by_the_next_token_is_whole() -> None:
    assert decoded(b"\xf0\x9f", b"\x98\x80") == ("😀", [0, 0])


@settings(max_examples=200, deadline=None)
@given(raw_bytes, st.data())
def test_any_bytes_cut_anywhere_agree_with_a_slow_walk(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    edges = [0, *cuts, len(raw)]
    pieces = [raw[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    assert decoded(*pieces) == walked(raw, edges[:-1])
