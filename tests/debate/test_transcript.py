"""Finished debates."""

from dataclasses import FrozenInstanceError

import pytest

from rostra.debate.judged import debate
from rostra.debate.peer import peer_v1, peer_v2
from rostra.debate.state import Outcome, State
from rostra.debate.transcript import finish
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.errors import RuleError
from tests.playing import (
    MALFORMED,
    answer,
    begin,
    finish_all,
    play_judged,
    play_peer,
    question,
    ranked,
    say,
    say_all,
)


def test_a_debate_that_is_not_over_has_no_transcript() -> None:
    state = begin(peer_v2(agents=3))
    with pytest.raises(RuleError, match=r"not over: seats \[0, 1, 2\] have to speak"):
        finish(state)
    with pytest.raises(RuleError, match=r"seats \[0, 2\]"):
        finish(say(state, 1))


def test_a_transcript_holds_what_the_last_state_held() -> None:
    rules = peer_v2(agents=3, rounds=2)
    state = finish_all(begin(rules, seed=7), ranked)
    transcript = finish(state, rules)
    assert transcript.question == question()
    assert transcript.protocol == rules.protocol()
    assert transcript.seed == 7
    assert transcript.rules == rules
    assert transcript.turns is state.turns
    assert transcript.votes == state.votes
    assert len(transcript.votes) == 6
    assert transcript.outcome == Outcome("rounds", 2, None)
    assert finish(state).rules is None


def test_a_transcript_is_frozen() -> None:
    transcript = play_peer(peer_v2(agents=3, rounds=1))
    with pytest.raises(FrozenInstanceError):
        transcript.seed = 1  # type: ignore[misc]


def test_the_arena_and_single_steps_give_the_same_debate() -> None:
    rules = peer_v1(agents=4, rounds=2, closing_ballot=True)
    stepped = finish(finish_all(begin(rules, seed=3), ranked), rules)
    arena = play_peer(rules, ranked, seed=3)
    assert [(t.id, t.text, t.seen) for t in arena.turns] == [
        (t.id, t.text, t.seen) for t in stepped.turns
    ]
    assert arena.votes == stepped.votes
    assert arena.outcome == stepped.outcome
    assert arena.rules == rules


def test_turns_are_listed_by_seat_in_order() -> None:
    transcript = play_peer(peer_v2(agents=3, rounds=2))
    assert [[t.id for t in turns] for turns in transcript.by_seat()] == [
        [TurnId(seat, round_) for round_ in range(3)] for seat in range(3)
    ]


def test_a_seat_that_never_spoke_has_an_empty_list() -> None:
    state = say(begin(peer_v1(agents=3)), 0, MALFORMED)
    assert [len(turns) for turns in finish(state).by_seat()] == [1, 0, 0]


def test_turns_know_what_kind_they_are() -> None:
    peers = play_peer(peer_v2(agents=3, rounds=1))
    assert [peers.kind(t) for t in peers.turns] == ["speak"] * 3 + ["ballot"] * 3
    about = question(choices=("yes", "no"))
    judged = play_judged(debate(1), lambda state, view: "Debater_A | 60%", about)
    assert [judged.kind(t) for t in judged.turns] == ["speak", "speak", "verdict"]


def test_a_turn_could_compare_when_it_saw_the_answers_of_two_others() -> None:
    transcript = play_peer(peer_v1(agents=4, rounds=2))
    able = [t.could_compare for t in transcript.turns]
    assert able == [False, False, True, True, True, True, True, True]


def test_a_turn_that_saw_only_placeholders_could_not_compare() -> None:
    def two_fail(state: State, view: View) -> str:
        return MALFORMED if view.seat < 2 and view.slot == 0 else answer(state, view)

    state = say_all(begin(peer_v2(agents=4, rounds=2, closing_ballot=False)), two_fail, slots=2)
    transcript = finish(state)
    able = {t.id.seat: t.could_compare for t in transcript.turns if t.id.round == 1}
    assert able == {0: True, 1: True, 2: False, 3: False}
