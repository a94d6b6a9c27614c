"""Debates in a terminal and in a pipe."""

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rostra.arena import Debate
from rostra.debate.judged import consultancy
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.protocol import Protocol
from rostra.debate.seat import Persona
from rostra.debate.transcript import Transcript
from rostra.debate.verdicts import Verdict
from rostra.players.player import Player
from rostra.players.scripted import Line, ScriptedPlayer
from rostra.rewards.score import RewardRules, score
from rostra.tasks.question import Question
from rostra.view.terminal import DebatePrinter, printable
from tests.playing import played

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def paper(width: int = 10_000) -> tuple[DebatePrinter, io.StringIO]:
    """A printer into a pipe."""
    out = io.StringIO()
    return DebatePrinter(Console(file=out, width=width, no_color=True)), out


def screen(width: int = 60) -> tuple[DebatePrinter, io.StringIO]:
    """A printer on a terminal."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", _environ={}
    )
    return DebatePrinter(console), out


def votes_line(state: object, view: object) -> str:
    """Everybody holds 0 above 1, and 1 and 2 for equal, where they may say so."""
    sections = state.protocol.slots[view.slot].sections  # type: ignore[attr-defined]
    bodies = {
        "comparison": "Agent 0 > Agent 1\nAgent 1 = Agent 2",
        "consensus": "NO",
        "solution": "First line\nand [bold]second[/bold] :smile:",
    }
    return "".join(f"<{name}>{bodies.get(name, 'N/A')}</{name}>" for name in sections)


def peer(rules: PeerRules, line: Line = votes_line, prompt: str = "Why?") -> Transcript:
    return played(Debate.peer(Question("q", prompt), rules, 3), ScriptedPlayer(line))


def show(printer: DebatePrinter, transcript: Transcript) -> None:
    printer.opening(transcript.question.prompt, transcript.protocol, transcript.seed)
    for turn in transcript.turns:
        printer.turn(transcript.protocol, turn, transcript.ballots[turn.id])
    printer.ending(transcript)
    printer.votes(transcript)
    if transcript.rules:
        rules = RewardRules.of(transcript.rules)
        printer.scores(transcript, score([transcript], rules), rules)


def text_of(transcript: Transcript) -> str:
    printer, out = paper()
    show(printer, transcript)
    return out.getvalue()


@given(st.text() | st.text("\x1b\x9b\x07\x08\r\n\t\u202e\u2066\u200f[31m;]0a"))
def test_printable_text_holds_nothing_that_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    steering = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    for c in shown:
        assert c in "\n\t" or unicodedata.category(c) != "Cc"
        assert unicodedata.bidirectional(c) not in steering
    assert len(shown) == len(text.replace("\r\n", "\n"))
    assert printable(shown) == shown


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"])))
def test_harmless_text_is_printed_as_it_is(text: str) -> None:
    assert printable(text + "\n\t") == text + "\n\t"


@given(st.text(st.characters(categories=["Cs", "Ll"])))
def test_printable_text_can_be_written_to_any_utf8_stream(text: str) -> None:
    assert printable(text).encode().decode() == printable(text)


def test_an_escape_sequence_of_a_model_reaches_no_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eback\rover"

    def line(state: object, view: object) -> str:
        return votes_line(state, view).replace("First", evil)

    for transcript in (
        peer(peer_v2(agents=3, rounds=1), line, prompt=f"What is {evil}?"),
        peer(peer_v2(agents=3, rounds=1), lambda state, view: evil),
    ):
        printer, out = screen()
        show(printer, transcript)
        assert "\N{REPLACEMENT CHARACTER}[2J" in out.getvalue()
        left = ESCAPES.sub("", out.getvalue())
        assert not set(left) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
        assert not set(text_of(transcript)) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}


def test_an_escape_sequence_in_the_rules_of_a_stored_debate_reaches_no_terminal() -> None:
    evil = "\x1b[2J"
    rules = peer_v2(
        name=f"peer{evil}", agents=3, rounds=1, personas=(Persona(f"Good{evil}", "Be good."),)
    )
    assert "\x1b" not in text_of(peer(rules))


def test_marks_in_a_text_are_not_read_as_styles() -> None:
    assert "and [bold]second[/bold] :smile:" in text_of(peer(peer_v2(agents=3, rounds=1)))


def test_a_pipe_gets_plain_lines_as_long_as_they_are() -> None:
    long = "word " * 3000

    def line(state: object, view: object) -> str:
        return votes_line(state, view).replace("First line", long)

    text = text_of(peer(peer_v2(agents=3, rounds=1, max_tokens=20_000), line))
    assert "\x1b" not in text
    assert f"  solution: {long.rstrip()}" in text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_terminal_gets_colours_and_no_line_wider_than_itself(width: int) -> None:
    def line(state: object, view: object) -> str:
        return votes_line(state, view).replace("First", "漢字" * 60 + " " + "x" * 200 + " é" * 50)

    printer, out = screen(width)
    show(printer, peer(peer_v2(agents=6, rounds=4), line, prompt="Why? " * 40))
    assert "\x1b[" in out.getvalue()
    lines = ESCAPES.sub("", out.getvalue()).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) > 100


def test_every_seat_has_its_own_colour() -> None:
    printer, out = screen()
    show(printer, peer(peer_v2(agents=3, rounds=1)))
    heads = re.findall(r"(\x1b\[[0-9;]*m)Agent (\d) \(", out.getvalue())
    assert len(set(heads)) == 3
    assert len({colour for colour, _ in heads}) == 3


def test_a_debate_is_printed_with_its_turns_votes_and_rewards() -> None:
    text = text_of(peer(peer_v2(agents=3, rounds=1)))
    assert text.startswith("Why?\npeer-v2: 3 seats, 1 round, at most 6 turns, seed 3\n\n")
    assert "Agent 0 (Methodical Analyst), round 1\n  solution: First line\n  and " in text
    assert "  votes: none\n" in text
    assert "Agent 2 (Devil's Advocate), ballot\n  evaluation: N/A\n  votes: 0 > 1\n" in text
    assert "Ended after 1 round: all rounds were played.\n" in text
    rows = [line.split() for line in text.splitlines()]
    at = rows.index(["over", "0", "over", "1", "over", "2"])
    assert rows[at + 1 : at + 4] == [
        ["Agent", "0", "·", "1", "0"],
        ["Agent", "1", "0", "·", "0", "1="],
        ["Agent", "2", "0", "0", "1=", "·"],
    ]
    at = next(i for i, row in enumerate(rows) if row[:3] == ["gen", "reward", "(advantage):"])
    assert rows[at + 1 : at + 5] == [
        ["round", "1"],
        ["Agent", "0", "+1.00", "(+0.83)"],
        ["Agent", "1", "-0.50", "(-0.67)"],
        ["Agent", "2", "+0.00", "(-0.17)"],
    ]


def test_no_signal_is_a_dot_and_not_a_zero() -> None:
    text = text_of(peer(peer_v2(agents=3, rounds=1)))
    judge = text[text.index("judge reward (advantage): agreement with the others") :]
    assert [line.split() for line in judge.splitlines()[1:5]] == [
        ["round", "1", "ballot"],
        ["Agent", "0", "·", "·"],
        ["Agent", "1", "·", "-0.50", "(+0.00)"],
        ["Agent", "2", "·", "·"],
    ]


def test_one_scalar_per_agent_is_printed_as_one_column() -> None:
    text = text_of(peer(peer_v1(agents=3, rounds=1)))
    at = text.index("win_rate (advantage)")
    assert [line.split() for line in text[at:].splitlines()[1:]] == [
        ["reward"],
        ["Agent", "0", "+1.00", "(+0.67)"],
        ["Agent", "1", "+0.00", "(-0.33)"],
        ["Agent", "2", "+0.00", "(-0.33)"],
    ]


def test_a_malformed_turn_is_printed_whole_with_what_is_wrong_with_it() -> None:
    text = text_of(peer(peer_v1(agents=3), lambda state, view: "I would\nrather not."))
    assert "Agent 0, round 1\n  malformed: no <solution> section where it belongs\n" in text
    assert "  I would\n  rather not.\n" in text
    assert "Ended after 0 rounds: turn 0.0 was malformed.\nNo votes.\n" in text


def test_an_agreement_is_printed_as_the_ending() -> None:
    def line(state: object, view: object) -> str:
        return votes_line(state, view).replace("NO", "YES")

    text = text_of(peer(peer_v1(agents=3, rounds=4), line))
    assert "Ended after 1 round: everybody agreed.\n" in text


def test_speeches_and_verdicts_of_a_judged_debate_are_printed() -> None:
    question = Question("q", "Who?", choices=("A", "B"))
    players: dict[str, Player] = {
        "policy": ScriptedPlayer(["He did.\nI saw it.", ""]),
        "judge": ScriptedPlayer(["Debater_A | 91%"]),
    }
    transcript = played(Debate(question, consultancy(0)), players)
    printer, out = paper()
    for turn in transcript.turns:
        printer.turn(transcript.protocol, turn, transcript.ballots[turn.id])
    printer.verdicts(transcript.verdicts, transcript.protocol)
    text = out.getvalue()
    assert "Debater_A, round 1\n  He did.\n  I saw it.\n" in text
    assert "Judge, verdict\n  Debater_A | 91%\n" in text
    assert text.endswith("Verdict: Debater_A 91%, Debater_B 9%\n")


def test_an_unreadable_verdict_is_called_so() -> None:
    protocol: Protocol = consultancy(0)
    printer, out = paper()
    author = peer(peer_v2(agents=3, rounds=1)).turns[0].id
    printer.verdicts([Verdict(author, None, "no such line")], protocol)
    assert out.getvalue() == "Verdict: unreadable: no such line\n"


def test_many_debates_are_summed_up_as_means() -> None:
    one, two = peer(peer_v2(agents=3, rounds=1)), peer(peer_v2(agents=3, rounds=1), lambda s, v: "")
    printer, out = paper()
    printer.summary([one, two], score([one, two], RewardRules()))
    rows = dict(re.findall(r"^(\S+)\s+(\S+)$", out.getvalue(), re.MULTILINE))
    assert "2 debates, means" in out.getvalue()
    assert rows["parse_error"] == "0.5000"
    assert rows["pairwise_total_votes"] == f"{len(one.votes) / 2:.4f}"


def test_a_mean_over_nothing_is_a_dot() -> None:
    aborted = peer(peer_v1(agents=3), lambda state, view: "")
    assert aborted.rules is not None
    printer, out = paper()
    printer.summary([aborted], score([aborted], RewardRules.of(aborted.rules)))
    rows = dict(re.findall(r"^(\S+)\s+(\S+)$", out.getvalue(), re.MULTILINE))
    assert rows["v2/missing_comparisons"] == "·"
    assert rows["parse_error"] == "1.0000"
