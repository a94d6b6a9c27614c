"""One forward pass of the sampler: new tokens of many sequences, over what each has kept."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rostra.engines.local.attention import Rule, attend, causal_mask
from rostra.engines.local.cache import Chunk, Entry

CALL_SECONDS = 6e-5
"""What one more product costs, however small."""
BYTES_PER_SECOND = 1.2e10


class Piece(NamedTuple):
    """New tokens of one sequence: so many after those that are computed."""

    entry: Entry
    tokens: int


class _Single:
    """A stretch of tokens of one sequence, rows [first, last) of the batch."""

    def __init__(self, piece: Piece, first: int) -> None:
        entry, count = piece
        self.chunk, self.slot = entry.chunk, entry.slot
        self.start, self.end = entry.length, entry.length + count
        self.rows = slice(first, first + count)
        self._masks: dict[int | None, Tensor] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> Tensor:
        q, k, v = q[:, self.rows], k[:, self.rows], v[:, self.rows]
        keys = self.chunk.keys[layer, self.slot, :, : self.end]
        values = self.chunk.values[layer, self.slot, :, : self.end]
        keys[:, self.start :] = k
        values[:, self.start :] = v
        window = rule.window if rule.window is not None and rule.window < self.end else None
        mask = None
        if self.start or window is not None:
            if window not in self._masks:
                self._masks[window] = causal_mask(q.shape[1], self.end, window, q.device)
            mask = self._masks[window]
        found = attend(q[None], keys[None], values[None], mask, rule)
        return found[0].transpose(0, 1)


class _Row:
    """Sequences that get one token each and lie side by side in one chunk: one product for all."""

    def __init__(self, entries: Sequence[Entry], first: int, device: torch.device) -> None:
        self.chunk = entries[0].chunk
        self.low, self.high = entries[0].slot, entries[-1].slot + 1
        self.rows = slice(first, first + len(entries))
        self.slots = torch.tensor([e.slot for e in entries], device=device)
        self.places = torch.tensor([e.length for e in entries], device=device)
        self.end = max(e.length for e in entries) + 1
        whole = self.high - self.low == len(entries)
        self.inside = None if whole else self.slots - self.low
        self._lengths = self.places + 1
        if not whole:
            lengths = torch.ones(self.high - self.low, dtype=torch.long, device=device)
            self._lengths = lengths.index_copy_(0, self.slots - self.low, self._lengths)
        self._masks: dict[int | None, Tensor] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> Tensor:
        keys, values = self.chunk.keys[layer], self.chunk.values[layer]
        keys[self.slots, :, self.places] = k[:, self.rows].transpose(0, 1)
        values[self.slots, :, self.places] = v[:, self.rows].transpose(0, 1)
        query = q[:, self.rows].transpose(0, 1)
        _, heads, width = query.shape
        if self.inside is not None:
            all_rows = query.new_zeros(self.high - self.low, heads, width)
            query = all_rows.index_copy_(0, self.inside, query)
        # One product for all sequences and heads: queries that share a head of keys are its rows.
        kept = k.shape[0]
        span = slice(self.low * kept, self.high * kept)
        keys = keys.flatten(0, 1)[span, : self.end]
        values = values.flatten(0, 1)[span, : self.end]
        query = query.reshape(len(keys), heads // kept, width)
        scores = self._scores(query, keys, kept, rule)
        found = torch.bmm(scores.softmax(-1), values).view(-1, heads, width)
        return found if self.inside is None else found[self.inside]

    def _scores(self, query: Tensor, keys: Tensor, kept: int, rule: Rule) -> Tensor:
        if rule.window not in self._masks:
            self._masks[rule.window] = self._make_mask(rule.window, kept, query)
        mask = self._masks[rule.window]
        keys = keys.transpose(1, 2)
        if rule.softcap is None:
            return torch.baddbmm(mask, query, keys, alpha=rule.scaling)
        scores = torch.bmm(query, keys).mul_(rule.scaling / rule.softcap)
        return scores.tanh_().mul_(rule.softcap).add_(mask)

    def _make_mask(self, window: int | None, kept: int, query: Tensor) -> Tensor:
        """Minus infinity where a sequence has nothing, or nothing within its window."""
        lengths = self._lengths[:, None]
        place = torch.arange(self.end, device=query.device)
        hidden = place >= lengths
        if window is not None:
            hidden |= place < lengths - window
        mask = torch.zeros(hidden.shape, dtype=query.dtype, device=query.device)
        return mask.masked_fill_(hidden, -torch.inf).repeat_interleave(kept, 0)[:, None]


class Step:
    """A packed batch: which rows belong to which sequence, and what they may look at."""

    def __init__(
        self, pieces: Sequence[Piece], device: torch.device, check: Callable[[], None]
    ) -> None:
        self._check = check
        self._parts: list[_Single | _Row] = []
        self.order: list[Piece] = []
        """The pieces in the order of their rows."""
        singles = [piece for piece in pieces if piece.tokens > 1]
        rows = 0
        for run in _runs([piece.entry for piece in pieces if piece.tokens == 1]):
            self._parts.append(_Row(run, rows, device))
            self.order += [Piece(entry, 1) for entry in run]
            rows += len(run)
        for piece in singles:
            self._parts.append(_Single(piece, rows))
            self.order.append(piece)
            rows += piece.tokens

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        self._check()
        found = [part.attend(layer, query, key, value, rule) for part in self._parts]
        return found[0] if len(found) == 1 else torch.cat(found)


def _runs(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that lie side by side. A few places in between that have nothing to do are read for
    nothing where that costs less than one more product."""
    by_place = sorted(entries, key=lambda entry: (id(entry.chunk), entry.slot))
    runs: list[list[Entry]] = []
    for entry in by_place:
        last = runs[-1][-1] if runs else None
        if last is not None and last.chunk is entry.chunk:
            idle = entry.slot - last.slot - 1
            if idle * _read_seconds(entry.chunk, entry.length) < CALL_SECONDS:
                runs[-1].append(entry)
                continue
        runs.append([entry])
    return runs


def _read_seconds(chunk: Chunk, tokens: int) -> float:
    _, _, heads, _, width = chunk.keys.shape
    return 2 * heads * width * chunk.keys.element_size() * tokens / BYTES_PER_SECOND
