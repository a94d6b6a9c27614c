"""`rostra eval`: how good a model is, asked in four ways."""

import asyncio
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.text import Text

from rostra.cli.options import console
from rostra.cli.progress import ProgressLine
from rostra.cli.subject import opponent_of, recipe_of
from rostra.cli.tables import print_table
from rostra.engines.address import is_address, read_address
from rostra.errors import ConfigError, EngineUnavailable, RostraError
from rostra.evals.modes import JUDGE, MODES, Examination, Findings, Mode, examine
from rostra.evals.results import Price, Results, remarks, results
from rostra.evals.statistics import Measure
from rostra.evals.store import SETTINGS, EvalFolder, read_modes
from rostra.learn.setup import (
    check_start,
    fingerprint,
    make_engine,
    make_task,
    run_of,
    untrained,
)
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.runs.recipe import read_config
from rostra.runs.settings import ModelSettings, Recipe
from rostra.tasks.task import PartName, Task
from rostra.view.evaluation import write_eval_report
from rostra.view.report import write_report

COLUMNS = ("format", "vote@k", "winner", "pass@k", "cons@k", "votes right")


@click.command("eval", short_help="Measure a model: alone, by vote, in debate, in every role.")
@click.argument("subject", metavar="MODEL_OR_RUN")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--task", help="The task; see `rostra tasks`.  [default: the run's own]")
@click.option("--path", help="Where the data of the task is.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice([*MODES, "all"]),
    help="Can be repeated.  [default: direct and debate; with --resume, those of before]",
)
@click.option("--questions", type=click.IntRange(1), default=100, show_default=True)
@click.option("--part", type=click.Choice(get_args(PartName)), default="test", show_default=True)
@click.option("--samples", type=click.IntRange(1), default=5, show_default=True, help="direct: k.")
@click.option("--temperature", type=click.FloatRange(0), help="direct and vote: of every seat.")
@click.option(
    "--budget",
    type=click.IntRange(1),
    help="vote: tokens for a question.  [default: what its debate took]",
)
@click.option(
    "--opponent",
    default="base",
    show_default=True,
    help="roles: base (the model untrained), start (what the run began with), a model, a run, or "
    "the address of an endpoint.",
)
@click.option(
    "--judge",
    "judges",
    multiple=True,
    help="roles, where there is no right answer: who votes; as --opponent. Can be repeated; a "
    "single judge fills three seats, several have one each.",
)
@click.option("--recipe", help="A recipe to take task and protocol from.")
@click.option("--step", type=int, help="The checkpoint of a run.  [default: the last]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--price", help="Dollars for a million tokens, read and sampled, as in 0.1,0.4.")
@click.option("--out", type=click.Path(path_type=Path), help="Where results go.")
@click.option("--resume", is_flag=True, help="Go on with an evaluation that was stopped or killed.")
@click.option("--overwrite", is_flag=True, help="Replace one that is there already.")
def command(subject: str, settings: tuple[str, ...], **given: Any) -> None:
    """Measure MODEL_OR_RUN on questions it was not trained on.

    \b
    direct   one turn, alone
    vote     many turns, alone: the most common answer, for the tokens of a debate
    debate   a whole debate with itself
    roles    a debate against fixed opponents, the model in every seat in turn

    \b
    rostra eval runs/peer-v2-sums --mode all
    rostra eval smollm2 --task gsm8k --path data/gsm8k --mode direct protocol.max_tokens=300
    rostra eval runs/mine --mode roles --opponent http://127.0.0.1:8000/v1#qwen3

    MODEL_OR_RUN can be an address too.
    """
    changes = [f"task.path={given['path']}"] if given["path"] else []
    ours = recipe_of(
        subject,
        [*changes, *settings],
        recipe=given["recipe"],
        step=given["step"],
        task=given["task"],
    )
    price = _price(given["price"])
    task = _unseen(make_task(ours.task), ours, subject, given["part"])
    exam = _examination(task, ours, given)
    out = given["out"] or _place(subject, task)
    # Modes of an earlier time are on the shelf, and cost nothing.
    earlier = read_modes(out) if given["resume"] and (out / SETTINGS).exists() else []
    if given["resume"] and not earlier:
        click.echo(f"note: {out} holds nothing to go on with; this begins anew", err=True)
    modes = _modes([*(given["modes"] or (() if earlier else ("direct", "debate"))), *earlier])
    if "vote" in modes and "debate" not in modes and given["budget"] is None:
        raise ConfigError("--mode vote: spends what debates took; add --mode debate, or --budget")
    recipes = {"policy": ours}
    if "roles" in modes:
        recipes["opponent"] = opponent_of(given["opponent"], subject, ours)
    for number, judge in enumerate(given["judges"] if exam.open_ended else (), 1):
        name = JUDGE if number == 1 else f"{JUDGE} {number}"
        recipes[name] = opponent_of(judge, subject, ours)
    if exam.open_ended:
        _check_open(modes, recipes)
    for recipe in recipes.values():
        check_start(recipe)
    folder = EvalFolder.open(
        out,
        _asked(subject, recipes, given, modes),
        resume=given["resume"],
        overwrite=given["overwrite"],
    )
    screen = console()
    try:
        with ProgressLine(console(stderr=True)) as line:
            found = asyncio.run(_run(modes, exam, recipes, folder, line))
        data = results(found, price)
        folder.write({mode: one.rows for mode, one in found.items()}, data)
        _show(screen, found, data)
        screen.print()
        _report(screen, subject, out)
    except KeyboardInterrupt:
        raise ConfigError(f"interrupted; {_go_on(out)}") from None
    except EngineUnavailable as gone:
        raise EngineUnavailable(f"{gone} {_go_on(out)}") from None
    finally:
        folder.close()
    screen.print(f"Look closer: rostra show {out}", soft_wrap=True)


def _unseen(task: Task, ours: Recipe, subject: str, part: PartName) -> Task:
    """The task without questions that a run was trained on, when its parts were others."""
    run = run_of(subject)
    if run is None:
        return task
    try:
        new = untrained(task, ours.task, read_config(run))
    except RostraError as error:
        click.echo(f"warning: whether {run} was trained on these is not known: {error}", err=True)
        return task
    seen = len(task.part(part)) - len(new.part(part))
    if seen:
        click.echo(f"note: {run} was trained on {seen} of these questions; left out", err=True)
    return new


def _go_on(out: Path) -> str:
    words = [arg for arg in sys.argv[1:] if arg not in ("--resume", "--overwrite")]
    again = f"rostra {shlex.join(words)}"
    if not any((out / "transcripts").glob("*")):
        return f"no debate was over yet, so nothing is kept. Try again with: {again}"
    return f"what was played is kept. Go on with: {again} --resume"


def _report(screen: Console, subject: str, out: Path) -> None:
    """Writes the report, and that of the run anew, which has its table too."""
    try:
        report = write_eval_report(out)
        run = Path(subject)
        if out.is_relative_to(run / "evals") and (run / "metrics.jsonl").is_file():
            write_report(run)
        screen.print(f"The report, with plots and debates: {report}", soft_wrap=True)
    except ConfigError as error:
        screen.print(f"No report: {error}", soft_wrap=True)


def _check_open(modes: Sequence[Mode], recipes: Mapping[str, Recipe]) -> None:
    if list(modes) != ["roles"]:
        raise ConfigError(
            "--mode: these questions have no right answer, so judges have to say who is better: "
            "use --mode roles --opponent MODEL --judge MODEL"
        )
    players = [_weights(recipes[name].model) for name in ("policy", "opponent")]
    judges = [_weights(one.model) for name, one in recipes.items() if name.startswith(JUDGE)]
    if not judges or any(judge in players for judge in judges):
        raise ConfigError("--judge: name a model that is neither the policy nor its opponent")
    if len(set(judges)) < len(judges):
        raise ConfigError("--judge: a model is there twice; name each once, or only one for three")


def _weights(model: ModelSettings) -> tuple[str, str]:
    """What is the same for the same weights, wherever and however they are named."""
    if model.engine == "scripted":
        return model.engine, ""
    return model.engine, fingerprint(model) or model.name


def _modes(given: Sequence[str]) -> list[Mode]:
    return [mode for mode in MODES_IN_ORDER if mode in given or "all" in given]


MODES_IN_ORDER: tuple[Mode, ...] = ("direct", "debate", "vote", "roles")
"""A vote comes after the debates whose tokens it spends."""


def _examination(task: Task, recipe: Recipe, given: Mapping[str, Any]) -> Examination:
    known = task.part(given["part"])
    if not known:
        raise ConfigError(f"--part {given['part']}: task {task.name} has no such questions")
    questions = task.sample(given["part"], given["seed"], given["questions"])
    return Examination(
        task,
        questions,
        recipe.protocol,
        given["seed"],
        given["samples"],
        given["temperature"],
        given["budget"],
        concurrency=max(1, recipe.model.lanes),
        retries=recipe.train.retries,
        turn_timeout=recipe.train.turn_timeout,
    )


def _asked(
    subject: str, recipes: Mapping[str, Recipe], given: Mapping[str, Any], modes: Sequence[Mode]
) -> dict[str, Any]:
    """Everything that decides what is measured."""
    recipe = recipes["policy"]
    model = {k: v for k, v in asdict(recipe.model).items() if k not in ("lanes", "threads")}
    same = ("questions", "part", "samples", "temperature", "budget", "opponent", "seed")
    judges = list(given["judges"])
    return {
        "subject": subject,
        "model": model,
        "task": asdict(recipe.task),
        "protocol": asdict(recipe.protocol),
        **{name: given[name] for name in same},
        "judge": judges if len(judges) > 1 else next(iter(judges), None),
        "weights": {name: "#".join(_weights(one.model)) for name, one in recipes.items()},
        "modes": list(modes),
    }


def _place(subject: str, task: Task) -> Path:
    path = Path(subject)
    if (path / "config.toml").is_file():
        return path / "evals" / task.name
    name = path.name
    if is_address(subject):
        served = read_address(subject)
        name = f"{Path(served.model).name}@{served.host}"
    return Path("evals") / f"{name}-{task.name}"


async def _run(
    modes: Sequence[Mode],
    exam: Examination,
    recipes: Mapping[str, Recipe],
    folder: EvalFolder,
    line: ProgressLine,
) -> dict[Mode, Findings]:
    # All of them before anything is played, so that whoever is missing is missed at once.
    players = {name: await _player(recipe, line) for name, recipe in recipes.items()}
    return {mode: await examine(mode, exam, players, folder, line.count) for mode in modes}


async def _player(recipe: Recipe, line: ProgressLine) -> Player:
    model = recipe.model
    verb = "asking" if model.engine == "openai" else "loading"
    what = model.engine if model.engine == "scripted" else model.start or model.name
    line.say(f"{verb} {what}")
    engine = make_engine(recipe, None)
    return ModelPlayer(await engine.policy(), engine.chat)


def _price(text: str | None) -> Price | None:
    if text is None:
        return None
    try:
        read, sampled = map(float, text.split(","))
    except ValueError:
        raise ConfigError(f"--price {text!r}: two numbers with a comma, as in 0.1,0.4") from None
    if not all(math.isfinite(part) and part >= 0 for part in (read, sampled)):
        raise ConfigError(f"--price {text!r}: a price is a number of dollars, and not below 0")
    return read, sampled


# What one sees


def _show(screen: Console, found: Mapping[Mode, Findings], data: Results) -> None:
    measured = {mode: one.measures for mode, one in found.items()}
    shown = [c for c in COLUMNS if any(c in measures for measures in measured.values())]
    priced = any("dollars" in known for known in data.values())
    heads = ["mode", "accuracy", "95%", "tokens", *(["dollars"] if priced else []), *shown]
    lines = []
    for mode, measures in measured.items():
        cells = [mode, _share(measures["accuracy"]), _span(measures["accuracy"])]
        tokens = measures["tokens"].mean
        cells.append(f"{tokens:,.0f}" if tokens == tokens else "·")
        if priced:
            dollars = data[mode]["dollars"]["mean"]
            cells.append("·" if dollars is None else f"{dollars:.3g}")
        lines.append([*cells, *(_share(measures.get(name)) for name in shown)])
    print_table(screen, heads, lines, heads[:4], "results.json")
    count = max((len(one.rows) for one in found.values()), default=0)
    ks = ", ".join(f"{each['k'].mean:.3g} in {m}" for m, each in measured.items() if "k" in each)
    note = (
        f"\n{count} questions; 95% is an interval, and tokens are for one answer in direct, all "
        "answers in vote, one debate in debate and roles."
    )
    screen.print(Text(f"{note} k is {ks}." if ks else note))
    for mode, one in found.items():
        for missing in one.tally.notes():
            screen.print(Text(f"{mode}: {missing}"))
    for text in remarks(data):
        screen.print(Text(text))


def _share(measure: Measure | None) -> str:
    return "·" if measure is None or measure.mean != measure.mean else f"{measure.mean:.1%}"


def _span(measure: Measure) -> str:
    return (
        f"{100 * measure.low:.0f}-{100 * measure.high:.0f}" if measure.low == measure.low else "·"
    )
