"""Self-play: a policy debates itself and learns from its peers' votes.

A step: questions, debates, rewards, advantages, training examples, an update, a fresh sampler.

sync    debate, then learn, then debate with the new weights.
async   while a step is learned from, the next `staleness` steps are being debated, each with the
        weights that were newest when it could begin. The lag is fixed: the debates of step s are
        played with the weights after s - staleness updates, whoever is faster. Sampling waits for
        them, nothing is thrown away, and a run can be repeated and resumed.

What is left out of the textbook: no reference model and no KL penalty, no value function, one
update for each batch.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rostra.arena import Debate, Heard, Played, play
from rostra.debate.transcript import Transcript
from rostra.engines.sampling import Sampler
from rostra.engines.training import Adam, Loss, Trainer
from rostra.learn.alarms import Alarms
from rostra.learn.curriculum import Curriculum, Difficulty, measure_name
from rostra.learn.guide import guide_votes
from rostra.learn.lesson import Lesson, learn_from
from rostra.learn.loop import Loop
from rostra.learn.setup import make_engine, make_tasks, model_of
from rostra.learn.stop import Stopped
from rostra.learn.update import Update, submit
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.rewards.advantages import RoleBaseline
from rostra.rewards.score import Guide
from rostra.runs.folder import Checkpoint, checkpoint_name, read_ahead, weights_name
from rostra.runs.settings import Recipe
from rostra.runs.syllabus import Stage
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task


@dataclass(slots=True)
class Sampled:
    """The debates of one step."""

    transcripts: list[Transcript]
    failed: int = 0
    retried: int = 0
    seconds: float = 0.0
    stage: int = 0
    """Of the curriculum, whose questions they are about."""


@dataclass
class SelfPlay(Loop):
    """One run of self-play."""

    _baseline: RoleBaseline = field(default_factory=RoleBaseline, init=False)
    _alarms: Alarms = field(default_factory=Alarms, init=False)
    _ahead: dict[int, asyncio.Task[Sampled]] = field(default_factory=dict, init=False)
    _mode_wrong: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False)
    """By stage: the questions whose most likely answer was wrong at first."""
    _tasks: list[Task] = field(default_factory=list, init=False)
    _curriculum: Curriculum = field(init=False)
    _difficulty: Difficulty = field(default_factory=Difficulty, init=False)
    _guide: Player | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        stages = self.recipe.stages
        self._tasks = make_tasks(self.recipe) if stages else [self.task]
        self._curriculum = Curriculum(stages or (Stage(),))

    async def run(self) -> None:
        """From the last checkpoint, or from the beginning, to the last step."""
        train = self.recipe.train
        trainer = await self.engine.trainer()
        checkpoint = self.folder.last_checkpoint()
        if checkpoint:
            await self._restore(trainer, checkpoint)
        self.folder.rewind(checkpoint)
        if self.recipe.bootstrap.share(self._step):
            await self._open_guide()  # whoever is missing is missed at once
        try:
            sampler = await trainer.sampler()
            for step in range(self._step, train.steps):
                self.stop.check(step)
                await self._evaluate_if_due(step, sampler)
                self._sample_ahead(step, sampler)
                began = time.monotonic()
                batch = await self._debates_of(step)
                del sampler  # so that its weights are not set aside for nobody
                metrics = await self._learn(trainer, step, batch)
                metrics["seconds"] = time.monotonic() - began
                metrics["time/sampling"] = batch.seconds
                metrics["time/other"] = max(
                    0.0, metrics["seconds"] - batch.seconds - metrics["time/training"]
                )
                self._step = step + 1
                self._log(step, metrics)
                self._advance(step, metrics, batch.stage)
                sampler = await trainer.sampler()
                self._ring(step, metrics)
                if self._step % train.save_every == 0 and self._step < train.steps:
                    await self._save(trainer)
            await self._evaluate_if_due(train.steps, sampler)
            await self._save(trainer)
        except Stopped:
            if self._step > (checkpoint.step if checkpoint else 0):
                await self._save(trainer)
            raise
        finally:
            await self._drop_ahead()

    # Debating

    def _sample_ahead(self, step: int, sampler: Sampler) -> None:
        """Begins every step whose weights are the ones at hand: in sync mode this one; in async
        mode the first `lag + 1` of them at the start, and then one more each step."""
        train = self.recipe.train
        last = min(step + train.lag, train.steps - 1)
        for later in range(step, last + 1):
            if later not in self._ahead:
                # What is asked is settled now, not when the task gets to run.
                debates, stage = self._step_debates(later), self._curriculum.at
                shown = later == step or train.lag == 0
                sampled = self._sample(debates, sampler, stage, shown=shown)
                self._ahead[later] = asyncio.create_task(sampled)

    async def _debates_of(self, step: int) -> Sampled:
        """Waits for the debates of a step. In async mode they were begun with weights that are gone
        and cannot be made again, so a request to stop lets them finish."""
        task = self._ahead.pop(step)
        sampled = await self.stop.watch(task, step) if not self.recipe.train.lag else await task
        assert isinstance(sampled, Sampled)
        return sampled

    async def _sample(
        self, debates: Sequence[Debate], sampler: Sampler, stage: int, *, shown: bool
    ) -> Sampled:
        began = time.monotonic()
        player = ModelPlayer(sampler, self.engine.chat)
        watch = self._watcher("debating", len(debates)) if shown else None
        train = self.recipe.train
        played = await play(
            debates, player, retries=train.retries, turn_timeout=train.turn_timeout, watch=watch
        )
        return _sampled(played, time.monotonic() - began, stage)

    def _step_debates(self, step: int) -> list[Debate]:
        """About the next questions of the stage; and, where the recipe says so, open ones again."""
        stage, train = self._curriculum.at, self.recipe.train
        task = self._tasks[stage]
        if not train.resample:
            return step_debates(self.recipe, task, step)
        questions = self._difficulty.draw(
            task, stage, self.recipe.seed, step, train.questions, train.resample
        )
        return step_debates(self.recipe, task, step, questions)

    def _watcher(self, text: str, total: int) -> Callable[[Heard], None]:
        done: set[int] = set()

        def watch(event: Heard) -> None:
            if event.state.outcome is not None:
                done.add(event.debate)
                self.display.phase(text, len(done), total)

        return watch

    async def _drop_ahead(self) -> None:
        for task in self._ahead.values():
            task.cancel()
        await asyncio.gather(*self._ahead.values(), return_exceptions=True)
        self._ahead.clear()

    # Learning

    async def _learn(self, trainer: Trainer, step: int, batch: Sampled) -> dict[str, float]:
        guide = await self._guided(step, batch)
        task = self._tasks[batch.stage]
        lesson = learn_from(batch.transcripts, self.recipe, task, self._baseline, guide, step)
        self._baseline = lesson.baseline
        if self.recipe.train.resample:
            for question, share in lesson.passed.items():
                self._difficulty.feed(batch.stage, question, share)
        self.folder.write_transcripts(step, batch.transcripts)
        began = time.monotonic()
        self.display.phase("training", 0, 0)
        update = self._update(trainer, step, lesson)
        trained = await update.done() if update else {}
        if not update:
            self.display.note(
                f"step {step + 1}: skipped, because no group of {len(batch.transcripts)} has a "
                "signal: all its rewards are equal, or there are none"
            )
        return {
            **lesson.metrics,
            **trained,
            "questions": float(self.recipe.train.questions),
            "debates/failed": float(batch.failed),
            "debates/retried": float(batch.retried),
            "skipped": float(update is None),
            **({"stage": float(batch.stage)} if self.recipe.stages else {}),
            **({"bootstrap/weight": guide.weight} if guide else {}),
            "staleness": float(min(step, self.recipe.train.lag)),
            "time/training": time.monotonic() - began,
        }

    async def _guided(self, step: int, batch: Sampled) -> Guide | None:
        """What the guide votes in the debates of a step, as long as it weighs anything."""
        weight = self.recipe.bootstrap.share(step)
        if not weight:
            return None
        guide = await self._open_guide()
        self.display.phase("asking the guide", 0, 0)
        found = await guide_votes(batch.transcripts, guide)
        if found.failed:
            self.display.note(f"step {step + 1}: the guide failed at {found.failed} ballots")
        return Guide(found.votes, weight)

    async def _open_guide(self) -> Player:
        if self._guide is None:
            model = model_of(self.recipe.bootstrap.guide, self.recipe.model)
            engine = make_engine(replace(self.recipe, model=model), None)
            self._guide = ModelPlayer(await engine.policy(), engine.chat, anew=True)
        return self._guide

    def _update(self, trainer: Trainer, step: int, lesson: Lesson) -> Update | None:
        if not lesson.data:
            return None
        train = self.recipe.train
        stale = min(step, train.lag) > 0
        loss: Loss = "ppo" if stale and train.loss == "importance_sampling" else train.loss
        adam = Adam(
            train.learning_rate * train.rate().factor(step),
            train.beta1,
            train.beta2,
            weight_decay=train.weight_decay,
            clip_norm=train.clip_norm,
        )
        return submit(trainer, lesson.data, loss, adam, train.microbatch)

    # Watching

    async def _evaluate_if_due(self, step: int, sampler: Sampler) -> None:
        train = self.recipe.train
        every = train.eval_every
        stage = self._curriculum.at
        due = step in (0, train.steps) or (every > 0 and step % every == 0)
        if not due and not (stage and self._curriculum.since == step):
            return
        wrong = self._mode_wrong.get(stage)
        also = {"stage": float(stage)} if self.recipe.stages else {}
        found = await self._evaluate(sampler, step, wrong, self._tasks[stage], also)
        if found and wrong is None:
            self._mode_wrong[stage] = found.wrong

    def _advance(self, step: int, metrics: Mapping[str, float], stage: int) -> None:
        """Goes to the next stage when it is time. Debates of an earlier stage do not count."""
        now = self._curriculum.at
        # After the last step there is nothing to go on with.
        if not self.recipe.stages or stage != now or step + 1 == self.recipe.train.steps:
            return
        name = measure_name(self._curriculum.stage, self._tasks[now].name)
        if step == self._curriculum.since and name not in metrics:
            self.display.note(f"stages: there is no metric {name}; only steps end stage {now + 1}")
        why = self._curriculum.feed(metrics, self._tasks[now].name, step)
        if why:
            name = self._tasks[self._curriculum.at].name
            self.display.note(f"stage {now + 2} ({name}) begins after step {step + 1}: {why}")

    def _ring(self, step: int, metrics: Mapping[str, float]) -> None:
        for alarm in self._alarms.feed(metrics, step):
            self.folder.add_alarm(
                {"step": step, "alarm": alarm.name, "saw": alarm.saw, "try": alarm.try_}
            )
            self.display.note(f"alarm, {alarm}")
            if alarm.name in self.recipe.alarms.stop_on:
                raise Stopped(f"stopped by stop_on at step {step + 1}: {str(alarm).rstrip('.')}")

    # Keeping

    async def _save(self, trainer: Trainer) -> None:
        """The engine's part first, then ours: a checkpoint counts once both are there. Debates in
        flight are waited for and kept: their weights will be gone."""
        self.display.phase("saving", 0, 0)
        step = self._step
        await trainer.save(weights_name(step))
        groups = [await self._ahead[s] for s in sorted(self._ahead)]
        if groups:
            self.folder.write_ahead(step, [group.transcripts for group in groups])
        state = {
            "baseline": [[*role, mean] for role, mean in self._baseline.means.items()],
            "alarms": self._alarms.to_data(),
            "mode_wrong": {str(stage): ids for stage, ids in self._mode_wrong.items()},
            "ahead": [[g.failed, g.retried, g.stage] for g in groups],
            "curriculum": self._curriculum.to_data(),
            "difficulty": self._difficulty.rates,
        }
        self.folder.write_checkpoint(step, state, self.recipe.train.keep)

    async def _restore(self, trainer: Trainer, checkpoint: Checkpoint) -> None:
        await trainer.load(checkpoint.name)
        state = checkpoint.state
        self._step = checkpoint.step
        means = {(int(seat), str(stream)): float(m) for seat, stream, m in state["baseline"]}
        self._baseline = RoleBaseline(means)
        self._alarms = Alarms.from_data(state["alarms"])
        self._mode_wrong = {int(at): tuple(ids) for at, ids in state["mode_wrong"].items()}
        self._curriculum = Curriculum.from_data(self._curriculum.stages, state["curriculum"])
        self._difficulty = Difficulty(dict(state["difficulty"]))
        if state["ahead"]:
            name = f"{checkpoint_name(checkpoint.step)}.ahead.jsonl.zst"
            kept = read_ahead(self.folder.checkpoints / name)
            for at, (failed, retried, stage) in enumerate(state["ahead"], checkpoint.step):
                sampled = Sampled(kept.get(at, []), failed, retried, stage=stage)
                self._ahead[at] = asyncio.create_task(_known(sampled))


async def _known(sampled: Sampled) -> Sampled:
    return sampled


def _sampled(played: Played, seconds: float, stage: int) -> Sampled:
    return Sampled(played.transcripts, len(played.failures), played.retries, seconds, stage)


def step_debates(
    recipe: Recipe, task: Task, step: int, questions: Sequence[Question] | None = None
) -> list[Debate]:
    """The debates of a step, about the next questions of the task unless others are given: a pure
    function of the recipe and the step."""
    count = recipe.train.questions
    protocol = recipe.protocol.protocol()
    if questions is None:
        questions = task.draw(recipe.seed, step * count, count)
    return [
        Debate(question, protocol, derive(recipe.seed, "debate", step, index), recipe.protocol)
        for index, question in enumerate(questions)
    ]
