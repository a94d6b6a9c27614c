"""What a batch of debates teaches: rewards, advantages, training examples, and what to log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rostra.credit.datums import datums
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.engines.training import Datum
from rostra.learn.curriculum import passed
from rostra.rewards.advantages import RoleBaseline
from rostra.rewards.metrics import (
    Metrics,
    debate_metrics,
    health_metrics,
    reward_metrics,
    truth_metrics,
)
from rostra.rewards.score import Guide, score
from rostra.rewards.streams import judge_rewards
from rostra.runs.settings import Recipe
from rostra.tasks.canonical import keys_of
from rostra.tasks.grading import boxed
from rostra.tasks.task import Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch of debates, ready to train on."""

    data: list[Datum]
    """Without those that weigh nothing: all of a group whose rewards are equal, for one."""
    baseline: RoleBaseline
    metrics: Metrics
    passed: dict[str, float]
    """By question: the share of agents who passed it, by the measure of `train.difficulty`."""


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
    return all_marks([transcript], task)[0]


def all_marks(transcripts: Sequence[Transcript], task: Task) -> list[dict[TurnId, float]]:
    """The marks of each transcript, graded at once."""
    turns = [
        (place, turn)
        for place, transcript in enumerate(transcripts)
        for turn in transcript.turns
        if transcript.question.reference is not None
        and turn.ok
        and transcript.kind(turn) == "speak"
    ]
    right = task.grade(
        [(transcripts[place].question, turn.section("solution")) for place, turn in turns]
    )
    marks: list[dict[TurnId, float]] = [{} for _ in transcripts]
    for (place, turn), fine in zip(turns, right, strict=True):
        marks[place][turn.id] = float(fine)
    return marks


def learn_from(
    transcripts: Sequence[Transcript],
    recipe: Recipe,
    task: Task,
    baseline: RoleBaseline,
    guide: Guide | None = None,
    step: int = 0,
) -> Lesson:
    """Scores the debates. The truth is logged, and rewarded only where the recipe mixes it in."""
    settings = recipe.rewards
    answers = [answers_of(t) for t in transcripts]
    correct = all_marks(transcripts, task)
    rules = settings.rules(recipe.protocol)
    scores = score(transcripts, rules, correct, baseline, answers, guide)
    batch = datums(
        transcripts,
        scores.advantages.groups,
        weights=settings.weights(step),
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
        "health/right": _right(correct),
        **batch.metrics(),
    }
    data = [datum for datum in batch.data if datum.weights.any()]
    difficulty, agents = recipe.train.difficulty, recipe.protocol.agents
    passes = {
        t.question.id: passed(
            _last(t, marks), keys_of(_last(t, said), t.question), agents, difficulty
        )
        for t, marks, said in zip(transcripts, correct, answers, strict=True)
    }
    return Lesson(data, scores.baseline, metrics, passes)


def _last(transcript: Transcript, values: Mapping[TurnId, T]) -> dict[int, T]:
    """The value of the last turn of each seat that has one."""
    found = {turn.id.seat: turn.id for turn in transcript.turns if turn.id in values}
    return {seat: values[turn] for seat, turn in found.items()}


def _right(correct: Sequence[Mapping[TurnId, float]]) -> float:
    """The share of well-formed solutions that are right; not a number where nothing is known."""
    marks = [mark for known in correct for mark in known.values()]
    return sum(marks) / len(marks) if marks else float("nan")


def _agreement(transcripts: Sequence[Transcript], recipe: Recipe) -> float:
    """How much judges agree with the others, penalties for bad form left out."""
    consensus = recipe.protocol.consensus
    marks = [m for t in transcripts for m in judge_rewards(t.votes, consensus).values()]
    return sum(marks) / len(marks) if marks else float("nan")
