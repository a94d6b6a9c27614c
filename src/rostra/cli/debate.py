"""`rostra debate`: play one debate and watch it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from rich.console import Console

from rostra.arena import Debate, Heard, play
from rostra.cli.options import console
from rostra.debate.peer import PRESETS
from rostra.engines.engine import Engine
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError, DataError
from rostra.players.model import ModelPlayer
from rostra.players.rehearsal import rehearsal
from rostra.rewards.score import RewardRules, score
from rostra.runs.config import parse_settings, peer_rules
from rostra.runs.transcripts import check_target, write_transcript
from rostra.tasks.question import Question
from rostra.view.terminal import DebatePrinter


@click.command("debate", short_help="Play one debate about a question and watch it.")
@click.argument("question")
@click.option("--protocol", help=" or ".join(PRESETS) + ".  [default: peer-v2]")
@click.option("--agents", type=int, help="How many agents debate.  [default: 5]")
@click.option("--rounds", type=int, help="How many rounds at the most.  [default: 3]")
@click.option(
    "--engine",
    type=click.Choice(["scripted", "local"]),
    help="Who speaks: scripted rehearses with no model, local runs one here.  [default: scripted, "
    "or local with --model]",
)
@click.option(
    "--model",
    help="For the local engine: toy, smollm2, a folder, a hub id or a .gguf file.  [default: "
    "smollm2]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A TOML file with a [protocol] table.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="One setting of the protocol, as in --set closing_ballot=false. Can be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Keep the transcript in this file.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if there is one.")
def command(
    question: str,
    protocol: str | None,
    agents: int | None,
    rounds: int | None,
    engine: str | None,
    model: str | None,
    config: Path | None,
    settings: tuple[str, ...],
    seed: int,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Play one debate about QUESTION and print it as it happens.

    Prints every turn, who was preferred to whom, and the rewards and advantages of every seat.
    QUESTION is the text itself, or - to read it from standard input.

    \b
    rostra debate "What is 17 * 24?"
    rostra debate "What is 17 * 24?" --protocol peer-v1 --agents 3 --rounds 2
    rostra debate "What is 17 * 24?" --model smollm2 --set max_tokens=200
    """
    given = {"agents": agents, "rounds": rounds}
    changes = {k: v for k, v in given.items() if v is not None} | parse_settings(settings)
    rules = peer_rules(protocol, config, changes)
    if out:
        check_target(out, overwrite)
    asked = Question("command-line", _text(question))
    screen = console()
    printer = DebatePrinter(screen)
    for warning in rules.warnings():
        click.echo(f"warning: {warning}", err=True)
    compiled = rules.protocol()
    speaker = _engine(engine, model)
    printer.opening(asked.prompt, compiled, seed)

    def heard(event: Heard) -> None:
        printer.turn(compiled, event.turn, event.state.ballots[event.turn.id])

    async def run() -> None:
        player = ModelPlayer(await speaker.sampler(), speaker.chat)
        async with _progress(screen, speaker):
            played = await play([Debate(asked, compiled, seed, rules)], player, watch=heard)
        transcript = played.transcripts[0]
        scoring = RewardRules.of(rules)
        printer.ending(transcript)
        printer.votes(transcript)
        printer.scores(transcript, score([transcript], scoring), scoring)
        if out:
            write_transcript(transcript, out)
            printer.line()
            printer.line(f"Kept in {out}. Look again: rostra show {out}")

    asyncio.run(run())


@asynccontextmanager
async def _progress(screen: Console, engine: Engine) -> AsyncIterator[None]:
    """On a terminal, says how many tokens a model has spoken: a turn can take a while."""
    counts = getattr(engine, "counts", None)
    if counts is None or not screen.is_terminal:
        yield
        return
    with screen.status("the agents are reading") as status:

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.3)
                if counts.sampled:
                    status.update(f"the agents are speaking: {counts.sampled} tokens")

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


def _engine(name: str | None, model: str | None) -> Engine:
    """The engine that was asked for; naming a model asks for the local one."""
    if name == "local" or (name is None and model is not None):
        # torch takes seconds to import, and a rehearsal does without.
        from rostra.engines.local.engine import LocalEngine

        model = model or "smollm2"
        with console(stderr=True).status(f"loading {model}"):
            return LocalEngine(model)
    if model is not None:
        raise ConfigError("--model is for the local engine: leave out --engine scripted")
    return ScriptedEngine(rehearsal())


def _text(question: str) -> str:
    if question == "-":
        try:
            question = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError:
            raise DataError("the question on standard input is not UTF-8 text") from None
    elif any("\ud800" <= c <= "\udfff" for c in question):
        raise DataError("the question is not UTF-8 text")
    if not question.strip():
        raise DataError('the question is empty: try rostra debate "What is 17 * 24?"')
    return question.strip()
