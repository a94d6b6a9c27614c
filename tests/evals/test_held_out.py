"""A player that is right on known questions, and the numbers that must come out."""

import asyncio
import math
from collections.abc import Callable

import pytest

from rostra.debate.peer import PeerRules, peer_v1
from rostra.debate.state import State
from rostra.debate.views import View
from rostra.errors import EngineError
from rostra.evals.held_out import evaluate
from rostra.learn.evaluator import Evaluation
from rostra.players.player import Player, Reply
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.settings import EvalSettings
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.shop import shop
from rostra.tasks.sums import sums
from rostra.tasks.task import Task
from tests.playing import MALFORMED, wrap

RULES = PeerRules(agents=5, rounds=1)
RIGHT, WRONG = "7", "8"

Answer = Callable[[str, int, bool], str | None]
"""What is answered to a question by a seat, greedily or not; None is a malformed reply."""


def task(count: int = 6) -> Task:
    """Questions q0, q1, ...; every answer is 7, and the first two are hard."""
    held = [Question(f"q{i}", f"q{i}", RIGHT, metadata={"hard": i < 2}) for i in range(count)]
    return Task("known", [Question("t", "t", RIGHT)], held, Integers())


def player(answer: Answer, votes: Callable[[str, int], str] = lambda q, seat: "N/A") -> Player:
    """Answers by a table; in a ballot it votes by another."""

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        name, seat = state.question.id, view.seat
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=votes(name, seat))
        said = answer(name, seat, state.protocol.seats[seat].temperature == 0)
        return MALFORMED if said is None else wrap(slot.sections, solution=f"\\boxed{{{said}}}")

    return ScriptedPlayer(line)


def measured(
    answer: Answer,
    votes: Callable[[str, int], str] = lambda q, seat: "N/A",
    *,
    samples: int = 5,
    debates: int = 0,
    count: int = 6,
    mode_wrong: tuple[str, ...] | None = None,
) -> Evaluation:
    settings = EvalSettings(count, samples, debates)
    work = evaluate(player(answer, votes), task(count), RULES, settings, 3, mode_wrong=mode_wrong)
    return asyncio.run(work)


def by_seat(row: str) -> Callable[[int], str | None]:
    """Right for `+`, wrong for `-`, malformed for `.`, seat by seat."""
    table = {"+": RIGHT, "-": WRONG, ".": None}
    return lambda seat: table[row[seat]]


SAMPLED = {"q0": "+++--", "q1": "-----", "q2": "+++++", "q3": "+----", "q4": "++...", "q5": "....."}
GREEDY = {"q0": "+++++", "q1": "-----", "q2": "+++++", "q3": "++---", "q4": "...++", "q5": "+++--"}


def known(question: str, seat: int, greedy: bool) -> str | None:
    return by_seat((GREEDY if greedy else SAMPLED)[question])(seat)


def test_sampled_accuracy_counts_malformed_answers_as_wrong():
    metrics = measured(known).metrics
    assert metrics["eval/direct/sampled"] == pytest.approx((3 + 0 + 5 + 1 + 2 + 0) / 30)
    assert metrics["eval/direct/format"] == pytest.approx((5 + 5 + 5 + 5 + 2 + 0) / 30)


def test_pass_at_k_is_at_least_one_right_and_vote_at_k_the_most_common_right():
    metrics = measured(known).metrics
    assert metrics["eval/direct/pass@5"] == pytest.approx(4 / 6)  # q0 q2 q3 q4
    assert metrics["eval/direct/vote@5"] == pytest.approx(3 / 6)  # q0 q2 q4
    assert metrics["eval/direct/cons@5"] == pytest.approx(2 / 6)  # q4 has two of five
    assert "eval/direct/pass@4" not in metrics


def test_k_is_the_number_of_samples_also_when_more_seats_answered():
    metrics = measured(known, samples=3).metrics
    assert metrics["eval/direct/pass@3"] == pytest.approx(4 / 6)
    assert metrics["eval/direct/vote@3"] == pytest.approx(3 / 6)
    late = measured(lambda q, seat, greedy: by_seat("---++")(seat), samples=3).metrics
    assert late["eval/direct/pass@3"] == 0
    assert late["eval/direct/vote@3"] == 0
    assert late["eval/direct/sampled"] == 0
    whole = measured(lambda q, seat, greedy: by_seat("---++")(seat), samples=5).metrics
    assert whole["eval/direct/sampled"] == pytest.approx(0.4)


def test_more_samples_than_seats_are_drawn_by_asking_again():
    heard: list[int] = []

    def count(question: str, seat: int, greedy: bool) -> str:
        heard.append(seat)
        return RIGHT

    metrics = measured(count, samples=8, count=2).metrics
    assert len(heard) == 2 * (10 + 5)  # 8 samples need two rounds of 5 seats, greedy one
    assert metrics["eval/direct/pass@8"] == 1


def test_the_most_common_answer_is_of_the_same_k_samples_that_pass_at_k_counts():
    """With malformed replies among the k, no later reply may take their place: then vote@k could be
    above pass@k."""
    metrics = measured(lambda q, seat, greedy: by_seat("..-++")(seat), samples=3).metrics
    assert metrics["eval/direct/pass@3"] == 0
    assert metrics["eval/direct/vote@3"] == 0


def test_a_tie_for_the_most_common_goes_to_the_answer_that_came_first():
    first = measured(lambda q, seat, greedy: by_seat("+-+-.")(seat)).metrics
    second = measured(lambda q, seat, greedy: by_seat("-+-+.")(seat)).metrics
    assert (first["eval/direct/vote@5"], second["eval/direct/vote@5"]) == (1, 0)


def test_greedy_accuracy_is_a_mean_over_seats_and_questions():
    found = measured(known)
    assert found.metrics["eval/direct/greedy"] == pytest.approx((5 + 0 + 5 + 2 + 2 + 3) / 30)


def test_greedy_replies_are_asked_for_at_temperature_zero_and_samples_at_one():
    heated = {seat.temperature for seat in RULES.opening(1.0).seats}
    cold = {seat.temperature for seat in RULES.opening(0.0).seats}
    assert (heated, cold) == ({1.0}, {0.0})


def test_the_first_evaluation_defines_whose_mode_is_wrong():
    found = measured(known)
    assert sorted(found.wrong) == ["q1", "q3", "q4"]
    assert found.metrics["eval/direct/greedy_mode_wrong"] == pytest.approx((0 + 0.4 + 0.4) / 3)


def test_a_later_evaluation_keeps_the_questions_of_the_first():
    found = measured(known, mode_wrong=("q0", "q3"))
    assert found.metrics["eval/direct/greedy_mode_wrong"] == pytest.approx((1 + 0.4) / 2)
    assert sorted(found.wrong) == ["q1", "q3", "q4"]


def test_with_no_wrong_mode_the_accuracy_over_them_is_not_a_number():
    metrics = measured(lambda q, seat, greedy: RIGHT).metrics
    for end in ("", "/low", "/high"):
        assert math.isnan(metrics[f"eval/direct/greedy_mode_wrong{end}"])
    assert metrics["eval/direct/greedy"] == 1


def test_slices_follow_every_yes_or_no_property():
    metrics = measured(known).metrics
    assert metrics["eval/direct/greedy_hard"] == pytest.approx((1 + 0) / 2)
    assert metrics["eval/direct/greedy_no_hard"] == pytest.approx((1 + 0.4 + 0.4 + 0.6) / 4)


def test_every_direct_number_lies_in_its_interval():
    metrics = measured(known).metrics
    names = [name for name in metrics if f"{name}/low" in metrics]
    assert len(names) >= 8
    for name in names:
        assert metrics[f"{name}/low"] <= metrics[name] <= metrics[f"{name}/high"], name


# Debates

FIRST_TWO = by_seat("++---")


def test_votes_for_the_right_answer_are_counted_by_hand():
    def votes(question: str, seat: int) -> str:
        # Seats 0 and 1 are right, the others wrong. 0 > 2 is a right vote, 3 > 1 a wrong one,
        # 2 = 3 and 0 = 1 are ties on equal answers, 3 > 4 takes a side between equal ones.
        return {0: "Agent 1 > Agent 2\nAgent 3 > Agent 1", 1: "Agent 0 > Agent 2"}.get(
            seat, "Agent 0 = Agent 1\nAgent 0 > Agent 3" if seat == 2 else "N/A"
        )

    metrics = measured(lambda q, seat, greedy: FIRST_TWO(seat), votes, debates=6).metrics
    assert metrics["eval/debate/vote_truth_accuracy"] == pytest.approx(3 / 4)
    assert metrics["eval/debate/votes"] == 5
    assert metrics["eval/debate/ties_on_equal"] == 1
    assert metrics["eval/debate/decided_votes"] == pytest.approx(4 / 5)
    assert metrics["eval/debate/format"] == 1
    assert metrics["eval/debate/distinct_answers"] == 2


def test_taking_a_side_between_equal_answers_is_no_tie():
    def votes(question: str, seat: int) -> str:
        return "Agent 0 = Agent 1" if seat == 4 else "Agent 3 > Agent 4" if seat == 0 else "N/A"

    metrics = measured(lambda q, seat, greedy: FIRST_TWO(seat), votes, debates=2).metrics
    assert metrics["eval/debate/ties_on_equal"] == pytest.approx(1 / 2)
    assert math.isnan(metrics["eval/debate/vote_truth_accuracy"])
    assert math.isnan(metrics["eval/debate/vote_truth_accuracy/low"])


def test_only_so_many_debates_are_played_as_asked_for():
    ballots: list[str] = []

    def votes(question: str, seat: int) -> str:
        ballots.append(question)
        return "N/A"

    metrics = measured(known, votes, debates=4).metrics
    assert len(ballots) == 4 * 5 and len(set(ballots)) == 4
    assert metrics["eval/debate/votes"] == 0
    assert "eval/debate/votes" not in measured(known, debates=0).metrics


def test_vote_accuracy_lies_in_its_interval_when_debates_differ_in_votes():
    """One debate with many votes, all right, and eleven with one vote each, all wrong."""

    def votes(question: str, seat: int) -> str:
        if question != "q0":
            return "Agent 2 > Agent 0" if seat == 4 else "N/A"
        rights, wrongs = [s for s in (0, 1) if s != seat], [s for s in (2, 3, 4) if s != seat]
        return "\n".join(f"Agent {r} > Agent {w}" for r in rights for w in wrongs)

    metrics = measured(lambda q, seat, greedy: FIRST_TWO(seat), votes, debates=12, count=12).metrics
    name = "eval/debate/vote_truth_accuracy"
    right = 3 + 3 + 3 * 4
    assert metrics[name] == pytest.approx(right / (right + 11))
    assert metrics[f"{name}/low"] <= metrics[name] <= metrics[f"{name}/high"]


# Edges


def test_progress_goes_up_to_the_number_that_was_announced():
    seen: list[tuple[int, int]] = []
    settings = EvalSettings(6, 7, 4)
    asyncio.run(
        evaluate(
            player(known), task(), RULES, settings, 0, progress=lambda d, t: seen.append((d, t))
        )
    )
    total = 6 * 10 + 6 * 5 + 4 * 10
    assert seen == [(i + 1, total) for i in range(total)]


def test_a_question_whose_debate_keeps_failing_does_not_end_the_evaluation():
    """An engine that fails at one question fails that question, not the whole run."""

    class Broken:
        async def speak(self, state: State, view: View) -> Reply:
            if state.question.id == "q2":
                raise EngineError("no reply")
            return await player(known).speak(state, view)

    found = asyncio.run(evaluate(Broken(), task(), RULES, EvalSettings(6, 5, 0), 0))
    assert 0 < found.metrics["eval/direct/greedy"] < 1
    assert {"q1", "q3", "q4"} <= set(found.wrong)


def test_the_same_seed_measures_the_same_and_questions_do_not_change_with_it():
    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        said = RIGHT if state.turn_seed(view.seat) % 3 else WRONG
        return wrap(slot.sections, solution=f"\\boxed{{{said}}}")

    def measure(seed: int) -> dict[str, float]:
        work = evaluate(ScriptedPlayer(line), task(), RULES, EvalSettings(6, 5, 2), seed)
        return asyncio.run(work).metrics

    one, again, other = measure(1), measure(1), measure(2)
    assert repr(one) == repr(again)
    assert one["eval/direct/sampled"] != other["eval/direct/sampled"]


@pytest.mark.parametrize("make", [sums, shop])
def test_no_held_out_question_is_a_training_question(make):
    found = make()
    trained = {q.prompt for q in found.train}
    asked: set[str] = set()

    def line(state: State, view: View) -> str:
        asked.add(state.question.prompt)
        return wrap(state.protocol.slots[view.slot].sections, solution="\\boxed{1}")

    rules = PeerRules(agents=3, rounds=1)
    asyncio.run(evaluate(ScriptedPlayer(line), found, rules, EvalSettings(25, 3, 5), 0))
    assert len(asked) == 25 and not asked & trained
    assert not {q.prompt for q in found.held_out} & trained
    drawn = {q.prompt for q in found.draw(0, 0, 2 * len(found.train))}
    assert drawn == trained


# Ballots on prepared solutions


def prepared(votes: Callable[[str, int], str], rules: PeerRules = RULES) -> dict[str, float]:
    """Seats 0 and 1 are given the right answer, the others a wrong one; the player would answer
    wrong everywhere, and judges."""
    speaker = player(lambda q, seat, greedy: RIGHT if seat < 2 else WRONG)
    judge = player(lambda q, seat, greedy: WRONG, votes)
    settings = EvalSettings(6, 5, 0, prepared=4)
    return asyncio.run(evaluate(judge, task(), rules, settings, 3, speaker=speaker)).metrics


def test_prepared_solutions_are_judged_by_the_player():
    # Of the two who are right, one judge only sees the other; a tie is not decided.
    said = {0: "Agent 1 > Agent 2", 2: "Agent 0 > Agent 3", 3: "Agent 2 > Agent 1"}
    metrics = prepared(lambda q, seat: said.get(seat, "Agent 0 = Agent 2"))
    assert metrics["eval/prepared/vote_truth_accuracy"] == pytest.approx(2 / 3)
    assert metrics["eval/prepared/decided"] == pytest.approx(3 / 5)
    assert metrics["eval/prepared/vote_truth_accuracy/low"] == pytest.approx(2 / 3)
    assert metrics["eval/direct/sampled"] == 0


def test_votes_in_prepared_speeches_do_not_count():
    """In the first generation a speech compares too; what counts is what the player judges."""
    rules = peer_v1(agents=5, rounds=1, closing_ballot=True)

    def boast(question: str, seat: int, greedy: bool) -> str:
        return RIGHT if seat < 2 else WRONG

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        said = boast("", view.seat, False)
        liked = "Agent 2 > Agent 0" if view.seat > 2 else "N/A"
        return wrap(slot.sections, solution=f"\\boxed{{{said}}}", comparison=liked)

    judge = player(lambda q, seat, greedy: WRONG, lambda q, seat: "Agent 0 > Agent 2")
    settings = EvalSettings(3, 5, 0, prepared=3)
    speaker = ScriptedPlayer(line)
    metrics = asyncio.run(evaluate(judge, task(), rules, settings, 3, speaker=speaker)).metrics
    assert metrics["eval/prepared/vote_truth_accuracy"] == 1.0


@pytest.mark.parametrize("speaker", [True, False])
def test_without_a_ballot_or_a_speaker_nothing_is_prepared(speaker):
    rules = RULES if not speaker else PeerRules(agents=5, rounds=1, closing_ballot=False)
    other = player(known) if speaker else None
    settings = EvalSettings(2, 5, 0, prepared=2)
    work = evaluate(player(known), task(2), rules, settings, 3, speaker=other)
    assert not [name for name in asyncio.run(work).metrics if "prepared" in name]


def test_progress_reaches_its_end_with_prepared_solutions_too():
    seen: list[tuple[int, int]] = []
    settings = EvalSettings(3, 5, 2, prepared=2)
    work = evaluate(
        player(known),
        task(3),
        RULES,
        settings,
        3,
        speaker=player(known),
        progress=lambda done, total: seen.append((done, total)),
    )
    asyncio.run(work)
    assert seen[-1] == (3 * 10 + 2 * 10 + 2 * 10,) * 2


def test_where_agents_speak_one_after_the_other_only_the_first_answers_alone():
    """The others never open a debate: alone, they would be asked what they were never asked."""
    heard: list[int] = []

    def count(question: str, seat: int, greedy: bool) -> str:
        heard.append(seat)
        return RIGHT

    seen: list[tuple[int, int]] = []
    metrics = asyncio.run(
        evaluate(
            player(count),
            task(3),
            peer_v1(agents=5, rounds=1),
            EvalSettings(3, 4, 0),
            3,
            progress=lambda done, total: seen.append((done, total)),
        )
    ).metrics
    assert heard == [0] * 3 * (4 + 1)
    assert seen[-1] == (15, 15)
    assert metrics["eval/direct/pass@4"] == metrics["eval/direct/greedy"] == 1.0


def test_without_a_right_answer_accuracy_is_unknown_and_form_is_not() -> None:
    held = [Question(f"w{i}", f"Write about {i}.") for i in range(4)]
    writing = Task("writing", [Question("t", "t")], held, Integers())
    work = evaluate(player(lambda q, seat, greedy: RIGHT), writing, RULES, EvalSettings(4, 5, 2), 3)
    found = asyncio.run(work)
    assert math.isnan(found.metrics["eval/direct/sampled"])
    assert math.isnan(found.metrics["eval/direct/greedy"])
    assert math.isnan(found.metrics["eval/direct/pass@5"])
    assert found.metrics["eval/direct/format"] == 1
    assert found.wrong == ()
