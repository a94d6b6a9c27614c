"""Memory that is freed and needed again a moment later."""

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""Options of glibc's mallopt."""


@functools.cache
def keep_freed_memory() -> bool:
    """Asks the C library to keep what it is given back.

    By default glibc takes every large block fresh from the system and returns it at once. A forward
    pass makes hundreds of them, and the system clears each page anew. Says whether the C library
    listens (glibc does, musl and macOS do not); without it everything works, more slowly.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1))
    return all([mallopt(option, value) for option, value in options])
