"""Counter-based seeds: every random choice is a pure function of where it is made.

Nothing in Rostra draws from a shared stream of random numbers, so the result of a debate does not
depend on what was played before it, beside it, or in another attempt.
"""

import random
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


def derive(*counters: int | str) -> int:
    """A 63-bit seed from a path of counters, such as (run seed, step, question, seat, round)."""
    key = repr(tuple([c if isinstance(c, str) else int(c) for c in counters])).encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1


def permuted(items: list[T], seed: int) -> list[T]:
    """The items in an order that is a pure function of the seed."""
    items = items.copy()
    if len(items) > 16:
        random.Random(seed).shuffle(items)
        return items
    # 16! is far below 2**63, so one seed holds every choice of a shuffle as its digits.
    for last in range(len(items) - 1, 0, -1):
        seed, other = divmod(seed, last + 1)
        items[last], items[other] = items[other], items[last]
    return items


def fraction(*counters: int | str) -> float:
    """A number in [0, 1) from a path of counters."""
    return (derive(*counters) >> 10) / 2**53
