"""What a worker process does between its lines."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MEMORY = 4 << 30
"""Bytes a process may use: a power tower takes all there is."""
OVER = -getattr(signal, "SIGPROF", 0) or None
"""How a process ends that has worked for too long; None where the kernel does not count."""


def serve(answer: Callable[[str], str]) -> None:
    """Answers every line of standard input until it ends. An empty one asks if it is ready."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What packages print must not be taken for an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _limit_memory()
    # Who started it decides what Ctrl-C ends, and it ends when its input does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        print(answer(line) if line.strip() else "ready", file=out, flush=True)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """The kernel ends the process after so many seconds of work, whatever it is doing then."""
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    if timed:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        return
