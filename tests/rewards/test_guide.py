"""Judges measured against a guide."""

import pytest
from hypothesis import given

from rostra.debate.peer import PeerRules
from rostra.debate.votes import Vote
from rostra.rewards.advantages import Key
from rostra.rewards.score import Guide, RewardRules, score
from rostra.rewards.streams import guided, judge_rewards
from tests.rewards.builders import scripted, turn, valid_votes, votes


def test_agreeing_is_worth_one_and_opposing_costs_one() -> None:
    own = votes("0.1: 1.0 > 2.0", "0.1: 3.0 > 4.0", "1.1: 2.0 > 3.0")
    guide = votes("4.1: 1.0 > 2.0", "0.1: 4.0 > 3.0", "0.1: 2.0 > 3.0")
    assert guided(own, guide) == {turn("0.1"): 0.0, turn("1.1"): 1.0}


def test_the_guide_is_asked_several_times_and_its_majority_counts() -> None:
    guide = votes("0.1: 1.0 > 2.0", "3.1: 1.0 > 2.0", "4.1: 2.0 > 1.0")
    assert guided(votes("0.1: 1.0 > 2.0"), guide) == {turn("0.1"): 1.0}
    assert guided(votes("0.1: 2.0 > 1.0"), guide) == {turn("0.1"): -1.0}


def test_ties_are_worth_nothing_and_what_the_guide_did_not_judge_is_no_signal() -> None:
    own = votes("0.1: 1.0 = 2.0", "1.1: 2.0 > 3.0", "2.1: 3.0 > 4.0")
    guide = votes("0.1: 1.0 > 2.0", "0.1: 2.0 = 3.0")
    assert guided(own, guide) == {turn("0.1"): 0.0, turn("1.1"): 0.0}


@given(valid_votes())
def test_who_votes_like_the_guide_gets_all_that_there_is(cast: list[Vote]) -> None:
    for author in {v.author for v in cast}:
        own = [v for v in cast if v.author == author]
        pairs = {frozenset((v.a, v.b)) for v in own}
        if len(pairs) == len(own) and all(v.op == ">" for v in own):
            assert guided(own, own) == {author: 1.0}


def rewards(weight: float, guide: list[Vote]) -> dict[Key, float | None]:
    rules = PeerRules(agents=5, rounds=1)
    ballots = {f"{seat}.1": "Agent 1 > Agent 2" for seat in (0, 3, 4)}
    transcript = scripted(rules, ballots)
    found = score([transcript], RewardRules(), guide=Guide([guide], weight)).rewards[0]
    return {key: value for key, value in found.items() if key.stream == "judge"}


def test_the_guide_is_mixed_into_the_reward_of_judging_by_its_weight() -> None:
    against = votes("0.1: 2.0 > 1.0")
    for weight, expected in ((0.0, 1.0), (0.25, 0.5), (1.0, -1.0)):
        assert rewards(weight, against)[Key(0, 1, "judge")] == pytest.approx(expected)


def test_without_a_guide_nothing_changes() -> None:
    transcript = scripted(
        PeerRules(agents=5, rounds=1), {f"{seat}.1": "Agent 1 > Agent 2" for seat in (0, 3, 4)}
    )
    plain = score([transcript], RewardRules()).rewards
    assert plain == score([transcript], RewardRules(), guide=Guide([()], 0.0)).rewards
    assert judge_rewards(transcript.votes, "leave_one_out") == {
        turn(f"{s}.1"): 1.0 for s in (0, 3, 4)
    }


def test_a_guide_never_touches_the_reward_of_solving() -> None:
    transcript = scripted(
        PeerRules(agents=5, rounds=1), {f"{seat}.1": "Agent 1 > Agent 2" for seat in (0, 3, 4)}
    )
    both = [
        score([transcript], RewardRules(), guide=guide).rewards[0]
        for guide in (None, Guide([votes("0.1: 2.0 > 1.0")], 0.5))
    ]
    gen = [{k: v for k, v in found.items() if k.stream == "gen"} for found in both]
    assert gen[0] == gen[1]
