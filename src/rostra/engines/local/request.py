"""What the scheduler works on, and the count of what it did."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostra.engines.arrays import IntArray
from rostra.engines.local.cache import Entry
from rostra.engines.local.weights import Policy
from rostra.engines.sampling import SamplingParams


@dataclass(eq=False, slots=True)
class Request:
    """Something to sample or to score, and what has come of it so far."""

    policy: Policy
    prompt: IntArray
    done: Callable[[Any], None]
    """Takes the result, or an exception."""
    params: SamplingParams | None = None
    """None: score instead of sampling."""
    start: int = 0
    """Where scoring begins."""
    stops: tuple[bytes, ...] = ()
    ends: frozenset[int] = frozenset()
    cancelled: bool = False
    entry: Entry | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    spelt: bytearray = field(default_factory=bytearray)

    def known(self) -> IntArray:
        """Everything that is to be computed: the prompt, and the reply so far."""
        if not self.tokens:
            return self.prompt
        return np.concatenate([self.prompt, np.array(self.tokens, self.prompt.dtype)])

    def limit(self) -> int:
        """How many tokens may be taken from the cache: one must be left to compute."""
        if self.params is None:
            return self.start - 1
        return len(self.prompt) + len(self.tokens) - 1


@dataclass(slots=True)
class Counts:
    """What has been done, in tokens and steps."""

    steps: int = 0
    computed: int = 0
    """Tokens that went through the model."""
    reused: int = 0
    """Prompt tokens that did not: their keys and values were there."""
    sampled: int = 0
    preempted: int = 0
    """Requests that had to give up their place and were computed again."""
