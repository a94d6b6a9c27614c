"""`rostra show`: print stored transcripts."""

from pathlib import Path

import click

from rostra.cli.options import console
from rostra.errors import DataError
from rostra.rewards.score import RewardRules, score
from rostra.runs.transcripts import read_transcripts
from rostra.view.terminal import DebatePrinter


@click.command("show", short_help="Print stored transcripts.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--number", type=int, help="Only this one of the file, counted from 1.")
def command(file: Path, number: int | None) -> None:
    """Print the transcripts in FILE: a transcript, a file of many, or a run directory."""
    printer = DebatePrinter(console())
    shown = 0
    for count, stored in enumerate(read_transcripts(file), 1):
        if number is not None and count != number:
            continue
        shown += 1
        transcript = stored.transcript
        if shown > 1:
            printer.line()
        printer.opening(transcript.question.prompt, transcript.protocol, transcript.seed)
        for turn in transcript.turns:
            printer.turn(transcript.protocol, turn, transcript.ballots[turn.id])
        printer.ending(transcript)
        if not transcript.protocol.sides:
            rules = RewardRules.of(transcript.rules)
            printer.votes(transcript)
            printer.scores(transcript, score([transcript], rules), rules)
        printer.verdicts(transcript.verdicts, transcript.protocol)
        if number is not None:
            break
    if not shown:
        raise DataError(f"{file}: has no transcript number {number}")
