"""What a loop needs to know of an evaluation; `evals/` has the evaluations themselves."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from rostra.players.player import Player
from rostra.tasks.task import Task

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found."""

    metrics: dict[str, float]
    wrong: tuple[str, ...]
    """Questions whose most likely answer is wrong, by id."""


Evaluator = Callable[[Player, Task, int, Collection[str] | None, Progress], Awaitable[Evaluation]]
"""Measures a player on a task, with a seed, the questions whose mode was wrong at first (None: this
is the first time), and a way to say how far it is."""
