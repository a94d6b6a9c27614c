"""The lines of a diagnosis: shares with intervals, checks, and the verdict that follows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rostra.evals.statistics import wilson

Status = Literal["pass", "thin", "fail", "unknown"]
Rows = Sequence[tuple[float, float]]
"""For each question, how many of how many."""

BECAUSE = {
    "format": "who cannot keep the form fails everything else too",
    "comparisons": "without votes there is nothing to learn from",
}
"""Why a check stands before others."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95% interval; not a number where nothing is known."""

    value: float
    low: float
    high: float
    n: int
    """What it is a share of."""

    @classmethod
    def of(cls, rows: Rows) -> "Share":
        """Wilson's interval, which says something of 0 in 24 too. Answers to one question go
        together, so the trials that count are as many as the spread between questions tells, and
        where it tells nothing as many as there are questions."""
        rows = [(part, whole) for part, whole in rows if whole]
        n, k = sum(whole for _, whole in rows), len(rows)
        if not k:
            return cls(math.nan, math.nan, math.nan, 0)
        value = sum(part for part, _ in rows) / n
        spread = sum((part - value * whole) ** 2 for part, whole in rows) / n**2
        spread *= k / max(k - 1, 1)
        told = value * (1 - value) / spread if spread > 1e-12 else k
        return cls(value, *wilson(value, min(max(told, k), n)), round(n))

    def __str__(self) -> str:
        value = f"{100 * self.value:.1f}".removesuffix(".0")
        return f"{value}% [{100 * self.low:.0f}-{100 * self.high:.0f}%]"

    def numbers(self) -> dict[str, float]:
        return {"share": self.value, "low": self.low, "high": self.high, "n": float(self.n)}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the list: what was seen, and what to do where that is not enough."""

    name: str
    status: Status
    saw: str
    try_: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, share: Share, saw: str, try_: str, *, fails: bool, thin: bool = False
    ) -> "Check":
        """A check of a share; unknown where there is none."""
        status: Status = "fail" if fails else "thin" if thin else "pass"
        status = status if share.n else "unknown"
        return cls(name, status, saw, "" if status == "pass" else try_, share.numbers())


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Every check, in the order in which one fails because of another."""

    checks: tuple[Check, ...]

    @property
    def main(self) -> Check | None:
        """The first check that fails."""
        return next((check for check in self.checks if check.status == "fail"), None)

    @property
    def ready(self) -> bool:
        return self.main is None

    @property
    def verdict(self) -> str:
        """`ready`, or `not ready` and the main reason."""
        if self.main is None:
            kinds = {
                kind: [check.name for check in self.checks if check.status == kind]
                for kind in ("thin", "unknown")
            }
            rest = "; ".join(f"{kind}: {', '.join(who)}" for kind, who in kinds.items() if who)
            return f"ready ({rest})" if rest else "ready"
        reason = f"not ready: {self.main.name}: {self.main.saw}"
        return f"{reason}; {BECAUSE[self.main.name]}" if self.main.name in BECAUSE else reason
