"""Answers by debate: one call, any model, and as much debate as a question needs.

A debate ends as soon as its agents agree. An adaptive one goes on while they do not, up to twice
its rounds, and where even then no answer has more than half of the seats, debates with more seats
follow and all their answers are counted together.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast, get_args

from rostra.arena import Debate, Heard, Played, play
from rostra.debate.peer import PeerRules, check_choice
from rostra.debate.protocol import MOST_ROUNDS, MOST_SEATS, check_most
from rostra.debate.transcript import Transcript
from rostra.engines.engine import Engine
from rostra.errors import ArenaError, ConfigError
from rostra.evals import accuracy
from rostra.learn.setup import make_engine, model_of, run_of
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.runs.recipe import read_config
from rostra.runs.settings import ModelSettings, Recipe
from rostra.seeds import derive
from rostra.tasks.question import Question

log = logging.getLogger(__name__)

Choose = Literal["plurality", "votes"]
"""The most common answer, or the one that votes prefer."""
Ended = Literal["rounds", "consensus", "agreement", "malformed", "failed"]
How = Literal["plurality", "votes", "plurality: no votes", "failed"]
MORE_SEATS = 2
"""An odd number of seats stays odd."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question was answered, by how many, and at what cost."""

    answer: str | None
    """As the first of those who gave it wrote it; None where nobody gave one."""
    agreement: float
    """The share of all seats that gave it."""
    how: How
    """How it was chosen. Where nobody had voted, votes give way to plurality."""
    ended: Ended
    """How the last debate ended; failed where the engine let every attempt down."""
    rounds: int
    """Rounds of speaking, over all debates."""
    agents: int
    """Seats, over all debates."""
    tokens: int
    """Tokens sampled."""
    transcripts: tuple[Transcript, ...] = field(repr=False)
    """One debate, or several where seats were added."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much debate a question may have."""

    rules: PeerRules
    """Of the first debate; those that follow have more agents."""
    choose: Choose
    max_agents: int

    def stages(self) -> list[PeerRules]:
        """The rules of every debate there may be, with more and more agents."""
        first = self.rules.agents
        seats = [*range(first, self.max_agents, MORE_SEATS), self.max_agents]
        return [replace(self.rules, agents=agents) for agents in seats]


def plan(
    rules: PeerRules | None = None,
    *,
    choose: Choose = "plurality",
    adaptive: bool = False,
    max_rounds: int | None = None,
    max_agents: int | None = None,
    stop_on_agreement: float | None = None,
) -> Plan:
    """Settles how a question is debated. Without rules it is peer-v2, with a ballot only where
    votes choose. `stop_on_agreement` goes before that of the rules; where both are silent, a debate
    ends when all agents agree."""
    check_choice("choose", choose, get_args(Choose))
    rules = rules or PeerRules(closing_ballot=False)
    if not adaptive:
        for name, value in (("max_rounds", max_rounds), ("max_agents", max_agents)):
            if value is not None:
                raise ConfigError(
                    f"{name} = {value}: only an adaptive debate grows; turn adaptive on"
                )
        max_rounds, max_agents = rules.rounds, rules.agents
    share = (rules.stop_on_agreement or 1.0) if stop_on_agreement is None else stop_on_agreement
    if adaptive and not share:
        raise ConfigError(
            "stop_on_agreement = 0: an adaptive debate goes on until agents agree, so give a share "
            "above 0"
        )
    changed = replace(
        rules,
        rounds=_growth("rounds", rules.rounds, max_rounds, 2 * rules.rounds, MOST_ROUNDS),
        stop_on_agreement=share,
        closing_ballot=rules.closing_ballot
        or (choose == "votes" and rules.schedule == "simultaneous"),
    )
    agents = _growth("agents", rules.agents, max_agents, 2 * rules.agents - 1, MOST_SEATS)
    return Plan(changed, choose, agents)


def _growth(name: str, least: int, given: int | None, default: int, most: int) -> int:
    """A bound on what a debate may grow to; not below what it begins with."""
    if given is None:
        return min(default, most)
    if given < least:
        raise ConfigError(f"max_{name} = {given}: a debate begins with {name} = {least}")
    check_most(f"max_{name}", given, most)
    return given


def answer(
    question: str | Question,
    *,
    model: str | Engine | Player = "smollm2",
    rules: PeerRules | None = None,
    choose: Choose = "plurality",
    adaptive: bool = False,
    max_rounds: int | None = None,
    max_agents: int | None = None,
    stop_on_agreement: float | None = None,
    seed: int = 0,
) -> Answer:
    """Answers a question by debate, and waits for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ConfigError(
            "answer() waits by itself and cannot do so here, where an event loop is running; "
            "write `await rostra.answer_async(question, model)`"
        )
    work = answer_async(
        question,
        model,
        rules,
        choose=choose,
        adaptive=adaptive,
        max_rounds=max_rounds,
        max_agents=max_agents,
        stop_on_agreement=stop_on_agreement,
        seed=seed,
    )
    return asyncio.run(work)


async def answer_async(
    question: str | Question,
    player: str | Engine | Player,
    rules: PeerRules | None = None,
    *,
    choose: Choose = "plurality",
    adaptive: bool = False,
    max_rounds: int | None = None,
    max_agents: int | None = None,
    stop_on_agreement: float | None = None,
    seed: int = 0,
    retries: int = 2,
    turn_timeout: float | None = None,
    watch: Callable[[Heard], None] | None = None,
) -> Answer:
    """Answers a question by debate. Raises ArenaError where the debate keeps failing."""
    planned = plan(
        rules or _rules_of(player),
        choose=choose,
        adaptive=adaptive,
        max_rounds=max_rounds,
        max_agents=max_agents,
        stop_on_agreement=stop_on_agreement,
    )
    speaker = await player_of(player)
    play_all = partial(
        play, players=speaker, retries=retries, turn_timeout=turn_timeout, watch=watch
    )
    (found,) = await _answers([_question(question)], [seed], planned, play_all)
    return found


async def answer_many(
    questions: Sequence[str | Question],
    player: str | Engine | Player,
    rules: PeerRules | None = None,
    *,
    choose: Choose = "plurality",
    adaptive: bool = False,
    max_rounds: int | None = None,
    max_agents: int | None = None,
    stop_on_agreement: float | None = None,
    seed: int = 0,
    retries: int = 2,
    turn_timeout: float | None = None,
    watch: Callable[[Heard], None] | None = None,
) -> list[Answer]:
    """Answers many questions at once, in their order. An answer depends on its question and the
    seed, not on the others. A question that keeps failing has no answer; when all do, ArenaError
    is raised."""
    planned = plan(
        rules or _rules_of(player),
        choose=choose,
        adaptive=adaptive,
        max_rounds=max_rounds,
        max_agents=max_agents,
        stop_on_agreement=stop_on_agreement,
    )
    asked = [_question(question) for question in questions]
    seeds = [derive(seed, "answer", question.id, question.prompt) for question in asked]
    speaker = await player_of(player)
    play_all = partial(
        play, players=speaker, retries=retries, turn_timeout=turn_timeout, watch=watch
    )
    return await _answers(asked, seeds, planned, play_all)


def _rules_of(player: str | Engine | Player) -> PeerRules | None:
    """A run debates by its own rules."""
    run = run_of(player) if isinstance(player, str) else None
    return read_config(run).protocol if run else None


def _question(question: str | Question) -> Question:
    return Question("question", question) if isinstance(question, str) else question


Play = Callable[[Sequence[Debate]], Awaitable[Played]]


async def _answers(
    questions: Sequence[Question], seeds: Sequence[int], planned: Plan, play_all: Play
) -> list[Answer]:
    """Debates every question, and those that stay undecided again with more seats."""
    debated: list[list[Transcript]] = [[] for _ in questions]
    waiting = list(range(len(questions)))
    for stage, rules in enumerate(planned.stages()):
        protocol = rules.protocol()
        debates = [
            Debate(
                questions[i],
                protocol,
                derive(seeds[i], "seats", rules.agents) if stage else seeds[i],
                rules,
            )
            for i in waiting
        ]
        try:
            played = await play_all(debates)
        except ArenaError as error:
            if not stage:
                raise
            log.warning("more seats failed, so answers of fewer seats stand: %s", error)
            break
        if stage and played.failures:
            cause = played.failures[0].cause
            log.warning("some added seats failed, so answers of fewer stand: %s", cause)
        for i, result in zip(waiting, played.results, strict=True):
            debated[i] += [result] if isinstance(result, Transcript) else []
        waiting = [i for i in waiting if debated[i] and undecided(debated[i])]
        if not waiting:
            break
    return [read_answer(transcripts, planned.choose) for transcripts in debated]


def undecided(transcripts: Sequence[Transcript]) -> bool:
    """Whether the last debate found no agreement, and no answer has more than half of all seats."""
    count = max(Counter(answer.text for answer in _given(transcripts)).values(), default=0)
    seats = sum(t.protocol.agents for t in transcripts)
    return transcripts[-1].outcome.ended != "agreement" and 2 * count <= seats


def read_answer(transcripts: Sequence[Transcript], choose: Choose = "plurality") -> Answer:
    """What debates about one question answer, all seats counted together."""
    given = _given(transcripts)
    by = accuracy.liked(transcripts, given) if choose == "votes" else {}
    how: How = "votes" if by else "plurality"
    if choose == "votes" and not by:
        how = "plurality: no votes"
    best = accuracy.choose(given, by)
    agents = sum(t.protocol.agents for t in transcripts)
    share = sum(a.text == best.text for a in given) / agents if best is not None else 0.0
    return Answer(
        answer=None if best is None else best.said,
        agreement=share,
        how=how if transcripts else "failed",
        ended=transcripts[-1].outcome.ended if transcripts else "failed",
        rounds=sum(t.outcome.rounds for t in transcripts),
        agents=agents,
        tokens=sum(turn.sampled for t in transcripts for turn in t.turns),
        transcripts=tuple(transcripts),
    )


def _given(transcripts: Sequence[Transcript]) -> list[accuracy.Answer]:
    """The last answer that each seat gave, in the order of debates and seats."""
    last = [a for t in transcripts for a in accuracy.held(accuracy.answers_in(t, {}))]
    return [answer for answer in last if answer.text is not None]


async def player_of(model: str | Engine | Player) -> Player:
    """Whoever is to speak: a model by name, an engine with its adapter if it has one, a player."""
    if isinstance(model, str):
        model = open_model(model)
    if hasattr(model, "speak"):
        return cast(Player, model)
    if not hasattr(model, "sampler"):
        raise ConfigError(f"model = {model!r}: give the name of a model, an engine or a player")
    return ModelPlayer(await model.policy(), model.chat)


def open_model(name: str) -> Engine:
    """An engine with a model by name or address, a folder of weights, or a run with its last."""
    return make_engine(Recipe(model=model_of(name, ModelSettings())), None)
