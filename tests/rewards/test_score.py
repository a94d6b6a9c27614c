"""From transcripts to rewards and advantages, under the rules of a run."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import peer_v1, peer_v2
from rostra.debate.turn import TurnId
from rostra.errors import ConfigError
from rostra.rewards.advantages import Key, Rewards, RoleBaseline
from rostra.rewards.control import coin_flipped
from rostra.rewards.score import RewardRules, rewards_of, score
from tests.rewards.builders import rehearse, scripted, turn

ROUND_AND_BALLOT = peer_v2(agents=5, rounds=1)
V1 = RewardRules(reward="win_rate")
ALL_FOR_ZERO = {f"{i}.1": f"Agent 0 > Agent {i % 4 + 1}" for i in range(1, 5)}
"""Agents 1 to 4 prefer agent 0 to the next of them."""


def on(stream: str, rewards: Rewards) -> dict[str, float | None]:
    return {f"{k.seat}.{k.round}": r for k, r in rewards.items() if k.stream == stream}


def whole(rewards: Rewards) -> list[float | None]:
    assert all(key.round is None and key.stream == "whole" for key in rewards)
    return [rewards[key] for key in sorted(rewards)]


# Peer v2


def test_answers_are_paid_on_gen_and_judgements_on_judge() -> None:
    said = {
        "2.1": "Agent 0 > Agent 1",
        "3.1": "Agent 0 > Agent 1",
        "4.1": "Agent 1 > Agent 0",
        "0.1": "Agent 1 = Agent 2",
    }
    rewards = rewards_of(scripted(ROUND_AND_BALLOT, said), RewardRules(), {})
    gen, judge = on("gen", rewards), on("judge", rewards)
    assert gen == {
        "0.0": pytest.approx(1 / 3),
        "1.0": pytest.approx(-1 / 4),
        "2.0": 0.0,
        "3.0": None,
        "4.0": None,
        **{f"{i}.1": None for i in range(5)},
    }
    assert judge == {
        **{f"{i}.0": None for i in range(5)},
        "0.1": None,
        "1.1": -0.5,
        "2.1": 0.0,
        "3.1": 0.0,
        "4.1": -1.0,
    }


def test_without_a_ballot_the_last_answers_have_no_reward() -> None:
    rules = peer_v2(agents=3, rounds=2, closing_ballot=False)
    debate = scripted(rules, {"0.1": "Agent 1 > Agent 2"})
    gen = on("gen", rewards_of(debate, RewardRules(), {}))
    assert gen == {"0.0": None, "1.0": 1.0, "2.0": -1.0, "0.1": None, "1.1": None, "2.1": None}


def test_a_ballot_has_nothing_to_earn_on_gen() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    marks = {t.id: 1.0 for t in debate.turns}
    gen = on("gen", rewards_of(debate, RewardRules(truth=1.0), marks))
    assert gen == {f"{i}.0": 1.0 for i in range(5)} | {f"{i}.1": None for i in range(5)}


def test_a_malformed_turn_is_fined_on_judge_and_has_no_gen_reward() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO, malformed=("3.0",))
    marks = {turn("3.0"): 1.0}
    rewards = rewards_of(debate, RewardRules(truth=0.5, format_penalty=0.75), marks)
    assert rewards[Key(3, 0, "gen")] is None
    assert rewards[Key(3, 0, "judge")] == -0.75


def test_a_fine_stands_alone_whatever_else_a_judge_would_earn() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    marks = {turn(f"{i}.0"): float(i == 0) for i in range(5)}
    rewards = rewards_of(debate, RewardRules(judge_truth=0.5), marks)
    assert rewards[Key(0, 1, "judge")] == -0.5


def test_the_consensus_rule_is_the_one_asked_for() -> None:
    said = {"2.1": "Agent 0 > Agent 1", "3.1": "Agent 0 > Agent 1", "4.1": "Agent 1 > Agent 0"}
    debate = scripted(ROUND_AND_BALLOT, said)
    judge = {
        rule: on("judge", rewards_of(debate, RewardRules(consensus=rule), {}))
        for rule in ("leave_one_out", "majority")
    }
    assert [judge["leave_one_out"][f"{i}.1"] for i in (2, 3, 4)] == [0, 0, -1]
    assert [judge["majority"][f"{i}.1"] for i in (2, 3, 4)] == [1, 1, -1]


@pytest.mark.parametrize("seed", range(3))
def test_three_agents_never_have_a_judge_signal_besides_fines(seed: int) -> None:
    (debate,) = rehearse(peer_v2(agents=3, rounds=3), [seed], fault=0.1)
    assert debate.votes
    judge = on("judge", rewards_of(debate, RewardRules(), {}))
    assert set(judge.values()) <= {None, -0.5}


def test_truth_is_mixed_into_gen_and_into_judge_by_separate_shares() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    marks = {turn("0.0"): 0.0, turn("2.0"): 1.0, turn("3.0"): 1.0}
    rewards = rewards_of(debate, RewardRules(truth=0.25, judge_truth=1.0), marks)
    gen, judge = on("gen", rewards), on("judge", rewards)
    assert gen["0.0"] == 0.75
    assert gen["2.0"] == -0.75 + 0.25
    assert gen["1.0"] == -0.75
    # 1.1 and 2.1 prefer the wrong agent 0 to agents 2 and 3; nothing is known of 4 and 1.
    assert [judge[f"{i}.1"] for i in (1, 2, 3, 4)] == [-1, -1, None, None]
    blend = on("judge", rewards_of(debate, RewardRules(judge_truth=0.5), marks))
    assert blend["1.1"] == -0.5
    assert on("gen", rewards_of(debate, RewardRules(judge_truth=0.5), marks)) == on(
        "gen", rewards_of(debate, RewardRules(), {})
    )


def test_without_truth_marks_are_never_looked_at() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    marks = {t.id: 1.0 for t in debate.turns}
    assert rewards_of(debate, RewardRules(), marks) == rewards_of(debate, RewardRules(), {})


# Peer v1


def test_every_agent_gets_one_number_for_the_whole_debate() -> None:
    debate = scripted(
        peer_v1(agents=3, rounds=2),
        {"2.0": "Agent 0 > Agent 1", "0.1": "Agent 1 = Agent 2", "1.1": "Agent 0 > Agent 2"},
    )
    assert whole(rewards_of(debate, V1, {})) == [1.0, 0.25, 0.25]
    rules = RewardRules(reward="win_minus_loss")
    assert whole(rewards_of(debate, rules, {})) == [1.0, -0.5, -0.5]


def test_a_malformed_step_costs_one_and_ends_the_debate() -> None:
    rules = peer_v1(agents=4, rounds=2)
    debate = scripted(rules, {"2.0": "Agent 0 > Agent 1"}, malformed=("3.0",))
    assert [len(turns) for turns in debate.by_seat()] == [1, 1, 1, 1]
    assert whole(rewards_of(debate, V1, {})) == [1.0, 0.0, 0.0, -1.0]


def test_returns_are_centred_over_all_agents_even_those_who_never_spoke() -> None:
    debate = scripted(peer_v1(agents=4, rounds=2), malformed=("0.0",))
    assert [len(turns) for turns in debate.by_seat()] == [1, 0, 0, 0]
    (advantages,) = score([debate], V1).advantages.groups
    assert whole(advantages) == [-0.75, 0.25, 0.25, 0.25]


def test_malformed_steps_of_a_debate_that_goes_on_add_up() -> None:
    rules = peer_v1(agents=3, rounds=2, malformed="mask")
    debate = scripted(rules, {"0.1": "Agent 1 > Agent 2"}, malformed=("2.1", "1.0", "1.1"))
    # 1.0 was no answer, so nobody could be compared with it.
    assert debate.votes == ()
    assert whole(rewards_of(debate, V1, {})) == [0.0, -2.0, -1.0]


def test_in_v1_truth_is_that_of_the_last_answer() -> None:
    debate = scripted(peer_v1(agents=3, rounds=2), {"2.0": "Agent 0 > Agent 1"})
    marks = {turn("0.0"): 1.0, turn("0.1"): 0.0, turn("1.0"): 1.0, turn("1.1"): 1.0}
    rules = RewardRules(reward="win_rate", truth=0.25)
    assert whole(rewards_of(debate, rules, marks)) == [0.75, 0.25, 0.0]


def test_in_v1_an_unknown_truth_is_no_signal() -> None:
    debate = scripted(peer_v1(agents=3, rounds=2), {"2.0": "Agent 0 > Agent 1"})
    only_truth = RewardRules(reward="win_rate", truth=1.0)
    marks = {turn("0.0"): 1.0, turn("0.1"): 0.0, turn("1.0"): 1.0}
    assert whole(rewards_of(debate, only_truth, marks)) == [0.0, None, None]


def test_a_penalty_of_nothing_is_no_signal() -> None:
    debate = scripted(peer_v2(agents=5, rounds=1))
    fined = rewards_of(debate, RewardRules(), {})
    spared = rewards_of(debate, RewardRules(format_penalty=0.0), {})
    assert fined[Key(0, 1, "judge")] == -0.5
    assert spared[Key(0, 1, "judge")] is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reward": "win_rat"}, "reward = 'win_rat': must be .*did you mean win_rate?"),
        ({"consensus": "loo"}, "consensus = 'loo'"),
        ({"baseline": "grp"}, "baseline = 'grp': .*did you mean group?"),
        ({"control": "coins"}, "control = 'coins': .*did you mean coin?"),
        ({"format_penalty": float("nan")}, "format_penalty = nan"),
        ({"format_penalty": float("inf")}, "format_penalty = inf"),
        ({"truth": 1.5}, "truth = 1.5"),
    ],
)
def test_a_rule_that_does_not_exist_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RewardRules(**wrong)


# A batch


def test_every_debate_is_a_group_of_its_own() -> None:
    debates = rehearse(peer_v2(agents=5, rounds=2), range(3))
    together = score(debates, RewardRules())
    for i, debate in enumerate(debates):
        alone = score([debate], RewardRules())
        assert together.rewards[i] == alone.rewards[0]
        assert together.advantages.groups[i] == alone.advantages.groups[0]
        for stream in ("gen", "judge"):
            values = on(stream, together.advantages.groups[i]).values()
            assert sum(values) == pytest.approx(0, abs=1e-9)  # type: ignore[arg-type]


def test_a_debate_without_votes_is_flat() -> None:
    rules = peer_v2(agents=3, rounds=1)
    lively, silent = scripted(rules, {"0.1": "Agent 1 > Agent 2"}), scripted(rules)
    scores = score([lively, silent], RewardRules())
    assert scores.advantages.flat_groups == 1
    # All three are fined alike, which teaches nothing inside the group.
    assert scores.advantages.groups[1] == {Key(i, 1, "judge"): 0.0 for i in range(3)}


def test_the_batch_baseline_compares_debates_with_each_other() -> None:
    rules = peer_v2(agents=3, rounds=1)
    debates = [scripted(rules, {"0.1": "Agent 1 > Agent 2"}), scripted(rules)]
    first, second = score(debates, RewardRules(baseline="batch")).advantages.groups
    # Five of the six ballots are fined; the one that voted has no other judge to agree with.
    assert first == {
        Key(1, 0, "gen"): 1.0,
        Key(2, 0, "gen"): -1.0,
        Key(1, 1, "judge"): 0.0,
        Key(2, 1, "judge"): 0.0,
    }
    assert second == {Key(i, 1, "judge"): 0.0 for i in range(3)}


def test_the_role_baseline_is_read_then_updated_then_handed_on() -> None:
    rules = RewardRules(reward="win_rate", baseline="role_ema")
    debate = scripted(peer_v1(agents=3, rounds=1), {"2.0": "Agent 0 > Agent 1"})
    first = score([debate], rules)
    assert whole(first.advantages.groups[0]) == [1.0, 0.0, 0.0]
    assert first.baseline.means[0, "whole"] == pytest.approx(0.05)
    second = score([debate], rules, baseline=first.baseline)
    assert whole(second.advantages.groups[0]) == pytest.approx([0.95, 0.0, 0.0])
    assert second.baseline.means[0, "whole"] == pytest.approx(0.0975)
    quick = score([debate], rules, baseline=RoleBaseline(decay=0.5))
    assert quick.baseline.means[0, "whole"] == 0.5


@pytest.mark.parametrize("baseline", ["group", "batch"])
def test_advantages_are_scaled_on_demand(baseline: str) -> None:
    debate = scripted(peer_v1(agents=3, rounds=1), {"2.0": "Agent 0 > Agent 1"})
    rules = RewardRules(reward="win_minus_loss", baseline=baseline, scale=True)  # type: ignore[arg-type]
    (advantages,) = score([debate], rules).advantages.groups
    root = (3 / 2) ** 0.5
    assert whole(advantages) == pytest.approx([root, -root, 0.0])


def test_marks_belong_to_their_debates() -> None:
    debates = [scripted(ROUND_AND_BALLOT), scripted(ROUND_AND_BALLOT)]
    rules = RewardRules(truth=1.0)
    marks = [{turn("0.0"): 1.0}, {turn("0.0"): 0.0}]
    rewards = score(debates, rules, marks).rewards
    assert [r[Key(0, 0, "gen")] for r in rewards] == [1.0, 0.0]
    with pytest.raises(ValueError):
        score(debates, rules, marks[:1])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.3)))
def test_rewards_of_played_debates_stay_in_their_bounds(seed: int, fault: float) -> None:
    (debate,) = rehearse(peer_v2(agents=5, rounds=2), [seed], fault=fault)
    rewards = rewards_of(debate, RewardRules(), {})
    assert len(rewards) == 2 * len(debate.turns)
    assert all(-1 <= r <= 1 for r in rewards.values() if r is not None)


def test_reward_rules_follow_the_rules_a_debate_was_played_under() -> None:
    rules = peer_v1(consensus="majority", format_penalty=0.1)
    assert RewardRules.of(rules) == RewardRules("win_rate", "majority", 0.1)


@pytest.mark.parametrize(
    "wrong", [{"truth": 1.5}, {"truth": -0.1}, {"judge_truth": 2.0}, {"format_penalty": -0.5}]
)
def test_rules_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RewardRules(**wrong)  # type: ignore[arg-type]


# Controls


def said(*letters: str) -> dict[TurnId, str]:
    """Answers by round, one letter for each seat; a dash is none."""
    return {
        TurnId(seat, round_): letter
        for round_, row in enumerate(letters)
        for seat, letter in enumerate(row)
        if letter != "-"
    }


PLURALITY = RewardRules(control="plurality")
COIN = RewardRules(control="coin")


def test_without_a_control_answers_are_never_looked_at() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    expected = rewards_of(debate, RewardRules(), {})
    assert rewards_of(debate, RewardRules(), {}, said("aabcd")) == expected
    scores = score([debate], RewardRules(), answers=[said("aabcd")])
    assert scores.rewards == [expected]


@pytest.mark.parametrize("seed", range(4))
def test_under_the_coin_both_streams_are_those_of_the_flipped_votes(seed: int) -> None:
    debates = [
        rehearse(peer_v2(agents=5, rounds=2), [seed], fault=0.1)[0],
        scripted(peer_v1(agents=4, rounds=2), {"3.0": "Agent 0 > Agent 1"}, seed=seed),
    ]
    for debate, reward in zip(debates, ("streams", "win_rate"), strict=True):
        flipped = rewards_of(coin_flipped(debate), RewardRules(reward=reward), {})
        assert rewards_of(debate, RewardRules(reward=reward, control="coin"), {}) == flipped


def test_under_the_coin_a_clear_winner_earns_nothing_in_the_long_run() -> None:
    winner = [
        rewards_of(scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO, seed=seed), COIN, {})[Key(0, 0, "gen")]
        for seed in range(120)
    ]
    assert set(winner) > {-0.5, 0.0, 0.5}
    # Four votes of +-1/4 each: 4 standard deviations of the mean are 0.18.
    assert sum(r or 0.0 for r in winner) / len(winner) == pytest.approx(0, abs=0.18)


def test_under_the_coin_fines_stay_what_they_are() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO, malformed=("3.0",))
    usual, control = (on("judge", rewards_of(debate, r, {})) for r in (RewardRules(), COIN))
    fined = {name for name, reward in usual.items() if reward == -0.5}
    assert {"0.1", "3.0"} <= fined
    assert all(control[name] == -0.5 for name in fined)


def test_plurality_pays_solutions_for_being_common_and_judges_as_ever() -> None:
    debate = scripted(ROUND_AND_BALLOT, {f"{i}.1": "Agent 0 > Agent 1" for i in (2, 3, 4)})
    usual = rewards_of(debate, RewardRules(), {})
    rewards = rewards_of(debate, PLURALITY, {}, said("abbcb"))
    assert on("judge", rewards) == on("judge", usual)
    assert [on("judge", rewards)[f"{i}.1"] for i in range(5)] == [-0.5, -0.5, 1, 1, 1]
    assert on("gen", rewards) == {
        **{"0.0": -1, "1.0": 1, "2.0": 1, "3.0": -1, "4.0": 1},
        **{f"{i}.1": None for i in range(5)},
    }
    assert on("gen", usual)["0.0"] == 1


def test_plurality_pays_solutions_that_nobody_voted_on() -> None:
    rules = peer_v2(agents=3, rounds=2, closing_ballot=False)
    gen = on("gen", rewards_of(scripted(rules), PLURALITY, {}, said("aab", "abb")))
    assert gen == {"0.0": 1, "1.0": 1, "2.0": -1, "0.1": -1, "1.1": 1, "2.1": 1}


def test_plurality_has_no_signal_where_there_is_no_answer_or_no_solution() -> None:
    debate = scripted(ROUND_AND_BALLOT, malformed=("3.0",))
    answers = said("aab--", "aaaaa") | {turn("3.0"): "a"}
    gen = on("gen", rewards_of(debate, PLURALITY, {}, answers))
    assert gen == {
        **{"0.0": 1, "1.0": 1, "2.0": -1, "3.0": None, "4.0": None},
        **{f"{i}.1": None for i in range(5)},
    }


def test_plurality_without_any_answers_leaves_gen_without_a_signal() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    for nothing in (None, {}):
        assert set(on("gen", rewards_of(debate, PLURALITY, {}, nothing)).values()) == {None}


def test_truth_is_mixed_into_what_plurality_pays() -> None:
    debate = scripted(ROUND_AND_BALLOT, ALL_FOR_ZERO)
    rules = RewardRules(control="plurality", truth=0.25)
    gen = on("gen", rewards_of(debate, rules, {turn("0.0"): 1.0, turn("3.0"): 1.0}, said("aab--")))
    assert [gen[f"{i}.0"] for i in range(5)] == [1.0, 0.75, -0.75, 0.25, None]


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("win_rate", [0.0, 1.0, 1.0]), ("win_minus_loss", [-1.0, 1.0, 1.0])],
)
def test_in_v1_plurality_pays_the_last_solution_on_the_scale_of_the_reward(
    reward: str, expected: list[float]
) -> None:
    # The votes, and the first round, are all for agent 0.
    debate = scripted(peer_v1(agents=3, rounds=2), {"2.0": "Agent 0 > Agent 1"})
    rules = RewardRules(reward=reward, control="plurality")  # type: ignore[arg-type]
    assert whole(rewards_of(debate, rules, {}, said("aab", "abb"))) == expected


@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
def test_in_v1_an_agent_without_answers_gets_what_one_without_votes_gets(reward: str) -> None:
    debate = scripted(peer_v1(agents=3, rounds=2))
    usual = RewardRules(reward=reward)  # type: ignore[arg-type]
    common = RewardRules(reward=reward, control="plurality")  # type: ignore[arg-type]
    assert whole(rewards_of(debate, usual, {})) == [0.0, 0.0, 0.0]
    assert whole(rewards_of(debate, common, {}, said("aa-", "aa-"))) == [1.0, 1.0, 0.0]


def test_in_v1_malformed_steps_and_truth_count_as_ever_under_plurality() -> None:
    rules = peer_v1(agents=3, rounds=2, malformed="mask")
    debate = scripted(rules, malformed=("2.0",))
    mixed = RewardRules(reward="win_minus_loss", control="plurality", truth=0.25)
    rewards = rewards_of(debate, mixed, {turn("1.1"): 1.0}, said("aa-", "aab"))
    assert whole(rewards) == [0.75, 1.0, -0.75 - 1]


def test_plurality_needs_answers_and_says_so() -> None:
    debate = scripted(ROUND_AND_BALLOT)
    with pytest.raises(ConfigError, match="control = plurality: needs"):
        score([debate], PLURALITY)
    assert score([], PLURALITY, answers=[]).rewards == []


def test_answers_belong_to_their_debates() -> None:
    debates = [scripted(ROUND_AND_BALLOT), scripted(ROUND_AND_BALLOT)]
    rewards = score(debates, PLURALITY, answers=[said("aab--"), said("abb--")]).rewards
    assert [r[Key(0, 0, "gen")] for r in rewards] == [1.0, -1.0]
    with pytest.raises(ValueError):
        score(debates, PLURALITY, answers=[said("aab--")])


def test_a_debate_of_one_mind_is_flat_under_plurality() -> None:
    debates = [scripted(ROUND_AND_BALLOT), scripted(ROUND_AND_BALLOT)]
    scores = score(debates, PLURALITY, answers=[said("aaaaa"), said("aaaab")])
    assert scores.advantages.flat_groups == 1
    assert scores.advantages.groups[1][Key(4, 0, "gen")] == pytest.approx(-1.6)
