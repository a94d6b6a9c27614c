"""The bytes of tokens: text, places in it, and control tokens that are no part of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

import tokenizers
import transformers

from rostra.engines.local.spelling import Spelling
from rostra.engines.local.toy import BEGIN, END, PAD, WORDS, toy_tokenizer
from rostra.errors import ConfigError

TOY = toy_tokenizer()
SPELLING = Spelling(TOY)
Words = st.sampled_from([f" {word}" for word in WORDS] + [word.capitalize() for word in WORDS])
Texts = st.lists(st.one_of(Words, st.text(max_size=6)), max_size=8).map("".join)


def encode(text: str, tokenizer: Any = TOY) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def naive_starts(raw: bytes, lengths: list[int]) -> list[int]:
    """For each token the number of characters that end at or before its first byte."""
    ends: list[int] = []
    for character in raw.decode(errors="surrogateescape"):
        before = ends[-1] if ends else 0
        ends.append(before + len(character.encode(errors="surrogateescape")))
    firsts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [sum(end <= first for end in ends) for first in firsts]


def naive_text(raw: bytes) -> str:
    return "".join(
        "\ufffd" if "\udc80" <= character <= "\udcff" else character
        for character in raw.decode(errors="surrogateescape")
    )


@settings(deadline=None, max_examples=150)
@given(text=Texts)
def test_the_bytes_of_tokens_are_the_bytes_of_their_text(text: str) -> None:
    tokens = encode(text)
    # Text may hold the name of a control token, but hypothesis does not guess it.
    assert b"".join(SPELLING.table[token] for token in tokens) == text.encode()
    said = SPELLING.decode(tokens)
    assert said.text == text == TOY.decode(tokens, clean_up_tokenization_spaces=False)


@settings(deadline=None, max_examples=200)
@given(tokens=st.lists(st.integers(0, len(TOY) - 1), max_size=20))
def test_any_tokens_at_all_have_text_and_places(tokens: list[int]) -> None:
    pieces = [SPELLING.table[token] for token in tokens]
    said = SPELLING.decode(tokens)
    assert said.text == naive_text(b"".join(pieces))
    assert said.starts.tolist() == naive_starts(b"".join(pieces), [len(p) for p in pieces])


def test_the_tokens_of_one_character_start_at_it() -> None:
    tokens = encode("n\u00e9\u6570\U0001f600 the")
    assert [len(SPELLING.table[token]) for token in tokens] == [1] * 10 + [4]
    said = SPELLING.decode(tokens)
    assert said.text == "n\u00e9\u6570\U0001f600 the"
    assert said.starts.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4]


def test_a_character_that_was_cut_off_becomes_replacements() -> None:
    tokens = encode("a\U0001f600")[:-1]
    said = SPELLING.decode(tokens)
    assert said.text == "a\ufffd\ufffd\ufffd"
    assert said.starts.tolist() == [0, 1, 2, 3]


def test_control_tokens_have_no_bytes() -> None:
    controls = [TOY.convert_tokens_to_ids(token) for token in (PAD, BEGIN, END)]
    assert [SPELLING.table[token] for token in controls] == [b""] * 3
    said = SPELLING.decode([*encode("yes"), controls[2], *encode(" no")])
    assert said.text == "yes no"
    assert said.starts.tolist() == [0, 3, 3]


def test_nothing_is_spelt_as_nothing() -> None:
    said = SPELLING.decode([])
    assert said.text == "" and len(said.starts) == 0


def test_words_are_one_token() -> None:
    """Also with a capital, or a space in front."""
    forms = [form for word in WORDS for form in (word, word.capitalize())]
    forms += [f" {form}" for form in forms]
    assert [form for form in forms if len(encode(form)) > 1] == []


def wrapped(core: Any, **options: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **options)


def test_an_added_word_is_spelt_as_it_is_and_a_special_one_is_not() -> None:
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens(["<think>\u6570 x"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<tool>"]})
    spelling = Spelling(tokenizer)
    think, tool = encode("<think>\u6570 x", tokenizer), encode("<tool>", tokenizer)
    assert len(think) == len(tool) == 1
    assert spelling.table[think[0]] == "<think>\u6570 x".encode()
    assert spelling.table[tool[0]] == b""


def sentencepiece() -> Any:
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *map(chr, range(0x21, 0x7F)), "\u2581n", "\u2581na", "ag", "\u00ef"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("\u2581", "n"), ("\u2581n", "a"), ("a", "g")]
    core = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True
        )
    )
    core.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    core.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
        ]
    )
    return wrapped(core, unk_token="<unk>", eos_token="</s>")


def test_sentencepiece_is_spelt_with_its_spaces_and_bytes() -> None:
    tokenizer = sentencepiece()
    spelling = Spelling(tokenizer)
    tokens = encode(" na \u6570\u00ef", tokenizer)
    said = spelling.decode(tokens)
    assert said.text == " na \u6570\u00ef"
    assert said.starts.tolist() == [0, 3, 4, 4, 4, 5]
    assert spelling.table[tokenizer.eos_token_id] == b""


def test_a_tokenizer_of_another_kind_is_refused() -> None:
    pieces = ["[UNK]", *map(chr, range(0x21, 0x7F)), *("##" + chr(i) for i in range(0x21, 0x7F))]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            vocab={piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"
        )
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    core.decoder = tokenizers.decoders.WordPiece()
    with pytest.raises(ConfigError, match="tokenizer"):
        Spelling(wrapped(core, unk_token="[UNK]"))


def test_the_table_covers_every_token() -> None:
    assert len(SPELLING.table) == len(TOY)
    assert all(isinstance(piece, bytes) for piece in SPELLING.table)
    silent = [index for index, piece in enumerate(SPELLING.table) if not piece]
    assert silent == sorted(TOY.all_special_ids)
    assert np.unique(SPELLING.table[3:259]).size == 256
