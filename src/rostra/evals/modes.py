"""The four ways to ask a policy a question.

direct   one turn, alone
vote     many turns, alone; the most common answer, for the tokens that a debate costs
debate   a whole debate with itself
roles    a debate against fixed opponents, the policy in every seat in turn

Where a question has no right answer there is only one: the policy against an opponent, by the votes
of judges that did not play (`evals.panel`). It takes the place of roles.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Literal, Protocol, get_args

from rostra.arena import Debate, Heard, play
from rostra.debate.peer import PeerRules
from rostra.debate.transcript import Transcript, finish
from rostra.errors import ArenaError, ConfigError
from rostra.evals.accuracy import (
    Marks,
    Measure,
    Row,
    debate_row,
    direct_row,
    roles_row,
    summary,
    vote_row,
)
from rostra.evals.panel import Bench, panel_debates, panel_rows, panel_summary, win_rates
from rostra.learn.lesson import all_marks
from rostra.players.player import Player
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task

Mode = Literal["direct", "vote", "debate", "roles"]
MODES: tuple[Mode, ...] = get_args(Mode)
WAVES = 1000
"""A vote asks at most so many times for another round of answers."""


class Shelf(Protocol):
    """Where debates are kept as soon as they are over; `evals.store` has one on disk."""

    def known(self, mode: Mode) -> Mapping[int, Transcript]:
        """The debates of a mode that are there, by seed."""

    def keep(self, mode: Mode, transcript: Transcript) -> None: ...


Progress = Callable[[str, int, int, int], None]
"""Called with what is played, debates that are over, debates in all, and tokens sampled so far."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What is asked of whom, and how."""

    task: Task
    questions: Sequence[Question]
    rules: PeerRules
    seed: int = 0
    samples: int = 5
    """direct: answers to a question."""
    temperature: float | None = None
    """direct and vote: of every seat; None leaves it to the rules."""
    budget: int | None = None
    """vote: tokens for a question; None is what its debate took."""
    judges: int = 3
    """Of a panel."""
    concurrency: int = 64
    """Debates at a time."""
    retries: int = 2
    turn_timeout: float | None = 600.0

    @property
    def open_ended(self) -> bool:
        """Whether no question has a right answer."""
        return all(question.reference is None for question in self.questions)

    def direct(self, mode: Mode, times: range) -> list[Debate]:
        """Whoever opens a debate answers alone, once for each of `times`."""
        protocol = self.rules.opening(self.temperature)
        if mode == "direct" and self.samples < len(protocol.slots[0].seats):
            few = replace(protocol.slots[0], seats=protocol.slots[0].seats[: self.samples])
            protocol = replace(protocol, slots=(few,))
        return [
            Debate(question, protocol, derive(self.seed, mode, question.id, time))
            for time in times
            for question in self.questions
        ]

    def debates(self) -> list[Debate]:
        return [
            Debate.peer(question, self.rules, derive(self.seed, "debate", question.id))
            for question in self.questions
        ]

    def roles(self) -> list[Debate]:
        """One debate for each question and seat."""
        protocol = self.rules.protocol()
        return [
            Debate(
                question,
                replace(
                    protocol,
                    seats=tuple(
                        replace(s, player="policy" if s.index == seat else "opponent")
                        for s in protocol.seats
                    ),
                ),
                derive(self.seed, "roles", question.id, seat),
            )
            for question in self.questions
            for seat in range(self.rules.agents)
        ]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a mode found out."""

    rows: list[Row]
    """One for each question that was answered."""
    measures: dict[str, Measure]
    """Means over questions, with their intervals."""


async def examine(
    mode: Mode,
    exam: Examination,
    players: Mapping[str, Player],
    shelf: Shelf,
    progress: Progress | None = None,
) -> Findings:
    """Plays what is not on the shelf yet, and measures all of it. A question that keeps failing is
    left out."""
    if mode == "roles" and "opponent" not in players:
        raise ConfigError("mode roles: needs an opponent")
    desk = _Desk(mode, exam, players, shelf, progress)
    if exam.open_ended:
        return await _panel(mode, desk, exam, players)
    match mode:
        case "direct":
            openers = len(exam.rules.protocol().slots[0].seats)
            done = await desk.play(exam.direct(mode, range(-(-exam.samples // openers))))
            rows = desk.rows(done, lambda q, ts, ms: direct_row(q, ts, ms, exam.samples))
        case "debate":
            done = await desk.play(exam.debates())
            rows = desk.rows(done, lambda q, ts, ms: debate_row(q, ts[0], ms[0]))
        case "roles":
            rows = desk.rows(await desk.play(exam.roles()), roles_row)
        case "vote":
            rows = await _vote(desk, exam)
    return Findings(rows, summary(rows))


async def _panel(
    mode: Mode, desk: "_Desk", exam: Examination, players: Mapping[str, Player]
) -> Findings:
    """Win rates by votes of judges that did not play. The accuracy of a row is its win rate."""
    if mode != "roles":
        raise ConfigError(
            f"mode {mode}: these questions have no right answer; use mode roles, which asks judges"
        )
    judge = players.get("judge")
    if judge is None or judge in (players["policy"], players["opponent"]):
        raise ConfigError("mode roles: without right answers it needs a judge that does not play")
    debates = panel_debates(exam.questions, exam.rules, exam.seed, exam.judges)
    desk = desk.seated({**players, "judge": Bench([judge] * exam.judges)})
    done = await desk.play(debates)
    verdicts = panel_rows(done)
    found = panel_summary(verdicts, exam.seed)
    measures = {
        name: Measure(mean, found.get(f"{name}/low", nan), found.get(f"{name}/high", nan))
        for name, mean in found.items()
        if not name.endswith(("/low", "/high")) and name != "questions"
    }
    said, read = Counter[str](), Counter[str]()
    for transcript in done:
        said[transcript.question.id] += sum(len(turn.tokens) for turn in transcript.turns)
        read[transcript.question.id] += sum(len(turn.observation) for turn in transcript.turns)
    rows = [
        Row(q, rate, tokens=said[q], prompt_tokens=read[q])
        for q, rate in win_rates(verdicts).items()
    ]
    costs = {name: summary(rows)[name] for name in ("tokens", "prompt_tokens")}
    return Findings(rows, {"accuracy": measures["win_rate"], **measures, **costs})


async def _vote(desk: "_Desk", exam: Examination) -> list[Row]:
    """Asks again and again, each time those whose budget is not spent."""
    budgets = _budgets(desk, exam)
    spent = dict.fromkeys(budgets, 0)
    done: list[Transcript] = []
    open_ = [q for q in exam.questions if q.id in budgets]
    for wave in range(WAVES):
        if not open_:
            break
        debates = replace(exam, questions=open_).direct("vote", range(wave, wave + 1))
        heard = await desk.play(debates, f"vote, answer {wave + 1}")
        for transcript in heard:
            done.append(transcript)
            spent[transcript.question.id] += sum(len(t.tokens) for t in transcript.turns)
        # One that failed is not asked again.
        answered = {transcript.question.id for transcript in heard}
        open_ = [q for q in open_ if q.id in answered and spent[q.id] < budgets[q.id]]
    return desk.rows(done, lambda q, ts, ms: vote_row(q, ts, ms, budgets[q]))


def _budgets(desk: "_Desk", exam: Examination) -> dict[str, int]:
    """Tokens for each question: what its debate took, question by question."""
    if exam.budget is not None:
        return {question.id: exam.budget for question in exam.questions}
    known = desk.shelf.known("debate")
    found = {
        debate.question.id: sum(len(turn.tokens) for turn in known[debate.seed].turns)
        for debate in exam.debates()
        if debate.seed in known
    }
    if not found:
        raise ConfigError(
            "mode vote: has the tokens of a debate to spend, so it needs the mode debate before "
            "it, or a budget"
        )
    return found


class _Desk:
    """Where one mode is played and marked."""

    def __init__(
        self,
        mode: Mode,
        exam: Examination,
        players: Mapping[str, Player],
        shelf: Shelf,
        progress: Progress | None,
    ) -> None:
        self.shelf = shelf
        self._mode: Mode = mode
        self._exam = exam
        self._players = players
        self._progress = progress

    def seated(self, players: Mapping[str, Player]) -> "_Desk":
        """The same with other players."""
        return _Desk(self._mode, self._exam, players, self.shelf, self._progress)

    async def play(self, debates: Sequence[Debate], name: str = "") -> list[Transcript]:
        """The debates in their order: those on the shelf, and the others played. One that keeps
        failing is left out; only where all of a mode fail, that is an error."""
        known = dict(self.shelf.known(self._mode))
        missing = [debate for debate in debates if debate.seed not in known]
        over, total = len(debates) - len(missing), len(debates)
        tokens = 0

        def watch(event: Heard) -> None:
            nonlocal over, tokens
            tokens += len(event.turn.tokens)
            if event.state.outcome is not None:
                transcript = finish(event.state, missing[event.debate].rules)
                self.shelf.keep(self._mode, transcript)
                known[transcript.seed] = transcript
                over += 1
            if self._progress:
                self._progress(name or self._mode, over, total, tokens)

        if missing:
            try:
                await play(
                    missing,
                    self._players,
                    concurrency=self._exam.concurrency,
                    retries=self._exam.retries,
                    turn_timeout=self._exam.turn_timeout,
                    watch=watch,
                )
            except ArenaError:
                if not known:
                    raise
        return [known[debate.seed] for debate in debates if debate.seed in known]

    def rows(
        self,
        transcripts: Sequence[Transcript],
        measure: Callable[[str, Sequence[Transcript], Sequence[Marks]], Row],
    ) -> list[Row]:
        """One row for each question that was answered, in the order of questions."""
        marks = all_marks(transcripts, self._exam.task)
        groups: dict[str, tuple[list[Transcript], list[Marks]]] = {}
        for transcript, known in zip(transcripts, marks, strict=True):
            group = groups.setdefault(transcript.question.id, ([], []))
            group[0].append(transcript)
            group[1].append(known)
        order = [question.id for question in self._exam.questions if question.id in groups]
        return [measure(question, *groups[question]) for question in order]
