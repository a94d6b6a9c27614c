"""Packed attention gives every sequence what it would get alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rostra.engines.local.attention import Rule, Segments, attention  # noqa: E402
from rostra.engines.local.cache import Cache, CacheShape, Entry  # noqa: E402
from rostra.engines.local.steps import Piece, Step  # noqa: E402
from rostra.errors import EngineError  # noqa: E402

CPU = torch.device("cpu")
HEADS, KEPT, WIDTH, LAYERS = 4, 2, 8, 2
Windows = st.sampled_from([None, 1, 3, 7, 200])
Softcaps = st.sampled_from([None, 0.7, 5.0])


def naive(q: Any, k: Any, v: Any, rule: Rule) -> Any:
    """One sequence, token by token. The last query is at the last key."""
    queries, keys = q.shape[1], k.shape[1]
    rows = []
    for i in range(queries):
        place = keys - queries + i
        first = 0 if rule.window is None else max(0, place - rule.window + 1)
        heads = []
        for head in range(q.shape[0]):
            kept = head // (q.shape[0] // k.shape[0])
            scores = k[kept, first : place + 1] @ q[head, i] * rule.scaling
            if rule.softcap is not None:
                scores = torch.tanh(scores / rule.softcap) * rule.softcap
            heads.append(scores.softmax(0) @ v[kept, first : place + 1])
        rows.append(torch.stack(heads))
    return torch.stack(rows)


def noise(generator: Any, *size: int) -> Any:
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def tensors(tokens: int, seed: int) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((HEADS, tokens), (KEPT, tokens), (KEPT, tokens))
    return tuple(noise(generator, *size, WIDTH).requires_grad_() for size in sizes)  # type: ignore


def each_alone(lengths: list[int], q: Any, k: Any, v: Any, rule: Rule) -> Any:
    found, at = [], 0
    for length in lengths:
        part = slice(at, at + length)
        found.append(naive(q[:, part], k[:, part], v[:, part], rule))
        at += length
    return torch.cat(found)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=6),
    window=Windows,
    softcap=Softcaps,
    seed=st.integers(0, 99),
)
def test_packed_sequences_get_what_each_would_get_alone(
    lengths: list[int], window: int | None, softcap: float | None, seed: int
) -> None:
    rule = Rule(0.6, window, softcap)
    q, k, v = tensors(sum(lengths), seed)
    packed = Segments(lengths, CPU).attend(0, q, k, v, rule)
    alone = each_alone(lengths, q, k, v, rule)
    assert packed.shape == alone.shape
    assert torch.allclose(packed, alone, atol=1e-9)
    pull = noise(torch.Generator().manual_seed(seed + 1), *packed.shape)
    packed_grads = torch.autograd.grad((packed * pull).sum(), (q, k, v))
    alone_grads = torch.autograd.grad((alone * pull).sum(), (q, k, v))
    for found, expected in zip(packed_grads, alone_grads, strict=True):
        assert torch.allclose(found, expected, atol=1e-9)


def test_the_check_is_asked_on_the_way_there_and_back() -> None:
    asked: list[int] = []
    q, k, v = tensors(5, 0)
    out = Segments([3, 2], CPU, lambda: asked.append(1)).attend(0, q, k, v, Rule(1.0, None, None))
    assert len(asked) == 1
    out.sum().backward()
    assert len(asked) == 2


def test_attention_without_a_plan_is_refused() -> None:
    q, k, v = (x[None] for x in tensors(3, 0))
    module = torch.nn.Identity()
    module.layer_idx = 0  # type: ignore[assignment]
    with pytest.raises(EngineError, match="Identity"):
        attention(module, q, k, v, None)
    with pytest.raises(EngineError, match="Identity"):
        attention(module, q, k, v, None, packed=Segments([3], CPU), s_aux=torch.ones(HEADS))


def test_attention_scales_as_it_is_told() -> None:
    q, k, v = tensors(4, 0)
    module = torch.nn.Identity()
    module.layer_idx = 0  # type: ignore[assignment]
    for scaling, used in ((None, WIDTH**-0.5), (0.3, 0.3)):
        found, weights = attention(
            module, q[None], k[None], v[None], None, scaling=scaling, packed=Segments([4], CPU)
        )
        assert weights is None
        assert torch.allclose(found[0], naive(q, k, v, Rule(used, None, None)), atol=1e-9)


def kept(entry: Entry, layer: int) -> tuple[Any, Any]:
    """Keys and values that an entry has, as (heads, tokens, width)."""
    keys = entry.chunk.keys[layer, entry.slot, :, : entry.length]
    values = entry.chunk.values[layer, entry.slot, :, : entry.length]
    return keys, values


def filled(cache: Cache, planned: int, length: int, generator: Any) -> Entry:
    """A sequence of which some tokens are computed."""
    entry = cache.open(1, np.arange(planned), 0)
    entry.length = length
    for layer in range(LAYERS):
        for part in kept(entry, layer):
            part.copy_(noise(generator, *part.shape))
    return entry


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), min_size=1, max_size=8),
    window=Windows,
    softcap=Softcaps,
    seed=st.integers(0, 99),
)
def test_a_step_gives_every_sequence_what_it_would_get_alone(
    sizes: list[tuple[int, int]], window: int | None, softcap: float | None, seed: int
) -> None:
    """Computed tokens, and new ones; 0 new tokens leave a gap between the slots."""
    sizes = [(length, min(new, 64 - length)) for length, new in sizes]
    sizes[-1] = (sizes[-1][0], max(1, sizes[-1][1]))
    rule = Rule(0.6, window, softcap)
    generator = torch.Generator().manual_seed(seed)
    cache = Cache(CacheShape(LAYERS, KEPT, WIDTH, torch.float64, CPU), 1 << 24, 64)
    entries = [filled(cache, length + new, length, generator) for length, new in sizes]
    before = {e: [[p.clone() for p in kept(e, layer)] for layer in range(LAYERS)] for e in entries}
    pieces = [Piece(e, n) for e, (_, n) in zip(entries, sizes, strict=True) if n]
    step = Step(pieces, CPU, lambda: None)
    assert sorted((id(e), n) for e, n in step.order) == sorted((id(e), n) for e, n in pieces)
    tokens = sum(new for _, new in pieces)
    news = []
    with torch.no_grad():
        for layer in range(LAYERS):
            q = noise(generator, HEADS, tokens, WIDTH)
            k, v = noise(generator, KEPT, tokens, WIDTH), noise(generator, KEPT, tokens, WIDTH)
            news.append((k, v))
            out = step.attend(layer, q, k, v, rule)
            at = 0
            for entry, count in step.order:
                rows = slice(at, at + count)
                old_k, old_v = before[entry][layer]
                keys = torch.cat([old_k, k[:, rows]], 1)
                values = torch.cat([old_v, v[:, rows]], 1)
                assert torch.allclose(out[rows], naive(q[:, rows], keys, values, rule), atol=1e-9)
                at += count
    at = 0
    for entry, count in step.order:
        entry.length += count
        for layer, parts in enumerate(news):
            for part, (old, new) in enumerate(zip(before[entry][layer], parts, strict=True)):
                expected = torch.cat([old, new[:, at : at + count]], 1)
                assert torch.equal(kept(entry, layer)[part], expected)
        at += count
    for entry in set(entries) - {piece.entry for piece in pieces}:
        for layer in range(LAYERS):
            for found, old in zip(kept(entry, layer), before[entry][layer], strict=True):
                assert torch.equal(found, old)


def test_one_product_serves_sequences_with_a_gap_between_them() -> None:
    """Small gaps are read for nothing; whoever lies in them is left alone."""
    generator = torch.Generator().manual_seed(0)
    cache = Cache(CacheShape(LAYERS, KEPT, WIDTH, torch.float64, CPU), 1 << 24, 64)
    entries = [filled(cache, 21 + i, 20 + i, generator) for i in range(6)]
    between = [part.clone() for part in kept(entries[1], 0)]
    step = Step([Piece(entries[i], 1) for i in (4, 0, 2)], CPU, lambda: None)
    k, v = noise(generator, KEPT, 3, WIDTH), noise(generator, KEPT, 3, WIDTH)
    q = noise(generator, HEADS, 3, WIDTH)
    old = {entry: [part.clone() for part in kept(entry, 0)] for entry in entries}
    out = step.attend(0, q, k, v, Rule(0.5, None, None))
    for row, (entry, _) in enumerate(step.order):
        keys, values = (
            torch.cat([a, b[:, row : row + 1]], 1) for a, b in zip(old[entry], (k, v), strict=True)
        )
        expected = naive(q[:, row : row + 1], keys, values, Rule(0.5, None, None))
        assert torch.allclose(out[row : row + 1], expected, atol=1e-9)
    for found, expected in zip(kept(entries[1], 0), between, strict=True):
        assert torch.equal(found, expected)


def test_a_step_asks_in_every_layer_whether_to_go_on() -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    cache = Cache(CacheShape(LAYERS, KEPT, WIDTH, torch.float64, CPU), 1 << 24, 64)
    entry = cache.open(1, np.arange(3), 0)
    q, k, v = tensors(3, 0)
    with pytest.raises(Stopped):
        Step([Piece(entry, 3)], CPU, stop).attend(0, q, k, v, Rule(1.0, None, None))
