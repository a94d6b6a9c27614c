"""The three ways in which peer debate training fails, noticed and named while it runs.

`consensus`: everybody says the same, and nobody prefers anything. `noise`: the votes are dice.
`format`: comparisons vanish, and the votes with them. Each can be read off the metrics before the
accuracy shows it. Pure: metrics go in step by step, alarms come out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALARMS = ("consensus", "noise", "format")
"""Every alarm there is."""

AGAIN = 25
"""After so many steps an alarm that never went quiet rings once more."""

SAME = 1.1
"""Fewer distinct answers a debate than this: all say the same."""
FEW = 0.1
"""A smaller share than this is next to nothing."""
CHANCE = 0.55
"""Votes right less often than this are a coin."""
AGREEMENT = 0.05
"""Judges who agree less than this, from -1 to 1, agree by chance."""
LOST = 0.9
"""This share of malformed or missing comparisons is a collapse, wherever the run began."""
FALLEN = 0.5
"""Votes below this share of the best window so far have fallen."""

DISTINCT, DECIDED = "health/distinct_answers", "health/decided_votes"
TRUTH, AGREE = "health/vote_truth_accuracy", "health/judge_agreement"
MIXED = "env/all/by_group/frac_mixed"
BROKEN, MISSING = "parse_error", "v2/missing_comparisons"
VOTES, ROUNDS, RIGHT = "v2/total_votes", "round", "health/right"
WATCHED = (DISTINCT, DECIDED, TRUTH, AGREE, MIXED, BROKEN, MISSING, VOTES, ROUNDS, RIGHT)

SOLVED = 0.9
"""Where so many answers are right, consensus is success."""

TRY = {
    "consensus": "Raise the temperature of the personas, take harder questions, lower the learning "
    "rate, or let the judge stream weigh less than 1.",
    "solved": "Take harder questions, or stop here.",
    "noise": "Warm start with comparisons, use 5 agents or more, lower the learning rate, or set "
    "judge_truth above 0 where answers can be checked.",
    "format": "Go back to an earlier checkpoint, lower the learning rate, raise format_penalty or "
    "max_tokens, or warm start with comparisons.",
}
"""What to change, by alarm."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One failure mode, seen at one step."""

    name: str
    step: int
    saw: str
    """One sentence with the numbers."""
    try_: str
    """One sentence with the settings to change."""

    def __str__(self) -> str:
        return f"{self.name}: {self.saw}. {self.try_}"


@dataclass(slots=True)
class Alarms:
    """Looks at the last steps, so that one odd step does not ring. Belongs into the checkpoint."""

    window: int = 8
    rows: list[dict[str, float | None]] = field(default_factory=list)
    """What was watched in the last steps, the oldest first."""
    best: dict[str, float] = field(default_factory=dict)
    """The window with the most votes so far: its votes, and its rounds where known."""
    rang: dict[str, int] = field(default_factory=dict)
    """The step at which an alarm rang, until it has been quiet for more than a window."""
    quiet: dict[str, int] = field(default_factory=dict)
    """For so many steps an alarm that rang has had no reason to."""

    def feed(self, metrics: Mapping[str, float | None], step: int) -> list[Alarm]:
        """The alarms that ring at this step; what is missing, None or not a number is unknown."""
        self.rows.append({name: _known(metrics.get(name)) for name in WATCHED})
        del self.rows[: -self.window]
        if len(self.rows) < self.window:
            return []
        seen = {name: self._mean(name) for name in WATCHED}
        self._remember_best(seen)
        reasons = {
            "consensus": _consensus(seen),
            "noise": _noise(seen),
            "format": _format(seen, self.best),
        }
        over = f"over the last {self.window} steps"
        return [
            Alarm(name, step, f"{reason} {over}", TRY[_kind(name, seen)])
            for name, reason in reasons.items()
            if self._rings(name, step, bool(reason))
        ]

    def _mean(self, name: str) -> float | None:
        """The mean of the window; unknown where more than half of its steps are."""
        known = [value for row in self.rows if (value := row[name]) is not None]
        return math.fsum(known) / len(known) if 2 * len(known) >= self.window else None

    def _remember_best(self, seen: Mapping[str, float | None]) -> None:
        votes, rounds = seen[VOTES], seen[ROUNDS]
        if votes is not None and votes > self.best.get(VOTES, 0.0):
            self.best = {VOTES: votes} | ({} if rounds is None else {ROUNDS: rounds})

    def _rings(self, name: str, step: int, reason: bool) -> bool:
        if not reason:
            if name in self.rang:
                self.quiet[name] = self.quiet.get(name, 0) + 1
                # One odd good step keeps it quiet for a window, and proves nothing.
                if self.quiet[name] > self.window:
                    del self.rang[name], self.quiet[name]
            return False
        self.quiet.pop(name, None)
        if name in self.rang and step - self.rang[name] < AGAIN:
            return False
        self.rang[name] = step
        return True

    def to_data(self) -> dict[str, Any]:
        """Everything that decides what rings next, as plain JSON data."""
        return {
            "window": self.window,
            "rows": [dict(row) for row in self.rows],
            "best": dict(self.best),
            "rang": dict(self.rang),
            "quiet": dict(self.quiet),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Alarms":
        """As it was when `to_data` was called."""
        rows: Sequence[Mapping[str, float | None]] = data["rows"]
        return cls(
            data["window"],
            # A metric that is watched since the checkpoint was written is unknown in it.
            [{name: row.get(name) for name in WATCHED} for row in rows],
            dict(data["best"]),
            dict(data["rang"]),
            dict(data["quiet"]),
        )


def _consensus(seen: Mapping[str, float | None]) -> str:
    """All give the same answer and nobody takes a side.

    Answers that cannot be told apart, as in long writing, are unknown; then votes and groups must
    both be without a signal.
    """
    distinct, decided, mixed = seen[DISTINCT], seen[DECIDED], seen[MIXED]
    said = f"{distinct:.1f} distinct answers a debate" if distinct is not None else ""
    ties = f"{_percent(decided)} of votes decided" if decided is not None else ""
    flat = f"{_percent(mixed)} of groups with a signal" if mixed is not None else ""
    few_decided = decided is not None and decided < FEW
    few_mixed = mixed is not None and mixed < FEW
    if distinct is None:
        return f"{ties} and {flat}" if few_decided and few_mixed else ""
    if distinct >= SAME or not (few_decided or (decided is None and few_mixed)):
        return ""
    if _kind("consensus", seen) == "solved":
        return f"{said}, {_percent(seen[RIGHT] or 0.0)} of them right, and {ties or flat}"
    return f"{said} and {ties or flat}"


def _kind(name: str, seen: Mapping[str, float | None]) -> str:
    """Which advice an alarm gives: agents who agree because they are right need another."""
    right = seen[RIGHT]
    return "solved" if name == "consensus" and right is not None and right >= SOLVED else name


def _noise(seen: Mapping[str, float | None]) -> str:
    """The votes do not point to the better answer, or to any. Where nearly all votes are ties that
    is consensus, not noise."""
    decided, truth, agree = seen[DECIDED], seen[TRUTH], seen[AGREE]
    if decided is not None and decided < FEW:
        return ""
    if truth is not None:
        return f"{_percent(truth)} of votes for the right answer" if truth < CHANCE else ""
    if agree is not None and agree < AGREEMENT:
        return f"a judge agreement of {round(agree, 2) + 0.0:+.2f}, where chance is 0,"
    return ""


def _format(seen: Mapping[str, float | None], best: Mapping[str, float]) -> str:
    """Comparisons are nearly all gone, or far fewer than they were.

    Many malformed turns alone are no collapse: a model that was warm started just now may begin
    with them. And a debate that ends sooner has fewer votes with nothing wrong.
    """
    broken, missing, votes = seen[BROKEN], seen[MISSING], seen[VOTES]
    if missing is not None and missing >= LOST:
        return f"{_percent(missing)} of comparisons missing"
    if broken is not None and broken >= LOST:
        return f"{_percent(broken)} of turns malformed"
    if votes is None or VOTES not in best or votes >= FALLEN * best[VOTES]:
        return ""
    rounds, before = seen[ROUNDS], best.get(ROUNDS)
    shorter = rounds is not None and before is not None and rounds < 0.9 * before
    if shorter and max(missing or 0.0, broken or 0.0) < FALLEN:
        return ""
    said = [f"{votes:.1f} votes a debate, {best[VOTES]:.1f} at best"]
    if missing is not None:
        said.append(f"{_percent(missing)} of comparisons missing")
    if broken is not None:
        said.append(f"{_percent(broken)} of turns malformed")
    return ", ".join(said[:-1]) + " and " + said[-1] if len(said) > 1 else said[0] + ","


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _known(value: float | None) -> float | None:
    """None for what is no number, so that the state is plain JSON."""
    return float(value) if value is not None and math.isfinite(value) else None
