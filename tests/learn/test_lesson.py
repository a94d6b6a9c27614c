"""Weights recomputed by hand from the votes of a small debate."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from rostra.debate.peer import PeerRules
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.engines.training import Datum
from rostra.learn.lesson import Lesson, answers_of, learn_from, marks_of
from rostra.rewards.advantages import RoleBaseline
from rostra.rewards.control import coin_flipped
from rostra.runs.settings import Recipe, RewardSettings
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.task import Task
from tests.playing import MALFORMED, play_peer, wrap

RULES = PeerRules(agents=4, rounds=1)
TASK = Task("known", [], [], Integers())
ABOUT = Question("q", "What is 3 + 4?", "7")

VOTES = {
    0: "Agent 1 > Agent 2",
    1: "Agent 0 > Agent 2",
    2: "Agent 0 > Agent 1",
    3: "Agent 0 > Agent 1\nAgent 2 > Agent 1",
}
ANSWERS = {0: "7", 1: "8", 2: "7", 3: "7"}
NOTHING = "<comparison>N/A</comparison>"
"""The end of every opening, which belongs to the judge stream."""

# By hand: votes for and against 3:0, 1:3, 1:2 and none; the judges of pair (1, 2) contradict each
# other, those of (0, 1) agree, and (0, 2) has only one.
GEN = {0: 1.0, 1: -0.5, 2: -1 / 3}
JUDGE = {0: -1.0, 2: 1.0, 3: 0.0}


def debate(
    votes: Mapping[int, str] = VOTES,
    answers: Mapping[int, str] = ANSWERS,
    seed: int = 0,
    rules: PeerRules = RULES,
    about: Question = ABOUT,
) -> Transcript:
    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=votes.get(view.seat, "N/A"))
        # Answers of different lengths, so that a wrong count of tokens shows.
        text = "so " * (view.seat + 1) + f"\\boxed{{{answers[view.seat]}}}"
        return wrap(slot.sections, solution=text)

    return play_peer(rules, line, seed, about)


def malformed(seed: int = 0) -> Transcript:
    return play_peer(RULES, lambda state, view: MALFORMED, seed, ABOUT)


def lesson(
    *transcripts: Transcript, rules: PeerRules = RULES, step: int = 0, **rewards: object
) -> Lesson:
    recipe = Recipe(protocol=rules, rewards=RewardSettings(**rewards))  # type: ignore[arg-type]
    return learn_from(transcripts, recipe, TASK, RoleBaseline(), step=step)


def centred(rewards: Mapping[int, float]) -> dict[int, float]:
    mean = sum(rewards.values()) / len(rewards)
    return {seat: reward - mean for seat, reward in rewards.items()}


def lengths(transcript: Transcript) -> tuple[dict[int, int], dict[int, int]]:
    """Tokens of the gen and of the judge stream that are paid, seat by seat."""
    turns = {turn.id: turn for turn in transcript.turns}
    gen = {seat: len(turns[TurnId(seat, 0)].tokens) - len(NOTHING) for seat in range(4)}
    return gen, {seat: len(turns[TurnId(seat, 1)].tokens) for seat in range(4)}


def weights_of(datum: Datum) -> list[tuple[float, int]]:
    """Every weight above or below 0, with how many tokens in a row have it."""
    runs: list[tuple[float, int]] = []
    for weight in datum.weights.tolist():
        if runs and runs[-1][0] == weight:
            runs[-1] = (weight, runs[-1][1] + 1)
        else:
            runs.append((weight, 1))
    return [(weight, count) for weight, count in runs if weight]


def check(
    data: list[Datum],
    transcript: Transcript,
    gen: Mapping[int, float],
    judge: Mapping[int, float],
    scale: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Compares data with advantages by seat: lambda * advantage / tokens of the stream."""
    gen_tokens, judge_tokens = lengths(transcript)
    gen_total = sum(gen_tokens[seat] for seat in gen)
    judge_total = sum(judge_tokens[seat] for seat in judge)
    expected = []
    for seat in range(4):
        found = []
        if gen.get(seat):
            found.append((scale[0] * gen[seat] / gen_total, gen_tokens[seat]))
        if judge.get(seat):
            found.append((scale[1] * judge[seat] / judge_total, judge_tokens[seat]))
        if found:
            expected.append(found)
    assert len(data) == len(expected)
    for datum, parts in zip(data, expected, strict=True):
        seen = weights_of(datum)
        assert [count for _, count in seen] == [count for _, count in parts]
        assert [w for w, _ in seen] == pytest.approx([w for w, _ in parts], rel=1e-5)


def test_a_token_weighs_its_advantage_divided_by_the_tokens_of_its_stream():
    played = debate()
    check(lesson(played).data, played, centred(GEN), centred(JUDGE))


def test_streams_are_scaled_apart():
    played = debate()
    found = lesson(played, gen=0.5, judge=3.0)
    check(found.data, played, centred(GEN), centred(JUDGE), (0.5, 3.0))


def test_a_stream_that_weighs_nothing_teaches_nothing():
    played = debate()
    check(lesson(played, judge=0.0).data, played, centred(GEN), {})


def test_judges_learn_first_and_solving_is_paid_from_then_on():
    played = debate()
    check(lesson(played, judge_first=2, step=1).data, played, {}, centred(JUDGE))
    check(lesson(played, judge_first=2, step=2).data, played, centred(GEN), centred(JUDGE))


def test_a_sum_is_not_divided_by_tokens():
    played = debate()
    found = lesson(played, normalise="sum").data
    values = {round(w, 5) for datum in found for w, _ in weights_of(datum)}
    wanted = {round(v, 5) for v in (*centred(GEN).values(), *centred(JUDGE).values()) if v}
    assert values == wanted


def test_debates_without_a_signal_give_no_data_and_change_nothing():
    rules = replace(RULES, format_penalty=0.0)
    alone, silent = debate(rules=rules), debate({}, seed=5, rules=rules)
    mixed = lesson(silent, alone, silent, rules=rules)
    check(mixed.data, alone, centred(GEN), centred(JUDGE))
    assert lesson(silent, rules=rules).data == []
    assert mixed.metrics["env/all/flat_groups"] == 2


def test_debates_in_which_all_rewards_are_equal_give_no_data():
    ties = {seat: "\n".join(_ties(seat)) for seat in range(4)}
    assert lesson(debate(ties)).data == []
    assert lesson(malformed()).data == []


def _ties(judge: int) -> list[str]:
    others = [seat for seat in range(4) if seat != judge]
    return [f"Agent {a} = Agent {b}" for a in others for b in others if a < b]


def test_against_the_batch_a_debate_of_equal_rewards_is_not_lost():
    """Every turn of one debate is malformed and worth -1/2, which is less than the mean of the
    batch: under this baseline its tokens have an advantage below 0, and must be learned from."""
    good, bad = debate(), malformed(seed=1)
    judge = [*JUDGE.values(), *[-0.5] * len(bad.turns)]
    advantage = -0.5 - sum(judge) / len(judge)
    assert advantage < -0.1
    found = lesson(good, bad, baseline="batch").data
    learned = [d for d in found if MALFORMED.encode() in bytes(d.targets.astype(np.uint8))]
    assert len(learned) == 4
    assert all((d.weights[d.mask > 0] < 0).all() for d in learned)


def test_a_coin_decides_what_is_learned_under_the_control():
    played = next(d for s in range(20) if coin_flipped(d := debate(seed=s)).votes != d.votes)
    flipped = coin_flipped(played)
    found = lesson(played, control="coin")
    wanted = lesson(replace(played, ballots=flipped.ballots))
    assert len(found.data) == len(wanted.data) > 0
    for one, other in zip(found.data, wanted.data, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    plain = [d.weights.tolist() for d in lesson(played).data]
    assert [d.weights.tolist() for d in found.data] != plain


def test_the_control_does_not_change_what_is_logged_about_votes():
    played = [debate(seed=s) for s in range(4)]
    coin, plain = lesson(*played, control="coin").metrics, lesson(*played).metrics
    for name in ("health/vote_truth_accuracy", "v2/total_votes", "health/decided_votes"):
        assert coin[name] == plain[name]


def test_under_plurality_the_common_answer_is_paid():
    played = debate()
    found = lesson(played, control="plurality", judge=0.0)
    check(found.data, played, {0: 0.5, 1: -1.5, 2: 0.5, 3: 0.5}, {})


def test_truth_alone_pays_right_answers_whatever_the_votes_say():
    played = debate()
    found = lesson(played, truth=1.0, judge=0.0)
    check(found.data, played, {0: 0.25, 1: -0.75, 2: 0.25, 3: 0.25}, {})


def test_truth_is_mixed_by_its_share():
    played = debate()
    found = lesson(played, truth=0.25, judge=0.0)
    right = {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0}
    mixed = {seat: 0.75 * GEN.get(seat, 0.0) + 0.25 * right[seat] for seat in range(4)}
    check(found.data, played, centred(mixed), {})


def test_judges_can_be_paid_for_the_truth():
    played = debate()
    # Only agent 1 is wrong: 1 > 2 is a wrong vote, 0 > 1 and 2 > 1 are right, 0 > 2 says nothing.
    found = lesson(played, judge_truth=1.0, gen=0.0)
    check(found.data, played, {}, centred({0: -1.0, 2: 1.0, 3: 1.0}))


def test_without_a_reference_truth_is_unknown_and_pays_nothing():
    about = replace(ABOUT, reference=None)
    played = debate(about=about)
    assert marks_of(played, TASK) == {}
    assert lesson(played, truth=1.0, judge=0.0).data == []
    check(lesson(played).data, played, centred(GEN), centred(JUDGE))


def test_truth_is_logged_but_not_rewarded_by_default():
    right, wrong = debate(), debate(about=replace(ABOUT, reference="999"))
    one, other = lesson(right), lesson(wrong)
    assert one.metrics["train_known/correct"] == 0.75
    assert other.metrics["train_known/correct"] == 0
    for a, b in zip(one.data, other.data, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)


def test_answers_are_of_wellformed_solutions_only():
    assert answers_of(debate()) == {TurnId(s, 0): ANSWERS[s] for s in range(4)}
    assert answers_of(malformed()) == {}
    assert marks_of(debate(), TASK) == {
        TurnId(0, 0): 1,
        TurnId(1, 0): 0,
        TurnId(2, 0): 1,
        TurnId(3, 0): 1,
    }


def test_a_baseline_by_role_is_read_before_it_learns_and_handed_on():
    played = debate()
    recipe = Recipe(protocol=RULES, rewards=RewardSettings(baseline="role_ema", judge=0.0))
    first = learn_from([played], recipe, TASK, RoleBaseline())
    check(first.data, played, GEN, {})
    assert first.baseline.means[0, "gen"] == pytest.approx(0.05)
    second = learn_from([played], recipe, TASK, first.baseline)
    check(second.data, played, {s: r - 0.05 * r for s, r in GEN.items()}, {})


def test_metrics_have_the_names_of_the_guide_and_the_numbers_of_the_debate():
    played = debate()
    metrics = lesson(played).metrics
    by_hand = {
        "debates": 1,
        "tokens": sum(len(turn.tokens) for turn in played.turns),
        "parse_error": 0,
        "round": 1,
        "v2/total_votes": 5,
        "v2/missing_comparisons": 0,
        "v2/comparison_lines_invalid": 0,
        "v2/self_comparisons_dropped": 0,
        "reward/gen/mean": (1 - 0.5 - 1 / 3) / 3,
        "reward/gen/by_seat/1": -0.5,
        "reward/judge/mean": 0,
        "reward/judge/by_round/1": 0,
        "env/all/by_group/frac_mixed": 1,
        "env/all/flat_groups": 0,
        "env/all/signal_frac/gen": 3 / 8,
        "env/all/signal_frac/judge": 3 / 8,
        "train_known/format": 1,
        "train_known/correct": 3 / 4,
        "train_known/avg@4": 3 / 4,
        "train_known/pass@4": 1,
        "train_known/cons@4": 1,
        "train_known/vote@4": 1,
        "health/vote_truth_accuracy": 3 / 4,
        "health/judge_agreement": 0,
        "health/distinct_answers": 2,
        "data/datums_per_trajectory": 1,
        "data/prefix_break_frac": 0,
    }
    assert {name: metrics[name] for name in by_hand} == pytest.approx(by_hand)
