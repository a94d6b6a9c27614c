"""What the report of an evaluation says about what is missing from its numbers."""

from typing import Any

import pytest

from rostra.view.evaluation import results_table

NUMBER = {"mean": 0.5, "low": 0.2, "high": 0.8}


def table(**counts: Any) -> str:
    return results_table({"debate": {"accuracy": NUMBER, "questions": 3, **counts}})


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            {"asked": 6, "failed": 3, "error": "EngineError: <b>no</b>", "ungraded": 0},
            "debate: 3 of 6 questions failed: EngineError: &lt;b&gt;no&lt;/b&gt;",
        ),
        (
            {"asked": 3, "failed": 0, "error": None, "ungraded": 2},
            "debate: 2 of 5 questions have no known answer and were not asked.",
        ),
    ],
)
def test_questions_that_are_missing_from_the_numbers_are_told_of(
    counts: dict[str, Any], said: str
) -> None:
    assert f'<p class="wrong">{said}</p>' in table(**counts)


@pytest.mark.parametrize(
    "counts", [{}, {"asked": 3, "failed": 0, "error": None, "ungraded": 0}, {"asked": "3"}]
)
def test_where_nothing_is_missing_or_nothing_is_known_nothing_is_said(
    counts: dict[str, Any],
) -> None:
    assert "50.0%" in table(**counts)
    assert 'class="wrong"' not in table(**counts)
