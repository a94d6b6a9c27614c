"""Debates that end when their agents give the same answer."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.debate.judged import debate
from rostra.debate.peer import PRESETS, PeerRules, peer_v1, peer_v2
from rostra.debate.prompts import builtin
from rostra.debate.protocol import Protocol, Slot
from rostra.debate.seat import Seat
from rostra.debate.state import Outcome, State, answer_of, answers_by_seat
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.errors import ConfigError
from tests.debate.builders import properties
from tests.playing import MALFORMED, Line, answer, begin, finish_all, question, say, say_all

Table = list[list[str | None]]
"""What each seat answers, round by round; None is a malformed reply."""


def by_table(table: Table) -> Line:
    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return answer(state, view)
        said = table[slot.round][view.seat]
        return MALFORMED if said is None else answer(state, view, solution=f"\\boxed{{{said}}}")

    return line


def ended(rules: PeerRules, table: Table) -> State:
    return finish_all(begin(rules), by_table(table))


SCHEDULES = pytest.mark.parametrize("schedule", ["sequential", "simultaneous"])


@SCHEDULES
def test_agreement_at_once_ends_the_debate_after_one_round_without_a_ballot(schedule: str) -> None:
    rules = peer_v2(agents=5, rounds=4, schedule=schedule, stop_on_agreement=1.0)
    over = ended(rules, [["408"] * 5])
    assert over.outcome == Outcome("agreement", 1)
    assert len(over.turns) == 5
    assert over.open_slots() == ()


def test_the_letter_of_a_choice_agrees_with_the_choice() -> None:
    rules = peer_v2(agents=3, rounds=2, stop_on_agreement=1.0)
    asked = State(question(choices=("Rome", "Paris")), rules.protocol())
    table: Table = [["B", "Paris", "(b) Paris"], ["B", "B", "B"]]
    assert finish_all(asked, by_table(table)).outcome == Outcome("agreement", 1)
    split: Table = [["A", "Paris", "B"], ["B", "B", "Paris"]]
    assert finish_all(asked, by_table(split)).outcome == Outcome("agreement", 2)


@SCHEDULES
def test_the_debate_goes_on_while_one_disagrees(schedule: str) -> None:
    rules = peer_v2(agents=3, rounds=4, schedule=schedule, stop_on_agreement=1.0)
    over = ended(rules, [["1", "1", "2"], ["1", "1", "2"], ["2", "2", "2"]])
    assert over.outcome == Outcome("agreement", 3)
    assert len(over.turns) == 9


def test_without_agreement_all_rounds_and_the_ballot_are_played() -> None:
    over = ended(peer_v2(agents=3, rounds=2, stop_on_agreement=1.0), [["1", "1", "2"]] * 2)
    assert over.outcome == Outcome("rounds", 2)
    assert [t.id.round for t in over.turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_agreement_in_the_last_round_spares_the_ballot() -> None:
    over = ended(peer_v2(agents=3, rounds=2, stop_on_agreement=1.0), [["1", "1", "2"], ["1"] * 3])
    assert over.outcome == Outcome("agreement", 2)
    assert len(over.turns) == 6


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_do_not_stop_on_agreement(preset: str) -> None:
    rules = PRESETS[preset](agents=3, rounds=2)
    assert rules.stop_on_agreement == rules.protocol().ends_on_agreement == 0
    assert ended(rules, [["1"] * 3] * 2).outcome == Outcome("rounds", 2)


@pytest.mark.parametrize(
    ("share", "agents", "same", "stops"),
    [
        (0.8, 5, 4, True),
        (0.8, 5, 3, False),
        (0.81, 5, 4, False),
        (0.56, 25, 14, True),  # 0.56 * 25 is above 14 in floating point
        (0.6, 5, 3, True),
        (1, 5, 4, False),
    ],
)
def test_a_share_of_all_agents_is_enough(share: float, agents: int, same: int, stops: bool) -> None:
    row: list[str | None] = ["7"] * same + [f"{i}{i}" for i in range(agents - same)]
    over = ended(peer_v2(agents=agents, rounds=2, stop_on_agreement=share), [row, row])
    assert over.outcome == (Outcome("agreement", 1) if stops else Outcome("rounds", 2))


def test_malformed_replies_and_replies_without_a_box_agree_with_nobody() -> None:
    rules = peer_v2(agents=5, rounds=1, stop_on_agreement=0.8)
    assert ended(rules, [["7", "7", "7", "7", None]]).outcome == Outcome("agreement", 1)
    assert ended(rules, [["7", "7", "7", None, None]]).outcome == Outcome("rounds", 1)
    assert ended(rules, [["7", "7", "7", "", " "]]).outcome == Outcome("rounds", 1)
    everybody = peer_v2(agents=3, rounds=1, stop_on_agreement=0.1)
    assert ended(everybody, [[None] * 3]).outcome == Outcome("rounds", 1)
    assert ended(everybody, [[""] * 3]).outcome == Outcome("rounds", 1)


def test_an_agent_who_falls_silent_no_longer_agrees() -> None:
    rules = peer_v2(agents=3, rounds=2, stop_on_agreement=1.0)
    over = ended(rules, [["7", "7", "8"], ["7", None, "7"]])
    assert over.outcome == Outcome("rounds", 2)
    assert answers_by_seat(over.protocol, over.turns) == {
        0: ["7", "7"],
        1: ["7", None],
        2: ["8", "7"],
    }


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1200", "1,200", True),
        ("408", "408.0", True),
        ("408", " +408 ", True),
        ("$5$", "5", True),
        ("007", "7", True),
        ("x + 1", "x+1", True),
        ("\\frac{1}{2}", "\\frac {1} {2}", True),
        ("408", "-408", False),
        ("0.5", "5", False),
        ("408.5", "408", False),
        ("A", "B", False),
    ],
)
def test_answers_are_compared_as_numbers_or_without_blanks(
    one: str, other: str, same: bool
) -> None:
    over = ended(peer_v2(agents=3, rounds=1, stop_on_agreement=1.0), [[one, other, one]])
    assert (over.outcome == Outcome("agreement", 1)) is same


def test_only_the_last_box_of_the_solution_counts() -> None:
    rules = peer_v2(agents=3, rounds=1, stop_on_agreement=1.0)

    def line(state: State, view: View) -> str:
        solution = f"First \\boxed{{{view.seat}}}, no: \\boxed{{7}}."
        return answer(state, view, solution=solution, evaluation=f"\\boxed{{{view.seat}}}")

    assert finish_all(begin(rules), line).outcome == Outcome("agreement", 1)


def test_a_sequential_round_is_heard_to_its_end() -> None:
    rules = peer_v1(agents=4, rounds=3, stop_on_agreement=0.5)
    state = say_all(begin(rules), by_table([["7"] * 4]), slots=3)
    assert state.outcome is None
    assert state.open_slots() == (3,)
    assert say(state, 3, by_table([["9"] * 4])).outcome == Outcome("agreement", 1)


def test_a_malformed_turn_that_aborts_goes_before_an_agreement() -> None:
    rules = peer_v2(agents=3, rounds=2, malformed="abort", stop_on_agreement=0.6)
    assert ended(rules, [["7", "7", None]]).outcome == Outcome("malformed", 0, TurnId(2, 0))


def test_agreement_goes_before_consensus_and_its_ballot() -> None:
    rules = peer_v1(agents=3, rounds=3, closing_ballot=True, stop_on_agreement=1.0)

    def yes(box: str) -> Line:
        return lambda s, v: answer(s, v, solution=box, consensus="YES")

    agreed = finish_all(begin(rules), yes("\\boxed{7}"))
    assert (agreed.outcome, len(agreed.turns)) == (Outcome("agreement", 1), 3)
    boxless = finish_all(begin(rules), yes("seven"))
    assert (boxless.outcome, len(boxless.turns)) == (Outcome("consensus", 1), 6)


def test_a_ballot_cannot_end_a_debate_by_agreement() -> None:
    seats = tuple(Seat(i, f"Agent {i}") for i in range(2))
    slots = (
        Slot(0, (0, 1), sections=("solution",), shows=("solution",)),
        Slot(1, (0, 1), "ballot", sections=("solution",)),
        Slot(2, (0, 1), sections=("solution",), shows=("solution",)),
    )
    protocol = Protocol("odd", seats, slots, builtin("peer"), ends_on_agreement=1.0)
    state = say(begin(protocol), 0, "<solution>\\boxed{1}</solution>")
    state = say(state, 1, "<solution>\\boxed{2}</solution>")
    state = say_all(state, "<solution>\\boxed{3}</solution>")
    assert state.outcome is None
    assert answers_by_seat(protocol, state.turns) == {0: ["1"], 1: ["2"]}
    assert say_all(state, "<solution>\\boxed{1}</solution>").outcome == Outcome("agreement", 2)


def test_an_agent_who_does_not_speak_in_every_round_is_held_to_what_it_said() -> None:
    seats = tuple(Seat(i, f"Agent {i}") for i in range(3))
    parts = {"sections": ("solution",), "shows": ("solution",)}
    slots = (Slot(0, (0, 1), **parts), Slot(1, (2,), **parts), Slot(2, (0, 1), **parts))  # type: ignore[arg-type]
    protocol = Protocol("odd", seats, slots, builtin("peer"), ends_on_agreement=1.0)
    state = say_all(begin(protocol), "<solution>\\boxed{1}</solution>")
    assert state.outcome is None, "one agent has not spoken"
    state = say(state, 2, "<solution>\\boxed{1}</solution>")
    assert state.outcome == Outcome("agreement", 2)


def test_debaters_are_no_agents_and_never_agree() -> None:
    protocol = replace(debate(), ends_on_agreement=1.0)
    about = question(choices=("yes", "no"))
    state = begin(protocol, about=about)
    while state.open_slots() and protocol.slots[state.slot].kind == "speak":
        state = say_all(state, "\\boxed{7}")
    assert state.outcome is None
    assert answers_by_seat(protocol, state.turns) == {}


def test_what_a_malformed_turn_says_is_no_answer() -> None:
    state = say(begin(peer_v2(agents=3)), 0, "<solution>\\boxed{7}</solution>")
    assert not state.turns[0].ok
    assert answer_of(state.turns[0]) is None


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"stop_on_agreement = .*from 0 \(never\) to 1"):
        peer_v2(stop_on_agreement=share)
    with pytest.raises(ConfigError, match="protocol test: ends_on_agreement is a share"):
        Protocol(
            "test", (Seat(0, "x"),), (Slot(0, (0,)),), builtin("peer"), ends_on_agreement=share
        )


@pytest.mark.parametrize("share", ["all", None])
def test_a_share_that_is_no_number_is_refused(share: Any) -> None:
    with pytest.raises(ConfigError, match="stop_on_agreement = .*: must be a number"):
        peer_v2(stop_on_agreement=share)


def test_half_of_the_agents_or_fewer_are_warned_about() -> None:
    (warning,) = peer_v2(stop_on_agreement=0.5).warnings()
    assert warning.startswith("stop_on_agreement = 0.5: half of the agents may still disagree")
    assert peer_v2(stop_on_agreement=0.51).warnings() == peer_v2().warnings() == []


ANSWERS = st.sampled_from(["7", "7.0", " 7", "8", "x", "X y", "", None])
TABLES = st.integers(3, 6).flatmap(
    lambda agents: st.lists(
        st.lists(ANSWERS, min_size=agents, max_size=agents), min_size=1, max_size=4
    )
)
SAME = {"7": 7, "7.0": 7, " 7": 7, "8": 8, "x": "x", "X y": "xy"}


def most(row: list[str | None]) -> int:
    known = [SAME[said] for said in row if said]
    return max(map(known.count, known), default=0)


@properties
@given(
    table=TABLES,
    share=st.sampled_from([0.0, 0.34, 0.5, 0.6, 0.75, 0.8, 1.0]),
    schedule=st.sampled_from(["sequential", "simultaneous"]),
    ballot=st.booleans(),
)
def test_a_debate_ends_after_the_first_round_with_agreement_and_not_before(
    table: Table, share: float, schedule: str, ballot: bool
) -> None:
    agents, rounds = len(table[0]), len(table)
    rules = peer_v2(
        agents=agents,
        rounds=rounds,
        schedule=schedule,
        stop_on_agreement=share,
        closing_ballot=ballot,
    )
    over = ended(rules, table)
    agreed = [i for i, row in enumerate(table, 1) if share and most(row) >= share * agents - 1e-9]
    if agreed:
        assert over.outcome == Outcome("agreement", agreed[0])
        assert len(over.turns) == agents * agreed[0]
    else:
        assert over.outcome == Outcome("rounds", rounds)
        assert len(over.turns) == agents * (rounds + ballot)


@properties
@given(table=TABLES, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_what_was_said_does_not_depend_on_whether_the_debate_would_have_stopped(
    table: Table, share: float, seed: int
) -> None:
    """A debate that stops is the beginning of the one that does not."""
    rules = peer_v2(agents=len(table[0]), rounds=len(table))
    whole = finish_all(begin(rules, seed), by_table(table))
    stopping = peer_v2(agents=len(table[0]), rounds=len(table), stop_on_agreement=share)
    short = finish_all(begin(stopping, seed), by_table(table))
    shared = whole.turns[: len(short.turns)]
    assert [(t.id, t.text, t.seen) for t in short.turns] == [(t.id, t.text, t.seen) for t in shared]
    assert [t.observation.tolist() for t in short.turns] == [t.observation.tolist() for t in shared]


@properties
@given(
    row=st.lists(ANSWERS, min_size=5, max_size=5),
    order=st.permutations(range(5)),
    share=st.floats(0, 1),
)
def test_the_order_of_arrival_does_not_decide_whether_agents_agree(
    row: list[str | None], order: list[int], share: float
) -> None:
    rules = peer_v2(agents=5, rounds=2, stop_on_agreement=share)
    forth, back = begin(rules), begin(rules)
    for seat, other in zip(range(5), order, strict=True):
        forth, back = say(forth, seat, by_table([row])), say(back, other, by_table([row]))
    assert forth.outcome == back.outcome
    assert forth.slot == back.slot
