"""Direct answers and debates on held-out questions.

direct     whoever opens a debate answers alone: sampled at temperature 1, and greedily
debate     whole debates: do votes tell right from wrong?
prepared   ballots on given solutions, the same each time: does it judge better than before?

`greedy_mode_wrong` is over the questions whose most likely answer was wrong when the run began.
There a vote on answers cannot help.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from rostra.arena import Debate, Heard, play
from rostra.debate.peer import PeerRules
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.votes import Vote
from rostra.evals.accuracy import answers_in, shares
from rostra.evals.statistics import Measure, ratio_interval
from rostra.learn.evaluator import Evaluation, Progress
from rostra.learn.lesson import all_marks, answers_of
from rostra.players.player import Player
from rostra.players.staged import StagedPlayer
from rostra.rewards.metrics import health_metrics, vote_truth_accuracy
from rostra.runs.settings import EvalSettings
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task

_Marked = tuple[Transcript, dict[TurnId, float]]
"""A debate, and which of its solutions are right."""


async def evaluate(
    player: Player,
    task: Task,
    rules: PeerRules,
    settings: EvalSettings,
    seed: int,
    *,
    mode_wrong: Collection[str] | None = None,
    speaker: Player | None = None,
    progress: Progress | None = None,
    retries: int = 2,
    turn_timeout: float | None = None,
) -> Evaluation:
    """Measures a player. `mode_wrong` are the questions that the first evaluation got wrong; by
    default this is the first one. `speaker` gives the prepared solutions. A question that keeps
    failing is left out."""
    drawn = task.fresh(0, settings.questions)
    staged = speaker is not None and rules.closing_ballot
    count = _Counter(progress, drawn, rules, settings, staged=staged)

    async def played(debates: Sequence[Debate], by: Player = player) -> list[Transcript]:
        done = await play(
            debates, by, retries=retries, turn_timeout=turn_timeout, watch=count.heard
        )
        return done.transcripts

    sampled = await played(_direct(rules, drawn, 1.0, seed, settings.samples))
    greedy = await played(_direct(rules, drawn, 0.0, seed, 1))
    right = {
        q.id: _share([_marks(*one) for one in g])
        for q, g in _by_question(greedy, task)
        if q.reference is not None
    }
    questions = [question for question in drawn if question.id in right]
    wrong = tuple(q.id for q in questions if right[q.id] <= 0.5)
    chosen = wrong if mode_wrong is None else mode_wrong
    metrics = {
        **_direct_metrics(sampled, task, settings.samples),
        **_with_interval("eval/direct/greedy", list(right.values())),
        **_with_interval(
            "eval/direct/greedy_mode_wrong", [right[q] for q in right if q in set(chosen)]
        ),
        **_slices(questions, right),
    }
    if settings.debates:
        chosen_questions = drawn[: settings.debates]
        debates = [Debate.peer(q, rules, derive(seed, "debate", q.id)) for q in chosen_questions]
        metrics |= _debate_metrics(await played(debates), task)
    if settings.prepared and speaker is not None and staged:
        chosen_questions = drawn[: settings.prepared]
        debates = [Debate.peer(q, rules, derive(0, "prepared", q.id)) for q in chosen_questions]
        metrics |= _prepared_metrics(await played(debates, StagedPlayer(speaker, player)), task)
    return Evaluation(metrics, wrong)


class _Counter:
    """Counts turns for the progress display."""

    def __init__(
        self,
        progress: Progress | None,
        questions: Sequence[Question],
        rules: PeerRules,
        settings: EvalSettings,
        *,
        staged: bool,
    ) -> None:
        self._progress = progress
        self._done = 0
        turns = sum(len(slot.seats) for slot in rules.protocol().slots)
        openers = len(rules.protocol().slots[0].seats)
        sampled = -(-settings.samples // openers) * openers
        self._total = len(questions) * (sampled + openers)
        self._total += min(settings.debates, len(questions)) * turns
        self._total += min(settings.prepared, len(questions)) * turns * staged

    def heard(self, event: Heard) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)


def _direct(
    rules: PeerRules, questions: Sequence[Question], temperature: float, seed: int, samples: int
) -> list[Debate]:
    """Whoever opens a debate answers alone, often enough for so many samples."""
    protocol = rules.opening(temperature)
    times = -(-samples // len(protocol.slots[0].seats))
    return [
        Debate(question, protocol, derive(seed, "direct", question.id, time))
        for question in questions
        for time in range(times)
    ]


def _by_question(
    transcripts: Sequence[Transcript], task: Task
) -> list[tuple[Question, list[_Marked]]]:
    groups: dict[str, tuple[Question, list[_Marked]]] = {}
    for one in zip(transcripts, all_marks(transcripts, task), strict=True):
        question = one[0].question
        groups.setdefault(question.id, (question, []))[1].append(one)
    return list(groups.values())


def _marks(transcript: Transcript, right: Mapping[TurnId, float]) -> list[float]:
    """1 for each seat that answered right, 0 for each other, malformed ones included."""
    return [right.get(turn.id, 0.0) for turn in transcript.turns]


def _share(rows: Sequence[Sequence[float]]) -> float:
    return float(np.mean([mark for row in rows for mark in row]))


def _direct_metrics(transcripts: Sequence[Transcript], task: Task, k: int) -> dict[str, float]:
    accuracy, form, of_k = [], [], []
    for question, group in _by_question(transcripts, task):
        found = shares([answer for one in group for answer in answers_in(*one)][:k])
        form.append(found["format"])
        if question.reference is None:
            continue  # nothing is known, which is not the same as wrong
        accuracy.append(found["avg@k"])
        of_k.append(found)
    amounts = {
        f"eval/direct/{name}@{k}": [found[f"{name}@k"] for found in of_k]
        for name in ("pass", "cons", "vote")
    }
    measured = {"eval/direct/sampled": accuracy, "eval/direct/format": form, **amounts}
    metrics: dict[str, float] = {}
    for name, values in measured.items():
        metrics |= _with_interval(name, values)
    return metrics


def _slices(questions: Sequence[Question], right: Mapping[str, float]) -> dict[str, float]:
    """Greedy accuracy by every yes-or-no property of questions."""
    found: dict[str, float] = {}
    names = {k for q in questions for k, v in q.metadata.items() if isinstance(v, bool)}
    for name in sorted(names):
        for value, label in ((True, name), (False, f"no_{name}")):
            marks = [right[q.id] for q in questions if q.metadata.get(name) is value]
            found |= _with_interval(f"eval/direct/greedy_{label}", marks)
    return found


def _debate_metrics(transcripts: Sequence[Transcript], task: Task) -> dict[str, float]:
    correct = all_marks(transcripts, task)
    health = health_metrics(transcripts, [answers_of(t) for t in transcripts], correct)
    counts = [_votes_right(t.votes, marks) for t, marks in zip(transcripts, correct, strict=True)]
    low, high = ratio_interval([c[0] for c in counts], [c[1] for c in counts])
    return {
        "eval/debate/vote_truth_accuracy": vote_truth_accuracy(transcripts, correct),
        "eval/debate/vote_truth_accuracy/low": low,
        "eval/debate/vote_truth_accuracy/high": high,
        "eval/debate/format": float(np.mean([turn.ok for t in transcripts for turn in t.turns])),
        "eval/debate/votes": float(np.mean([len(t.votes) for t in transcripts])),
        **{name.replace("health/", "eval/debate/"): value for name, value in health.items()},
    }


def _prepared_metrics(transcripts: Sequence[Transcript], task: Task) -> dict[str, float]:
    """Ballots only: where speeches compare too, those were prepared."""
    counts, decided = [], []
    for transcript, marks in zip(transcripts, all_marks(transcripts, task), strict=True):
        ballots = {turn.id for turn in transcript.turns if transcript.kind(turn) == "ballot"}
        votes = [vote for vote in transcript.votes if vote.author in ballots]
        counts.append(_votes_right(votes, marks))
        differ = [v for v in votes if v.a in marks and v.b in marks and marks[v.a] != marks[v.b]]
        decided += [vote.op == ">" for vote in differ]
    right, all_ = (sum(count[i] for count in counts) for i in (0, 1))
    low, high = ratio_interval([c[0] for c in counts], [c[1] for c in counts])
    return {
        "eval/prepared/vote_truth_accuracy": right / all_ if all_ else float("nan"),
        "eval/prepared/vote_truth_accuracy/low": low,
        "eval/prepared/vote_truth_accuracy/high": high,
        "eval/prepared/decided": float(np.mean(decided)) if decided else float("nan"),
    }


def _votes_right(votes: Iterable[Vote], marks: Mapping[TurnId, float]) -> tuple[int, int]:
    """How many votes prefer a right answer to a wrong one, and how many decide between such."""
    decided = [
        marks[v.a] > marks[v.b]
        for v in votes
        if v.op == ">" and v.a in marks and v.b in marks and marks[v.a] != marks[v.b]
    ]
    return sum(decided), len(decided)


def _with_interval(name: str, values: Sequence[float]) -> dict[str, float]:
    found = Measure.share(values)
    return {name: found.mean, f"{name}/low": found.low, f"{name}/high": found.high}
