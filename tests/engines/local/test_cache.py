"""Kept keys and values: found by their beginning, moved without loss, under one bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rostra.engines.local.cache import BLOCK, Cache, CacheShape, Entry, Full  # noqa: E402

SHAPE = CacheShape(2, 1, 3, torch.float32, torch.device("cpu"))
CONTEXT = 1024
SMALLEST = SHAPE.bytes(64)


def tokens(size: int, start: int = 0) -> Any:
    return np.arange(start, start + size, dtype=np.int64)


def numbers(policy: int, sequence: Any) -> Any:
    """What a model would compute: a number that depends on all tokens up to a place."""
    places = np.arange(1, len(sequence) + 1)
    return ((np.cumsum(np.asarray(sequence) * places % 1009) + policy * 37) % 65521).astype(int)


def compute(entry: Entry, upto: int | None = None) -> None:
    """Writes numbers where the model would write keys and values."""
    upto = entry.planned if upto is None else upto
    found = torch.tensor(numbers(entry.policy, entry.tokens[:upto]), dtype=torch.float32)
    fresh = slice(entry.length, upto)
    entry.chunk.keys[:, entry.slot, :, fresh] = found[fresh, None]
    entry.chunk.values[:, entry.slot, :, fresh] = -found[fresh, None]
    entry.length = upto


def holds(entry: Entry, policy: int, sequence: Any) -> bool:
    """Whether the computed part of an entry is that of a sequence."""
    expected = torch.tensor(numbers(policy, sequence), dtype=torch.float32)
    shape = (SHAPE.layers, SHAPE.heads, len(sequence), SHAPE.width)
    keys = entry.chunk.keys[:, entry.slot, :, : len(sequence)]
    values = entry.chunk.values[:, entry.slot, :, : len(sequence)]
    wanted = expected[None, None, :, None].expand(shape)
    return torch.equal(keys, wanted) and torch.equal(values, -wanted)


def stored(cache: Cache, sequence: Any, policy: int = 1, room: int = 0) -> Entry:
    """An idle entry, all computed."""
    entry = cache.open(policy, np.asarray(sequence), room)
    compute(entry)
    cache.release(entry)
    return entry


def test_a_sequence_is_found_by_its_beginning() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    entry = stored(cache, tokens(100))
    assert cache.find(1, tokens(100)) == (entry, 100)
    assert cache.find(1, tokens(300)) == (entry, 100)
    assert cache.find(1, tokens(50)) == (entry, 50)
    changed = tokens(100)
    changed[70] = 999
    assert cache.find(1, changed) == (entry, 70)


def test_a_beginning_shorter_than_a_block_is_not_found() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    stored(cache, tokens(100))
    assert cache.find(1, tokens(BLOCK - 1)) == (None, 0)
    assert cache.find(1, tokens(100, start=1)) == (None, 0)
    assert cache.find(1, tokens(0)) == (None, 0)


def test_the_longest_beginning_wins() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    for size in (40, 90, 60):
        stored(cache, np.concatenate([tokens(size), tokens(30, start=1000 + size)]))
    found, shared = cache.find(1, tokens(200))
    assert shared == 90
    assert found is not None and found.length == 120


def test_policies_do_not_share() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    one, two = stored(cache, tokens(60), policy=1), stored(cache, tokens(60), policy=2)
    assert cache.find(1, tokens(60)) == (one, 60)
    assert cache.find(2, tokens(60)) == (two, 60)
    assert cache.find(3, tokens(60)) == (None, 0)
    cache.drop(1)
    assert cache.find(1, tokens(60)) == (None, 0)
    assert cache.find(2, tokens(60)) == (two, 60)


def test_what_was_appended_is_found_after_release() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    entry = cache.open(1, tokens(20), 40)
    compute(entry)
    for token in range(20, 50):
        cache.append(entry, token)
    compute(entry, 49)
    cache.release(entry)
    assert cache.find(1, tokens(80)) == (entry, 49)
    assert holds(entry, 1, tokens(49))


def test_the_end_that_was_never_computed_is_forgotten() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    entry = cache.open(1, tokens(100), 0)
    compute(entry, 40)
    assert cache.find(1, tokens(100)) == (entry, 100)
    cache.release(entry)
    assert cache.find(1, tokens(100)) == (entry, 40)


def test_an_entry_shorter_than_a_block_is_not_kept() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    entry = cache.open(1, tokens(BLOCK), 0)
    compute(entry, BLOCK - 1)
    cache.release(entry)
    assert cache.bytes == 0
    assert cache.find(1, tokens(BLOCK)) == (None, 0)


def test_taking_an_entry_replaces_its_end() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    entry = stored(cache, tokens(60))
    other = np.concatenate([tokens(40), tokens(30, start=500)])
    cache.take(entry, other, 40, 10)
    assert entry.busy and entry.length == 40 and entry.planned == 70
    assert cache.find(1, tokens(60)) == (entry, 40)
    compute(entry)
    cache.release(entry)
    assert cache.find(1, other) == (entry, 70)
    assert holds(entry, 1, other)


def test_an_end_that_was_replaced_does_not_hide_another_sequence() -> None:
    cache = Cache(SHAPE, 1 << 20, CONTEXT)
    other = stored(cache, np.concatenate([tokens(40), tokens(20, start=700)]))
    entry = stored(cache, tokens(60))
    assert cache.find(1, tokens(60)) == (entry, 60)
    cache.take(entry, np.concatenate([tokens(20), tokens(50, start=500)]), 20, 0)
    assert cache.find(1, tokens(60)) == (other, 40)


def test_moving_to_a_larger_place_keeps_the_contents() -> None:
    cache = Cache(SHAPE, 1 << 24, CONTEXT)
    entry = stored(cache, tokens(50))
    capacities = [entry.chunk.capacity]
    for size in (64, 65, 97, 200, 700):
        cache.take(entry, tokens(size), entry.length, 0)
        assert holds(entry, 1, tokens(entry.length))
        compute(entry)
        cache.release(entry)
        capacities.append(entry.chunk.capacity)
        assert cache.find(1, tokens(900)) == (entry, size)
    assert holds(entry, 1, tokens(700))
    assert capacities == sorted(capacities) and len(set(capacities)) == 5
    assert cache.bytes == entry.chunk.bytes


def test_no_place_is_more_than_half_again_too_large() -> None:
    cache = Cache(SHAPE, 1 << 30, CONTEXT)
    for size in range(64, 1500, 13):
        entry = cache.open(1, tokens(size), 0)
        assert size <= entry.chunk.capacity <= 1.5 * size
        cache.discard(entry)
    assert cache.bytes == 0


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(SHAPE, 4 * SMALLEST, CONTEXT)
    entries = [stored(cache, tokens(60, start=1000 * i)) for i in range(4)]
    assert cache.bytes == 4 * SMALLEST and cache.dropped == 0
    cache.take(entries[0], tokens(61), 60, 0)  # used again: now the youngest
    cache.release(entries[0])
    copied = cache.open(1, tokens(60, start=1000), 0)  # makes room: 1 is the oldest
    assert [e.slot >= 0 for e in entries] == [True, False, True, True]
    cache.copy(copied, entries[2], 16)  # a source was used as well
    cache.release(copied)
    cache.open(1, tokens(60, start=9000), 0)
    assert [e.slot >= 0 for e in entries] == [True, False, True, False]
    assert cache.dropped == 2
    assert cache.bytes <= cache.limit


def test_a_full_cache_says_so_unless_forced() -> None:
    cache = Cache(SHAPE, 2 * SMALLEST, CONTEXT)
    entries = [cache.open(1, tokens(60, start=100 * i), 0) for i in range(2)]
    with pytest.raises(Full):
        cache.open(1, tokens(60), 0)
    with pytest.raises(Full):
        cache.reserve(entries[0], 65)
    compute(entries[0])
    cache.reserve(entries[0], 65, force=True)
    assert cache.bytes > cache.limit
    assert holds(entries[0], 1, tokens(60))
    cache.discard(entries[0])
    cache.discard(entries[1])
    assert cache.bytes == 0


def test_force_drops_what_is_idle_before_it_breaks_the_bound() -> None:
    cache = Cache(SHAPE, 3 * SMALLEST, CONTEXT)
    for i in range(3):
        stored(cache, tokens(60, start=100 * i))
    entry = cache.open(1, tokens(170), 0, force=True)
    assert entry.chunk.capacity == 192 and cache.dropped == 3
    assert cache.bytes == 3 * SMALLEST


def test_who_cannot_be_continued_for_lack_of_room_is_still_there() -> None:
    cache = Cache(SHAPE, 3 * SMALLEST, CONTEXT)
    busy = cache.open(1, tokens(120, start=1000), 0)
    idle = stored(cache, tokens(60))
    with pytest.raises(Full):
        cache.take(idle, tokens(80), 60, 0)
    assert not idle.busy
    assert cache.find(1, tokens(80)) == (idle, 60)
    assert holds(idle, 1, tokens(60))
    cache.discard(busy)
    cache.take(idle, tokens(80), 60, 0)
    assert holds(idle, 1, tokens(60))


class Model:
    """What a cache is to remember, in plain lists."""

    def __init__(self) -> None:
        self.known: dict[Entry, list[int]] = {}
        self.idle: list[Entry] = []
        """Least recently used first."""
        self.indexed: dict[Entry, int] = {}
        """Tokens that can be found: those appended since are not, until release."""

    def busy(self) -> list[Entry]:
        return [entry for entry in self.known if entry not in self.idle]

    def notice_drops(self) -> None:
        """Only the oldest idle entries may go."""
        gone = [entry for entry in self.known if entry.slot < 0]
        assert sorted(map(id, gone)) == sorted(map(id, self.idle[: len(gone)]))
        for entry in gone:
            self.idle.remove(entry)
            del self.known[entry]

    def release(self, entry: Entry, length: int) -> None:
        if length < BLOCK:
            del self.known[entry]
            return
        self.known[entry] = self.known[entry][:length]
        self.indexed[entry] = length
        self.idle.append(entry)


def common(a: Any, b: Any) -> int:
    size = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        size += 1
    return size


def check(cache: Cache, model: Model) -> None:
    places = set()
    chunks = {id(chunk): chunk for chunks in cache._chunks.values() for chunk in chunks}
    assert cache.bytes == sum(chunk.bytes for chunk in chunks.values())
    for chunk in chunks.values():
        assert chunk.bytes == chunk.keys.nbytes + chunk.values.nbytes
        assert len(set(chunk.free)) == len(chunk.free) < chunk.slots
    for entry, sequence in model.known.items():
        assert entry.busy == (entry not in model.idle)
        assert id(entry.chunk) in chunks
        assert entry.slot not in entry.chunk.free
        places.add((id(entry.chunk), entry.slot))
        assert entry.planned == len(sequence) <= entry.chunk.capacity
        assert entry.tokens[: entry.planned].tolist() == sequence
        assert holds(entry, entry.policy, sequence[: entry.length])
    assert len(places) == len(model.known)
    used = sum(chunk.slots - len(chunk.free) for chunk in chunks.values())
    assert used == len(model.known)


def check_find(cache: Cache, model: Model, policy: int, sequence: Any) -> tuple[Any, int]:
    found, shared = cache.find(policy, sequence)
    whole = [
        min(common(known, sequence), model.indexed[entry]) // BLOCK * BLOCK
        for entry, known in model.known.items()
        if entry.policy == policy
    ]
    assert shared >= max(whole, default=0)
    if found is None:
        assert shared == 0
    else:
        assert found in model.known and found.policy == policy
        assert shared == common(model.known[found], sequence.tolist())
    return found, shared


OPERATIONS = ("open", "open", "take", "take", "append", "compute", "release", "release", "discard")
Moves = st.lists(
    st.tuples(st.sampled_from([*OPERATIONS, "copy", "drop", "force"]), st.integers(0, 2**32)),
    min_size=10,
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(moves=Moves, limit=st.integers(2, 14))
def test_any_history_leaves_the_cache_in_order(moves: list[tuple[str, int]], limit: int) -> None:
    cache, model = Cache(SHAPE, limit * SMALLEST, CONTEXT), Model()
    for move, seed in moves:
        rng = np.random.default_rng(seed)
        policy = int(rng.integers(1, 3))
        sequence = some_tokens(rng, model)
        before = cache.bytes
        found, shared = check_find(cache, model, policy, sequence)
        forced = move == "force"
        busy = model.busy()
        chosen = busy[rng.integers(len(busy))] if busy else None
        if move in ("open", "force", "copy"):
            play_open(cache, model, policy, sequence, rng, forced)
            if move == "copy" and found is not None and found.slot >= 0:
                play_copy(cache, model, found, shared, list(model.known)[-1])
        elif move == "take" and found in model.idle:
            play_take(cache, model, found, sequence, shared, rng)
        elif move == "drop":
            which = policy if rng.random() < 0.7 else None
            cache.drop(which)
            for entry in [e for e in model.idle if which in (None, e.policy)]:
                assert entry.slot < 0
                model.idle.remove(entry)
                del model.known[entry]
        elif chosen is not None:
            play_busy(cache, model, move, chosen, rng)
        assert forced or cache.bytes <= max(before, cache.limit)
        check(cache, model)
    for entry in model.busy():
        cache.discard(entry)
    cache.drop()
    assert cache.bytes == 0
    assert not cache._index


def some_tokens(rng: Any, model: Model) -> Any:
    """Mostly the beginning of a known sequence, with another end."""
    end = rng.integers(0, 3, size=rng.integers(1, 90))
    if model.known and rng.random() < 0.8:
        base = list(model.known.values())[rng.integers(len(model.known))]
        return np.array([*base[: rng.integers(len(base) + 1)], *end], np.int64)
    return end.astype(np.int64)


def play_open(
    cache: Cache, model: Model, policy: int, sequence: Any, rng: Any, force: bool
) -> None:
    try:
        entry = cache.open(policy, sequence, int(rng.integers(0, 40)), force)
    except Full:
        assert not force
        model.notice_drops()
        assert not model.idle
        return
    model.notice_drops()
    model.known[entry] = sequence.tolist()
    model.indexed[entry] = len(sequence)


def play_copy(cache: Cache, model: Model, source: Entry, shared: int, entry: Entry) -> None:
    if entry is source or entry.length or not entry.busy or entry.policy != source.policy:
        return
    keep = min(common(model.known[source], model.known[entry]), source.length)
    cache.copy(entry, source, keep)
    assert entry.length == keep
    if source in model.idle:
        model.idle.remove(source)
        model.idle.append(source)


def play_take(
    cache: Cache, model: Model, entry: Entry, sequence: Any, shared: int, rng: Any
) -> None:
    keep = min(shared, len(sequence) - 1, entry.length)
    model.idle.remove(entry)
    try:
        cache.take(entry, sequence, keep, int(rng.integers(0, 40)))
    except Full:
        if keep >= BLOCK:
            model.notice_drops()
        assert not model.idle
        model.release(entry, keep)
        model.known = {e: t for e, t in model.known.items() if e.slot >= 0}
        return
    model.notice_drops()
    model.known[entry] = sequence.tolist()
    model.indexed[entry] = len(sequence)


def play_busy(cache: Cache, model: Model, move: str, entry: Entry, rng: Any) -> None:
    if move == "append":
        for token in rng.integers(0, 3, size=rng.integers(1, 40)).tolist():
            try:
                cache.reserve(entry, entry.planned + 1)
            except Full:
                model.notice_drops()
                assert not model.idle
                return
            model.notice_drops()
            cache.append(entry, token)
            model.known[entry].append(token)
    elif move == "compute":
        compute(entry, int(rng.integers(entry.length, entry.planned + 1)))
    elif move == "release":
        if rng.random() < 0.8:
            compute(entry)
        cache.release(entry)
        model.release(entry, entry.length)
    elif move == "discard":
        cache.discard(entry)
        del model.known[entry]
