"""How the learning rate goes over a run."""

import math
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

from rostra.errors import ConfigError

Kind = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rises in equal steps over the first `warmup` steps, then stays or falls until `total`."""

    kind: Kind = "constant"
    warmup: int = 0
    total: int = 0
    """Steps in all; after them the rate stays where it is. Not needed to stay constant."""
    floor: float = 0.0
    """The share of the rate that is left at the end."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"schedule = {self.kind!r}: use {', '.join(get_args(Kind))}")
        if self.warmup < 0:
            raise ConfigError(f"warmup = {self.warmup}: must be 0 or more")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"floor = {self.floor}: a share between 0 and 1")
        if self.kind != "constant" and self.total <= self.warmup:
            raise ConfigError(
                f"total = {self.total}: a {self.kind} schedule needs more steps than its warm-up "
                f"({self.warmup})"
            )

    def factor(self, step: int) -> float:
        """What the learning rate is multiplied with at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "constant":
            return 1.0
        done = min((step - self.warmup) / (self.total - self.warmup), 1.0)
        match self.kind:
            case "linear":
                left = 1 - done
            case "cosine":
                left = (1 + math.cos(math.pi * done)) / 2
            case _:
                assert_never(self.kind)
        return self.floor + (1 - self.floor) * left
