import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from rostra.engines.bytechat import VOCABULARY
from rostra.engines.scripted import ScriptedEngine, ScriptedTrainer, log_softmax
from rostra.engines.training import Adam, Datum, Loss, TrainOutput
from rostra.errors import EngineError
from rostra.learn.update import submit

ADAM = Adam(0.01, clip_norm=0.0)


def data(count: int, seed: int = 0) -> list[Datum]:
    """Examples of different lengths, temperatures and weights."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        length = int(random.integers(5, 40))
        tokens = random.integers(0, VOCABULARY, length + 1)
        mask = (random.random(length) < 0.7).astype(np.float32)
        found.append(
            Datum(
                tokens[:-1],
                tokens[1:],
                (np.log(1 / VOCABULARY) * mask).astype(np.float32),
                (random.normal(size=length) * mask).astype(np.float32),
                mask,
                np.where(mask > 0, 0, -1).astype(np.int8),
                float(random.choice([0.6, 1.0])),
            )
        )
    return found


def logits_after(tmp_path, microbatch: int, loss: Loss = "importance_sampling"):
    """The log-probabilities of all tokens after two updates, and what was reported of the last."""

    async def main():
        trainer = await ScriptedEngine([], tmp_path).trainer()
        for seed in (0, 1):
            metrics = await submit(trainer, data(10, seed), loss, ADAM, microbatch).done()
        sampler = await trainer.sampler()
        return await sampler.score(np.arange(VOCABULARY), 0), metrics

    return asyncio.run(main())


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cross_entropy"])
@pytest.mark.parametrize("microbatch", [1, 3, 10])
def test_microbatches_add_up_to_one_big_batch(tmp_path, microbatch, loss):
    big, told = logits_after(tmp_path, 1000, loss)
    small, metrics = logits_after(tmp_path, microbatch, loss)
    np.testing.assert_allclose(small, big, rtol=0, atol=1e-6)
    assert np.ptp(big) > 0.01
    assert metrics == pytest.approx(told)


def test_an_update_tells_its_loss_its_rate_and_how_far_it_is_from_the_sampler(tmp_path):
    async def main():
        trainer = await ScriptedEngine([], tmp_path).trainer()
        return await submit(trainer, data(4), "importance_sampling", ADAM, 3).done()

    metrics = asyncio.run(main())
    # Before the first update every token has the probability it was sampled with: ratios are 1.
    assert metrics["loss"] == pytest.approx(-sum(float(d.weights.sum()) for d in data(4)), rel=1e-4)
    assert metrics["optim/learning_rate"] == 0.01
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0, abs=1e-6)
    assert metrics["optim/entropy"] == pytest.approx(np.log(VOCABULARY), rel=1e-5)
    assert metrics["optim/grad_norm"] > 0


class Slow:
    """A trainer that notes who arrives and who leaves, and works only when it is let."""

    def __init__(self, inner: ScriptedTrainer, fails: str = "") -> None:
        self.inner = inner
        self.fails = fails
        self.free = asyncio.Event()
        self.failing = asyncio.Event()
        self.arrived: list[str] = []
        self.ended: list[str] = []

    async def _wait(self, name: str) -> None:
        self.arrived.append(name)
        try:
            if name == self.fails:
                await self.failing.wait()
                raise EngineError(f"{name} failed")
            await self.free.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # a server takes a while to give up
            self.ended.append(f"{name} cancelled")
            raise
        self.ended.append(name)

    async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput:
        await self._wait(f"pass of {len(data)}")
        return await self.inner.forward_backward(data, loss)

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        await self._wait("step")
        return await self.inner.optim_step(adam)


async def slow(tmp_path, fails: str = "") -> Slow:
    return Slow(await ScriptedEngine([], tmp_path).trainer(), fails)


def test_all_calls_arrive_in_order_before_the_first_has_come_back(tmp_path):
    async def main():
        trainer = await slow(tmp_path)
        update = submit(trainer, data(8), "importance_sampling", ADAM, 3)
        await asyncio.sleep(0)
        assert trainer.arrived == ["pass of 3", "pass of 3", "pass of 2", "step"]
        assert trainer.ended == []
        trainer.free.set()
        await update.done()
        assert trainer.ended == ["pass of 3", "pass of 3", "pass of 2", "step"]
        return await (await trainer.inner.sampler()).score(np.arange(VOCABULARY), 0)

    changed = asyncio.run(main())
    assert np.ptp(changed) > 0.01


def test_every_example_is_handed_over_once_and_in_order(tmp_path):
    seen: list[Datum] = []

    class Reading(Slow):
        async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput:
            seen.extend(data)
            return await self.inner.forward_backward(data, loss)

    async def main():
        trainer = Reading(await ScriptedEngine([], tmp_path).trainer())
        trainer.free.set()
        given = data(7)
        await submit(trainer, given, "ppo", ADAM, 2).done()
        return given

    given = asyncio.run(main())
    assert [id(d) for d in seen] == [id(d) for d in given]


@pytest.mark.parametrize("fails", ["pass of 1", "step"])
def test_a_part_that_fails_ends_the_others_before_it_is_raised(tmp_path, fails):
    async def main():
        trainer = await slow(tmp_path, fails)
        update = submit(trainer, data(7), "importance_sampling", ADAM, 3)
        done = asyncio.ensure_future(update.done())
        await asyncio.sleep(0.01)
        assert not done.done() and len(trainer.arrived) == 4
        trainer.failing.set()
        with pytest.raises(EngineError, match=f"{fails} failed"):
            await done
        others = ["pass of 3", "pass of 3", "pass of 1", "step"]
        others.remove(fails)
        assert sorted(trainer.ended) == sorted(f"{name} cancelled" for name in others)
        assert len(asyncio.all_tasks()) == 1
        return await (await trainer.inner.sampler()).score(np.arange(VOCABULARY), 0)

    untouched = asyncio.run(main())
    np.testing.assert_allclose(untouched, log_softmax(np.zeros(VOCABULARY)), rtol=1e-6)


def test_whoever_gives_up_on_an_update_leaves_nothing_running(tmp_path):
    async def main():
        trainer = await slow(tmp_path)
        done = asyncio.ensure_future(
            submit(trainer, data(4), "importance_sampling", ADAM, 2).done()
        )
        await asyncio.sleep(0.01)
        done.cancel()
        with pytest.raises(asyncio.CancelledError):
            await done
        assert sorted(trainer.ended) == ["pass of 2 cancelled"] * 2 + ["step cancelled"]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
