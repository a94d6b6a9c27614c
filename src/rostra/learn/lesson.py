"""What a batch of debates teaches: rewards, advantages, training examples, and what to log."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostra.credit.datums import datums
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.engines.training import Datum
from rostra.rewards.advantages import RoleBaseline
from rostra.rewards.metrics import (
    Metrics,
    debate_metrics,
    health_metrics,
    reward_metrics,
    truth_metrics,
)
from rostra.rewards.score import score
from rostra.rewards.streams import GEN, JUDGE, judge_rewards
from rostra.runs.settings import Recipe
from rostra.tasks.grading import boxed
from rostra.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch of debates, ready to train on."""

    data: list[Datum]
    """Without those that weigh nothing: all of a group whose rewards are equal, for one."""
    baseline: RoleBaseline
    metrics: Metrics


def answers_of(transcript: Transcript) -> dict[TurnId, str]:
    """What each well-formed solution answers."""
    found = {
        turn.id: boxed(turn.section("solution"))
        for turn in transcript.turns
        if turn.ok and transcript.kind(turn) == "speak"
    }
    return {turn: answer for turn, answer in found.items() if answer}


def marks_of(transcript: Transcript, task: Task) -> dict[TurnId, float]:
    """1 for each right solution, 0 for each wrong one; without a reference, nothing is known."""
    if transcript.question.reference is None:
        return {}
    return {
        turn.id: float(task.right(transcript.question, turn.section("solution")))
        for turn in transcript.turns
        if turn.ok and transcript.kind(turn) == "speak"
    }


def learn_from(
    transcripts: Sequence[Transcript], recipe: Recipe, task: Task, baseline: RoleBaseline
) -> Lesson:
    """Scores the debates. The truth is logged, and rewarded only where the recipe mixes it in."""
    settings = recipe.rewards
    answers = [answers_of(t) for t in transcripts]
    correct = [marks_of(t, task) for t in transcripts]
    scores = score(transcripts, settings.rules(recipe.protocol), correct, baseline, answers)
    batch = datums(
        transcripts,
        scores.advantages.groups,
        weights={GEN: settings.gen, JUDGE: settings.judge},
        normalise=settings.normalise,
    )
    metrics = {
        "debates": float(len(transcripts)),
        "tokens": float(sum(len(turn.tokens) for t in transcripts for turn in t.turns)),
        **debate_metrics(transcripts),
        **reward_metrics(transcripts, scores),
        **truth_metrics(task.name, transcripts, correct, answers),
        **health_metrics(transcripts, answers, correct),
        "health/judge_agreement": _agreement(transcripts, recipe),
        **batch.metrics(),
    }
    data = [datum for datum in batch.data if datum.weights.any()]
    return Lesson(data, scores.baseline, metrics)


def _agreement(transcripts: Sequence[Transcript], recipe: Recipe) -> float:
    """How much judges agree with the others, penalties for bad form left out."""
    consensus = recipe.protocol.consensus
    marks = [m for t in transcripts for m in judge_rewards(t.votes, consensus).values()]
    return sum(marks) / len(marks) if marks else float("nan")
