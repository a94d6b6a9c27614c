"""Carrying out a recipe: what `rostra train` and `rostra demo` share."""

import asyncio
import shlex
import signal
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from rostra.engines.chat import ChatFormat
from rostra.errors import RostraError
from rostra.evals.held_out import evaluate
from rostra.learn.evaluator import Evaluation, Evaluator, Progress
from rostra.learn.loop import Loop
from rostra.learn.selfplay import SelfPlay
from rostra.learn.setup import check_training, make_engine, make_tasks
from rostra.learn.stop import Stopped
from rostra.learn.warmstart import WarmStart, teacher
from rostra.players.player import Player
from rostra.players.spoken import SpokenPlayer
from rostra.runs.display import Display, RunPlan, display
from rostra.runs.folder import RunFolder
from rostra.runs.settings import Recipe
from rostra.runs.syllabus import Phase
from rostra.runs.trackers import open_trackers
from rostra.tasks.task import Task

HALF_RIGHT = Phase(forgets=0.5, slips=0.25, early_votes=False)
"""Whose solutions are judged where `eval.prepared` asks for it."""


def carry_out(recipe: Recipe, screen: Console, *, resume: bool, overwrite: bool) -> None:
    """Runs a recipe to its end, or to where it is stopped. The directory is whole either way."""
    tasks = make_tasks(recipe)
    check_training(recipe, tasks)
    folder = RunFolder.open(recipe, resume=resume, overwrite=overwrite)
    try:
        trackers = open_trackers(recipe.trackers, folder.path, recipe.title, asdict(recipe))
        try:
            with display(screen) as shown:
                shown.start(RunPlan(recipe.title, recipe.steps, str(folder.path)))
                shown.phase(f"loading {recipe.model.start or recipe.model.name}", 0, 0)
                engine = make_engine(recipe, folder.checkpoints)
                loop = WarmStart if recipe.loop == "warmstart" else SelfPlay
                evaluator = make_evaluator(recipe, engine.chat)
                run = loop(recipe, tasks[0], engine, folder, shown, evaluator, trackers)
                asyncio.run(_until_stopped(run, shown))
        finally:
            for tracker in trackers:
                tracker.close()
    except Stopped as stopped:
        raise Stopped(f"{stopped}. Go on with: {resume_command(folder.path)}") from None
    except RostraError:
        folder.discard()
        raise
    finally:
        folder.close()


def resume_command(folder: Path) -> str:
    return f"rostra train {shlex.quote(str(folder))} --resume"


def make_evaluator(recipe: Recipe, chat: ChatFormat) -> Evaluator | None:
    """The evaluation of a recipe; None where it asks for none."""
    if not recipe.eval.questions:
        return None
    prepared = recipe.eval.prepared

    async def measure(
        player: Player,
        task: Task,
        seed: int,
        mode_wrong: Collection[str] | None,
        progress: Progress,
    ) -> Evaluation:
        speaker = SpokenPlayer(teacher(task, HALF_RIGHT), chat) if prepared else None
        return await evaluate(
            player,
            task,
            recipe.protocol,
            recipe.eval,
            seed,
            mode_wrong=mode_wrong,
            speaker=speaker,
            progress=progress,
            retries=recipe.train.retries,
            turn_timeout=recipe.train.turn_timeout,
        )

    return measure


async def _until_stopped(run: Loop, shown: Display) -> None:
    """Runs; Ctrl-C once stops at the next good moment, twice at once."""
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()

    def interrupt() -> None:
        if run.stop.asked and this is not None:
            this.cancel()
            return
        shown.note("stopping after this step; Ctrl-C again stops at once")
        run.stop.ask()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        await run.run()
    except asyncio.CancelledError:
        raise Stopped("stopped at once; what is newer than the last checkpoint is lost") from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):
                loop.remove_signal_handler(number)
