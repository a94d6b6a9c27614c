"""Debates and their scores in a terminal, and as plain lines in a pipe."""

import re
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rostra.debate.protocol import Protocol
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.debate.verdicts import Verdict
from rostra.debate.votes import Ballot
from rostra.evals.answering import Answer, read_answer
from rostra.rewards.advantages import Key
from rostra.rewards.metrics import debate_metrics, reward_metrics
from rostra.rewards.score import RewardRules, Scores
from rostra.rewards.streams import GEN, JUDGE, WHOLE

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
NO_SIGNAL = "·"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text that cannot move the cursor, change colours or reverse the direction of a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Printable text on one line."""
    return printable(" ".join(text.split()))


class DebatePrinter:
    """Writes to one console; colours and frames only where it is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rich = console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(printable(text), style), soft_wrap=not self._rich)

    def opening(self, prompt: str, protocol: Protocol, seed: int) -> None:
        turns = sum(len(slot.seats) for slot in protocol.slots)
        self.line(prompt, "bold")
        self.line(
            f"{protocol.name}: {_count(len(protocol.seats), 'seat')}, "
            f"{_count(protocol.rounds, 'round')}, at most {_count(turns, 'turn')}, seed {seed}",
            "dim",
        )

    def turn(self, protocol: Protocol, turn: Turn, ballot: Ballot) -> None:
        """One turn: its sections, or what is wrong with it and the whole text."""
        seat = protocol.seats[turn.id.seat]
        kind = protocol.slots[turn.slot].kind
        when = f"round {turn.id.round + 1}" if kind == "speak" else kind
        persona = f" ({seat.persona.name})" if seat.persona else ""
        colour = COLOURS[seat.index % len(COLOURS)]
        self.line()
        self.line(f"{seat.name}{persona}, {when}", f"bold {colour}")
        if turn.parsed.error:
            self.line(f"  malformed: {turn.parsed.error}", "red")
            self._body(turn.text)
            return
        if not turn.parsed.sections:
            self._body(turn.text)
        for name, section in turn.parsed.sections.items():
            if name == "comparison":
                votes = [f"{v.a.seat} {v.op} {v.b.seat}" for v in ballot.votes]
                self._body(", ".join(votes) or "none", "votes")
            else:
                self._body(section.text, name.replace("_", " "))

    def _body(self, text: str, label: str = "") -> None:
        lines = printable(text).splitlines() or [""]
        if label:
            lines[0] = f"{label}: {lines[0]}"
        for line in lines:
            if self._rich:
                self._console.print(Padding(Text(line), (0, 0, 0, 2)))
            else:
                self.line(f"  {line}")

    def ending(self, transcript: Transcript) -> None:
        outcome = transcript.outcome
        how = {
            "consensus": "everybody agreed",
            "agreement": "the answers agree",
            "rounds": "all rounds were played",
            "malformed": f"turn {outcome.by} was malformed",
        }[outcome.ended]
        self.line()
        self.line(f"Ended after {_count(outcome.rounds, 'round')}: {how}.")

    def votes(self, transcript: Transcript) -> None:
        """How often the agent of a row was preferred to the agent of a column."""
        if not transcript.votes:
            self.line("No votes.")
            return
        agents = transcript.protocol.agents
        wins = [[0] * agents for _ in range(agents)]
        ties = [[0] * agents for _ in range(agents)]
        for vote in transcript.votes:
            a, b = vote.a.seat, vote.b.seat
            if vote.op == "=":
                ties[a][b] += 1
                ties[b][a] += 1
            else:
                wins[a][b] += 1
        columns = {
            f"over {b}": [
                _tally(wins[a][b], ties[a][b]) if a != b else NO_SIGNAL for a in range(agents)
            ]
            for b in range(agents)
        }
        self._seat_table("votes: row preferred to column; = for ties", transcript, columns)

    def verdicts(self, verdicts: Sequence[Verdict], protocol: Protocol) -> None:
        for verdict in verdicts:
            said = (
                ", ".join(
                    f"{side} {share:.0%}"
                    for side, share in zip(protocol.sides, verdict.confidence, strict=True)
                )
                if verdict.confidence
                else f"unreadable: {verdict.error}"
            )
            self.line(f"Verdict: {said}", "bold")

    def scores(
        self, transcript: Transcript, scores: Scores, rules: RewardRules, *, answer: bool = True
    ) -> None:
        """Rewards, and advantages in brackets, of every seat of the first debate; and the answer
        that most of them gave."""
        self._rewards(transcript, scores, rules)
        found = read_answer([transcript])
        if answer and found.answer is not None:
            self.answer(found)

    def answer(self, found: Answer) -> None:
        """What was answered, by how many, and after how much debate, in one line."""
        self.line()
        if found.answer is None:
            self.line("Answer: none, because no agent gave one in a \\boxed{}", "bold")
            return
        gave = f"{round(found.agreement * found.agents)} of {_count(found.agents, 'agent')}"
        how = {
            "votes": f"preferred by votes, {gave}",
            "plurality: no votes": f"{gave}, without votes",
        }.get(found.how, gave)
        debates = len(found.transcripts)
        where = f" in {_count(debates, 'debate')}" if debates > 1 else ""
        after = f"after {_count(found.rounds, 'round')}{where}"
        self.line(f"Answer: {one_line(found.answer)} ({how}, {after})", "bold")

    def _rewards(self, transcript: Transcript, scores: Scores, rules: RewardRules) -> None:
        rewards, advantages = scores.rewards[0], scores.advantages.groups[0]
        seats = range(len(transcript.protocol.seats))

        def cells(round_: int | None, stream: str) -> list[str]:
            return [_cell(rewards, advantages, Key(seat, round_, stream)) for seat in seats]

        if rules.reward != "streams":
            columns = {"reward": cells(None, WHOLE)}
            self._seat_table(f"{rules.reward} (advantage)", transcript, columns)
            return
        slots = {slot.round: slot.kind for slot in transcript.protocol.slots}
        names = {r: f"round {r + 1}" if kind == "speak" else kind for r, kind in slots.items()}
        solving = {names[r]: cells(r, GEN) for r, kind in slots.items() if kind == "speak"}
        judging = {names[r]: cells(r, JUDGE) for r in slots}
        title = "gen reward (advantage): votes for and against each solution"
        self._seat_table(title, transcript, solving)
        title = f"judge reward (advantage): agreement with the others, {rules.consensus}"
        self._seat_table(title, transcript, judging)

    def _seat_table(
        self, title: str, transcript: Transcript, columns: Mapping[str, Sequence[str]]
    ) -> None:
        """A row for each seat. Columns that do not fit come below the others: no number is cut."""
        names = [printable(seat.name) for seat in transcript.protocol.seats]
        room = self._console.width - max(map(len, names)) - 4
        self.line()
        self.line(title, "bold")
        left = dict(columns)
        while left:
            table = self._table()
            table.add_column("", no_wrap=True)
            used = 0
            chosen: list[Sequence[str]] = []
            for name, cells in list(left.items()):
                width = max(len(name), *map(len, cells)) + 3
                if chosen and used + width > room:
                    break
                used += width
                chosen.append(left.pop(name))
                table.add_column(name, justify="right", no_wrap=True)
            for row, name in enumerate(names):
                table.add_row(Text(name), *[cells[row] for cells in chosen])
            self._console.print(Padding(table, (0, 0, 0, 2 if self._rich else 0), expand=False))

    def summary(self, transcripts: Sequence[Transcript], scores: Scores) -> None:
        """Many debates at once: means over all of them."""
        metrics = debate_metrics(transcripts) | reward_metrics(transcripts, scores)
        table = self._table()
        table.add_column("metric", overflow="fold")
        table.add_column("value", justify="right")
        for name, value in metrics.items():
            table.add_row(Text(printable(name)), NO_SIGNAL if value != value else f"{value:.4f}")
        self.line()
        self.line(f"{_count(len(transcripts), 'debate')}, means", "bold")
        self._console.print(table)

    def _table(self) -> Table:
        return Table(
            box=box.HORIZONTALS if self._rich else None,
            show_edge=False,
            header_style="dim" if self._rich else "",
            pad_edge=False,
        )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _tally(wins: int, ties: int) -> str:
    return f"{wins} {ties}=" if ties else str(wins)


def _cell(rewards: Mapping[Key, float | None], advantages: Mapping[Key, float], key: Key) -> str:
    reward = rewards.get(key)
    if reward is None:
        return NO_SIGNAL
    return f"{_unsigned_zero(reward):+.2f} ({_unsigned_zero(advantages[key]):+.2f})"


def _unsigned_zero(value: float) -> float:
    """Rounded as shown, and +0.00 rather than -0.00."""
    return round(value, 2) + 0.0
