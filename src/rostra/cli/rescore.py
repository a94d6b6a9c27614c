"""`rostra rescore`: the same debates under other rules."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from rostra.cli import options
from rostra.debate.peer import judge_warnings
from rostra.errors import DataError
from rostra.rewards.metrics import debate_metrics, reward_metrics
from rostra.rewards.score import Baseline, RewardRules, Scores, score
from rostra.runs.transcripts import Stored, read_transcripts
from rostra.view.terminal import DebatePrinter


@click.command("rescore", short_help="Score stored debates again under other rules.")
@click.argument("file_or_run", type=click.Path(path_type=Path))
@options.reward
@options.consensus
@click.option("--format-penalty", type=float, help="Default: as the protocol says.")
@click.option(
    "--baseline",
    type=click.Choice(get_args(Baseline)),
    default="group",
    show_default=True,
    help="What is subtracted from a reward.",
)
@click.option("--scale", is_flag=True, help="Divide advantages by the standard deviation.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    file_or_run: Path,
    reward: str | None,
    consensus: str | None,
    format_penalty: float | None,
    baseline: Baseline,
    scale: bool,
    as_json: bool,
) -> None:
    """Compute rewards and advantages of stored debates again, without sampling anything.

    \b
    rostra rescore debate.json --reward win_minus_loss
    rostra rescore debate.json --consensus majority --json
    """
    stored = _read(file_or_run)
    for item in stored:
        if item.transcript.protocol.sides:
            raise DataError(
                f"{item.place}: a judged debate has verdicts, not votes: nothing to score again"
            )
    changes: dict[str, Any] = {
        "reward": reward,
        "consensus": consensus,
        "format_penalty": format_penalty,
    }
    changes = {k: v for k, v in changes.items() if v is not None}
    choices = {replace(RewardRules.of(s.transcript.rules), **changes) for s in stored}
    if len(choices) > 1:
        raise DataError(
            f"{file_or_run}: its debates were played under different reward rules; say which to "
            "use with --reward, --consensus and --format-penalty"
        )
    rules = replace(choices.pop(), baseline=baseline, scale=scale)
    transcripts = [s.transcript for s in stored]
    _warn(rules, {t.protocol.agents for t in transcripts}, changes)
    scores = score(transcripts, rules)
    if as_json:
        click.echo(json.dumps(_data(stored, scores, rules), indent=2, allow_nan=False))
        return
    printer = DebatePrinter(options.console())
    if len(stored) == 1:
        printer.line(f"{stored[0].place}: {len(transcripts[0].votes)} votes")
        printer.votes(transcripts[0])
        printer.scores(transcripts[0], scores, rules)
    else:
        printer.line(f"reward {rules.reward}, consensus {rules.consensus}, baseline {baseline}")
        printer.summary(transcripts, scores)


def _warn(rules: RewardRules, agents: set[int], changes: dict[str, Any]) -> None:
    """Says what the chosen rules cannot do."""
    found = []
    if rules.reward == "streams":
        for n in sorted(agents):
            found += judge_warnings(n, rules.consensus)
    else:
        found += [
            f"--{name.replace('_', '-')} has no effect with reward {rules.reward}."
            for name in ("consensus", "format_penalty")
            if name in changes
        ]
    for warning in found:
        click.echo(f"warning: {warning}", err=True)


def _read(path: Path) -> list[Stored]:
    """All transcripts, with a count while a long file is read."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed} transcripts read"))
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=None)
        stored = []
        for item in read_transcripts(path):
            stored.append(item)
            bar.advance(task)
    return stored


def _data(stored: list[Stored], scores: Scores, rules: RewardRules) -> dict[str, Any]:
    transcripts = [s.transcript for s in stored]
    debates = [
        {
            "place": item.place,
            "question": item.transcript.question.id,
            "votes": len(item.transcript.votes),
            "rewards": [
                {
                    "seat": key.seat,
                    "round": key.round,
                    "stream": key.stream,
                    "reward": value,
                    "advantage": advantages.get(key),
                }
                for key, value in rewards.items()
            ],
        }
        for item, rewards, advantages in zip(
            stored, scores.rewards, scores.advantages.groups, strict=True
        )
    ]
    metrics = debate_metrics(transcripts) | reward_metrics(transcripts, scores)
    return {
        "rules": asdict(rules),
        "debates": debates,
        "flat_groups": scores.advantages.flat_groups,
        "metrics": {k: None if v != v else v for k, v in metrics.items()},
    }
