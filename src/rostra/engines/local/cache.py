"""Keys and values that are kept: one entry per sequence, found again by its beginning.

Entries of similar length lie side by side in one chunk of memory, so that attention reads many of
them with one product. A longer sequence moves to a chunk of the next size, as a growing array does.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from rostra.engines.arrays import IntArray

BLOCK = 16
"""Beginnings are looked up in steps of this many tokens, and then compared token by token."""
CHUNK_BYTES = 1 << 28
LOOK_AT = 8
"""How many entries with one beginning are compared token by token."""


class Chunk:
    """Room for several sequences of one size."""

    def __init__(self, shape: "CacheShape", slots: int, capacity: int) -> None:
        size = (shape.layers, slots, shape.heads, capacity, shape.width)
        # Zeros, not whatever lies there: what is masked away must still be a number.
        self.keys = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        self.values = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        self.capacity = capacity
        self.slots = slots
        self.free = list(range(slots))
        self.bytes = slots * shape.bytes(capacity)


class CacheShape:
    """What one token of one sequence needs."""

    def __init__(
        self, layers: int, heads: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.layers = layers
        self.heads = heads
        self.width = width
        self.dtype = dtype
        self.device = device

    def bytes(self, tokens: int) -> int:
        return 2 * self.layers * self.heads * self.width * self.dtype.itemsize * tokens


class Entry:
    """One sequence: its tokens, and where its keys and values are."""

    __slots__ = (
        "blocks",
        "busy",
        "chunk",
        "length",
        "planned",
        "policy",
        "scratch",
        "slot",
        "tokens",
    )

    def __init__(self, chunk: Chunk, slot: int, policy: int) -> None:
        self.chunk = chunk
        self.slot = slot
        self.policy = policy
        self.tokens = np.zeros(chunk.capacity, np.int64)
        self.planned = 0
        """Tokens that are known."""
        self.length = 0
        """Tokens whose keys and values are computed."""
        self.busy = True
        self.scratch = False
        """Nobody will continue it: its end may be overwritten."""
        self.blocks: list[int] = []


class Full(Exception):
    """No room, and nothing idle to drop."""


class Cache:
    """All entries, under one bound of memory."""

    def __init__(self, shape: CacheShape, limit: int, context: int) -> None:
        self.shape = shape
        self.limit = limit
        self.context = context
        self.bytes = 0
        self.dropped = 0
        """Entries that had to make room."""
        self._chunks: dict[int, list[Chunk]] = {}
        self._idle: OrderedDict[Entry, None] = OrderedDict()
        """Least recently used first."""
        self._index: dict[int, dict[Entry, None]] = {}

    def find(self, policy: int, tokens: IntArray) -> tuple[Entry | None, int]:
        """The entry that shares the longest beginning, and how many tokens they share; they need
        not be computed yet."""
        holders = None
        for key in _block_keys(policy, tokens):
            if key not in self._index:
                break
            holders = self._index[key]
        if holders is None:
            return None, 0
        best, shared = None, 0
        for entry in islice(reversed(holders), LOOK_AT):
            same = _shared(entry.tokens[: entry.planned], tokens)
            ready = min(same, entry.length), not entry.busy
            if best is None or (same, *ready) > (shared, min(shared, best.length), not best.busy):
                best, shared = entry, same
        return best, shared

    def open(self, policy: int, tokens: IntArray, room: int, force: bool = False) -> Entry:
        """A new entry for these tokens, with room for some more."""
        chunk, slot = self._place(len(tokens) + room, force)
        entry = Entry(chunk, slot, policy)
        self._plan(entry, tokens)
        return entry

    def copy(self, entry: Entry, source: Entry, tokens: int) -> None:
        """Begins an entry with what another one has computed."""
        _copy(source, entry.chunk, entry.slot, tokens)
        entry.length = tokens
        if source in self._idle:
            self._idle.move_to_end(source)

    def take(
        self, entry: Entry, tokens: IntArray, keep: int, room: int, force: bool = False
    ) -> None:
        """Continues an idle entry: the first `keep` tokens stay, the rest is new."""
        self._idle.pop(entry)
        entry.busy = True
        entry.scratch = False
        self._forget_blocks(entry, keep // BLOCK)
        entry.length = entry.planned = keep
        try:
            self.reserve(entry, len(tokens) + room, force)
        except BaseException:
            self.release(entry)
            raise
        self._plan(entry, tokens)

    def append(self, entry: Entry, token: int) -> None:
        """One more known token; there must be room for it."""
        entry.tokens[entry.planned] = token
        entry.planned += 1

    def reserve(self, entry: Entry, tokens: int, force: bool = False) -> None:
        """Moves an entry to a larger place if it needs one; `force` breaks the bound for it."""
        if tokens <= entry.chunk.capacity:
            return
        chunk, slot = self._place(tokens, force)
        _copy(entry, chunk, slot, entry.length)
        self._vacate(entry)  # and now it moves in
        entry.chunk, entry.slot = chunk, slot
        grown = np.zeros(chunk.capacity, np.int64)
        grown[: entry.planned] = entry.tokens[: entry.planned]
        entry.tokens = grown

    def release(self, entry: Entry) -> None:
        """Nobody works on it now; it stays until the room is needed."""
        entry.busy = False
        if entry.length < BLOCK:
            self._forget_blocks(entry, 0)
            self._vacate(entry)
            return
        entry.planned = entry.length
        self._forget_blocks(entry, entry.length // BLOCK)
        self._learn_blocks(entry)
        self._idle[entry] = None

    def discard(self, entry: Entry) -> None:
        """Gives up an entry that is being worked on."""
        entry.busy = False
        self._forget_blocks(entry, 0)
        self._vacate(entry)

    def drop(self, policy: int | None = None) -> int:
        """Drops all idle entries, or those of one policy, and says how many."""
        idle = [e for e in self._idle if policy is None or e.policy == policy]
        for entry in idle:
            self._evict(entry)
        return len(idle)

    def _plan(self, entry: Entry, tokens: IntArray) -> None:
        entry.tokens[entry.planned : len(tokens)] = tokens[entry.planned :]
        entry.planned = len(tokens)
        self._learn_blocks(entry)

    def _learn_blocks(self, entry: Entry) -> None:
        known = len(entry.blocks)
        start = entry.blocks[-1] if known else entry.policy
        tail = entry.tokens[known * BLOCK : entry.planned]
        for key in _block_keys(start, tail):
            entry.blocks.append(key)
            self._index.setdefault(key, {})[entry] = None

    def _forget_blocks(self, entry: Entry, keep: int) -> None:
        for key in entry.blocks[keep:]:
            holders = self._index[key]
            del holders[entry]
            if not holders:
                del self._index[key]
        del entry.blocks[keep:]

    def _place(self, tokens: int, force: bool) -> tuple[Chunk, int]:
        capacity = self._capacity(tokens)
        chunks = self._chunks.setdefault(capacity, [])
        while True:
            for chunk in chunks:
                if chunk.free:
                    return chunk, heapq.heappop(chunk.free)
            size = self.shape.bytes(capacity)
            slots = max(1, min(64, min(CHUNK_BYTES, self.limit // 8) // size))
            if self.bytes + slots * size > self.limit:
                slots = 1
            if self.bytes + slots * size <= self.limit or (force and not self._idle):
                chunk = Chunk(self.shape, slots, capacity)
                chunks.append(chunk)
                self.bytes += chunk.bytes
            elif self._idle:
                self._evict(next(iter(self._idle)))
                self.dropped += 1
            else:
                raise Full

    def _capacity(self, tokens: int) -> int:
        """64, 96, 128, 192, 256, ...: no more than half again what is needed."""
        size = 64
        while size < tokens:
            size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
        return size

    def _evict(self, entry: Entry) -> None:
        del self._idle[entry]
        self._forget_blocks(entry, 0)
        self._vacate(entry)

    def _vacate(self, entry: Entry) -> None:
        chunk = entry.chunk
        heapq.heappush(chunk.free, entry.slot)
        entry.slot = -1
        if len(chunk.free) == chunk.slots:
            self._chunks[chunk.capacity].remove(chunk)
            self.bytes -= chunk.bytes


def _copy(source: Entry, chunk: Chunk, slot: int, tokens: int) -> None:
    chunk.keys[:, slot, :, :tokens] = source.chunk.keys[:, source.slot, :, :tokens]
    chunk.values[:, slot, :, :tokens] = source.chunk.values[:, source.slot, :, :tokens]


def _block_keys(start: int, tokens: IntArray) -> Iterator[int]:
    """One key per whole block, each for everything up to its end."""
    key = start
    raw = np.ascontiguousarray(tokens, np.int64).tobytes()
    width = 8 * BLOCK
    for at in range(0, len(raw) - width + 1, width):
        key = hash((key, raw[at : at + width]))
        yield key


def _shared(a: IntArray, b: IntArray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size
