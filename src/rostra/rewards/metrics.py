"""What to log about a batch of peer debates, under the names of the guide."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.debate.votes import Vote
from rostra.rewards.score import Correct, Scores
from rostra.rewards.streams import GEN, JUDGE, WHOLE, judge_truth
from rostra.tasks.canonical import key_of, keys_of

Metrics = dict[str, float]


def debate_metrics(transcripts: Sequence[Transcript]) -> Metrics:
    """Votes, format and endings. Every rate is over all turns or all debates, failures or not."""
    turns = [turn for t in transcripts for turn in t.turns]
    ballots = [b for t in transcripts for b in t.ballots.values()]
    votes = [len(t.votes) for t in transcripts]
    could = [(t, turn) for t in transcripts for turn in t.turns if turn.could_compare]
    malformed = [sum(turn.comparisons.malformed for turn in t.turns) for t in transcripts]
    return {
        "parse_error": _mean([not turn.ok for turn in turns]),
        "consensus_reached": _mean([t.outcome.ended == "consensus" for t in transcripts]),
        "round": _mean([t.outcome.rounds for t in transcripts]),
        "pairwise_total_votes": _mean(votes),
        "pairwise_any_votes": _mean([n > 0 for n in votes]),
        "pairwise_malformed": _mean(malformed),
        "v2/total_votes": _mean(votes),
        "v2/missing_comparisons": _mean([not t.ballots[turn.id].votes for t, turn in could]),
        "v2/comparison_lines_invalid": _mean([turn.comparisons.lines_invalid for turn in turns]),
        "v2/self_comparisons_dropped": _mean([turn.comparisons.self_dropped for turn in turns]),
        "v2/duplicate_comparisons": _mean([turn.comparisons.duplicates for turn in turns]),
        "v2/unseen_comparisons": _mean([ballot.unseen for ballot in ballots]),
    }


def reward_metrics(transcripts: Sequence[Transcript], scores: Scores) -> Metrics:
    """Mean rewards, over all and by seat, persona and round.

    In self-play the overall mean is nearly constant by construction; the slices are not.
    """
    slices = defaultdict[str, list[float]](list)
    for transcript, rewards in zip(transcripts, scores.rewards, strict=True):
        for key, reward in rewards.items():
            if reward is None:
                continue
            name = "pairwise_reward" if key.stream == WHOLE else f"reward/{key.stream}"
            slices[name if key.stream == WHOLE else f"{name}/mean"].append(reward)
            slices[f"{name}/by_seat/{key.seat}"].append(reward)
            persona = transcript.protocol.seats[key.seat].persona
            if persona:
                slices[f"{name}/by_persona/{persona.name}"].append(reward)
            if key.round is not None:
                slices[f"{name}/by_round/{key.round}"].append(reward)
    return {name: _mean(values) for name, values in sorted(slices.items())} | {
        "env/all/by_group/frac_mixed": _mean(scores.advantages.mixed),
        "env/all/flat_groups": float(scores.advantages.flat_groups),
        "env/all/signal_frac/gen": _signal_share(scores, GEN),
        "env/all/signal_frac/judge": _signal_share(scores, JUDGE),
    }


def truth_metrics(
    dataset: str,
    transcripts: Sequence[Transcript],
    correct: Sequence[Correct],
    answers: Sequence[Mapping[TurnId, str]] = (),
) -> Metrics:
    """What the votes never see: format, accuracy and agreement where the truth is known.

    k is the number of agents. Of their last replies, avg@k: the share that is right. Of the last
    answers that they gave, pass@k: at least one is right; cons@k: more than half are; vote@k: the
    most common one is (needs the answers). An agent without an answer, or who never spoke, is
    wrong.
    """
    finals = [_final_turns(t) for t in transcripts]
    k = max((t.protocol.agents for t in transcripts), default=0)
    replied = _marked(finals, correct)
    last = finals
    if answers:
        last = [_final_turns(t, said) for t, said in zip(transcripts, answers, strict=True)]
    given = _marked(last, correct)
    metrics = {
        "format": _mean([turn.ok for turns in finals for turn in turns if turn]),
        "correct": _mean([mark for row in replied for mark in row]),
        f"pass@{k}": _mean([max(row) >= 1 for row in given]),
        f"avg@{k}": _mean([_mean(row) for row in replied]),
        f"cons@{k}": _mean([sum(mark >= 1 for mark in row) > len(row) / 2 for row in given]),
    }
    if answers:
        metrics[f"vote@{k}"] = _mean(
            [
                _plurality_right(t, turns, row, said)
                for t, turns, row, said in zip(transcripts, last, given, answers, strict=True)
            ]
        )
    return {f"train_{dataset}/{name}": value for name, value in metrics.items()} | {
        "health/vote_truth_accuracy": vote_truth_accuracy(transcripts, correct)
    }


def _marked(
    turns: Sequence[Sequence[Turn | None]], correct: Sequence[Correct]
) -> list[list[float]]:
    """The mark of each seat's turn in each debate."""
    return [
        [marks.get(turn.id, 0.0) if turn else 0.0 for turn in row]
        for row, marks in zip(turns, correct, strict=True)
    ]


def vote_truth_accuracy(transcripts: Sequence[Transcript], correct: Sequence[Correct]) -> float:
    """Of the votes on a right and a wrong answer that take a side, the share that takes the right
    one; not a number where there are none."""
    marks = [
        marked[vote.a] > marked[vote.b]
        for transcript, marked in zip(transcripts, correct, strict=True)
        for vote in transcript.votes
        if vote.op == ">"
        and vote.a in marked
        and vote.b in marked
        and marked[vote.a] != marked[vote.b]
    ]
    return _mean(marks)


def health_metrics(
    transcripts: Sequence[Transcript],
    answers: Sequence[Mapping[TurnId, str]],
    correct: Sequence[Correct] = (),
) -> Metrics:
    """Whether debates are alive and judges fair.

    distinct_answers: different last answers in a debate. decided_votes: votes that are no tie.
    ties_on_equal: ties among votes on equal answers. lower_index_wins, first_shown_wins: of decided
    votes on different answers, those for the lower seat and for who was shown first; 1/2 is fair.
    judge_truth: of votes on a right and a wrong answer, mean of +1 for the right one, -1 for the
    wrong one, 0 for a tie.
    """
    keys = [keys_of(said, t.question) for t, said in zip(transcripts, answers, strict=True)]
    votes = [(t, said, v) for t, said in zip(transcripts, keys, strict=True) for v in t.votes]
    equal = [v.op == "=" for _, said, v in votes if _same(said, v) is True]
    taken = [(t, v) for t, said, v in votes if v.op == ">" and _same(said, v) is False]
    marks = [
        mark
        for transcript, marked in zip(transcripts, correct, strict=False)
        for mark in judge_truth(transcript.votes, marked).values()
    ]
    return {
        "health/distinct_answers": _mean(
            [_distinct(t, said) for t, said in zip(transcripts, keys, strict=True)]
        ),
        "health/decided_votes": _mean([v.op == ">" for _, _, v in votes]),
        "health/ties_on_equal": _mean(equal),
        "health/lower_index_wins": _mean([v.a.seat < v.b.seat for _, v in taken]),
        "health/first_shown_wins": _mean([_shown_first(t, v) for t, v in taken]),
        "health/judge_truth": _mean(marks),
    }


def _same(answers: Mapping[TurnId, str], vote: Vote) -> bool | None:
    """Whether a vote is on equal answers; None where one of them is no answer."""
    if vote.a not in answers or vote.b not in answers:
        return None
    return answers[vote.a] == answers[vote.b]


def _distinct(transcript: Transcript, answers: Mapping[TurnId, str]) -> int:
    last = [turn for turn in _final_turns(transcript) if turn is not None]
    return len({answers[turn.id] for turn in last if turn.id in answers})


def _shown_first(transcript: Transcript, vote: Vote) -> bool:
    """Whether the winner of a vote stood before the loser in the judge's prompt."""
    seen = next(turn.seen for turn in transcript.turns if turn.id == vote.author)
    return seen.index(vote.a) < seen.index(vote.b)


def _final_turns(
    transcript: Transcript, answers: Mapping[TurnId, str] | None = None
) -> list[Turn | None]:
    """The last turn of every agent in which it had to give a solution, with answers the last in
    which it gave one; None if it never spoke."""
    last: list[Turn | None] = [None] * transcript.protocol.agents
    for turn in transcript.turns:
        if transcript.kind(turn) == "speak":
            before = last[turn.id.seat]
            # A later reply without an answer takes nothing back.
            if answers is None or turn.id in answers or not before or before.id not in answers:
                last[turn.id.seat] = turn
    return last


def _plurality_right(
    transcript: Transcript,
    turns: Sequence[Turn | None],
    row: Sequence[float],
    answers: Mapping[TurnId, str],
) -> bool:
    """Ties go to the answer that was given by the lowest seat, and of those who gave it, the words
    count that most used."""
    said = [
        (answers[t.id], mark) for t, mark in zip(turns, row, strict=True) if t and t.id in answers
    ]
    keys = [key_of(words, transcript.question) for words, _ in said]
    if not keys:
        return False
    top = Counter(keys).most_common(1)[0][0]
    among = Counter(pair for key, pair in zip(keys, said, strict=True) if key == top)
    return among.most_common(1)[0][0][1] >= 1


def _signal_share(scores: Scores, stream: str) -> float:
    return _mean(
        [
            reward is not None
            for rewards in scores.rewards
            for key, reward in rewards.items()
            if key.stream == stream
        ]
    )


def _mean(values: Sequence[float]) -> float:
    """Not a number for an empty list: a mean over nothing is unknown, not 0."""
    return float(np.mean(values)) if values else float("nan")
