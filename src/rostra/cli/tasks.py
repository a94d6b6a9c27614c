"""`rostra tasks`: what there is to debate about."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import click

from rostra.errors import ConfigError
from rostra.tasks.catalogue import CATALOGUE, GRADER, TaskName
from rostra.tasks.task import PARTS

if TYPE_CHECKING:
    from rich.console import Console

    from rostra.runs.syllabus import TaskSettings
    from rostra.tasks.question import Question

LONGEST = 2000
"""Characters of a prompt that are shown."""


@click.command("tasks", short_help="List tasks, or show questions of one.")
@click.argument("name", required=False)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--path", help="A file or a folder of questions.")
@click.option("--dataset", help="A dataset of the hub, or kinds of puzzles.")
@click.option("--show", type=click.IntRange(0), default=3, show_default=True, help="Examples.")
@click.option(
    "--part", type=click.Choice(PARTS), default=None, help="Of which part. Default: the first."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws other examples.")
def command(
    name: str | None,
    settings: tuple[str, ...],
    path: str | None,
    dataset: str | None,
    show: int,
    part: Any,
    seed: int,
) -> None:
    """List the tasks, or show the sizes and some questions of NAME.

    Settings are those of the table [task] of a recipe.

    \b
    rostra tasks
    rostra tasks sums --show 5 --part test
    rostra tasks gsm8k --path data/gsm8k
    rostra tasks math --path data/math levels=[1,2]
    rostra tasks reasoning_gym dataset=leg_counting size=100
    rostra tasks jsonl path=my.jsonl fields.prompt=question grader=math
    """
    if name is None:
        _list()
        return
    given = {"path": path, "dataset": dataset}
    chosen = _settings(name, settings, {k: v for k, v in given.items() if v is not None})
    _show(chosen, show, part, seed)


def _list() -> None:
    from rich.table import Table

    from rostra.cli.options import console

    screen = console()
    if screen.is_terminal and screen.width < 80:
        for name, entry in CATALOGUE.items():
            _say(screen, name, "bold")
            _say(screen, entry.what, "", 2)
            _say(screen, f"{entry.origin}; graded: {entry.grader}", "dim", 2)
        return
    table = Table("task", "what it is", "from", "graded", box=None, pad_edge=False)
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.what, entry.origin, entry.grader)
    screen.print(table)


def _settings(name: str, settings: tuple[str, ...], given: dict[str, str]) -> "TaskSettings":
    from pydantic import TypeAdapter, ValidationError

    from rostra.debate.prompts import did_you_mean
    from rostra.runs.config import first_error, read_setting
    from rostra.runs.syllabus import TaskSettings

    if name not in CATALOGUE:
        known = get_args(TaskName)
        hint = did_you_mean(name, known) or f" (there are: {', '.join(known)})"
        raise ConfigError(f"no task is called {name!r}{hint}")
    known = tuple(f.name for f in fields(TaskSettings) if f.name != "name")
    values: dict[str, Any] = {"name": name}
    for key, value in map(read_setting, settings):
        table, _, inner = key.removeprefix("task.").partition(".")
        if table not in known:
            raise ConfigError(f"{key}: unknown key{did_you_mean(table, known)}")
        if not inner:
            values[table] = value
        elif isinstance(values.setdefault(table, {}), dict):
            values[table][inner] = value
        else:
            raise ConfigError(f"{key}: {table} = {values[table]!r} was given, which has no keys")
    try:
        return TypeAdapter(TaskSettings).validate_python({**values, **given})
    except ValidationError as error:
        raise ConfigError(first_error(error)) from None


def _show(settings: "TaskSettings", count: int, part: Any, seed: int) -> None:
    from rostra.cli.options import console
    from rostra.learn.setup import make_task
    from rostra.view.terminal import one_line

    screen = console()
    task, entry = make_task(settings), CATALOGUE[settings.name]
    where = settings.path or settings.dataset or entry.hub or entry.origin
    default = f"{GRADER} (by default)" if "grader" in entry.reads else entry.grader
    _say(screen, f"{task.name}: {entry.what}", "bold")
    _say(screen, f"from {where}; graded: {settings.grader or default}", "dim")
    _say(screen, ", ".join(f"{len(task.part(name)):,} {name}" for name in PARTS))
    part = part or next((name for name in PARTS if task.part(name)), "train")
    for question in task.sample(part, seed, count):
        _say(screen)
        _say(screen, one_line(f"{question.id} ({part})"), "cyan")
        _show_question(screen, question)


def _show_question(screen: "Console", question: "Question") -> None:
    from rostra.view.terminal import one_line, printable

    prompt = printable(question.prompt.strip())
    _say(screen, prompt[:LONGEST] + (" ..." if len(prompt) > LONGEST else ""), "", 2)
    for number, choice in enumerate(question.choices):
        _say(screen, one_line(f"{chr(ord('A') + number)}. {choice}"), "", 4)
    if question.background:
        _say(screen, f"about a text of {len(question.background.split()):,} words", "dim", 2)
    reference = printable(question.reference or "none, it is open-ended")
    _say(screen, f"answer: {reference}", "green", 2)
    if question.metadata:
        told = ", ".join(f"{key} {value}" for key, value in question.metadata.items())
        _say(screen, one_line(told), "dim", 2)


def _say(screen: "Console", text: str = "", style: str = "", indent: int = 0) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if screen.is_terminal and indent:
        screen.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False))
    else:
        lines = [" " * indent + line if line else "" for line in text.split("\n")]
        screen.print(Text("\n".join(lines), style), soft_wrap=not screen.is_terminal)
