"""Peer v2: what every turn earns on every stream."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.state import State, prompt_tokens
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.debate.votes import Vote
from rostra.engines.bytechat import transcribe
from rostra.rewards.streams import (
    format_penalties,
    gen_rewards,
    judge_rewards,
    judge_truth,
    mix,
)
from rostra.seeds import derive, fraction
from tests.rewards.builders import (
    NONSENSE,
    full_ballots,
    relabelled,
    renamed,
    scripted,
    speech,
    spoken,
    turn,
    valid_votes,
    vote,
    votes,
)

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "rewards.jsonl"


def by_name(rewards: dict[TurnId, float]) -> dict[str, float]:
    return {str(turn): reward for turn, reward in rewards.items()}


# Votes for and against a turn


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        ([], {}),
        (["0.1: 1.0 > 2.0"], {"1.0": 1, "2.0": -1}),
        (["0.1: 1.0 = 2.0"], {"1.0": 0, "2.0": 0}),
        (["0.1: 1.0 > 2.0", "3.1: 1.0 < 2.0"], {"1.0": 0, "2.0": 0}),
        (["0.1: 1.0 > 2.0", "3.1: 1.0 = 2.0"], {"1.0": 0.5, "2.0": -0.5}),
        (
            ["0.1: 1.0 > 2.0", "3.1: 1.0 > 2.0", "4.1: 2.0 > 1.0"],
            {"1.0": 1 / 3, "2.0": -1 / 3},
        ),
        (["0.1: 1.0 > 2.0", "0.1: 2.0 > 3.0"], {"1.0": 1, "2.0": 0, "3.0": -1}),
        # The same agent in two rounds: each turn has its own votes.
        (["0.1: 1.0 > 2.0", "0.2: 2.1 > 1.1"], {"1.0": 1, "2.0": -1, "1.1": -1, "2.1": 1}),
        (
            ["0.1: 1.0 = 2.0", "1.1: 0.0 < 2.0", "2.1: 0.0 < 1.0"],
            {"0.0": -1, "1.0": 0.5, "2.0": 0.5},
        ),
    ],
)
def test_an_answer_earns_its_share_of_the_votes_on_that_very_turn(
    cast: list[str], expected: dict[str, float]
) -> None:
    assert by_name(gen_rewards(votes(*cast))) == pytest.approx(expected, abs=1e-12)


def test_an_answer_that_nobody_compared_has_no_reward_rather_than_a_bad_one() -> None:
    assert turn("0.0") not in gen_rewards(votes("0.1: 1.0 > 2.0"))


@settings(max_examples=60, deadline=None)
@given(valid_votes())
def test_gen_and_judge_rewards_stay_between_minus_one_and_one(cast: list[Vote]) -> None:
    every = [
        gen_rewards(cast),
        judge_rewards(cast, "leave_one_out"),
        judge_rewards(cast, "majority"),
    ]
    assert all(-1 <= reward <= 1 for rewards in every for reward in rewards.values())


@settings(max_examples=60, deadline=None)
@given(valid_votes())
def test_only_turns_in_votes_are_rewarded_and_only_voters_are_judged(cast: list[Vote]) -> None:
    assert gen_rewards(cast).keys() == {side for v in cast for side in (v.a, v.b)}
    assert judge_rewards(cast, "majority").keys() == {v.author for v in cast}
    assert judge_rewards(cast, "leave_one_out").keys() <= {v.author for v in cast}


@settings(max_examples=60, deadline=None)
@given(valid_votes(), st.permutations(range(5)))
def test_agents_who_change_seats_take_their_stream_rewards_with_them(
    cast: list[Vote], names: list[int]
) -> None:
    moved = relabelled(cast, names)

    def follow(rewards: dict[TurnId, float]) -> dict[TurnId, float]:
        return {renamed(turn, names): reward for turn, reward in rewards.items()}

    assert gen_rewards(moved) == follow(gen_rewards(cast))
    assert judge_rewards(moved, "majority") == follow(judge_rewards(cast, "majority"))
    assert judge_rewards(moved, "leave_one_out") == follow(judge_rewards(cast, "leave_one_out"))


@settings(max_examples=30, deadline=None)
@given(valid_votes(), st.randoms(use_true_random=False))
def test_the_order_of_votes_changes_nothing(cast: list[Vote], random: object) -> None:
    shuffled = list(cast)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert gen_rewards(shuffled) == gen_rewards(cast)
    assert judge_rewards(shuffled, "leave_one_out") == judge_rewards(cast, "leave_one_out")


# Judges against the consensus


@pytest.mark.parametrize(
    ("cast", "leave_one_out", "majority"),
    [
        ([], {}, {}),
        # A lone judge has nobody to be measured against.
        (["0.1: 1.0 > 2.0"], {}, {"0.1": 1}),
        (["0.1: 1.0 = 2.0"], {}, {"0.1": 0}),
        (["0.1: 1.0 > 2.0", "3.1: 1.0 > 2.0"], {"0.1": 1, "3.1": 1}, {"0.1": 1, "3.1": 1}),
        (["0.1: 1.0 > 2.0", "3.1: 1.0 < 2.0"], {"0.1": -1, "3.1": -1}, {"0.1": 0, "3.1": 0}),
        # A tie on a decided pair neither matches nor opposes; an undecided pair pays nobody.
        (["0.1: 1.0 > 2.0", "3.1: 1.0 = 2.0"], {"0.1": 0, "3.1": 0}, {"0.1": 1, "3.1": 0}),
        (["0.1: 1.0 = 2.0", "3.1: 2.0 = 1.0"], {"0.1": 0, "3.1": 0}, {"0.1": 0, "3.1": 0}),
        (
            ["0.1: 1.0 > 2.0", "3.1: 1.0 > 2.0", "4.1: 2.0 > 1.0"],
            {"0.1": 0, "3.1": 0, "4.1": -1},
            {"0.1": 1, "3.1": 1, "4.1": -1},
        ),
        # Two votes of one turn are averaged, whichever side is written first.
        (
            ["0.1: 1.0 > 2.0", "0.1: 3.0 > 4.0", "3.1: 2.0 < 1.0", "1.1: 4.0 > 3.0"],
            {"0.1": 0, "3.1": 1, "1.1": -1},
            {"0.1": 0.5, "3.1": 1, "1.1": 0},
        ),
        # A vote without other judges is no part of the mean.
        (
            ["0.1: 1.0 > 2.0", "0.1: 3.0 > 4.0", "3.1: 1.0 > 2.0"],
            {"0.1": 1, "3.1": 1},
            {"0.1": 1, "3.1": 1},
        ),
        # Turns of different rounds are different pairs.
        (["0.1: 1.0 > 2.0", "3.2: 1.1 < 2.1"], {}, {"0.1": 1, "3.2": 1}),
    ],
)
def test_a_judge_is_measured_against_the_consensus(
    cast: list[str], leave_one_out: dict[str, float], majority: dict[str, float]
) -> None:
    given_votes = votes(*cast)
    assert by_name(judge_rewards(given_votes, "leave_one_out")) == pytest.approx(leave_one_out)
    assert by_name(judge_rewards(given_votes, "majority")) == pytest.approx(majority)


def test_a_judge_is_no_witness_for_himself_in_another_round() -> None:
    twice = votes("2.1: 0.0 > 1.0", "2.2: 0.0 > 1.0")
    assert judge_rewards(twice, "leave_one_out") == {}
    third = [*twice, vote("3.1: 0.0 < 1.0")]
    assert by_name(judge_rewards(third, "leave_one_out")) == {"2.1": -1, "2.2": -1, "3.1": -1}


@settings(max_examples=40, deadline=None)
@given(full_ballots(3))
def test_with_three_agents_judges_have_no_signal_or_always_plus_one(cast: list[Vote]) -> None:
    assert judge_rewards(cast, "leave_one_out") == {}
    assert set(judge_rewards(cast, "majority").values()) == {1.0}


@settings(max_examples=40, deadline=None)
@given(full_ballots(4))
def test_with_four_agents_the_majority_pays_plus_one_or_nothing_for_a_vote(
    cast: list[Vote],
) -> None:
    rewards = judge_rewards(cast, "majority")
    assert len(rewards) == 4
    # Each turn votes on three pairs, and each of these is worth 1 or 0.
    assert all(3 * reward == pytest.approx(round(3 * reward)) for reward in rewards.values())
    assert all(reward >= 0 for reward in rewards.values())
    for one in cast:
        pair = [v for v in cast if {v.a, v.b} == {one.a, one.b}]
        assert judge_rewards(pair, "majority")[one.author] in (0, 1)


def test_with_five_agents_dissent_from_the_majority_costs() -> None:
    cast = votes("2.1: 0.0 > 1.0", "3.1: 0.0 > 1.0", "4.1: 1.0 > 0.0")
    assert judge_rewards(cast, "majority")[turn("4.1")] == -1


@settings(max_examples=40, deadline=None)
@given(full_ballots(5))
def test_the_judge_himself_pulls_the_majority_towards_his_vote(cast: list[Vote]) -> None:
    alone, included = judge_rewards(cast, "leave_one_out"), judge_rewards(cast, "majority")
    assert alone.keys() == included.keys()
    assert all(included[author] >= alone[author] for author in alone)


def test_stream_rewards_agree_with_the_shared_vectors() -> None:
    if not VECTORS.exists():
        pytest.skip("the shared vectors are not here")
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "v2"]
    assert rows
    for row in rows:
        cast = [vote(" ".join(v)) for v in row["votes"]]
        assert by_name(gen_rewards(cast)) == pytest.approx(row["gen"], abs=1e-9)
        for rule in ("leave_one_out", "majority"):
            rewards = by_name(judge_rewards(cast, rule))
            assert rewards == pytest.approx(row[f"judge_{rule}"], abs=1e-9)


# Who may vote on what, in debates that were really played


@st.composite
def peer_rules(draw: st.DrawFn) -> PeerRules:
    preset = draw(st.sampled_from((peer_v1, peer_v2)))
    return preset(
        agents=draw(st.integers(3, 5)),
        rounds=draw(st.integers(1, 3)),
        schedule=draw(st.sampled_from(("sequential", "simultaneous"))),
        history_rounds=draw(st.sampled_from((-1, -1, 0, 1, 2))),
        malformed=draw(st.sampled_from(("abort", "mask"))),
        closing_ballot=draw(st.booleans()),
        votes_shown=draw(st.booleans()),
    )


def reckless(faults: float) -> object:
    """Compares any agents with any others, heard or not, itself included; sometimes malformed."""

    def line(state: State, view: View) -> str:
        seed = state.turn_seed(view.seat)
        if fraction(seed, "fault") < faults:
            return NONSENSE
        slot = state.protocol.slots[view.slot]
        agents = state.protocol.agents + 1
        lines = [
            f"Agent {derive(seed, i, 'a') % agents} {'>=<'[derive(seed, i, 'op') % 3]} "
            f"Agent {derive(seed, i, 'b') % agents}"
            for i in range(8)
        ]
        return speech(slot.sections, "\n".join(lines), f"This is answer {view.seat}.{slot.round}.")

    return line


@settings(max_examples=40, deadline=None)
@given(peer_rules(), st.integers(0, 2**32), st.sampled_from((0.0, 0.2)))
def test_nobody_is_credited_by_a_vote_of_someone_who_had_not_read_the_turn(
    rules: PeerRules, seed: int, faults: float
) -> None:
    debate = spoken(rules, reckless(faults), seed)  # type: ignore[arg-type]
    turns = {t.id: t for t in debate.turns}
    for cast in debate.votes:
        author = turns[cast.author]
        prompt = transcribe(prompt_tokens(turns, author))
        for side in (cast.a, cast.b):
            assert side in author.seen
            assert side.seat != author.id.seat
            assert f"This is answer {side}." in prompt
    assert gen_rewards(debate.votes).keys() <= {seen for t in debate.turns for seen in t.seen}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_comparing_oneself_changes_no_reward_of_anybody(seed: int, data: st.DataObject) -> None:
    rules = peer_v2(agents=4, rounds=2)
    honest = {
        f"{author}.{round_}": f"Agent {a} > Agent {b}"
        for round_ in (1, 2)
        for author, a, b, _ in [data.draw(st.permutations(range(4))) for _ in range(3)]
    }
    vain = {
        name: f"Agent {name[0]} > Agent {(int(name[0]) + 1) % 4}\n{text}"
        for name, text in honest.items()
    }
    plain, proud = scripted(rules, honest, seed=seed), scripted(rules, vain, seed=seed)
    assert sum(t.comparisons.self_dropped for t in proud.turns) == len(vain)
    assert gen_rewards(proud.votes) == gen_rewards(plain.votes)
    for rule in ("leave_one_out", "majority"):
        assert judge_rewards(proud.votes, rule) == judge_rewards(plain.votes, rule)
    assert format_penalties(proud, 0.5) == format_penalties(plain, 0.5)


# The format penalty


def test_turns_that_could_compare_and_did_not_are_fined() -> None:
    debate = scripted(peer_v2(agents=3, rounds=2), {"0.1": "Agent 1 > Agent 2"})
    fines = by_name(format_penalties(debate, 0.5))
    # Nobody saw an answer in round 0; 0.1 voted; all others could have.
    assert fines == {"1.1": -0.5, "2.1": -0.5, "0.2": -0.5, "1.2": -0.5, "2.2": -0.5}


def test_a_turn_that_compared_nobody_valid_is_fined_like_one_that_was_silent() -> None:
    said = {"0.1": "Agent 0 > Agent 1", "1.1": "Agent 7 > Agent 0", "2.1": "Not Agent 0 > Agent 1"}
    debate = scripted(peer_v2(agents=3, rounds=1), said)
    assert by_name(format_penalties(debate, 0.25)) == dict.fromkeys(("0.1", "1.1", "2.1"), -0.25)


def test_a_turn_that_saw_fewer_than_two_answers_is_exempt_in_any_round() -> None:
    blind = scripted(peer_v2(agents=4, rounds=3, history_rounds=0))
    assert {t.id.round for t in blind.turns} == {0, 1, 2, 3}
    assert format_penalties(blind, 0.5) == {}
    # In round 1 the one answer that agents 0 and 1 can read of others is each other's; agents 2
    # and 3 can read two.
    failing = scripted(peer_v2(agents=4, rounds=1), malformed=("2.0", "3.0"))
    assert by_name(format_penalties(failing, 0.5)) == dict.fromkeys(
        ("2.0", "3.0", "2.1", "3.1"), -0.5
    )


def test_a_turn_that_saw_two_answers_is_fined_even_in_the_first_round() -> None:
    rules = peer_v1(agents=4, rounds=1, reward="streams")
    assert by_name(format_penalties(scripted(rules), 0.5)) == {"2.0": -0.5, "3.0": -0.5}


def test_malformed_turns_are_fined_even_when_they_could_not_compare() -> None:
    debate = scripted(peer_v2(agents=3, rounds=1), malformed=("1.0",))
    assert format_penalties(debate, 0.5)[turn("1.0")] == -0.5


# Truth


@pytest.mark.parametrize(
    ("peer", "truth", "weight", "expected"),
    [
        (0.5, 1.0, 0.0, 0.5),
        (0.5, 1.0, 1.0, 1.0),
        (0.5, 1.0, 0.25, 0.625),
        (-1.0, 1.0, 0.5, 0.0),
        (0.5, 0.0, 0.5, 0.25),
        (None, 1.0, 0.25, 0.25),
        (0.5, None, 0.25, 0.375),
        (None, None, 0.5, None),
        # At the ends one part is no part of the reward, and its absence no reason to have one.
        (None, 1.0, 0.0, None),
        (0.5, None, 1.0, None),
        (0.5, None, 0.0, 0.5),
        (None, 1.0, 1.0, 1.0),
    ],
)
def test_truth_is_mixed_in_by_its_share(
    peer: float | None, truth: float | None, weight: float, expected: float | None
) -> None:
    assert mix(peer, truth, weight) == expected


def test_no_signal_mixes_to_none_and_never_to_zero() -> None:
    assert mix(None, None, 0.0) is None
    assert mix(0.0, None, 0.0) == 0.0


def test_a_judge_is_right_when_he_prefers_the_right_answer() -> None:
    marks = {turn("0.0"): 1.0, turn("1.0"): 0.0, turn("2.0"): 0.0}
    cast = votes(
        "3.1: 0.0 > 1.0",
        "4.1: 1.0 > 0.0",
        "5.1: 0.0 = 1.0",
        "6.1: 0.0 > 1.0",
        "6.1: 2.0 > 0.0",
        "6.1: 2.0 > 1.0",
    )
    expected = {"3.1": 1, "4.1": -1, "5.1": 0, "6.1": 0}
    assert by_name(judge_truth(cast, marks)) == expected


def test_votes_on_equally_right_or_unmarked_answers_are_no_test_of_a_judge() -> None:
    marks = {turn("0.0"): 1.0, turn("1.0"): 1.0}
    assert judge_truth(votes("3.1: 0.0 > 1.0", "3.1: 0.0 > 2.0", "3.1: 2.0 > 1.0"), marks) == {}
