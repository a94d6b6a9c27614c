"""Warm starts: what is spoken, which tokens are learned, and that it can be resumed."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rostra.cli.running import make_evaluator
from rostra.debate.peer import PeerRules
from rostra.engines.bytechat import transcribe
from rostra.engines.engine import Engine
from rostra.engines.scripted import ScriptedEngine
from rostra.engines.training import Adam, Datum, Loss, Trainer, TrainOutput
from rostra.errors import ConfigError, EngineError
from rostra.learn.setup import check_training, make_task
from rostra.learn.stop import Stopped
from rostra.learn.warmstart import WarmStart, spoken_data, teacher
from rostra.players.rehearsal import rehearsal
from rostra.runs.folder import RunFolder, read_lines
from rostra.runs.settings import EvalSettings, ModelSettings, Recipe
from rostra.runs.settings import TrainSettings as Train
from rostra.runs.syllabus import Phase, TaskSettings
from rostra.runs.transcripts import read_transcripts
from rostra.tasks.grading import Integers, boxed
from rostra.tasks.question import Question
from rostra.tasks.task import Task
from tests.learn.test_selfplay import Screen, TracedTrainer, left_behind, logits, recipe, weights_of
from tests.learn.test_selfplay import Traced as Tracing
from tests.learn.test_selfplay import perform as debate_for_real
from tests.playing import play_rehearsal

PROMPTS = Path(__file__).parents[2] / "recipes" / "prompts" / "sums"
"""Short ones, which a small model reads quickly."""
RULES = PeerRules(agents=4, rounds=1)
DEBATES = Phase(steps=3, debates=2, learning_rate=0.01)
BALLOTS = 10
DRILLS = Phase("drill", steps=3, drills=2, ballots=BALLOTS, learning_rate=0.01)


def warm(path: Path, *phases: Phase, **changes: Any) -> Recipe:
    tables: dict[str, Any] = {
        "loop": "warmstart",
        "phases": phases,
        "protocol": RULES,
        "train": Train(save_every=2),
    }
    return replace(recipe(path), **tables | changes)


class Reader(Tracing):
    """A scripted engine that keeps what it was given to learn, step by step."""

    def __init__(self, chosen: Recipe) -> None:
        super().__init__(ScriptedEngine(rehearsal(), weights_of(chosen)))
        self.learned: list[list[Datum]] = []
        self.given: list[Datum] = []

    async def trainer(self) -> Trainer:
        return _ReadingTrainer(self, await self.inner.trainer())


class _ReadingTrainer(TracedTrainer):
    async def forward_backward(self, data: Any, loss: Loss) -> TrainOutput:
        assert isinstance(self.log, Reader)
        self.log.given += data
        return await super().forward_backward(data, loss)

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        assert isinstance(self.log, Reader)
        self.log.learned.append(self.log.given)
        self.log.given = []
        return await super().optim_step(adam)


def perform(
    chosen: Recipe, engine: Engine | None = None, *, resume: bool = False, stop_after: int = 0
) -> Screen:
    folder = RunFolder.open(chosen, resume=resume, overwrite=False)
    task = make_task(chosen.task)

    def when(what: str, step: int) -> None:
        if (what, step) == ("step", stop_after):
            run.stop.ask()

    screen = Screen(when)
    engine = engine or Reader(chosen)
    run = WarmStart(chosen, task, engine, folder, screen, make_evaluator(chosen, engine.chat))
    try:
        asyncio.run(run.run())
    finally:
        folder.close()
    return screen


def metrics(chosen: Recipe, kind: str = "train") -> list[dict[str, Any]]:
    found = read_lines(Path(chosen.folder) / "metrics.jsonl")
    return [line for line in found if line["kind"] == kind]


def learned_text(datum: Datum) -> str:
    return transcribe(datum.targets[datum.weights > 0])


# What is spoken


def test_debates_of_the_teacher_are_learned_word_by_word(tmp_path):
    chosen = warm(tmp_path, DEBATES)
    engine = Reader(chosen)
    perform(chosen, engine)
    assert len(engine.learned) == 3
    task = make_task(chosen.task)
    known = {q.prompt: q.reference for q in task.train}
    for step, data in enumerate(engine.learned):
        assert len(data) == 2 * 4
        asked = [q.prompt for q in task.draw(chosen.seed, step * 2, 2)]
        for place, datum in enumerate(data):
            text = learned_text(datum)
            question = asked[place // 4]
            assert text.startswith(f"{question}=<solution>")
            assert boxed(text.partition("</solution>")[0]) == known[question]
            assert "Question" not in text  # no prompt is learned
    assert set(engine.losses[0]) == {"cross_entropy"}


def test_what_is_learned_in_a_step_weighs_one_in_all_and_every_token_the_same(tmp_path):
    chosen = warm(tmp_path, DEBATES)
    engine = Reader(chosen)
    perform(chosen, engine)
    for data in engine.learned:
        weights = np.concatenate([d.weights for d in data])
        assert weights.sum() == pytest.approx(1, rel=1e-4)
        assert len(np.unique(weights)) == 2 and weights.min() == 0


def test_debates_and_drills_of_one_step_weigh_one_each(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, drills=2, ballots=BALLOTS, steps=1))
    engine = Reader(chosen)
    perform(chosen, engine)
    (data,) = engine.learned
    drills = 2 + BALLOTS
    assert len(data) == drills + 8
    sums = [float(d.weights.sum()) for d in data]
    assert sum(sums[:drills]) == pytest.approx(1, rel=1e-4)
    assert sum(sums[drills:]) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(
    ("streams", "has", "lacks"),
    [
        (("gen",), "<solution>", "<comparison>"),
        (("judge",), "<comparison>", "<solution>"),
        (("gen", "judge"), "<solution>", None),
    ],
)
def test_streams_choose_which_tokens_weigh(tmp_path, streams, has, lacks):
    chosen = warm(tmp_path, replace(DEBATES, steps=1, streams=streams))
    engine = Reader(chosen)
    perform(chosen, engine)
    for datum in engine.learned[0]:
        assert has in learned_text(datum)
        assert lacks is None or lacks not in learned_text(datum)
        np.testing.assert_array_equal(datum.weights > 0, datum.mask > 0)


def test_the_streams_of_a_debate_share_its_tokens_out():
    played = play_rehearsal(RULES, rehearsal(), about=Question("q", "2+3", "5"))
    parts = {
        streams: sum(float(d.mask.sum()) for d in spoken_data([played], streams))
        for streams in (("gen",), ("judge",), ("gen", "judge"))
    }
    assert parts[("gen", "judge")] == sum(len(turn.tokens) for turn in played.turns)
    assert parts[("gen",)] + parts[("judge",)] == parts[("gen", "judge")]
    assert min(parts.values()) > 0


def test_drill_pages_weigh_only_answers(tmp_path):
    chosen = warm(tmp_path, DRILLS)
    engine = Reader(chosen)
    perform(chosen, engine)
    assert [len(data) for data in engine.learned] == [2 + BALLOTS] * 3
    for datum in (d for data in engine.learned for d in data[:2]):
        whole = transcribe(np.concatenate([datum.inputs[:1], datum.targets]))
        page = whole.partition("<|assistant|>\n")[2]
        answers = ""
        for row in page.splitlines():
            if "boxed" in row:
                a, b = row.partition("=")[0].split("+")
                answer = boxed(row)
                assert answer == str(int(a) + int(b))
            else:
                equation, answer = row.split(" ")
                said, mine = equation.split("=")
                assert answer == ("yes" if said == mine else "no")
                answer = f" {answer}"
            answers += answer
        assert len(page.splitlines()) == 64
        assert learned_text(datum) == answers
    pages = [transcribe(d.targets) for data in engine.learned for d in data[:2]]
    assert len(set(pages)) == 6


def test_a_ballot_stands_on_a_page_of_its_own_and_only_its_lines_weigh(tmp_path):
    chosen = warm(tmp_path, DRILLS)
    engine = Reader(chosen)
    perform(chosen, engine)
    ballots = [datum for data in engine.learned for datum in data[2:]]
    pages = [transcribe(d.targets).partition("<|assistant|>\n")[2] for d in ballots]
    assert len(set(pages)) == len(pages) == 3 * BALLOTS
    for page, datum in zip(pages, ballots, strict=True):
        before, _, after = page.partition("<comparison>")
        assert before.count("<evaluation>") == 1
        assert learned_text(datum) == after.removesuffix("</comparison>")


def test_of_solutions_only_the_right_ones_are_learned_where_a_phase_says_so(tmp_path):
    """What is wrong or malformed is there to be judged; judging is learned from every ballot."""
    faults = {"slips": 0.5, "malformed": 0.3, "debates": 12, "steps": 1}
    rules = replace(RULES, closing_ballot=True)
    chosen = warm(tmp_path, replace(DEBATES, **faults, only_right=True), protocol=rules)
    engine = Reader(chosen)
    perform(chosen, engine)
    texts = [learned_text(datum) for datum in engine.learned[0]]
    solutions = [text for text in texts if "<solution>" in text]
    assert 10 < len(solutions) < 30 and len(texts) == 48
    for text in solutions:
        a, b = text.partition("=")[0].split("+")
        assert boxed(text.partition("</solution>")[0]) == str(int(a) + int(b))
    assert sum("<comparison>" in text for text in texts) == 48


def test_drills_are_about_training_questions_only(tmp_path):
    chosen = warm(tmp_path, replace(DRILLS, drills=6))
    engine = Reader(chosen)
    perform(chosen, engine)
    held = {q.prompt for q in make_task(chosen.task).held_out}
    for datum in (d for data in engine.learned for d in data):
        rows = transcribe(datum.targets).splitlines()
        assert not held & {row.partition("=")[0] for row in rows if "+" in row}


def test_a_careless_teacher_is_wrong_as_often_as_it_is_told(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, steps=4, debates=12, slips=0.5))
    engine = Reader(chosen)
    perform(chosen, engine)
    right = []
    for datum in (d for data in engine.learned for d in data):
        text = learned_text(datum)
        a, b = text.partition("=")[0].split("+")
        right.append(boxed(text.partition("</solution>")[0]) == str(int(a) + int(b)))
    assert len(right) == 4 * 12 * 4
    assert np.mean(right) == pytest.approx(0.5, abs=0.12)


def test_stored_debates_are_spoken_again_word_by_word(tmp_path):
    first = recipe(tmp_path / "first")
    debate_for_real(first)
    stored = [s.transcript for s in read_transcripts(Path(first.folder))]
    phase = Phase("stored", steps=7, debates=2, path=first.folder, learning_rate=0.01)
    chosen = warm(tmp_path / "again", phase, protocol=replace(RULES, agents=3))
    engine = Reader(chosen)
    perform(chosen, engine)
    assert len(stored) == 12 and len(engine.learned) == 7
    for step, data in enumerate(engine.learned):
        # After the last debate the first comes again.
        old = [stored[(2 * step + i) % 12] for i in range(2)]
        seats = [turns for t in old for turns in t.by_seat()]
        assert len(data) == len(seats)
        for datum, turns in zip(data, seats, strict=True):
            spoken = np.concatenate([turn.tokens for turn in turns])
            np.testing.assert_array_equal(datum.targets[datum.mask > 0], spoken)
            assert datum.temperature == 1


def test_phases_follow_each_other_each_with_its_own_rate(tmp_path):
    second = replace(DEBATES, steps=4, learning_rate=0.02, streams=("judge",))
    chosen = warm(tmp_path, DRILLS, second)
    engine = Reader(chosen)
    perform(chosen, engine)
    found = metrics(chosen)
    assert [line["phase"] for line in found] == [0, 0, 0, 1, 1, 1, 1]
    assert [len(data) for data in engine.learned] == [12, 12, 12, 8, 8, 8, 8]
    rates = [line["optim/learning_rate"] for line in found]
    assert max(rates[:3]) <= 0.01 and max(rates[3:]) <= 0.02
    assert rates[-1] < max(rates[3:]) and rates[2] < max(rates[:3])
    assert rates[3:] != rates[:3]
    tokens = [sum(len(d.targets) for d in data) for data in engine.learned]
    assert [line["tokens"] for line in found] == tokens


def test_a_warm_start_makes_its_own_words_likelier(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, steps=10, learning_rate=0.05))
    perform(chosen)
    losses = [line["loss"] for line in metrics(chosen)]
    assert losses[0] == pytest.approx(np.log(260), rel=0.01)
    assert losses[-1] < losses[0] - 0.3
    found = logits(chosen)
    assert found[ord("o")] > 0 > found[ord("Z")]


# Going on, evaluating, refusing

RESUMED = {
    "debates": [replace(DEBATES, steps=5, slips=0.3, malformed=0.2)],
    "phases": [replace(DRILLS, steps=2), replace(DEBATES, steps=3)],
}


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("name", RESUMED)
def test_a_warm_start_that_was_stopped_and_resumed_equals_one_that_never_was(tmp_path, name, at):
    evaluated = EvalSettings(2, 4, 1)
    whole = warm(tmp_path / "whole", *RESUMED[name], eval=evaluated)
    parts = warm(tmp_path / "parts", *RESUMED[name], eval=evaluated)
    perform(whole)
    # A step that is on its way is waited for; before a checkpoint, none is.
    steps = at if at % 2 == 0 else at + 1
    with pytest.raises(Stopped, match=f"stopped after {steps} step"):
        perform(parts, stop_after=at)
    perform(parts, resume=True)
    for chosen in (whole, parts):
        (Path(chosen.folder) / "transcripts").mkdir()  # a warm start keeps none
    assert left_behind(whole) == left_behind(parts)


def test_stored_debates_go_on_where_they_were_when_resumed(tmp_path):
    first = recipe(tmp_path / "first")
    debate_for_real(first)
    phase = Phase("stored", steps=5, debates=2, path=first.folder)
    whole, parts = warm(tmp_path / "whole", phase), warm(tmp_path / "parts", phase)
    perform(whole)
    with pytest.raises(Stopped):
        perform(parts, stop_after=3)
    perform(parts, resume=True)
    np.testing.assert_array_equal(logits(whole), logits(parts))
    assert logits(whole).any()


def test_there_is_one_evaluation_and_it_is_the_last_line(tmp_path):
    chosen = warm(tmp_path, DEBATES, eval=EvalSettings(3, 4, 2))
    perform(chosen)
    whole = read_lines(Path(chosen.folder) / "metrics.jsonl")
    assert [line["kind"] for line in whole] == ["train"] * 3 + ["eval"]
    assert whole[-1]["step"] == 3
    assert 0 <= whole[-1]["eval/direct/greedy"] <= 1


def test_without_questions_to_evaluate_there_is_no_evaluation(tmp_path):
    chosen = warm(tmp_path, DEBATES)
    perform(chosen)
    assert metrics(chosen, "eval") == []


def test_a_task_without_a_teacher_is_refused_in_one_sentence():
    task = Task("riddles", [], [], Integers())
    with pytest.raises(ConfigError) as refused:
        teacher(task, DEBATES)
    assert str(refused.value) == 'task riddles has no teacher; use kind = "stored"'


def test_drills_of_a_task_that_has_none_are_refused_in_one_sentence(tmp_path):
    chosen = warm(tmp_path, DRILLS, task=TaskSettings("shop"))
    with pytest.raises(ConfigError) as refused:
        perform(chosen)
    assert str(refused.value) == "drills: task shop has none; leave drills out"


def test_the_word_problems_have_a_teacher(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, steps=1), task=TaskSettings("shop"))
    engine = Reader(chosen)
    perform(chosen, engine)
    right = {q.reference for q in make_task(chosen.task).draw(chosen.seed, 0, 2)}
    assert {boxed(learned_text(d).partition("</solution>")[0]) for d in engine.learned[0]} == right


def test_a_real_model_learns_what_the_teacher_says(tmp_path):
    torch = pytest.importorskip("torch")
    from rostra.learn.setup import make_engine

    before = torch.get_num_threads()
    model = ModelSettings(name="toy-sums", lora_rank=0, threads=1)
    phase = Phase(steps=15, debates=1, learning_rate=3e-3)
    short = {file.stem: file.read_text() for file in PROMPTS.glob("*.md")}
    rules = replace(RULES, agents=3, max_tokens=64, prompts=short)
    chosen = warm(tmp_path, phase, model=model, protocol=rules, train=Train(save_every=50))
    engine: Any = make_engine(chosen, Path(chosen.folder) / "checkpoints")
    try:
        perform(chosen, engine)
    finally:
        engine.close()
        torch.set_num_threads(before)
    losses = [line["loss"] for line in metrics(chosen)]
    assert len(losses) == 15
    assert np.mean(losses[-3:]) < 0.75 * np.mean(losses[:2])


# Updates on their way


class _Waiting(TracedTrainer):
    """A trainer that ends an update only when the next one has been handed over: the loop that
    waits for each update by itself never ends."""

    arrived = 0
    fail_at = 0

    async def forward_backward(self, data: Any, loss: Loss) -> TrainOutput:
        assert isinstance(self.log, Waiter)
        self.arrived += 1
        self.log.next.set()
        self.log.next = asyncio.Event()
        if self.arrived == self.log.fail_at:
            raise EngineError("out of memory")
        return await super().forward_backward(data, loss)

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        assert isinstance(self.log, Waiter)
        waited = self.log.next
        if self.arrived % self.log.together:
            await asyncio.wait_for(waited.wait(), 5)
        return await super().optim_step(adam)


class Waiter(Reader):
    def __init__(self, chosen: Recipe, together: int, fail_at: int = 0) -> None:
        super().__init__(chosen)
        self.together, self.fail_at = together, fail_at
        self.next = asyncio.Event()

    async def trainer(self) -> Trainer:
        return _Waiting(self, await self.inner.trainer())


def test_the_next_update_is_handed_over_before_the_current_one_is_waited_for(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, steps=6), train=Train(save_every=3))
    engine = Waiter(chosen, together=3)
    perform(chosen, engine)
    assert engine.updates == 6
    assert [line["step"] for line in metrics(chosen)] == list(range(6))


def test_an_update_that_fails_leaves_nothing_behind_and_the_checkpoint_before_it_intact(tmp_path):
    chosen = warm(tmp_path, replace(DEBATES, steps=6), train=Train(save_every=3))
    with pytest.raises(EngineError, match="out of memory"):
        perform(chosen, Waiter(chosen, together=3, fail_at=5))
    assert [line["step"] for line in metrics(chosen)] == [0, 1, 2, 3]
    perform(chosen, resume=True)
    assert [line["step"] for line in metrics(chosen)] == list(range(6))


def test_prepared_solutions_without_a_ballot_to_judge_them_in_are_refused(tmp_path):
    rules = replace(RULES, closing_ballot=False)
    chosen = warm(tmp_path, DEBATES, protocol=rules, eval=EvalSettings(2, 4, 1, prepared=2))
    with pytest.raises(ConfigError, match="eval.prepared: needs protocol.closing_ballot"):
        check_training(chosen, [])
