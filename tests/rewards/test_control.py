"""Controls: votes that mean nothing, and pay for being common."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import peer_v2
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.votes import Ballot, Vote
from rostra.rewards.control import coin_flipped, plurality_rewards
from rostra.rewards.streams import gen_rewards
from tests.rewards.builders import scripted, turn, valid_votes, votes

TALK = scripted(peer_v2(agents=5, rounds=3))
"""Five agents, three rounds and a ballot, in which nobody compares anybody."""
CAST = votes(
    "0.1: 1.0 > 2.0",
    "3.1: 1.0 > 2.0",
    "3.1: 1.0 > 4.0",
    "3.2: 1.1 > 2.1",
    "4.2: 3.1 > 2.1",
    "4.3: 0.2 > 1.2",
)
SEEDS = 800
"""Four standard deviations of a fair coin are 0.07 over so many."""


def polled(cast: Sequence[Vote], seed: int = 0) -> Transcript:
    ballots = {t.id: Ballot(tuple(v for v in cast if v.author == t.id)) for t in TALK.turns}
    return replace(TALK, seed=seed, ballots=ballots)


def turned(cast: Sequence[Vote]) -> list[Vote]:
    """The same votes, each for the other side."""
    return [Vote(v.author, v.b, v.op, v.a) if v.op == ">" else v for v in cast]


def coins(cast: Sequence[Vote]) -> list[list[bool]]:
    """For every vote and seed, whether the lower of the pair won."""
    flipped = [coin_flipped(polled(cast, seed)).votes for seed in range(SEEDS)]
    return [[vote.a < vote.b for vote in column] for column in zip(*flipped, strict=True)]


def share(marks: Sequence[bool]) -> float:
    return sum(marks) / len(marks)


# Coin


@settings(max_examples=100, deadline=None)
@given(valid_votes(), st.integers(0, 2**62))
def test_pairs_judges_and_ties_stay_and_so_does_their_order(cast: list[Vote], seed: int) -> None:
    before = polled(cast, seed)
    after = coin_flipped(before)
    assert [(v.author, {v.a, v.b}, v.op) for v in after.votes] == [
        (v.author, {v.a, v.b}, v.op) for v in before.votes
    ]
    assert [v for v in after.votes if v.op == "="] == [v for v in before.votes if v.op == "="]


@settings(max_examples=100, deadline=None)
@given(valid_votes(), st.integers(0, 2**62), st.data())
def test_what_a_vote_said_makes_no_difference(
    cast: list[Vote], seed: int, data: st.DataObject
) -> None:
    swaps = data.draw(st.lists(st.booleans(), min_size=len(cast), max_size=len(cast)))
    other = [t if swap else v for v, t, swap in zip(cast, turned(cast), swaps, strict=True)]
    assert coin_flipped(polled(cast, seed)).votes == coin_flipped(polled(other, seed)).votes


def test_the_coin_of_every_vote_is_fair() -> None:
    for column in coins(CAST):
        assert share(column) == pytest.approx(0.5, abs=0.07)


def test_no_coin_knows_of_another() -> None:
    # Also not those of one judge, nor of one pair, nor of the same agents in another round.
    for left, right in combinations(coins(CAST), 2):
        same = [a == b for a, b in zip(left, right, strict=True)]
        assert share(same) == pytest.approx(0.5, abs=0.07)


def test_the_votes_that_stand_are_half_whichever_way_they_pointed() -> None:
    for cast in (CAST, turned(CAST)):
        kept = [
            now == then
            for seed in range(SEEDS)
            for now, then in zip(
                coin_flipped(polled(cast, seed)).votes, polled(cast, seed).votes, strict=True
            )
        ]
        assert share(kept) == pytest.approx(0.5, abs=0.03)


def test_a_favourite_of_all_earns_nothing_in_the_long_run() -> None:
    cast = votes("0.1: 1.0 > 2.0", "3.1: 1.0 > 2.0", "4.1: 1.0 > 2.0")
    assert gen_rewards(cast)[turn("1.0")] == 1
    paid = [gen_rewards(coin_flipped(polled(cast, s)).votes)[turn("1.0")] for s in range(SEEDS)]
    assert {round(3 * r) for r in paid} == {-3, -1, 1, 3}
    assert sum(paid) / len(paid) == pytest.approx(0, abs=0.09)


def test_the_same_debate_is_flipped_the_same_way_and_another_seed_another() -> None:
    once, again = (coin_flipped(polled(CAST, 5)).votes for _ in range(2))
    assert once == again
    assert len({coin_flipped(polled(CAST, seed)).votes for seed in range(20)}) > 10


def test_a_second_flip_changes_nothing() -> None:
    once = coin_flipped(polled(CAST, 3))
    assert coin_flipped(once).votes == once.votes


def test_all_but_the_direction_of_votes_is_as_it_was() -> None:
    debate = scripted(
        peer_v2(agents=4, rounds=1), {"0.1": "Agent 1 > Agent 2", "1.0": "Agent 2 > Agent 3"}
    )
    after = coin_flipped(debate)
    unseen = {name: ballot.unseen for name, ballot in debate.ballots.items()}
    assert unseen[turn("1.0")] == 1
    assert {name: ballot.unseen for name, ballot in after.ballots.items()} == unseen
    assert replace(after, ballots=debate.ballots).turns == debate.turns
    assert (after.question, after.seed, after.outcome) == (
        debate.question,
        debate.seed,
        debate.outcome,
    )
    assert [str(v) for v in debate.votes] == ["0.1: 1.0 > 2.0"]


# Plurality


def said(**by_round: str) -> dict[TurnId, str]:
    """Answers by seat, one letter each, written as `r0="aab-c"`; a dash is none."""
    return {
        TurnId(seat, int(name[1:])): letter
        for name, letters in by_round.items()
        for seat, letter in enumerate(letters)
        if letter != "-"
    }


def paid(**by_round: str) -> dict[str, float]:
    rewards = plurality_rewards(TALK, said(**by_round))
    return {str(name): reward for name, reward in rewards.items()}


def test_the_most_common_answer_is_paid_and_every_other_is_fined() -> None:
    assert paid(r0="aabca") == {"0.0": 1, "1.0": 1, "2.0": -1, "3.0": -1, "4.0": 1}


def test_all_that_are_tied_for_the_most_common_are_paid() -> None:
    assert paid(r0="aabbc") == {"0.0": 1, "1.0": 1, "2.0": 1, "3.0": 1, "4.0": -1}
    assert set(paid(r0="abcde").values()) == {1.0}


def test_every_round_is_counted_by_itself() -> None:
    rewards = paid(r0="aab--", r1="bba--")
    assert rewards == {"0.0": 1, "1.0": 1, "2.0": -1, "0.1": 1, "1.1": 1, "2.1": -1}


def test_one_answer_alone_in_its_round_has_no_signal() -> None:
    assert paid(r0="--a--", r1="aa---") == {"0.1": 1, "1.1": 1}


def test_nobody_who_answers_is_no_signal() -> None:
    assert paid() == {}


def test_who_gives_no_answer_is_not_counted_and_not_paid() -> None:
    assert paid(r0="a-b-b") == {"0.0": -1, "2.0": 1, "4.0": 1}


def test_answers_of_turns_that_were_never_taken_count_for_nothing() -> None:
    stray = {TurnId(seat, 9): "b" for seat in range(5)} | {TurnId(7, 0): "b", TurnId(8, 0): "b"}
    alone = said(r0="aab--")
    assert plurality_rewards(TALK, alone | stray) == plurality_rewards(TALK, alone)


grids = st.dictionaries(
    st.builds(TurnId, st.integers(0, 4), st.integers(0, 2)), st.sampled_from("abc"), max_size=15
)


@settings(max_examples=100, deadline=None)
@given(grids, st.permutations("abc"))
def test_pay_depends_on_who_agrees_and_not_on_what_is_said(
    answers: dict[TurnId, str], names: list[str]
) -> None:
    other = {name: names["abc".index(answer)] for name, answer in answers.items()}
    assert plurality_rewards(TALK, answers) == plurality_rewards(TALK, other)


@settings(max_examples=100, deadline=None)
@given(grids)
def test_the_paid_of_a_round_gave_no_rarer_answer_than_anybody(
    answers: dict[TurnId, str],
) -> None:
    rewards = plurality_rewards(TALK, answers)
    for round_ in range(3):
        spoken = {t: a for t, a in answers.items() if t.round == round_}
        assert {t for t in rewards if t.round == round_} == (
            set(spoken) if len(spoken) > 1 else set()
        )
        for name in spoken if len(spoken) > 1 else ():
            agree = list(spoken.values()).count(spoken[name])
            best = all(agree >= list(spoken.values()).count(a) for a in spoken.values())
            assert rewards[name] == (1 if best else -1)
