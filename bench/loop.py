"""Where a loop spends its time, and what overlapping buys.

share    self-play on toy-sums and on smollm2: wall time in sampling, training and everything else,
         and how much of it the engine is at work; the rest is what Rostra costs
async    sync against async on an engine with latency: rehearsed words, real gradients, and calls
         that take as long as they would over a network

    python bench/loop.py [--only share|async] [--steps 3] [--start runs/smollm2-warm]

Without --start, the warm start of smollm2 is made first, which takes minutes.
"""

import argparse
import asyncio
import functools
import io
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine import describe
from rich.console import Console

from rostra.cli.running import carry_out
from rostra.engines.local.scheduler import Scheduler
from rostra.engines.local.worker import Worker
from rostra.engines.scripted import ScriptedEngine
from rostra.learn.selfplay import SelfPlay
from rostra.learn.setup import make_engine, make_task
from rostra.players.rehearsal import rehearsal
from rostra.runs.display import PlainDisplay
from rostra.runs.folder import RunFolder, read_lines
from rostra.runs.recipe import find_recipe, read_recipe

RESULTS = Path(__file__).parent / "results" / "loop.json"


class SlowEngine:
    """Another engine behind a wire: every call takes its time, and sampling calls overlap."""

    name = "slow"

    def __init__(self, engine, sample: float, train: float, weights: float) -> None:
        self._engine = engine
        self._sample, self._train, self._weights = sample, train, weights
        self.chat = engine.chat

    async def sampler(self):
        return SlowSampler(await self._engine.sampler(), self._sample)

    async def trainer(self):
        return SlowTrainer(await self._engine.trainer(), self)

    @property
    def waits(self):
        return self._sample, self._train, self._weights


class SlowSampler:
    def __init__(self, sampler, seconds: float) -> None:
        self._sampler, self._seconds = sampler, seconds

    async def sample(self, prompt, n, params):
        await asyncio.sleep(self._seconds)
        return await self._sampler.sample(prompt, n, params)

    async def score(self, tokens, start):
        return await self._sampler.score(tokens, start)


class SlowTrainer:
    """Calls are worked off one after the other, in the order they came, as a server does."""

    def __init__(self, trainer, engine: SlowEngine) -> None:
        self._trainer = trainer
        self._sample, self._train, self._weights = engine.waits
        self._order = asyncio.Lock()

    async def _after(self, seconds: float, call):
        async with self._order:
            await asyncio.sleep(seconds)
            return await call

    async def forward(self, data):
        return await self._after(self._train, self._trainer.forward(data))

    async def forward_backward(self, data, loss):
        return await self._after(self._train, self._trainer.forward_backward(data, loss))

    async def optim_step(self, adam):
        return await self._after(self._train, self._trainer.optim_step(adam))

    async def sampler(self):
        return SlowSampler(await self._after(self._weights, self._trainer.sampler()), self._sample)

    async def save(self, name):
        await self._trainer.save(name)

    async def load(self, name):
        await self._trainer.load(name)


def run(recipe, engine, folder: Path) -> tuple[float, list[dict]]:
    """Wall seconds of a whole run, and its lines of metrics."""
    opened = RunFolder.open(recipe, resume=False, overwrite=True)
    shown = PlainDisplay(Console(file=io.StringIO()))
    loop = SelfPlay(recipe, make_task(recipe.task), engine, opened, shown)
    began = time.perf_counter()
    asyncio.run(loop.run())
    seconds = time.perf_counter() - began
    opened.close()
    return seconds, read_lines(folder / "metrics.jsonl")


@contextmanager
def timed(*methods: tuple[type, str]) -> Iterator[list[float]]:
    """The seconds that some methods take while this goes on."""
    total, originals = [0.0], [getattr(owner, name) for owner, name in methods]

    def counted(original):
        @functools.wraps(original)
        def method(*arguments):
            began = time.perf_counter()
            try:
                return original(*arguments)
            finally:
                total[0] += time.perf_counter() - began

        return method

    for (owner, name), original in zip(methods, originals, strict=True):
        setattr(owner, name, counted(original))
    try:
        yield total
    finally:
        for (owner, name), original in zip(methods, originals, strict=True):
            setattr(owner, name, original)


def share(name: str, start: Path, settings: list[str], scratch: Path) -> dict:
    """The shares of sampling, training and the rest in the wall time of the steps, and of the work
    of the engine's thread in the wall time of the whole loop."""
    folder = scratch / name
    recipe = read_recipe(find_recipe(name), [f"folder={folder}", f"model.start={start}", *settings])
    engine = make_engine(recipe, folder / "checkpoints")
    with timed((Scheduler, "step"), (Worker, "_advance")) as busy:
        seconds, lines = run(recipe, engine, folder)
    total = sum(line["seconds"] for line in lines)
    found = {
        part: sum(line[f"time/{part}"] for line in lines) / total
        for part in ("sampling", "training", "other")
    }
    found["engine at work"] = busy[0] / seconds
    found |= {"seconds a step": total / len(lines), "steps": len(lines)}
    found["tokens/s"] = sum(line["tokens"] for line in lines) / total
    found["skipped"] = sum(line["skipped"] for line in lines)
    return found


def smollm2_start(scratch: Path) -> Path:
    """Untrained, it never finds the form of a debate, and there is nothing to learn from."""
    folder = scratch / "smollm2-warm"
    recipe = read_recipe(find_recipe("smollm2-warm"), [f"folder={folder}", "eval.questions=0"])
    carry_out(recipe, Console(stderr=True), resume=False, overwrite=True)
    return folder


def overlap(scratch: Path, steps: int = 20) -> list[dict]:
    """Seconds a step, sync and async, on an engine that takes its time."""
    rows = []
    modes = [("sync", 0), ("async", 1), ("async", 2), ("async", 4)]
    for mode, staleness in modes:
        folder = scratch / f"{mode}-{staleness}"
        settings = [
            f"folder={folder}",
            "model.engine=scripted",
            "model.start=",
            f"train.mode={mode}",
            f"train.staleness={staleness}",
            f"train.steps={steps}",
            "train.questions=8",
            "train.save_every=1000",
            "protocol.rounds=3",
            "protocol.max_tokens=1024",
            "microbatch=16",
        ]
        recipe = read_recipe(find_recipe("peer-v2-sums"), settings)
        inner = ScriptedEngine(rehearsal(fault=0.1), folder / "checkpoints")
        engine = SlowEngine(inner, sample=0.5, train=0.1, weights=0.1)
        seconds, _ = run(recipe, engine, folder)
        rows.append({"mode": mode, "staleness": staleness, "seconds a step": seconds / steps})
    for row in rows:
        row["against sync"] = rows[0]["seconds a step"] / row["seconds a step"]
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", choices=["share", "async"])
    options.add_argument("--steps", type=int, default=3, help="steps of smollm2")
    options.add_argument("--start", type=Path, help="a warm start of smollm2 that was made before")
    given = options.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found["machine"] = describe()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if given.only != "async":
            quick = ["eval.questions=0", "save_every=1000"]
            sums = find_recipe("warm-sums").parent / "weights" / "sums"
            small = share("peer-v2-sums", sums, ["steps=8", *quick], scratch)
            start = given.start or smollm2_start(scratch)
            large = share("smollm2", start, [f"steps={given.steps}", *quick], scratch)
            found["share"] = {"toy-sums": small, "smollm2": large}
            for name, row in found["share"].items():
                shown = ("sampling", "training", "other", "engine at work")
                parts = "  ".join(f"{part} {row[part]:.1%}" for part in shown)
                print(f"{name:10} {parts}  {row['seconds a step']:.2f} s a step")
        if given.only != "share":
            found["async"] = overlap(scratch)
            for row in found["async"]:
                print(
                    f"{row['mode']:6} staleness {row['staleness']}  "
                    f"{row['seconds a step']:.3f} s a step  {row['against sync']:.2f}x"
                )
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
