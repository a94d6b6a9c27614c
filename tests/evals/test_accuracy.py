"""Debates written down by hand, and the numbers that must come out of them."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.arena import Debate
from rostra.debate.peer import PeerRules, peer_v1
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.views import View
from rostra.evals.accuracy import (
    Answer,
    Row,
    answers_in,
    choose,
    chosen_right,
    debate_row,
    direct_row,
    held,
    latest,
    roles_row,
    shares,
    summary,
    vote_row,
)
from rostra.evals.answering import read_answer
from rostra.evals.modes import Examination
from rostra.evals.statistics import Measure
from rostra.learn.lesson import answers_of, marks_of
from rostra.players.scripted import ScriptedPlayer
from rostra.rewards.metrics import truth_metrics
from rostra.tasks.canonical import key_of
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.task import Task
from tests.playing import MALFORMED, played, wrap

QUESTION = Question("q", "q?", "7")
TASK = Task("known", [], [QUESTION], Integers())


def spoken(
    rules: PeerRules,
    rounds: Mapping[int, str],
    ballots: Mapping[int, str] | None = None,
    debate: Debate | None = None,
    compared: Mapping[tuple[int, int], str] | None = None,
) -> Transcript:
    """A debate by rows: what each seat answers in a round, `.` for a malformed reply, `-` for one
    without an answer, and what it votes in the ballot, or in a round as (seat, round)."""

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=(ballots or {}).get(view.seat, "N/A"))
        said = rounds[slot.round].split()[view.seat]
        if said == ".":
            return MALFORMED
        solution = "I do not know." if said == "-" else f"\\boxed{{{said}}}"
        votes = (compared or {}).get((view.seat, slot.round), "N/A")
        return wrap(slot.sections, solution=solution, comparison=votes)

    player = ScriptedPlayer(line)
    return played(debate or Debate.peer(QUESTION, rules), {"policy": player, "opponent": player})


def row(
    rules: PeerRules,
    rounds: Mapping[int, str],
    ballots: Mapping[int, str] | None = None,
    compared: Mapping[tuple[int, int], str] | None = None,
) -> Row:
    transcript = spoken(rules, rounds, ballots, None, compared)
    return debate_row("q", transcript, marks_of(transcript, TASK))


def answers(*texts: str | None) -> list[Answer]:
    return [Answer(i, 0, t, float(t == "7"), t is not None, 3) for i, t in enumerate(texts)]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("7", "7", "8", "9", None), {"avg@k": 0.4, "pass@k": 1, "cons@k": 0, "vote@k": 1}),
        (("7", "8", "8", "9", None), {"avg@k": 0.2, "pass@k": 1, "cons@k": 0, "vote@k": 0}),
        (("7", "7", "7", "8", "8"), {"avg@k": 0.6, "pass@k": 1, "cons@k": 1, "vote@k": 1}),
        (("8", "7", "7", "8", None), {"avg@k": 0.4, "pass@k": 1, "cons@k": 0, "vote@k": 0}),
        ((None, None), {"avg@k": 0, "pass@k": 0, "cons@k": 0, "vote@k": 0, "format": 0}),
        (("7", None), {"format": 0.5, "cons@k": 0, "vote@k": 1}),
    ],
)
def test_what_answers_amount_to(said: tuple[str | None, ...], expected: dict[str, float]) -> None:
    found = shares(answers(*said))
    assert {name: found[name] for name in expected} == expected


def test_no_answer_at_all_is_no_plurality() -> None:
    assert choose(answers(None, None)) is None
    assert chosen_right([]) == 0


def test_among_answers_that_are_the_same_the_mark_of_the_first_counts() -> None:
    """One who was marked right by luck does not make the others right."""
    said = [Answer(i, 0, "x", right, True, 1) for i, right in enumerate((0.0, 1.0, 0.0))]
    assert chosen_right(said) == 0
    assert chosen_right(said[1:]) == 1
    assert chosen_right(said, {"x": 0.5}) == 0
    assert shares(said)["vote@k"] == 0


def test_a_letter_and_its_choice_are_one_answer() -> None:
    asked = Question("q", "q?", "a dog", choices=("a cat", "a dog", "12"))
    rules = PeerRules()
    transcript = spoken(rules, {0: "B (b) dog a 12.0"}, debate=Debate(asked, rules.opening()))
    assert [a.text for a in answers_in(transcript, {})] == ["a dog", "a dog", "dog", "a cat", "12"]
    assert read_answer([transcript]).answer == "B"
    assert read_answer([transcript]).agreement == 0.4


def test_choices_stay_apart_however_alike_they_are() -> None:
    asked = Question("q", "q?", "5 cm", choices=("5 cm", "5 m", "1,200"))
    said = ["A", "5 cm", "b", "5 m", "1200", "c"]
    keys = [key_of(one, asked) for one in said]
    assert keys == ["5 cm", "5 cm", "5 m", "5 m", "1,200", "1,200"]
    assert key_of("7", asked) == key_of("7.0", asked) == "7"


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("7.00 7 7 7 8", 1.0),
        ("7cm 7 7 7 8", 1.0),  # a strict grader takes no unit; four say 7, and most say so plainly
        ("7cm 7cm 7 8 8", 0.0),
        ("7 7cm 7cm 7cm 8", 0.0),
        ("7 7cm 8 9 6", 1.0),
    ],
)
def test_of_words_for_one_answer_those_count_that_most_used(said: str, right: float) -> None:
    transcript = spoken(PeerRules(rounds=1), {0: said})
    assert debate_row("q", transcript, marks_of(transcript, TASK)).accuracy == right
    text = read_answer([transcript]).answer
    assert text is not None and Integers().grade([(text, QUESTION)]) == [bool(right)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["7", "7.0", "7cm", "8", ".", "-"]), min_size=4, max_size=4),
        min_size=2,
        max_size=2,
    )
)
def test_training_and_evaluation_measure_a_debate_alike(rounds: list[list[str]]) -> None:
    rules = PeerRules(agents=4, rounds=2)
    transcript = spoken(rules, {i: " ".join(row) for i, row in enumerate(rounds)})
    marks = marks_of(transcript, TASK)
    here = debate_row("q", transcript, marks).measures
    there = truth_metrics("t", [transcript], [marks], [answers_of(transcript)])
    for name in ("format", "avg@k", "pass@k", "cons@k", "vote@k"):
        assert there[f"train_t/{name.replace('@k', '@4')}"] == pytest.approx(here[name]), name


@given(st.lists(st.sampled_from(["7", "8", "9", None]), min_size=1, max_size=9))
def test_shares_are_in_order(said: list[str | None]) -> None:
    found = shares(answers(*said))
    assert found["cons@k"] <= found["vote@k"] <= found["pass@k"]
    assert found["avg@k"] <= found["pass@k"]
    assert found["cons@k"] == (found["avg@k"] > 0.5)


ROUNDS = st.lists(
    st.lists(st.sampled_from(["7", "8", "9", ".", "-"]), min_size=3, max_size=3),
    min_size=2,
    max_size=2,
)


@settings(max_examples=25, deadline=None)
@given(ROUNDS, st.sampled_from([0.0, 0.6, 1.0]))
def test_what_debates_amount_to_is_in_order(said: list[list[str]], agreement: float) -> None:
    rules = PeerRules(agents=3, rounds=2, stop_on_agreement=agreement)
    transcript = spoken(rules, {i: " ".join(each) for i, each in enumerate(said)})
    found = debate_row("q", transcript, marks_of(transcript, TASK))
    for name in ("", "round 1/", "round 2/"):
        avg, cons, vote, one = (found.measures[name + m] for m in MEASURES)
        assert cons <= vote <= one
        assert avg <= one
    last = [found.measures[f"round 2/{name}"] for name in MEASURES]
    assert last == [found.measures[name] for name in MEASURES]
    assert found.accuracy == (read_answer([transcript]).answer == "7")
    assert found.measures["winner"] == (read_answer([transcript], "votes").answer == "7")


MEASURES = ("avg@k", "cons@k", "vote@k", "pass@k")


def test_a_debate_is_measured_by_its_last_answers_beside_a_vote_on_the_first() -> None:
    found = row(PeerRules(rounds=2), {0: "8 8 8 7 7", 1: "7 7 8 7 ."})
    assert found.accuracy == 1
    assert found.measures["vote@first"] == 0
    assert found.measures["avg@k"] == pytest.approx(3 / 5)
    assert found.measures["round 1/avg@k"] == pytest.approx(2 / 5)
    assert found.measures["round 2/avg@k"] == pytest.approx(3 / 5)
    # A reply without an answer takes nothing back; it counts as a reply, in avg@k and format.
    assert [found.measures[f"seat {i}"] for i in range(5)] == [1, 1, 0, 1, 1]
    assert found.measures["format"] == pytest.approx(4 / 5)


def test_the_last_answer_that_a_seat_gave_counts_as_it_does_for_who_asks() -> None:
    rules = PeerRules(rounds=2)
    transcript = spoken(rules, {0: "7 7 7 8 -", 1: ". - . 8 8"})
    found = debate_row("q", transcript, marks_of(transcript, TASK))
    assert (found.accuracy, read_answer([transcript]).answer) == (1, "7")
    assert found.measures["cons@k"] == 1
    assert found.measures["avg@k"] == 0
    assert found.measures["format"] == pytest.approx(3 / 5)
    assert found.measures["round 1/vote@k"] == 1
    # Who never gave an answer is wrong.
    nobody = row(rules, {0: "7 - - - -", 1: "7 . . . ."})
    assert [nobody.measures[f"seat {i}"] for i in range(5)] == [1, 0, 0, 0, 0]


def test_a_debate_that_ended_early_stands_in_the_rounds_it_did_not_need() -> None:
    rules = PeerRules(agents=3, rounds=3, stop_on_agreement=1.0)
    agreed = row(rules, {0: "7 7 7"})
    for name in ("avg@k", "vote@k", "format"):
        assert [agreed.measures[f"round {r}/{name}"] for r in (1, 2, 3)] == [1, 1, 1]
    other = row(rules, {0: "7 8 9", 1: "8 8 8"})
    assert [other.measures[f"round {r}/vote@k"] for r in (1, 2, 3)] == [1, 0, 0]
    means = summary([agreed, other])
    assert [means[f"round {r}/vote@k"].mean for r in (1, 2, 3)] == [1, 0.5, 0.5]


def test_all_turns_that_give_an_answer_earn_for_the_winner_as_they_do_for_who_asks() -> None:
    """In the first round 8 wins all its votes; in the ballot 7 wins one vote against it, of a seat
    that said 7 before and had no votes then."""
    rules = PeerRules(rounds=2)
    rounds = {0: "8 7 8 9 9", 1: "8 7 7 9 9"}
    compared = {(3, 1): "Agent 0 > Agent 1", (4, 1): "Agent 0 > Agent 1"}
    ballots = {3: "Agent 2 > Agent 0"}
    transcript = spoken(rules, rounds, ballots, compared=compared)
    found = debate_row("q", transcript, marks_of(transcript, TASK))
    # 7: -1 in the first round, +1 in the second. 8: +1, and -1. 7 is given more often.
    assert read_answer([transcript], "votes").answer == "7"
    assert found.measures["winner"] == 1
    lone = spoken(rules, rounds, {3: "Agent 2 > Agent 3"}, compared=compared)
    # 7 has the same as before, 8 has won every vote.
    assert read_answer([lone], "votes").answer == "8"
    assert debate_row("q", lone, marks_of(lone, TASK)).measures["winner"] == 0


def test_the_winner_of_the_votes_can_be_right_where_the_most_common_answer_is_wrong() -> None:
    ballots = {0: "Agent 3 > Agent 1", 1: "Agent 4 > Agent 2", 2: "Agent 3 > Agent 0"}
    found = row(PeerRules(rounds=1), {0: "8 8 8 7 7"}, ballots)
    assert found.accuracy == 0
    assert found.measures["winner"] == 1
    assert (found.votes_right, found.votes_decided) == (3, 3)


def test_without_votes_the_winner_is_the_most_common_answer() -> None:
    assert row(PeerRules(rounds=1), {0: "8 7 7 . ."}).measures["winner"] == 1
    assert row(PeerRules(rounds=1), {0: ". . . . ."}).measures["winner"] == 0
    # But where nobody ever voted, there is no winner to tell of.
    silent = [row(PeerRules(rounds=1), {0: "8 7 7 . ."})]
    assert silent[0].measures["voted"] == 0 and "winner" not in summary(silent)


def test_votes_on_answers_that_are_both_right_or_both_wrong_decide_nothing() -> None:
    ballots = {0: "Agent 1 > Agent 2\nAgent 3 > Agent 4", 1: "Agent 3 = Agent 0"}
    found = row(PeerRules(rounds=1), {0: "7 8 9 7 7"}, ballots)
    assert (found.votes_right, found.votes_decided) == (0, 0)


def test_tokens_are_those_of_all_turns_and_prompts_are_counted_once() -> None:
    rules = PeerRules(rounds=2)
    transcript = spoken(rules, {0: "7 7 7 7 7", 1: "7 7 7 7 7"})
    found = debate_row("q", transcript, {})
    assert found.tokens == sum(len(turn.tokens) for turn in transcript.turns)
    assert found.prompt_tokens == sum(len(turn.observation) for turn in transcript.turns)


def direct(said: str, seed: int = 0) -> Transcript:
    rules = PeerRules()
    return spoken(rules, {0: said}, debate=Debate(QUESTION, rules.opening(), seed))


def test_direct_answers_are_measured_one_by_one() -> None:
    transcripts = [direct("7 7 8 . 7"), direct("8 8 8 8 7", 1)]
    found = direct_row("q", transcripts, [marks_of(t, TASK) for t in transcripts], 10)
    assert found.accuracy == pytest.approx(0.4)
    assert found.measures["k"] == 10
    assert found.measures["seat 4"] == 1
    assert found.measures["seat 2"] == 0


def test_a_direct_answer_costs_what_one_answer_costs() -> None:
    transcripts = [direct("7 7777777 8 . 7"), direct("8 8 8 8 7", 1)]
    turns = [turn for t in transcripts for turn in t.turns][:7]
    found = direct_row("q", transcripts, [marks_of(t, TASK) for t in transcripts], 7)
    assert found.tokens == pytest.approx(sum(len(turn.tokens) for turn in turns) / 7)
    assert found.prompt_tokens == pytest.approx(sum(len(turn.observation) for turn in turns) / 7)


def test_a_vote_stops_at_its_budget() -> None:
    transcripts = [direct("7 8 8 8 8")]
    marks = [marks_of(t, TASK) for t in transcripts]
    one = len(transcripts[0].turns[0].tokens)
    assert vote_row("q", transcripts, marks, 1).accuracy == 1
    assert vote_row("q", transcripts, marks, 1).measures["k"] == 1
    assert vote_row("q", transcripts, marks, one).measures["k"] == 1
    assert vote_row("q", transcripts, marks, one + 1).measures["k"] == 2
    everything = vote_row("q", transcripts, marks, 10_000)
    assert (everything.accuracy, everything.measures["k"]) == (0, 5)
    assert everything.tokens == sum(len(turn.tokens) for turn in transcripts[0].turns)
    assert vote_row("q", transcripts, marks, 1).tokens == one
    read = [len(turn.observation) for turn in transcripts[0].turns]
    assert vote_row("q", transcripts, marks, one + 1).prompt_tokens == read[0] + read[1]
    assert everything.prompt_tokens == sum(read)


def test_roles_measure_the_seat_of_the_policy_in_every_role() -> None:
    rules = PeerRules(agents=3, rounds=1)
    exam = Examination(TASK, [QUESTION], rules)
    said = ["7 8 8", "8 7 8", "7 7 8"]
    ballots = [{1: "Agent 0 > Agent 2"}, {0: "Agent 2 > Agent 1"}, {0: "Agent 1 > Agent 2"}]
    transcripts = [
        spoken(rules, {0: row_}, votes, debate)
        for debate, row_, votes in zip(exam.roles(), said, ballots, strict=True)
    ]
    found = roles_row("q", transcripts, [marks_of(t, TASK) for t in transcripts])
    assert found.accuracy == pytest.approx(2 / 3)
    assert [found.measures[f"seat {i}"] for i in range(3)] == [1, 1, 0]
    assert found.measures["opponents"] == pytest.approx(2 / 6)
    # Won in seat 0, lost in seat 1, lost in seat 2.
    assert found.measures["win_rate"] == pytest.approx(1 / 3)
    # Only votes by the seat of the policy are its judgement, and it never voted.
    assert found.votes_decided == 0
    # One debate, not three.
    assert found.tokens == pytest.approx(
        sum(len(x.tokens) for t in transcripts for x in t.turns) / 3
    )
    read = sum(len(x.observation) for t in transcripts for x in t.turns)
    assert found.prompt_tokens == pytest.approx(read / 3)


def test_in_roles_the_last_answer_of_the_policy_counts_and_so_do_votes_on_it() -> None:
    rules = PeerRules(agents=3, rounds=2)
    (debate, *_) = Examination(TASK, [QUESTION], rules).roles()
    votes = {(1, 1): "Agent 0 > Agent 2"}
    transcript = spoken(rules, {0: "7 8 8", 1: ". 8 ."}, None, debate, votes)
    found = roles_row("q", [transcript], [marks_of(transcript, TASK)])
    assert (found.accuracy, found.measures["seat 0"], found.measures["win_rate"]) == (1, 1, 1)
    assert (found.measures["avg@k"], found.measures["format"]) == (0, 0)


def test_who_never_came_to_speak_is_wrong() -> None:
    rules = peer_v1(agents=3, rounds=1)
    found = row(rules, {0: "7 . 7"})
    assert found.measures["k"] == 3
    assert found.measures["avg@k"] == pytest.approx(1 / 3)
    assert found.measures["format"] == pytest.approx(1 / 3)
    assert found.measures["seat 2"] == 0
    exam = Examination(TASK, [QUESTION], rules)
    transcripts = [spoken(rules, {0: ". 7 7"}, debate=debate) for debate in exam.roles()]
    roles = roles_row("q", transcripts, [marks_of(t, TASK) for t in transcripts])
    assert roles.accuracy == 0
    assert [roles.measures[f"seat {i}"] for i in range(3)] == [0, 0, 0]


def test_the_latest_answer_of_a_seat_counts() -> None:
    said = [Answer(0, 0, "8", 0, True, 1), Answer(1, 0, "7", 1, True, 1)]
    said.append(Answer(0, 1, "7", 1, True, 1))
    assert [a.text for a in latest(said)] == ["7", "7"]
    assert [a.text for a in latest(said, 0)] == ["8", "7"]
    said.append(Answer(1, 2, None, 0, True, 1))
    assert [a.text for a in latest(said)] == ["7", None]
    assert [a.text for a in held(said)] == ["7", "7"]
    assert [a.text for a in held(said, 0)] == ["8", "7"]


def test_a_summary_is_a_mean_over_questions_with_its_interval() -> None:
    rows = [Row(str(i), float(i < 3), {"x": float(i)}, i, 4, tokens=10 * i) for i in range(4)]
    found = summary(rows)
    assert found["accuracy"].mean == 0.75
    assert found["accuracy"].low < 0.75 < found["accuracy"].high <= 1
    assert found["votes right"].mean == pytest.approx(6 / 16)
    assert found["tokens"].mean == 15
    assert found["x"].mean == 1.5


def test_shares_are_never_certain_and_numbers_are() -> None:
    rows = [Row(str(i), 1.0, {"seat 0": 1.0, "k": 1.0, "budget": 1.0}, 4, 4, 1, 1) for i in (1, 2)]
    found = summary(rows)
    for name in ("accuracy", "seat 0", "votes right"):
        assert found[name].mean == 1
        assert found[name].low == pytest.approx(0.3424, abs=1e-4)
    for name in ("k", "budget", "tokens", "prompt_tokens"):
        assert found[name] == Measure(1, 1, 1)


def test_what_is_unknown_on_some_questions_is_a_mean_over_the_others() -> None:
    rows = [Row("a", 1, {"win_rate": math.nan}), Row("b", 0, {"win_rate": 0.5})]
    assert summary(rows)["win_rate"].mean == 0.5
    assert "votes right" not in summary(rows)
