"""Plays many debates at once. The only place that waits for turns.

One supervisor owns every task. An engine that fails at a turn fails its debate: the other seats are
cancelled and awaited, and the debate is played again, whole, with the same seeds. A debate that
keeps failing is given up and counted. Anything else that raises, a bug or a dead engine, ends
everything at once.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field

from rostra.debate.peer import PeerRules
from rostra.debate.protocol import Protocol
from rostra.debate.state import State
from rostra.debate.transcript import Transcript, finish
from rostra.debate.turn import Turn
from rostra.debate.views import View
from rostra.errors import ArenaError, ConfigError, EngineError, EngineUnavailable, RostraError
from rostra.players.player import Player, Reply, check_completion
from rostra.tasks.question import Question


@dataclass(frozen=True, slots=True)
class Debate:
    """A debate to be played."""

    question: Question
    protocol: Protocol
    seed: int = 0
    rules: PeerRules | None = None
    """The settings that the protocol was compiled from; they go into the transcript."""

    @classmethod
    def peer(cls, question: Question, rules: PeerRules, seed: int = 0) -> "Debate":
        return cls(question, rules.protocol(), seed, rules)


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A turn that was just taken, for whoever watches."""

    debate: int
    """Position in the list of debates."""
    attempt: int
    turn: Turn
    state: State
    """The debate with the turn in it."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A debate that was given up."""

    debate: Debate
    attempts: int
    cause: BaseException
    turns: tuple[Turn, ...] = field(repr=False)
    """What was said in the last attempt before it failed."""


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a list of debates."""

    results: list[Transcript | Failure] = field(repr=False)
    """In the order of the debates."""
    retries: int
    """Attempts that failed and were followed by another."""

    @property
    def transcripts(self) -> list[Transcript]:
        return [r for r in self.results if isinstance(r, Transcript)]

    @property
    def failures(self) -> list[Failure]:
        return [r for r in self.results if isinstance(r, Failure)]


class _SeatFailed(Exception):
    """A player raised; the cause is attached."""

    turns: tuple[Turn, ...] = ()


async def play(
    debates: Iterable[Debate],
    players: Mapping[str, Player] | Player,
    *,
    concurrency: int = 256,
    retries: int = 2,
    turn_timeout: float | None = None,
    watch: Callable[[Heard], None] | None = None,
) -> Played:
    """Plays every debate, `concurrency` of them at a time, and returns when all are done.

    `players` fill seats by name; a single one fills all. Raises ArenaError when every debate
    failed, and at once whatever is not the failure of one debate.
    """
    if concurrency < 1 or retries < 0:
        raise ConfigError(f"concurrency = {concurrency}, retries = {retries}: at least 1 and 0")
    if turn_timeout is not None and not turn_timeout > 0:
        raise ConfigError(f"turn_timeout = {turn_timeout}: must be above 0 seconds")
    arena = _Arena(players, retries, turn_timeout, watch)
    waiting = enumerate(debates)
    workers = min(concurrency, len(debates)) if isinstance(debates, Sized) else concurrency

    async def work() -> None:
        for index, debate in waiting:
            arena.results[index] = await arena.play(index, debate)

    crash: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as supervisor:
            for _ in range(workers):
                supervisor.create_task(work())
    except BaseExceptionGroup as group:
        crash = _weightiest(group.exceptions)
    if crash:
        raise crash  # outside the handler, so that it keeps the cause it has
    played = Played([arena.results[i] for i in sorted(arena.results)], arena.retried)
    if played.failures and not played.transcripts:
        cause = played.failures[0].cause
        raise ArenaError(
            f"none of {len(played.results)} debates could be finished; the first failed with "
            f"{type(cause).__name__}: {cause}"
        ) from cause
    return played


class _Arena:
    """What the workers share."""

    def __init__(
        self,
        players: Mapping[str, Player] | Player,
        retries: int,
        turn_timeout: float | None,
        watch: Callable[[Heard], None] | None,
    ) -> None:
        self._players = players
        self._retries = retries
        self._turn_timeout = turn_timeout
        self._watch = watch
        self.results: dict[int, Transcript | Failure] = {}
        self.retried = 0

    async def play(self, index: int, debate: Debate) -> Transcript | Failure:
        """One debate, as often as it takes."""
        attempt = 0
        while True:
            try:
                return await self._attempt(index, attempt, debate)
            except _SeatFailed as failed:
                attempt += 1
                if attempt > self._retries:
                    assert failed.__cause__ is not None
                    return Failure(debate, attempt, failed.__cause__, failed.turns)
                self.retried += 1

    async def _attempt(self, index: int, attempt: int, debate: Debate) -> Transcript:
        state = State(debate.question, debate.protocol, debate.seed)

        async def take_turn(opened: State, view: View) -> None:
            nonlocal state
            reply = await self._ask(opened, view)
            turn = state.turn(
                view,
                reply.completion,
                reply.observation,
                extends=reply.extends,
                temperature=reply.temperature,
            )
            state = state.submit(turn)
            if self._watch:
                self._watch(Heard(index, attempt, turn, state))

        try:
            while seats := state.open_slots():
                views = [state.view(seat) for seat in seats]
                if len(views) == 1:
                    await take_turn(state, views[0])
                else:
                    await _together([take_turn(state, view) for view in views])
        except _SeatFailed as failed:
            failed.turns = state.turns
            raise
        return finish(state, debate.rules)

    async def _ask(self, state: State, view: View) -> Reply:
        """Lets the player of a seat speak. Its exceptions are the debate's, not the arena's."""
        player = self._player(state.protocol.seats[view.seat].player)
        limit = self._turn_timeout
        try:
            if limit is None:
                reply = await player.speak(state, view)
            else:
                async with asyncio.timeout(limit) as clock:
                    reply = await player.speak(state, view)
            check_completion(reply.completion)
            return reply
        except TimeoutError as error:
            if limit is not None and clock.expired():
                late = EngineError(f"no reply from seat {view.seat} within {limit:g} s")
                raise _SeatFailed from late
            raise _SeatFailed from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _SeatFailed from error  # the engine cancelled its own call, nobody ours
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise _SeatFailed from error
        except RostraError:
            raise
        except Exception as error:
            raise _SeatFailed from error

    def _player(self, name: str) -> Player:
        if not isinstance(self._players, Mapping):
            return self._players
        if name not in self._players:
            known = ", ".join(sorted(self._players))
            raise ConfigError(f"no player is called {name!r}; there are: {known}")
        return self._players[name]


async def _together(turns: Sequence[Coroutine[None, None, None]]) -> None:
    """Takes turns at the same time. The first that raises cancels the others, and nothing is raised
    before all of them have ended. Being cancelled meanwhile is remembered and passed on."""
    tasks = [asyncio.create_task(turn) for turn in turns]
    pending = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while pending:
        try:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError as error:
            cancelled = error
            pending = {task for task in tasks if not task.done()}
        for task in pending:
            task.cancel()
    if cancelled:
        raise cancelled
    errors = [e for task in tasks if not task.cancelled() and (e := task.exception())]
    if errors:
        raise _weightiest(errors)


def _weightiest(errors: Sequence[BaseException]) -> BaseException:
    """The first error that is not the failure of a seat, or else the first."""
    return next((e for e in errors if not isinstance(e, _SeatFailed)), errors[0])
