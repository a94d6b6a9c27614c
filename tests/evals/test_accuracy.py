"""Debates written down by hand, and the numbers that must come out of them."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.arena import Debate
from rostra.debate.peer import PeerRules, peer_v1
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.views import View
from rostra.evals.accuracy import (
    Answer,
    Measure,
    Row,
    debate_row,
    direct_row,
    latest,
    plurality,
    plurality_right,
    roles_row,
    shares,
    summary,
    vote_row,
)
from rostra.evals.modes import Examination
from rostra.learn.lesson import marks_of
from rostra.players.scripted import ScriptedPlayer
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
) -> Transcript:
    """A debate by rows: what each seat answers in a round, `.` for a malformed reply, and what it
    votes in the ballot."""

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=(ballots or {}).get(view.seat, "N/A"))
        said = rounds[slot.round].split()[view.seat]
        return MALFORMED if said == "." else wrap(slot.sections, solution=f"\\boxed{{{said}}}")

    player = ScriptedPlayer(line)
    return played(debate or Debate.peer(QUESTION, rules), {"policy": player, "opponent": player})


def row(
    rules: PeerRules, rounds: Mapping[int, str], ballots: Mapping[int, str] | None = None
) -> Row:
    transcript = spoken(rules, rounds, ballots)
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
    assert plurality(answers(None, None)) is None
    assert plurality_right([]) == 0


@given(st.lists(st.sampled_from(["7", "8", "9", None]), min_size=1, max_size=9))
def test_shares_are_in_order(said: list[str | None]) -> None:
    found = shares(answers(*said))
    assert found["cons@k"] <= found["vote@k"] <= found["pass@k"]
    assert found["avg@k"] <= found["pass@k"]
    assert found["cons@k"] == (found["avg@k"] > 0.5)


def test_a_debate_is_measured_by_its_last_answers_beside_a_vote_on_the_first() -> None:
    found = row(PeerRules(rounds=2), {0: "8 8 8 7 7", 1: "7 7 8 7 ."})
    assert found.accuracy == 1
    assert found.measures["vote@first"] == 0
    assert found.measures["avg@k"] == pytest.approx(3 / 5)
    assert found.measures["round 1/avg@k"] == pytest.approx(2 / 5)
    assert found.measures["round 2/avg@k"] == pytest.approx(3 / 5)
    assert [found.measures[f"seat {i}"] for i in range(5)] == [1, 1, 0, 1, 0]
    assert found.measures["format"] == pytest.approx(4 / 5)


def test_the_winner_of_the_votes_can_be_right_where_the_most_common_answer_is_wrong() -> None:
    ballots = {0: "Agent 3 > Agent 1", 1: "Agent 4 > Agent 2", 2: "Agent 3 > Agent 0"}
    found = row(PeerRules(rounds=1), {0: "8 8 8 7 7"}, ballots)
    assert found.accuracy == 0
    assert found.measures["winner"] == 1
    assert (found.votes_right, found.votes_decided) == (3, 3)


def test_without_votes_the_winner_is_the_most_common_answer() -> None:
    assert row(PeerRules(rounds=1), {0: "8 7 7 . ."}).measures["winner"] == 1
    assert row(PeerRules(rounds=1), {0: ". . . . ."}).measures["winner"] == 0


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


def test_never_and_always_are_not_certain() -> None:
    assert Measure.of([0.0] * 20) == Measure(0.0, 0.0, pytest.approx(0.161, abs=1e-3))
    assert Measure.of([1.0] * 20) == Measure(1.0, pytest.approx(0.839, abs=1e-3), 1.0)


def test_the_latest_answer_of_a_seat_counts() -> None:
    said = [Answer(0, 0, "8", 0, True, 1), Answer(1, 0, "7", 1, True, 1)]
    said.append(Answer(0, 1, "7", 1, True, 1))
    assert [a.text for a in latest(said)] == ["7", "7"]
    assert [a.text for a in latest(said, 0)] == ["8", "7"]


def test_a_summary_is_a_mean_over_questions_with_its_interval() -> None:
    rows = [Row(str(i), float(i < 3), {"x": float(i)}, i, 4, tokens=10 * i) for i in range(4)]
    found = summary(rows)
    assert found["accuracy"].mean == 0.75
    assert found["accuracy"].low < 0.75 < found["accuracy"].high <= 1
    assert found["votes right"].mean == pytest.approx(6 / 16)
    assert found["tokens"].mean == 15
    assert found["x"].mean == 1.5


def test_what_is_unknown_on_some_questions_is_a_mean_over_the_others() -> None:
    rows = [Row("a", 1, {"win_rate": math.nan}), Row("b", 0, {"win_rate": 0.5})]
    assert summary(rows)["win_rate"].mean == 0.5
    assert math.isnan(Measure.of([math.nan]).mean)
    assert "votes right" not in summary(rows)
