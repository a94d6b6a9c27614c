"""A small sample of a run: what is played, timed and weighed before anything is trained."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rostra.arena import Debate, Heard, Played, play
from rostra.debate.peer import PeerRules
from rostra.debate.transcript import Transcript
from rostra.engines.engine import Engine
from rostra.learn.lesson import learn_from
from rostra.learn.selfplay import step_debates
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.rewards.advantages import RoleBaseline
from rostra.runs.display import rss
from rostra.runs.settings import Recipe
from rostra.seeds import derive
from rostra.tasks.question import Question
from rostra.tasks.task import Task

Progress = Callable[[str, int, int, int], None]
"""Called with what is being done, debates that are over, debates in all, and tokens sampled."""
K = 3
"""Answers to a question that pass@k is about."""
TIMED = 20
"""So many examples are gone through to see how long training takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A few debates and what they took. The weights were not changed."""

    played: Played
    sampling: float
    """Seconds."""
    training: float
    """Seconds; 0 where no debate has a signal to train on."""

    @property
    def debates(self) -> int:
        return len(self.played.transcripts)

    @property
    def tokens(self) -> int:
        """That were sampled."""
        return sum(turn.sampled for t in self.played.transcripts for turn in t.turns)


async def probe(
    recipe: Recipe,
    task: Task,
    engine: Engine,
    count: int,
    watch: Callable[[Heard], None] | None = None,
) -> Probe:
    """Plays the first debates of a run and goes through what they teach. Raises ArenaError where
    none can be finished."""
    trainer = await engine.trainer()
    train = replace(recipe.train, questions=count)
    debates = step_debates(replace(recipe, train=train), task, 0)
    player = ModelPlayer(await trainer.sampler(), engine.chat)
    began = time.monotonic()
    played = await play_sample(debates, player, recipe, watch)
    sampling = time.monotonic() - began
    # From then on everything is paid that the recipe pays at all.
    step = recipe.rewards.judge_first
    data = learn_from(played.transcripts, recipe, task, RoleBaseline(), step=step).data
    began = time.monotonic()
    if data:
        await trainer.forward(data[:TIMED])
    # Going back takes about twice as long as going forth.
    training = 3 * (time.monotonic() - began) * max(len(data) / TIMED, 1) if data else 0.0
    return Probe(played, sampling, training)


async def play_sample(
    debates: Sequence[Debate],
    player: Player,
    recipe: Recipe,
    watch: Callable[[Heard], None] | None = None,
) -> Played:
    train = recipe.train
    return await play(
        debates, player, retries=train.retries, turn_timeout=train.turn_timeout, watch=watch
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: held now, needed beside that for gradients and moments, and free."""

    held: float
    more: float
    free: float


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Everything that a recipe is judged by."""

    probe: Probe
    alone: Sequence[Transcript] = ()
    """Answers of whoever opens a debate, where one debate has fewer than K of them."""
    prepared: Sequence[Transcript] = ()
    """Ballots of the policy on solutions of the task's teacher, and no other votes."""
    context: int | None = None
    """Tokens that the model can read; None where there is no bound."""
    memory: Memory | None = None


def watcher(progress: Progress | None, text: str, total: int) -> Callable[[Heard], None] | None:
    if progress is None:
        return None
    over: set[int] = set()
    tokens = 0

    def watch(event: Heard) -> None:
        nonlocal tokens
        tokens += event.turn.sampled
        if event.state.outcome is not None:
            over.add(event.debate)
        progress(text, len(over), total, tokens)

    return watch


def alone_debates(rules: PeerRules, questions: Sequence[Question], seed: int) -> list[Debate]:
    """What has to be asked beside the openings of debates, to have K answers to a question."""
    opening = rules.opening()
    openers = len(opening.slots[0].seats)
    return [
        Debate(question, opening, derive(seed, "doctor", question.id, time))
        for question in questions
        for time in range(-(-K // openers) - 1)
    ]


def memory_of(engine: Engine) -> Memory | None:
    """What the process holds, and what training will add: a gradient and two moments for each
    weight that is trained. None where the machine does not tell."""
    weights: Any = getattr(engine, "weights", None)
    trained = getattr(weights, "trained", ())
    more = sum(parameter.numel() * 4.0 for parameter in trained) * 3
    device = next((parameter.device for parameter in trained), None)
    if device is not None and device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return Memory(float(torch.cuda.max_memory_reserved(device)), more, float(free))
    held = rss()
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return None if held is None else Memory(held, more, float(free))


def size(count: float) -> str:
    """Bytes, for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
