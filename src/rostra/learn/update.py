"""One update of the weights: forward and backward in microbatches, then one optimiser step."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rostra.credit.metrics import optim_metrics
from rostra.engines.training import Adam, Datum, Loss, Trainer, TrainOutput


@dataclass(frozen=True, slots=True)
class Update:
    """An update on its way. Its parts were handed to the trainer in order."""

    data: Sequence[Datum]
    passes: Sequence["asyncio.Future[TrainOutput]"]
    step: "asyncio.Future[Mapping[str, float]]"
    adam: Adam

    async def done(self) -> dict[str, float]:
        """Waits for it, and says how it went. Nothing is left behind when a part fails."""
        parts: list[asyncio.Future[Any]] = [*self.passes, self.step]
        try:
            await asyncio.gather(*parts)
        except BaseException:
            await self.drop()
            raise
        outputs = [part.result() for part in self.passes]
        logprobs = [row for output in outputs for row in output.logprobs]
        stepped = self.step.result()
        return {
            "loss": sum(output.loss for output in outputs),
            "optim/learning_rate": self.adam.learning_rate,
            **optim_metrics(self.data, logprobs),
            **{f"optim/{name}": value for name, value in stepped.items()},
        }

    async def drop(self) -> None:
        """Gives up what is not done yet."""
        parts: list[asyncio.Future[Any]] = [*self.passes, self.step]
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


def submit(
    trainer: Trainer, data: Sequence[Datum], loss: Loss, adam: Adam, microbatch: int
) -> Update:
    """Hands a whole update to the trainer at once: a server works through it without waiting for
    us between two calls. Tasks begin in the order they are made, so calls arrive in order."""
    chunks = [data[i : i + microbatch] for i in range(0, len(data), microbatch)]
    passes = [asyncio.ensure_future(trainer.forward_backward(chunk, loss)) for chunk in chunks]
    return Update(data, passes, asyncio.ensure_future(trainer.optim_step(adam)), adam)
