"""`rostra doctor`: the checklist before a run."""

import asyncio
import json
import math
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rostra.cli.options import console
from rostra.cli.progress import ProgressLine
from rostra.cli.running import HALF_RIGHT
from rostra.debate.peer import judge_warnings
from rostra.engines.chat import ChatFormat
from rostra.errors import ConfigError, DataError
from rostra.evals.checks import Diagnosis
from rostra.evals.doctor import diagnose
from rostra.learn.setup import check_training, make_engine, make_tasks
from rostra.learn.warmstart import teacher
from rostra.players.player import Player
from rostra.players.spoken import SpokenPlayer
from rostra.runs.advice import warnings
from rostra.runs.recipe import find_recipe, read_recipe
from rostra.runs.settings import Recipe
from rostra.runs.transcripts import check_target
from rostra.tasks.task import Task
from rostra.view.terminal import printable

STYLES = {"pass": "green", "thin": "yellow", "fail": "bold red", "unknown": "yellow"}


@click.command("doctor", short_help="Check whether a recipe can learn, before it is run.")
@click.argument("recipe")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option(
    "--questions",
    type=click.IntRange(min=1),
    default=24,
    show_default=True,
    help="Training questions that are played. More of them tell more.",
)
@click.option(
    "--stage",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of a curriculum, the stage that is checked.",
)
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path),
    help="Write the checks to this file too.",
)
def command(
    recipe: str, settings: tuple[str, ...], questions: int, stage: int, file: Path | None
) -> None:
    """Play a small sample by RECIPE and say whether a run of it can learn.

    Every check passes, is thin, fails or is unknown. Exit code 0: ready. 1: not ready, with the
    main reason in the last line. Nothing is trained, and held-out questions stay unseen.

    \b
    rostra doctor peer-v2-sums
    rostra doctor my.toml model.start=runs/warm --questions 96
    rostra doctor curriculum model.start=runs/first --stage 2
    """
    chosen = read_recipe(find_recipe(recipe), settings)
    if chosen.loop == "warmstart":
        raise ConfigError(
            f"{recipe}: a warm start learns from a teacher, whatever the model can do; check the "
            "recipe of the self-play that follows it"
        )
    if stage > max(len(chosen.stages), 1):
        there = f"{len(chosen.stages)} stages" if chosen.stages else "no stages"
        raise ConfigError(f"--stage {stage}: {recipe} has {there}")
    tasks = make_tasks(chosen)
    check_training(chosen, tasks)
    if file:
        check_target(file, overwrite=True)
    _warn(chosen)
    found = _diagnosis(chosen, tasks[stage - 1], questions, stage)
    _show(found, console())
    if file:
        _write(found, file)
    if not found.ready:
        sys.exit(1)


def _warn(recipe: Recipe) -> None:
    """What is wrong with the rules, but for what the checks say about judges."""
    rules = recipe.protocol
    told = judge_warnings(rules.agents, rules.consensus)
    for warning in warnings(recipe):
        if warning not in told:
            click.echo(f"warning: {warning}", err=True)


def _diagnosis(recipe: Recipe, task: Task, questions: int, stage: int) -> Diagnosis:
    with tempfile.TemporaryDirectory() as scratch, ProgressLine(console(stderr=True)) as line:
        line.say(f"loading {recipe.model.start or recipe.model.name}")
        engine = make_engine(recipe, Path(scratch))
        speaker = _speaker(task, engine.chat)
        work = diagnose(
            recipe, task, engine, questions, speaker=speaker, progress=line.count, stage=stage
        )
        return asyncio.run(work)


def _speaker(task: Task, chat: ChatFormat) -> Player | None:
    """Who gives the solutions to judge; None for a task without a teacher."""
    with suppress(ConfigError):
        return SpokenPlayer(teacher(task, HALF_RIGHT), chat)
    return None


def _show(found: Diagnosis, screen: Console) -> None:
    if screen.is_terminal:
        screen.print(_table(found))
    else:
        for check in found.checks:
            click.echo(f"{check.status:<9}{check.name:<16}{printable(check.saw)}")
            if check.try_:
                click.echo(" " * 25 + check.try_)
    screen.print()
    style = "bold green" if found.ready else "bold red"
    screen.print(Text(printable(found.verdict), style))


def _table(found: Diagnosis) -> Table:
    """What was seen, and what to do under it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found.checks:
        cell = Text(printable(check.saw))
        if check.try_:
            cell.append(f"\n{check.try_}", "dim")
        table.add_row(Text(check.status, STYLES[check.status]), check.name, cell)
    return table


def _write(found: Diagnosis, file: Path) -> None:
    """Writes the checks as JSON, whole or not at all; null is for what is not known."""
    data = {
        "ready": found.ready,
        "verdict": found.verdict,
        "checks": [
            {
                "name": check.name,
                "status": check.status,
                "saw": check.saw,
                "try": check.try_,
                "numbers": {k: v if math.isfinite(v) else None for k, v in check.numbers.items()},
            }
            for check in found.checks
        ],
    }
    part = file.with_name(file.name + ".part")
    try:
        part.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", "utf-8")
        part.replace(file)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise DataError(f"{file}: cannot be written: {error.strerror}") from None
