"""What a run would do and take, before it is run: `rostra train --dry-run`."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rostra.engines.engine import Engine
from rostra.errors import ArenaError, ConfigError, DataError
from rostra.evals.sample import Probe, probe, size
from rostra.learn.setup import check_training, make_engine, make_tasks
from rostra.runs.display import duration
from rostra.runs.folder import check_place
from rostra.runs.recipe import to_toml
from rostra.runs.settings import Recipe
from rostra.tasks.task import Task
from rostra.view.page import count

PROBE = 4
"""Debates that are played to see how long one takes."""


def show_plan(recipe: Recipe, screen: Console) -> None:
    """Prints settings, plan and cost, and raises where something is missing."""

    def say(text: str = "") -> None:
        screen.print(Text(text), soft_wrap=True)

    say(to_toml(recipe).rstrip())
    say()
    tasks = make_tasks(recipe)
    task = tasks[0]
    say(f"task      {task.name}: {_parts_line(task)}")
    folder = Path(recipe.folder)
    check_training(recipe, tasks)
    used = check_place(folder)
    state = "there already: needs --resume or --overwrite" if used else "new"
    say(f"folder    {folder}: {state}, {size(_free(folder))} free")
    with (
        tempfile.TemporaryDirectory() as scratch,
        screen.status(f"loading {recipe.model.start or recipe.model.name}"),
    ):
        engine = make_engine(recipe, Path(scratch))
        say(f"model     {recipe.model.start or recipe.model.name}: {_model_line(engine)}")
        if recipe.loop == "warmstart":
            _show_warm_start(recipe, say)
            asyncio.run(_make_trainer(engine))
            _check_space(recipe, engine, folder, say)
            return
        found = asyncio.run(_probe(recipe, task, engine))
    _show_self_play(recipe, found, say)
    _check_space(recipe, engine, folder, say)


def _parts_line(task: Task) -> str:
    held = f"{len(task.test)} held out"
    if task.validation:
        held = f"{len(task.validation)} for validation, {len(task.test)} for test"
    return f"{len(task.train)} questions to train on, {held}"


def _show_warm_start(recipe: Recipe, say: Any) -> None:
    for number, phase in enumerate(recipe.phases, 1):
        parts = [] if phase.kind == "drill" else [count(phase.debates, "debate")]
        parts += [count(phase.drills, "page")] if phase.drills else []
        parts += [count(phase.ballots, "ballot")] if phase.ballots else []
        say(f"phase {number}   {phase.kind}: {phase.steps} steps of {', '.join(parts)}")


def _show_self_play(recipe: Recipe, found: Probe, say: Any) -> None:
    train = recipe.train
    turns = sum(len(slot.seats) for slot in recipe.protocol.protocol().slots)
    debates = train.steps * train.questions
    each = found.tokens / found.debates
    say(
        f"plan      {train.steps} steps of {train.questions} debates of {turns} turns: "
        f"{debates:,} debates, {debates * turns:,} turns, about {round(debates * each):,} tokens"
    )
    seconds = (found.sampling + found.training) / found.debates * debates
    say(
        f"time      about {duration(seconds)} by a probe of {found.debates} debates "
        f"({found.tokens / found.sampling:,.0f} tokens/s sampled, "
        f"{found.training / found.debates:.2f} s of training a debate); more debates at once are "
        "faster, evaluations come on top"
    )


async def _probe(recipe: Recipe, task: Task, engine: Engine) -> Probe:
    try:
        return await probe(recipe, task, engine, min(PROBE, recipe.train.questions))
    except ArenaError as error:
        raise ConfigError(f"the probe failed: {error}") from None


async def _make_trainer(engine: Engine) -> None:
    await engine.trainer()


def _model_line(engine: Engine) -> str:
    module = getattr(getattr(engine, "weights", None), "module", None)
    if module is None:
        return "scripted, no weights"
    total = sum(parameter.numel() for parameter in module.parameters())
    return f"loads, {total / 1e6:.1f} million weights, context {getattr(engine, 'context', 0):,}"


def _check_space(recipe: Recipe, engine: Engine, folder: Path, say: Any) -> None:
    """Weights and two moments for each checkpoint that is kept, and one that is being written."""
    trained = getattr(getattr(engine, "weights", None), "trained", ())
    each = sum(parameter.numel() * 4 for parameter in trained) * 3
    need = each * (recipe.train.keep + 1)
    say(f"space     about {size(need)} of checkpoints, plus transcripts")
    if need > _free(folder):
        raise DataError(f"{folder}: {size(_free(folder))} free, and checkpoints need {size(need)}")


def _free(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free
