"""Torch works in a thread of its own: the loop goes on, and Ctrl-C does not wait."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rostra.engines.local.lora import Lora
from rostra.engines.sampling import SamplingParams
from rostra.engines.training import Datum

LONG = """
import asyncio, sys
import numpy as np
from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.trainer import TrainerOptions
from rostra.engines.sampling import SamplingParams
from rostra.engines.training import Datum

def datum(size):
    tokens, ones = np.arange(size + 1) % 600, np.ones(size, np.float32)
    return Datum(tokens[:-1], tokens[1:], -ones, ones, ones, np.zeros(size, np.int64))

async def main():
    engine = LocalEngine("toy", folder=sys.argv[1], training=TrainerOptions(batch_tokens=400_000))
    trainer = await engine.trainer()
    await trainer.forward([datum(20)])
    print("busy", flush=True)
    if sys.argv[2] == "training":
        await trainer.forward_backward([datum(600) for _ in range(150)], "cross_entropy")
    else:
        engine.ends = frozenset()
        sampler = await trainer.sampler()
        params = SamplingParams(max_tokens=4000)
        await asyncio.gather(*[sampler.sample(np.arange(9) + i, 1, params) for i in range(60)])

asyncio.run(main())
"""

ENDED = (-signal.SIGINT, 1)
"""What Python ends with after an interrupt; 1 where a package (peft is one) runs code at exit."""


def interrupted(tmp_path: Path, what: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds from Ctrl-C to the end, amid something that takes far longer."""
    process = subprocess.Popen(
        [sys.executable, "-c", LONG, str(tmp_path), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    time.sleep(1.5)
    assert process.poll() is None, "it should still be busy"
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=60)
    seconds = time.monotonic() - start
    return seconds, subprocess.CompletedProcess([], process.returncode, out, err)


def test_ctrl_c_ends_training_amid_a_pass(tmp_path: Path) -> None:
    seconds, done = interrupted(tmp_path, "training")
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "terminate called" not in done.stderr
    assert done.returncode in ENDED
    assert seconds < 10, "a pass alone takes far longer; two test processes share the machine"


def test_ctrl_c_ends_sampling(tmp_path: Path) -> None:
    seconds, done = interrupted(tmp_path, "sampling")
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "terminate called" not in done.stderr
    assert done.returncode in ENDED
    assert seconds < 10


def test_the_loop_goes_on_while_torch_works(fresh: Any) -> None:
    engine = fresh()
    tokens, ones = np.arange(1001) % 600, np.ones(1000, np.float32)
    datum = Datum(tokens[:-1], tokens[1:], -ones, ones, ones, np.zeros(1000, np.int64))

    async def run() -> tuple[int, float]:
        trainer = await engine.trainer()
        task = asyncio.create_task(trainer.forward_backward([datum] * 8, "cross_entropy"))
        start, ticks = time.monotonic(), 0
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return ticks, time.monotonic() - start

    ticks, seconds = asyncio.run(run())
    assert seconds > 0.2, "otherwise this shows nothing"
    assert ticks > seconds / 0.005 / 20


def test_sampling_goes_on_between_the_passes_of_training(fresh: Any) -> None:
    from rostra.engines.local.trainer import TrainerOptions

    engine = fresh(lora=Lora(4), training=TrainerOptions(batch_tokens=300))
    tokens, ones = np.arange(251) % 600, np.ones(250, np.float32)
    datum = Datum(tokens[:-1], tokens[1:], -ones, ones, ones, np.zeros(250, np.int64))
    order: list[str] = []

    async def run() -> None:
        trainer = await engine.trainer()
        sampler = await trainer.sampler()

        async def train() -> None:
            await trainer.forward_backward([datum] * 40, "cross_entropy")
            order.append("training")

        async def speak() -> None:
            await sampler.sample(tokens[:20], 1, SamplingParams(max_tokens=8))
            order.append("speaking")

        await asyncio.gather(train(), speak())

    asyncio.run(run())
    assert order == ["speaking", "training"], "a short reply does not wait for forty passes"
