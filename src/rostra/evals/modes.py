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
    Row,
    debate_row,
    direct_row,
    roles_row,
    summary,
    vote_row,
)
from rostra.evals.panel import (
    Bench,
    in_both_orders,
    panel_debates,
    panel_rows,
    panel_summary,
    win_rates,
)
from rostra.evals.statistics import Measure
from rostra.learn.lesson import all_marks
from rostra.players.player import Player
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task

Mode = Literal["direct", "vote", "debate", "roles"]
MODES: tuple[Mode, ...] = get_args(Mode)
WAVES = 1000
"""A vote asks at most so many times for another round of answers."""
JUDGE = "judge"
"""The name of the first judge of a panel; those of others begin with it."""


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
    """Seats that a single judge of a panel fills; several judges have one each."""
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
class Tally:
    """How many questions the numbers of a mode are about, and what became of the others."""

    asked: int = 0
    failed: int = 0
    """Those whose debates kept failing, and are left out."""
    error: str | None = None
    """What the first of them failed with."""
    ungraded: int = 0
    """Those that were not asked, because nobody knows the right answer."""

    def notes(self) -> list[str]:
        """What is missing, a sentence each."""
        found = []
        if self.failed:
            why = f": {self.error}" if self.error else "."
            found.append(f"{self.failed} of {self.asked} questions failed{why}")
        if self.ungraded:
            total = self.asked + self.ungraded
            found.append(
                f"{self.ungraded} of {total} questions have no known answer and were not asked."
            )
        return found


@dataclass(frozen=True, slots=True)
class Findings:
    """What a mode found out."""

    rows: list[Row]
    """One for each question that was answered."""
    measures: dict[str, Measure]
    """Means over questions, with their intervals."""
    tally: Tally = Tally()


async def examine(
    mode: Mode,
    exam: Examination,
    players: Mapping[str, Player],
    shelf: Shelf,
    progress: Progress | None = None,
) -> Findings:
    """Plays what is not on the shelf yet, and measures all of it. A question that keeps failing is
    left out and counted; one without a reference is not asked, unless all are."""
    if mode == "roles" and "opponent" not in players:
        raise ConfigError("mode roles: needs an opponent")
    if exam.open_ended:
        return await _panel(mode, exam, players, shelf, progress)
    graded = [question for question in exam.questions if question.reference is not None]
    ungraded = len(exam.questions) - len(graded)
    exam = replace(exam, questions=graded)
    desk = _Desk(mode, exam, players, shelf, progress)
    match mode:
        case "direct":
            times = -(-exam.samples // len(exam.rules.protocol().slots[0].seats))
            done = _whole(await desk.play(exam.direct(mode, range(times))), times)
            rows = desk.rows(done, lambda q, ts, ms: direct_row(q, ts, ms, exam.samples))
        case "debate":
            done = await desk.play(exam.debates())
            rows = desk.rows(done, lambda q, ts, ms: debate_row(q, ts[0], ms[0]))
        case "roles":
            done = _whole(await desk.play(exam.roles()), exam.rules.agents)
            rows = desk.rows(done, roles_row)
        case "vote":
            rows = await _vote(desk, exam)
    if desk.cause and not rows:
        raise ArenaError(
            f"mode {mode}: no question could be finished; the first failed with "
            f"{_named(desk.cause)}"
        ) from desk.cause
    tally = desk.tally([row.question for row in rows], ungraded)
    return Findings(rows, summary(rows), tally)


def _whole(transcripts: Sequence[Transcript], times: int) -> list[Transcript]:
    """The debates about questions of which all are there: a mean over some roles or some answers
    would be another measure."""
    count = Counter(transcript.question.id for transcript in transcripts)
    return [t for t in transcripts if count[t.question.id] == times]


async def _panel(
    mode: Mode,
    exam: Examination,
    players: Mapping[str, Player],
    shelf: Shelf,
    progress: Progress | None,
) -> Findings:
    """Win rates by votes of judges that did not play. The accuracy of a row is its win rate, and
    its tokens are those of one debate."""
    if mode != "roles":
        raise ConfigError(
            f"mode {mode}: these questions have no right answer; use mode roles, which asks judges"
        )
    judges = [player for name, player in players.items() if name.startswith(JUDGE)]
    if not judges or any(judge in (players["policy"], players["opponent"]) for judge in judges):
        raise ConfigError("mode roles: without right answers it needs a judge that does not play")
    bench = judges * exam.judges if len(judges) == 1 else judges
    desk = _Desk(mode, exam, {**players, JUDGE: Bench(bench)}, shelf, progress)
    played = await desk.play(panel_debates(exam.questions, exam.rules, exam.seed, len(bench)))
    done = in_both_orders(played, desk.cause)
    verdicts = panel_rows(done)
    found = panel_summary(verdicts, exam.seed)
    measures = {
        name: Measure(mean, found.get(f"{name}/low", nan), found.get(f"{name}/high", nan))
        for name, mean in found.items()
        if not name.endswith(("/low", "/high")) and name != "questions"
    }
    said, read = Counter[str](), Counter[str]()
    for transcript in done:
        said[transcript.question.id] += sum(turn.sampled for turn in transcript.turns)
        read[transcript.question.id] += sum(turn.read for turn in transcript.turns)
    rows = [
        Row(q, rate, tokens=said[q] / 2, prompt_tokens=read[q] / 2)
        for q, rate in win_rates(verdicts).items()
    ]
    paid = [[each[q] / 2 for q in said] for each in (said, read)]
    costs = {n: Measure.of(p) for n, p in zip(("tokens", "prompt_tokens"), paid, strict=True)}
    why = "both answers are malformed, or no judge voted"
    tally = desk.tally([row.question for row in rows], why=why)
    return Findings(rows, {"accuracy": measures["win_rate"], **measures, **costs}, tally)


async def _vote(desk: "_Desk", exam: Examination) -> list[Row]:
    """Asks again and again, each time those whose budget is not spent."""
    budgets = _budgets(desk, exam)
    spent = dict.fromkeys(budgets, 0)
    done: list[Transcript] = []
    open_ = [q for q in exam.questions if q.id in budgets]
    failed: set[str] = set()
    for wave in range(WAVES):
        if not open_:
            break
        debates = replace(exam, questions=open_).direct("vote", range(wave, wave + 1))
        heard = await desk.play(debates, f"vote, answer {wave + 1}")
        for transcript in heard:
            done.append(transcript)
            spent[transcript.question.id] += sum(t.sampled for t in transcript.turns)
        # One that failed is not asked again, and did not have what it was to spend.
        failed |= {q.id for q in open_} - {transcript.question.id for transcript in heard}
        open_ = [q for q in open_ if q.id not in failed and spent[q.id] < budgets[q.id]]
    done = [transcript for transcript in done if transcript.question.id not in failed]
    return desk.rows(done, lambda q, ts, ms: vote_row(q, ts, ms, budgets[q]))


def _budgets(desk: "_Desk", exam: Examination) -> dict[str, int]:
    """Tokens for each question: what its debate took, question by question."""
    if exam.budget is not None:
        return {question.id: exam.budget for question in exam.questions}
    known = desk.shelf.known("debate")
    found = {
        debate.question.id: sum(turn.sampled for turn in known[debate.seed].turns)
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
        self.cause: BaseException | None = None
        """Of the first failure."""
        self._mode: Mode = mode
        self._exam = exam
        self._players = players
        self._progress = progress

    def tally(
        self,
        answered: Sequence[str],
        ungraded: int = 0,
        why: str = "their debates failed, so there are no tokens to spend",
    ) -> Tally:
        """What became of the questions, given those that were answered, and why others were not,
        where nothing failed."""
        asked = len(self._exam.questions)
        failed = asked - len(set(answered))
        error = (_named(self.cause) if self.cause else why) if failed else None
        return Tally(asked, failed, error, ungraded)

    async def play(self, debates: Sequence[Debate], name: str = "") -> list[Transcript]:
        """The debates in their order: those on the shelf, and the others played. One that keeps
        failing is left out; only where all of a mode fail, that is an error."""
        known = dict(self.shelf.known(self._mode))
        missing = [debate for debate in debates if debate.seed not in known]
        over, total = len(debates) - len(missing), len(debates)
        tokens = 0

        def watch(event: Heard) -> None:
            nonlocal over, tokens
            tokens += event.turn.sampled
            if event.state.outcome is not None:
                transcript = finish(event.state, missing[event.debate].rules)
                self.shelf.keep(self._mode, transcript)
                known[transcript.seed] = transcript
                over += 1
            if self._progress:
                self._progress(name or self._mode, over, total, tokens)

        if missing:
            try:
                played = await play(
                    missing,
                    self._players,
                    concurrency=self._exam.concurrency,
                    retries=self._exam.retries,
                    turn_timeout=self._exam.turn_timeout,
                    watch=watch,
                )
                causes = [failure.cause for failure in played.failures]
            except ArenaError as error:
                if not known:
                    raise
                causes = [error.__cause__ or error]
            self.cause = self.cause or next(iter(causes), None)
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


def _named(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else text[:197] + "..."
