"""What a run would do and take, before it is run: `rostra train --dry-run`."""

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rostra.arena import play
from rostra.engines.engine import Engine
from rostra.errors import ArenaError, ConfigError, DataError
from rostra.learn.lesson import learn_from
from rostra.learn.selfplay import step_debates
from rostra.learn.setup import check_start, make_engine, make_task
from rostra.players.model import ModelPlayer
from rostra.rewards.advantages import RoleBaseline
from rostra.runs.display import duration
from rostra.runs.folder import check_place
from rostra.runs.recipe import to_toml
from rostra.runs.settings import Recipe
from rostra.tasks.task import Task
from rostra.view.page import count

PROBE = 4
"""Debates that are played to see how long one takes."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a few debates took."""

    debates: int
    tokens: int
    """That were sampled."""
    sampling: float
    """Seconds."""
    training: float


def show_plan(recipe: Recipe, screen: Console) -> None:
    """Prints settings, plan and cost, and raises where something is missing."""

    def say(text: str = "") -> None:
        screen.print(Text(text), soft_wrap=True)

    say(to_toml(recipe).rstrip())
    say()
    task = make_task(recipe.task)
    held = len(task.held_out)
    say(f"task      {task.name}: {len(task.train)} questions to train on, {held} held out")
    folder = Path(recipe.folder)
    check_start(recipe)
    used = check_place(folder)
    state = "there already: needs --resume or --overwrite" if used else "new"
    say(f"folder    {folder}: {state}, {_size(_free(folder))} free")
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
    """Plays and learns from a few debates; the weights are not changed."""
    trainer = await engine.trainer()
    count = min(PROBE, recipe.train.questions)
    debates = step_debates(recipe, task, 0)[:count]
    began = time.monotonic()
    try:
        played = await play(debates, ModelPlayer(await trainer.sampler(), engine.chat))
    except ArenaError as error:
        raise ConfigError(f"the probe failed: {error}") from None
    sampling = time.monotonic() - began
    lesson = learn_from(played.transcripts, recipe, task, RoleBaseline())
    began = time.monotonic()
    if lesson.data:
        await trainer.forward(lesson.data)
    # Going back takes about twice as long as going forth.
    training = 3 * (time.monotonic() - began)
    return Probe(len(played.transcripts), int(lesson.metrics["tokens"]), sampling, training)


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
    size = sum(parameter.numel() * 4 for parameter in trained) * 3
    need = size * (recipe.train.keep + 1)
    say(f"space     about {_size(need)} of checkpoints, plus transcripts")
    if need > _free(folder):
        raise DataError(
            f"{folder}: {_size(_free(folder))} free, and checkpoints need {_size(need)}"
        )


def _free(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
