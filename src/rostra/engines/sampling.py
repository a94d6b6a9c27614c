"""What goes into a sampler and what comes out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from rostra.engines.arrays import FloatArray, IntArray
from rostra.errors import ConfigError

StopReason = Literal["stop", "length"]
"""`stop`: a stop sequence or the end of the turn. `length`: cut off by the token limit."""

Stop = tuple[str, ...] | tuple[int, ...]
"""Stop strings or stop token ids, never both: servers disagree about what a mixture means."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one reply. The end-of-turn token always stops; `stop` adds to it."""

    max_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    stop: Stop = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.stop:
            _check_known_stop(self.stop)
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens = {self.max_tokens}: must be at least 1")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature = {self.temperature}: must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p = {self.top_p}: must be above 0 and at most 1")
        if self.top_k < 0:
            raise ConfigError(f"top_k = {self.top_k}: must be 0 (off) or more")


@lru_cache(maxsize=256)
def _check_known_stop(stop: Stop) -> None:
    """The same few stop lists come with every request."""
    check_stop(stop)


def check_stop(stop: Sequence[object]) -> None:
    """Refuses a stop list that mixes strings and token ids, or holds an empty string."""
    if isinstance(stop, str):
        raise ConfigError(f"stop = {stop!r}: give a list, even of one")
    if not (all(isinstance(s, str) for s in stop) or all(type(s) is int for s in stop)):
        raise ConfigError(f"stop = {list(stop)}: use strings or token ids, not a mixture")
    if "" in stop:
        raise ConfigError("stop holds an empty string, which would end every reply at once")


class Usage(NamedTuple):
    """What a reply cost, as the server counts it whose tokens it is in."""

    read: int
    """Tokens of the whole prompt."""
    sampled: int


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """One sampled reply: exactly what was sampled, never re-tokenised."""

    text: str
    tokens: IntArray = field(repr=False)
    logprobs: FloatArray = field(repr=False)
    """Of the distribution that was sampled from, temperature and all."""
    starts: IntArray = field(repr=False)
    """For each token, the index of the character of `text` that holds its first byte."""
    stop_reason: StopReason
    plain: FloatArray | None = field(default=None, repr=False)
    """Log-probabilities of the model itself, at temperature 1 with nothing cut off, from engines
    that know them."""
    usage: Usage | None = None
    """From engines whose `tokens` are not those that the model reads and writes."""


class Sampler(Protocol):
    """Makes tokens with fixed weights. A sampler never sees newer weights."""

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]: ...

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        """Log-probabilities of tokens[start:], each given all tokens before it."""
        ...
