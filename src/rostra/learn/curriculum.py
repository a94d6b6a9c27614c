"""What to ask next: stages from easy to hard, and questions that are neither too easy nor too hard.

Both are state that decides which debates are played, so both belong into the checkpoint.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostra.runs.syllabus import Stage
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task

FORGET = 0.7
"""What a pass rate keeps of itself when a question is asked again: policies change."""
FLOOR = 0.02
"""The weight of a question that was always answered right, or never."""


@dataclass(slots=True)
class Curriculum:
    """Where a run stands in its stages."""

    stages: Sequence[Stage]
    at: int = 0
    """The stage, from 0."""
    since: int = 0
    """The step at which it began."""
    seen: deque[float] = field(default_factory=deque)
    """What was measured in the last steps of the stage."""

    @property
    def stage(self) -> Stage:
        return self.stages[self.at]

    def feed(self, metrics: Mapping[str, float], task: str, step: int) -> str | None:
        """Takes the metrics of a step that was played in the current stage. Says why, when the next
        stage begins with the step after it."""
        stage = self.stage
        value = metrics.get(measure_name(stage, task))
        if value is not None and not np.isnan(value):
            self.seen.append(float(value))
        while len(self.seen) > stage.window:
            self.seen.popleft()
        if self.at + 1 == len(self.stages):
            return None
        mean = sum(self.seen) / len(self.seen) if self.seen else float("nan")
        full = len(self.seen) == stage.window
        if stage.threshold > 0 and full and mean >= stage.threshold:
            why = f"{stage.measure} is {mean:.0%} over {stage.window} steps"
        elif step + 1 - self.since >= stage.steps:
            why = f"after {stage.steps} steps"
        else:
            return None
        self.at, self.since = self.at + 1, step + 1
        self.seen.clear()
        return why

    def to_data(self) -> dict[str, Any]:
        return {"at": self.at, "since": self.since, "seen": list(self.seen)}

    @classmethod
    def from_data(cls, stages: Sequence[Stage], data: Mapping[str, Any]) -> "Curriculum":
        return cls(stages, int(data["at"]), int(data["since"]), deque(data["seen"]))


def measure_name(stage: Stage, task: str) -> str:
    """The metric that a stage watches: of the task where it is a plain word, else as it is."""
    return stage.measure if "/" in stage.measure else f"train_{task}/{stage.measure}"


@dataclass(slots=True)
class Difficulty:
    """How often each question was passed, and a way to ask those again that are still open."""

    rates: dict[str, float] = field(default_factory=dict)
    """By stage and question: a moving mean of the share of agents who passed."""

    def feed(self, stage: int, question: str, share: float) -> None:
        key = f"{stage}:{question}"
        old = self.rates.get(key)
        self.rates[key] = share if old is None else FORGET * old + (1 - FORGET) * share

    def draw(
        self, task: Task, stage: int, seed: int, step: int, count: int, again: float
    ) -> list[Question]:
        """`count` questions for a step: a share of `again` of them from those asked before, weighed
        by p (1 - p), the rest in the order of the task. None comes twice."""
        known = [q for q in task.train if f"{stage}:{q.id}" in self.rates]
        # At least one is new, or a run would never leave its first questions.
        most = min(round(count * again), count - 1)
        # The order of the task does not depend on how many could be asked again.
        fresh = count - most
        chosen = {q.id: q for q in task.draw(seed, step * fresh, fresh)}
        open_ = [q for q in known if q.id not in chosen]
        if most and open_:
            rates = np.array([self.rates[f"{stage}:{q.id}"] for q in open_])
            weights = rates * (1 - rates) + FLOOR
            random = np.random.default_rng(derive(seed, "again", step))
            # Gumbel noise on log weights: the largest are a weighted draw without replacement.
            order = np.argsort(-(np.log(weights) + random.gumbel(size=len(open_))), kind="stable")
            chosen |= {open_[i].id: open_[i] for i in order[:most]}
        if len(chosen) < count:
            start = (step + 1) * count + len(task.train)
            for question in task.draw(derive(seed, "fill"), start, len(task.train)):
                if len(chosen) == count:
                    break
                chosen.setdefault(question.id, question)
        return list(chosen.values())


def passed(
    marks: Mapping[int, float], answers: Mapping[int, str], agents: int, difficulty: str
) -> float:
    """The share of agents who passed a question: whose last answer is right, or, where no label may
    be read, the most common one."""
    if difficulty == "truth":
        return sum(mark >= 1 for mark in marks.values()) / agents
    said = list(answers.values())
    return max((said.count(answer) for answer in set(said)), default=0) / agents
