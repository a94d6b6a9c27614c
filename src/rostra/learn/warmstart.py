"""Warm start: supervised learning from debates that a teacher speaks, or that were played before.

Self-play needs a policy that already debates a little: votes that are not there teach nothing. A
warm start goes through phases, each with its own material and its own carelessness.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rostra.arena import Debate, play
from rostra.credit.datums import datums
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.debate.views import View
from rostra.engines.arrays import IntArray
from rostra.engines.chat import ChatFormat, Message
from rostra.engines.schedules import Schedule
from rostra.engines.training import Adam, Datum, Trainer
from rostra.errors import ConfigError
from rostra.learn.lesson import all_marks
from rostra.learn.loop import Loop
from rostra.learn.stop import Stopped
from rostra.learn.update import Update, submit
from rostra.players.shop import ShopTeacher
from rostra.players.spoken import SpokenPlayer, Words
from rostra.players.sums import Carelessness, SumsTeacher
from rostra.rewards.advantages import Key
from rostra.rewards.score import Correct
from rostra.rewards.streams import GEN, JUDGE, gen_rewards
from rostra.runs.folder import weights_name
from rostra.runs.syllabus import Phase
from rostra.runs.transcripts import read_transcripts
from rostra.seeds import derive
from rostra.tasks.parts import asked
from rostra.tasks.sums import ballot, drill
from rostra.tasks.task import Exercise, Task

WARMUP, FLOOR = 20, 0.1
"""In each phase the learning rate rises over so many steps, and then falls to this share of it."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A step whose update is on its way."""

    step: int
    phase: int
    tokens: int
    update: Update


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a warm start a step is."""

    phase: Phase
    number: int
    step: int
    """Steps of the phase before it."""


@dataclass
class WarmStart(Loop):
    """One run of a warm start."""

    _stored: dict[int, list[tuple[Debate, Words]]] = field(default_factory=dict, init=False)
    _flying: deque[_Begun] = field(default_factory=deque, init=False)
    _landed: float = field(default=0.0, init=False)
    """When the last update was over."""

    async def run(self) -> None:
        """From the last checkpoint, or from the beginning, to the end of the last phase. The next
        update is made and handed over before the current one is waited for: examples do not depend
        on the weights."""
        train = self.recipe.train
        trainer = await self.engine.trainer()
        checkpoint = self.folder.last_checkpoint()
        if checkpoint:
            await trainer.load(checkpoint.name)
            self._step = checkpoint.step
        self.folder.rewind(checkpoint)
        self._landed = time.monotonic()
        try:
            for step in range(self._step, self.recipe.steps):
                self.stop.check(step)
                self._flying.append(await self._begin(trainer, step))
                await self._land(but=1)
                if (step + 1) % train.save_every == 0 and step + 1 < self.recipe.steps:
                    await self._land()
                    await self._save(trainer)
            await self._land()
            if self.evaluator:
                await self._evaluate(await trainer.sampler(), self._step)
            await self._save(trainer)
        except Stopped:
            await self._land()
            if self._step > (checkpoint.step if checkpoint else 0):
                await self._save(trainer)
            raise
        finally:
            for begun in self._flying:
                await begun.update.drop()

    async def _begin(self, trainer: Trainer, step: int) -> _Begun:
        """Makes the examples of a step, and hands its update to the trainer."""
        place, train = self._place(step), self.recipe.train
        data = await self._data(place, step)
        rate = place.phase.learning_rate * _shape(place)
        adam = Adam(rate, train.beta1, train.beta2, clip_norm=train.clip_norm)
        update = submit(trainer, data, "cross_entropy", adam, train.microbatch)
        return _Begun(step, place.number, sum(len(datum.targets) for datum in data), update)

    async def _land(self, but: int = 0) -> None:
        """Waits for the updates on their way, but for the last so many, and notes how they went."""
        while len(self._flying) > but:
            begun = self._flying[0]
            asked = time.monotonic()
            trained = await begun.update.done()
            now = time.monotonic()
            self._flying.popleft()
            self._step = begun.step + 1
            metrics = {
                "loss": trained["loss"],
                "optim/grad_norm": trained.get("optim/grad_norm", float("nan")),
                "optim/learning_rate": begun.update.adam.learning_rate,
                "phase": float(begun.phase),
                "tokens": float(begun.tokens),
                "seconds": now - self._landed,
                "time/training": now - asked,
                "time/other": asked - self._landed,
            }
            self._landed = now
            self._log(begun.step, metrics)

    def _place(self, step: int) -> _Place:
        for number, phase in enumerate(self.recipe.phases):
            if step < phase.steps:
                return _Place(phase, number, step)
            step -= phase.steps
        raise AssertionError("a step after the last phase")

    async def _data(self, place: _Place, step: int) -> list[Datum]:
        """The examples of a step. Debates weigh 1 in all, and drills weigh 1."""
        phase, seed = place.phase, self.recipe.seed
        data: list[Datum] = []
        if phase.drills or phase.ballots:
            data += _weighed(
                _drills(self.engine.chat, self.task, phase, derive(seed, "drill", step))
            )
        if phase.kind != "drill":
            debates = await self._debates(place, step)
            right = all_marks(debates, self.task) if phase.only_right else None
            data += _weighed(spoken_data(debates, phase.streams, right))
        return data

    async def _debates(self, place: _Place, step: int) -> list[Transcript]:
        phase, rules = place.phase, self.recipe.protocol
        if phase.kind == "stored":
            return await self._stored_debates(place)
        questions = self.task.draw(self.recipe.seed, step * phase.debates, phase.debates)
        seeds = [derive(self.recipe.seed, "warm", step, i) for i in range(len(questions))]
        debates = [Debate.peer(q, rules, s) for q, s in zip(questions, seeds, strict=True)]
        player = SpokenPlayer(teacher(self.task, phase), self.engine.chat)
        return (await play(debates, player)).transcripts

    async def _stored_debates(self, place: _Place) -> list[Transcript]:
        """What was said before, spoken again in the tokens of this engine."""
        phase = place.phase
        if place.number not in self._stored:
            self._stored[place.number] = self._read(phase)
        known = self._stored[place.number]
        start = place.step * phase.debates
        chosen = [known[(start + i) % len(known)] for i in range(min(phase.debates, len(known)))]

        async def again(debate: Debate, words: Words) -> Transcript:
            return (await play([debate], SpokenPlayer(words, self.engine.chat))).transcripts[0]

        return list(await asyncio.gather(*(again(*one) for one in chosen)))

    def _read(self, phase: Phase) -> list[tuple[Debate, Words]]:
        """The debates of a file or a run, and what is said in them: everything, or the best answers
        in the place of all."""
        stored = [one.transcript for one in read_transcripts(Path(phase.path))]
        held = {asked(q) for part in (self.task.validation, self.task.test) for q in part}
        found = [t for t in stored if asked(t.question) not in held]
        if len(found) < len(stored):
            left = len(stored) - len(found)
            self.display.note(
                f"{phase.path}: {left} debates are about held-out questions; left out"
            )
        if not found:
            raise ConfigError(f"phases: path = {phase.path!r}: only held-out questions are in it")
        if phase.choose == "all":
            # One that a malformed reply ended is no debate to learn.
            found = [t for t in found if t.outcome.ended != "malformed"]
            if not found:
                raise ConfigError(f"phases: path = {phase.path!r}: no debate in it was finished")
            return [
                (
                    Debate(old.question, old.protocol, old.seed, old.rules),
                    _repeat({turn.id: turn.text for turn in old.turns}),
                )
                for old in found
            ]
        protocol = self.recipe.protocol.opening()
        best = best_solutions(found, self.task, phase.choose, protocol.slots[0].sections)
        if not best:
            raise ConfigError(f"phases: path = {phase.path!r}: no solution in it is to be learned")
        return [(Debate(old.question, protocol, old.seed), _in_turn(texts)) for old, texts in best]

    async def _save(self, trainer: Trainer) -> None:
        self.display.phase("saving", 0, 0)
        await trainer.save(weights_name(self._step))
        self.folder.write_checkpoint(self._step, {}, self.recipe.train.keep)


def _shape(place: _Place) -> float:
    """What the learning rate is multiplied with."""
    steps = place.phase.steps
    return Schedule("linear", min(WARMUP, steps // 2), steps, FLOOR).factor(place.step)


def _weighed(data: Sequence[Datum]) -> list[Datum]:
    """Every token that is learned weighs the same, and all of them 1."""
    total = np.float32(sum(float(datum.mask.sum()) for datum in data))
    return [replace(datum, weights=datum.mask / total) for datum in data]


def teacher(task: Task, phase: Phase) -> Words:
    """Who speaks the debates of a phase."""
    careless = Carelessness(
        phase.forgets, phase.slips, phase.malformed, phase.spoilt, phase.misjudges, phase.doubts
    )
    match task.name:
        case "sums":
            return SumsTeacher(careless, early_votes=phase.early_votes)
        case "shop":
            return ShopTeacher(careless)
        case _:
            raise ConfigError(f'task {task.name} has no teacher; use kind = "stored"')


def _repeat(said: Mapping[TurnId, str]) -> Words:
    def words(state: State, view: View) -> str:
        return said[TurnId(view.seat, state.protocol.slots[view.slot].round)]

    return words


def _in_turn(texts: Sequence[str]) -> Words:
    """The texts by seat, over again where there are more seats."""

    def words(state: State, view: View) -> str:
        return texts[view.seat % len(texts)]

    return words


def best_solutions(
    transcripts: Sequence[Transcript], task: Task, choose: str, sections: Sequence[str]
) -> list[tuple[Transcript, list[str]]]:
    """For each debate that has any, the solutions that are worth learning as direct answers, in
    these sections. winners: those that did best by votes, if they were preferred more often than
    not. right: the right ones."""
    found = []
    for transcript, marks in zip(transcripts, all_marks(transcripts, task), strict=True):
        worth: Mapping[TurnId, float] = marks
        if choose == "winners":
            earned = gen_rewards(transcript.votes)
            spoken = [turn.id for turn in transcript.turns if transcript.kind(turn) == "speak"]
            worth = {turn: earned[turn] for turn in spoken if turn in earned}
        top = max(worth.values(), default=0.0)
        best = [t for t in transcript.turns if t.ok and top > 0 and worth.get(t.id) == top]
        if best:
            found.append((transcript, [_alone(transcript, turn, sections) for turn in best]))
    return found


def _alone(transcript: Transcript, turn: Turn, sections: Sequence[str]) -> str:
    """A solution as it would have been given alone, with nothing said about others."""
    if not turn.seen and transcript.protocol.slots[turn.slot].sections == tuple(sections):
        return turn.text
    bodies = [
        (name, turn.section(name) if name == "solution" else "NO" if name == "consensus" else "N/A")
        for name in sections
    ]
    return "".join(f"<{name}>{body}</{name}>" for name, body in bodies)


def spoken_data(
    transcripts: Sequence[Transcript],
    streams: Sequence[str],
    right: Sequence[Correct] | None = None,
) -> list[Datum]:
    """Examples of what was spoken on some streams. A malformed turn is all on the judge stream; it
    is learned where solving is, too. Given what is right, of solutions only that is learned."""
    known: Sequence[Correct | None] = right if right is not None else [None] * len(transcripts)
    wanted = [
        {key: 1.0 for turn in transcript.turns for key in _learned(turn, streams, marks)}
        for transcript, marks in zip(transcripts, known, strict=True)
    ]
    batch = datums(transcripts, wanted, normalise="sum")
    masks = [(datum.weights != 0).astype(np.float32) for datum in batch.data]
    pairs = zip(batch.data, masks, strict=True)
    return [replace(datum, mask=mask, temperature=1.0) for datum, mask in pairs if mask.any()]


def _learned(turn: Turn, streams: Sequence[str], right: Correct | None) -> list[Key]:
    """The credits of a turn that are learned."""
    if not turn.ok:
        return [Key(*turn.id, JUDGE)] if GEN in streams and right is None else []
    wrong = right is not None and right.get(turn.id) == 0
    return [Key(*turn.id, stream) for stream in streams if not (wrong and stream == GEN)]


def _drills(chat: ChatFormat, task: Task, phase: Phase, seed: int) -> list[Datum]:
    """Pages of short exercises, and ballots, each on a page of its own."""
    if task.name != "sums":
        raise ConfigError(f"drills: task {task.name} has none; leave drills out")
    solve, judge = (chat.open([Message("user", word)]) for word in ("solve", "judge"))
    pages = [(solve, drill(task, derive(seed, index))) for index in range(phase.drills)]
    pages += [(judge, [ballot(derive(seed, "ballot", index))]) for index in range(phase.ballots)]
    return [_page(chat, head, exercises) for head, exercises in pages]


def _page(chat: ChatFormat, head: IntArray, exercises: Sequence[Exercise]) -> Datum:
    """One example, in which the tokens that begin inside an answer are learned."""
    text, spans = "", []
    for before, answer, rest in exercises:
        spans.append((len(text) + len(before), len(text) + len(before) + len(answer)))
        text += before + answer + rest
    said = chat.reply(text, end=False)
    bounds = np.array(spans).flatten()
    # A place is inside an answer where an odd number of bounds lies at or before it.
    inside = np.searchsorted(bounds, said.starts, side="right") % 2 == 1
    tokens = np.concatenate([head, said.tokens]).astype(np.int64)
    mask = np.concatenate([np.zeros(len(head), bool), inside])[1:].astype(np.float32)
    silent = np.zeros(len(mask), np.float32)
    streams = np.where(mask > 0, 0, -1).astype(np.int8)
    return Datum(tokens[:-1], tokens[1:], silent, mask, mask, streams)
