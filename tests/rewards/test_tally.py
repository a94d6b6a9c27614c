"""Peer v1: from the votes of a debate to one number per agent."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.rewards.advantages import Key, group_advantages
from rostra.rewards.tally import SeatVote, seat_votes, tally
from tests.rewards.builders import relabelled, valid_votes, votes

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "rewards.jsonl"


def listed(*rows: tuple[int, int, str, int]) -> list[SeatVote]:
    return [SeatVote(*row) for row in rows]


@st.composite
def any_votes(draw: st.DrawFn, agents: int = 4) -> list[SeatVote]:
    """Votes good and bad: agents out of range, an agent against itself, the author as a side."""
    ids = st.integers(-1, agents)
    one = st.builds(SeatVote, st.integers(0, agents - 1), ids, st.sampled_from((">", "=")), ids)
    return draw(st.lists(one, max_size=20))


@pytest.mark.parametrize(
    ("agents", "cast", "win_rate", "win_minus_loss"),
    [
        (3, [], [0, 0, 0], [0, 0, 0]),
        (3, [(2, 0, ">", 1)], [1, 0, 0], [1, -1, 0]),
        (3, [(2, 0, "=", 1)], [0.5, 0.5, 0], [0, 0, 0]),
        (3, [(2, 0, ">", 1), (2, 1, ">", 0)], [0.5, 0.5, 0], [0, 0, 0]),
        (3, [(2, 0, ">", 1), (2, 0, "=", 1)], [0.75, 0.25, 0], [0.5, -0.5, 0]),
        (3, [(2, 0, ">", 1), (0, 1, ">", 2), (1, 2, ">", 0)], [0.5] * 3, [0] * 3),
        (4, [(3, 0, ">", 1), (2, 0, ">", 1), (1, 3, ">", 0)], [2 / 3, 0, 0, 1], [1 / 3, -1, 0, 1]),
        (
            5,
            [(1, 0, "=", 3), (3, 4, "=", 1), (4, 2, ">", 1), (1, 0, ">", 2), (0, 4, ">", 1)],
            [0.75, 1 / 6, 0.5, 0.5, 0.75],
            [0.5, -2 / 3, 0, 0, 0.5],
        ),
    ],
)
def test_wins_ties_and_losses_become_rates(
    agents: int,
    cast: list[tuple[int, int, str, int]],
    win_rate: list[float],
    win_minus_loss: list[float],
) -> None:
    counted = tally(listed(*cast), agents)
    assert counted.win_rate() == pytest.approx(np.array(win_rate), abs=1e-12)
    assert counted.win_minus_loss() == pytest.approx(np.array(win_minus_loss), abs=1e-12)


def test_every_matchup_is_a_win_a_loss_or_a_tie() -> None:
    counted = tally(listed((3, 0, ">", 1), (3, 0, "=", 2), (3, 2, ">", 0)), 4)
    assert counted.wins.tolist() == [1, 0, 1, 0]
    assert counted.losses.tolist() == [1, 1, 0, 0]
    assert counted.ties.tolist() == [1, 0, 1, 0]
    assert counted.matchups.tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(
    "bad",
    [(0, 1, ">", 1), (0, 0, ">", 1), (0, 1, "=", 0), (0, 1, ">", 3), (0, -1, ">", 1)],
    ids=["itself", "author wins", "author ties", "too high", "negative"],
)
def test_a_vote_that_makes_no_sense_is_counted_as_malformed_and_nothing_else(
    bad: tuple[int, int, str, int],
) -> None:
    counted = tally(listed(bad, (0, 1, ">", 2)), 3)
    assert (counted.valid, counted.malformed) == (1, 1)
    assert counted.matchups.tolist() == [0, 1, 1]


def test_votes_on_any_turn_of_a_seat_count_for_the_seat() -> None:
    cast = votes("2.1: 0.0 > 1.0", "2.2: 0.1 < 1.0", "0.2: 1.1 = 2.1")
    assert seat_votes(cast) == listed((2, 0, ">", 1), (2, 1, ">", 0), (0, 1, "=", 2))


@settings(max_examples=60, deadline=None)
@given(any_votes())
def test_rates_stay_in_their_bounds(cast: list[SeatVote]) -> None:
    counted = tally(cast, 4)
    assert np.all((counted.win_rate() >= 0) & (counted.win_rate() <= 1))
    assert np.all(np.abs(counted.win_minus_loss()) <= 1)
    assert counted.valid + counted.malformed == len(cast)
    assert counted.wins.sum() == counted.losses.sum()


@settings(max_examples=60, deadline=None)
@given(any_votes(), st.integers(0, 3), st.integers(0, 3), st.sampled_from((">", "=")))
def test_votes_in_which_the_author_is_a_side_never_matter(
    cast: list[SeatVote], author: int, other: int, op: str
) -> None:
    plain = tally(cast, 4)
    vain = tally(
        [*cast, SeatVote(author, author, op, other), SeatVote(author, other, op, author)], 4
    )
    assert np.array_equal(vain.win_rate(), plain.win_rate())
    assert np.array_equal(vain.win_minus_loss(), plain.win_minus_loss())
    assert vain.malformed == plain.malformed + 2


@settings(max_examples=60, deadline=None)
@given(valid_votes(), st.permutations(range(5)))
def test_agents_who_change_seats_take_their_rates_with_them(cast: list, names: list[int]) -> None:
    before = tally(seat_votes(cast), 5)
    after = tally(seat_votes(relabelled(cast, names)), 5)
    assert np.array_equal(after.win_rate()[names], before.win_rate())
    assert np.array_equal(after.win_minus_loss()[names], before.win_minus_loss())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.permutations(range(4)), max_size=20))
def test_without_ties_win_minus_loss_is_the_win_rate_on_another_scale(
    seats: list[list[int]],
) -> None:
    counted = tally([SeatVote(u, a, ">", b) for u, a, b, _ in seats], 4)
    met = counted.matchups > 0
    assert counted.win_minus_loss()[met] == pytest.approx(2 * counted.win_rate()[met] - 1)


def test_rates_and_advantages_agree_with_the_shared_vectors() -> None:
    if not VECTORS.exists():
        pytest.skip("the shared vectors are not here")
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "v1"]
    assert rows
    for row in rows:
        counted = tally(listed(*row["votes"]), row["n_agents"])
        assert (counted.valid, counted.malformed) == (row["valid"], row["malformed"])
        for name, values in (
            ("win_rate", counted.win_rate()),
            ("win_minus_loss", counted.win_minus_loss()),
        ):
            assert values.tolist() == pytest.approx(row[name], abs=1e-9)
            rewards = {Key(seat, None, "whole"): r for seat, r in enumerate(values.tolist())}
            centred = group_advantages([rewards]).groups[0]
            expected = row[f"advantages_{name}"]
            assert list(centred.values()) == pytest.approx(expected, abs=1e-9)
