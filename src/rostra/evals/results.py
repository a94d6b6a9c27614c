"""What an evaluation found, as plain data for `results.json`, and in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rostra.evals.accuracy import Row
from rostra.evals.modes import Findings, Mode
from rostra.evals.statistics import Measure, Paired, paired

Results = Mapping[str, Mapping[str, Any]]
"""What is known of each mode: measures with their intervals, counts of questions, and `against`,
the paired comparisons."""

MUTE = 0.1
"""Where fewer replies than this are well-formed, nothing else is measured."""
Price = tuple[float, float]
"""Dollars for a million tokens, read and sampled."""


def results(found: Mapping[Mode, Findings], price: Price | None = None) -> Results:
    """All that was found out, as JSON can hold it."""
    data: dict[str, dict[str, Any]] = {}
    for mode, one in found.items():
        measures = dict(one.measures)
        if price:
            measures["dollars"] = _dollars(one, price)
        data[mode] = {name: finite(asdict(measure)) for name, measure in measures.items()}
        data[mode] |= {"questions": len(one.rows), **asdict(one.tally)}
    if "debate" in found and found["debate"].rows:
        pairs = _comparisons(found["debate"], found["vote"].rows if "vote" in found else ())
        data["debate"]["against"] = {name: finite(asdict(pair)) for name, pair in pairs.items()}
    return data


def _dollars(one: Findings, price: Price) -> Measure:
    """What the answer to a question cost. Questions without a result were paid for too, but are in
    no row, and leave the interval open."""
    read, sampled = (one.measures[name].mean for name in ("prompt_tokens", "tokens"))
    mean = (read * price[0] + sampled * price[1]) / 1e6
    paid = [(row.prompt_tokens * price[0] + row.tokens * price[1]) / 1e6 for row in one.rows]
    known = Measure.of(paid)
    return known if math.isclose(known.mean, mean) else Measure(mean, math.nan, math.nan)


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not a number, which JSON does not have."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _comparisons(debates: Findings, votes: Sequence[Row]) -> dict[str, Paired]:
    """A debate against what it has to beat, question by question."""
    rows = {row.question: row for row in debates.rows}
    first, last = (
        [row.measures[name] for row in debates.rows] for name in ("vote@first", "vote@k")
    )
    # In a single round, the first answers are the last.
    found = {"first": paired(last, first)} if "round 2/vote@k" in debates.measures else {}
    plain = {vote.question: vote.accuracy for vote in votes if vote.question in rows}
    if plain:
        marks = list(plain.values())
        found["vote"] = paired([rows[q].accuracy for q in plain], marks)
        if "winner" in debates.measures:
            found["vote/winner"] = paired([rows[q].measures["winner"] for q in plain], marks)
    return found


def remarks(found: Results) -> list[str]:
    """What the numbers say about each other."""
    said = []
    debate, vote, roles = (_table(found, mode) for mode in ("debate", "vote", "roles"))
    against = _table(debate, "against")
    if "first" in against:
        first, last = (_mean(debate, name) for name in ("vote@first", "vote@k"))
        said.append(
            f"debate: a vote on the first answers is right {first:.1%} of the time, on the last "
            f"ones {last:.1%}: {_points(against, 'first')}"
        )
    if "vote" in against:
        spent, budget = (_mean(vote, name) for name in ("tokens", "budget"))
        near = not budget or spent > 0.9 * budget
        short = "" if near else f", of which it spent {spent / budget:.0%}"
        said.append(f"debate against vote, for the same tokens{short}: {_points(against, 'vote')}")
    if "vote/winner" in against:
        said.append(
            "debate, by the answer that its votes prefer, against vote, for the same tokens: "
            f"{_points(against, 'vote/winner')}"
        )
    if "opponents" in roles:
        wins = _mean(roles, "win_rate")
        won = f"it wins {wins:.1%} of the votes" if wins == wins else "nobody voted"
        said.append(
            f"roles: its opponents are right {_mean(roles, 'opponents'):.1%} of the time; {won} on "
            "its answers."
        )
    if "agreement" in roles:
        said.append(f"roles: {_of_panel(roles)}")
    mute = [mode for mode in found if _mean(_table(found, mode), "format") < MUTE]
    if mute:
        said.append(
            f"{', '.join(mute)}: hardly any reply has the form that was asked for, so the rest "
            "says little. Does the model know these prompts (--recipe)? Are replies cut off "
            "(protocol.max_tokens)?"
        )
    return said


def _of_panel(roles: Mapping[str, Any]) -> str:
    if math.isnan(_mean(roles, "win_rate")):
        return "no answers could be compared: they are malformed, or judges gave no votes."
    missing, ours, theirs = (
        _mean(roles, name) for name in ("votes_missing", "malformed/policy", "malformed/opponent")
    )
    if not missing < 1:
        said = "judges gave no vote; what is counted are answers that lost by their form"
    else:
        even = _table(roles, "win_rate/length_controlled")
        equal, low, high = (_number(even.get(end)) for end in ("mean", "low", "high"))
        said = (
            f"at equal length it is {equal:.1%} [{100 * low:.0f}-{100 * high:.0f}]; answers are "
            f"longer than its opponent's by {_mean(roles, 'length_difference'):+.0f} words. "
            f"Judges agree with {_mean(roles, 'agreement'):.2f}, where chance is 0 "
            "(Krippendorff's alpha)"
        )
    if 0 < missing < 1:
        said += f". {missing:.0%} of the votes are missing"
    if ours or theirs:
        said += f". Malformed are {ours:.0%} of its answers and {theirs:.0%} of its opponent's"
    return f"accuracy is the win rate by judges that did not play: {said}."


def _points(against: Mapping[str, Any], name: str) -> str:
    pair = _table(against, name)
    difference, low, high, p = (_number(pair.get(k)) for k in ("difference", "low", "high", "p"))
    return f"{100 * difference:+.1f} points [{100 * low:.1f} to {100 * high:.1f}], p = {p:.2g}."


def _mean(measures: Mapping[str, Any], name: str) -> float:
    return _number(_table(measures, name).get("mean"))


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table by name, empty where there is none: files can be edited."""
    found = tables.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
