"""Draws docs/images/debate.svg: a rehearsed debate as a terminal shows it, its middle left out."""

import asyncio
import io
import re
from pathlib import Path

from rich.console import Console

from rostra import Debate, ModelPlayer, Question, RewardRules, ScriptedEngine, peer_v2, play, score
from rostra.players.rehearsal import rehearsal
from rostra.view.terminal import DebatePrinter

PICTURE = Path(__file__).parent / "images" / "debate.svg"
QUESTION = "What is 17 * 24?"
SHOWN = 2
"""Turns of the first and of the last slot that are in the picture."""


def main() -> None:
    rules = peer_v2(rounds=2)
    engine = ScriptedEngine(rehearsal())
    player = ModelPlayer(asyncio.run(engine.sampler()), engine.chat)
    debate = Debate.peer(Question("picture", QUESTION), rules)
    transcript = asyncio.run(play([debate], player)).transcripts[0]
    console = Console(
        record=True, width=96, force_terminal=True, color_system="truecolor", file=io.StringIO()
    )
    printer = DebatePrinter(console)
    printer.opening(QUESTION, transcript.protocol, transcript.seed)
    second = [turn for turn in transcript.turns if turn.id.round == 1]
    for turn in (*transcript.turns[:SHOWN], *second[:SHOWN]):
        printer.turn(transcript.protocol, turn, transcript.ballots[turn.id])
    printer.line()
    printer.line("  ...", "dim")
    printer.ending(transcript)
    printer.votes(transcript)
    scoring = RewardRules.of(rules)
    printer.scores(transcript, score([transcript], scoring), scoring)
    PICTURE.parent.mkdir(exist_ok=True)
    title = f'rostra debate "{QUESTION}" --rounds 2'
    drawn = console.export_svg(title=title, unique_id="debate")
    # Without the web fonts and the comment: a picture that fetches nothing.
    drawn = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", drawn, flags=re.DOTALL)
    PICTURE.write_text(drawn)


if __name__ == "__main__":
    main()
