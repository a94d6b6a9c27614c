"""What every loop has: the parts of a run, and ways to tell how it goes."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rostra.engines.engine import Engine
from rostra.engines.sampling import Sampler
from rostra.learn.evaluator import Evaluation, Evaluator
from rostra.learn.stop import Stop
from rostra.players.model import ModelPlayer
from rostra.runs.display import Display
from rostra.runs.folder import RunFolder
from rostra.runs.settings import Recipe
from rostra.runs.trackers import Tracker
from rostra.seeds import derive
from rostra.tasks.task import Task


@dataclass
class Loop(ABC):
    """One run of a recipe."""

    recipe: Recipe
    task: Task
    engine: Engine
    folder: RunFolder
    display: Display
    evaluator: Evaluator | None = None
    trackers: Sequence[Tracker] = ()
    stop: Stop = field(default_factory=Stop, init=False)
    _step: int = field(default=0, init=False)
    """Steps that are done."""

    @abstractmethod
    async def run(self) -> None:
        """From the last checkpoint, or from the beginning, to the end."""

    async def _evaluate(
        self,
        sampler: Sampler,
        step: int,
        mode_wrong: Collection[str] | None = None,
        task: Task | None = None,
        also: Mapping[str, float] | None = None,
    ) -> Evaluation | None:
        """Measures the weights after so many steps, and notes what it found."""
        if self.evaluator is None:
            return None
        began = time.monotonic()
        player = ModelPlayer(sampler, self.engine.chat)
        seed = derive(self.recipe.seed, "eval", step)

        def progress(done: int, total: int) -> None:
            self.display.phase("evaluating", done, total)

        measuring = asyncio.ensure_future(
            self.evaluator(player, task or self.task, seed, mode_wrong, progress)
        )
        found = await self.stop.watch(measuring, step)
        metrics = {**found.metrics, **(also or {}), "time/evaluation": time.monotonic() - began}
        self._note("eval", step, metrics, shown=step)
        return found

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Notes how a step went; the first one is 0."""
        self._note("train", step, metrics, shown=step + 1)

    def _note(self, kind: str, step: int, metrics: Mapping[str, float], *, shown: int) -> None:
        self.folder.add_metrics({"step": step, "kind": kind, **metrics})
        self.display.step(metrics, step=shown, steps=self.recipe.steps)
        for tracker in self.trackers:
            tracker.log(metrics, step)
