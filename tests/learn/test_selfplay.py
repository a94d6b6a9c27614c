"""Whole runs of self-play on the scripted engine: words from a script, real numbers and updates."""

import asyncio
import io
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rostra.cli.running import make_evaluator
from rostra.debate.peer import PeerRules
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import transcribe
from rostra.engines.engine import Engine
from rostra.engines.sampling import Completion, Sampler, SamplingParams
from rostra.engines.scripted import Prompt, Script, ScriptedEngine
from rostra.engines.training import Adam, Datum, Loss, Trainer, TrainOutput
from rostra.errors import EngineError
from rostra.learn.selfplay import SelfPlay, step_debates
from rostra.learn.setup import make_engine, make_task
from rostra.learn.stop import Stopped
from rostra.players.rehearsal import rehearsal
from rostra.runs.display import PlainDisplay
from rostra.runs.folder import RunFolder, read_lines
from rostra.runs.settings import (
    AlarmSettings,
    EvalSettings,
    ModelSettings,
    Recipe,
    RewardSettings,
    TrainSettings,
)
from rostra.runs.transcripts import read_transcripts

RULES = PeerRules(agents=5, rounds=1)
SHORT = TrainSettings(steps=4, questions=3, save_every=2, eval_every=2, learning_rate=0.01)
QUIET = EvalSettings(questions=0)


def recipe(path: Path, train: TrainSettings = SHORT, **changes: Any) -> Recipe:
    tables: dict[str, Any] = {
        "folder": str(path / "run"),
        "model": ModelSettings(engine="scripted"),
        "protocol": RULES,
        "train": train,
        "eval": QUIET,
    }
    return Recipe(**tables | changes)


class Screen(PlainDisplay):
    """A display on paper, with a way to do something when something is shown."""

    def __init__(self, when: Callable[[str, int], None] = lambda what, step: None) -> None:
        self.paper = io.StringIO()
        self.when = when
        super().__init__(Console(file=self.paper, width=200))

    def phase(self, text: str, done: int, total: int) -> None:
        super().phase(text, done, total)
        self.when(text, done)

    def step(self, metrics: Mapping[str, float | None], *, step: int, steps: int) -> None:
        super().step(metrics, step=step, steps=steps)
        self.when("step", step)


def perform(
    recipe: Recipe,
    engine: Engine | None = None,
    *,
    resume: bool = False,
    stop: Callable[[str, int], bool] = lambda what, step: False,
) -> Screen:
    """A run to its end, or to where `stop` has it stopped; the weights lie beside the run."""
    folder = RunFolder.open(recipe, resume=resume, overwrite=False)
    task = make_task(recipe.task)
    screen = Screen(lambda what, step: run.stop.ask() if stop(what, step) else None)
    engine = engine or ScriptedEngine(rehearsal(fault=0.1), weights_of(recipe))
    run = SelfPlay(recipe, task, engine, folder, screen, make_evaluator(recipe, engine.chat))
    try:
        asyncio.run(run.run())
    finally:
        folder.close()
    return screen


def weights_of(recipe: Recipe) -> Path:
    return Path(recipe.folder).parent / "weights"


def lines(recipe: Recipe, kind: str = "train") -> list[dict[str, Any]]:
    found = read_lines(Path(recipe.folder) / "metrics.jsonl")
    return [line for line in found if line["kind"] == kind]


def timeless(line: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k != "seconds" and not k.startswith("time/")}


def left_behind(recipe: Recipe) -> dict[str, Any]:
    """All that a run leaves that must not depend on how often it was stopped."""
    run = Path(recipe.folder)
    last = f"step-{recipe.steps:06d}"
    alarms = run / "alarms.jsonl"
    return {
        "metrics": [timeless(line) for line in read_lines(run / "metrics.jsonl")],
        "alarms": read_lines(alarms) if alarms.exists() else [],
        "loop": (run / "checkpoints" / f"{last}.json").read_bytes(),
        "weights": saved_weights(recipe, recipe.steps),
        "debates": {f.name: f.read_bytes() for f in (run / "transcripts").iterdir()},
    }


def logits(recipe: Recipe, step: int | None = None) -> np.ndarray:
    held = saved_weights(recipe, recipe.steps if step is None else step)
    return np.array(json.loads(held)["logits"])


def saved_weights(recipe: Recipe, step: int) -> bytes:
    """What the scripted engine saved at a step: one file, in whatever folder."""
    files = [f for f in weights_of(recipe).rglob("*.json") if f"-{step:06d}" in str(f)]
    (file,) = files
    return file.read_bytes()


# What is learned


def favourite(asked: Prompt, seed: int) -> str:
    """Agent 0 says W, the others Q, and all others vote for Agent 0; no other word has either."""
    me = re.search(r"You are Agent (\d+)", asked.text)
    assert me
    seat = int(me[1])
    rivals = [i for i in range(1, 5) if i != seat] if seat else []
    votes = "\n".join(f"Agent 0 > Agent {i}" for i in rivals) or "N/A"
    said = ("W" if seat == 0 else "Q") * 40 + "\\boxed{1}"
    if "<solution>" in asked.last[asked.last.rfind("Reply with") :]:
        return (
            f"<solution>{said}</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
        )
    return f"<evaluation>N/A</evaluation><comparison>{votes}</comparison>"


def test_a_run_moves_the_weights_in_the_direction_of_the_advantage(tmp_path):
    rules = replace(RULES, format_penalty=0.0)
    chosen = recipe(tmp_path, protocol=rules)
    perform(chosen, ScriptedEngine(favourite, weights_of(chosen)))
    found = logits(chosen)
    assert found[ord("W")] > 0.02
    assert found[ord("Q")] < -0.02
    rewards = [line["reward/gen/by_seat/0"] for line in lines(chosen)]
    assert rewards == [1.0] * 4


def test_the_learning_rate_follows_its_schedule(tmp_path):
    train = replace(SHORT, steps=5, schedule="linear", warmup=2, floor=0.1)
    chosen = recipe(tmp_path, train)
    perform(chosen)
    rates = [line["optim/learning_rate"] for line in lines(chosen)]
    assert rates == pytest.approx([0.01 * train.rate().factor(step) for step in range(5)])
    assert len(set(rates)) > 2


def test_a_run_keeps_all_its_debates_and_every_step_has_its_own_questions(tmp_path):
    chosen = recipe(tmp_path)
    perform(chosen)
    task = make_task(chosen.task)
    stored = [s.transcript.question.id for s in read_transcripts(Path(chosen.folder))]
    asked = [d.question.id for step in range(4) for d in step_debates(chosen, task, step)]
    assert stored == asked and len(set(asked)) == 12


def test_the_debates_of_a_step_are_the_same_whenever_they_are_asked_for(tmp_path):
    chosen = recipe(tmp_path)
    task = make_task(chosen.task)
    one, again = step_debates(chosen, task, 7), step_debates(chosen, task, 7)
    assert [(d.question.id, d.seed) for d in one] == [(d.question.id, d.seed) for d in again]
    seeds = {d.seed for step in range(20) for d in step_debates(chosen, task, step)}
    assert len(seeds) == 60
    other = step_debates(replace(chosen, seed=1), task, 7)
    assert not {d.seed for d in one} & {d.seed for d in other}


# Whose weights


class Traced:
    """An engine whose samplers know how many updates they have seen, and write down who asks."""

    name = "scripted"

    def __init__(self, inner: ScriptedEngine) -> None:
        self.inner = inner
        self.chat = inner.chat
        self.updates = 0
        self.losses: dict[int, set[str]] = {}
        self.asked: dict[str, set[int]] = {}
        """The versions that spoke about a question."""

    async def sampler(self) -> Sampler:
        return await self.inner.sampler()

    async def trainer(self) -> Trainer:
        return TracedTrainer(self, await self.inner.trainer())


class TracedTrainer:
    """Calls are worked off one after the other, in the order they came, as by any trainer."""

    def __init__(self, log: Traced, inner: Trainer) -> None:
        self.log = log
        self.inner = inner
        self.order = asyncio.Lock()

    async def forward(self, data: Sequence[Datum]) -> Sequence[FloatArray]:
        return await self.inner.forward(data)

    async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput:
        async with self.order:
            self.log.losses.setdefault(self.log.updates, set()).add(loss)
            await asyncio.sleep(0.005)  # so that debates of later steps go on meanwhile
            return await self.inner.forward_backward(data, loss)

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        async with self.order:
            await asyncio.sleep(0.01)
            found = await self.inner.optim_step(adam)
            self.log.updates += 1
            return found

    async def sampler(self) -> Sampler:
        return TracedSampler(self.log, await self.inner.sampler(), self.log.updates)

    async def save(self, name: str) -> None:
        await self.inner.save(name)

    async def load(self, name: str) -> None:
        await self.inner.load(name)
        self.log.updates = int(name.rpartition("-")[2])


class TracedSampler:
    def __init__(self, log: Traced, inner: Sampler, version: int) -> None:
        self.log = log
        self.inner = inner
        self.version = version

    async def sample(self, prompt: IntArray, n: int, params: SamplingParams) -> Any:
        found = re.search(r"Question:\n(.*?)\n\n", transcribe(prompt), re.DOTALL)
        assert found
        self.log.asked.setdefault(found[1], set()).add(self.version)
        return await self.inner.sample(prompt, n, params)

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return await self.inner.score(tokens, start)


def versions(recipe: Recipe, engine: Traced) -> list[set[int]]:
    """The weights that spoke in each step."""
    task = make_task(recipe.task)
    return [
        set().union(*(engine.asked[d.question.prompt] for d in step_debates(recipe, task, step)))
        for step in range(recipe.steps)
    ]


@pytest.mark.parametrize(
    ("mode", "staleness"), [("sync", 3), ("async", 0), ("async", 1), ("async", 2)]
)
def test_a_step_is_debated_with_weights_that_are_exactly_so_many_updates_old(
    tmp_path, mode, staleness
):
    lag = staleness if mode == "async" else 0
    chosen = recipe(tmp_path, replace(SHORT, steps=6, mode=mode, staleness=staleness, save_every=4))
    engine = Traced(ScriptedEngine(rehearsal(), weights_of(chosen)))
    perform(chosen, engine)
    assert versions(chosen, engine) == [{max(0, step - lag)} for step in range(6)]
    assert [line["staleness"] for line in lines(chosen)] == [min(step, lag) for step in range(6)]
    stale = {step: {"ppo"} if min(step, lag) else {"importance_sampling"} for step in range(6)}
    assert engine.losses == stale


def test_a_resumed_async_run_keeps_the_debates_of_weights_that_are_gone(tmp_path):
    chosen = recipe(tmp_path, replace(SHORT, steps=7, mode="async", staleness=2, save_every=50))
    before = Traced(ScriptedEngine(rehearsal(), weights_of(chosen)))
    with pytest.raises(Stopped):
        perform(chosen, before, stop=lambda what, step: (what, step) == ("step", 3))
    after = Traced(ScriptedEngine(rehearsal(), weights_of(chosen)))
    perform(chosen, after, resume=True)
    for question, spoken in after.asked.items():
        before.asked.setdefault(question, set()).update(spoken)
    assert versions(chosen, before) == [{max(0, step - 2)} for step in range(7)]
    assert after.losses == {step: {"ppo"} for step in range(3, 7)}


@pytest.mark.parametrize("loss", ["ppo", "cispo"])
def test_a_loss_that_clips_stays_what_it_is(tmp_path, loss):
    chosen = recipe(tmp_path, replace(SHORT, mode="async", staleness=1, loss=loss))
    engine = Traced(ScriptedEngine(rehearsal(), weights_of(chosen)))
    perform(chosen, engine)
    assert engine.losses == {step: {loss} for step in range(4)}


def test_stale_log_probabilities_show_in_the_metrics(tmp_path):
    moved = {}
    for mode in ("sync", "async"):
        chosen = recipe(tmp_path / mode, replace(SHORT, mode=mode, staleness=2, learning_rate=0.05))
        perform(chosen)
        moved[mode] = [line["optim/kl_sample_train_v2"] for line in lines(chosen)]
    assert moved["sync"] == pytest.approx([0] * 4, abs=1e-9)
    assert moved["async"][0] == pytest.approx(0, abs=1e-9)
    assert min(moved["async"][1:]) > 1e-6


# No signal, evaluations, alarms


def undecided(comparison: Callable[[list[int]], str]) -> Script:
    """A script in which all answer alike, and compare as they are told."""

    def reply(asked: Prompt, seed: int) -> str:
        at = asked.last.rfind("You may compare:")
        names = [int(i) for i in re.findall(r"Agent (\d+)", asked.last[at:].split("\n")[0])]
        votes = comparison(names) if at >= 0 else "N/A"
        said = "<evaluation>N/A</evaluation>" + f"<comparison>{votes}</comparison>"
        opens = "<solution>" in asked.last[asked.last.rfind("Reply with") :]
        return ("<solution>\\boxed{1}</solution>" if opens else "") + said

    return reply


def ties(names: list[int]) -> str:
    return "\n".join(f"Agent {a} = Agent {b}" for a, b in zip(names, names[1:], strict=False))


def test_steps_without_any_signal_are_skipped_counted_and_noted(tmp_path):
    chosen = recipe(tmp_path, protocol=replace(RULES, format_penalty=0.0))
    screen = perform(chosen, ScriptedEngine(undecided(lambda names: "N/A"), weights_of(chosen)))
    found = lines(chosen)
    assert [line["skipped"] for line in found] == [1] * 4
    assert [line["env/all/flat_groups"] for line in found] == [3] * 4
    assert all("loss" not in line and line["parse_error"] == 0 for line in found)
    assert not logits(chosen).any()
    notes = [line for line in screen.paper.getvalue().splitlines() if "skipped" in line]
    assert [note.split(":")[1].strip() for note in notes] == [f"step {i}" for i in (1, 2, 3, 4)]


def test_a_step_with_a_signal_is_not_skipped(tmp_path):
    chosen = recipe(tmp_path)
    screen = perform(chosen)
    assert [line["skipped"] for line in lines(chosen)] == [0] * 4
    assert "skipped" not in screen.paper.getvalue()


@pytest.mark.parametrize(("every", "at"), [(2, [0, 2, 4, 5]), (0, [0, 5]), (5, [0, 5]), (1, None)])
def test_evaluations_are_made_before_at_every_so_many_steps_and_after(tmp_path, every, at):
    chosen = recipe(tmp_path, replace(SHORT, steps=5, eval_every=every), eval=EvalSettings(2, 5, 1))
    perform(chosen)
    whole = read_lines(Path(chosen.folder) / "metrics.jsonl")
    assert [line["step"] for line in lines(chosen, "eval")] == (at or [0, 1, 2, 3, 4, 5])
    assert [line["step"] for line in lines(chosen)] == [0, 1, 2, 3, 4]
    # An evaluation at step n stands after n steps of training.
    trained = 0
    for line in whole:
        if line["kind"] == "eval":
            assert line["step"] == trained
        trained += line["kind"] == "train"


def test_without_questions_to_evaluate_nothing_is_evaluated(tmp_path):
    chosen = recipe(tmp_path)
    perform(chosen)
    assert lines(chosen, "eval") == []


def test_an_alarm_that_is_told_to_stop_a_run_stops_it_where_it_can_go_on(tmp_path):
    train = replace(SHORT, steps=12, save_every=50)
    chosen = recipe(tmp_path, train, alarms=AlarmSettings(("consensus",)))
    engine = ScriptedEngine(undecided(ties), weights_of(chosen))
    with pytest.raises(Stopped, match="stop_on at step 8: consensus"):
        perform(chosen, engine)
    rang = read_lines(Path(chosen.folder) / "alarms.jsonl")
    assert [(line["step"], line["alarm"]) for line in rang] == [(7, "consensus")]
    assert len(lines(chosen)) == 8
    perform(chosen, engine, resume=True)
    assert [line["step"] for line in lines(chosen)] == list(range(12))
    assert read_lines(Path(chosen.folder) / "alarms.jsonl") == rang


def test_an_alarm_that_is_not_told_to_stop_a_run_is_only_noted(tmp_path):
    chosen = recipe(tmp_path, replace(SHORT, steps=10), alarms=AlarmSettings(("noise", "format")))
    screen = perform(chosen, ScriptedEngine(undecided(ties), weights_of(chosen)))
    assert len(lines(chosen)) == 10
    assert screen.paper.getvalue().count("alarm, consensus") == 1


# Stopping and going on

VARIANTS = {
    "sync": {},
    "async": {"train": {"mode": "async", "staleness": 1}},
    "async 2": {"train": {"mode": "async", "staleness": 2}},
    "roles": {"rewards": RewardSettings(baseline="role_ema")},
    "async roles": {
        "train": {"mode": "async", "staleness": 1},
        "rewards": RewardSettings(baseline="role_ema"),
    },
    "eval": {"eval": EvalSettings(3, 5, 2)},
    "async eval": {
        "train": {"mode": "async", "staleness": 1, "eval_every": 2},
        "eval": EvalSettings(3, 5, 2),
    },
}
MOMENTS = {
    "after a step": [("step", 1, 0), ("step", 4, 0)],
    "amid debates": [("debating", 2, 0), ("debating", 1, 3)],
    "while training": [("training", 0, 1), ("training", 0, 2)],
    "while saving": [("saving", 0, 1)],
    "amid an evaluation": [("evaluating", 7, 1), ("evaluating", 20, 1)],
}
"""What is shown, with which number, and how many of its kind came before."""


def variant(path: Path, name: str) -> Recipe:
    changes = dict(VARIANTS[name])
    train = {"steps": 7, "save_every": 3, "eval_every": 3} | changes.pop("train", {})
    return recipe(path, replace(SHORT, **train), **changes)


def later(what: str, number: int, skip: int) -> Callable[[str, int], bool]:
    """True at the first moment of that kind after so many others of it."""
    left = skip

    def stop(seen: str, step: int) -> bool:
        nonlocal left
        if (seen, step) != (what, number):
            return False
        left -= 1
        return left == -1

    return stop


STOPPED = [
    (name, moment)
    for name in VARIANTS
    for moment in MOMENTS
    if "eval" in name or moment != "amid an evaluation"
]


@pytest.mark.parametrize(("name", "moment"), STOPPED)
def test_a_run_that_was_stopped_and_resumed_equals_one_that_never_was(tmp_path, name, moment):
    whole, parts = variant(tmp_path / "whole", name), variant(tmp_path / "parts", name)
    perform(whole)
    stops = 0
    for at in MOMENTS[moment]:
        try:
            perform(parts, resume=stops > 0, stop=later(*at))
            break
        except Stopped:
            stops += 1
    assert stops
    perform(parts, resume=True)
    one, other = left_behind(whole), left_behind(parts)
    assert one["metrics"] == other["metrics"]
    assert one["debates"] == other["debates"]
    assert one == other
    assert len(one["metrics"]) >= 7


def test_two_runs_of_one_recipe_are_equal_and_another_seed_gives_another(tmp_path):
    one, same = variant(tmp_path / "one", "eval"), variant(tmp_path / "same", "eval")
    other = replace(variant(tmp_path / "other", "eval"), seed=1)
    for chosen in (one, same, other):
        perform(chosen)
    assert left_behind(one) == left_behind(same)
    assert left_behind(one)["weights"] != left_behind(other)["weights"]


def test_resuming_a_run_that_is_over_changes_nothing(tmp_path):
    chosen = variant(tmp_path, "eval")
    perform(chosen)
    before = left_behind(chosen)
    perform(chosen, resume=True)
    assert left_behind(chosen) == before


def test_a_stop_amid_debates_does_not_wait_for_them(tmp_path):
    """In sync mode debates can be played again, so they are given up."""
    chosen = recipe(tmp_path, replace(SHORT, questions=6))
    engine = Traced(ScriptedEngine(rehearsal(), weights_of(chosen)))
    with pytest.raises(Stopped, match="stopped after 0 steps"):
        perform(chosen, engine, stop=lambda what, done: what == "debating")
    assert not (Path(chosen.folder) / "metrics.jsonl").exists()
    assert RunFolder(Path(chosen.folder), chosen).last_checkpoint() is None


def test_the_scripted_engine_of_a_recipe_can_be_resumed(tmp_path):
    """The checkpoints of engine and loop lie in one folder: neither may overwrite the other."""
    chosen = recipe(tmp_path)
    checkpoints = Path(chosen.folder) / "checkpoints"
    with pytest.raises(Stopped):
        perform(chosen, make_engine(chosen, checkpoints), stop=lambda *at: at == ("step", 2))
    perform(chosen, make_engine(chosen, checkpoints), resume=True)
    assert [line["step"] for line in lines(chosen)] == [0, 1, 2, 3]


def test_old_checkpoints_are_dropped_and_the_last_ones_kept(tmp_path):
    chosen = recipe(tmp_path, replace(SHORT, steps=7, save_every=1, keep=2, mode="async"))
    perform(chosen)
    kept = sorted(f.name for f in (Path(chosen.folder) / "checkpoints").glob("step-*.json"))
    assert kept == ["step-000006.json", "step-000007.json"]


# Samplers that fail

FAULTS = ("raises", "hangs", "short", "long", "nan", "nothing", "babble")
HARMLESS = ("babble",)
"""What is a bad answer, and no failure."""


class Unreliable(Traced):
    """An engine whose samplers fail at one call in twenty."""

    def __init__(self, inner: ScriptedEngine, fault: str, rate: float = 0.05) -> None:
        super().__init__(inner)
        self.fault = fault
        self.rate = rate
        self.random = random.Random(4)
        self.faults = 0

    async def trainer(self) -> Trainer:
        return UnreliableTrainer(self, await self.inner.trainer())


class UnreliableTrainer(TracedTrainer):
    async def sampler(self) -> Sampler:
        assert isinstance(self.log, Unreliable)
        return UnreliableSampler(self.log, await self.inner.sampler())


class UnreliableSampler:
    def __init__(self, engine: Unreliable, inner: Sampler) -> None:
        self.engine = engine
        self.inner = inner

    async def sample(self, prompt: IntArray, n: int, params: SamplingParams) -> Any:
        (good,) = await self.inner.sample(prompt, n, params)
        if self.engine.random.random() >= self.engine.rate:
            return [good]
        self.engine.faults += 1
        match self.engine.fault:
            case "raises":
                raise EngineError("the server said 500")
            case "hangs":
                await asyncio.sleep(3600)
            case "short":
                return [replace(good, logprobs=good.logprobs[:-1])]
            case "long":
                return [replace(good, starts=np.append(good.starts, 0))]
            case "nan":
                return [replace(good, logprobs=good.logprobs * np.float32("nan"))]
            case "nothing":
                return []
        said = "<solution>]]<<solution></comparison>\x00"
        tokens = self.engine.chat.reply(said, end=True)
        silent = np.full(len(tokens.tokens), -1, np.float32)
        return [Completion(said, tokens.tokens, silent, tokens.starts, "stop")]

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return await self.inner.score(tokens, start)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_goes_on_and_counts_when_one_call_in_twenty_fails(tmp_path, fault, mode):
    train = replace(SHORT, questions=8, retries=1, turn_timeout=0.2, mode=mode)
    chosen = recipe(tmp_path, train)
    engine = Unreliable(ScriptedEngine(rehearsal(), weights_of(chosen)), fault)
    perform(chosen, engine)
    found = lines(chosen)
    assert len(found) == 4 and engine.faults >= 8
    assert all(line["debates"] + line["debates/failed"] == 8 for line in found)
    retried = sum(line["debates/retried"] for line in found)
    failed = sum(line["debates/failed"] for line in found)
    if fault in HARMLESS:
        assert (retried, failed) == (0, 0)
        assert sum(line["parse_error"] for line in found) > 0
    else:
        # A failed attempt is followed by another, or ends its debate; several faults may hit one.
        assert 0 < retried + failed <= engine.faults
        assert retried > 0 and failed > 0
        assert all(line["parse_error"] == 0 for line in found)
    assert np.isfinite(logits(chosen)).all() and logits(chosen).any()


def test_without_retries_every_fault_costs_a_debate(tmp_path):
    chosen = recipe(tmp_path, replace(SHORT, questions=8, retries=0))
    perform(chosen, Unreliable(ScriptedEngine(rehearsal(), weights_of(chosen)), "raises"))
    found = lines(chosen)
    assert sum(line["debates/retried"] for line in found) == 0
    stored = list(read_transcripts(Path(chosen.folder)))
    failed = sum(line["debates/failed"] for line in found)
    assert failed > 0 and len(stored) == 32 - failed


def test_an_engine_that_never_hangs_up_does_not_hold_up_an_evaluation(tmp_path):
    """A reply that never comes is given up after turn_timeout, in an evaluation as in training."""
    train = replace(SHORT, steps=1, turn_timeout=0.2)
    chosen = recipe(tmp_path, train, eval=EvalSettings(4, 5, 2))
    engine = Unreliable(ScriptedEngine(rehearsal(), weights_of(chosen)), "hangs")
    folder = RunFolder.open(chosen, resume=False, overwrite=False)
    task = make_task(chosen.task)
    evaluator = make_evaluator(chosen, engine.chat)
    run = SelfPlay(chosen, task, engine, folder, Screen(), evaluator)

    async def patiently() -> None:
        await asyncio.wait_for(run.run(), 6)

    try:
        asyncio.run(patiently())
    finally:
        folder.close()
    assert len(lines(chosen, "eval")) == 2
