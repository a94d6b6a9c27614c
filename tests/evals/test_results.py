"""What an evaluation found: as data that JSON can hold, and in words."""

import json
from typing import Any

import pytest

from rostra.evals.accuracy import Row, summary
from rostra.evals.modes import Findings, Mode, Tally
from rostra.evals.results import Results, remarks, results
from rostra.evals.statistics import Measure


def debates(*marks: tuple[float, float, float], voted: float = 1.0, rounds: int = 2) -> Findings:
    """One for each question: whether the first vote, the last vote and the winner were right."""
    rows = [
        Row(
            f"q{i}",
            last,
            {
                **{"vote@first": first, "vote@k": last, "winner": winner, "voted": voted},
                **({"round 2/vote@k": last} if rounds > 1 else {}),
            },
            tokens=100,
            prompt_tokens=1000,
        )
        for i, (first, last, winner) in enumerate(marks)
    ]
    return Findings(rows, summary(rows), Tally(len(rows)))


def votes(*marks: float, budget: float = 100, first: int = 0) -> Findings:
    rows = [
        Row(f"q{i}", mark, {"budget": budget}, tokens=80) for i, mark in enumerate(marks, first)
    ]
    return Findings(rows, summary(rows), Tally(len(rows)))


def of(**found: Findings) -> Results:
    modes: dict[Mode, Findings] = {mode: found[mode] for mode in found}  # type: ignore[misc]
    data = results(modes)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    return data


def test_a_debate_is_paired_with_its_first_answers_and_with_a_vote() -> None:
    data = of(debate=debates((0, 1, 1), (0, 1, 0), (1, 1, 1), (1, 1, 1)), vote=votes(1, 0, 1, 0))
    against = data["debate"]["against"]
    assert {name: pair["difference"] for name, pair in against.items()} == {
        "first": 0.5,
        "vote": 0.5,
        "vote/winner": 0.25,
    }
    assert (against["first"]["better"], against["first"]["worse"]) == (2, 0)
    said = remarks(data)
    assert "right 50.0% of the time, on the last ones 100.0%: +50.0 points" in said[0]
    assert said[1].startswith("debate against vote, for the same tokens, of which it spent 80%: ")
    assert "the answer that its votes prefer" in said[2] and "+25.0 points" in said[2]


def test_only_questions_that_both_answered_are_paired() -> None:
    data = of(debate=debates((0, 1, 1), (0, 1, 1)), vote=votes(0, 0, first=1))
    assert data["debate"]["against"]["first"]["better"] == 2
    assert data["debate"]["against"]["vote"]["better"] == 1
    apart = of(debate=debates((0, 1, 1)), vote=votes(0, first=7))
    assert set(apart["debate"]["against"]) == {"first"}
    alone = of(vote=votes(1, 0))
    assert "against" not in alone["vote"] and remarks(alone) == []


def test_without_votes_there_is_no_winner_to_compare() -> None:
    data = of(debate=debates((0, 1, 1), voted=0.0), vote=votes(0))
    assert set(data["debate"]["against"]) == {"first", "vote"}


def test_the_first_answers_of_a_single_round_are_the_last() -> None:
    data = of(debate=debates((1, 1, 1), (0, 0, 0), rounds=1))
    assert data["debate"]["against"] == {} and remarks(data) == []


def test_hardly_any_form_is_told_before_other_numbers_are_believed() -> None:
    known = {"direct": measures(format=0.05), "vote": measures(format=0.5)}
    (said,) = remarks(known)
    assert said.startswith("direct: hardly any reply has the form") and "--recipe" in said
    assert remarks({"vote": measures(format=None)}) == []


@pytest.mark.parametrize("odd", [None, [], 3, "x", {}, {"against": [1]}, {"against": {"vote": 0}}])
def test_files_that_were_edited_cost_no_report(odd: Any) -> None:
    for mode in ("direct", "debate", "vote", "roles"):
        assert all(isinstance(line, str) for line in remarks({mode: odd}))
    spent = {"debate": {"against": {"vote": {}}}, "vote": measures(tokens=0, budget=0)}
    assert remarks(spent)[0].startswith("debate against vote, for the same tokens: ")


def test_what_questions_without_a_result_cost_is_paid_too() -> None:
    rows = [Row("q", 1.0, tokens=100, prompt_tokens=0)]
    costs = {"tokens": Measure.of([100, 300]), "prompt_tokens": Measure.of([0, 0])}
    found = Findings(rows, {"accuracy": Measure.of([1.0]), **costs}, Tally(2, 1, "why"))
    assert results({"roles": found}, (1.0, 1.0))["roles"]["dollars"] == {
        "mean": pytest.approx(200 / 1e6),
        "low": None,
        "high": None,
    }


def test_nothing_answered_is_nothing_said() -> None:
    data = of(debate=Findings([], summary([]), Tally(3, 3, "why")))
    assert data["debate"]["accuracy"] == {"mean": None, "low": None, "high": None}
    assert data["debate"]["failed"] == 3 and remarks(data) == []


def test_dollars_are_for_tokens_read_and_sampled() -> None:
    data = results({"debate": debates((0, 1, 1), (0, 0, 0))}, (0.5, 2.0))
    assert data["debate"]["dollars"]["mean"] == pytest.approx((1000 * 0.5 + 100 * 2) / 1e6)
    assert "dollars" not in of(debate=debates((0, 1, 1)))["debate"]


def measures(**numbers: float | None) -> dict[str, Any]:
    return {name: {"mean": value, "low": value, "high": value} for name, value in numbers.items()}


def panel(**changed: float | None) -> str:
    numbers: dict[str, float | None] = {
        "win_rate": 1.0,
        "win_rate/length_controlled": 1.0,
        "agreement": 0.5,
        "length_difference": 3.0,
        "votes_missing": 0.0,
        "malformed/policy": 0.0,
        "malformed/opponent": 0.0,
    }
    (said,) = remarks({"roles": measures(**(numbers | changed))})
    return said


def test_a_win_rate_without_a_vote_is_not_told_as_one_of_judges() -> None:
    assert "at equal length it is 100.0%" in panel() and "alformed" not in panel()
    assert "by +3 words" in panel() and "agree with 0.50" in panel()
    silent = panel(votes_missing=1.0, **{"malformed/opponent": 0.125})
    assert "judges gave no vote" in silent and "equal length" not in silent
    assert "Malformed are 0% of its answers and 12% of its opponent's." in silent
    assert "25% of the votes are missing." in panel(votes_missing=0.25)
    assert "no answers could be compared" in panel(win_rate=None)


def test_opponents_are_told_of_with_the_votes_or_without() -> None:
    (said,) = remarks({"roles": measures(opponents=0.25, win_rate=0.75)})
    assert said == (
        "roles: its opponents are right 25.0% of the time; it wins 75.0% of the votes on its "
        "answers."
    )
    (said,) = remarks({"roles": measures(opponents=0.25, win_rate=None)})
    assert "nobody voted" in said
