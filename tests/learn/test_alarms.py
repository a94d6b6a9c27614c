"""Three ways to fail, and that they ring when they should and not before."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.learn.alarms import AGAIN, ALARMS, TRY, WATCHED, Alarm, Alarms

Step = dict[str, float | None]

HEALTHY: Step = {
    "health/distinct_answers": 2.6,
    "health/decided_votes": 0.8,
    "env/all/by_group/frac_mixed": 0.95,
    "health/vote_truth_accuracy": 0.75,
    "health/judge_agreement": 0.3,
    "parse_error": 0.05,
    "v2/missing_comparisons": 0.1,
    "v2/total_votes": 40.0,
    "round": 3.0,
}
SAME: Step = HEALTHY | {
    "health/distinct_answers": 1.02,
    "health/decided_votes": 0.02,
    "env/all/by_group/frac_mixed": 0.04,
    "health/vote_truth_accuracy": None,
    "health/judge_agreement": 0.0,
}
DICE: Step = HEALTHY | {"health/vote_truth_accuracy": 0.49}
GONE: Step = HEALTHY | {"v2/missing_comparisons": 0.97, "parse_error": 0.6, "v2/total_votes": 1.0}


def fed(steps: Iterable[Step], alarms: Alarms | None = None, first: int = 1) -> list[Alarm]:
    alarms = alarms or Alarms()
    return [alarm for n, step in enumerate(steps, first) for alarm in alarms.feed(step, n)]


def rang(steps: Iterable[Step]) -> list[tuple[str, int]]:
    return [(alarm.name, alarm.step) for alarm in fed(steps)]


def test_a_healthy_run_is_quiet() -> None:
    assert rang([HEALTHY] * 60) == []


@pytest.mark.parametrize(
    ("bad", "name", "saw"),
    [
        (SAME, "consensus", "1.0 distinct answers a debate and 2% of votes decided"),
        (DICE, "noise", "49% of votes for the right answer"),
        (GONE, "format", "97% of comparisons missing"),
    ],
)
def test_each_failure_rings_once_after_a_window_and_says_what_it_saw(
    bad: Step, name: str, saw: str
) -> None:
    (alarm,) = fed([bad] * 20)
    assert alarm == Alarm(name, 8, f"{saw} over the last 8 steps", TRY[name])
    assert str(alarm) == f"{name}: {saw} over the last 8 steps. {TRY[name]}"


def test_every_alarm_has_advice() -> None:
    assert set(TRY) == {*ALARMS, "solved"}


@pytest.mark.parametrize("bad", [SAME, DICE, GONE])
def test_one_odd_step_does_not_ring(bad: Step) -> None:
    assert rang([*[HEALTHY] * 10, bad, *[HEALTHY] * 10]) == []


def test_the_same_answers_with_votes_that_take_sides_are_no_consensus() -> None:
    assert rang([HEALTHY | {"health/distinct_answers": 1.0}] * 20) == []


def test_nobody_who_compares_is_consensus_too() -> None:
    silent = SAME | {"health/decided_votes": None, "health/judge_agreement": None}
    (alarm,) = fed([silent] * 8)
    assert alarm.saw.startswith("1.0 distinct answers a debate and 4% of groups with a signal")


def test_answers_that_cannot_be_told_apart_need_ties_and_flat_groups() -> None:
    unknown = SAME | {"health/distinct_answers": None}
    assert rang([unknown] * 8) == [("consensus", 8)]
    assert rang([unknown | {"env/all/by_group/frac_mixed": 0.5}] * 8) == []


def test_without_truth_the_agreement_of_judges_decides() -> None:
    unknown = HEALTHY | {"health/vote_truth_accuracy": float("nan")}
    assert rang([unknown] * 20) == []
    (alarm,) = fed([unknown | {"health/judge_agreement": -0.001}] * 8)
    assert alarm.saw == ("a judge agreement of +0.00, where chance is 0, over the last 8 steps")


def test_judges_who_disagree_about_right_answers_are_no_noise() -> None:
    assert rang([HEALTHY | {"health/judge_agreement": 0.0}] * 20) == []


def test_a_start_with_many_malformed_turns_is_no_collapse() -> None:
    rough = HEALTHY | {
        "parse_error": 0.4,
        "v2/missing_comparisons": 0.55,
        "v2/total_votes": 9.0,
    }
    assert rang([*[rough] * 20, *[HEALTHY] * 20]) == []


def test_votes_that_fall_far_below_their_best_are_a_collapse() -> None:
    fallen = HEALTHY | {"v2/missing_comparisons": 0.7, "v2/total_votes": 12.0}
    alarms = fed([*[HEALTHY] * 10, *[fallen] * 10])
    assert [alarm.name for alarm in alarms] == ["format"]
    assert 14 < alarms[0].step < 19
    assert "votes a debate, 40.0 at best, " in alarms[0].saw


def test_votes_alone_are_enough_to_see_a_collapse() -> None:
    votes: list[Step] = [{"v2/total_votes": 20.0}] * 8 + [{"v2/total_votes": 2.0}] * 8
    (alarm,) = fed(votes)
    assert alarm.saw.endswith("votes a debate, 20.0 at best, over the last 8 steps")


def test_debates_that_end_sooner_have_fewer_votes_and_nothing_is_wrong() -> None:
    short = HEALTHY | {"round": 1.2, "v2/total_votes": 12.0}
    assert rang([*[HEALTHY] * 10, *[short] * 20]) == []
    assert rang([*[HEALTHY] * 10, *[short | {"parse_error": 0.6}] * 20])


def test_malformed_turns_everywhere_are_a_collapse_from_the_start() -> None:
    broken = HEALTHY | {"parse_error": 0.95, "v2/missing_comparisons": None}
    assert rang([broken] * 9) == [("format", 8)]


def test_an_alarm_that_stays_rings_again_after_many_steps() -> None:
    assert rang([DICE] * (8 + AGAIN)) == [("noise", 8), ("noise", 8 + AGAIN)]


def test_an_alarm_that_was_quiet_for_a_window_rings_again() -> None:
    again = rang([*[DICE] * 8, *[HEALTHY] * 14, *[DICE] * 10])
    assert [name for name, _ in again] == ["noise", "noise"]
    assert again[1][1] < 8 + AGAIN


def test_one_good_step_does_not_make_an_alarm_ring_again() -> None:
    assert rang([*[GONE] * 8, HEALTHY, *[GONE] * 12]) == [("format", 8)]


def test_unknown_metrics_never_ring_and_never_break() -> None:
    assert rang([{}] * 20) == []
    assert rang([dict.fromkeys(WATCHED, float("nan"))] * 20) == []
    assert rang([dict.fromkeys(WATCHED, float("inf"))] * 20) == []


def test_a_window_that_is_mostly_unknown_does_not_ring() -> None:
    mostly: list[Step] = [DICE, {}, {}] * 8
    assert rang(mostly) == []


values = st.none() | st.floats(-1, 3) | st.just(float("nan"))
steps = st.lists(st.fixed_dictionaries({name: values for name in WATCHED}), max_size=60)


@given(steps, st.integers(0, 60), st.integers(1, 10))
def test_a_resumed_run_rings_as_one_that_was_not_interrupted(
    run: list[Step], at: int, window: int
) -> None:
    straight = Alarms(window)
    whole = fed(run, straight)
    before = Alarms(window)
    first = fed(run[:at], before)
    after = Alarms.from_data(json.loads(json.dumps(before.to_data(), allow_nan=False)))
    assert first + fed(run[at:], after, first=at + 1) == whole
    assert after == straight


def test_a_state_written_before_a_metric_was_watched_can_be_read() -> None:
    data = Alarms().to_data() | {"rows": [{"parse_error": 0.5}]}
    assert Alarms.from_data(data).rows == [dict.fromkeys(WATCHED) | {"parse_error": 0.5}]


def test_agents_who_agree_because_they_are_right_are_told_so() -> None:
    calm = {"health/distinct_answers": 1.0, "health/decided_votes": 0.02}
    for right, advice in ((0.97, "Take harder questions, or stop here."), (0.5, TRY["consensus"])):
        alarms = Alarms(window=2)
        assert alarms.feed({**calm, "health/right": right}, 0) == []
        (alarm,) = alarms.feed({**calm, "health/right": right}, 1)
        assert alarm.name == "consensus"
        assert alarm.try_ == advice
        assert ("97% of them right" in alarm.saw) == (right > 0.9)
