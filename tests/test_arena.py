"""Many debates at once: what one failing seat may cost, and what it may not."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from rostra.arena import Debate, Failure, Heard, Played, play
from rostra.debate.judged import consultancy
from rostra.debate.peer import peer_v1, peer_v2
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.views import View
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import ByteChat, transcribe
from rostra.engines.sampling import Completion, SamplingParams
from rostra.engines.scripted import ScriptedEngine, ScriptedSampler
from rostra.errors import ArenaError, ConfigError, EngineError, EngineUnavailable, RuleError
from rostra.players.model import ModelPlayer
from rostra.players.player import Reply
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.tasks.question import Question

Before = Callable[[str, SamplingParams], Awaitable[None]]


class Studio:
    """A rehearsed sampler that lets a test step in before every call, and keeps a list of them."""

    def __init__(self, inner: ScriptedSampler, before: Before) -> None:
        self._inner = inner
        self._before = before
        self.asked: list[tuple[str, int]] = []

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        text = transcribe(prompt)
        self.asked.append((text, params.seed))
        await asyncio.sleep(0)
        await self._before(text, params)
        return await self._inner.sample(prompt, n, params)

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return await self._inner.score(tokens, start)


async def nothing(text: str, params: SamplingParams) -> None:
    pass


def studio(before: Before = nothing) -> tuple[ModelPlayer, Studio]:
    engine = ScriptedEngine(rehearsal())
    sampler = Studio(asyncio.run(engine.sampler()), before)
    return ModelPlayer(sampler, ByteChat()), sampler


def debates(count: int, **changes: object) -> list[Debate]:
    rules = peer_v2(**({"agents": 3, "rounds": 1} | changes))
    protocol = rules.protocol()
    return [
        Debate(Question(f"q{i}", f"Riddle {i}: what is {i} + 5?"), protocol, seed=i, rules=rules)
        for i in range(count)
    ]


def run(playing: Awaitable[Played], seconds: float = 60) -> Played:
    """Waits for the arena, but not for ever, and sees that it leaves no task behind."""
    results: list[Played] = []

    async def bounded() -> None:
        try:
            async with asyncio.timeout(seconds):
                results.append(await playing)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            assert not left

    asyncio.run(bounded())
    return results[0]


Print = tuple[object, ...]


def prints(results: Sequence[Transcript | Failure]) -> list[Print]:
    """Everything that was said, token for token, and what came of it."""
    assert all(isinstance(r, Transcript) for r in results)
    return [
        (
            r.question.id,
            r.votes,
            r.outcome,
            [(t.id, t.text, t.tokens.tobytes(), t.logprobs.tobytes(), t.seen) for t in r.turns],
            [t.observation.tobytes() for t in r.turns],
        )
        for r in results
        if isinstance(r, Transcript)
    ]


def about(text: str, debate: int, seat: int, last: str = "") -> bool:
    """Whether a prompt is of this seat of this debate, and asks for what is looked for."""
    return f"Riddle {debate}:" in text and f"You are Agent {seat}" in text and text.rfind(last) >= 0


BALLOT = "[Agent 0, round 1]"
"""Stands in the ballot prompts of all but agent 0, and in no opening prompt."""


def test_one_failing_seat_among_a_thousand_debates_costs_a_replay_of_its_own_debate_only() -> None:
    async def fail_once(text: str, params: SamplingParams) -> None:
        if not failed and about(text, 500, 1, BALLOT):
            failed.append(params.seed)
            raise ConnectionError("connection reset by peer")

    failed: list[int] = []
    heard: list[tuple[int, int, str]] = []
    player, sampler = studio(fail_once)

    def watch(event: Heard) -> None:
        heard.append((event.debate, event.attempt, str(event.turn.id)))

    played = run(play(debates(1000), player, concurrency=1000, watch=watch))
    untroubled, _ = studio()
    expected = run(play(debates(1000)[450:550], untroubled))

    assert len(failed) == 1
    assert played.retries == 1
    assert [t.question.id for t in played.transcripts] == [f"q{i}" for i in range(1000)]
    assert prints(played.results[450:550]) == prints(expected.results)
    assert {debate for debate, attempt, _ in heard if attempt} == {500}
    assert sorted(turn for debate, attempt, turn in heard if debate == 500 and attempt == 1) == [
        f"{seat}.{round_}" for seat in range(3) for round_ in range(2)
    ]
    seeds = defaultdict(list)
    for text, seed in sampler.asked:
        if "Riddle 500:" in text:
            seeds[text].append(seed)
    openings = [s for text, s in seeds.items() if "round 1]" not in text]
    assert len(openings) == 3
    assert all(len(s) == 2 and s[0] == s[1] for s in openings)


def test_a_debate_that_keeps_failing_is_given_up_with_its_cause_while_the_others_finish() -> None:
    async def fail(text: str, params: SamplingParams) -> None:
        if about(text, 3, 2):
            raise EngineError("no room for the prompt")

    player, sampler = studio(fail)
    played = run(play(debates(8), player, retries=2))
    assert played.retries == 2
    assert [type(r) for r in played.results] == [
        Failure if i == 3 else Transcript for i in range(8)
    ]
    assert [t.question.id for t in played.transcripts] == ["q0", "q1", "q2", "q4", "q5", "q6", "q7"]
    [failure] = played.failures
    assert failure.attempts == 3
    assert failure.debate.question.id == "q3"
    assert isinstance(failure.cause, EngineError)
    assert str(failure.cause) == "no room for the prompt"
    assert sum(about(text, 3, 2) for text, _ in sampler.asked) == 3


def test_without_retries_a_debate_is_given_up_at_its_first_failure() -> None:
    async def fail(text: str, params: SamplingParams) -> None:
        if about(text, 0, 0):
            raise ValueError("odd")

    player, _ = studio(fail)
    played = run(play(debates(2), player, retries=0))
    assert played.retries == 0
    assert [f.attempts for f in played.failures] == [1]
    assert len(played.transcripts) == 1


def test_when_every_debate_fails_the_error_names_the_first_cause() -> None:
    async def fail(text: str, params: SamplingParams) -> None:
        raise OSError("cable unplugged") if "Riddle 0:" in text else ValueError("other")

    player, _ = studio(fail)
    with pytest.raises(ArenaError, match="none of 4 debates .* OSError: cable unplugged") as caught:
        run(play(debates(4), player))
    assert isinstance(caught.value.__cause__, OSError)


class Hanging:
    """Waits for ever in every debate but the first, and writes down how it is woken."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.waiting = 0
        self.cancelled = 0
        self.cleaned = 0
        self.all_wait = asyncio.Event()

    async def __call__(self, text: str, params: SamplingParams) -> None:
        if "Riddle 0:" in text:
            await self.all_wait.wait()
            return
        self.waiting += 1
        if self.waiting == self.others:
            self.all_wait.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            await asyncio.sleep(0)
            self.cleaned += 1


def test_a_dead_engine_surfaces_at_once_and_ends_everything() -> None:
    hanging = Hanging(others=3 * 9)

    async def die(text: str, params: SamplingParams) -> None:
        await hanging(text, params)
        raise EngineUnavailable("http://localhost:8000 is gone")

    player, _ = studio(die)
    with pytest.raises(EngineUnavailable, match="http://localhost:8000 is gone"):
        run(play(debates(10), player))
    assert hanging.cancelled == hanging.cleaned == 27


@pytest.mark.parametrize("bug", [KeyError("bug"), EngineError("not a seat's"), TimeoutError("x")])
def test_a_watcher_that_raises_surfaces_at_once_and_ends_everything(bug: Exception) -> None:
    hanging = Hanging(others=3 * 9)
    player, _ = studio(hanging)

    def watch(event: Heard) -> None:
        raise bug

    with pytest.raises(type(bug)) as caught:
        run(play(debates(10), player, watch=watch))
    assert caught.value is bug
    assert hanging.cancelled == hanging.cleaned == 27


def test_a_broken_rule_is_a_bug_and_not_played_again() -> None:
    calls = []

    async def break_a_rule(text: str, params: SamplingParams) -> None:
        calls.append(text)
        raise RuleError("seat 7 may not speak now")

    player, _ = studio(break_a_rule)
    with pytest.raises(RuleError, match="seat 7"):
        run(play(debates(1, agents=3), player))
    assert len(calls) <= 3


def test_a_crash_weighs_more_than_a_failed_seat_of_the_same_slot() -> None:
    async def both(text: str, params: SamplingParams) -> None:
        if about(text, 0, 0):
            raise EngineError("one call failed")
        if about(text, 0, 1):
            raise EngineUnavailable("gone")

    player, _ = studio(both)
    with pytest.raises(EngineUnavailable, match="gone"):
        run(play(debates(2), player))


def test_siblings_of_a_failing_seat_are_cancelled_and_awaited_before_the_replay() -> None:
    events: list[str] = []

    async def fail_once(text: str, params: SamplingParams) -> None:
        if "failed" in events:
            events.append("replay")
            return
        if about(text, 0, 0):
            while events.count("waits") < 2:
                await asyncio.sleep(0)
            events.append("failed")
            raise ConnectionError
        events.append("waits")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            events.append("cleaned")

    player, _ = studio(fail_once)
    played = run(play(debates(1), player))
    assert len(played.transcripts) == 1
    story = ["waits", "waits", "failed", "cancelled", "cancelled", "cleaned", "cleaned"]
    assert events == story + ["replay"] * 6


def test_cancelling_from_outside_leaves_no_task_behind() -> None:
    hanging = Hanging(others=3 * 19)
    player, _ = studio(hanging)

    async def cancelled() -> Played:
        playing = asyncio.create_task(play(debates(20), player))
        while not (hanging.all_wait.is_set() or playing.done()):
            await asyncio.sleep(0)
        playing.cancel()
        return await playing

    with pytest.raises(asyncio.CancelledError):
        run(cancelled())
    assert hanging.cancelled == hanging.cleaned == 57


@pytest.mark.parametrize("how", ["cancelled", "dead engine"])
def test_an_end_that_comes_while_a_slot_is_being_cleared_is_not_lost(how: str) -> None:
    """A seat of debate 1 has failed and its siblings are still cleaning up when all is ended."""
    clearing, ended = asyncio.Event(), asyncio.Event()
    late: list[str] = []

    async def before(text: str, params: SamplingParams) -> None:
        if ended.is_set():
            late.append(text)
            return
        if "Riddle 0:" in text:
            await clearing.wait()
            if how == "dead engine":
                ended.set()
                raise EngineUnavailable("gone")
            await asyncio.Event().wait()
        if about(text, 1, 0):
            raise ConnectionError
        try:
            await asyncio.Event().wait()
        finally:
            clearing.set()
            for _ in range(20):
                await asyncio.sleep(0)

    player, _ = studio(before)

    async def playing() -> Played:
        task = asyncio.create_task(play(debates(4), player, concurrency=2))
        while not (clearing.is_set() or task.done()):
            await asyncio.sleep(0)
        if how == "cancelled":
            ended.set()
            task.cancel()
        return await task

    with pytest.raises(asyncio.CancelledError if how == "cancelled" else EngineUnavailable):
        run(playing())
    assert late == []


@pytest.mark.parametrize("schedule", ["sequential", "simultaneous"])
def test_a_call_that_the_engine_itself_cancels_fails_its_debate_and_is_counted(
    schedule: str,
) -> None:
    """As when a client is closed under its callers: nobody cancelled the arena."""

    async def drop(text: str, params: SamplingParams) -> None:
        if about(text, 1, 1):
            dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            dropped.cancel()
            await dropped

    player, _ = studio(drop)
    played = run(play(debates(3, schedule=schedule), player), seconds=10)
    assert [type(r) for r in played.results] == [Transcript, Failure, Transcript]
    assert played.failures[0].attempts == 3


def test_no_more_debates_are_in_flight_than_allowed() -> None:
    open_debates: set[str] = set()
    most: list[int] = []

    async def count(text: str, params: SamplingParams) -> None:
        start = text.index("Riddle")
        open_debates.add(text[start : text.index(":", start)])
        most.append(len(open_debates))
        for _ in range(params.seed % 5):
            await asyncio.sleep(0)

    def watch(event: Heard) -> None:
        if event.state.outcome:
            open_debates.remove(f"Riddle {event.debate}")

    player, _ = studio(count)
    run(play(debates(40), player, concurrency=7, watch=watch))
    assert max(most) == 7


def test_a_hanging_seat_is_timed_out_and_its_debate_played_again() -> None:
    hung: list[int] = []

    async def hang_once(text: str, params: SamplingParams) -> None:
        if not hung and about(text, 1, 2):
            hung.append(params.seed)
            await asyncio.Event().wait()

    player, _ = studio(hang_once)
    played = run(play(debates(3), player, turn_timeout=0.2))
    untroubled, _ = studio()
    assert played.retries == 1
    assert prints(played.results) == prints(run(play(debates(3), untroubled)).results)


def test_a_seat_that_always_hangs_is_given_up_with_a_cause_that_names_it() -> None:
    async def hang(text: str, params: SamplingParams) -> None:
        if about(text, 0, 2):
            await asyncio.Event().wait()

    player, _ = studio(hang)
    played = run(play(debates(2), player, retries=1, turn_timeout=0.05))
    [failure] = played.failures
    assert failure.attempts == 2
    assert isinstance(failure.cause, EngineError)
    assert str(failure.cause) == "no reply from seat 2 within 0.05 s"


@pytest.mark.parametrize("limit", [None, 30.0])
def test_a_timeout_of_the_engine_itself_keeps_its_own_message(limit: float | None) -> None:
    async def give_up(text: str, params: SamplingParams) -> None:
        if about(text, 0, 0):
            raise TimeoutError("read timed out")

    player, _ = studio(give_up)
    played = run(play(debates(2), player, turn_timeout=limit))
    [failure] = played.failures
    assert isinstance(failure.cause, TimeoutError)
    assert str(failure.cause) == "read timed out"


def test_results_stand_in_the_order_of_the_debates_whatever_finished_first() -> None:
    finished: list[int] = []

    async def later_is_faster(text: str, params: SamplingParams) -> None:
        start = text.index("Riddle") + len("Riddle ")
        for _ in range(40 - int(text[start : text.index(":", start)])):
            await asyncio.sleep(0)

    def watch(event: Heard) -> None:
        if event.state.outcome:
            finished.append(event.debate)

    player, _ = studio(later_is_faster)
    played = run(play(debates(40), player, watch=watch))
    assert finished != sorted(finished)
    assert [t.question.id for t in played.transcripts] == [f"q{i}" for i in range(40)]


def test_nobody_samples_after_an_abort() -> None:
    calls: list[int] = []

    def script(prompt: object, seed: int) -> str:
        calls.append(seed)
        return "I would rather not."

    async def playing() -> Played:
        engine = ScriptedEngine(script)
        player = ModelPlayer(await engine.sampler(), engine.chat)
        return await play([Debate.peer(Question("q", "Why?"), peer_v1(agents=4))], player)

    played = run(playing())
    assert len(calls) == 1
    [transcript] = played.transcripts
    assert transcript.outcome.ended == "malformed"
    assert str(transcript.outcome.by) == "0.0"


@pytest.mark.parametrize("abort", [True, False])
def test_malformed_responses_are_kept_like_any_other(abort: bool) -> None:
    good = "<solution>1</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"

    def line(state: object, view: object) -> str:
        return "no tags at all" if view.seat == 1 and view.slot < 1 else good  # type: ignore[attr-defined]

    rules = peer_v2(agents=3, rounds=1, malformed="abort" if abort else "mask")
    debate = Debate.peer(Question("q", "Why?"), rules)
    [transcript] = run(play([debate], ScriptedPlayer(line))).transcripts
    bad = next(t for t in transcript.turns if not t.ok)
    assert str(bad.id) == "1.0"
    assert bad.text == "no tags at all"
    assert bytes(bad.tokens[:-1].tolist()) == b"no tags at all"
    assert len(bad.logprobs) == len(bad.tokens) == len(bad.starts)
    assert bad.parsed.error == "no <solution> section where it belongs"
    assert transcript.outcome.ended == ("malformed" if abort else "rounds")
    assert len(transcript.turns) == (3 if abort else 6)


def test_seats_are_filled_by_the_players_of_their_names() -> None:
    question = Question("q", "Who did it?", choices=("The butler", "The gardener"))
    players = {
        "policy": ScriptedPlayer(["It was the butler.", "It was he, I say."]),
        "judge": ScriptedPlayer(["Debater_A | 80%"]),
    }
    [transcript] = run(play([Debate(question, consultancy(0))], players)).transcripts
    assert [t.text for t in transcript.turns] == [
        "It was the butler.",
        "It was he, I say.",
        "Debater_A | 80%",
    ]
    assert transcript.verdicts[0].confidence == pytest.approx((0.8, 0.2))
    assert transcript.rules is None


def test_a_seat_whose_player_nobody_brought_is_a_config_error() -> None:
    question = Question("q", "Who did it?", choices=("The butler", "The gardener"))
    players = {"policy": ScriptedPlayer(["a", "b"]), "critic": ScriptedPlayer(["c"])}
    with pytest.raises(ConfigError, match="no player is called 'judge'; there are: critic, policy"):
        run(play([Debate(question, consultancy(0))], players))


def test_debates_may_come_from_an_iterator_that_has_no_length() -> None:
    def stream() -> Iterator[Debate]:
        yield from debates(11)

    player, _ = studio()
    played = run(play(stream(), player, concurrency=3))
    assert [t.question.id for t in played.transcripts] == [f"q{i}" for i in range(11)]


def test_an_iterator_that_raises_surfaces_and_leaves_nothing_behind() -> None:
    def stream() -> Iterator[Debate]:
        yield from debates(2)
        raise LookupError("the task has run dry")

    player, _ = studio()
    with pytest.raises(LookupError, match="run dry"):
        run(play(stream(), player))


def test_no_debates_give_no_results() -> None:
    player, _ = studio()
    assert run(play([], player)) == Played([], 0)


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"retries": -1}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    player, _ = studio()
    with pytest.raises(ConfigError, match="concurrency = .*, retries = "):
        run(play(debates(1), player, **settings))  # type: ignore[arg-type]


def test_a_debate_does_not_depend_on_what_is_played_beside_it() -> None:
    async def jitter(text: str, params: SamplingParams) -> None:
        for _ in range(params.seed % 7):
            await asyncio.sleep(0)

    crowd = debates(51, rounds=2, agents=4)
    player, _ = studio(jitter)
    among = run(play(crowd, player)).results[25]
    alone_player, _ = studio()
    [alone] = run(play([crowd[25]], alone_player)).results
    assert prints([among]) == prints([alone])


def test_watchers_hear_every_turn_with_the_debate_it_belongs_to() -> None:
    heard: list[Heard] = []
    player, _ = studio()
    played = run(play(debates(2), player, watch=heard.append))
    for index, transcript in enumerate(played.transcripts):
        turns = {e.turn.id: e.turn for e in heard if e.debate == index}
        assert turns == {t.id: t for t in transcript.turns}
    assert all(e.turn in e.state.turns for e in heard)
    assert all(e.turn.id in e.state.ballots for e in heard)


def test_a_failure_keeps_what_was_said_before_it() -> None:
    async def fail(text: str, params: SamplingParams) -> None:
        if "The debate is over" in text and about(text, 1, 0):
            raise EngineError("no room for the ballot")

    player, _ = studio(fail)
    [failure] = run(play(debates(2), player, retries=0)).failures
    assert [str(turn.id) for turn in failure.turns][:3] == ["0.0", "1.0", "2.0"]
    assert all(turn.ok for turn in failure.turns)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_has_to_be_a_time(limit: float) -> None:
    player, _ = studio()
    with pytest.raises(ConfigError, match="turn_timeout"):
        run(play(debates(1), player, turn_timeout=limit))


def test_a_reply_with_too_few_logprobs_fails_its_debate_only() -> None:
    class Careless(ScriptedPlayer):
        async def speak(self, state: State, view: View) -> Reply:
            reply = await super().speak(state, view)
            if state.question.id != "q1":
                return reply
            short = replace(reply.completion, logprobs=reply.completion.logprobs[1:])
            return replace(reply, completion=short)

    player = Careless(lambda state, view: "nothing that could be read")
    played = run(play(debates(3), player, retries=1))
    [failure] = played.failures
    assert failure.debate.question.id == "q1"
    assert "log-probabilities" in str(failure.cause)
