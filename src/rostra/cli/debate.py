"""`rostra debate`: play one debate and watch it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from rostra.arena import Heard
from rostra.cli.options import console
from rostra.debate.peer import PRESETS, PeerRules
from rostra.debate.transcript import finish
from rostra.engines.address import EXAMPLE, is_address
from rostra.engines.engine import Engine
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError, DataError
from rostra.evals.answering import Answer, Choose, answer_async, open_model, plan, player_of
from rostra.learn.setup import run_of
from rostra.players.rehearsal import rehearsal
from rostra.rewards.score import RewardRules, score
from rostra.runs.config import parse_settings, peer_rules, read_toml
from rostra.runs.transcripts import check_target, write_transcript
from rostra.tasks.question import Question
from rostra.view.terminal import DebatePrinter, one_line


@click.command("debate", short_help="Play one debate about a question and watch it.")
@click.argument("question")
@click.option("--protocol", help=" or ".join(PRESETS) + ".  [default: peer-v2]")
@click.option("--agents", type=int, help="How many agents debate.  [default: 5]")
@click.option("--rounds", type=int, help="How many rounds at the most.  [default: 3]")
@click.option(
    "--engine",
    type=click.Choice(["scripted", "local", "openai"]),
    help="Who speaks: scripted rehearses with no model, local runs one here, openai asks a server. "
    " [default: scripted; with --model, what it names]",
)
@click.option(
    "--model",
    help="toy, smollm2, a folder, a run, a hub id or a .gguf file; or an address, as in "
    "http://127.0.0.1:8000/v1#qwen3.  [default: smollm2]",
)
@click.option(
    "--answer",
    "choose",
    type=click.Choice(get_args(Choose)),
    default="plurality",
    show_default=True,
    help="What is taken for the answer: the most common one, or the one that votes prefer.",
)
@click.option(
    "--stop-on-agreement",
    metavar="SHARE",
    type=float,
    help="End as soon as this share of the agents gives the same answer: 1 is all of them, 0 plays "
    "every round.  [default: 1]",
)
@click.option(
    "--adaptive",
    is_flag=True,
    help="End when all agents agree; while they do not, play more rounds, and after those more "
    "debates with more agents.",
)
@click.option(
    "--max-rounds",
    type=int,
    help="How far --adaptive goes.  [default: twice --rounds]",
)
@click.option(
    "--max-agents",
    type=int,
    help="How far --adaptive goes.  [default: twice --agents, less 1]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A TOML file with a [protocol] table; it may be a recipe.",
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
@click.option("--quiet", is_flag=True, help="Print the answer and nothing else.")
def command(
    question: str,
    protocol: str | None,
    agents: int | None,
    rounds: int | None,
    engine: str | None,
    model: str | None,
    choose: Choose,
    stop_on_agreement: float | None,
    adaptive: bool,
    max_rounds: int | None,
    max_agents: int | None,
    config: Path | None,
    settings: tuple[str, ...],
    seed: int,
    out: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Play one debate about QUESTION and print it as it happens.

    Prints every turn, who was preferred to whom, the rewards and advantages of every seat, and the
    answer.
    QUESTION is the text itself, or - to read it from standard input. A run debates by its own
    rules, unless --protocol or --config names others.

    \b
    rostra debate "What is 17 * 24?"
    rostra debate "What is 17 * 24?" --protocol peer-v1 --agents 3 --rounds 2
    rostra debate "What is 17 * 24?" --model smollm2 --set max_tokens=200
    rostra debate "What is 17 * 24?" --model http://127.0.0.1:8000/v1#qwen3
    rostra debate "What is 17 * 24?" --adaptive --quiet
    """
    given = {"agents": agents, "rounds": rounds, "stop_on_agreement": stop_on_agreement}
    changes = {k: v for k, v in given.items() if v is not None} | parse_settings(settings)
    source = run_of(model) if model and not (protocol or config) else None
    rules = peer_rules(protocol, source / "config.toml" if source else config, changes)
    effort: dict[str, Any] = {
        "choose": choose,
        "adaptive": adaptive,
        "max_rounds": max_rounds,
        "max_agents": max_agents,
        "stop_on_agreement": rules.stop_on_agreement if _wished(changes, config) else None,
    }
    settled = plan(rules, **effort)
    files = _targets(out, len(settled.stages()), overwrite)
    asked = Question("command-line", _text(question))
    for warning in settled.rules.warnings():
        click.echo(f"warning: {warning}", err=True)
    speaker = _engine(engine, model)
    screen = console()
    printer = DebatePrinter(screen)
    watch = None if quiet else _printing(printer, settled.rules)

    async def run() -> None:
        player = await player_of(speaker)
        if not quiet:
            printer.opening(asked.prompt, settled.rules.protocol(), seed)
        async with _progress(screen, speaker, quiet):
            found = await answer_async(asked, player, rules, **effort, seed=seed, watch=watch)
        kept = _keep(found, files)
        if quiet:
            click.echo(_plain(found))
            return
        printer.answer(found)
        for file in kept:
            printer.line()
            printer.line(f"Kept in {file}. Look again: rostra show {file}")

    asyncio.run(run())


def _keep(found: Answer, files: list[Path]) -> list[Path]:
    """Writes every debate that was played, each into its file."""
    kept = files[: len(found.transcripts)]
    for transcript, file in zip(found.transcripts, kept, strict=False):
        write_transcript(transcript, file)
    return kept


def _wished(changes: dict[str, Any], config: Path | None) -> bool:
    """Whether somebody said when to stop. Where nobody did, the presets' 0 is no wish: who asks
    for an answer has it when all agents agree."""
    name = "stop_on_agreement"
    return name in changes or bool(config and name in read_toml(config).get("protocol", {}))


def _printing(printer: DebatePrinter, rules: PeerRules) -> Callable[[Heard], None]:
    """Prints what is heard; after the last turn of a debate, its votes and rewards."""
    scoring = RewardRules.of(rules)
    seats = rules.agents

    def heard(event: Heard) -> None:
        nonlocal seats
        state, turn = event.state, event.turn
        if state.protocol.agents > seats:
            seats = state.protocol.agents
            printer.line()
            printer.opening(state.question.prompt, state.protocol, state.seed)
        printer.turn(state.protocol, turn, state.ballots[turn.id])
        if state.outcome:
            transcript = finish(state)
            printer.ending(transcript)
            printer.votes(transcript)
            printer.scores(transcript, score([transcript], scoring), scoring, answer=False)

    return heard


def _plain(found: Answer) -> str:
    """The answer for a script. Where there is none, the script has to know."""
    if found.answer is None:
        raise DataError(
            "no agent gave an answer in a \\boxed{}; look at the debate without --quiet"
        )
    return one_line(found.answer)


def _targets(out: Path | None, debates: int, overwrite: bool) -> list[Path]:
    """Where each debate is kept that there may be: debate.json, debate-2.json and so on."""
    if out is None:
        return []
    stem, dot, ending = out.name.partition(".")
    more = [out.with_name(f"{stem}-{i}{dot}{ending}") for i in range(2, debates + 1)]
    for file in (out, *more):
        check_target(file, overwrite)
    return [out, *more]


@asynccontextmanager
async def _progress(screen: Console, engine: Engine, quiet: bool) -> AsyncIterator[None]:
    """On a terminal, says how many tokens a model has spoken: a turn can take a while."""
    counts = getattr(engine, "counts", None)
    if counts is None or quiet or not screen.is_terminal:
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
    """The engine that was asked for; a model that is named says by itself which."""
    if name == "scripted" or (name is None and model is None):
        if model is not None:
            raise ConfigError("--model: a rehearsal has none; leave out --engine scripted")
        if name is None:
            click.echo("note: a rehearsal by scripts; name a model with --model", err=True)
        return ScriptedEngine(rehearsal())
    served = model is not None and is_address(model)
    if name == "openai" and not served:
        raise ConfigError(f"--engine openai: needs --model with an address, as in {EXAMPLE}")
    if name == "local" and served:
        raise ConfigError("--model: an address is not run here; leave out --engine local")
    model = model or "smollm2"
    with console(stderr=True).status(f"asking {model}" if served else f"loading {model}"):
        return open_model(model)


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
