"""Counter-based seeds: every random choice is a pure function of where it is made.

Nothing in Rostra draws from a shared stream of random numbers, so the result of a debate does not
depend on what was played before it, beside it, or in another attempt.
"""

from hashlib import blake2b


def derive(*counters: int | str) -> int:
    """A 63-bit seed from a path of counters, such as (run seed, step, question, seat, round)."""
    key = "\x1f".join(map(str, counters)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1


def fraction(*counters: int | str) -> float:
    """A number in [0, 1) from a path of counters."""
    return derive(*counters) / 2**63
