"""`rostra compare`: two evaluations, question by question."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from rostra.cli.options import console
from rostra.cli.tables import print_table
from rostra.debate.prompts import did_you_mean
from rostra.errors import ConfigError, DataError
from rostra.evals.accuracy import NUMBERS
from rostra.evals.modes import MODES, Mode
from rostra.evals.statistics import Paired, paired
from rostra.evals.store import SETTINGS, read_rows, read_settings

Rows = Mapping[Mode, Mapping[str, Mapping[str, Any]]]
PLAIN = ("tokens", "prompt_tokens", *NUMBERS, "votes_right", "votes_decided")
"""Measures that are no shares."""


@click.command("compare", short_help="Compare two evaluated runs with a paired test.")
@click.argument("first", metavar="RUN_A")
@click.argument("second", metavar="RUN_B")
@click.option("--task", help="Which evaluation of the runs.  [default: the one they both have]")
@click.option(
    "--measure",
    default="accuracy",
    show_default=True,
    help="What is compared: accuracy, or another number of rows.jsonl, such as pass@k or tokens.",
)
def command(first: str, second: str, task: str | None, measure: str) -> None:
    """Compare the evaluations of RUN_A and RUN_B: runs, or folders that `rostra eval` wrote.

    Only questions that both were asked count, each as one pair. The p-value is that of a sign-flip
    test: how often chance alone would make so large a difference.

    \b
    rostra eval runs/a --mode all && rostra eval runs/b --mode all
    rostra compare runs/a runs/b
    """
    left, right = _folders(first, second, task)
    rows = read_rows(left), read_rows(right)
    screen = console()
    sides = ("higher", "lower") if measure in PLAIN else ("better", "worse")
    heads = ("mode", "A", "B", "B - A", "95%", "p", *sides, "equal")
    _check_measure(rows, measure)
    found = compared(*rows, measure)
    if not found:
        raise DataError(f"{left} and {right}: no mode and question in common to compare")
    share = measure not in PLAIN
    lines = [[mode, *_cells(a, b, change, share=share)] for mode, (a, b, change) in found.items()]
    screen.print(Text(f"A: {left}\nB: {right}\n"), soft_wrap=True)
    print_table(screen, heads, lines, heads[:6])
    for warning in _differences(read_settings(left), read_settings(right), tuple(found)):
        click.echo(f"warning: {warning}", err=True)


def _check_measure(rows: tuple[Rows, Rows], measure: str) -> None:
    known = {
        name: None
        for found in rows
        for group in found.values()
        for row in group.values()
        for name, value in row.items()
        if isinstance(value, int | float)
    }
    if measure not in known:
        raise ConfigError(
            f"--measure {measure}: not measured{did_you_mean(measure, tuple(known))} (there are: "
            f"{', '.join(known)})"
        )


def compared(
    left: Rows, right: Rows, measure: str = "accuracy"
) -> dict[Mode, tuple[float, float, Paired]]:
    """The means of both and their paired difference, by mode, on the questions they share."""
    found: dict[Mode, tuple[float, float, Paired]] = {}
    for mode in MODES:
        a, b = left.get(mode, {}), right.get(mode, {})
        both = [
            question
            for question in a
            if question in b and None not in (a[question].get(measure), b[question].get(measure))
        ]
        if both:
            ours, theirs = ([float(rows[q][measure]) for q in both] for rows in (a, b))
            means = [sum(values) / len(values) for values in (ours, theirs)]
            found[mode] = means[0], means[1], paired(theirs, ours)
    return found


def _cells(a: float, b: float, change: Paired, *, share: bool) -> list[str]:
    def one(value: float, sign: str = "") -> str:
        return f"{100 * value:{sign}.1f}" if share else f"{value:{sign},.1f}"

    percent = "%" if share else ""
    return [
        one(a) + percent,
        one(b) + percent,
        one(change.difference, "+"),
        f"{one(change.low, '+')} to {one(change.high, '+')}",
        f"{change.p:.2g}",
        *map(str, (change.better, change.worse, change.equal)),
    ]


def _folders(first: str, second: str, task: str | None) -> tuple[Path, Path]:
    choices = [_evaluations(Path(name)) for name in (first, second)]
    if task is not None:
        for name, found in zip((first, second), choices, strict=True):
            known = tuple(_task_of(folder) if key == "" else key for key, folder in found.items())
            if task not in known:
                has = f" (it has: {', '.join(known)})" if known else ""
                close = did_you_mean(task, known)
                raise DataError(f"--task {task}: {name} was not evaluated on it{close}{has}")
        choices = [{k: v for k, v in found.items() if k in (task, "")} for found in choices]
    shared = [name for name in choices[0] if name in choices[1]]
    for this, other in ((0, 1), (1, 0)):
        if "" in choices[this] and choices[other]:
            # An evaluation itself, beside another or a run: of a run, the one of the same task.
            same = _task_of(choices[this][""])
            fit = [f for name, f in choices[other].items() if name == "" or _task_of(f) == same]
            if not fit:
                raise DataError(f"{(first, second)[other]} was not evaluated on {same}")
            pair = (choices[this][""], fit[0])
            return pair if this == 0 else pair[::-1]
    if len(shared) > 1:
        raise ConfigError(f"--task: say which of {', '.join(shared)} is to be compared")
    if not shared:
        raise DataError(
            f"{first} and {second} have no evaluation in common; make them with `rostra eval`"
        )
    return choices[0][shared[0]], choices[1][shared[0]]


def _task_of(folder: Path) -> str:
    task = read_settings(folder).get("task")
    return str(task.get("name")) if isinstance(task, Mapping) else ""


def _evaluations(path: Path) -> dict[str, Path]:
    """The evaluations in a run by task; a folder that is one itself has no name."""
    if (path / SETTINGS).exists():
        return {"": path}
    if not path.is_dir():
        raise DataError(f"{path}: no such run or evaluation")
    return {file.parent.name: file.parent for file in sorted(path.glob(f"evals/*/{SETTINGS}"))}


OF_MODES: Mapping[str, tuple[Mode, ...]] = {
    "samples": ("direct",),
    "temperature": ("direct", "vote"),
    "budget": ("vote",),
    "opponent": ("roles",),
    "judge": ("roles",),
}
"""Settings that only some modes read."""


def _differences(
    left: Mapping[str, Any], right: Mapping[str, Any], modes: Sequence[Mode]
) -> list[str]:
    """Settings that should be the same for the modes that are compared, and are not."""
    read = [name for name, by in OF_MODES.items() if any(mode in by for mode in modes)]
    names = ["task", "protocol", "part", *read, "seed"]
    differ = [name for name in names if left.get(name) != right.get(name)]
    # `base` may stand for another model in each.
    players = [_others(settings) for settings in (left, right)]
    if (
        "roles" in modes
        and "opponent" not in differ
        and players[0]
        and players[1]
        and players[0] != players[1]
    ):
        differ.append("who the others are")
    return [f"the two differ in {name}; what is compared is not only the model" for name in differ]


def _others(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Who played beside the policy."""
    weights = settings.get("weights")
    found = dict(weights) if isinstance(weights, Mapping) else {}
    found.pop("policy", None)
    return found
