"""Votes are cast on the turns that a judge had read, and on no others."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rostra.debate.comparisons import Comparison, Comparisons
from rostra.debate.turn import Turn, TurnId
from rostra.debate.votes import Ballot, Vote, cast, comparable
from rostra.errors import DataError
from tests.debate.builders import make_turn, properties, response

AUTHOR = TurnId(1, 1)


def everybody(round_: int = 0, **texts: str) -> list[Turn]:
    """Turns of five seats in one round; `seat2="..."` gives seat 2 another text."""
    return [make_turn(seat, round_, texts.get(f"seat{seat}")) for seat in range(5)]


def ids(*names: str) -> tuple[TurnId, ...]:
    return tuple(map(TurnId.read, names))


def comparing(*pairs: tuple[int, str, int]) -> Comparisons:
    return Comparisons(tuple(Comparison(*pair) for pair in pairs))


def test_a_name_stands_for_the_latest_turn_in_the_prompt() -> None:
    turns = everybody(0) + everybody(1)
    seen = ids("0.0", "2.0", "0.1")
    assert comparable(turns, seen, 1) == {0: TurnId(0, 1), 2: TurnId(2, 0)}


def test_a_turn_that_was_not_in_the_prompt_has_no_name() -> None:
    turns = everybody(0) + everybody(1)
    assert comparable(turns, ids("0.0"), 1) == {0: TurnId(0, 0)}
    assert comparable(turns, (), 1) == {}


def test_the_order_in_which_turns_were_shown_does_not_matter() -> None:
    turns = everybody(0) + everybody(1)
    seen = ids("2.1", "0.1", "0.0", "2.0")
    assert comparable(turns, seen, 1) == {0: TurnId(0, 1), 2: TurnId(2, 1)}


def test_a_judge_has_no_name_for_itself() -> None:
    assert 1 not in comparable(everybody(), ids("0.0", "1.0", "2.0"), 1)


@pytest.mark.parametrize("text", ["", "prose", response(without="solution")])
def test_a_malformed_latest_turn_stands_for_nothing(text: str) -> None:
    turns = everybody(0) + everybody(1, seat2=text)
    names = comparable(turns, ids("0.0", "2.0", "0.1", "2.1"), 1)
    assert names == {0: TurnId(0, 1)}


def test_a_malformed_turn_that_was_not_seen_hides_nothing() -> None:
    turns = everybody(0) + everybody(1, seat2="prose")
    assert comparable(turns, ids("2.0"), 1) == {2: TurnId(2, 0)}


def test_a_later_good_turn_makes_up_for_a_malformed_one() -> None:
    turns = everybody(0, seat2="prose") + everybody(1)
    assert comparable(turns, ids("2.0", "2.1"), 1) == {2: TurnId(2, 1)}


def test_a_turn_without_a_solution_stands_for_nothing() -> None:
    ballot = "<evaluation>fine</evaluation><comparison>N/A</comparison>"
    turn = make_turn(2, 0, ballot, sections=("evaluation", "comparison"))
    assert turn.ok
    assert comparable([turn], (turn.id,), 1) == {}


def test_comparisons_become_votes_on_the_turns_they_name() -> None:
    names = {0: TurnId(0, 1), 2: TurnId(2, 0), 3: TurnId(3, 1)}
    ballot = cast(AUTHOR, comparing((0, ">", 2), (3, "=", 0)), names)
    assert ballot == Ballot(
        (
            Vote(AUTHOR, TurnId(0, 1), ">", TurnId(2, 0)),
            Vote(AUTHOR, TurnId(3, 1), "=", TurnId(0, 1)),
        )
    )
    assert [str(vote) for vote in ballot.votes] == ["1.1: 0.1 > 2.0", "1.1: 3.1 = 0.1"]


def test_comparisons_of_unseen_turns_are_dropped_and_counted() -> None:
    names = {0: TurnId(0, 0), 2: TurnId(2, 0)}
    ballot = cast(AUTHOR, comparing((0, ">", 2), (0, ">", 3), (4, "=", 2), (3, ">", 4)), names)
    assert ballot == Ballot((Vote(AUTHOR, TurnId(0, 0), ">", TurnId(2, 0)),), unseen=3)


def test_a_judge_who_saw_nobody_casts_no_vote() -> None:
    assert cast(AUTHOR, comparing((0, ">", 2)), {}) == Ballot(unseen=1)
    assert cast(AUTHOR, Comparisons(), {}) == Ballot()


@properties
@given(
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=15),
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=15),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(">="), st.integers(0, 4)), max_size=8),
)
def test_every_vote_is_on_seen_and_answered_turns_of_others(
    seen: set[tuple[int, int]],
    malformed: set[tuple[int, int]],
    pairs: list[tuple[int, str, int]],
) -> None:
    turns = [
        make_turn(seat, round_, "prose" if (seat, round_) in malformed else None)
        for round_ in range(3)
        for seat in range(5)
    ]
    prompt = tuple(TurnId(*id_) for id_ in sorted(seen))
    comparisons = comparing(*pairs)
    ballot = cast(AUTHOR, comparisons, comparable(turns, prompt, AUTHOR.seat))
    assert len(ballot.votes) + ballot.unseen == len(pairs)
    for vote in ballot.votes:
        assert vote.author == AUTHOR
        for side in (vote.a, vote.b):
            assert side in seen
            assert side not in malformed
            assert side.seat != AUTHOR.seat
            assert side.round == max(r for seat, r in seen if seat == side.seat)


def test_a_turn_gives_the_text_of_its_sections_or_nothing() -> None:
    turn = make_turn(1, text=response(solution=" 4 "))
    assert turn.ok
    assert turn.section("solution") == "4"
    assert turn.section("speech") == ""
    silent = make_turn(1, text="prose")
    assert not silent.ok
    assert silent.section("solution") == ""


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_name_of_a_turn_can_be_written_and_read(seat: int, round_: int) -> None:
    assert TurnId.read(str(TurnId(seat, round_))) == (seat, round_)


@pytest.mark.parametrize("text", ["", ".", "2", "2.", ".0", "a.0", "2.0.1", "-1.0", "2. 0", "².0"])
def test_what_does_not_name_a_turn_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(DataError, match=r"does not name a turn: write seat\.round, as in 2\.0"):
        TurnId.read(text)


@properties
@given(st.text("0123456789.-+ _٣²"))
@example("9" * 5000 + ".0")
def test_no_text_makes_reading_a_name_fail_in_another_way(text: str) -> None:
    try:
        seat, round_ = TurnId.read(text)
    except DataError:
        return
    assert [seat, round_] == [int(part) for part in text.split(".")]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_latest_turn_counts_whatever_the_order_of_the_list(order: list[int]) -> None:
    turns = [make_turn(1, 0), make_turn(1, 1), make_turn(2, 0)]
    seen = [turn.id for turn in turns]
    assert comparable([turns[i] for i in order], seen, 0) == {1: TurnId(1, 1), 2: TurnId(2, 0)}
