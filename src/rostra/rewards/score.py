"""From transcripts to rewards and advantages under one set of rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

import numpy as np

from rostra.debate.peer import Consensus, PeerRules, RewardName, check_choice, check_penalty
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.votes import Vote
from rostra.errors import ConfigError
from rostra.rewards.advantages import (
    Advantages,
    Key,
    Rewards,
    RoleBaseline,
    batch_advantages,
    group_advantages,
    role_advantages,
)
from rostra.rewards.control import Answers, coin_flipped, plurality_rewards
from rostra.rewards.streams import (
    GEN,
    JUDGE,
    WHOLE,
    format_penalties,
    gen_rewards,
    guided,
    judge_rewards,
    judge_truth,
    mix,
)
from rostra.rewards.tally import seat_votes, tally

Baseline = Literal["group", "batch", "role_ema"]
Control = Literal["none", "coin", "plurality"]
Correct = Mapping[TurnId, float]
"""How right the solution of a turn is, from 0 to 1; turns whose truth is unknown are missing."""

MALFORMED_STEP = -1.0
"""The step reward of a malformed turn in peer v1."""


@dataclass(frozen=True, slots=True)
class RewardRules:
    """How votes become rewards, and rewards advantages."""

    reward: RewardName = "streams"
    consensus: Consensus = "leave_one_out"
    format_penalty: float = 0.5
    truth: float = 0.0
    """w in (1 - w) * peer + w * correctness, on the gen stream (in v1, on the one there is)."""
    judge_truth: float = 0.0
    """The same for the judge stream, against which answer of a pair is right."""
    baseline: Baseline = "group"
    scale: bool = False
    """Divide advantages by the standard deviation of the rewards."""
    control: Control = "none"
    """What takes the place of the votes, to see what is learned without them."""

    def __post_init__(self) -> None:
        check_choice("reward", self.reward, get_args(RewardName))
        check_choice("consensus", self.consensus, get_args(Consensus))
        check_choice("baseline", self.baseline, get_args(Baseline))
        check_choice("control", self.control, get_args(Control))
        check_penalty(self.format_penalty)
        for name, weight in (("truth", self.truth), ("judge_truth", self.judge_truth)):
            if not 0 <= weight <= 1:
                raise ConfigError(f"{name} = {weight}: a share between 0 and 1")

    @classmethod
    def of(cls, rules: PeerRules | None) -> "RewardRules":
        """The reward rules that a peer debate was played under; the defaults where unknown."""
        return cls(rules.reward, rules.consensus, rules.format_penalty) if rules else cls()


@dataclass(frozen=True, slots=True)
class Guide:
    """What a stronger model voted in the same debates, and how much it weighs."""

    votes: Sequence[Sequence[Vote]]
    """For each debate."""
    weight: float
    """w in (1 - w) * peer + w * agreement with the guide, on the judge stream."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The rewards and advantages of a batch of debates, one entry per debate."""

    rewards: list[Rewards]
    advantages: Advantages
    baseline: RoleBaseline
    """For the next batch."""


def score(
    transcripts: Sequence[Transcript],
    rules: RewardRules,
    correct: Sequence[Correct] | None = None,
    baseline: RoleBaseline | None = None,
    answers: Sequence[Answers] | None = None,
    guide: Guide | None = None,
) -> Scores:
    """Scores debates: every debate is one group. `answers` are needed by control = plurality."""
    if rules.control == "plurality" and answers is None:
        raise ConfigError("control = plurality: needs to know what each solution answers")
    truths: Sequence[Correct] = correct if correct is not None else [{}] * len(transcripts)
    said: Sequence[Answers] = answers if answers is not None else [{}] * len(transcripts)
    help_: Sequence[Sequence[Vote]] = guide.votes if guide else [()] * len(transcripts)
    weight = guide.weight if guide else 0.0
    rewards = [
        rewards_of(t, rules, truth, own, given, weight)
        for t, truth, own, given in zip(transcripts, truths, said, help_, strict=True)
    ]
    baseline = baseline or RoleBaseline()
    match rules.baseline:
        case "group":
            advantages = group_advantages(rewards, scale=rules.scale)
        case "batch":
            advantages = batch_advantages(rewards, scale=rules.scale)
        case "role_ema":
            advantages = role_advantages(rewards, baseline, scale=rules.scale)
        case _:
            assert_never(rules.baseline)
    return Scores(rewards, advantages, baseline.updated(rewards))


def rewards_of(
    transcript: Transcript,
    rules: RewardRules,
    correct: Correct,
    answers: Answers | None = None,
    guide: Sequence[Vote] = (),
    weight: float = 0.0,
) -> Rewards:
    """The rewards of one debate; None where there is no signal."""
    if rules.control == "coin":
        transcript = coin_flipped(transcript)
    common = plurality_rewards(transcript, answers or {}) if rules.control == "plurality" else None
    if rules.reward == "streams":
        help_ = guided(transcript.votes, guide)
        return _stream_rewards(transcript, rules, correct, common, help_, weight)
    return _returns(transcript, rules, correct, common)


def _stream_rewards(
    transcript: Transcript,
    rules: RewardRules,
    correct: Correct,
    common: Mapping[TurnId, float] | None,
    help_: Mapping[TurnId, float],
    weight: float,
) -> Rewards:
    votes = transcript.votes
    gen = gen_rewards(votes) if common is None else common
    judge = judge_rewards(votes, rules.consensus)
    honest = judge_truth(votes, correct)
    penalties = format_penalties(transcript, rules.format_penalty)
    rewards: dict[Key, float | None] = {}
    for turn in transcript.turns:
        solved = turn.ok and transcript.kind(turn) == "speak"
        rewards[Key(*turn.id, GEN)] = (
            mix(gen.get(turn.id), correct.get(turn.id), rules.truth) if solved else None
        )
        peer = mix(judge.get(turn.id), help_.get(turn.id), weight)
        judged = mix(peer, honest.get(turn.id), rules.judge_truth)
        rewards[Key(*turn.id, JUDGE)] = penalties.get(turn.id, judged)
    return rewards


def _returns(
    transcript: Transcript,
    rules: RewardRules,
    correct: Correct,
    common: Mapping[TurnId, float] | None,
) -> Rewards:
    """Peer v1: for each agent, the sum of its step rewards and its final reward."""
    seats = transcript.by_seat()
    counted = tally(seat_votes(transcript.votes), len(seats))
    final = counted.win_rate() if rules.reward == "win_rate" else counted.win_minus_loss()
    if common is not None:
        # The last solution counts, on the scale of the reward it stands in for.
        low = 0.0 if rules.reward == "win_rate" else -1.0
        marks = [[common[t.id] for t in turns if t.id in common] for turns in seats]
        final = np.array([max(mark[-1], low) if mark else 0.0 for mark in marks])
    rewards: dict[Key, float | None] = {}
    for seat, turns in enumerate(seats):
        answers = [correct.get(t.id) for t in turns if transcript.kind(t) == "speak"]
        reward = mix(float(final[seat]), answers[-1] if answers else None, rules.truth)
        steps = [MALFORMED_STEP for t in turns if not t.ok]
        if steps:
            reward = (reward or 0.0) + sum(steps)
        rewards[Key(seat, None, WHOLE)] = reward
    return rewards
