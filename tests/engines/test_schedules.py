"""The learning rate over a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.engines.schedules import Kind, Schedule
from rostra.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]),
        ("cosine", [0.5, 1.0, 1.0, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0.0]),
    ],
)
def test_schedules_on_six_steps_with_a_warm_up_of_two(kind: Kind, expected: list[float]) -> None:
    schedule = Schedule(kind, warmup=2, total=6)
    assert [schedule.factor(step) for step in range(7)] == pytest.approx(expected)
    assert schedule.factor(1000) == pytest.approx(expected[-1])


@given(
    st.sampled_from(["linear", "cosine"]), st.integers(0, 20), st.integers(1, 50), st.floats(0, 1)
)
def test_after_the_warm_up_the_rate_only_falls_and_ends_at_the_floor(
    kind: Kind, warmup: int, length: int, floor: float
) -> None:
    schedule = Schedule(kind, warmup, warmup + length, floor)
    rates = [schedule.factor(step) for step in range(warmup, warmup + length + 2)]
    assert rates[0] == pytest.approx(1)
    assert all(a >= b for a, b in zip(rates, rates[1:], strict=False))
    assert rates[-1] == pytest.approx(floor)
    rising = [schedule.factor(step) for step in range(warmup)]
    assert rising == sorted(rising)
    assert all(0 < rate <= 1 for rate in rising)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "cosin"}, "use constant, linear, cosine"),
        ({"kind": "linear"}, "more steps than its warm-up"),
        ({"kind": "cosine", "warmup": 9, "total": 9}, "more steps than its warm-up"),
        ({"warmup": -1}, "warmup = -1"),
        ({"floor": 1.5}, "floor = 1.5"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Schedule(**settings)  # type: ignore[arg-type]
