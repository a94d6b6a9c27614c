"""The reducer: who may speak, what a turn does to a debate, and how debates end."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.judged import SIDES
from rostra.debate.peer import SECTIONS, peer_v1, peer_v2
from rostra.debate.prompts import builtin
from rostra.debate.protocol import Protocol, Sight, Slot
from rostra.debate.seat import Seat
from rostra.debate.state import Outcome, State
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.debate.votes import Vote
from rostra.engines.sampling import Usage
from rostra.errors import RuleError
from tests.playing import (
    MALFORMED,
    Line,
    answer,
    begin,
    completion,
    finish_all,
    question,
    ranked,
    say,
    say_all,
    take,
    wrap,
)

YES: dict[str, str] = {"consensus": "YES", "consensus_reason": "We agree."}


def agreed(state: State, view: View) -> str:
    return answer(state, view, **YES)


def contents(state: State) -> dict[str, Any]:
    """Everything that a state holds, in a form that can be compared."""
    return {
        "turns": [(t.id, t.slot, t.text, t.seen, dict(t.names), t.ok) for t in state.turns],
        "tokens": [(t.observation.tolist(), t.tokens.tolist()) for t in state.turns],
        "ballots": dict(state.ballots),
        "votes": state.votes,
        "verdicts": state.verdicts,
        "shown": dict(state.shown),
        "slot": state.slot,
        "outcome": state.outcome,
    }


def test_in_a_simultaneous_slot_everybody_is_open_until_he_has_spoken() -> None:
    state = begin(peer_v2(agents=3))
    assert state.open_slots() == (0, 1, 2)
    state = say(state, 1)
    assert state.open_slots() == (0, 2)
    state = say(say(state, 2), 0)
    assert state.slot == 1
    assert state.open_slots() == (0, 1, 2)


def test_in_a_sequential_round_one_seat_is_open_at_a_time() -> None:
    state = begin(peer_v1(agents=3, rounds=2))
    opened = []
    while seats := state.open_slots():
        opened.append(seats)
        state = say(state, seats[0])
    assert opened == [(0,), (1,), (2,)] * 2


def test_a_seat_that_is_not_open_may_not_look_or_speak() -> None:
    state = begin(peer_v1(agents=3))
    turn = take(state, 0, answer)
    with pytest.raises(RuleError, match=r"seat 1 may not speak now; open: \[0\]"):
        state.view(1)
    with pytest.raises(RuleError, match="seat 1"):
        state.conversation(1)
    with pytest.raises(RuleError, match="seat 2"):
        state.submit(replace(turn, id=TurnId(2, 0)))
    with pytest.raises(RuleError, match="seat 9"):
        state.view(9)


def test_a_seat_may_not_speak_twice_in_a_slot() -> None:
    state = begin(peer_v2(agents=3))
    turn = take(state, 0, answer)
    state = state.submit(turn)
    with pytest.raises(RuleError, match="seat 0 may not speak now"):
        state.submit(turn)
    with pytest.raises(RuleError, match="seat 0 may not speak now"):
        state.view(0)


def test_a_turn_made_for_an_earlier_slot_is_refused() -> None:
    first = begin(peer_v2(agents=3))
    stale = take(first, 0, answer)
    second = say_all(first)
    with pytest.raises(RuleError, match=r"turn 0\.0 was made for slot 0, not for 1"):
        second.submit(stale)
    with pytest.raises(RuleError, match="was made for slot"):
        first.submit(replace(stale, id=TurnId(0, 1)))


def test_nobody_may_speak_after_the_end() -> None:
    state = say_all(begin(peer_v2(agents=3, rounds=1)))
    last = take(state, 0, answer)
    over = finish_all(state)
    assert over.open_slots() == ()
    with pytest.raises(RuleError, match="question 'q1' is over"):
        over.submit(last)
    with pytest.raises(RuleError, match="is over"):
        over.view(0)
    with pytest.raises(RuleError, match="is over"):
        over.conversation(0)


def test_states_are_frozen() -> None:
    state = begin(peer_v2())
    with pytest.raises(FrozenInstanceError):
        state.slot = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        take(state, 0, answer).text = "else"  # type: ignore[misc]


def test_two_submits_from_one_state_are_two_debates() -> None:
    fork = say_all(begin(peer_v2(agents=3, rounds=2)))
    before = contents(fork)
    left = finish_all(fork, lambda s, v: answer(s, v, solution="left", comparison="N/A"))
    right = finish_all(fork, ranked)
    assert contents(fork) == before
    assert fork.open_slots() == (0, 1, 2)
    assert {t.section("solution") for t in left.turns if t.id.round == 1} == {"left"}
    assert not any("left" in t.text for t in right.turns)
    assert left.votes == ()
    assert len(right.votes) == 6
    assert all(a is b for a, b in zip(left.turns[:3], right.turns[:3], strict=True))


REPLIES = st.sampled_from(
    [
        wrap(SECTIONS[:3], solution="Four.", comparison="Agent 0 > Agent 1\nAgent 2 = Agent 1"),
        wrap(
            SECTIONS[:3], solution="Five.", evaluation="All wrong.", comparison="Agent 3 > Agent 2"
        ),
        wrap(SECTIONS[:3], solution="Six."),
        MALFORMED,
        "",
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(REPLIES, min_size=8, max_size=8),
    first=st.permutations(range(4)),
    second=st.permutations(range(4)),
    malformed=st.sampled_from(["abort", "mask"]),
    seed=st.integers(0, 9),
)
def test_the_order_of_arrival_in_a_slot_does_not_matter(
    said: list[str], first: list[int], second: list[int], malformed: str, seed: int
) -> None:
    rules = peer_v2(agents=4, rounds=2, closing_ballot=False, malformed=malformed)
    ordered = begin(rules, seed)
    arrived = begin(rules, seed)
    for round_, order in enumerate((first, second)):
        if not ordered.open_slots():
            break
        for seat in range(4):
            ordered = say(ordered, seat, said[4 * round_ + seat])
        for seat in order:
            arrived = say(arrived, seat, said[4 * round_ + seat])
    assert contents(arrived) == contents(ordered)
    assert [t.id for t in arrived.turns] == sorted((t.id for t in arrived.turns), key=_by_round)


def _by_round(turn: TurnId) -> tuple[int, int]:
    return turn.round, turn.seat


def panel() -> Protocol:
    """One speech, and two judges who decide at the same time."""
    seats = (Seat(0, SIDES[0], "debater", side=0), Seat(1, "J1", "judge"), Seat(2, "J2", "judge"))
    slots = (Slot(0, (0,)), Slot(1, (1, 2), "verdict", sees=Sight(background=False)))
    return Protocol("panel", seats, slots, builtin("judged"), sides=SIDES)


def test_the_order_in_which_judges_of_a_panel_arrive_does_not_matter() -> None:
    state = say(begin(panel(), about=question(choices=("yes", "no"))), 0, "Because.")
    said = {1: "Debater_A | 80%", 2: "Debater_B | 70%"}
    forth = say(say(state, 1, said[1]), 2, said[2])
    back = say(say(state, 2, said[2]), 1, said[1])
    assert [v.author for v in forth.verdicts] == [TurnId(1, 1), TurnId(2, 1)]
    assert contents(back) == contents(forth)


def test_a_debate_ends_after_its_rounds() -> None:
    over = finish_all(begin(peer_v1(agents=3, rounds=2)))
    assert over.outcome == Outcome("rounds", 2, None)
    assert len(over.turns) == 6


def test_a_ballot_is_not_a_round() -> None:
    over = finish_all(begin(peer_v2(agents=3, rounds=2)))
    assert over.outcome == Outcome("rounds", 2, None)
    assert [t.id.round for t in over.turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_consensus_ends_the_debate_when_all_agree_in_one_round() -> None:
    state = begin(peer_v1(agents=3, rounds=5))
    state = say(say(say(state, 0), 1, agreed), 2, agreed)
    assert state.outcome is None
    state = say(say(state, 0, agreed), 1, agreed)
    assert state.open_slots() == (2,)
    state = say(state, 2, agreed)
    assert state.outcome == Outcome("consensus", 2, None)
    assert state.open_slots() == ()


def test_one_who_disagrees_keeps_the_debate_going() -> None:
    def all_but_last(state: State, view: View) -> str:
        return answer(state, view) if view.seat == 2 else agreed(state, view)

    over = finish_all(begin(peer_v1(agents=3, rounds=2)), all_but_last)
    assert over.outcome == Outcome("rounds", 2, None)


def test_consensus_in_the_last_round_is_still_consensus() -> None:
    over = finish_all(begin(peer_v1(agents=3, rounds=1)), agreed)
    assert over.outcome == Outcome("consensus", 1, None)


def test_consensus_does_not_end_a_debate_that_does_not_ask_for_it() -> None:
    over = finish_all(begin(peer_v1(agents=3, rounds=2, stop_on_consensus=False)), agreed)
    assert over.outcome == Outcome("rounds", 2, None)


@pytest.mark.parametrize("schedule", ["sequential", "simultaneous"])
def test_after_consensus_the_ballot_is_still_held(schedule: str) -> None:
    rules = peer_v1(agents=3, rounds=4, schedule=schedule, closing_ballot=True)
    state = begin(rules)
    while state.open_slots() and state.protocol.slots[state.slot].kind != "ballot":
        state = say_all(state, agreed)
    assert state.open_slots() == (0, 1, 2)
    assert len(state.turns) == 3
    over = say_all(
        state,
        lambda s, v: answer(
            s, v, comparison=f"Agent {(v.seat + 1) % 3} > Agent {(v.seat + 2) % 3}"
        ),
    )
    assert over.outcome == Outcome("consensus", 1, None)
    assert len(over.votes) == 3
    assert {v.a.round for v in over.votes} == {0}


def test_a_ballot_after_early_consensus_sees_the_last_round_that_was_spoken() -> None:
    rules = peer_v1(agents=3, rounds=4, closing_ballot=True, history_rounds=1)
    state = say_all(begin(rules), agreed, slots=3)
    assert state.protocol.slots[state.slot].kind == "ballot"
    assert dict(state.view(0).names) == {1: TurnId(1, 0), 2: TurnId(2, 0)}


def test_a_masked_turn_does_not_agree() -> None:
    def one_fails(state: State, view: View) -> str:
        return MALFORMED if view.seat == 0 else agreed(state, view)

    over = finish_all(begin(peer_v1(agents=3, rounds=2, malformed="mask")), one_fails)
    assert over.outcome == Outcome("rounds", 2, None)


def test_a_malformed_turn_that_aborts_ends_a_sequential_debate_at_once() -> None:
    state = say_all(begin(peer_v1(agents=3, rounds=3)), slots=3)
    state = say(say(state, 0), 1, MALFORMED)
    assert state.outcome == Outcome("malformed", 1, TurnId(1, 1))
    assert state.open_slots() == ()
    with pytest.raises(RuleError, match="is over"):
        state.view(2)
    assert state.turns[-1].text == MALFORMED


def test_a_malformed_turn_that_aborts_ends_a_simultaneous_debate_with_its_slot() -> None:
    rules = peer_v2(agents=3, rounds=3, malformed="abort")
    state = say(say(begin(rules), 2, MALFORMED), 1, MALFORMED)
    assert state.open_slots() == (0,)
    state = say(state, 0)
    assert state.outcome == Outcome("malformed", 0, TurnId(1, 0))
    assert len(state.turns) == 3


def test_a_malformed_ballot_that_aborts_leaves_all_rounds_finished() -> None:
    def spoilt(state: State, view: View) -> str:
        ballot = state.protocol.slots[view.slot].kind == "ballot"
        return MALFORMED if ballot else answer(state, view)

    over = finish_all(begin(peer_v2(agents=3, rounds=2, malformed="abort")), spoilt)
    assert over.outcome == Outcome("malformed", 2, TurnId(0, 2))


def test_a_malformed_turn_that_is_masked_shows_a_placeholder_and_the_debate_goes_on() -> None:
    secret = "<solution>the secret answer</solution>"
    state = say(begin(peer_v2(agents=3, rounds=2)), 0, secret)
    state = say(say(state, 1), 2)
    assert not state.turns[0].ok
    assert state.outcome is None
    seen = state.view(1)
    shown = seen.messages[-1].text
    assert "[Agent 0, round 1]\n(no valid reply in this round)" in shown
    assert "secret" not in shown
    assert TurnId(0, 0) in seen.seen
    assert dict(seen.names) == {2: TurnId(2, 0)}
    assert finish_all(state).outcome == Outcome("rounds", 2, None)


def test_a_vote_on_a_masked_turn_does_not_count() -> None:
    state = say_all(begin(peer_v2(agents=4, rounds=2)), _first_fails)
    text = wrap(SECTIONS[:3], comparison="Agent 0 > Agent 2\nAgent 2 > Agent 3")
    state = say(state, 1, text)
    cast = state.ballots[TurnId(1, 1)]
    assert cast.votes == (Vote(TurnId(1, 1), TurnId(2, 0), ">", TurnId(3, 0)),)
    assert cast.unseen == 1


def _first_fails(state: State, view: View) -> str:
    return MALFORMED if view.seat == 0 else answer(state, view)


def test_votes_in_a_later_round_are_about_the_latest_turn_that_was_seen() -> None:
    state = say_all(begin(peer_v1(agents=3, rounds=2)), slots=4)
    text = wrap(SECTIONS, comparison="Agent 0 > Agent 2")
    state = say(state, 1, text)
    assert state.ballots[TurnId(1, 1)].votes == (
        Vote(TurnId(1, 1), TurnId(0, 1), ">", TurnId(2, 0)),
    )


def test_votes_are_listed_in_the_order_of_turns() -> None:
    state = say_all(begin(peer_v2(agents=4, rounds=1)))
    for seat in (3, 1, 0, 2):
        state = say(state, seat, ranked)
    assert [v.author.seat for v in state.votes] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_reply_cut_by_the_token_limit_is_malformed() -> None:
    state = begin(peer_v2(agents=3, max_tokens=60))
    turn = take(state, 0, answer)
    assert (turn.stop_reason, len(turn.tokens)) == ("length", 60)
    assert not turn.ok
    assert turn.parsed.error


def test_a_turn_keeps_the_temperature_it_was_sampled_at_or_that_of_its_seat() -> None:
    state = begin(peer_v2(agents=3))
    seen = state.view(0)
    nothing = np.zeros(0, np.uint16)
    assert state.turn(seen, completion("x"), nothing).temperature == 0.6
    assert state.turn(seen, completion("x"), nothing, temperature=0.3).temperature == 0.3


def test_a_turn_costs_its_new_tokens_or_what_a_server_counted() -> None:
    state = begin(peer_v2(agents=3))
    seen, prompt = state.view(0), np.zeros(40, np.uint16)
    own = state.turn(seen, completion("seven b"), prompt)
    assert (own.usage, own.read, own.sampled) == (None, 40, 7)
    counted = replace(completion("seven b"), usage=Usage(12, 2))
    served = state.turn(seen, counted, prompt)
    assert (served.usage, served.read, served.sampled) == (Usage(12, 2), 12, 2)
    free = state.turn(seen, replace(counted, usage=Usage(0, 0)), prompt)
    assert (free.read, free.sampled) == (0, 0)


def test_self_comparisons_are_counted_and_are_no_votes() -> None:
    state = say_all(begin(peer_v2(agents=3, rounds=1)))
    state = say(state, 0, wrap(SECTIONS[1:3], comparison="Agent 0 > Agent 1\nAgent 1 > Agent 2"))
    turn = state.turns[-1]
    assert turn.comparisons.self_dropped == 1
    assert len(state.ballots[turn.id].votes) == 1


def test_every_seat_and_round_and_debate_has_a_seed_of_its_own() -> None:
    rules = peer_v2(agents=3, rounds=2)
    first = begin(rules, seed=1)
    second = say_all(first)
    other = begin(rules, seed=2)
    seeds = [s.turn_seed(seat) for s in (first, second, other) for seat in range(3)]
    assert len(set(seeds)) == 9
    assert begin(rules, seed=1).turn_seed(2) == seeds[2]


@pytest.mark.parametrize("line", [answer, ranked, agreed], ids=["plain", "votes", "agreement"])
def test_the_same_script_gives_the_same_debate(line: Line) -> None:
    rules = peer_v1(agents=4, rounds=2, closing_ballot=True)
    assert contents(finish_all(begin(rules, 5), line)) == contents(
        finish_all(begin(rules, 5), line)
    )
