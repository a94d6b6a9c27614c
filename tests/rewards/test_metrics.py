"""What a batch of debates reports about itself."""

import math

import pytest

from rostra.debate.peer import peer_v1, peer_v2
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.rewards.metrics import (
    debate_metrics,
    health_metrics,
    reward_metrics,
    truth_metrics,
    vote_truth_accuracy,
)
from rostra.rewards.score import RewardRules, score
from tests.rewards.builders import rehearse, scripted, speech, spoken, turn

THREE = peer_v2(agents=3, rounds=1)
FIVE = peer_v2(agents=5, rounds=1)


def marks(**seats: float) -> dict[TurnId, float]:
    """Marks of first-round answers, written as `s0=1`."""
    return {turn(f"{name[1:]}.0"): mark for name, mark in seats.items()}


def answers(*said: str) -> dict[TurnId, str]:
    return {TurnId(seat, 0): answer for seat, answer in enumerate(said)}


# Votes, format, endings


def test_parse_error_is_a_rate_over_all_turns() -> None:
    good, bad = scripted(THREE), scripted(THREE, malformed=("0.0", "2.1"))
    assert debate_metrics([good])["parse_error"] == 0
    assert debate_metrics([bad])["parse_error"] == pytest.approx(2 / 6)
    assert debate_metrics([good, bad, good])["parse_error"] == pytest.approx(2 / 18)


def test_the_names_of_the_guide_are_all_there() -> None:
    metrics = debate_metrics(rehearse(FIVE))
    assert metrics.keys() >= {
        "pairwise_total_votes",
        "pairwise_malformed",
        "pairwise_any_votes",
        "consensus_reached",
        "round",
        "parse_error",
        "v2/total_votes",
        "v2/missing_comparisons",
        "v2/comparison_lines_invalid",
        "v2/self_comparisons_dropped",
    }


def test_votes_and_faults_are_counted_by_debate_and_by_turn() -> None:
    lively = scripted(
        THREE,
        {
            "0.1": "Agent 1 > Agent 2\nAgent 1 > Agent 2\nAgent 0 > Agent 1\nAgent 9 > Agent 1",
            "1.1": "Agent 0 = Agent 2\nI like them all.",
            "0.0": "Agent 1 > Agent 2",
        },
    )
    metrics = debate_metrics([lively, scripted(THREE)])
    assert metrics["pairwise_total_votes"] == metrics["v2/total_votes"] == 1.0
    assert metrics["pairwise_any_votes"] == 0.5
    assert metrics["pairwise_malformed"] == 0.5
    assert metrics["v2/self_comparisons_dropped"] == pytest.approx(1 / 12)
    assert metrics["v2/duplicate_comparisons"] == pytest.approx(1 / 12)
    assert metrics["v2/unseen_comparisons"] == pytest.approx(1 / 12)
    # `Agent 0 > Agent 1` by agent 0, `Agent 9 > Agent 1`, and the line of prose.
    assert metrics["v2/comparison_lines_invalid"] == pytest.approx(3 / 12)


def test_missing_comparisons_are_a_share_of_the_turns_that_could_compare() -> None:
    debate = scripted(THREE, {"0.1": "Agent 1 > Agent 2"})
    assert debate_metrics([debate])["v2/missing_comparisons"] == pytest.approx(2 / 3)
    blind = scripted(peer_v2(agents=3, rounds=1, history_rounds=0))
    assert math.isnan(debate_metrics([blind])["v2/missing_comparisons"])


def test_endings_and_rounds_are_means_over_debates() -> None:
    rules = peer_v1(agents=3, rounds=2)
    agreed = spoken(rules, lambda state, view: speech(rules.sections).replace(">NO<", ">YES<"))
    assert agreed.outcome.ended == "consensus"
    metrics = debate_metrics([agreed, scripted(rules), scripted(rules, malformed=("1.0",))])
    assert metrics["consensus_reached"] == pytest.approx(1 / 3)
    assert metrics["round"] == pytest.approx((1 + 2 + 0) / 3)


def test_the_mean_over_nothing_is_unknown_rather_than_zero() -> None:
    assert all(math.isnan(value) for value in debate_metrics([]).values())


# Rewards


def reported(debates: list[Transcript], rules: RewardRules) -> dict[str, float]:
    return reward_metrics(debates, score(debates, rules))


def test_rewards_are_sliced_by_seat_persona_and_round() -> None:
    debate = scripted(
        peer_v2(agents=3, rounds=2),
        {"0.1": "Agent 1 > Agent 2", "1.2": "Agent 0 > Agent 2", "0.2": "Agent 1 > Agent 2"},
    )
    metrics = reported([debate], RewardRules())
    # 1.0 +1, 2.0 -1; 0.1 +1, 1.1 +1, 2.1 -1.
    assert metrics["reward/gen/mean"] == pytest.approx(1 / 5)
    assert metrics["reward/gen/by_seat/0"] == 1.0
    assert metrics["reward/gen/by_seat/1"] == 1.0
    assert metrics["reward/gen/by_seat/2"] == -1.0
    assert metrics["reward/gen/by_round/0"] == 0.0
    assert metrics["reward/gen/by_round/1"] == pytest.approx(1 / 3)
    assert metrics["reward/gen/by_persona/Methodical Analyst"] == 1.0
    assert metrics["reward/gen/by_persona/Devil's Advocate"] == -1.0
    # Only fines: 1.1, 2.1 and 2.2 said nothing.
    assert metrics["reward/judge/mean"] == -0.5
    assert "reward/judge/by_seat/0" not in metrics
    assert metrics["reward/judge/by_round/2"] == -0.5


def test_agents_with_the_same_persona_share_its_slice() -> None:
    rules = peer_v2(agents=6, rounds=1)
    debate = scripted(rules, {"1.1": "Agent 0 > Agent 5", "2.1": "Agent 0 > Agent 5"})
    metrics = reported([debate], RewardRules())
    assert metrics["reward/gen/by_seat/0"] == 1
    assert metrics["reward/gen/by_seat/5"] == -1
    assert metrics["reward/gen/by_persona/Methodical Analyst"] == 0


def test_v1_reports_one_reward_without_personas_or_rounds() -> None:
    debate = scripted(peer_v1(agents=3, rounds=1), {"2.0": "Agent 0 > Agent 1"})
    metrics = reported([debate], RewardRules(reward="win_rate"))
    assert metrics["pairwise_reward"] == pytest.approx(1 / 3)
    assert metrics["pairwise_reward/by_seat/0"] == 1.0
    assert not [name for name in metrics if "persona" in name or "by_round/" in name]


def test_frac_mixed_is_the_share_of_debates_that_teach() -> None:
    lively, silent = scripted(THREE, {"0.1": "Agent 1 > Agent 2"}), scripted(THREE)
    assert reported([lively, silent, silent], RewardRules())[
        "env/all/by_group/frac_mixed"
    ] == pytest.approx(1 / 3)


def test_flat_groups_are_the_number_of_debates_that_do_not() -> None:
    lively, silent = scripted(THREE, {"0.1": "Agent 1 > Agent 2"}), scripted(THREE)
    for debates, flat in (([lively, silent, silent], 2), ([lively], 0), ([], 0)):
        metrics = reported(debates, RewardRules())
        assert metrics["env/all/flat_groups"] == flat
        assert isinstance(metrics["env/all/flat_groups"], float)


def test_the_share_of_turns_with_a_signal_is_known_for_each_stream() -> None:
    metrics = reported([scripted(THREE, {"0.1": "Agent 1 > Agent 2"})], RewardRules())
    assert metrics["env/all/signal_frac/gen"] == pytest.approx(2 / 6)
    assert metrics["env/all/signal_frac/judge"] == pytest.approx(2 / 6)
    v1 = scripted(peer_v1(agents=3, rounds=1))
    shares = reported([v1], RewardRules(reward="win_rate"))
    assert math.isnan(shares["env/all/signal_frac/gen"])


# Truth


def test_agreement_with_the_truth_on_a_hand_made_batch() -> None:
    debates = [scripted(FIVE) for _ in range(4)]
    correct = [
        marks(s0=1, s1=1, s2=1, s3=0, s4=0),
        marks(s0=1, s1=1, s2=0, s3=0, s4=0),
        marks(s0=0, s1=0, s2=0, s3=0, s4=0),
        marks(s0=1, s1=0, s2=0, s3=0, s4=0),
    ]
    said = [
        answers("7", "7", "7", "8", "8"),
        answers("7", "7", "4", "5", "6"),
        answers("1", "1", "1", "1", "1"),
        answers("7", "3", "3", "4", "5"),
    ]
    metrics = truth_metrics("toy", debates, correct, said)
    assert metrics["train_toy/format"] == 1
    assert metrics["train_toy/correct"] == pytest.approx(6 / 20)
    assert metrics["train_toy/pass@5"] == pytest.approx(3 / 4)
    assert metrics["train_toy/avg@5"] == pytest.approx((0.6 + 0.4 + 0 + 0.2) / 4)
    # A majority is right in the first; the most common answer is right in the first two.
    assert metrics["train_toy/cons@5"] == pytest.approx(1 / 4)
    assert metrics["train_toy/vote@5"] == pytest.approx(2 / 4)


def test_half_of_the_agents_are_no_majority() -> None:
    debate = scripted(peer_v2(agents=4, rounds=1))
    metrics = truth_metrics("toy", [debate], [marks(s0=1, s1=1, s2=0, s3=0)])
    assert metrics["train_toy/cons@4"] == 0
    assert metrics["train_toy/avg@4"] == 0.5


def test_a_tie_of_answers_goes_to_the_lowest_seat() -> None:
    debate = scripted(peer_v2(agents=4, rounds=1))
    correct = [marks(s0=0, s1=1, s2=0, s3=1)]
    first_wrong = truth_metrics("toy", [debate], correct, [answers("8", "7", "8", "7")])
    assert first_wrong["train_toy/vote@4"] == 0
    correct = [marks(s0=1, s1=0, s2=1, s3=0)]
    first_right = truth_metrics("toy", [debate], correct, [answers("7", "8", "7", "8")])
    assert first_right["train_toy/vote@4"] == 1


def test_nobody_who_answers_is_a_vote_for_nothing() -> None:
    metrics = truth_metrics("toy", [scripted(THREE)], [{}], [{}])
    assert metrics["train_toy/vote@3"] == 0


def test_votes_on_answers_are_only_reported_where_answers_are_given() -> None:
    metrics = truth_metrics("toy", [scripted(THREE)], [marks(s0=1)])
    assert "train_toy/vote@3" not in metrics


def test_only_the_last_answer_of_an_agent_counts() -> None:
    debate = scripted(peer_v2(agents=3, rounds=2))
    correct = marks(s0=1, s1=1, s2=1) | {turn("0.1"): 1.0, turn("1.1"): 0.0, turn("2.1"): 0.0}
    metrics = truth_metrics("toy", [debate], [correct])
    assert metrics["train_toy/avg@3"] == pytest.approx(1 / 3)
    assert metrics["train_toy/correct"] == pytest.approx(1 / 3)


def test_a_malformed_answer_fails_the_format_and_is_wrong() -> None:
    debate = scripted(THREE, malformed=("1.0", "2.1"))
    metrics = truth_metrics("toy", [debate], [marks(s0=1, s2=1)])
    assert metrics["train_toy/format"] == pytest.approx(2 / 3)
    assert metrics["train_toy/correct"] == pytest.approx(2 / 3)


def test_agents_are_counted_even_in_a_debate_that_broke_off() -> None:
    debate = scripted(peer_v1(agents=3, rounds=1), malformed=("1.0",))
    metrics = truth_metrics("toy", [debate], [marks(s0=1)], [answers("7")])
    assert metrics["train_toy/pass@3"] == 1
    assert metrics["train_toy/avg@3"] == pytest.approx(1 / 3)
    assert metrics["train_toy/cons@3"] == 0
    assert metrics["train_toy/vote@3"] == 1


def test_votes_are_checked_against_the_truth_where_they_take_a_side() -> None:
    debate = scripted(
        FIVE,
        {
            "2.1": "Agent 0 > Agent 1",
            "3.1": "Agent 1 > Agent 0",
            "4.1": "Agent 0 > Agent 1\nAgent 0 = Agent 3\nAgent 1 > Agent 2\nAgent 3 > Agent 0",
        },
    )
    correct = marks(s0=1, s1=0, s2=0)
    # A tie, two wrong answers, and a pair with an unmarked answer are no test.
    assert vote_truth_accuracy([debate], [correct]) == pytest.approx(2 / 3)
    metrics = truth_metrics("toy", [debate], [correct])
    assert metrics["health/vote_truth_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("correct", [{}, marks(s1=1, s2=1), marks(s1=1)])
def test_vote_truth_accuracy_is_unknown_when_nothing_can_be_judged(
    correct: dict[TurnId, float],
) -> None:
    debate = scripted(THREE, {"0.1": "Agent 1 > Agent 2"})
    assert math.isnan(vote_truth_accuracy([debate], [correct]))


# Health


def test_different_last_answers_are_counted_by_debate() -> None:
    debates = [scripted(FIVE), scripted(FIVE), scripted(FIVE)]
    said = [answers("7", "7", "8", "9", "9"), answers("7", "7", "7", "7", "7"), answers()]
    assert health_metrics(debates, said)["health/distinct_answers"] == pytest.approx(4 / 3)


def test_only_last_answers_are_counted_as_different() -> None:
    debate = scripted(peer_v2(agents=3, rounds=2))
    said = answers("1", "2", "3") | {turn("0.1"): "4", turn("1.1"): "4", turn("0.2"): "5"}
    # Agent 2 gave no last answer, and 0.2 is a ballot.
    assert health_metrics([debate], [said])["health/distinct_answers"] == 1


def test_agents_who_never_spoke_have_no_last_answer() -> None:
    debate = scripted(peer_v1(agents=3, rounds=1), malformed=("1.0",))
    assert len(debate.turns) == 2
    metrics = health_metrics([debate], [answers("7")])
    assert metrics["health/distinct_answers"] == 1


def test_votes_are_sorted_by_whether_they_decide_and_on_what() -> None:
    debate = scripted(
        FIVE,
        {
            # Equal answers: two ties, one decision. Agent 4 gave no answer.
            "2.1": "Agent 0 = Agent 1",
            "3.1": "Agent 0 = Agent 1\nAgent 2 > Agent 0\nAgent 2 > Agent 4",
            "4.1": "Agent 1 > Agent 0\nAgent 0 > Agent 2\nAgent 3 > Agent 2\nAgent 1 = Agent 3",
        },
    )
    metrics = health_metrics([debate], [answers("7", "7", "8", "9")])
    assert metrics["health/decided_votes"] == pytest.approx(5 / 8)
    assert metrics["health/ties_on_equal"] == pytest.approx(2 / 3)
    # 2 > 0, 0 > 2, 3 > 2 take a side between different answers.
    assert metrics["health/lower_index_wins"] == pytest.approx(1 / 3)


def judging(place: int) -> list[Transcript]:
    """Debates in which every judge prefers whom it was shown first (0) or last (-1)."""

    def line(state: State, view: View) -> str:
        order = sorted(view.names, key=lambda seat: view.seen.index(view.names[seat]))
        lines = [f"Agent {order[place]} > Agent {i}" for i in order if i != order[place]]
        slot = state.protocol.slots[view.slot]
        return speech(slot.sections, "\n".join(lines[:1]) or "N/A")

    return [spoken(peer_v2(agents=4, rounds=2), line, seed) for seed in range(12)]


@pytest.mark.parametrize(("place", "share"), [(0, 1.0), (-1, 0.0)])
def test_a_judge_who_goes_by_the_order_is_found_out(place: int, share: float) -> None:
    debates = judging(place)
    said = [{t.id: str(t.id) for t in debate.turns} for debate in debates]
    metrics = health_metrics(debates, said)
    assert metrics["health/first_shown_wins"] == share
    assert metrics["health/lower_index_wins"] == pytest.approx(0.5, abs=0.2)


def test_a_judge_who_goes_by_the_seat_is_found_out() -> None:
    def line(state: State, view: View) -> str:
        a, b, *_ = [*sorted(view.names), 0, 0]
        return speech(state.protocol.slots[view.slot].sections, f"Agent {a} > Agent {b}")

    debates = [spoken(peer_v2(agents=4, rounds=2), line, seed) for seed in range(12)]
    said = [{t.id: str(t.id) for t in debate.turns} for debate in debates]
    metrics = health_metrics(debates, said)
    assert metrics["health/lower_index_wins"] == 1
    assert metrics["health/first_shown_wins"] == pytest.approx(0.5, abs=0.2)


def test_judge_truth_is_a_mean_over_judges_of_right_votes_less_wrong_ones() -> None:
    debate = scripted(
        FIVE,
        {
            "2.1": "Agent 0 > Agent 1",
            "3.1": "Agent 1 > Agent 0\nAgent 0 = Agent 2",
            "4.1": "Agent 1 > Agent 2",
        },
    )
    said = answers("7", "8", "9", "7", "7")
    metrics = health_metrics([debate], [said], [marks(s0=1, s1=0, s2=0)])
    # +1; the mean of -1 and 0; two wrong answers are no test.
    assert metrics["health/judge_truth"] == pytest.approx((1 - 0.5) / 2)


def test_without_marks_judge_truth_is_unknown_and_all_else_the_same() -> None:
    debate = scripted(FIVE, {"2.1": "Agent 0 > Agent 1\nAgent 0 = Agent 3"})
    said = answers("7", "8", "9", "7", "7")
    bare, marked = (health_metrics([debate], [said], m) for m in ((), [marks(s0=1, s1=0)]))
    assert math.isnan(bare.pop("health/judge_truth"))
    assert marked.pop("health/judge_truth") == 1
    assert bare == marked


def test_the_health_of_a_debate_without_votes_is_unknown() -> None:
    metrics = health_metrics([scripted(THREE)], [answers("7", "8", "9")])
    assert metrics.pop("health/distinct_answers") == 3
    assert len(metrics) == 5
    assert all(math.isnan(value) for value in metrics.values())
    assert all(math.isnan(value) for value in health_metrics([], []).values())


def test_answers_and_debates_must_be_as_many() -> None:
    with pytest.raises(ValueError):
        health_metrics([scripted(THREE)], [])
